"""Vizsla itself, held to the same protocol: its engine on analysed documents, its index on text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from protocol import K1, B, Hits, Peer, Rows, counted

from vizsla.datasets import Source
from vizsla.engine import Query, SegmentList, Weighting, Weightings, build_segment, search_many
from vizsla.index import Index
from vizsla.index.storage import segment_files
from vizsla.index.storage.stored_ids import StoredIds, StoredTexts
from vizsla.models import BM25, CountedStatistics

FACTS = "facts.json"
CHUNK = 100_000  # documents whose terms are counted together


class Engine(Peer):
    """The engine on analysed documents: BM25 or given weights."""

    name = "vizsla"
    package = "vizsla"
    notes = (
        "k1 0.9, b 0.4, Lucene's length codes. Queries are term numbers and counts made beforehand; looking up "
        "document frequencies and weighing terms is timed. One segment, memory-mapped. From text: as many threads as "
        "asked analyse, another reads and writes; no texts stored."
    )

    def __init__(self) -> None:
        super().__init__()
        self.segments = SegmentList([])
        self.weightings: Weightings | None = None
        self.documents = 0
        self.weighted = False
        self.index: Index | None = None

    def build(self, data: Path, folder: Path, threads: int) -> dict[str, Any]:  # noqa: ARG002
        documents = Rows.load(data / "documents")
        pointers, terms, values = distinct_terms(documents)
        sizes = np.diff(documents.pointers)
        codes = BM25().length_codes(sizes) if documents.weights is None else np.zeros(len(sizes), np.uint8)
        numbers = np.arange(len(documents))
        segment = build_segment(numbers, codes[None], sizes[None], pointers, terms, values)
        ids = StoredIds.of(StoredTexts.of([str(n) for n in range(len(numbers))]))
        facts = {
            "files": segment_files.write_segment(folder, "all", segment, segment_files.DatedIds(1, ids)),
            "statistics": [int(np.count_nonzero(sizes)), int(sizes.sum()), int(sizes.max())],
            "weighted": documents.weights is not None,
        }
        (folder / FACTS).write_text(json.dumps(facts))
        return {"documents": len(documents), "postings": segment.postings}

    def build_from_text(self, sources: list[Path], folder: Path, threads: int) -> dict[str, Any]:
        folder.rmdir()
        with Index.create(folder, store=False) as index:
            for file in sources:
                source = Source.find(file)
                index.add(source.raw_lines() or source.documents(), workers=threads)
            index.commit()
            return {"documents": len(index), "segments": index.info()["segments"]}

    def ask(self, text: str, k: int) -> Hits:
        assert self.index is not None
        hits = self.index.search(text, k)
        return hits.ids, hits.scores

    def open(self, folder: Path) -> None:
        if not (folder / FACTS).exists():
            self.index = Index.open(folder)
            return
        facts = json.loads((folder / FACTS).read_text())
        self.segments = SegmentList([segment_files.read_segment(folder, "all", facts["files"])])
        self.weighted = facts["weighted"]
        self.documents, total, longest = facts["statistics"]
        statistics = CountedStatistics(self.documents, total, longest, {})
        weighting = Weighting() if self.weighted else BM25(k1=K1, b=B).weighting(statistics)
        self.weightings = Weightings.pack([weighting])

    def prepare(self, queries: Rows) -> list[Any]:
        out = []
        for number in range(len(queries)):
            if self.weighted:
                terms, weights = queries.row(number).astype(np.int64), queries.row_weights(number).astype(np.float64)
            else:
                counts = counted(queries.row(number))
                terms, weights = np.array([*counts], np.int64), np.array([*counts.values()], np.float64)
            out.append((terms, np.zeros(len(terms), np.int64), weights))
        return out

    def _weigh(self, terms: np.ndarray, weights: np.ndarray) -> np.ndarray:
        if self.weighted:
            return weights
        df = self.segments[0].frequencies(terms)
        return weights * np.log1p((self.documents - df + 0.5) / (df + 0.5))

    def batch(self, queries: Sequence[Any], k: int) -> Any:
        assert self.weightings is not None
        weights = self._weigh(np.concatenate([t for t, *_ in queries]), np.concatenate([w for *_, w in queries]))
        ends = np.cumsum([len(t) for t, *_ in queries])[:-1]
        asked = [Query(t, s, w) for (t, s, _), w in zip(queries, np.split(weights, ends), strict=True)]
        return search_many(self.segments, asked, self.weightings, k)

    def one(self, query: Any, k: int) -> Any:
        assert self.weightings is not None
        terms, spaces, weights = query
        asked = Query(terms, spaces, self._weigh(terms, weights))
        return search_many(self.segments, [asked], self.weightings, k)[0]

    def hits(self, results: Any) -> list[Hits]:
        return [(h.numbers, h.scores) for h in results]


def distinct_terms(documents: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each document's distinct terms and what is stored of them: how often they occur, or their weights."""
    if documents.weights is not None:
        return documents.pointers, documents.terms, documents.weights
    size = int(documents.terms.max()) + 1
    counts, terms, values = [], [], []
    for first in range(0, len(documents), CHUNK):
        pointers = documents.pointers[first : first + CHUNK + 1]
        row = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
        keys, n = np.unique(row * size + documents.terms[pointers[0] : pointers[-1]], return_counts=True)
        counts.append(np.bincount(keys // size, minlength=len(pointers) - 1))
        terms.append((keys % size).astype(np.uint32))
        values.append(n.astype(np.uint32))
    return np.append(0, np.cumsum(np.concatenate(counts))), np.concatenate(terms), np.concatenate(values)


PEER = Engine
