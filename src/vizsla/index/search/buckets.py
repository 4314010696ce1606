"""Buckets: ranges of a field's values, or the years, months or days of its dates, each with the filter that selects it.

year(..1900, 1900..1950, 1950..)
published(month)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

import numpy as np

from vizsla.errors import UnknownNameError, VizslaError, kind_of
from vizsla.index.search.columns import Column, Path, Scalar
from vizsla.numbers import short
from vizsla.runs import Filter
from vizsla.runs.filters import element_tests, family_of, field_name

MAX_BUCKETS = 10_000
UNITS = ("year", "month", "day")
_IN_PARENTHESES = re.compile(r"\s*(`[^`]*`|[^`(]*?)\s*\((.*)\)\s*", re.DOTALL)
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DATE = re.compile(_DAY + r"(?=[T ]|\Z)")
_END = rf'"(?:[^"\\]|\\.)*"|{_DAY}|-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?'
_RANGE = re.compile(rf"\s*((?P<low>{_END})?\s*\.\.\s*(?P<high>{_END})?)\s*(?:,|\Z)")
_ONE = {"text": "a text", "number": "a number"}


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
