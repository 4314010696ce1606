"""index.db: the single source of truth of a collection, in SQLite.

Everything a commit adds carries the commit's generation. Rows of a generation above the current one belong to a
commit in the making, or to one that never came to be; readers do not see them and the next writer sweeps them.

A process never opens index.db by other means than SQLite: closing such a file would free all of the process's locks.
"""

from __future__ import annotations

import functools
import json
import os
import sqlite3
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from vizsla.errors import CollectionError
from vizsla.index.storage import checksums, forking
from vizsla.index.storage.arrays import Facts, sync_folder
from vizsla.index.storage.locks import FileLock
from vizsla.index.storage.segment_files import check_facts

FORMAT = 3
READABLE = (2, 3)  # one of format 2 has no checksums; its next commit makes it one of format 3
FILE = "index.db"
JOURNAL = FILE + "-journal"
LOCK = "writer.lock"
DENSE = "dense"  # how dense vectors are kept and searched; an index without it keeps and searches them exactly
_LOG_BYTES = 4 << 20  # how long the log of writes may get before what is in it is moved to its place

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (
    number INTEGER PRIMARY KEY,      -- insertion number: never changes, never used again
    id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    metadata TEXT                    -- a JSON object, NULL for an empty one: what filters look at
);
CREATE TABLE contents (number INTEGER PRIMARY KEY, fields TEXT NOT NULL);  -- a JSON object: what the model reads
CREATE INDEX documents_by_id ON documents (id);
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


