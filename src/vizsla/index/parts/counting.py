"""Counts the parts of a source: all terms with their statistics, before any document is exported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vizsla.errors import InputError
from vizsla.index.parts.building import PartSet
from vizsla.index.parts.tables import pyarrow
from vizsla.models import CountedStatistics, Model, SparseComponent

_MERGED = 2_000_000  # counts that are gathered before they are added up


@dataclass(frozen=True, eq=False)
class NamespaceCounts:
    """The documents of one namespace, counted."""

    documents: int
    """The number of documents with a length above 0."""
    total_length: int
    longest: int
    terms: Any
    """An Arrow array of all terms, sorted by their bytes; empty for vectors."""
    frequencies: np.ndarray
    """In how many documents each term is."""
    occurrences: np.ndarray
    """How often it occurs in them, or the sum of its weights."""

    @property
    def statistics(self) -> CountedStatistics:
        """What document weights depend on: lengths, without the terms."""
        return CountedStatistics(self.documents, self.total_length, self.longest, {})


@dataclass(frozen=True, eq=False)
class PartCounts:
    """What is known of all parts before the first document is written elsewhere."""

    rows: list[int]
    """How many documents each batch has, in the order of the source."""
    namespaces: dict[str, NamespaceCounts]

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return sum(self.rows)


def count_parts(parts: PartSet, model: Model) -> PartCounts:
    """Count the documents of all parts; an id that comes twice is refused, as an index refuses it."""
    rows = parts.batch_rows()
    _check_ids(parts, rows)
    counters = {c.namespace: _NamespaceCounter(c.namespace, isinstance(c, SparseComponent)) for _, c in model.parts}
    columns = [name for counter in counters.values() for name in counter.columns]
    for batch in range(len(rows)):
        table = parts.table(batch, columns)
        for counter in counters.values():
            counter.add(table)
    return PartCounts(rows, {name: counter.counts() for name, counter in counters.items()})


def _check_ids(parts: PartSet, rows: list[int]) -> None:
    """Refuse an id that comes twice: documents with equal hashes are looked for first, since ids take much memory."""
    hashes = np.zeros(sum(rows), np.int64)
    place = 0
    for batch, size in enumerate(rows):
        hashes[place : place + size] = [hash(i) for i in _ids(parts, batch)]
        place += size
    ordered = np.sort(hashes)
    suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    seen = set[str]()
    for batch in range(len(rows)) if suspects else ():
        for doc_id in _ids(parts, batch):
            if hash(doc_id) in suspects:
                if doc_id in seen:
                    twice = f"the id {doc_id!r} appears a second time; every document needs its own"
                    raise InputError(twice, file=str(parts.path(batch)))
                seen.add(doc_id)


def _ids(parts: PartSet, batch: int) -> list[str]:
    ids: list[str] = parts.table(batch, ["id"])["id"].to_pylist()
    return ids


@dataclass
class _NamespaceCounter:
    """Counts one namespace, table by table."""

    namespace: str
    sparse: bool
    _lengths: tuple[int, int, int] = (0, 0, 0)
    _counted: list[Any] = field(default_factory=list)
    _gathered: int = 0

    @property
    def columns(self) -> list[str]:
        """The columns of a part that are counted."""
        names = ["length", "terms", "values"] if self.sparse else ["length"]
        return [f"{self.namespace}.{name}" for name in names]

    def add(self, table: Any) -> None:
        """Count the rows of a table."""
        documents, total, longest = self._lengths
        lengths = table[f"{self.namespace}.length"].to_numpy()
        counted = int(np.count_nonzero(lengths)), int(lengths.sum(dtype=np.int64)), int(lengths.max(initial=0))
        self._lengths = documents + counted[0], total + counted[1], max(longest, counted[2])
        if not self.sparse:
            return
        pa = pyarrow()
        terms = table[f"{self.namespace}.terms"].combine_chunks().flatten().dictionary_encode()
        values = table[f"{self.namespace}.values"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        numbers, size = terms.indices.to_numpy(zero_copy_only=False), len(terms.dictionary)
        frequencies = np.bincount(numbers, minlength=size)
        occurrences = np.bincount(numbers, values.astype(np.float64), minlength=size).astype(np.float64)  # also of none
        columns = {"term": terms.dictionary, "documents": frequencies, "occurrences": occurrences}
        self._counted.append(pa.table(columns))
        self._gathered += size
        if self._gathered > _MERGED:
            self._merge()

    def _merge(self) -> Any:
        """Add up what was gathered."""
        pa = pyarrow()
        sums = [("documents", "sum"), ("occurrences", "sum")]
        merged = pa.concat_tables(self._counted).group_by("term").aggregate(sums) if self._counted else None
        if merged is not None:
            merged = merged.select(["term", "documents_sum", "occurrences_sum"])
            self._counted, self._gathered = [merged.rename_columns(["term", "documents", "occurrences"])], 0
        return self._counted[0] if self._counted else None

    def counts(self) -> NamespaceCounts:
        """What was counted, its terms sorted."""
        pa = pyarrow()
        merged = self._merge()
        if merged is None:
            return NamespaceCounts(*self._lengths, pa.array([], pa.string()), np.zeros(0, np.int64), np.zeros(0))
        merged = merged.sort_by("term")
        frequencies, occurrences = (merged[name].to_numpy() for name in ("documents", "occurrences"))
        return NamespaceCounts(*self._lengths, merged["term"].combine_chunks(), frequencies, occurrences)
