"""Analysed documents and queries for the benchmark, as plain arrays every engine can be given.

    python bench/prepare.py corpus.jsonl questions.jsonl FOLDER [--count 2000] [--documents N] [--analyzer NAME]

FOLDER gets `documents/` and `queries/`, each with `pointers.npy` and `terms.npy` (term numbers in their order, with
repeats), and `questions.json`. With --impacts each term comes once, with a weight in `weights.npy`: BM25's, in whole
numbers from 1 to 255, as learned-sparse models have them. With --model they are those of a network (bm26,
vizsla-splade, or the folder of one that was trained), or of BM25 and a network in one vector (vizsla-sparse); 100,000
passages take a network a quarter of an hour on two cores and seconds on a GPU.
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
from vizsla.models import LearnedSparse, Sum, parse_model
from vizsla.text import Analyzer
from vizsla.text.lexicon import Lexicon

BATCH = 5000
DOCUMENT_LEVELS, QUERY_LEVELS = 255, 3
"""The whole numbers that stand for a weight of 1 in BM25's vectors."""


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


def encode(texts: Iterable[str], model: LearnedSparse, folder: Path, side: str) -> None:
    """Write the vectors of documents or queries, in whole numbers on either side."""
    folder.mkdir(parents=True, exist_ok=True)
    encoder, numbers = model.document_encoder(), {term: number for number, term in enumerate(model.terms)}
    pointers, terms, weights = [np.zeros(1, np.int64)], [], []
    stream = iter(texts)
    while batch := list(islice(stream, BATCH)):
        if side == "documents":
            vectors = encoder.encode([{"text": text} for text in batch]).vectors
            sizes = np.diff(vectors.pointers)
            terms.append(vectors.indices.astype(np.uint32))
            weights.append(vectors.values.astype(np.uint16))
        else:
            rows = model.query_terms(batch)
            sizes = np.array([len(row) for row in rows])
            terms.append(np.array([numbers[term] for row in rows for term in row], np.uint32))
            weights.append(np.array([weight for row in rows for weight in row.values()], np.uint16))
        pointers.append(pointers[-1][-1] + np.cumsum(sizes))
    np.save(folder / "pointers.npy", np.concatenate(pointers))
    np.save(folder / "terms.npy", np.concatenate([*terms, np.zeros(0, np.uint32)]))
    np.save(folder / "weights.npy", np.concatenate([*weights, np.zeros(0, np.uint16)]))


def join(folder: Path, first: Path, second: Path, factor: float) -> None:
    """Vectors of two kinds as one, query weights of the second times a factor, the highest as 255."""
    names, sides = ("pointers", "terms", "weights"), ("documents", "queries")
    rows = {
        side: [[np.load(part / side / f"{name}.npy") for name in names] for part in (first, second)] for side in sides
    }
    size = 1 + max(int(rows[side][0][1].max(initial=0)) for side in sides)
    for side in sides:
        one, two = rows[side]
        weights = np.concatenate([one[2], two[2] * (factor if side == "queries" else 1.0)])
        if side == "queries":
            weights *= 255 / weights.max()
        row = np.concatenate([np.repeat(np.arange(len(part[0]) - 1), np.diff(part[0])) for part in (one, two)])
        order = np.argsort(row, kind="stable")
        (folder / side).mkdir(parents=True, exist_ok=True)
        np.save(folder / side / "pointers.npy", one[0] + two[0])
        np.save(folder / side / "terms.npy", np.concatenate([one[1], two[1] + np.uint32(size)])[order])
        np.save(folder / side / "weights.npy", np.clip(np.round(weights), 1, 255).astype(np.uint16)[order])


def to_impacts(folder: Path) -> None:
    """Turn analysed documents and queries into vectors of small whole numbers: BM25's two sides, quantised."""
    rows = {name: _counted(folder / name) for name in ("documents", "queries")}
    pointers, terms, counts = rows["documents"]
    lengths = np.diff(np.append(0, np.cumsum(counts))[pointers])
    norms = np.repeat(0.9 * (0.6 + 0.4 * lengths / lengths.mean()), np.diff(pointers))
    df = np.bincount(terms, minlength=int(max(t.max(initial=0) for _, t, _ in rows.values())) + 1)
    idf = np.log1p((len(lengths) - df + 0.5) / (df + 0.5))
    weights = {
        "documents": counts / (counts + norms) * DOCUMENT_LEVELS,
        "queries": rows["queries"][2] * idf[rows["queries"][1]] * QUERY_LEVELS,
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
    model = parse_model(options.model) if options.model else None
    if model is None:
        write_terms(options, options.folder, options.analyzer)
    elif isinstance(model, LearnedSparse):
        write_vectors(options, options.folder, model)
    elif isinstance(model, Sum):
        words, network = (part.component for part in model.parts)
        write_terms(options, options.folder / "words", str(words.analyzer))
        to_impacts(options.folder / "words")
        write_vectors(options, options.folder / "network", network)
        unit = (network.stored_maximum / 255) ** 2  # what the product of two weights of 1 adds to a score
        factor = model.parts[1].weight / model.parts[0].weight * unit * DOCUMENT_LEVELS * QUERY_LEVELS
        join(options.folder, options.folder / "words", options.folder / "network", factor)
    else:
        raise SystemExit(f"{options.model} has no network")
    (options.folder / "questions.json").write_text(json.dumps(questions(options)))
    if options.impacts:
        to_impacts(options.folder)


def texts(options: argparse.Namespace) -> Iterable[str]:
    documents = islice(read_documents(options.corpus), options.documents)
    return (f"{d.content.get('title', '')}\n{d.content['text']}" for d in documents)


def questions(options: argparse.Namespace) -> list[str]:
    with open(options.questions, encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in islice(lines, options.count)]


def write_terms(options: argparse.Namespace, folder: Path, analyzer: str) -> None:
    lexicon = Analyzer.parse(analyzer).lexicon()
    analyse(texts(options), lexicon, folder / "documents")
    analyse(questions(options), lexicon, folder / "queries")


def write_vectors(options: argparse.Namespace, folder: Path, model: LearnedSparse) -> None:
    whole = replace(model, whole=True)
    encode(texts(options), whole, folder / "documents", "documents")
    encode(questions(options), whole, folder / "queries", "queries")


if __name__ == "__main__":
    main()
