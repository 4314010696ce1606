"""Temporary."""

from __future__ import annotations

from itertools import repeat
from typing import Any


def maker(cls: Any, names: Any) -> Any:
    return lambda *values: list(map(cls, *values[:-1], repeat(values[-1], len(values[0]))))
