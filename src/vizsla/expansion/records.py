"""Expanded documents as lines of JSON: the id, all fields as they were, and the generated queries at the end."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from vizsla.models import QUERIES
from vizsla.plain_data import parse_json
from vizsla.runs import Document
from vizsla.runs.documents import refusal

ID = "_id"
SCORES = "query_scores"
"""The field with the scores of the queries, where a filter writes them."""
_MARK = f', "{QUERIES}": ['.encode()  # inside of a text the quotes are escaped
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class ExpandedLine(NamedTuple):
    """A line of an expanded file: the bytes before the queries, the document's id, and the queries."""

    start: bytes
    id: str
    queries: list[str]


def line_start(document: Document) -> bytes:
    """A document's line up to its queries; a document that has queries already, or cannot be written, is refused."""
    content = document.content
    if QUERIES in content:
        raise refusal(
            f"the document {document.id!r} has a field {QUERIES!r} already; expand the documents as they were, or "
            "rename the field",
            document.origin,
        )
    if ID in content:
        raise refusal(
            f"the document {document.id!r} has a field {ID!r} beside its id; rename or remove it", document.origin
        )
    return _encoded({ID: document.id, **content}, document)[:-1] + _MARK[:-1]


def line_of(start: bytes, queries: list[str]) -> bytes:
    """The whole line of a document, given its beginning."""
    return start + _JSON(queries).encode() + b"}\n"


def whole_line(document: Document, queries: list[str], scores: list[float] | None = None) -> bytes:
    """The line of an expanded document with other queries, and with their scores if there are any."""
    content = {name: value for name, value in document.content.items() if name not in (QUERIES, SCORES)}
    if scores is not None:
        content[SCORES] = scores
    return _encoded({ID: document.id, **content, QUERIES: queries}, document) + b"\n"


def read_line(line: bytes) -> ExpandedLine | None:
    """The parts of a line; None if it is not whole, or not one that `line_of` writes."""
    at = line.rfind(_MARK)
    if at < 0 or not line.endswith(b"}\n"):
        return None
    start = line[: at + len(_MARK) - 1]
    try:
        record: Any = parse_json(line)
    except ValueError:
        return None
    doc_id, queries = record.get(ID), _texts(record.get(QUERIES))
    if not isinstance(doc_id, str) or queries is None:
        return None
    return ExpandedLine(start, doc_id, queries)


def queries_of(document: Document) -> list[str]:
    """The generated queries of a document; one without them is refused."""
    queries = _texts(document.get(QUERIES))
    if queries is None:
        raise refusal(
            f"the document {document.id!r} has no texts in the field {QUERIES!r}; vizsla queries generate writes it",
            document.origin,
        )
    return queries


def _texts(value: object) -> list[str] | None:
    """A list of texts; None for anything else."""
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else None


def _encoded(record: dict[str, Any], document: Document) -> bytes:
    try:
        return _JSON(record).encode()
    except (TypeError, ValueError, RecursionError) as e:
        name = document.id.encode("utf-8", "replace").decode()
        raise refusal(f"the document {name!r} cannot be written as JSON ({e})", document.origin) from None
