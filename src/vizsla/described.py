"""Plain data, of JSON or YAML, as the fields of a dataclass: looked at before anything is made of it.

So a file that says something else than it should is told in a sentence, and a mistake in the code stays one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from vizsla.errors import VizslaError
from vizsla.numbers import short

T = TypeVar("T")


class DescriptionError(VizslaError):
    """Plain data that does not describe what it should; the message is to stand in brackets."""


def _is_number(value: object) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64
    return whole or (isinstance(value, float) and math.isfinite(value))


_KINDS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "str": ("a text", lambda value: isinstance(value, str)),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "int": ("a whole number", lambda value: _is_number(value) and isinstance(value, int)),
    "float": ("a number", _is_number),
    "None": ("null", lambda value: value is None),
    "dict": ("an object", lambda value: isinstance(value, dict) and all(isinstance(key, str) for key in value)),
    "dict[str, Any]": ("an object", lambda value: isinstance(value, dict)),
    "list": ("a list", lambda value: isinstance(value, list)),
    "tuple[str, ...]": (
        "a list of texts",
        lambda value: isinstance(value, list | tuple) and all(isinstance(one, str) for one in value),
    ),
}


def described(kind: Any, data: object, without: Collection[str] = (), **stored: str) -> dict[str, Any]:
    """The arguments a dataclass is made with, from plain data.

    `without`: fields that are not described. `stored`: of what kind those are, and entries that are no fields, whose
    data differ from them.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Dog:
    ...     name: str
    ...     age: int = 1
    >>> described(Dog, {"name": "Rex"})
    {'name': 'Rex'}
    >>> described(Dog, {"name": "Rex", "age": "old"})
    Traceback (most recent call last):
    ...
    vizsla.described.DescriptionError: age is 'old', and not a whole number
    """
    if not isinstance(data, Mapping):
        raise DescriptionError(f"{short(repr(data))} is no object of names and values")
    own = {field.name: field for field in fields(kind) if field.init and field.name not in without}
    kinds = {name: str(field.type) for name, field in own.items()} | stored
    needed = [n for n, f in own.items() if f.default is MISSING and f.default_factory is MISSING]
    for name in (*needed, *stored):
        if name not in data:
            raise DescriptionError(f"{name} is missing")
    for name, value in data.items():
        if name not in kinds:
            raise DescriptionError(f"{short(str(name))} is not known")
        check(name, value, kinds[name])
    return {name: tuple(value) if kinds[name].startswith("tuple") else value for name, value in data.items()}


def check(name: str, value: object, kind: str) -> None:
    """Refuse a value that is not of a kind, which is written as in annotations; those of no plain data are passed."""
    known = [_KINDS.get(one) for one in kind.split(" | ")]
    if not all(known):
        return
    if not any(one[1](value) for one in known if one):
        raise DescriptionError(f"{name} is {short(repr(value))[1:-1]}, and not {' or '.join(o[0] for o in known if o)}")


def made_from(kind: type[T], data: object) -> T:
    """A dataclass from plain data."""
    return kind(**described(kind, data))
