"""index.db: the single source of truth of a collection, in SQLite.

Everything a commit adds carries the commit's generation. Rows of a generation above the current one belong to a
commit that is not finished, or to one that failed; readers do not see them, and the next writer removes them.

A process opens index.db only through SQLite: closing the file by other means would free all locks of the process.
"""

from __future__ import annotations

import functools
import json
import os
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from vizsla.datasets.passages import Splitter
from vizsla.errors import CollectionError, VizslaError
from vizsla.index.storage import checksums, forking, live_documents
from vizsla.index.storage.arrays import Facts, sync_folder
from vizsla.index.storage.finalizers import finalize
from vizsla.index.storage.locks import FileLock
from vizsla.index.storage.segment_files import check_facts
from vizsla.plain_data import DescriptionError, parse_json, parse_settings

FILE = "index.db"
LOG = FILE + "-wal"
JOURNAL = FILE + "-journal"
LOCK = "writer.lock"
MAX_LOG_BYTES = 4 << 20  # a longer log is moved into the database
POSITIONS = "positions"  # the key that says whether positions of words are stored
DENSE = "dense"  # the key of the vector index
FOLDED = "folded_terms"  # the key of how many terms are in blocks, after the first commit
NOTES = "notes"  # the key of what `Writer.set_note` stores, if it has stored anything

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
def _expected_tables() -> frozenset[tuple[str, str, str | None]]:
    """Type, name and SQL of the tables and indexes of the database, as SQLite lists them."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(SCHEMA)
        return frozenset(connection.execute("SELECT type, name, sql FROM sqlite_master"))
    finally:
        connection.close()


def _is_count(value: Any) -> bool:
    """Whether a value is a whole number that a counter of an index can have."""
    return type(value) is int and 0 <= value < 1 << 60


def is_plain_path(name: str) -> bool:
    """Whether a name is a relative path to a file inside a folder."""
    return all(part not in ("", ".", "..") and not set(part) & set("\\\0:") for part in name.split("/"))


def _are_statistics(value: Any) -> bool:
    """Whether a value is the statistics of a segment, as `count_statistics` returns them."""
    if not isinstance(value, dict) or not _is_count(value.get("living")):
        return False
    spaces = value.get("namespaces")
    keys = {"documents", "total_length", "longest"}
    return isinstance(spaces, dict) and all(
        isinstance(entry, dict) and entry.keys() == keys and all(map(_is_count, entry.values()))
        for entry in spaces.values()
    )


# Errors


class using_sqlite:
    """A context for every use of SQLite: its errors become one sentence that names the index, and forks wait."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        forking.inside_sqlite.__enter__()

    def __exit__(self, *raised: object) -> None:
        forking.inside_sqlite.__exit__()
        e = raised[1]
        if isinstance(e, sqlite3.Error):
            raise plain_error(self._path, e) from e


def plain_error(path: Path, e: sqlite3.Error) -> CollectionError:
    """An error of SQLite in one sentence that names the index."""
    text = str(e)
    if "disk is full" in text or "disk I/O error" in text:
        text = "the disk is full or failing; the last commit is intact"
    elif "locked" in text:
        text = "another writer is using the index"
    elif "not a database" in text or "malformed" in text:
        text = f"{FILE} is damaged ({text})"
    return CollectionError(f"{path}: {text}")


def damaged(path: Path, reason: str) -> CollectionError:
    """The error for a damaged index.db."""
    return CollectionError(f"{path}: {FILE} is damaged ({reason})")


def damaged_segment(path: Path) -> CollectionError:
    """The error for a segment whose arrays contradict each other."""
    return CollectionError(f"{path}: a segment is damaged; 'vizsla verify' tells which")


