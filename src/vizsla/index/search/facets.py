"""Facets: which values, ranges or dates a field has among the documents that match, and how many have each.

A range of values, and a year, month or day of dates, is a bucket, with the filter that selects it:
`year(..1900, 1900..1950, 1950..)`, `published(month)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from typing import Any

import numpy as np

from vizsla.datasets import document_of
from vizsla.errors import UnknownNameError, VizslaError, kind_of
from vizsla.index.search.bound_model import BoundModel
from vizsla.index.search.columns import Column, Path, Scalar, scalars_of, value_at, value_order
from vizsla.index.search.matching import matching_rows
from vizsla.index.search.searcher import Searcher
from vizsla.numbers import short
from vizsla.runs import Filter, Hit
from vizsla.runs.filters import element_tests, family_of, field_name, other_fields
from vizsla.runs.outline import OUTLINE
from vizsla.runs.retriever import check_count

MAX_FIELDS = 12
"""How many fields `facet_fields` gives at most."""
_SAMPLE = 200  # documents that are looked at for fields worth counting
_LONGEST = 60  # characters of a text that is worth counting
_FEW = 10  # up to this many values a field is worth counting even if none repeats
_DEEPEST = 8  # levels of nested objects
MAX_BUCKETS = 10_000
UNITS = ("year", "month", "day")
_IN_PARENTHESES = re.compile(r"\s*(`[^`]*`|[^`(]*?)\s*\((.*)\)\s*", re.DOTALL)
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DATE = re.compile(_DAY + r"(?=[T ]|\Z)")
_END = rf'"(?:[^"\\]|\\.)*"|{_DAY}|-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?'
_RANGE = re.compile(rf"\s*((?P<low>{_END})?\s*\.\.\s*(?P<high>{_END})?)\s*(?:,|\Z)")
_ONE = {"text": "a text", "number": "a number"}


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


# What is counted of a field


@dataclass(frozen=True)
class Bucket:
    """A part of a field's values, from a lower bound on and below an upper one."""

    name: str
    filter: Filter

    def count(self, column: Column, documents: np.ndarray, counts: np.ndarray) -> int:
        """How many of some documents, given as a mask, the filter selects; `counts`: how many have each value."""
        leaves = list(self.filter.root.leaves())
        if not len(column.more_documents):  # every document has one value: those of the values add up
            chosen = np.logical_and.reduce([column.chosen(element_tests(leaf)) for leaf in leaves])
            return int(counts[chosen[:-1]].sum())
        passing = [column.passing(element_tests(leaf)) for leaf in leaves]
        return int(np.count_nonzero(np.logical_and.reduce([documents, *passing])))


@dataclass(frozen=True)
class Facet:
    """What is counted of a field: its values, ranges of them, or the years, months or days of its dates."""

    path: Path
    ranges: tuple[Bucket, ...] = ()
    unit: str | None = None

    @classmethod
    def of(cls, text: object) -> Facet:
        """A facet from its text: a field as filters name it, and in parentheses ranges, or a unit of dates.

        >>> Facet.of("source.name")
        Facet(path=('source', 'name'), ranges=(), unit=None)
        >>> for bucket in Facet.of("year(..1900, 1900..1950)").ranges:
        ...     print(bucket.name, "is", bucket.filter)
        ..1900 is year < 1900
        1900..1950 is year >= 1900 and year < 1950
        """
        parts = _IN_PARENTHESES.fullmatch(text) if isinstance(text, str) else None
        if parts is None:
            return cls(field_path(text))
        path, inside = field_path(parts[1]), parts[2].strip()
        if ".." in inside:
            return cls(path, tuple(_ranges(field_name(path), inside)))
        if inside not in UNITS:
            known = (*UNITS, "ranges such as 1900..1950")
            raise UnknownNameError(
                "way to count a field (one with parentheses in its name needs backquotes)", inside, known
            )
        return cls(path, unit=inside)

    def buckets(self, column: Column, counts: np.ndarray) -> list[Bucket]:
        """The buckets, in order; of dates all from the first to the last of the values that are counted."""
        if self.unit is None:
            return list(self.ranges)
        present = [column.values[code] for code in np.flatnonzero(counts).tolist()]
        return date_buckets(field_name(self.path), present, self.unit)

    def check(self, column: Column) -> None:
        """Refuse ranges of a type that no value has, and units of dates where there are no dates."""
        name = field_name(self.path)
        if self.unit is not None and not any(map(is_date, column.values)):
            raise VizslaError(
                f'the field {name!r} has no dates such as "2024-02-29", so no {self.unit} can be counted; '
                f"give ranges, as in {name}(..1900, 1900..1950)"
            )
        for bucket in self.ranges:
            family = family_of(next(bucket.filter.root.leaves()).values[0])
            if family not in column.kinds:
                raise VizslaError(
                    f"no document has {_ONE[family]} in the field {name!r}, so the range {bucket.name} is empty; "
                    'numbers are written bare, dates too, texts in quotes, as in "a".."m"'
                )


