"""Analysed documents and queries for the benchmark, as plain arrays every engine can be given.

    python bench/prepare.py corpus.jsonl questions.jsonl FOLDER [--questions 2000] [--documents N] [--analyzer NAME]

FOLDER gets `documents/` and `queries/`, each with `pointers.npy` and `terms.npy` (term numbers in their order, with
repeats), and `questions.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np

from vizsla.datasets import read_documents
from vizsla.text import Analyzer
from vizsla.text.lexicon import Lexicon

BATCH = 5000


def analyse(texts: Iterable[str], lexicon: Lexicon, folder: Path) -> None:
    """Write the terms of texts, batch by batch."""
    folder.mkdir(parents=True, exist_ok=True)
    pointers, parts, end = [np.zeros(1, np.int64)], [], 0
    stream = iter(texts)
    while batch := list(islice(stream, BATCH)):
        terms, ends = lexicon.encode(batch)
        pointers.append(ends + end)
        parts.append(terms.astype(np.uint32))
        end += len(terms)
    np.save(folder / "pointers.npy", np.concatenate(pointers))
    np.save(folder / "terms.npy", np.concatenate([*parts, np.zeros(0, np.uint32)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("questions")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--analyzer", default="lucene-english")
    parser.add_argument("--documents", type=int)
    parser.add_argument("--count", type=int, default=2000, help="how many questions")
    options = parser.parse_args()
    lexicon = Analyzer.parse(options.analyzer).lexicon()
    documents = islice(read_documents(options.corpus), options.documents)
    texts = (f"{d.content.get('title', '')}\n{d.content['text']}" for d in documents)
    analyse(texts, lexicon, options.folder / "documents")
    with open(options.questions, encoding="utf-8") as lines:
        questions = [json.loads(line)["text"] for line in islice(lines, options.count)]
    analyse(questions, lexicon, options.folder / "queries")
    (options.folder / "questions.json").write_text(json.dumps(questions))


if __name__ == "__main__":
    main()
