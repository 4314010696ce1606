"""The schema of index.db: its format, its tables, and what valid values in them look like.

An index may come from anywhere, so everything that is read from its database is checked first.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable
from typing import Any

FORMAT = 6
"""Every change of the format raises this number; an index with another number is refused."""

SCHEMA = """
CREATE TABLE documents (
    number INTEGER PRIMARY KEY,      -- insertion number: never changes, never used again
    metadata TEXT NOT NULL           -- a JSON object: what filters look at; a document without any has no row
);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE contents (number INTEGER PRIMARY KEY, fields TEXT NOT NULL);  -- a JSON object: what the model reads
CREATE TABLE deletions (number INTEGER PRIMARY KEY, generation INTEGER NOT NULL);
CREATE TABLE terms (                 -- append-only: a term's number never changes
    namespace INTEGER NOT NULL,      -- which of the model's
    term TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (namespace, term)
) WITHOUT ROWID;
CREATE TABLE segments (
    id TEXT PRIMARY KEY,             -- the folder under segments/
    generation INTEGER NOT NULL,
    documents INTEGER NOT NULL,
    statistics TEXT NOT NULL,        -- JSON: living documents; per namespace documents, total_length, longest
    files TEXT NOT NULL              -- JSON: per array its file, bytes, sha256, type and shape
) WITHOUT ROWID;
CREATE TABLE term_blocks (           -- terms that were moved from the table terms
    namespace INTEGER NOT NULL,
    first TEXT NOT NULL,             -- the first term of the block
    data BLOB NOT NULL,              -- compressed: terms and their numbers
    PRIMARY KEY (namespace, first)
);
"""
"""The statements that create the tables.

SQLite stores their text, comments included, and an index with another text is refused: change it only with the format.
"""


@functools.cache
def expected_tables() -> frozenset[tuple[str, str, str | None]]:
    """Type, name and SQL of the tables and indexes of the database, as SQLite lists them."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(SCHEMA)
        return frozenset(connection.execute("SELECT type, name, sql FROM sqlite_master"))
    finally:
        connection.close()


def is_count(value: Any) -> bool:
    """Whether a value is a whole number that a counter of an index can have."""
    return type(value) is int and 0 <= value < 1 << 60


def _is_plain_path(name: str) -> bool:
    """Whether a name is a relative path to a file inside a folder."""
    return all(part not in ("", ".", "..") and not set(part) & set("\\\0:") for part in name.split("/"))


def are_statistics(value: Any) -> bool:
    """Whether a value is the statistics of a segment, as `count_statistics` returns them."""
    if not isinstance(value, dict) or not is_count(value.get("living")):
        return False
    spaces = value.get("namespaces")
    keys = {"documents", "total_length", "longest"}
    return isinstance(spaces, dict) and all(
        isinstance(entry, dict) and entry.keys() == keys and all(map(is_count, entry.values()))
        for entry in spaces.values()
    )


META: dict[str, Callable[[Any], bool]] = {
    "format": lambda v: v == FORMAT,
    "uuid": lambda v: isinstance(v, str),
    "generation": is_count,
    "next_number": is_count,
    "next_term": lambda v: is_count(v) and v <= 1 << 32,
    "model": lambda v: isinstance(v, dict),
    "model_files": lambda v: isinstance(v, dict) and all(map(_is_plain_path, v)),
    "stored": lambda v: isinstance(v, bool),
    "passages": lambda v: v is None or (isinstance(v, list) and len(v) == 2 and all(map(is_count, v))),
    "vizsla": lambda v: isinstance(v, str),
    "created": lambda v: isinstance(v, str),
}
"""Checks of the values in the table `meta` that every index has, by key."""
