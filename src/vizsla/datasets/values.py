"""Values of documents as plain JSON values: those of numpy, pandas and databases; missing ones are left out."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np

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
