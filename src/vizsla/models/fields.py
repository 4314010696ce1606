"""The fields of a document that a model reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vizsla.errors import VizslaError, kind_of

Fields = Mapping[str, Any] | str
"""A document as a model sees it: fields by name, or a text, which counts as the field `text`."""


def check_fields(fields: object) -> None:
    """Refuse what is not a tuple of at least one field name."""
    if not isinstance(fields, tuple) or not fields or not all(isinstance(name, str) and name for name in fields):
        raise VizslaError(f"fields are a tuple of names, as in ('title', 'text'), not {fields!r}")


def field_text(document: Fields, fields: Sequence[str]) -> str:
    """The text of some fields of a document, joined by line breaks; missing fields are skipped.

    >>> field_text({"title": "Dogs", "text": "Dogs bark."}, ["title", "text"])
    'Dogs\\nDogs bark.'
    """
    if isinstance(document, str):
        return document if "text" in fields else ""
    if len(fields) == 1:
        return document.get(fields[0]) or ""
    return "\n".join(document[f] for f in fields if document.get(f))


def text_problem(content: Mapping[str, Any], fields: Sequence[str]) -> str | None:
    """Why some fields cannot be read as text, to follow the document's name in a sentence; None if they can."""
    for name in fields:
        value = content.get(name)
        if value is not None and not isinstance(value, str):
            return f"has a field {name!r} that is not a text, but {kind_of(value)}"
    return None


def missing_problem(content: Mapping[str, Any], fields: Sequence[str]) -> str | None:
    """Why a document has nothing that a model could read, to follow its name in a sentence; None if it has."""
    needed = ["text"] if "text" in fields else list(fields)
    if any(content.get(f) is not None for f in needed):
        return None
    names = ("text", "contents") if needed == ["text"] else needed
    what = "text" if "text" in needed else needed[0]
    hint = "; name another with --text-field" if what == "text" else ""
    among = f" among its fields {', '.join(map(repr, [*content][:12]))}{hint}" if content else ""
    return f"has no {what}; expected a field {' or '.join(map(repr, names))}{among}"
