"""Parses untrusted JSON and YAML: data that is nested too deeply raises a ValueError like any other mistake.

Python's own parsers raise an unexpected RecursionError in this case, or return objects that raise one later.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vizsla.errors import InputError

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
