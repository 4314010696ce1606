"""The parts of a source counted: all terms with their statistics, and documents that a later one replaces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vizsla.index.parts.arrow import pyarrow
from vizsla.index.parts.building import PartSet
from vizsla.models import CountedStatistics, Model, SparseComponent

_MERGED = 2_000_000  # counts that are gathered before they are added up


@dataclass(frozen=True, eq=False)
class NamespaceCounts:
    """The documents of one namespace, counted."""

    documents: int
    """How many have a length."""
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
    replaced: np.ndarray
    """The places of documents, counted from 0 in the order of the source, whose id comes again later."""
    namespaces: dict[str, NamespaceCounts]

    @property
    def documents(self) -> int:
        """How many documents are left when later ones have replaced earlier ones of the same id."""
        return sum(self.rows) - len(self.replaced)

    def kept(self, batch: int) -> np.ndarray:
        """Which documents of a batch are not replaced later."""
        first = sum(self.rows[:batch])
        return ~np.isin(np.arange(first, first + self.rows[batch]), self.replaced)


def count_parts(parts: PartSet, model: Model) -> PartCounts:
    """Count the documents of all parts, as if they had been added one after the other."""
    rows = parts.batch_rows()
    counts = PartCounts(rows, find_replaced(parts, rows), {})
    counters = {c.namespace: _NamespaceCounter(c.namespace, isinstance(c, SparseComponent)) for _, c in model.parts}
    columns = [name for counter in counters.values() for name in counter.columns]
    for batch in range(len(rows)):
        table = parts.table(batch, columns)
        if len(counts.replaced) and not (kept := counts.kept(batch)).all():
            table = table.filter(pyarrow().array(kept))
        for counter in counters.values():
            counter.add(table)
    return PartCounts(rows, counts.replaced, {name: counter.counts() for name, counter in counters.items()})


def find_replaced(parts: PartSet, rows: list[int]) -> np.ndarray:
    """The places of documents whose id comes again later: first those with equal hashes, and then by their ids."""
    hashes = np.zeros(sum(rows), np.int64)
    place = 0
    for batch, size in enumerate(rows):
        hashes[place : place + size] = [hash(i) for i in _ids(parts, batch)]
        place += size
    order = np.argsort(hashes, kind="stable")
    equal = hashes[order][1:] == hashes[order][:-1]
    suspects = np.zeros(len(hashes), bool)
    suspects[order[1:][equal]] = suspects[order[:-1][equal]] = True
    found, last, place = [], dict[str, int](), 0
    for batch, size in enumerate(rows):
        if suspects[place : place + size].any():
            for at, doc_id in enumerate(_ids(parts, batch), place):
                if suspects[at]:
                    if doc_id in last:
                        found.append(last[doc_id])
                    last[doc_id] = at
        place += size
    return np.array(sorted(found), np.int64)


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
        occurrences = np.bincount(numbers, values.astype(np.float64), minlength=size)
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
