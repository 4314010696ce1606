"""A commit in the making: documents in and out, segments and rows, one atomic commit at the end."""

from __future__ import annotations

import secrets
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from vizsla.datasets import RawLines
from vizsla.datasets.passages import MARK, Splitter, document_of
from vizsla.engine import VectorIndex, read_vector_index
from vizsla.errors import CollectionError, VizslaError
from vizsla.index.storage import database, forking, segment_files
from vizsla.index.storage.checksums import Checksums
from vizsla.index.storage.folder import remove_seal
from vizsla.index.writing.analysis import AnalysedBatch, analysing
from vizsla.index.writing.buffer import Buffer
from vizsla.index.writing.compaction import Compaction
from vizsla.models import SAMPLE, AutoWeightedSum, Model
from vizsla.runs import Document, Origin
from vizsla.runs.documents import refusal

BUFFER_SHARE = 0.25  # of the memory: rows; as much again while they become a segment, and the rest for terms
TERMS_SHARE = 0.35
MOST_UNCOMMITTED = 32 << 20  # characters of documents in one transaction
_IDS_AT_ONCE = 10_000  # that are looked for in one statement


@dataclass
class Added:
    """What `add` did: how many documents, how many of them replaced others, and which have no term to be found by."""

    documents: int = 0
    replaced: int = 0
    empty: list[Document] = field(default_factory=list)


