"""The writer of a collection: documents in and out, segments and rows, one atomic commit at the end."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from vizsla.datasets import Document, Origin, RawLines
from vizsla.datasets.document import refusal
from vizsla.datasets.passages import MARK, Splitter, document_of
from vizsla.engine import DenseKind
from vizsla.errors import CollectionError, VizslaError
from vizsla.index import database, files
from vizsla.index.analysis import Prepared, preparing
from vizsla.index.buffer import Buffer
from vizsla.index.compaction import Compaction
from vizsla.models import SAMPLE, Model

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
        self._uncommitted = 0
        self._sample: list[Document] = []
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
                self._store_texts: bool = database.get_meta(self._db, "stored")
                files.sweep_segments(path, database.live_files(self._db))
                self._db.execute("BEGIN IMMEDIATE")
                self._kind = DenseKind.parse(database.get_meta(self._db, database.DENSE) or "exact")
                self._buffer = Buffer(model, self._db, self._kind.store)
        except BaseException:
            self.close()
            raise
        self._buffer.start(self._next_number)

    def add(self, documents: Iterable[Document | RawLines], workers: int = 1) -> Added:
        """Take documents in; one whose id is there already replaces it, but an id twice in one call is refused."""
        added = Added()
        first = self._next_number
        terms_bytes = int(self._memory * TERMS_SHARE)
        description, folder = database.get_meta(self._db, "model"), self._path / "model"
        if self._model.settles:
            documents = self._sampled(documents)
        with preparing(
            self._model, description, folder, self._splitter, self._store_texts, terms_bytes, workers
        ) as prepared:
            for batch in prepared(documents):
                self._store(batch, first, added)
                if self._buffer.bytes > self._memory * BUFFER_SHARE:
                    self._flush()
                elif self._uncommitted > MOST_UNCOMMITTED:
                    self._end_transaction()
        return added

    def _sampled(self, documents: Iterable[Document | RawLines]) -> Iterator[Document | RawLines]:
        """The documents, the first of them put aside, in passages where the index has those."""
        for item in documents:
            if len(self._sample) < SAMPLE:
                for document in item.documents() if isinstance(item, RawLines) else [item]:
                    parts = [document] if self._splitter is None else self._splitter.passages(document)
                    self._sample.extend(islice(parts, SAMPLE - len(self._sample)))
            yield item

    def _store(self, batch: Prepared, first: int, added: Added) -> None:
        with database.told_plainly(self._path):
            added.replaced += self._replace(batch, first)
            numbers = range(self._next_number, self._next_number + len(batch.stored))
            documents = [(n, i, self._generation, m) for n, (i, m, _) in zip(numbers, batch.stored, strict=True)]
            self._db.executemany("INSERT INTO documents VALUES (?, ?, ?, ?)", documents)
            if self._store_texts:
                contents = [(n, fields) for n, (_, _, fields) in zip(numbers, batch.stored, strict=True)]
                self._db.executemany("INSERT INTO contents VALUES (?, ?)", contents)
            counts = self._buffer.take_in(batch)
        self._uncommitted += sum(len(metadata or "") + len(fields or "") for _, metadata, fields in batch.stored)
        self._next_number += len(batch.stored)
        added.documents += len(batch.ids)
        added.empty += self._empty(batch, counts)

    def _empty(self, batch: Prepared, counts: np.ndarray) -> list[Document]:
        """The documents of a batch that have no term in any of their passages."""
        if counts.all():
            return []
        owners = [row[0] if self._splitter is None else document_of(row[0]) for row in batch.stored]
        full = {owners[i] for i in np.flatnonzero(counts).tolist()}
        places = zip(batch.ids, batch.origins, strict=True)
        return [Document(doc_id, {}, origin) for doc_id, origin in places if doc_id not in full]

    def _replace(self, batch: Prepared, first: int) -> int:
        """Make way for documents; gives how many are there already. What came in the same call stays."""
        origins = dict(zip(batch.ids, batch.origins, strict=True))
        if len(origins) < len(batch.ids):
            seen: set[str] = set()
            for doc_id, origin in zip(batch.ids, batch.origins, strict=True):
                if doc_id in seen:
                    raise _repeated(doc_id, origin)
                seen.add(doc_id)
        there = self._find(list(origins))
        for doc_id, number, _ in there:
            if number >= first:
                raise _repeated(doc_id, origins[doc_id])
        self._remove(there)
        return len({doc_id for doc_id, *_ in there})

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

    def commit(self, *, compact: bool, just_before: Callable[[], None], kind: DenseKind | None = None) -> None:
        """Make all changes visible at once; all that is left to do then is to close.

        Segments are merged as far as it pays, or into a single one. `kind`: how dense vectors are kept and searched
        from now on, which goes with a single segment.
        """
        self._flush()
        with database.told_plainly(self._path):
            if kind is not None:
                database.set_meta(self._db, database.DENSE, str(kind))
            kind = kind or self._kind
            compaction = Compaction(self._path, self._db, self._model, self._generation, self._memory, kind)
            compaction.run(whole=compact)
            gone = "(SELECT number FROM deletions WHERE generation = ?)"
            for table in ("documents", "contents"):
                self._db.execute(f"DELETE FROM {table} WHERE number IN {gone}", (self._generation,))
            compaction.drop_deletions()
            database.set_meta(self._db, "generation", self._generation)
            database.set_meta(self._db, "next_number", self._next_number)
            self._settle()
            just_before()
            self._db.execute("COMMIT")
            files.sweep_segments(self._path, database.live_files(self._db))
        if compact or (self._generation == 1 and not self._store_texts):  # where there are texts it would take long
            self._shrink()

    def _settle(self) -> None:
        """Fit the weights that are to be fitted to the documents of this commit, and keep them."""
        if self._sample:
            self._model = self._model.settled([d.content for d in self._sample])
        described = database.get_meta(self._db, "model")
        if described.pop("balanced", False) and not self._model.settles:
            for entry, part in zip(described["parts"], self._model.parts, strict=True):
                entry["weight"] = part.weight
            database.set_meta(self._db, "model", described)

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


def _repeated(doc_id: str, origin: Origin | None) -> VizslaError:
    return refusal(f"the id {doc_id!r} appears a second time; every document needs its own", origin)
