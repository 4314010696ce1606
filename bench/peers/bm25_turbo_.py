"""bm25-turbo: scores computed while indexing, in Rust."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bm25_turbo_python as bm25_turbo
import numpy as np
from protocol import K1, B, Hits, Peer, Rows, read_texts

IDS = "ids.npy"
INDEX = "index.bm25"


class Bm25Turbo(Peer):
    name = "bm25-turbo"
    package = "bm25-turbo"
    notes = (
        "Method lucene, k1 0.9, b 0.4. Its Python binding offers one search, of one string, by its own tokenizer "
        "without stems or stop words, so a batch is a loop; the pruning of its Rust interface is not reachable from "
        "Python. Ids in a NumPy array beside the index."
    )

    def __init__(self) -> None:
        super().__init__()
        self.index: Any = None
        self.ids: np.ndarray | None = None

    def build(self, data: Path, folder: Path, threads: int) -> dict[str, Any]:  # noqa: ARG002
        documents = Rows.load(data / "documents")
        self._index([documents.words(number) for number in range(len(documents))], folder)
        return {"documents": len(documents)}

    def build_from_text(self, files: list[Path], folder: Path, threads: int) -> dict[str, Any]:  # noqa: ARG002
        pairs = list(read_texts(files))
        self._index([text for _, text in pairs], folder)
        np.save(folder / IDS, np.array([name for name, _ in pairs]))
        return {"documents": len(pairs)}

    def _index(self, texts: list[str], folder: Path) -> None:
        index = bm25_turbo.BM25(method="lucene", k1=K1, b=B)
        index.index(texts)
        index.save(str(folder / INDEX))

    def open(self, folder: Path) -> None:
        self.index = bm25_turbo.BM25.load(str(folder / INDEX))
        self.ids = np.load(folder / IDS) if (folder / IDS).exists() else None

    def prepare(self, queries: Rows) -> list[str]:
        return [queries.words(number) for number in range(len(queries))]

    def one(self, query: str, k: int) -> Any:
        return self.index.search_numpy(query, k)

    def ask(self, text: str, k: int) -> Hits:
        assert self.ids is not None
        numbers, scores = self.index.search_numpy(text, k)
        return self.ids[numbers], scores


PEER = Bm25Turbo
