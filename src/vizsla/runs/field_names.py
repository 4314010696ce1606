"""The names of fields, for messages about one that no document has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from vizsla.errors import VizslaError
from vizsla.runs.conditions import Condition, field_name
from vizsla.runs.filters import Filter

SAMPLE = 1000
"""How many documents are looked at for the names of fields."""
_SHOWN = 12
_DEEPEST = 8  # objects in one another


def field_names(contents: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of the fields of some documents, as filters write them, in the order of the first times.

    >>> field_names([{"year": 1999}, {"source": {"name": "wire"}, "year": 2001}])
    ['year', 'source.name']
    """
    names: dict[str, None] = {}

    def collect(content: Mapping[str, Any], path: tuple[str, ...]) -> None:
        for key, value in content.items():
            if isinstance(value, Mapping) and value and len(path) < _DEEPEST:
                collect(value, (*path, key))
            else:
                names[field_name((*path, key))] = None

    for content in contents:
        collect(content, ())
    return list(names)


def other_fields(name: str, known: Iterable[str]) -> str:
    """What to write instead of a field that no document has, as the end of a sentence.

    >>> other_fields("yaer", ["year", "lang"]), other_fields("colour", ["year", "lang"]), other_fields("year", [])
    ("did you mean 'year'?", 'fields are lang, year', 'there are no fields yet')
    """
    names = sorted(known)
    if close := get_close_matches(name, names, n=1):
        return f"did you mean {close[0]!r}?"
    if not names:
        return "there are no fields yet"
    return f"fields are {', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"


def refuse_unknown_fields(
    condition: Filter, has_field: Callable[[Condition], bool], known: Callable[[], Iterable[str]]
) -> None:
    """Refuse a filter that compares a field which no document has, most likely a misspelt one.

    A field that the filter asks `exists` about may be missing. `has_field`: whether a document has the field of a
    leaf. `known`: gives the names of fields that documents have, for the message.
    """
    leaves = list(condition.root.leaves())
    optional = {leaf.field for leaf in leaves if leaf.kind == "exists"}
    for leaf in leaves:
        if leaf.field not in optional and not has_field(leaf):
            name = ".".join(leaf.field)
            place = f"(character {leaf.position + 1} of the filter)"
            raise VizslaError(f"no document has a field {name!r} {place}; {other_fields(name, known())}")