# Connections


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open index.db. Reading also works in a folder that cannot be written to."""
    check_folder(path)
    forking.check(path)
    file = (path / FILE).resolve()
    with using_sqlite(path):
        connection = _connect(file, "rw")  # also for readers, so that the last one removes the side files
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
            connection.execute("PRAGMA journal_size_limit=0")  # a restarted log is truncated to its content
            connection.execute("PRAGMA trusted_schema=0")
            _check_format(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def close_with(owner: object, connection: sqlite3.Connection) -> weakref.finalize[..., object]:
    """A function that closes a connection; it is also called when the owner is collected.

    Python alone would leave the connection open, and the database locked.
    """
    return finalize(owner, _close, connection, os.getpid())


def _close(connection: sqlite3.Connection, process: int) -> None:
    if os.getpid() == process:  # a forked child must not touch its parent's connection
        with suppress(sqlite3.Error), forking.inside_sqlite:  # even this can fail on a full disk
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.close()


def check_folder(path: Path) -> None:
    """Refuse a folder without an index, or with links, pipes or devices in place of files."""
    try:
        with os.scandir(path) as entries:
            plain = {e.name: e.is_file(follow_symlinks=False) or e.is_dir(follow_symlinks=False) for e in entries}
    except FileNotFoundError:
        raise CollectionError(f"{path}: this folder does not exist; create an index with 'vizsla index'") from None
    except NotADirectoryError:
        raise CollectionError(f"{path}: this is a file; an index is a folder") from None
    except (OSError, ValueError) as e:  # a ValueError: a path with a NUL
        raise CollectionError(f"{str(path)!r}: cannot be read ({getattr(e, 'strerror', None) or e})") from None
    if FILE not in plain or (plain[FILE] and not (path / FILE).is_file()):
        raise CollectionError(f"{path}: this is not a Vizsla index ({FILE} is missing); create one with 'vizsla index'")
    if JOURNAL in plain:
        raise CollectionError(f"{path}: {JOURNAL} is not a file of an index, and SQLite would apply it; remove it")
    odd = sorted(name for name, is_plain in plain.items() if not is_plain)
    if odd:
        raise CollectionError(f"{path}: {odd[0]} is a link or a special file; an index holds plain files and folders")


def _is_unwritable(e: sqlite3.OperationalError) -> bool:
    return e.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY"))


def _connect_immutable(path: Path, file: Path) -> sqlite3.Connection:
    """Open the database file alone, in a folder where the side files of write-ahead mode cannot be created."""
    wal = file.with_name(file.name + "-wal")
    if wal.exists() and wal.stat().st_size > 0:
        raise CollectionError(
            f"{path}: the last commit is still in {wal.name}, and the folder cannot be written to; "
            "open it once with write permission"
        )
    return _connect(file, "ro&immutable=1", Unlocked)


class Unlocked(sqlite3.Connection):
    """A connection without write permission: it has no side files, and so neither locks nor snapshots."""


def _connect(file: Path, mode: str, factory: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    uri = f"{file.as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10, factory=factory)


class Stamp(NamedTuple):
    """What the file system tells of a file: which one it is, and when it was written to."""

    device: int
    inode: int
    size: int
    time: int

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode number: unique among the files that exist at one time."""
        return self.device, self.inode


def stamp(path: Path, file: str = FILE) -> Stamp | None:
    """The stamp of a file of an index; None if it is not there."""
    try:
        status = os.stat(path / file)
    except OSError:
        return None
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def identity(path: Path) -> tuple[int, int] | None:
    """The identity of the file index.db, which changes when the index is replaced; None if the file is missing."""
    now = stamp(path)
    return None if now is None else now.identity


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a database that is not of an index, has another format, or has other tables than an index."""
    tables = set(connection.execute("SELECT type, name, sql FROM sqlite_master"))
    if ("table", "meta") not in {(kind, name) for kind, name, _ in tables}:
        raise CollectionError(f"{path}: this is not a Vizsla index ({FILE} is something else)")
    try:
        version = get_meta(connection, "format")
    except (sqlite3.OperationalError, ValueError, TypeError):
        version = None
    if type(version) is not int:
        raise CollectionError(f"{path}: this is not a Vizsla index ({FILE} is something else)")
    if version != FORMAT:
        advice = "upgrade Vizsla to open it" if version > FORMAT else "build it again"
        raise CollectionError(f"{path}: the index has format {version}, this version reads format {FORMAT}; {advice}")
    if tables != _expected_tables():
        raise CollectionError(f"{path}: {FILE} is damaged (its tables are not those of an index)")


def is_index_database(file: Path) -> bool:
    """Whether a file is the database of an index, of any format."""
    if file.is_symlink() or file.with_name(JOURNAL).exists():
        return False
    with forking.inside_sqlite:
        try:
            connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
        except sqlite3.Error:
            return False
        try:
            return get_meta(connection, "format") is not None
        except (sqlite3.Error, ValueError, TypeError):
            return False
        finally:
            connection.close()


def create(path: Path, meta: dict[str, Any]) -> None:
    """Create an empty index.db, which gets its name when it is complete; `meta`: values for the table `meta`."""
    unfinished = path / (FILE + ".new")
    unfinished.unlink(missing_ok=True)
    with using_sqlite(path):
        connection = sqlite3.connect(unfinished, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.executescript("BEGIN;" + SCHEMA)
            initial = {"format": FORMAT, "uuid": uuid4().hex, "generation": 0, "next_number": 0, "next_term": 0}
            for key, value in {**initial, **meta}.items():
                set_meta(connection, key, value)
            checksums.Checksums().store(connection, 0, 0)
            connection.execute("COMMIT")
        finally:
            connection.close()
    unfinished.replace(path / FILE)
    sync_folder(path)


# The table meta


def get_meta(connection: sqlite3.Connection, key: str) -> Any:
    """A value of the table `meta`; None if the key is missing."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else parse_settings(row[0])


