"""Facets: which values, ranges or dates a field has among the documents that match, and how many have each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vizsla.datasets import document_of
from vizsla.errors import VizslaError, kind_of
from vizsla.index.search.bound_model import BoundModel
from vizsla.index.search.buckets import Facet, field_path, is_date
from vizsla.index.search.columns import Column, Path, Scalar, scalars_of, value_at, value_order
from vizsla.index.search.matching import matching_rows
from vizsla.index.search.searcher import Searcher
from vizsla.runs import Filter, Hit
from vizsla.runs.filters import field_name, other_fields
from vizsla.runs.outline import OUTLINE
from vizsla.runs.retriever import check_count

MAX_FIELDS = 12
"""How many fields `facet_fields` gives at most."""
_SAMPLE = 200  # documents that are looked at for fields worth counting
_LONGEST = 60  # characters of a text that is worth counting
_FEW = 10  # up to this many values a field is worth counting even if none repeats
_DEEPEST = 8  # levels of nested objects


@dataclass(frozen=True)
class FacetValue:
    """A value of a field or a bucket of values, and how many of the matching documents have it."""

    value: Scalar
    """Of a bucket its name: a range as it was given, or a year, month or day."""
    count: int
    filter: str | None = field(default=None, repr=False)
    """Of a bucket the filter that selects it."""


@dataclass(frozen=True)
class FieldFacets:
    """The values of a field, the most frequent first, equal counts by value; as many as were asked for.

    Buckets are all there, in their order, also those without documents.
    """

    values: tuple[FacetValue, ...]
    distinct: int
    """How many different values there are, also those that are not listed."""
    missing: int
    """How many documents have no value in the field."""


@dataclass(frozen=True)
class Facets:
    """The values of some fields over the matching documents."""

    fields: Mapping[str, FieldFacets]
    documents: int
    """How many documents match."""

    def __getitem__(self, field: str) -> FieldFacets:
        return self.fields[field]


def count_facets(
    searcher: Searcher,
    bound: BoundModel,
    fields: object,
    query: str | None,
    condition: Filter | None,
    size: int,
    syntax: str | None = None,
) -> Facets:
    """The values of fields over all documents that match; see `Collection.facets`."""
    wanted, size = _checked(fields, size)
    documents = searcher.rows.matching_documents(matching_rows(searcher, bound, query, condition, syntax))
    counted = {}
    for name, facet in wanted.items():
        column = _column(searcher, facet.path)
        facet.check(column)
        counted[name] = _facets(column, documents, facet, size)
    return Facets(counted, int(np.count_nonzero(documents)))


def column_of(searcher: Searcher, name: str) -> Column:
    """The values of a field; one in which no document has any is refused."""
    return _column(searcher, field_path(name))


def _column(searcher: Searcher, path: Path) -> Column:
    column = searcher.columns.column(path)
    if not column.values:
        name = ".".join(path)
        hint = other_fields(name, searcher.field_names())
        raise VizslaError(
            f"no document has a value in the field {name!r} that can be counted or sorted by: a text, a number, true "
            f"or false; {hint}"
        )
    return column


def facets_of_hits(hits: Sequence[Hit], fields: Sequence[str], size: int = 10) -> Facets:
    """The values of fields over the documents of some hits.

    >>> from vizsla.runs import Document
    >>> hits = [Hit(i, 1.0, Document(str(i), {"year": 1999 + i // 2})) for i in range(3)]
    >>> facets_of_hits(hits, ["year"])["year"].values
    (FacetValue(value=1999, count=2), FacetValue(value=2000, count=1))
    """
    wanted, size = _checked(fields, size)
    everything = np.ones(len(hits), np.bool_)
    columns = {
        name: Column.of((value_at(hit.document.content, facet.path) for hit in hits), len(hits), name)
        for name, facet in wanted.items()
    }
    return Facets({name: _facets(columns[name], everything, facet, size) for name, facet in wanted.items()}, len(hits))


def value_as_json(counted: FacetValue) -> dict[str, Any]:
    """A counted value as plain data; a bucket has its filter.

    >>> value_as_json(FacetValue("..1900", 3, "year < 1900"))
    {'value': '..1900', 'count': 3, 'filter': 'year < 1900'}
    """
    plain = {"value": counted.value, "count": counted.count}
    return plain if counted.filter is None else {**plain, "filter": counted.filter}


def _facets(column: Column, documents: np.ndarray, facet: Facet, size: int) -> FieldFacets:
    """The values of a column over some documents, given as a mask."""
    counts, missing = column.count(documents)
    if facet.ranges or facet.unit is not None:
        buckets = facet.buckets(column, counts)
        found = tuple(FacetValue(b.name, b.count(column, documents, counts), str(b.filter)) for b in buckets)
        return FieldFacets(found, len(found), missing)
    codes = np.flatnonzero(counts)
    distinct = len(codes)
    if distinct > size:  # sort no more than what can be among the first
        least = np.partition(counts[codes], distinct - size)[distinct - size]
        codes = codes[counts[codes] >= least]
    values = [FacetValue(column.values[code], int(counts[code])) for code in codes.tolist()]
    values.sort(key=lambda v: (-v.count, *value_order(v.value)))
    return FieldFacets(tuple(values[:size]), distinct, missing)


def _checked(fields: object, size: object) -> tuple[dict[str, Facet], int]:
    """What is counted of each field and the checked size; raises an error for invalid names or sizes."""
    if isinstance(fields, str | bytes) or not isinstance(fields, Sequence):
        raise VizslaError(f'fields are a list of names, as in ["year", "lang"], not {kind_of(fields)}')
    return {name: Facet.of(name) for name in fields}, check_count(size, "the number of values")


def facet_fields(searcher: Searcher) -> list[str]:
    """The fields worth counting, judged by the metadata of the first documents."""
    found = _sampled_fields(searcher)
    named = ((field_name(path), path, values) for path, values in found.items() if _is_worth_counting(values))
    return [name + _unit_of(values) for name, path, values in named if _leads_to(name, path)][:MAX_FIELDS]


def sort_fields(searcher: Searcher) -> list[str]:
    """The fields worth sorting by, judged by the metadata of the first documents."""
    found = _sampled_fields(searcher)
    named = ((field_name(path), path) for path, values in found.items() if _is_worth_sorting_by(values))
    return [name for name, path in named if _leads_to(name, path)][:MAX_FIELDS]


def _sampled_fields(searcher: Searcher) -> dict[Path, list[Any]]:
    """The values of all fields of the first documents' metadata."""
    snapshot = searcher.snapshot
    numbers = snapshot.numbers()[: _SAMPLE if snapshot.splitter is None else 10 * _SAMPLE].tolist()
    samples: dict[str, Mapping[str, Any]] = {}
    for row_id, metadata in snapshot.documents.metadata(numbers):
        samples.setdefault(row_id if snapshot.splitter is None else document_of(row_id), metadata)
    found: dict[Path, list[Any]] = {}
    for metadata in list(samples.values())[:_SAMPLE]:
        _collect({key: value for key, value in metadata.items() if key != OUTLINE}, (), found)
    return found


def _collect(content: Mapping[str, Any], path: Path, found: dict[Path, list[Any]]) -> None:
    """Add the values of all fields, including those inside objects."""
    for key, value in content.items():
        if isinstance(value, Mapping) and len(path) < _DEEPEST:
            _collect(value, (*path, key), found)
        elif value is not None:
            found.setdefault((*path, key), []).append(value)


def _is_worth_counting(field_values: Sequence[Any]) -> bool:
    """Whether a field has dates alone, short values that repeat, or few values in all."""
    if _unit_of(field_values):
        return True
    values = [value for field_value in field_values for value in scalars_of(field_value)]
    if not values or any(isinstance(value, str) and len(value) >= _LONGEST for value in values):
        return False
    distinct = len({(isinstance(value, bool), value) for value in values})
    return distinct <= max(_FEW, len(values) * 3 // 4)


def _is_worth_sorting_by(values: Sequence[Any]) -> bool:
    """Whether documents have one value each, a number, a date or a short text that repeats, and not all the same."""
    if any(isinstance(value, bool) or not isinstance(value, str | int | float) for value in values):
        return False
    if len(set(values)) < 2:
        return False
    return all(isinstance(value, int | float) for value in values) or _is_worth_counting(values)


def _unit_of(field_values: Sequence[Any]) -> str:
    """How dates are counted, so that there are not too many buckets: `(year)`; empty for other values."""
    values = [value for field_value in field_values for value in scalars_of(field_value)]
    if not values or not all(map(is_date, values)):
        return ""
    months = {str(value)[:7] for value in values}
    return "(day)" if len(months) == 1 else "(month)" if len({month[:4] for month in months}) == 1 else "(year)"


def _leads_to(name: str, path: Path) -> bool:
    """Whether a name parses to the path; some keys inside objects cannot be written."""
    try:
        return field_path(name) == path
    except VizslaError:
        return False
