"""Values of documents as plain JSON values, and the types of a table's columns, inferred from all rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np

from vizsla.errors import UnknownNameError, VizslaError

_PLAIN = (str, int, bool, type(None))
_MISSING = ("NaTType", "NAType")  # pandas', which need not be installed
_MAX_INTEGER = 1 << 63


def plain_content(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without missing values (NaN, NaT, NA), and with plain values for those of numpy, pandas and databases.

    >>> plain_content({"year": np.int64(1999), "price": float("nan"), "day": date(2024, 2, 29)})
    {'year': 1999, 'day': '2024-02-29'}
    """
    present = ((key, value) for key, value in record.items() if type(value) in _PLAIN or not is_missing(value))
    return {key: value if type(value) in _PLAIN else plain_value(value) for key, value in present}


def is_missing(value: Any) -> bool:
    """Whether a value is a missing one: NaN, NaT or NA."""
    if type(value).__name__ in _MISSING:
        return True
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(value, np.datetime64 | np.timedelta64) and bool(np.isnat(value))


def plain_value(value: Any) -> Any:
    """The JSON value for a value, if one exists; others are returned unchanged, and refused when they are stored."""
    if isinstance(value, np.datetime64):
        return str(value)  # ISO, whatever its unit
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, datetime | date | time):
        return iso_text(value)
    if isinstance(value, Decimal) and value.is_finite():
        whole = value == value.to_integral_value() and abs(value) < _MAX_INTEGER
        return int(value) if whole else float(value)
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.kind in "biufU" else [plain_value(v) for v in value]
    if isinstance(value, Mapping):
        return {key: v if type(v) in _PLAIN else plain_value(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [v if type(v) in _PLAIN else plain_value(v) for v in value]
    return value


def iso_text(value: datetime | date | time) -> str:
    """A date or a time as an ISO text; such texts sort like the times. A time with a zone is converted to UTC.

    >>> iso_text(datetime.fromisoformat("2024-02-29T01:30:00+02:00"))
    '2024-02-28T23:30:00+00:00'
    """
    if isinstance(value, datetime) and value.utcoffset() is not None:
        with suppress(OverflowError):  # the first and last days of the calendar cannot be converted
            value = value.astimezone(UTC)
    return value.isoformat()


Types = Mapping[str, str]
"""The types of columns by their names."""

TYPES = {"text": "texts", "int": "whole numbers", "float": "numbers", "bool": "true or false", "date": "dates"}
"""The types that a column can have, and their names in messages."""

# A number with more digits, or with leading zeros such as 007, is an identifier: it stays a text.
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(_DAY.pattern + r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?")
_TRUTHS = {"true": True, "false": False}

# Times with and without a zone cannot be compared, so they are different types; days fit with both.
_WIDER = {("int", "float"): "float", ("day", "naive"): "naive", ("day", "aware"): "aware"}
_DATES = ("day", "naive", "aware")


def infer_types(rows: Iterable[Sequence[str]], header: Sequence[str], columns: Iterable[str]) -> dict[str, str]:
    """The narrowest type of each column that fits all rows; a column of empty cells is left out.

    >>> infer_types([["1", "007", "2.5"], ["", "8", "3"]], ["year", "code", "price"], ["year", "code", "price"])
    {'year': 'int', 'code': 'text', 'price': 'float'}
    """
    open_columns = {name: header.index(name) for name in columns}
    types: dict[str, str] = {}
    for row in rows:
        if not open_columns:
            break
        for name, position in list(open_columns.items()):
            cell = row[position].strip()
            if cell:
                types[name] = joined_type(types.get(name), _cell_type(cell))
                if types[name] == "text":
                    del open_columns[name]
    return {name: types[name] for name in header if name in types}


def joined_type(first: str | None, second: str) -> str:
    """The narrowest type that includes both types; None is a column without values so far."""
    if first is None or first == second:
        return second
    return _WIDER.get((first, second)) or _WIDER.get((second, first)) or "text"


def public_type(inferred: str) -> str:
    """The name of an inferred type in options and messages."""
    return "date" if inferred in _DATES else inferred


def _cell_type(cell: str) -> str:
    if _WHOLE.fullmatch(cell):
        return "int"
    if _NUMBER.fullmatch(cell):
        return "float"
    if cell.lower() in _TRUTHS:
        return "bool"
    time = _TIME.fullmatch(cell)
    if time is None and not _DAY.fullmatch(cell):
        return "text"
    try:
        datetime.fromisoformat(cell)
    except ValueError:  # a thirteenth month
        return "text"
    return "day" if time is None else "aware" if time[1] else "naive"


def _date(cell: str) -> str:
    return cell if _DAY.fullmatch(cell) and datetime.fromisoformat(cell) else iso_text(datetime.fromisoformat(cell))


def _number(cell: str) -> float:
    if not _NUMBER.fullmatch(cell):
        raise ValueError
    return float(cell)


def _whole(cell: str) -> int:
    if not _WHOLE.fullmatch(cell):
        raise ValueError
    return int(cell)


def _truth(cell: str) -> bool:
    try:
        return _TRUTHS[cell.lower()]
    except KeyError:
        raise ValueError from None


_READERS: dict[str, Callable[[str], Any]] = {"int": _whole, "float": _number, "bool": _truth, "date": _date}


def cell_reader(kind: str) -> Callable[[str], Any] | None:
    """The function that reads a cell of this type, and raises a ValueError for others; None for texts."""
    return _READERS.get(public_type(kind))


def parse_types(text: str) -> dict[str, str]:
    """Types of columns by name, from a text.

    >>> parse_types("year=text, price=float")
    {'year': 'text', 'price': 'float'}
    """
    types: dict[str, str] = {}
    for part in text.split(","):
        name, equals, kind = (piece.strip() for piece in part.rpartition("="))
        if not equals or not name:
            raise VizslaError(f"{part.strip()!r} is not a type of a column; expected something like year=int,code=text")
        types[name] = kind
    return checked_types(types)


def checked_types(types: Types) -> dict[str, str]:
    """The same types of columns; raises an error if one of them is unknown."""
    for kind in types.values():
        if kind not in TYPES:
            raise UnknownNameError("column type", str(kind), tuple(TYPES))
    return dict(types)
