"""Plain data from others: JSON and YAML that are parsed safely, and dataclasses whose names and types are checked.

Python's own parsers raise an unexpected RecursionError for data that is nested too deeply, or return objects that raise
one later. Here it raises a ValueError, like any other mistake. Wrong names or types in a file raise an error with a
one-sentence message; exceptions in the code of a class propagate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from vizsla.errors import InputError, VizslaError
from vizsla.numbers import short

T = TypeVar("T")
MAX_LEVELS = 100
"""The maximum nesting depth of objects and lists in a settings file."""


class NestedTooDeeplyError(ValueError):
    """Objects or lists that are nested more deeply than can be read."""

    def __init__(self) -> None:
        super().__init__("nested too deeply")


def parse_json(text: str | bytes | bytearray, **options: Any) -> Any:
    """The value of a text of JSON; every problem is a ValueError. `options`: those of `json.loads`.

    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    ...
    vizsla.plain_data.NestedTooDeeplyError: nested too deeply
    """
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise NestedTooDeeplyError from None


def parse_settings(text: str | bytes) -> Any:
    """The same for settings, such as the description of a model, which need few levels.

    >>> parse_settings('{"layers": [{"size": 8}]}')
    {'layers': [{'size': 8}]}
    """
    value = parse_json(text)
    _check_levels(value)
    return value


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file of settings; a file that is not there raises what the system says."""
    try:
        content = parse_settings(file.read_text("utf-8"))
    except ValueError as e:
        raise InputError(f"this is not JSON ({e})", file=str(file)) from None
    if not isinstance(content, dict):
        raise InputError("this is not a JSON object", file=str(file))
    return content


def parse_yaml(text: str, file: str) -> Any:
    """The value of a text of YAML; `file`: its name, for messages."""
    import yaml

    try:
        value = yaml.safe_load(text)
        _check_levels(value)
    except (yaml.YAMLError, RecursionError, ValueError) as e:
        detail = "nested too deeply" if isinstance(e, RecursionError) else " ".join(str(e).split())
        raise InputError(f"this is not YAML ({detail})", file=file) from None
    return value


def _check_levels(value: Any) -> None:
    """Raise an error for data that is nested too deeply; in YAML an object can even contain itself."""
    level = [value]
    for _ in range(MAX_LEVELS + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise NestedTooDeeplyError


# Dataclasses


class DescriptionError(VizslaError):
    """Plain data with a wrong name or type; the message is meant to be quoted in parentheses in another message."""


def _is_number(value: object) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64
    return whole or (isinstance(value, float) and math.isfinite(value))


_TYPES: dict[str, tuple[str, Callable[[object], bool]]] = {
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
        lambda value: isinstance(value, list | tuple) and all(isinstance(element, str) for element in value),
    ),
}


def fields_from_data(cls: Any, data: object, without: Collection[str] = (), **types: str) -> dict[str, Any]:
    """The arguments for the constructor of a dataclass, from a mapping of names to plain values.

    Names must be fields of the class, and values must be of their types. `without`: fields that may not be given.
    `types`: names that must be given and their types, written as annotations; they replace the types of fields, and
    need not be fields.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Dog:
    ...     name: str
    ...     age: int = 1
    >>> fields_from_data(Dog, {"name": "Rex"})
    {'name': 'Rex'}
    >>> fields_from_data(Dog, {"name": "Rex", "age": "old"})
    Traceback (most recent call last):
    ...
    vizsla.plain_data.DescriptionError: age is 'old', and not a whole number
    """
    if not isinstance(data, Mapping):
        raise DescriptionError(f"{short(repr(data))} is not an object of names and values")
    own = {field.name: field for field in fields(cls) if field.init and field.name not in without}
    type_of = {name: str(field.type) for name, field in own.items()} | types
    required = [n for n, f in own.items() if f.default is MISSING and f.default_factory is MISSING]
    for name in (*required, *types):
        if name not in data:
            raise DescriptionError(f"{name} is missing")
    for name, value in data.items():
        if name not in type_of:
            raise DescriptionError(f"{short(str(name))} is not known")
        check_type(name, value, type_of[name])
    return {name: tuple(value) if type_of[name].startswith("tuple") else value for name, value in data.items()}


def check_type(name: str, value: object, annotation: str) -> None:
    """Raise a `DescriptionError` if a value is not of a type, given as an annotation such as `int | None`.

    Types that plain data cannot have are not checked.

    >>> check_type("age", 3, "int | None")
    """
    alternatives = [_TYPES.get(alternative) for alternative in annotation.split(" | ")]
    checks = [alternative for alternative in alternatives if alternative is not None]
    if len(checks) == len(alternatives) and not any(is_valid(value) for _, is_valid in checks):
        expected = " or ".join(words for words, _ in checks)
        raise DescriptionError(f"{name} is {short(repr(value))[1:-1]}, and not {expected}")


def from_data(cls: type[T], data: object) -> T:
    """An object of a dataclass from a mapping of the names of its fields to plain values."""
    return cls(**fields_from_data(cls, data))
