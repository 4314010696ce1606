"""index.db: the single source of truth of a collection, in SQLite.

Everything a commit adds carries the commit's generation. Rows of a generation above the current one belong to a
commit in the making, or to one that never came to be; readers do not see them and the next writer sweeps them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from vizsla.errors import CollectionError
from vizsla.index.files import hash_file, sync_folder

FORMAT = 2
FILE = "index.db"
SEAL = "index.seal"
LOCK = "writer.lock"
DENSE = "dense"  # how dense vectors are kept and searched; an index without it keeps and searches them exactly

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


@contextmanager
def told_plainly(path: Path) -> Iterator[None]:
    """SQLite's errors in one sentence that names the collection."""
    try:
        yield
    except sqlite3.Error as e:
        text = str(e)
        if "disk is full" in text or "disk I/O error" in text:
            text = "the disk is full or failing; the last commit is intact"
        elif "locked" in text:
            text = "another process is writing to it"
        elif "not a database" in text or "malformed" in text:
            text = f"{FILE} is damaged ({text})"
        raise CollectionError(f"{path}: {text}") from e


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open index.db. Reading works where nothing can be written, too."""
    file = (path / FILE).resolve()
    if not file.is_file():
        raise CollectionError(f"{path}: this is no Vizsla index (there is no {FILE}); create one with 'vizsla index'")
    with told_plainly(path):
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
            _check_format(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


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
    return _connect(file, "ro&immutable=1")


def _connect(file: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{file.as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False, timeout=10
    )


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    try:
        found = get_meta(connection, "format")
    except sqlite3.OperationalError:
        found = None
    if found is None:
        raise CollectionError(f"{path}: this is no Vizsla index ({FILE} is something else)")
    if int(found) != FORMAT:
        newer = int(found) > FORMAT
        advice = "upgrade Vizsla to open it" if newer else "build it again"
        raise CollectionError(f"{path}: the index has format {found}, this version reads format {FORMAT}; {advice}")


def is_ours(file: Path) -> bool:
    """Whether a file is the database of an index, of whatever format."""
    try:
        connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error:
        return False
    try:
        return get_meta(connection, "format") is not None
    except (sqlite3.Error, ValueError):
        return False
    finally:
        connection.close()


def create(path: Path, meta: dict[str, Any]) -> None:
    """A new, empty index.db; it appears under its name when it is complete."""
    unfinished = path / (FILE + ".new")
    unfinished.unlink(missing_ok=True)
    with told_plainly(path):
        connection = sqlite3.connect(unfinished, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript("BEGIN;" + _SCHEMA)
        start = {"format": FORMAT, "uuid": uuid4().hex, "generation": 0, "next_number": 0, "next_term": 0}
        for key, value in {**start, **meta}.items():
            set_meta(connection, key, value)
        connection.execute("COMMIT")
        connection.close()
    unfinished.replace(path / FILE)
    sync_folder(path)


def get_meta(connection: sqlite3.Connection, key: str) -> Any:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else json.loads(row[0])


def set_meta(connection: sqlite3.Connection, key: str, value: Any) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))


def sweep(connection: sqlite3.Connection) -> None:
    """Remove the rows of a commit that never came to be."""
    generation, next_number = get_meta(connection, "generation"), get_meta(connection, "next_number")
    connection.execute("BEGIN IMMEDIATE")
    for table in ("documents", "contents"):
        connection.execute(f"DELETE FROM {table} WHERE number >= ?", (next_number,))
    for table in ("deletions", "segments"):
        connection.execute(f"DELETE FROM {table} WHERE generation > ?", (generation,))
    connection.execute("COMMIT")


def insert_segment(
    connection: sqlite3.Connection, name: str, generation: int, count: int, statistics: Any, files: Any
) -> None:
    row = (name, generation, count, json.dumps(statistics), json.dumps(files))
    connection.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", row)


def segment_rows(connection: sqlite3.Connection, generation: int) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, files and statistics of the segments up to a generation."""
    query = "SELECT id, files, statistics FROM segments WHERE generation <= ?"
    return [(name, json.loads(f), json.loads(s)) for name, f, s in connection.execute(query, (generation,))]


def live_files(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """The files of each segment that a commit names."""
    rows = connection.execute("SELECT id, files FROM segments")
    return {name: {entry["file"] for entry in json.loads(files).values()} for name, files in rows}


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


def break_seal(path: Path) -> None:
    """Take the seal off before the database is changed."""
    try:
        (path / SEAL).unlink(missing_ok=True)
    except OSError as e:
        raise CollectionError(f"{path}: cannot be written to ({e.strerror})") from None


def seal(path: Path) -> None:
    """Write down the hash of index.db, if all of it is in that one file and nobody is writing.

    As long as the seal is there the file has not been touched since, so `verify` can tell any change to it.
    """
    try:
        lock = WriterLock(path, wait=0.0)
    except CollectionError:
        return
    try:
        connection = connect(path, write=True)
        connection.execute("PRAGMA busy_timeout=0")
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        generation = get_meta(connection, "generation")
        connection.close()
        if busy:
            return
        file = path / FILE
        facts = {"generation": generation, "bytes": file.stat().st_size, "sha256": hash_file(file)}
        temporary = path / (SEAL + ".new")
        temporary.write_text(json.dumps(facts))
        temporary.replace(path / SEAL)
    except (OSError, sqlite3.Error):  # a full disk, say: the collection is as good without
        (path / SEAL).unlink(missing_ok=True)
    finally:
        lock.release()


class WriterLock:
    """One writer at a time: an exclusive lock on a small database of its own, freed by the system on a crash."""

    def __init__(self, path: Path, wait: float) -> None:
        self._connection = sqlite3.connect(path / LOCK, isolation_level=None, timeout=wait)
        try:
            self._connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as e:
            self._connection.close()
            if "locked" not in str(e):
                raise CollectionError(f"{path}: cannot be written to ({e})") from None
            raise CollectionError(f"{path}: another process is writing to it; try again when it is done") from None

    def release(self) -> None:
        self._connection.close()