class using_sqlite(forking.inside_sqlite):
    """A context around every use of SQLite: errors become one sentence that names the index, and no fork happens."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __exit__(self, *raised: object) -> None:
        super().__exit__()
        e = raised[1]
        if isinstance(e, sqlite3.Error):
            raise plain_error(self._path, e) from e


def plain_error(path: Path, e: sqlite3.Error) -> CollectionError:
    """An error of SQLite in one sentence that names the index."""
    text = str(e)
    if "disk is full" in text or "disk I/O error" in text:
        text = "the disk is full or failing; the last commit is intact"
    elif "locked" in text:
        text = "another writer is at work on it"
    elif "not a database" in text or "malformed" in text:
        text = f"{FILE} is damaged ({text})"
    return CollectionError(f"{path}: {text}")


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open index.db. Reading works where nothing can be written, too."""
    check_folder(path)
    forking.check(path)
    file = (path / FILE).resolve()
    with using_sqlite(path):
        connection = _connect(file, "rw")  # readers, too, so that the last one to leave removes the side files
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError as e:
            connection.close()
            if write or not _is_unwritable(e):
                raise
            connection = _connect_immutable(path, file)
        try:
            connection.execute("PRAGMA synchronous=FULL" if write else "PRAGMA query_only=1")
            connection.execute("PRAGMA wal_autocheckpoint=0")  # its errors would look like those of a commit
            connection.execute("PRAGMA trusted_schema=0")
            _check_format(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def close_with(owner: object, connection: sqlite3.Connection) -> weakref.finalize[..., object]:
    """Close a connection when it is called, or when its owner is lost: Python alone would leave it open, and locked."""
    return weakref.finalize(owner, _close, connection, os.getpid())


def _close(connection: sqlite3.Connection, process: int) -> None:
    if os.getpid() == process:  # a forked child must not touch its parent's
        with suppress(sqlite3.Error), forking.inside_sqlite():  # a full disk can refuse even this
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.close()


def check_folder(path: Path) -> None:
    """Refuse a folder that holds no index, or one with links, pipes or devices in place of files."""
    try:
        with os.scandir(path) as entries:
            plain = {e.name: e.is_file(follow_symlinks=False) or e.is_dir(follow_symlinks=False) for e in entries}
    except FileNotFoundError:
        raise CollectionError(f"{path}: there is no such folder; create an index with 'vizsla index'") from None
    except NotADirectoryError:
        raise CollectionError(f"{path}: this is a file; an index is a folder") from None
    except (OSError, ValueError) as e:  # a ValueError: a path with a NUL
        raise CollectionError(f"{str(path)!r}: cannot be read ({getattr(e, 'strerror', None) or e})") from None
    if FILE not in plain or (plain[FILE] and not (path / FILE).is_file()):
        raise CollectionError(f"{path}: this is no Vizsla index (there is no {FILE}); create one with 'vizsla index'")
    if JOURNAL in plain:
        raise CollectionError(f"{path}: {JOURNAL} is no file of an index, and SQLite would do what it says; remove it")
    odd = sorted(name for name, is_plain in plain.items() if not is_plain)
    if odd:
        raise CollectionError(f"{path}: {odd[0]} is a link or no file at all; an index holds plain files and folders")


def _is_unwritable(e: sqlite3.OperationalError) -> bool:
    return e.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY"))


def _connect_immutable(path: Path, file: Path) -> sqlite3.Connection:
    """Where the side files of a write-ahead database cannot be made, read the database file alone."""
    wal = file.with_name(file.name + "-wal")
    if wal.exists() and wal.stat().st_size > 0:
        raise CollectionError(
            f"{path}: the last commit is still in {wal.name}, and the folder cannot be written to; "
            "open it once where it can"
        )
    return _connect(file, "ro&immutable=1", Unlocked)


class Unlocked(sqlite3.Connection):
    """A connection of somebody who may not write: without side files there are no locks, and no snapshot either."""


def _connect(file: Path, mode: str, kind: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    uri = f"{file.as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10, factory=kind)


def stamp(path: Path) -> tuple[int, int]:
    """What changes when index.db is written to."""
    found = (path / FILE).stat()
    return found.st_size, found.st_mtime_ns


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a database that is not an index's, is one of another format, or has more in it than tables of ours."""
    found = set(connection.execute("SELECT type, name, sql FROM sqlite_master"))
    if not any((kind, name) == ("table", "meta") for kind, name, _ in found):
        raise CollectionError(f"{path}: this is no Vizsla index ({FILE} is something else)")
    try:
        version = get_meta(connection, "format")
    except (sqlite3.OperationalError, ValueError, TypeError, RecursionError):
        version = None
    if type(version) is not int:
        raise CollectionError(f"{path}: this is no Vizsla index ({FILE} is something else)")
    if version not in READABLE:
        advice = "upgrade Vizsla to open it" if version > FORMAT else "build it again"
        raise CollectionError(f"{path}: the index has format {version}, this version reads format {FORMAT}; {advice}")
    if found != _schema():
        raise CollectionError(f"{path}: {FILE} is damaged (its tables are not those of an index)")


@functools.cache
def _schema() -> frozenset[tuple[str, str, str | None]]:
    """The tables of a new index, as SQLite tells them."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(_SCHEMA)
        return frozenset(connection.execute("SELECT type, name, sql FROM sqlite_master"))
    finally:
        connection.close()


def is_ours(file: Path) -> bool:
    """Whether a file is the database of an index, of whatever format."""
    if file.is_symlink() or file.with_name(JOURNAL).exists():
        return False
    with forking.inside_sqlite():
        try:
            connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
        except sqlite3.Error:
            return False
        try:
            return get_meta(connection, "format") is not None
        except (sqlite3.Error, ValueError, TypeError, RecursionError):
            return False
        finally:
            connection.close()


def create(path: Path, meta: dict[str, Any]) -> None:
    """A new, empty index.db; it appears under its name when it is complete."""
    unfinished = path / (FILE + ".new")
    unfinished.unlink(missing_ok=True)
    with using_sqlite(path):
        connection = sqlite3.connect(unfinished, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.executescript("BEGIN;" + _SCHEMA)
            start = {"format": FORMAT, "uuid": uuid4().hex, "generation": 0, "next_number": 0, "next_term": 0}
            for key, value in {**start, **meta}.items():
                set_meta(connection, key, value)
            checksums.Checksums(connection, 0).store(connection, 0, 0)
            connection.execute("COMMIT")
        finally:
            connection.close()
    unfinished.replace(path / FILE)
    sync_folder(path)


def get_meta(connection: sqlite3.Connection, key: str) -> Any:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else json.loads(row[0])


def set_meta(connection: sqlite3.Connection, key: str, value: Any) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))


_META: dict[str, Callable[[Any], bool]] = {
    "format": lambda v: v in READABLE,
    "uuid": lambda v: isinstance(v, str),
    "generation": lambda v: _is_count(v),
    "next_number": lambda v: _is_count(v),
    "next_term": lambda v: _is_count(v) and v <= 1 << 32,
    "model": lambda v: isinstance(v, dict),
    "model_files": lambda v: isinstance(v, dict) and all(map(_is_plain_path, v)),
    "stored": lambda v: isinstance(v, bool),
    "passages": lambda v: v is None or (isinstance(v, list) and len(v) == 2 and all(map(_is_count, v))),
    "vizsla": lambda v: isinstance(v, str),
    "created": lambda v: isinstance(v, str),
}
_MAY_BE_ABSENT: dict[str, Callable[[Any], bool]] = {
    DENSE: lambda v: isinstance(v, str),
    checksums.KEY: checksums.are_sums,
}


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 60


def _is_plain_path(name: str) -> bool:
    """Whether a name leads from a folder to a file inside it."""
    return all(part not in ("", ".", "..") and not set(part) & set("\\\0:") for part in name.split("/"))


def read_meta(connection: sqlite3.Connection, path: Path) -> dict[str, Any]:
    """Everything in `meta`, if it is what a writer has put there."""
    rows = connection.execute("SELECT key, value FROM meta").fetchall()
    try:
        meta = {key: json.loads(value) for key, value in rows}
    except (ValueError, TypeError, RecursionError):
        raise damaged(path, "meta holds something that is not JSON") from None
    needed = (checksums.KEY,) if meta.get("format") == FORMAT else ()
    there = {key: is_right for key, is_right in _MAY_BE_ABSENT.items() if key in meta or key in needed}
    for key, is_right in {**_META, **there}.items():
        if key not in meta or not is_right(meta[key]):
            raise damaged(path, f"{key} in meta is not what a writer puts there")
    return meta


def damaged(path: Path, how: str) -> CollectionError:
    return CollectionError(f"{path}: {FILE} is damaged ({how})")


def sweep(connection: sqlite3.Connection) -> None:
    """Remove the rows of a commit that never came to be."""
    generation, next_number = get_meta(connection, "generation"), get_meta(connection, "next_number")
    connection.execute("BEGIN IMMEDIATE")
    for table in ("documents", "contents"):
        connection.execute(f"DELETE FROM {table} WHERE number >= ?", (next_number,))
    for table in ("deletions", "segments"):
        connection.execute(f"DELETE FROM {table} WHERE generation > ?", (generation,))
    kept = checksums.of_commit(connection)
    if kept is not None and kept["next_term"] < get_meta(connection, "next_term"):
        connection.execute("DELETE FROM terms WHERE number >= ?", (kept["next_term"],))
        set_meta(connection, "next_term", kept["next_term"])
    connection.execute("COMMIT")


def term_number(row: tuple[Any, ...] | None, path: Path) -> int:
    """The number of a term from its row; -1 where there is none."""
    if row is None:
        return -1
    if type(row[0]) is not int or not 0 <= row[0] < 1 << 32:
        raise damaged(path, "a term has no number")
    return row[0]


def insert_segment(
    connection: sqlite3.Connection, name: str, generation: int, count: int, statistics: Any, files: Any
) -> None:
    row = (name, generation, count, json.dumps(statistics), json.dumps(files))
    connection.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", row)


def segment_rows(
    connection: sqlite3.Connection, path: Path, generation: int
) -> list[tuple[str, dict[str, Facts], dict[str, Any]]]:
    """Name, files and statistics of the segments up to a generation, if they are what a writer has put there."""
    query = "SELECT id, files, statistics FROM segments WHERE generation <= ?"
    found = []
    for name, files_text, statistics_text in connection.execute(query, (generation,)):
        try:
            facts, statistics = json.loads(files_text), json.loads(statistics_text)
        except (ValueError, TypeError, RecursionError):
            raise damaged(path, "a segment is described by something that is not JSON") from None
        if not check_facts(name, facts) or not _are_statistics(statistics):
            raise damaged(path, f"segment {str(name)[:40]!r} is not described as a writer does it")
        found.append((name, facts, statistics))
    return found


def _are_statistics(found: Any) -> bool:
    if not isinstance(found, dict) or not _is_count(found.get("living")):
        return False
    spaces = found.get("namespaces")
    keys = {"documents", "total_length", "longest"}
    return isinstance(spaces, dict) and all(
        isinstance(entry, dict) and entry.keys() == keys and all(map(_is_count, entry.values()))
        for entry in spaces.values()
    )


def live_files(connection: sqlite3.Connection, path: Path) -> dict[str, set[str]]:
    """The files of each segment that a commit names, or the coming one."""
    rows = segment_rows(connection, path, 1 << 62)
    return {name: {entry["file"] for entry in facts.values()} for name, facts, _ in rows}


def count_statistics(namespaces: Sequence[str], sizes: np.ndarray, alive: np.ndarray | None) -> dict[str, Any]:
    """The statistics of a segment over its living documents."""
    if alive is not None:
        sizes = sizes[:, alive]
    by_namespace = {
        name: {
            "documents": int(np.count_nonzero(row)),
            "total_length": int(row.sum(dtype=np.int64)),
            "longest": int(row.max(initial=0)),
        }
        for name, row in zip(namespaces, sizes, strict=True)
    }
    return {"living": sizes.shape[1], "namespaces": by_namespace}


def shorten_log(connection: sqlite3.Connection, path: Path) -> None:
    """Move what is in the log of writes to its place, where the log has become long. Failing does no harm."""
    with suppress(OSError, sqlite3.Error), forking.inside_sqlite():
        if (path / (FILE + "-wal")).stat().st_size > _LOG_BYTES:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def lock_for_writing(path: Path, wait: float) -> FileLock:
    """One writer at a time, of all threads and processes."""
    return FileLock(path / LOCK, wait)
