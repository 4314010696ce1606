"""A reader's view of a collection: the last commit when it was opened, whatever writers do later."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.datasets import Document
from vizsla.engine import Hits, Query, Weightings, search
from vizsla.index import database, files
from vizsla.models import Model

_MOST_CACHED_TERMS = 100_000
_MOST_SQL_VALUES = 30_000


@dataclass(frozen=True)
class _NamespaceStatistics:
    """The statistics of one namespace over the snapshot's live documents."""

    documents: int
    total_length: int
    longest: int
    namespace: str
    snapshot: Snapshot

    def document_frequencies(self, terms: Sequence[str]) -> np.ndarray:
        return self.snapshot.document_frequencies(self.snapshot.term_numbers(self.namespace, terms))


class Snapshot:
    """Segments mapped into memory and an open read transaction, so that both stay as they are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = database.connect(path, write=False)
        self._lock = threading.Lock()  # one connection, many threads
        self._numbers: dict[tuple[str, str], int] = {}
        with database.told_plainly(path):
            self._db.execute("BEGIN")
            self.generation: int = database.get_meta(self._db, "generation")
            self.meta: dict[str, Any] = {
                key: json.loads(value) for key, value in self._db.execute("SELECT key, value FROM meta")
            }
            rows = self._db.execute(
                "SELECT id, documents, statistics, files FROM segments WHERE generation <= ? ORDER BY generation, id",
                (self.generation,),
            ).fetchall()
        self.model = Model.from_description(self.meta["model"], path / "model")
        self.segments = [files.read_segment(path, name) for name, *_ in rows]
        self.segments.sort(key=lambda s: int(s.numbers[0]))
        self.document_count: int = sum(count for _, count, *_ in rows)
        self.file_bytes = sum(f["bytes"] for row in rows for f in json.loads(row[3]).values())
        by_segment = [json.loads(statistics) for _, _, statistics, _ in rows]
        self.statistics = {name: self._sum_up(name, by_segment) for name in self.model.namespaces}
        self.weightings = Weightings.pack(
            [p.component.weighting(self.statistics[p.component.namespace]) for p in self.model.parts]
        )

    def _sum_up(self, namespace: str, by_segment: list[dict[str, Any]]) -> _NamespaceStatistics:
        entries = [s[namespace] for s in by_segment]
        return _NamespaceStatistics(
            sum(e["documents"] for e in entries),
            sum(e["total_length"] for e in entries),
            max((e["longest"] for e in entries), default=0),
            namespace,
            self,
        )

    def close(self) -> None:
        self._db.close()

    def term_numbers(self, namespace: str, terms: Sequence[str]) -> np.ndarray:
        """The terms' numbers in the index; -1 for those it does not have."""
        missing = [t for t in terms if (namespace, t) not in self._numbers]
        if missing:
            with self._lock:
                if len(self._numbers) > _MOST_CACHED_TERMS:
                    self._numbers.clear()
                    missing = list(terms)
                find = "SELECT number FROM terms WHERE namespace = ? AND term = ?"
                for t in missing:
                    row = self._db.execute(find, (namespace, t.encode("utf-8", "replace").decode())).fetchone()
                    self._numbers[namespace, t] = row[0] if row else -1
        return np.array([self._numbers[namespace, t] for t in terms], np.int64)

    def document_frequencies(self, numbers: np.ndarray) -> np.ndarray:
        """In how many documents the terms with these numbers occur."""
        df = np.zeros(len(numbers), np.int64)
        for segment in self.segments:
            starts, ends = segment.lists(numbers)
            df += ends - starts
        return df

    def encode_query(self, text: str) -> Query:
        """A query as numbers for the engine; terms no document has are left out."""
        terms, spaces, weights = [], [], []
        for i, part in enumerate(self.model.parts):
            component = part.component
            asked = component.query_terms(text)
            weighed = component.query_weights(asked, self.statistics[component.namespace])
            terms.append(self.term_numbers(component.namespace, list(weighed)))
            spaces.append(np.full(len(weighed), i, np.int64))
            weights.append(part.weight * np.fromiter(weighed.values(), np.float64, len(weighed)))
        return Query(np.concatenate(terms), np.concatenate(spaces), np.concatenate(weights))

    def search(self, text: str, k: int) -> Hits:
        return search(self.segments, self.encode_query(text), self.weightings, k)

    def place(self, number: int) -> tuple[int, int] | None:
        """The segment and the place in it of the document with an insertion number."""
        for i, segment in enumerate(self.segments):
            found = np.flatnonzero(segment.numbers == number)
            if len(found):
                return i, int(found[0])
        return None

    def ids(self, numbers: Iterable[int]) -> dict[int, str]:
        """The ids of documents by their insertion numbers."""
        return dict(self._select("number, id", list(numbers)))

    def documents(self, numbers: Iterable[int]) -> dict[int, Document]:
        """Stored documents by their insertion numbers."""
        rows = self._select("number, id, content", list(numbers))
        return {number: Document(doc_id, json.loads(content)) for number, doc_id, content in rows}

    def _select(self, columns: str, numbers: list[int]) -> list[Any]:
        rows: list[Any] = []
        with self._lock, database.told_plainly(self.path):
            for a in range(0, len(numbers), _MOST_SQL_VALUES):
                part = numbers[a : a + _MOST_SQL_VALUES]
                marks = ",".join("?" * len(part))
                rows += self._db.execute(f"SELECT {columns} FROM documents WHERE number IN ({marks})", part)
        return rows

    def number_of(self, doc_id: str) -> int | None:
        """The insertion number of the live document with an id."""
        with self._lock, database.told_plainly(self.path):
            row = self._db.execute(
                "SELECT number FROM documents WHERE id = ? AND generation <= ? "
                "AND number NOT IN (SELECT number FROM deletions WHERE generation <= ?)",
                (doc_id, self.generation, self.generation),
            ).fetchone()
        return None if row is None else int(row[0])
