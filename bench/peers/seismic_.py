"""Seismic: an approximate Rust engine for learned-sparse vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import seismic
from protocol import Hits, Peer, Refused, Rows

INDEX = "index"
BUILD = ("n_postings", "doc_cut", "summary_energy", "centroid_fraction")
SEARCH = ("query_cut", "heap_factor")


class Seismic(Peer):
    name = "seismic"
    package = "pyseismic-lsr"
    kind = "sparse"
    notes = (
        "Approximate; see settings. No k-NN graph. Scores of what it finds are exact dot products (weights as half "
        "floats). Queries are arrays of strings and weights made beforehand; ids come as strings. Batch is "
        "batch_search with one thread."
    )

    def __init__(self) -> None:
        super().__init__()
        self.settings = {
            "n_postings": 4000,
            "doc_cut": 15,
            "summary_energy": 0.4,
            "centroid_fraction": 0.1,
            "query_cut": 20,
            "heap_factor": 0.5,
        }
        self.index: Any = None
        self.text = seismic.get_seismic_string()

    def _chosen(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: self.settings[name] for name in names}

    def build(self, data: Path, folder: Path, threads: int) -> dict[str, Any]:
        documents = Rows.load(data / "documents")
        if documents.weights is None:
            raise Refused("this peer needs learned-sparse vectors, but there is no weights.npy")
        size = int(documents.terms.max(initial=0)) + 1
        large = size > 1 << 16
        dataset = (seismic.SeismicDatasetLV if large else seismic.SeismicDataset)(size)
        terms, weights = _ascending(documents)
        names = [str(number) for number in range(len(documents))]
        dataset.add_documents_by_id(names, terms, weights, documents.pointers)
        kind = seismic.SeismicIndexLV if large else seismic.SeismicIndex
        index = kind.build_from_dataset(dataset, num_threads=threads, **self._chosen(BUILD))
        index.save(str(folder / INDEX))
        return {"documents": len(documents)}

    def open(self, folder: Path) -> None:
        file = next(folder.glob(f"{INDEX}.*"))
        try:
            self.index = seismic.SeismicIndex.load(str(file))
        except BaseException:
            self.index = seismic.SeismicIndexLV.load(str(file))

    def prepare(self, queries: Rows) -> list[tuple[np.ndarray, np.ndarray]]:
        rows = range(len(queries))
        return [(queries.row(n).astype(str).astype(self.text), queries.row_weights(n).astype(np.float32)) for n in rows]

    def batch(self, queries: list[tuple[np.ndarray, np.ndarray]], k: int) -> Any:
        names = np.array([str(number) for number in range(len(queries))], dtype=self.text)
        terms, weights = [terms for terms, _ in queries], [weights for _, weights in queries]
        return self.index.batch_search(names, terms, weights, k=k, **self._chosen(SEARCH), num_threads=1)

    def one(self, query: tuple[np.ndarray, np.ndarray], k: int) -> Any:
        terms, weights = query
        return self.index.search("0", terms, weights, k=k, **self._chosen(SEARCH))

    def hits(self, results: Any) -> list[Hits]:
        return [([int(name) for _, _, name in found], [score for _, score, _ in found]) for found in results]


def _ascending(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Terms and weights with the terms of every row in ascending order."""
    assert rows.weights is not None
    numbers = np.repeat(np.arange(len(rows)), np.diff(rows.pointers))
    order = np.lexsort((rows.terms, numbers))
    return rows.terms[order].astype(np.int64), rows.weights[order].astype(np.float32)


PEER = Seismic