def field_path(name: object) -> Path:
    """The keys that lead to a field, as a filter reads its name: a dot leads into an object, except in backquotes.

    >>> field_path("source.name"), field_path("`a.b`"), field_path("two words")
    (('source', 'name'), ('a.b',), ('two words',))
    """
    if not isinstance(name, str):
        raise VizslaError(f"the name of a field is a text, not {kind_of(name)}")
    condition = Filter.of({name: None})
    assert condition is not None
    return condition.root.field


def _ranges(name: str, text: str) -> Iterable[Bucket]:
    at, number = 0, 0
    while at < len(text):
        found, number = _RANGE.match(text, at), number + 1
        if found is None or not (found["low"] or found["high"]):
            raise VizslaError(
                f"{short(text[at:].strip())} is not a range of the field {name!r}; write ranges as in "
                f"{name}(..1900, 1900..1950, 1950..), with texts in quotes"
            )
        if number > MAX_BUCKETS:
            raise VizslaError(f"there are more than {MAX_BUCKETS:,} ranges of the field {name!r}; give fewer")
        low, high = _literal(found["low"]), _literal(found["high"])
        bucket, at = _bucket(found[1], name, low, high), found.end()
        ends = [leaf.values[0] for leaf in bucket.filter.root.leaves()]
        if len({family_of(end) for end in ends}) > 1:
            raise VizslaError(f"one end of the range {found[1]} of the field {name!r} is a text, the other a number")
        if len(ends) == 2 and not ends[0] < ends[1]:  # type: ignore[operator]
            raise VizslaError(f"the range {found[1]} of the field {name!r} is empty; write the smaller end first")
        yield bucket


def _literal(end: str | None) -> str | None:
    """An end of a range as filters write it: a date is a text."""
    return end if end is None or not _DATE.match(end) else f'"{end}"'


def _bucket(label: str, name: str, low: str | None, high: str | None) -> Bucket:
    """The values from `low` on and below `high`, as literals of a filter."""
    conditions = [f"{name} {sign} {end}" for sign, end in ((">=", low), ("<", high)) if end is not None]
    return Bucket(label, Filter.parse(" and ".join(conditions)))


def is_date(value: Scalar) -> bool:
    """Whether a value is a date or a time in ISO's notation.

    >>> is_date("2024-02-29"), is_date("2024-02-29T12:00:00"), is_date("2023-02-29"), is_date(2024)
    (True, True, False, False)
    """
    return _day(value) is not None


def _day(value: Scalar) -> date | None:
    if isinstance(value, str) and _DATE.match(value):
        with suppress(ValueError):
            return date.fromisoformat(value[:10])
    return None


def date_buckets(name: str, values: Iterable[Scalar], unit: str) -> list[Bucket]:
    """The years, months or days from the first to the last date among some values; other values are passed over.

    >>> [bucket.name for bucket in date_buckets("day", ["2023-12-31", "2024-02-29T12:00:00", "soon"], "month")]
    ['2023-12', '2024-01', '2024-02']
    """
    numbers = [_number(day, unit) for value in values if (day := _day(value)) is not None]
    if not numbers:
        return []
    first, last = min(numbers), max(numbers)
    if last - first >= MAX_BUCKETS:
        raise VizslaError(
            f"the dates in the field {name!r} span {last - first + 1:,} {unit}s, more than {MAX_BUCKETS:,}; "
            f"count longer units, or let a filter leave out the outliers"
        )
    starts = [_start(number, unit) for number in range(first, last + 2)]
    return [
        _bucket(start, name, f'"{start}"', None if end is None else f'"{end}"')
        for start, end in pairwise(starts)
        if start is not None
    ]


def _number(day: date, unit: str) -> int:
    return {"year": day.year, "month": 12 * day.year + day.month - 1, "day": day.toordinal()}[unit]


def _start(number: int, unit: str) -> str | None:
    """How the dates of a year, month or day begin; None after the last day of the calendar."""
    if number > _number(date.max, unit):
        return None
    if unit == "day":
        return date.fromordinal(number).isoformat()
    return f"{number:04}" if unit == "year" else f"{number // 12:04}-{number % 12 + 1:02}"


# Which fields are worth counting


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
