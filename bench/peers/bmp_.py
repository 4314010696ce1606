"""BMP, block-max pruning: a Rust engine for learned-sparse vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bmp
from protocol import Peer, Refused, Rows

INDEX = "index.bmp"
TERMS = "terms.json"


class Bmp(Peer):
    name = "bmp"
    package = "bmp"
    kind = "sparse"
    notes = (
        "alpha 1 and beta 1, which prune nothing unsafely. Block maxima not compressed, documents in the order given. "
        "Document weights must fit 8 bits. The engine scales the weights of a query so that the largest is 32 and "
        "rounds the others up to whole numbers, so scores are exact dot products with that query, not with the one "
        "given. No batch call that returns numbers: a loop. Queries are dictionaries made beforehand; ids come as "
        "strings. Indexing has one thread."
    )

    def __init__(self) -> None:
        super().__init__()
        self.settings = {"block": 32}  # documents
        self.searcher: bmp.Searcher | None = None
        self.terms: set[int] = set()

    def build(self, data: Path, folder: Path, threads: int) -> dict[str, Any]:  # noqa: ARG002
        documents = Rows.load(data / "documents")
        if documents.weights is None or int(documents.weights.max(initial=0)) > 255:
            raise Refused("BMP keeps document weights in 8 bits, and there are larger ones (or none)")
        indexer = bmp.Indexer(str(folder / INDEX), bsize=self.settings["block"], compress_range=False)
        for number in range(len(documents)):
            terms = map(str, documents.row(number).tolist())
            weights = documents.row_weights(number).tolist()
            indexer.add_document(str(number), dict(zip(terms, weights, strict=True)))
        indexer.finish()
        (folder / TERMS).write_text(json.dumps(sorted(set(documents.terms.tolist()))))
        return {"documents": len(documents)}

    def open(self, folder: Path) -> None:
        self.searcher = bmp.Searcher(str(folder / INDEX))
        self.terms = set(json.loads((folder / TERMS).read_text()))

    def prepare(self, queries: Rows) -> list[dict[str, float]]:
        """Terms that no document has are left out: the engine stops at one."""
        prepared = []
        for number in range(len(queries)):
            pairs = zip(queries.row(number).tolist(), queries.row_weights(number).tolist(), strict=True)
            prepared.append({str(t): float(w) for t, w in pairs if t in self.terms and w > 0})
        return prepared

    def one(self, query: dict[str, float], k: int) -> Any:
        assert self.searcher is not None
        return self.searcher.search(query, k=k, alpha=1.0, beta=1.0) if query else ([], [])

    def hits(self, results: Any) -> list[Any]:
        return [([int(name) for name in names], scores) for names, scores in results]


PEER = Bmp
