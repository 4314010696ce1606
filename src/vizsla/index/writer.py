"""The writer of a collection: documents in and out, segments and rows, one atomic commit at the end."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from vizsla.datasets import Document
from vizsla.datasets.document import refusal
from vizsla.datasets.passages import MARK, Splitter, document_of
from vizsla.errors import CollectionError, VizslaError
from vizsla.index import database, files
from vizsla.index.buffer import Buffer
from vizsla.index.compaction import Compaction
from vizsla.models import Model

BATCH_DOCUMENTS = 2000
BATCH_CHARACTERS = 4_000_000
DEFAULT_MEMORY = 1 << 30
BUFFER_SHARE = 0.25  # of the memory: rows; as much again while they become a segment, and the rest for terms
TERMS_SHARE = 0.35
MOST_UNCOMMITTED = 32 << 20  # characters of documents in one transaction


@dataclass
class Added:
    """What `add` did: how many documents, how many of them replaced others, and which have no term to be found by."""

    documents: int = 0
    replaced: int = 0
    empty: list[Document] = field(default_factory=list)


class Writer:
    """Holds the writer's lock from its first change to the commit.

    Postings gather in memory up to a bound and then go to disk as a segment of the coming generation, together
    with the documents' rows; only the commit makes that generation the current one.
    """

    def __init__(
        self,
        path: Path,
        model: Model,
        uuid: str,
        splitter: Splitter | None = None,
        memory: int = DEFAULT_MEMORY,
        wait: float = 5.0,
    ) -> None:
        self._path = path
        self._model = model
        self._splitter = splitter
        self._memory = memory
        self._fields = model.fields
        self._uncommitted = 0
        self._lock = database.WriterLock(path, wait)
        try:
            database.break_seal(path)
            self._db = database.connect(path, write=True)
        except BaseException:
            self._lock.release()
            raise
        try:
            with database.told_plainly(path):
                if database.get_meta(self._db, "uuid") != uuid:
                    raise CollectionError(f"{path}: the index has been replaced by another; open it anew")
                database.sweep(self._db)
                self._generation = database.get_meta(self._db, "generation") + 1
                self._next_number: int = database.get_meta(self._db, "next_number")
                files.sweep_segments(path, database.live_files(self._db))
                self._db.execute("BEGIN IMMEDIATE")
                self._buffer = Buffer(model, self._db)
        except BaseException:
            self.close()
            raise
        self._buffer.start(self._next_number)

    def add(self, documents: Iterable[Document]) -> Added:
        """Take documents in; one whose id is there already replaces it, but an id twice in one call is refused."""
        added = Added()
        first = self._next_number
        with ThreadPoolExecutor(1) as analyst:
            for batch in _batches(documents):
                self._add_batch(batch, first, added, analyst)
                self._make_room()
        return added

    def _make_room(self) -> None:
        """Keep within the memory, and transactions within bounds."""
        if self._buffer.bytes > self._memory * BUFFER_SHARE:
            self._flush()
        elif self._uncommitted > MOST_UNCOMMITTED:
            self._end_transaction()
        self._buffer.forget_terms(int(self._memory * TERMS_SHARE))

    def _add_batch(self, batch: list[Document], first: int, added: Added, analyst: ThreadPoolExecutor) -> None:
        """Store a batch while another thread analyses it: kernels and the database work without the GIL."""
        for document in batch:
            problem = self._model.problem(document.content)
            if problem is not None:
                raise refusal(f"the document {document.id!r} {problem}", document.origin)
        stored = batch if self._splitter is None else [p for d in batch for p in self._splitter.passages(d)]
        analysed = analyst.submit(self._buffer.analyse, [d.content for d in stored])
        with database.told_plainly(self._path):
            added.replaced += self._replace(batch, first)
            self._insert(stored)
            counts = self._buffer.take_in(analysed.result())
        self._next_number += len(stored)
        added.documents += len(batch)
        added.empty.extend(d for d, n in zip(stored, counts, strict=True) if n == 0)

    def _replace(self, batch: list[Document], first: int) -> int:
        """Make way for documents; gives how many are there already. What came in the same call stays."""
        origins = {d.id: d for d in batch}
        if len(origins) < len(batch):
            seen: set[str] = set()
            twice = next(d for d in batch if d.id in seen or seen.add(d.id))  # type: ignore[func-returns-value]
            raise _repeated(twice)
        there = self._find(list(origins))
        for doc_id, number, _ in there:
            if number >= first:
                raise _repeated(origins[doc_id])
        self._remove(there)
        return len({doc_id for doc_id, *_ in there})

    def _insert(self, batch: list[Document]) -> None:
        """Store documents, or passages of them."""
        rows = [self._row(self._next_number + i, d) for i, d in enumerate(batch)]
        documents = [(number, doc_id, self._generation, metadata) for number, doc_id, metadata, _ in rows]
        try:
            self._db.executemany("INSERT INTO documents VALUES (?, ?, ?, ?)", documents)
            contents = [(number, fields) for number, *_, fields in rows]
            self._db.executemany("INSERT INTO contents VALUES (?, ?)", contents)
        except UnicodeEncodeError as e:  # half a surrogate pair, which SQLite cannot take
            raise next(
                _unstorable(d, e) for d, row in zip(batch, rows, strict=True) if not _is_unicode(*row[1:])
            ) from None
        self._uncommitted += sum(len(metadata) + len(fields) for *_, metadata, fields in rows)

    def _row(self, number: int, document: Document) -> tuple[int, str, str, str]:
        """Number, id, metadata and fields of a document as they are stored."""
        content = document.content
        fields = {f: content[f] for f in self._fields if f in content}
        metadata = {key: value for key, value in content.items() if key not in fields} if content != fields else {}
        try:
            return number, document.id, _JSON(metadata) if metadata else "{}", _JSON(fields)
        except (TypeError, ValueError, RecursionError) as e:
            raise _unstorable(document, e) from None

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents; gives how many there were."""
        with database.told_plainly(self._path):
            there = self._find(list(dict.fromkeys(ids)))
            self._remove(there)
        return len({doc_id for doc_id, *_ in there})

    def _find(self, ids: Sequence[str]) -> list[tuple[str, int, int]]:
        """Id, insertion number and generation of those documents that are there and not removed yet.

        A document in passages has several numbers; their ids begin with its own and a mark.
        """
        same = "d.id = asked.value"
        if self._splitter is not None:
            same = f"d.id >= asked.value || '{MARK}' AND d.id < asked.value || '{chr(ord(MARK) + 1)}'"
        rows = self._db.execute(
            "SELECT asked.value, d.number, d.generation, d.id "
            f"FROM json_each(?) AS asked JOIN documents AS d ON {same} "
            "WHERE NOT EXISTS (SELECT 1 FROM deletions WHERE number = d.number)",
            (json.dumps(ids),),
        ).fetchall()
        return [row[:3] for row in rows if self._splitter is None or document_of(row[3]) == row[0]]

    def _remove(self, rows: list[tuple[str, int, int]]) -> None:
        """Mark documents as gone. Rows of earlier commits stay until this one is made: readers may want them."""
        numbers = [(number, self._generation) for _, number, _ in rows]
        self._db.executemany("INSERT INTO deletions VALUES (?, ?)", numbers)
        pending = [(number,) for _, number, generation in rows if generation == self._generation]
        for table in ("documents", "contents"):
            self._db.executemany(f"DELETE FROM {table} WHERE number = ?", pending)

    def _flush(self) -> None:
        """Write what is buffered as a segment of the coming generation."""
        segment = self._buffer.take()
        if segment is None:
            return
        name = secrets.token_hex(6)
        written = files.write_segment(self._path, name, segment)
        with database.told_plainly(self._path):
            statistics = database.count_statistics(self._model.namespaces, segment.sizes, None)
            database.insert_segment(self._db, name, self._generation, len(segment), statistics, written)
            self._end_transaction()

    def _end_transaction(self) -> None:
        """Let go of what is in the transaction; nobody sees it before the commit all the same."""
        with database.told_plainly(self._path):
            self._db.execute("COMMIT")
            self._db.execute("BEGIN IMMEDIATE")
        self._uncommitted = 0

    def commit(self, *, compact: bool, just_before: Callable[[], None]) -> None:
        """Make all changes visible at once; all that is left to do then is to close.

        Segments are merged as far as it pays, or into a single one.
        """
        self._flush()
        with database.told_plainly(self._path):
            compaction = Compaction(self._path, self._db, self._model, self._generation, self._memory)
            compaction.run(whole=compact)
            gone = "(SELECT number FROM deletions WHERE generation = ?)"
            for table in ("documents", "contents"):
                self._db.execute(f"DELETE FROM {table} WHERE number IN {gone}", (self._generation,))
            compaction.drop_deletions()
            database.set_meta(self._db, "generation", self._generation)
            database.set_meta(self._db, "next_number", self._next_number)
            just_before()
            self._db.execute("COMMIT")
            files.sweep_segments(self._path, database.live_files(self._db))
        if compact:
            self._shrink()

    def _shrink(self) -> None:
        """Give the room of rows that are gone back to the disk; needs as much again while it works."""
        with suppress(sqlite3.Error):  # without room to do it the database stays as large as it is, and as good
            self._db.execute("VACUUM")

    def empty_log(self) -> None:
        """Move what is in the log of writes to its place, and cut the log, as far as readers allow."""
        with suppress(sqlite3.Error):
            self._db.execute("PRAGMA busy_timeout=0")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Give up what is not committed and free the lock."""
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._db.close()
        except sqlite3.Error:  # a full disk can refuse even this; what is not committed is swept by the next writer
            pass
        finally:
            self._lock.release()


def _batches(documents: Iterable[Document]) -> Iterable[list[Document]]:
    """Documents in batches bounded in number and, roughly, in characters."""
    stream = iter(documents)
    while batch := list(islice(stream, 1)):
        size = _size(batch[0])
        while len(batch) < BATCH_DOCUMENTS and size < BATCH_CHARACTERS and (more := next(stream, None)) is not None:
            batch.append(more)
            size += _size(more)
        yield batch


def _size(document: Document) -> int:
    return sum(len(v) for v in document.content.values() if isinstance(v, str))


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _is_unicode(*texts: str) -> bool:
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _unstorable(document: Document, e: Exception) -> VizslaError:
    name = document.id.encode("utf-8", "replace").decode()
    return refusal(f"the document {name!r} cannot be stored as JSON ({e})", document.origin)


def _repeated(document: Document) -> VizslaError:
    message = f"the id {document.id!r} appears a second time; every document needs its own"
    return refusal(message, document.origin)