class WriteTransaction:
    """What is changed since the last commit. The caller holds the writer's lock, and uses it from one thread at a time.

    Postings are gathered in memory up to a bound and then go to disk as a segment of the coming generation, together
    with the documents' rows. Only the commit makes that generation the current one.
    """

    def __init__(self, path: Path, model: Model, uuid: str, splitter: Splitter | None, memory: int) -> None:
        self._path = path
        self.model = model
        self._splitter = splitter
        self._memory = memory
        self._uncommitted = 0
        self._sample: list[Document] = []
        self.changed = False
        """Whether there is something to commit."""
        self.sound = True
        """False once a change was interrupted where it cannot be undone: then nothing more can be committed."""
        self._db = database.connect(path, write=True)
        self._close_database = database.close_with(self, self._db)
        try:
            with database.using_sqlite(path):
                if database.get_meta(self._db, "uuid") != uuid:
                    raise CollectionError(f"{path}: the index has been replaced by another; open it again")
                self._begin()
        except BaseException:
            self.close()
            raise
        self._buffer.start(self._next_number)

    def _begin(self) -> None:
        """Remove what an interrupted writer has left, and begin the coming commit."""
        database.sweep(self._db)
        current = database.get_meta(self._db, "generation")
        self.base = current
        """The generation of the last commit, which this one follows."""
        self._generation = current + 1
        self._next_number: int = database.get_meta(self._db, "next_number")
        self._store_texts: bool = database.get_meta(self._db, "stored")
        segment_files.sweep_segments(self._path, database.live_files(self._db, self._path))
        self._db.execute("BEGIN IMMEDIATE")
        self._checksums = Checksums(self._db, current)
        self._vector_index = read_vector_index(database.get_meta(self._db, database.DENSE))
        self._buffer = Buffer(self._path, self.model, self._db, self._checksums, self._vector_index.store)

    def add(self, documents: Iterable[Document | RawLines], workers: int = 1) -> Added:
        """Add documents; one replaces an earlier one with the same id, but an id twice in one call is refused.

        An error in the documents, or in reading them, undoes this call and nothing else.
        """
        added = Added()
        first, sampled, replaced = self._next_number, len(self._sample), array("q")
        terms_bytes = int(self._memory * TERMS_SHARE)
        with database.using_sqlite(self._path):
            description, folder = database.get_meta(self._db, "model"), self._path / "model"
        if self.model.needs_fit:
            documents = self._sampled(documents)
        try:
            with analysing(
                self.model, description, folder, self._splitter, self._store_texts, terms_bytes, workers
            ) as analysed:
                for batch in analysed(documents):
                    self._store(batch, first, added, replaced)
                    if self._buffer.bytes > self._memory * BUFFER_SHARE:
                        self._flush()
                    elif self._uncommitted > MOST_UNCOMMITTED:
                        self._end_transaction()
        except BaseException:
            if self.sound:
                self._undo(first, sampled, replaced)
            raise
        self.changed = self.changed or added.documents > 0
        return added

    @contextmanager
    def _storing(self) -> Iterator[None]:
        """A change that is interrupted in here is half done and cannot be undone by itself."""
        sound, self.sound = self.sound, False
        with database.using_sqlite(self._path):
            yield
        self.sound = sound

    def _undo(self, first: int, sampled: int, replaced: Sequence[int]) -> None:
        """Undo one call of `add`: its documents are marked as deleted, and those they replaced live again."""
        del self._sample[sampled:]
        numbers = range(first, self._next_number)
        if not numbers and not replaced:
            return
        with self._storing():
            self._checksums.remove_documents(self._db, "number >= ?", (first,))
            for table in ("documents", "contents"):
                self._db.execute(f"DELETE FROM {table} WHERE number >= ?", (first,))
            revived = [(number, self._generation) for number in replaced]
            self._db.executemany("DELETE FROM deletions WHERE number = ? AND generation = ?", revived)
            self._checksums.remove("deletions", revived)
            self._bury(list(numbers))

    def _sampled(self, documents: Iterable[Document | RawLines]) -> Iterator[Document | RawLines]:
        """The documents, the first of them put aside, in passages where the index has those."""
        for item in documents:
            if len(self._sample) < SAMPLE:
                for document in item.documents() if isinstance(item, RawLines) else [item]:
                    parts = [document] if self._splitter is None else self._splitter.passages(document)
                    self._sample.extend(islice(parts, SAMPLE - len(self._sample)))
            yield item

    def _store(self, batch: AnalysedBatch, first: int, added: Added, replaced: array[int]) -> None:
        there = self._replaced(batch, first)
        self._buffer.check(batch)
        if not self._buffer.has_room_for(batch):
            self._flush()
        with self._storing():
            numbers = [number for _, number in there]
            self._bury(numbers)
            replaced.extend(numbers)
            rows = [
                (n, doc_id, self._generation, metadata, fields)
                for n, (doc_id, metadata, fields) in enumerate(batch.stored, self._next_number)
            ]
            self._db.executemany("INSERT INTO documents VALUES (?, ?, ?, ?)", (row[:4] for row in rows))
            if self._store_texts:
                self._db.executemany("INSERT INTO contents VALUES (?, ?)", ((row[0], row[4]) for row in rows))
            self._checksums.add("documents", rows)
            counts = self._buffer.take_in(batch)
            self._next_number += len(rows)
        self._uncommitted += sum(len(metadata or "") + len(fields or "") for _, metadata, fields in batch.stored)
        added.replaced += len({doc_id for doc_id, _ in there})
        added.documents += len(batch.ids)
        added.empty += self._empty(batch, counts)

    def _empty(self, batch: AnalysedBatch, counts: np.ndarray) -> list[Document]:
        """The documents of a batch that have no term in any of their passages."""
        if counts.all():
            return []
        owners = [row[0] if self._splitter is None else document_of(row[0]) for row in batch.stored]
        full = {owners[i] for i in np.flatnonzero(counts).tolist()}
        places = zip(batch.ids, batch.origins, strict=True)
        return [Document(doc_id, {}, origin) for doc_id, origin in places if doc_id not in full]

    def _replaced(self, batch: AnalysedBatch, first: int) -> list[tuple[str, int]]:
        """Ids and numbers of documents that a batch replaces; what came in the same call cannot be replaced."""
        origins = dict(zip(batch.ids, batch.origins, strict=True))
        if len(origins) < len(batch.ids):
            seen: set[str] = set()
            for doc_id, origin in zip(batch.ids, batch.origins, strict=True):
                if doc_id in seen:
                    raise _repeated(doc_id, origin)
                seen.add(doc_id)
        there = self._find(list(origins))
        for doc_id, number in there:
            if number >= first:
                raise _repeated(doc_id, origins[doc_id])
        return there

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents; gives how many there were."""
        there = self._find(list(dict.fromkeys(ids)))
        with self._storing():
            self._bury([number for _, number in there])
        self.changed = self.changed or bool(there)
        return len({doc_id for doc_id, _ in there})

    def _find(self, ids: Sequence[str]) -> list[tuple[str, int]]:
        """Ids and insertion numbers of those documents that are there and not removed yet.

        A document in passages has several numbers; their ids begin with its own and a mark. Ids are bound one by
        one: as a list in JSON, one with a NUL in it would be cut there.
        """
        living = "NOT EXISTS (SELECT 1 FROM deletions WHERE number = documents.number)"
        found: list[tuple[str, int]] = []
        with database.using_sqlite(self._path):
            if self._splitter is None:
                for a in range(0, len(ids), _IDS_AT_ONCE):
                    some = ids[a : a + _IDS_AT_ONCE]
                    marks = ",".join("?" * len(some))
                    find = f"SELECT id, number FROM documents WHERE id IN ({marks}) AND {living} ORDER BY number"
                    found += self._db.execute(find, some)
                return found
            find = f"SELECT id, number FROM documents WHERE id >= ? AND id < ? AND {living}"
            for doc_id in ids:
                rows = self._db.execute(find, (doc_id + MARK, doc_id + chr(ord(MARK) + 1)))
                found += [(doc_id, number) for passage, number in rows if document_of(passage) == doc_id]
        return found

    def _bury(self, numbers: Sequence[int]) -> None:
        """Mark documents as gone. Their rows stay until the commit is made: readers may want them, or `_undo`."""
        rows = [(number, self._generation) for number in numbers]
        self._db.executemany("INSERT INTO deletions VALUES (?, ?)", rows)
        self._checksums.add("deletions", rows)

    def _flush(self) -> None:
        """Write what is buffered as a segment of the coming generation."""
        with self._storing():
            segment = self._buffer.take()
            if segment is None:
                return
            name = secrets.token_hex(6)
            written = segment_files.write_segment(self._path, name, segment)
            statistics = database.count_statistics(self.model.namespaces, segment.sizes, None)
            database.insert_segment(self._db, name, self._generation, len(segment), statistics, written)
            self._end_transaction()

    def _end_transaction(self) -> None:
        """Let go of what is in the transaction; nobody sees it before the commit all the same."""
        with self._storing():
            self._db.execute("COMMIT")
            database.shorten_log(self._db, self._path)
            self._db.execute("BEGIN IMMEDIATE")
        self._uncommitted = 0

    def commit(self, *, compact: bool, just_before: Callable[[], None], vector_index: VectorIndex | None) -> None:
        """Make all changes visible at once; after that the transaction can only be closed.

        Segments are merged where it pays, or into a single one. `vector_index`: how dense vectors are kept and searched
        from now on, which needs a single segment.
        """
        self._flush()
        with self._storing():
            if vector_index is not None:
                database.set_meta(self._db, database.DENSE, str(vector_index))
            chosen = vector_index or self._vector_index
            compaction = Compaction(self._path, self._db, self.model, self._generation, self._memory, chosen)
            compaction.run(whole=compact)
            self._drop_rows()
            self._checksums.remove("deletions", compaction.drop_deletions())
            database.set_meta(self._db, "format", database.FORMAT)
            database.set_meta(self._db, "generation", self._generation)
            database.set_meta(self._db, "next_number", self._next_number)
            self._store_fitted_weights()
            self._checksums.store(self._db, self._generation, database.get_meta(self._db, "next_term"))
            remove_seal(self._path)
            just_before()
            self._db.execute("COMMIT")
        self.changed = False
        self._tidy_up(shrink=compact or (self._generation == 1 and not self._store_texts))

    def _drop_rows(self) -> None:
        """Remove the rows of documents that this commit has removed."""
        gone = "number IN (SELECT number FROM deletions WHERE generation = ?)"
        self._checksums.remove_documents(self._db, gone, (self._generation,))
        for table in ("documents", "contents"):
            self._db.execute(f"DELETE FROM {table} WHERE {gone}", (self._generation,))

    def _tidy_up(self, shrink: bool) -> None:
        """What follows a commit. It is durable by now, so nothing that fails here may look like a failed commit."""
        with suppress(OSError, sqlite3.Error, VizslaError), forking.inside_sqlite():
            segment_files.sweep_segments(self._path, database.live_files(self._db, self._path))
        if shrink:  # where there are texts it would take long
            self._shrink()
        database.shorten_log(self._db, self._path)

    def _store_fitted_weights(self) -> None:
        """Fit the weights that are to be fitted to the documents of this commit, and store them."""
        if self._sample:
            self.model = self.model.fit([d.content for d in self._sample])
        description = database.get_meta(self._db, "model")
        if description.pop(AutoWeightedSum.kind, False) and not self.model.needs_fit:
            for entry, part in zip(description["parts"], self.model.parts, strict=True):
                entry["weight"] = part.weight
            database.set_meta(self._db, "model", description)

    def _shrink(self) -> None:
        """Give the room of rows that are gone back to the disk; needs as much again while it works."""
        with (
            suppress(sqlite3.Error),
            forking.inside_sqlite(),
        ):  # without room to do it the database stays as large as it is, and as good
            self._db.execute("VACUUM")

    def empty_log(self) -> None:
        """Move what is in the log of writes to its place, and cut the log, as far as readers allow."""
        with suppress(sqlite3.Error), forking.inside_sqlite():
            self._db.execute("PRAGMA busy_timeout=0")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def leave_to_parent(self) -> None:
        """In a forked child: what is pending belongs to the parent."""
        self._close_database.detach()
        forking.leave_alone(self._path, self._db)

    def close(self) -> None:
        """Give up what is not committed; the next writer removes it."""
        self._close_database()


def _repeated(doc_id: str, origin: Origin | None) -> VizslaError:
    return refusal(f"the id {doc_id!r} appears a second time; every document needs its own", origin)
