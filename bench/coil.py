"""What COIL costs beside uniCOIL: the size of indexes and the time of a search, one question at a time.

    python bench/coil.py queries.jsonl unicoil.index coil.index [coil-tok.index ...] [--questions 300] [-k 10]

All indexes hold the same documents. They take turns within each round, in one thread; times are those of the best
round, with and without what it takes to encode the questions. For COIL the share of postings is printed that a search
reads of the lists of its tokens; bounds by the lengths of vectors spare the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from itertools import islice
from pathlib import Path

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

from vizsla.engine import match_lists
from vizsla.index import Index
from vizsla.models import Model, SparseComponent, TokenMatchComponent


def encode(model: Model, text: str) -> None:
    for part in model.parts:
        if isinstance(part.component, SparseComponent):
            part.component.query_terms([text], None)  # type: ignore[arg-type]
        else:
            part.component.query_embeddings([text])  # type: ignore[attr-defined]


def share_read(index: Index, texts: list[str], k: int) -> float:
    """Which share of the postings of questions' tokens is read."""
    listed, read = [0], [0]
    lists, add = match_lists.MatchLists.__init__, match_lists._TokenList.add

    def count_lists(own, *rest):  # type: ignore[no-untyped-def]
        lists(own, *rest)
        listed[0] += sum(map(len, own._lists))

    def count_read(own, *rest):  # type: ignore[no-untyped-def]
        read[0] += len(own)
        add(own, *rest)

    match_lists.MatchLists.__init__, match_lists._TokenList.add = count_lists, count_read  # type: ignore[method-assign]
    try:
        for text in texts:
            index.search(text, k)
    finally:
        match_lists.MatchLists.__init__, match_lists._TokenList.add = lists, add  # type: ignore[method-assign]
    return read[0] / max(listed[0], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("queries", type=Path)
    parser.add_argument("indexes", type=Path, nargs="+")
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-k", type=int, default=10)
    options = parser.parse_args()
    with options.queries.open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in islice(lines, options.questions)]
    indexes = {folder.name: Index.open(folder) for folder in options.indexes}
    best = {name: [float("inf"), float("inf")] for name in indexes}
    for index in indexes.values():
        index.search(texts[0], options.k)
    for _ in range(options.rounds):
        for name, index in indexes.items():
            started = time.perf_counter()
            for text in texts:
                index.search(text, options.k)
            searched = time.perf_counter()
            for text in texts:
                encode(index.model, text)
            times = searched - started, time.perf_counter() - searched
            best[name] = [min(a, b) for a, b in zip(best[name], times, strict=True)]
    print(f"{len(texts)} questions, k = {options.k}, ms each; without encoding; index; bytes a document")
    for name, index in indexes.items():
        total, encoding = (1000 * seconds / len(texts) for seconds in best[name])
        facts = index.info()
        size, documents = facts["index_bytes"], facts["documents"]
        row = f"{name:<30} {total:>8.2f} {total - encoding:>8.2f} {size / 1e6:>9.1f} MB {size / documents:>9,.0f}"
        if any(isinstance(part.component, TokenMatchComponent) for part in index.model.parts):
            row += f"   {100 * share_read(index, texts, options.k):.0f}% of postings read"
        print(row)


if __name__ == "__main__":
    main()
