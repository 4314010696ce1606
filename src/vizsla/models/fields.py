"""The fields of a document that a model reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from vizsla.errors import VizslaError, kind_of

Fields = Mapping[str, Any] | str
"""A document as a model sees it: fields by name, or a text, which counts as the field `text`."""

QUERIES = "queries"
"""The field that `vizsla queries generate` writes: a list of generated queries."""


def check_fields(fields: object) -> None:
    """Refuse what is not a tuple of at least one field name."""
    if not isinstance(fields, tuple) or not fields or not all(isinstance(name, str) and name for name in fields):
        raise VizslaError(f"fields are a tuple of names, as in ('title', 'text'), not {fields!r}")


def is_text(value: object) -> TypeGuard[str | list[str]]:
    """Whether a model can read a field with this value: a text, or a list of texts."""
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))


def as_text(value: str | list[str] | None) -> str:
    """The value of a field as one text: the texts of a list are joined by line breaks, a missing value is empty."""
    if isinstance(value, str):
        return value
    return "\n".join(value) if value else ""


def field_text(document: Fields, fields: Sequence[str]) -> str:
    """The text of some fields of a document, joined by line breaks; missing fields are skipped.

    A field can hold a list of texts. They are joined by line breaks, too.

    >>> field_text({"title": "Dogs", "text": "Dogs bark.", "queries": ["do dogs bark", "dog"]}, ["text", "queries"])
    'Dogs bark.\\ndo dogs bark\\ndog'
    """
    if isinstance(document, str):
        return document if "text" in fields else ""
    if len(fields) == 1:
        return as_text(document.get(fields[0]))
    return "\n".join(as_text(document[f]) for f in fields if document.get(f))


def text_problem(content: Mapping[str, Any], fields: Sequence[str]) -> str | None:
    """Why some fields cannot be read as text, as a predicate with the document as its subject; None if they can."""
    for name in fields:
        value = content.get(name)
        if value is not None and not is_text(value):
            what = "a list that is not all text" if isinstance(value, list) else kind_of(value)
            return f"has a field {name!r} that is not a text, but {what}"
    return None


def missing_problem(content: Mapping[str, Any], fields: Sequence[str]) -> str | None:
    """Why a document has nothing for a model to read, as a predicate with the document as its subject, or None."""
    needed = ["text"] if "text" in fields else list(fields)
    if any(content.get(f) is not None for f in needed):
        return None
    null = next((name for name in needed if name in content), None)
    if null is not None:
        return f"has null in the field {null!r}; expected a {'text' if null == 'text' else 'value'}"
    names = ("text", "contents") if needed == ["text"] else needed
    what = "text" if "text" in needed else needed[0]
    hint = "; name another with --text-field, or in Python call it 'text'" if what == "text" else ""
    among = f" among its fields {', '.join(map(repr, [*content][:12]))}{hint}" if content else ""
    return f"has no {what}; expected a field {' or '.join(map(repr, names))}{among}"
