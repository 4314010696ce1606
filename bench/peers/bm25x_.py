"""bm25x: an inverted index in Rust that scores at query time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bm25x
import numpy as np
from protocol import K1, B, Hits, Peer, Rows, read_texts

IDS = "ids.npy"
INDEX = "index"
METHOD = {"method": "lucene", "k1": K1, "b": B}


class Bm25x(Peer):
    name = "bm25x"
    package = "bm25x"
    notes = (
        "Method lucene, k1 0.9, b 0.4. Needs Python 3.12. Queries are strings made beforehand, which it cuts at white "
        "space; a repeated word counts once. Batch is its own search of a list, held to one processor. A saved index "
        "is memory-mapped. Text: its default tokenizer (words, stemmed) and its stop words; ids in a NumPy array."
    )

    def __init__(self) -> None:
        super().__init__()
        self.index: Any = None
        self.ids: np.ndarray | None = None

    def build(self, data: Path, folder: Path, threads: int) -> dict[str, Any]:  # noqa: ARG002
        documents = Rows.load(data / "documents")
        index = bm25x.BM25(tokenizer="plain", use_stopwords=False, **METHOD)
        index.add([documents.words(number) for number in range(len(documents))])
        index.save(str(folder / INDEX))
        return {"documents": len(documents)}

    def build_from_text(self, files: list[Path], folder: Path, threads: int) -> dict[str, Any]:  # noqa: ARG002
        pairs = list(read_texts(files))
        index = bm25x.BM25(**METHOD)
        index.add([text for _, text in pairs])
        index.save(str(folder / INDEX))
        np.save(folder / IDS, np.array([name for name, _ in pairs]))
        return {"documents": len(pairs)}

    def open(self, folder: Path) -> None:
        if hasattr(os, "sched_setaffinity"):  # a list is searched by as many threads as there are processors
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        self.index = bm25x.BM25.load(str(folder / INDEX), mmap=True)
        self.ids = np.load(folder / IDS) if (folder / IDS).exists() else None

    def prepare(self, queries: Rows) -> list[str]:
        return [queries.words(number) for number in range(len(queries))]

    def batch(self, queries: list[str], k: int) -> Any:
        return self.index.search(queries, k)

    def one(self, query: str, k: int) -> Any:
        return self.index.search(query, k)

    def hits(self, results: Any) -> list[Hits]:
        return [_columns(found) for found in results]

    def ask(self, text: str, k: int) -> Hits:
        assert self.ids is not None
        numbers, scores = _columns(self.index.search(text, k))
        return [self.ids[number] for number in numbers], scores


def _columns(found: list[tuple[int, float]]) -> tuple[Sequence[int], Sequence[float]]:
    return [number for number, _ in found], [score for _, score in found]


PEER = Bm25x
