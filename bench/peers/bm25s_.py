"""bm25s: scores computed while indexing, added up for every posting of a query; numba backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import Stemmer
from bm25s.tokenization import Tokenized
from protocol import K1, B, Hits, Peer, Rows, read_texts

IDS = "ids.npy"


class Bm25s(Peer):
    name = "bm25s"
    package = "bm25s"
    notes = (
        "Numba backend, method lucene, k1 0.9, b 0.4, exact document lengths. Queries are lists of term numbers made "
        "beforehand. Exhaustive, so always k results; those with score 0 are dropped when saved. Indexing has one "
        "thread only and keeps the whole corpus in memory. Text: bm25s.tokenize with single letters kept, its 33 "
        "English stop words (Lucene's) and PyStemmer's porter; ids in a NumPy array given as corpus."
    )

    def __init__(self) -> None:
        super().__init__()
        self.index: bm25s.BM25 | None = None
        self.ids: np.ndarray | None = None
        self.stemmer = Stemmer.Stemmer("porter")

    def build(self, data: Path, folder: Path, threads: int) -> dict[str, Any]:  # noqa: ARG002
        documents = Rows.load(data / "documents")
        lists = [documents.row(number).tolist() for number in range(len(documents))]
        size = int(documents.terms.max()) + 1 if documents.terms.size else 0
        self._index(Tokenized(ids=lists, vocab={f"t{t}": t for t in range(size)}), folder)
        return {"documents": len(documents)}

    def build_from_text(self, files: list[Path], folder: Path, threads: int) -> dict[str, Any]:  # noqa: ARG002
        pairs = list(read_texts(files))
        ids = np.array([name for name, _ in pairs])
        texts = [text for _, text in pairs]
        del pairs
        self._index(self._tokens(texts), folder)
        np.save(folder / IDS, ids)
        return {"documents": len(ids)}

    def _index(self, tokens: Tokenized, folder: Path) -> None:
        index = bm25s.BM25(method="lucene", k1=K1, b=B, backend="numba")
        index.index(tokens, show_progress=False)
        index.save(folder, show_progress=False)

    def _tokens(self, texts: list[str]) -> Tokenized:
        return bm25s.tokenize(
            texts, token_pattern=r"(?u)\b\w+\b", stopwords="en", stemmer=self.stemmer, show_progress=False
        )

    def open(self, folder: Path) -> None:
        self.index = bm25s.BM25.load(folder, show_progress=False)
        self.ids = np.load(folder / IDS) if (folder / IDS).exists() else None

    def prepare(self, queries: Rows) -> list[list[int]]:
        assert self.index is not None
        size, empty = len(self.index.scores["indptr"]) - 1, self.index.vocab_dict[""]
        known = [[t for t in queries.row(number).tolist() if t < size] for number in range(len(queries))]
        return [row or [empty] for row in known]

    def batch(self, queries: list[list[int]], k: int) -> Any:
        assert self.index is not None
        k = min(k, self.index.scores["num_docs"])
        return self.index.retrieve(queries, k=k, n_threads=1, show_progress=False)

    def one(self, query: list[int], k: int) -> Any:
        return self.batch([query], k)

    def hits(self, results: Any) -> list[Hits]:
        if isinstance(results, list):
            return [hit for result in results for hit in self.hits(result)]
        rows = zip(results.documents, results.scores, strict=True)
        return [(ids[scores > 0], scores[scores > 0]) for ids, scores in rows]

    def ask(self, text: str, k: int) -> Hits:
        assert self.index is not None
        tokens = self._tokens([text])
        if not tokens.ids[0]:
            return [], []
        k = min(k, self.index.scores["num_docs"])
        found = self.index.retrieve(tokens, corpus=self.ids, k=k, n_threads=1, show_progress=False)
        return found.documents[0], found.scores[0]


PEER = Bm25s
