"""The schema of index.db: its format, its tables, and what valid values in them look like.

An index may come from anywhere, so everything that is read from its database is checked first.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable
from typing import Any

FORMAT = 6
READABLE = (2, 3, 4, 5, 6)
"""Format 2 has no checksums, format 3 no ids in segments, format 4 no blocks of terms, format 5 ids in the database; a
writer makes it the present format before its first change. Format 4 and earlier have plain arrays as directories of
posting lists, format 5 and earlier no bitmaps in them; new segments have packed directories and bitmaps."""
WITH_IDS = 5
"""The last format that has ids in the database."""
WITHOUT_BLOCKS = 4
WITHOUT_CHECKSUMS = 2

DOCUMENTS = """CREATE TABLE documents (
    number INTEGER PRIMARY KEY,      -- insertion number: never changes, never used again
    metadata TEXT NOT NULL           -- a JSON object: what filters look at; a document without any has no row
)"""
"""The statement that creates the table of documents."""

EARLIER_DOCUMENTS = """
CREATE TABLE documents (
    number INTEGER PRIMARY KEY,      -- insertion number: never changes, never used again
    id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    metadata TEXT                    -- a JSON object, NULL for an empty one: what filters look at
);
CREATE INDEX documents_by_id ON documents (id);
"""
"""The statements that created the same table in format 5 and earlier, and its index."""

_OTHERS = """
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
"""

TERM_BLOCKS = """
CREATE TABLE term_blocks (           -- terms that were moved from the table terms
    namespace INTEGER NOT NULL,
    first TEXT NOT NULL,             -- the first term of the block
    data BLOB NOT NULL,              -- compressed: terms and their numbers
    PRIMARY KEY (namespace, first)
);
"""
"""The statement that creates the table that format 5 adds."""

SCHEMA = f"{DOCUMENTS};{_OTHERS}{TERM_BLOCKS}"
"""The statements that create the tables.

SQLite stores their text, comments included, and an index with another text is refused: change it only with the format.
"""


def earlier_schema(version: int) -> str:
    """The statements that created the tables of an earlier format."""
    return EARLIER_DOCUMENTS + _OTHERS + (TERM_BLOCKS if version > WITHOUT_BLOCKS else "")


@functools.cache
def expected_tables(version: int) -> frozenset[tuple[str, str, str | None]]:
    """Type, name and SQL of the tables and indexes of a database of a format, as SQLite lists them."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(SCHEMA if version == FORMAT else earlier_schema(version))
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
    "format": lambda v: v in READABLE,
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
