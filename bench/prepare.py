"""Analysed documents and queries for the benchmark, as plain arrays every engine can be given.

    python bench/prepare.py corpus.jsonl questions.jsonl FOLDER [--count 2000] [--documents N] [--analyzer NAME]

FOLDER gets `documents/` and `queries/`, each with `pointers.npy` and `terms.npy` (term numbers in their order, with
repeats), and `questions.json`. With --impacts each term comes once, with a weight in `weights.npy`: BM25's, in whole
numbers from 1 to 255, as learned-sparse models have them. With --model they are those of a network, bm26 or the folder
of one that was trained; 100,000 passages take a network a quarter of an hour on two cores and seconds on a GPU.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from vizsla.datasets import read_documents
from vizsla.models import LearnedSparse, parse_model
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


def encode(texts: Iterable[str], model: LearnedSparse, folder: Path) -> None:
    """Write the vectors of texts, in whole numbers on either side."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = model.pieces.numbers
    pointers, terms, weights = [0], [], []
    stream = iter(texts)
    while batch := list(islice(stream, BATCH)):
        for row in model.query_terms(batch):
            terms.append(np.array([numbers[t] for t in row], np.uint32))
            weights.append(np.array([*row.values()], np.uint16))
            pointers.append(pointers[-1] + len(row))
    np.save(folder / "pointers.npy", np.array(pointers))
    np.save(folder / "terms.npy", np.concatenate([*terms, np.zeros(0, np.uint32)]))
    np.save(folder / "weights.npy", np.concatenate([*weights, np.zeros(0, np.uint16)]))


def to_impacts(folder: Path) -> None:
    """Turn analysed documents and queries into vectors of small whole numbers: BM25's two sides, quantised."""
    rows = {name: _counted(folder / name) for name in ("documents", "queries")}
    pointers, terms, counts = rows["documents"]
    lengths = np.diff(np.append(0, np.cumsum(counts))[pointers])
    norms = np.repeat(0.9 * (0.6 + 0.4 * lengths / lengths.mean()), np.diff(pointers))
    df = np.bincount(terms, minlength=int(max(t.max(initial=0) for _, t, _ in rows.values())) + 1)
    idf = np.log1p((len(lengths) - df + 0.5) / (df + 0.5))
    weights = {
        "documents": counts / (counts + norms) * 255,
        "queries": rows["queries"][2] * idf[rows["queries"][1]] * 3,
    }
    for name, (starts, numbers, _) in rows.items():
        np.save(folder / name / "pointers.npy", starts)
        np.save(folder / name / "terms.npy", numbers.astype(np.uint32))
        np.save(folder / name / "weights.npy", np.clip(np.ceil(weights[name]), 1, 255).astype(np.uint16))


def _counted(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct terms and how often each occurs, row by row."""
    pointers, terms = np.load(folder / "pointers.npy"), np.load(folder / "terms.npy")
    size = int(terms.max(initial=0)) + 1
    row = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
    keys, counts = np.unique(row * size + terms, return_counts=True)
    return np.append(0, np.cumsum(np.bincount(keys // size, minlength=len(pointers) - 1))), keys % size, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("questions")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--analyzer", default="lucene-english")
    parser.add_argument("--documents", type=int)
    parser.add_argument("--impacts", action="store_true")
    parser.add_argument("--model", help="a learned model, whose vectors are written")
    parser.add_argument("--count", type=int, default=2000, help="how many questions")
    options = parser.parse_args()
    documents = islice(read_documents(options.corpus), options.documents)
    texts = (f"{d.content.get('title', '')}\n{d.content['text']}" for d in documents)
    with open(options.questions, encoding="utf-8") as lines:
        questions = [json.loads(line)["text"] for line in islice(lines, options.count)]
    if options.model:
        model = parse_model(options.model)
        if not isinstance(model, LearnedSparse):
            raise SystemExit(f"{options.model} has no network")
        write, how = encode, replace(model, whole=True)
    else:
        write, how = analyse, Analyzer.parse(options.analyzer).lexicon()
    write(texts, how, options.folder / "documents")
    write(questions, how, options.folder / "queries")
    (options.folder / "questions.json").write_text(json.dumps(questions))
    if options.impacts:
        to_impacts(options.folder)


if __name__ == "__main__":
    main()
