"""SEAL beside BM25 and GAR: what its suffix arrays cost, and the share of questions that find an answer.

    python bench/seal.py build CORPUS FOLDER GENERATOR [--documents N] [--every N]
    python bench/seal.py questions FOLDER QUESTIONS GENERATOR [--weights W ...] [--expand EXPANDER ...] [--limit N]

`build` indexes documents for `bm25 + seal` (CORPUS as `vizsla index` reads it; `--every 10` takes each tenth) and
prints the time, the peak of memory and the size of the suffix arrays; then how long it takes to find, to count and to
continue an n-gram. Of the generator it needs the tokenizer only. `questions` (JSON lines with texts and answers)
searches this index with BM25, with SEAL, with their sums by the weights, with their fusion by reciprocal ranks, and
with BM25 after each expander, such as "gar(file=FILE, questions=QUESTIONS)", also with SEAL added by the last weight
and fused with SEAL.
A generator writes the n-grams of a question once for all of these; its time is printed by itself, and so is that of
scores.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.datasets import Document, Source, read_questions
from vizsla.engine import CollectionNgrams
from vizsla.engine.ngram_scores import best_ngram_scores, ngram_scores, rows_with_ngrams
from vizsla.engine.suffix_array import FIRST, SuffixArray
from vizsla.evaluation import answer_accuracy
from vizsla.index import Index
from vizsla.models import BM25, Seal, parse_expander
from vizsla.models.generator import TextGenerator, open_generator

DEPTHS = (5, 20, 100)
FUSION = "rrf(k=60)"
NGRAMS = 2000
LENGTHS = (1, 2, 3, 5, 10)


def peak_megabytes() -> float:
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / unit


def build(options: argparse.Namespace) -> None:
    if options.folder.exists():
        print(f"{options.folder} is there already")
        with Index.open(options.folder) as index:
            return ask(index)
    documents: Iterator[Document] = islice(Source.find(options.corpus).documents(), 0, options.documents, options.every)
    before, began, used = peak_megabytes(), time.perf_counter(), time.process_time()
    with Index.create(options.folder, BM25() + Seal(options.generator)) as index:
        index.add(documents)
        index.commit()
        print(f"{len(index):,} documents in {time.perf_counter() - began:.0f} s", end=" ")
        print(f"({time.process_time() - used:.0f} s of processor time), {peak_megabytes():,.0f} MB at most", end=" ")
        print(f"({before:,.0f} MB before)")
        facts, segments = index.info()["ngrams"], index.info()["segments"]
        print(f"suffix arrays: {facts['tokens']:,} tokens, {facts['bytes'] / 1e6:,.1f} MB, {segments} segments")
        began = time.perf_counter()
        index.compact()
        print(f"compacted into one segment in {time.perf_counter() - began:.0f} s, {peak_megabytes():,.0f} MB at most")
    with Index.open(options.folder) as index:
        return ask(index)


def arrays_of(index: Index) -> tuple[list[SuffixArray], CollectionNgrams]:
    arrays = [array for segment in index._searcher.snapshot.segments for array in segment.ngrams.values()]
    return arrays, CollectionNgrams(arrays, [None] * len(arrays), sum(len(a.tokens) for a in arrays))


def ask(index: Index) -> None:
    """How long it takes to find n-grams from all over the collection, and what follows them."""
    arrays, ngrams = arrays_of(index)
    rng, size = np.random.default_rng(0), 1 + max(int(array.tokens.max()) for array in arrays)
    for length in LENGTHS:
        rows: list[np.ndarray] = []
        while len(rows) < NGRAMS:
            tokens = arrays[int(rng.integers(len(arrays)))].tokens
            start = int(rng.integers(len(tokens) - length))
            row = np.array(tokens[start : start + length], np.int64)
            rows += [row] if row.min() >= FIRST else []
        began = time.perf_counter()
        places = [ngrams.find(row) for row in rows]
        found = time.perf_counter()
        counts = [ngrams.count(place) for place in places]
        counted = time.perf_counter()
        for place in places:
            ngrams.next_tokens(place, size)
        ended = time.perf_counter()
        each = [f"{1e6 * (b - a) / NGRAMS:.1f}" for a, b in ((began, found), (found, counted), (counted, ended))]
        print(f"n-grams of {length:2} tokens, median count {np.median(counts):,.0f}: found in {each[0]} µs, ", end="")
        print(f"counted in {each[1]} µs, continued in {each[2]} µs")


class Remembering(TextGenerator):
    """A generator that writes the n-grams of a question once."""

    def __init__(self, generator: TextGenerator) -> None:
        self.own, self.task, self.name = generator, generator.task, generator.name
        self.digest, self.length, self.seconds = generator.digest, generator.length, 0.0
        self.written: dict[Any, Any] = {}

    def generate(self, texts: Sequence[str], sampling: Any = None, keys: Any = None) -> list[list[str]]:
        return self.own.generate(texts, sampling, keys)

    def token_counts(self, texts: Sequence[str]) -> np.ndarray:
        return self.own.token_counts(texts)

    def search(self, texts: Sequence[str], rule: Any, beam: int, steps: int, *, titles: bool = False) -> list[Any]:
        new = [text for text in dict.fromkeys(texts) if (text, beam, steps, titles) not in self.written]
        began = time.perf_counter()
        for text, found in zip(new, self.own.search(new, rule, beam, steps, titles=titles), strict=True):
            self.written[text, beam, steps, titles] = found
        self.seconds += time.perf_counter() - began
        return [self.written[text, beam, steps, titles] for text in texts]


def score(index: Index, seal: Seal, asked: Sequence[str]) -> None:
    """How long the n-grams of questions take to score: for the best documents alone, and for each that has any."""
    arrays, ngrams = arrays_of(index)
    queries, used = seal.query_ngrams(asked, ngrams), [0.0, 0.0]
    for query in queries:
        for array in arrays:
            began, size = time.process_time(), len(array)
            best_ngram_scores(array, query, np.zeros(size), np.zeros(size, np.bool_), None, max(DEPTHS))
            middle = time.process_time()
            ngram_scores(array, rows_with_ngrams(array, query), query)
            used = [used[0] + middle - began, used[1] + time.process_time() - middle]
    best, every = (1000 * seconds / max(len(queries), 1) for seconds in used)
    print(
        f"{np.mean([len(query) for query in queries]):.0f} n-grams of a question are scored in {best:.1f} ms", end=" "
    )
    print(f"of processor time for the best {max(DEPTHS)}, in {every:.1f} ms for all documents that have one")


def questions(options: argparse.Namespace) -> None:
    texts, answers, _ = read_questions(options.questions)
    asked = dict(islice(texts.items(), options.first, options.first + options.limit))
    seal = Seal(options.generator, beam=options.beam, ngram_length=options.ngram_length)
    assert seal.opened is not None
    remembering = Remembering(open_generator(options.generator))
    seal.opened.__dict__["generator"] = remembering
    with Index.open(options.folder) as index:
        sums = {f"bm25 + {weight:g} * seal": BM25() + weight * seal for weight in options.weights}
        systems: dict[str, tuple[Any, str | None]] = {"bm25": (BM25(), None), "seal": (seal, None)}
        systems |= {name: (model, None) for name, model in sums.items()}
        systems[f"bm25 and seal, {FUSION}"] = BM25() + seal, FUSION
        for text in options.expand:
            expanded = BM25().expand(parse_expander(text))
            systems[text] = expanded, None
            systems[f"{text} + {options.weights[-1]:g} * seal"] = expanded + options.weights[-1] * seal, None
            systems[f"{text} and seal, {FUSION}"] = expanded + seal, FUSION
        print(f"{len(asked):,} questions of {options.questions.name}, {len(index):,} documents, beam {seal.beam}\n")
        heads = " ".join(f"{name:>8}" for name in (*(f"Acc@{k}" for k in DEPTHS), "seconds"))
        print(f"{'system':<50} {heads}")
        for name, (model, combine) in systems.items():
            began, wrote = time.perf_counter(), remembering.seconds
            run = index.with_model(model, combine=combine).run(asked, max(DEPTHS))
            seconds = time.perf_counter() - began - (remembering.seconds - wrote)
            figures = answer_accuracy(index, asked, answers, DEPTHS, run=run)
            cells = " ".join(f"{figures[f'Acc@{k}']:8.4f}" for k in DEPTHS)
            print(f"{name[-50:]:<50} {cells} {seconds:8.1f}", flush=True)
        print(f"\nthe generator wrote for {remembering.seconds:.1f} s")
        score(index, seal, list(asked.values()))
        if options.examples:
            for text in islice(asked.values(), options.examples):
                view = index.with_model(seal)
                for hit in view.search(text, 1):
                    parts = sorted(view.explain(text, hit.id).parts, key=lambda part: -part.score)[:5]
                    shown = {str(part.facts["ngram"]): round(part.score, 1) for part in parts}
                    print(json.dumps({"question": text, "best": hit.id, "ngrams": shown}, ensure_ascii=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    made = commands.add_parser("build")
    made.add_argument("corpus")
    made.add_argument("folder", type=Path)
    made.add_argument("generator")
    made.add_argument("--documents", type=int, default=None)
    made.add_argument("--every", type=int, default=1)
    made.set_defaults(run=build)
    asked = commands.add_parser("questions")
    asked.add_argument("folder", type=Path)
    asked.add_argument("questions", type=Path)
    asked.add_argument("generator")
    asked.add_argument("--weights", type=float, nargs="+", default=[0.03])
    asked.add_argument("--expand", nargs="+", default=[])
    asked.add_argument("--first", type=int, default=0)
    asked.add_argument("--limit", type=int, default=200)
    asked.add_argument("--beam", type=int, default=15)
    asked.add_argument("--ngram-length", type=int, default=10)
    asked.add_argument("--examples", type=int, default=0)
    asked.set_defaults(run=questions)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
