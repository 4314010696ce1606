"""Typing errors: what one wrong letter in a query costs, and what correcting queries gets back.

    python bench/typos.py --data data scifact/test nfcorpus/test [--seeds 3]   # nDCG@10: clean, misspelt, corrected
    python bench/typos.py --data data scifact/test --time INDEX [INDEX ...]    # milliseconds of a correction
    python bench/typos.py --data data scifact/train --blanks                   # words cut in two and run together

One word of at least four letters, chosen by chance, has one edit: a letter is inserted, left out or replaced, or two
neighbours are swapped. Figures are means over the seeds. What is recovered is the part of the difference between the
clean and the misspelt queries. Times are processor time, of queries of the first data set in which a word of the index
is misspelt, so that it has to be corrected; nothing is kept from one to the next but what is read of the index.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vizsla import BeirDataset, Index, Qrels, Run, evaluate
from vizsla.index.search.spelling import Speller
from vizsla.runs.retriever import ranking_of

LETTERS = "abcdefghijklmnopqrstuvwxyz"
MEASURE = "nDCG@10"
_WORD = re.compile(r"[^\W\d_]{4,}")


def misspelt(query: str, dice: random.Random) -> str:
    """A query with one edit in one word of at least four letters."""
    words = list(_WORD.finditer(query))
    if not words:
        return query
    found = dice.choice(words)
    word = changed = found[0]
    while changed == word:
        kind = dice.choice(("insert", "delete", "substitute", "transpose"))
        at = dice.randrange(len(word) + (kind == "insert"))
        before, after = word[:at], word[at:]
        if kind == "insert":
            changed = before + dice.choice(LETTERS) + after
        elif kind == "delete":
            changed = before + after[1:]
        elif kind == "substitute":
            changed = before + dice.choice(LETTERS) + after[1:]
        else:
            changed = before + after[1:2] + after[:1] + after[2:]
    return query[: found.start()] + changed + query[found.end() :]


def cut_or_joined(query: str, dice: random.Random) -> str:
    """A query with one word cut in two, or two run together."""
    words = query.split(" ")
    at = dice.randrange(len(words))
    if at and dice.random() < 0.5:
        return " ".join([*words[: at - 1], words[at - 1] + words[at], *words[at + 1 :]])
    long = [i for i, word in enumerate(words) if len(word) >= 6]
    if long:
        at = dice.choice(long)
        place = dice.randint(2, len(words[at]) - 2)
        words[at] = f"{words[at][:place]} {words[at][place:]}"
    return " ".join(words)


def value(index: Index, qrels: Qrels, texts: Mapping[str, str], typos: str = "off") -> tuple[float, int]:
    """The measure of some queries, and how many of them were corrected."""
    found = index.search_many(list(texts.values()), 10, documents=False, typos=typos)
    run = Run(dict(zip(texts, map(ranking_of, found), strict=True)))
    return evaluate(run, qrels, [MEASURE]).measures[MEASURE], sum(hits.corrected is not None for hits in found)


def quality(data: str, names: Sequence[str], seeds: int, spoil: Callable[[str, random.Random], str]) -> None:
    for name in names:
        folder, _, split = name.partition("/")
        dataset = BeirDataset.open(Path(data) / folder)
        qrels = dataset.qrels(split or "test")
        queries = dataset.queries_of(qrels)
        with tempfile.TemporaryDirectory() as place, Index.create(Path(place) / folder) as index:
            index.add(dataset.documents())
            index.commit()

            (clean, _), (same, changed) = value(index, qrels, queries), value(index, qrels, queries, "on")
            wrong, right = [], []
            for seed in range(seeds):
                dice = random.Random(seed)
                texts = {query_id: spoil(text, dice) for query_id, text in queries.items()}
                wrong.append(value(index, qrels, texts)[0])
                right.append(value(index, qrels, texts, "on")[0])
            typed, corrected = statistics.mean(wrong), statistics.mean(right)
            print(
                f"{name}: clean {clean:.4f}, with typos=on {same:.4f} ({changed} of {len(queries)} changed); "
                f"misspelt {typed:.4f}, with typos=on {corrected:.4f}: "
                f"{(corrected - typed) / (clean - typed):.1%} recovered",
                flush=True,
            )


def times(data: str, name: str, indexes: Sequence[str]) -> None:
    folder, _, split = name.partition("/")
    dataset = BeirDataset.open(Path(data) / folder)
    queries = list(dataset.queries_of(dataset.qrels(split or "test")).values())
    dice = random.Random(0)
    for path in indexes:
        with Index.open(path) as index, index._reading() as searcher:
            took: dict[str, list[float]] = {"nothing to correct": [], "corrected": [], "first": []}
            for query in queries:
                for text in (query, misspelt(query, dice)):
                    speller = Speller(searcher.snapshot, searcher.own.sparse)
                    started = time.process_time()
                    found = speller.corrected(text)
                    milliseconds = 1000 * (time.process_time() - started)
                    kind = "nothing to correct" if found is None else "corrected" if took["first"] else "first"
                    took[kind].append(milliseconds)
            said = ", ".join(
                f"{kind} {statistics.median(own):.2f} ms (p95 {sorted(own)[int(0.95 * len(own))]:.2f}, n={len(own)})"
                for kind, own in took.items()
                if own
            )
            print(f"{path}: {len(index):,} documents: {said}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="SET/SPLIT")
    parser.add_argument("--data", default="data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--blanks", action="store_true")
    parser.add_argument("--time", nargs="+", metavar="INDEX")
    options = parser.parse_args()
    if options.time:
        times(options.data, options.names[0], options.time)
    else:
        quality(options.data, options.names, options.seeds, cut_or_joined if options.blanks else misspelt)


if __name__ == "__main__":
    main()
