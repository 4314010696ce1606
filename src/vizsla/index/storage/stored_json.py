"""What an index stores of documents, as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vizsla.errors import CollectionError
from vizsla.index.storage import database
from vizsla.plain_data import parse_json


def parse_stored(text: str, path: Path) -> Any:
    """The value of a text that an index stores; what is no JSON, or nested too deeply, is damage."""
    try:
        return parse_json(text)
    except (ValueError, TypeError):
        raise damaged_document(path) from None


def stored_fields(text: str, path: Path) -> dict[str, Any]:
    """The fields of a document, some or all, from the text that an index stores."""
    fields = parse_stored(text, path)
    if not isinstance(fields, dict):
        raise damaged_document(path)
    return fields


def damaged_document(path: Path) -> CollectionError:
    """The error for a document that cannot be read."""
    return database.damaged(path, "what is stored of a document is not a JSON object")