def set_meta(connection: sqlite3.Connection, key: str, value: Any) -> None:
    """Store a value in the table `meta`."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))


def _is_splitter(value: Any) -> bool:
    """Whether a value describes how documents are cut into passages."""
    try:
        Splitter.from_data(value)
    except (DescriptionError, VizslaError):
        return False
    return True


_META: dict[str, Callable[[Any], bool]] = {
    "format": lambda v: v == FORMAT,
    "uuid": lambda v: isinstance(v, str),
    "generation": _is_count,
    "next_number": _is_count,
    "next_term": lambda v: _is_count(v) and v <= 1 << 32,
    "model": lambda v: isinstance(v, dict),
    "model_files": lambda v: isinstance(v, dict) and all(map(is_plain_path, v)),
    "stored": lambda v: isinstance(v, bool),
    "passages": lambda v: v is None or _is_splitter(v),
    "vizsla": lambda v: isinstance(v, str),
    "created": lambda v: isinstance(v, str),
    DENSE: lambda v: isinstance(v, str),
    POSITIONS: lambda v: isinstance(v, bool),
    checksums.KEY: checksums.are_checksums,
}
"""Checks of the values that every index has, by key."""
_OPTIONAL_META: dict[str, Callable[[Any], bool]] = {
    NOTES: lambda v: isinstance(v, dict),
    FOLDED: _is_count,
}


def read_meta(connection: sqlite3.Connection, path: Path) -> dict[str, Any]:
    """All values of the table `meta`; invalid ones are refused."""
    try:
        ((text,),) = connection.execute("SELECT json_group_object(key, json(value)) FROM meta").fetchall()
        meta: dict[str, Any] = parse_settings(text)
    except (ValueError, TypeError, sqlite3.OperationalError) as e:
        if isinstance(e, sqlite3.OperationalError) and "JSON" not in str(e):
            raise
        raise damaged(path, "meta holds something that is not JSON") from None
    optional = {key: is_valid for key, is_valid in _OPTIONAL_META.items() if key in meta}
    for key, is_valid in {**_META, **optional}.items():
        if key not in meta or not is_valid(meta[key]):
            raise damaged(path, f"{key} in meta is not valid")
    return meta


# Commits and their segments


def sweep(connection: sqlite3.Connection, meta: dict[str, Any]) -> dict[str, Any]:
    """Remove the rows of a commit that was never finished; gives the values of the table `meta` without them."""
    generation, next_number = meta["generation"], meta["next_number"]
    if connection.execute("PRAGMA user_version").fetchone() == (_mark(generation),):
        return meta  # the tables hold exactly the rows of the last commit
    connection.execute("BEGIN IMMEDIATE")
    for table in ("documents", "contents"):
        connection.execute(f"DELETE FROM {table} WHERE number >= ?", (next_number,))
    for table in ("deletions", "segments"):
        connection.execute(f"DELETE FROM {table} WHERE generation > ?", (generation,))
    next_term = meta[checksums.KEY]["next_term"]
    if next_term < meta["next_term"]:
        connection.execute("DELETE FROM terms WHERE number >= ?", (next_term,))
        set_meta(connection, "next_term", next_term)
        meta = {**meta, "next_term": next_term}
    connection.execute("COMMIT")
    return meta


def mark_finished(connection: sqlite3.Connection, generation: int | None) -> None:
    """Mark in the transaction that the tables hold exactly the rows of this commit; None removes the mark."""
    connection.execute(f"PRAGMA user_version = {0 if generation is None else _mark(generation)}")


def _mark(generation: int) -> int:
    return generation % ((1 << 31) - 1) + 1  # never 0, which a new database has


def insert_segment(
    connection: sqlite3.Connection, name: str, generation: int, count: int, statistics: Any, files: Any
) -> None:
    """Add a segment with `count` documents to the table `segments`."""
    row = (name, generation, count, json.dumps(statistics), json.dumps(files))
    connection.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", row)


def segment_rows(
    connection: sqlite3.Connection, path: Path, generation: int
) -> list[tuple[str, dict[str, Facts], dict[str, Any]]]:
    """Name, files and statistics of the segments up to a generation; invalid ones are refused."""
    query = "SELECT id, files, statistics FROM segments WHERE generation <= ?"
    segments = []
    for name, files_text, statistics_text in connection.execute(query, (generation,)):
        try:
            facts = _parsed_files(name, files_text)
            statistics = None if facts is None else _parsed_statistics(statistics_text, facts["sizes"]["shape"][1])
        except (ValueError, TypeError):
            raise damaged(path, "the description of a segment is not JSON") from None
        if facts is None or statistics is None:
            raise damaged(path, f"segment {str(name)[:40]!r} has an invalid description")
        segments.append((name, facts, statistics))
    return segments


@functools.lru_cache(maxsize=256)
def _parsed_files(name: Any, text: str) -> dict[str, Facts] | None:
    """The description of a segment's files, which callers must not change; None if it is not valid.

    It is cached, since a commit reads the descriptions of all segments several times, and few are new.
    """
    files = parse_settings(text)
    return files if check_facts(name, files) else None


@functools.lru_cache(maxsize=256)
def _parsed_statistics(text: str, count: int) -> dict[str, Any] | None:
    """The statistics of a segment with `count` documents, which callers must not change; None if they are invalid."""
    statistics = parse_settings(text)
    return statistics if _are_statistics(statistics) and live_documents.are_listed(statistics, count) else None


def live_files(connection: sqlite3.Connection, path: Path) -> dict[str, set[str]]:
    """The names of the files of each segment, including segments of the commit in progress."""
    rows = segment_rows(connection, path, 1 << 62)
    return {name: {entry["file"] for entry in facts.values()} for name, facts, _ in rows}


def count_statistics(namespaces: Sequence[str], sizes: np.ndarray, alive: np.ndarray | None) -> dict[str, Any]:
    """The statistics of a segment over its live documents."""
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


# Documents


def stored_fields(text: str, path: Path) -> dict[str, Any]:
    """The fields of a document, some or all, from the text that an index stores."""
    try:
        fields = parse_json(text)
    except (ValueError, TypeError):  # no JSON, or nested too deeply
        fields = None
    if not isinstance(fields, dict):
        raise damaged_document(path)
    return fields


_decode = json.JSONDecoder().raw_decode  # fewer calls than json.loads


def stored_contents(path: Path, rows: Iterable[tuple[int, str | None, str | None]]) -> dict[int, Mapping[str, Any]]:
    """What is stored of documents by number, given their numbers, fields and metadata."""
    contents: dict[int, Mapping[str, Any]] = {}
    try:
        for number, fields, metadata in rows:
            content, end = ({}, 0) if fields is None else _decode(fields)
            if metadata is not None:
                more, metadata_end = _decode(metadata)
                content = {**content, **more}
                end += metadata_end
            if end != len(fields or "") + len(metadata or "") or type(content) is not dict:
                raise ValueError
            contents[number] = content
    except (ValueError, TypeError, RecursionError):
        raise damaged_document(path) from None
    return contents


def damaged_document(path: Path) -> CollectionError:
    """The error for a document that cannot be read."""
    return damaged(path, "what is stored of a document is not a JSON object")


# The lock of the writer, and the write-ahead log: it takes in commits, and is moved into the database when it is long


def lock_for_writing(path: Path, wait: float) -> FileLock:
    """Take the lock of the only writer, among all threads and processes; `wait`: for at most so many seconds."""
    return FileLock(path / LOCK, wait)


def commit(connection: sqlite3.Connection, path: Path) -> None:
    """Commit a transaction durably. If that fails, it is undone, or the error says that its state is unknown.

    SQLite writes a transaction to the log and then syncs it. If the sync fails, SQLite reports a failed transaction,
    but the transaction is in the log, and reading the log again, as after a crash, would restore it. So it is
    overwritten.
    """
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as e:
        try:
            overwrite_log(connection)
        except sqlite3.Error:
            raise CollectionError(
                f"{path}: the disk is full or failing, and it is not known whether the changes are committed; when "
                "there is room, close the index and open it again to see"
            ) from e
        raise


def overwrite_log(connection: sqlite3.Connection) -> None:
    """Write over what a transaction that failed may have left at the end of the log."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    mark_finished(connection, None)
    connection.execute("COMMIT")


def shorten_log(connection: sqlite3.Connection, path: Path) -> bool:
    """Move the log into the database if it is long; returns whether all of it was moved.

    Then the next writer begins the log again, unless a reader still reads from it. A failure does no harm.
    """
    if not is_log_long(path):
        return False
    with suppress(sqlite3.Error), forking.inside_sqlite:
        busy, frames, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return not busy and frames == moved
    return False


def is_log_long(path: Path) -> bool:
    """Whether it is time to move the log into the"""
    now = stamp(path, LOG)
    return now is not None and now.size > MAX_LOG_BYTES
