"""A transaction of a writer: documents are added and deleted, and one atomic commit makes that visible."""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.datasets import RawLines, Skipped
from vizsla.datasets.passages import Splitter, document_of
from vizsla.engine import VectorIndex, give_back_memory
from vizsla.errors import CollectionError, UnsupportedError, VizslaError, kind_of
from vizsla.index.storage import checksums, database, forking, segment_files
from vizsla.index.storage.checksums import Checksums
from vizsla.index.storage.document_ids import SegmentIds
from vizsla.index.writing.analysis import AnalysedBatch, Analysis
from vizsla.index.writing.buffer import BackgroundSegment, Buffer, Written, write_rows
from vizsla.index.writing.compaction import Compaction
from vizsla.index.writing.document_rows import DocumentIds, DocumentRows
from vizsla.index.writing.segment_state import OpenSegments
from vizsla.index.writing.term_numbers import TermNumbers
from vizsla.models import (
    LANGUAGE_SAMPLE,
    QUERIES,
    SAMPLE,
    Model,
    fitted_description,
    has_network,
    warn_of_language,
)
from vizsla.plain_data import parse_json
from vizsla.runs import Document

_FIXED = 64 << 20  # bytes that SQLite, modules and what malloc keeps take of any memory
# What writing may take of the rest.
BUFFER_SHARE = 0.13  # rows and ids; those of the segment before, which is being written, take this twice again
TERMS_SHARE = 0.35
BATCHES_SHARE = 0.15
_UPDATED = 200  # documents that are read at once to be changed
MAX_UNCOMMITTED = 32 << 20  # characters of documents in one transaction


@dataclass
class Added:
    """What `add` did: how many documents it added, how many replaced others, and which have no terms or vectors."""

    documents: int = 0
    replaced: int = 0
    empty: list[Document] = field(default_factory=list)
    repeated: int = 0
    """How many documents were left out because a later one of the same call has the same id."""
    skipped: Skipped = field(default_factory=Skipped)
    """What was left out because it cannot be added, with `skip_bad`."""


@dataclass
class Updated:
    """What `update` did: how many documents it changed, and the ids for which there are none."""

    documents: int = 0
    missing: list[str] = field(default_factory=list)


class WriteTransaction:
    """The changes since the last commit. The caller holds the lock of the writer and uses one thread at a time.

    Postings are buffered in memory and written as a segment of the next generation when the buffer is full, together
    with the rows of the documents. The commit makes that generation the current one.
    """

    def __init__(
        self,
        path: Path,
        model: Model,
        uuid: str,
        splitter: Splitter | None,
        memory: int,
        opened: OpenSegments | None = None,
    ) -> None:
        """`opened`: segments that earlier transactions of the same writer have opened."""
        self._path = path
        self._opened = opened or OpenSegments()
        self.model = model
        self._splitter = splitter
        self._memory = max(memory - _FIXED, memory // 2)
        self._uncommitted = 0
        self._sample: list[Document] = []
        self._unfinished: tuple[SegmentIds, BackgroundSegment] | None = None
        self.changed = False
        """Whether the transaction has changes to commit."""
        self.sound = True
        """False after an interrupted change that cannot be undone; then the transaction cannot be committed."""
        self._identity = database.identity(path)
        self._db = database.connect(path, write=True)
        self._close_database = database.close_with(self, self._db)
        try:
            with database.using_sqlite(path):
                meta = database.read_meta(self._db, path)
                if meta["uuid"] != uuid:
                    raise _replaced(path)
                self._check_in_place()
                self._begin(database.sweep(self._db, meta))
        except BaseException:
            self.close()
            raise
        self._buffer.start(self._next_number)

    def _check_in_place(self) -> None:
        """Raise an error if another index is in the folder now: this transaction would change that index's files."""
        if database.identity(self._path) != self._identity:
            raise _replaced(self._path)

    def _begin(self, meta: dict[str, Any]) -> None:
        """Remove files that an interrupted writer has left, and begin the next commit; `meta`: of the last one."""
        self._meta = meta
        self.base: int = meta["generation"]
        """The generation of the last commit."""
        self._generation = self.base + 1
        self._sample_size = LANGUAGE_SAMPLE if self.base == 0 and has_network(self.model) else 0
        """How many documents are looked at: for weights to fit, and in the first commit for their language."""
        if self.model.needs_fit:
            self._sample_size = SAMPLE
        self._next_number: int = meta["next_number"]
        if not self._opened.are_swept:
            live = database.live_files(self._db, self._path)
            if any(segment_files.leftovers(self._path, live)):
                database.overwrite_log(self._db)  # a failed commit could otherwise reappear, without its files
            segment_files.sweep_segments(self._path, live)
        self._opened.are_swept = False
        self._db.execute("BEGIN IMMEDIATE")
        self._checksums = Checksums(meta[checksums.KEY])
        self._ids = DocumentIds(self._path, self._db, self._generation, self._next_number, self._opened)
        self._rows = DocumentRows(
            self._path, self._db, self._checksums, self._generation, self._splitter, self._ids, meta["stored"]
        )
        self._vector_index = VectorIndex.parse(meta[database.DENSE])
        self.notes: dict[str, Any] = meta.get(database.NOTES, {})
        """What is noted with the next commit, by name."""
        self._opened.terms.begin(meta)
        self._terms = TermNumbers(self._path, self._db, meta, self._checksums, self._opened.terms)
        self._buffer = Buffer(self.model, self._terms, self._vector_index.store)

    def add(
        self, documents: Iterable[Document | RawLines], workers: int | None = None, *, skip_bad: bool = False
    ) -> Added:
        """Add documents; one replaces an earlier one with the same id.

        An error in the documents, or in reading them, undoes this call only.
        """
        sampled = len(self._sample)
        if self._sample_size:
            documents = self._sampled(documents, skip_bad=skip_bad)
        description, folder = self._meta["model"], self._path / "model"
        analysis = Analysis(
            self.model, description, folder, self._splitter, self._rows.store_texts, self.terms_bytes, skip_bad,
            int(self._memory * BATCHES_SHARE),
        )  # fmt: skip
        return self._add(analysis.run(documents, workers), sampled)

    @property
    def terms_bytes(self) -> int:
        """How much memory the terms of an analyst may take."""
        return int(self._memory * TERMS_SHARE)

    def add_analysed(self, batches: Iterable[AnalysedBatch]) -> Added:
        """Add documents that were analysed for this model before, with their fields; else as `add`."""

        def prepared() -> Generator[AnalysedBatch]:
            for batch in batches:
                if len(self._sample) < self._sample_size:
                    rows = islice(batch.stored, self._sample_size - len(self._sample))
                    self._sample += [Document(doc_id, parse_json(fields or "{}")) for doc_id, _, fields in rows]
                if not self._rows.store_texts:
                    batch = replace(batch, stored=[(doc_id, metadata, None) for doc_id, metadata, _ in batch.stored])
                yield batch

        return self._add(prepared(), len(self._sample))

    def _add(self, batches: Generator[AnalysedBatch], sampled: int) -> Added:
        """Store batches; `sampled` is the size of the sample before them."""
        added = Added()
        first, replaced = self._next_number, array("q")
        is_first = self._ids.is_empty
        fields: set[str] = set()
        try:
            with closing(batches):
                for batch in batches:
                    self._store(batch, first, added, replaced)
                    fields |= batch.fields
                    if self._buffer.bytes + self._ids.bytes > self._memory * BUFFER_SHARE:
                        self._flush()
                    elif self._uncommitted > MAX_UNCOMMITTED:
                        self._end_transaction()
            if is_first and added.documents and QUERIES in self.model.fields and QUERIES not in fields:
                raise _no_queries(self.model)
        except BaseException:
            if self.sound:
                self._undo(first, sampled, replaced)
            raise
        self.changed = self.changed or added.documents > 0
        return added

    @contextmanager
    def _storing(self) -> Iterator[None]:
        """A context for changes that cannot be undone if they are interrupted."""
        sound, self.sound = self.sound, False
        with database.using_sqlite(self._path):
            yield
        self.sound = sound

    def _undo(self, first: int, sampled: int, replaced: Sequence[int]) -> None:
        """Undo one call of `add`: mark its documents as deleted, and restore the documents they replaced."""
        del self._sample[sampled:]
        if first == self._next_number and not replaced:
            return
        with self._storing():
            self._rows.undo(first, self._next_number, replaced)

    def _sampled(self, documents: Iterable[Document | RawLines], *, skip_bad: bool) -> Iterator[Document | RawLines]:
        """The same documents; the first ones that can be added, or their passages, are copied to the sample."""
        for item in documents:
            if len(self._sample) < self._sample_size:
                given = item.documents(Skipped() if skip_bad else None) if isinstance(item, RawLines) else [item]
                for document in given:
                    if skip_bad and self.model.problem(document.with_fields(self.model.fields).content) is not None:
                        continue
                    parts: Iterable[Document] = [document]
                    if self._splitter is not None:
                        parts = self._splitter.read(document, list(self._splitter.passages(document)))
                    self._sample.extend(islice(parts, self._sample_size - len(self._sample)))
            yield item

    def _store(self, batch: AnalysedBatch, first: int, added: Added, replaced: array[int]) -> None:
        old = self._rows.find(batch.ids)
        self._buffer.check(batch)
        if not self._buffer.has_room_for(batch):
            self._flush()
        with self._storing():
            if old:
                self._rows.mark_deleted([number for _, number in old])
                replaced.extend(number for _, number in old if number < first)
            self._uncommitted += self._rows.insert(self._next_number, batch.stored)
            counts = self._buffer.append(batch)
            self._next_number += len(batch.stored)
        repeated = 0
        if old:
            repeated = len({doc_id for doc_id, number in old if number >= first})
            added.replaced += len({doc_id for doc_id, number in old if number < first})
        added.repeated += batch.repeated + repeated
        added.documents += len(batch.ids) - repeated
        if batch.skipped is not None:
            added.skipped.merge(batch.skipped)
        added.empty += self._empty(batch, counts)

    def _empty(self, batch: AnalysedBatch, counts: np.ndarray) -> list[Document]:
        """The documents of a batch that have no terms or vectors in any of their passages."""
        if counts.all():
            return []
        owners = [row[0] if self._splitter is None else document_of(row[0]) for row in batch.stored]
        findable = {owners[i] for i in np.flatnonzero(counts).tolist()}
        documents = zip(batch.ids, batch.origins, strict=True)
        return [Document(doc_id, {}, origin) for doc_id, origin in documents if doc_id not in findable]

    def delete(self, ids: Sequence[str]) -> int:
        """Delete documents and return how many of the ids existed."""
        existing = self._rows.find(list(dict.fromkeys(ids)))
        with self._storing():
            self._rows.mark_deleted([number for _, number in existing])
        self.changed = self.changed or bool(existing)
        return len({doc_id for doc_id, _ in existing})

    def update(self, changes: Mapping[str, Mapping[str, Any]]) -> Updated:
        """Change fields of documents by id; None removes a field. An error undoes this call only."""
        if not self._rows.store_texts:
            raise UnsupportedError(
                f"{self._path}: the texts are not stored, so documents cannot be changed in part; add them as a whole"
            )
        missing: list[str] = []

        def changed() -> Iterator[Document]:
            ids = iter(changes)
            while batch := list(islice(ids, _UPDATED)):
                known = self._rows.contents(batch)
                missing.extend(doc_id for doc_id in batch if doc_id not in known)
                for doc_id in batch:
                    if doc_id in known:
                        content = {**known[doc_id], **changes[doc_id]}
                        removed = {name for name, value in changes[doc_id].items() if value is None}
                        yield Document(doc_id, {n: value for n, value in content.items() if n not in removed})

        return Updated(self.add(changed()).documents, missing)

    def _flush(self, *, wait: bool = False) -> None:
        """Write the buffer as a segment of the next generation, in the background unless `wait`."""
        with self._storing():
            self._check_in_place()
            if self._unfinished is not None:
                self._finish_segment()
            rows = self._buffer.take()
            if rows is None:
                return
            ids = self._ids.take_pending(rows.numbers)
            dated = segment_files.DatedIds(self._generation, ids.ids)
            if wait:
                self._list_segment(ids, write_rows(self._path, dated, rows))
            else:
                self._unfinished = ids, BackgroundSegment(self._path, dated, rows)

    def _finish_segment(self) -> None:
        """Wait for the segment that is being written, and list it."""
        assert self._unfinished is not None
        ids, segment = self._unfinished
        written = segment.result()
        self._unfinished = None
        self._list_segment(ids, written)
        give_back_memory()

    def _list_segment(self, ids: SegmentIds, written: Written) -> None:
        """List a segment that is on disk with the documents of the next generation."""
        name, files, sizes = written
        self._ids.written(name, files, ids)
        statistics = database.count_statistics(self.model.namespaces, sizes, None)
        database.insert_segment(self._db, name, self._generation, len(ids.numbers), statistics, files)
        self._end_transaction()

    def check(self) -> None:
        """Raise the error with which a segment could not be written in the background."""
        if self._unfinished is not None and self._unfinished[1].has_failed:
            with self._storing():
                self._finish_segment()

    def _end_transaction(self) -> None:
        """End the transaction of SQLite to bound its log; readers do not see the rows before the commit."""
        with self._storing():
            database.mark_finished(self._db, None)
            self._db.execute("COMMIT")
            database.shorten_log(self._db, self._path)
            self._db.execute("BEGIN IMMEDIATE")
        self._uncommitted = 0

    def set_weights(self, model: Model) -> None:
        """Search with the weights of this model from now on; its parts are those of the index."""
        description = fitted_description(self._meta["model"], model)
        with self._storing():
            database.set_meta(self._db, "model", description)
        self._meta = {**self._meta, "model": description}
        self.model, self.changed = model, True

    def set_note(self, name: str, value: Any) -> None:
        """Store a JSON value with the commit, or remove it with None."""
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            raise VizslaError(f"the note {name!r} must be a JSON value, and this is {kind_of(value)}") from None
        self.notes = {key: old for key, old in {**self.notes, name: value}.items() if old is not None}
        self.changed = True

    def commit(
        self,
        *,
        compact: bool,
        just_before: Callable[[], None],
        vector_index: VectorIndex | None,
        positions: bool | None = None,
    ) -> None:
        """Make all changes visible at once; after that the transaction can only be closed.

        Segments are merged where it pays, or into one segment if `compact`. `just_before` is called right before the
        commit. `vector_index`: how dense vectors are stored and searched from now on, which needs one segment.
        """
        if self.base == 0 and self._sample:
            warn_of_language(self.model, [document.content for document in self._sample[:LANGUAGE_SAMPLE]])
        self._terms.begin_fold()
        self._flush(wait=True)
        with self._storing():
            if vector_index is not None:
                database.set_meta(self._db, database.DENSE, str(vector_index))
            if positions is None:
                positions = bool(self._meta[database.POSITIONS])
            else:
                database.set_meta(self._db, database.POSITIONS, positions)
            chosen = vector_index or self._vector_index
            compaction = Compaction(
                self._path, self._db, self.model, self._generation, self._memory, chosen, positions,
                self._rows.deleted, self._opened, self._splitter,
            )  # fmt: skip
            if positions:  # which need the numbers of words
                self._terms.store()
            compaction.run(whole=compact)
            self._rows.drop_deleted()
            self._checksums.remove("deletions", compaction.drop_deletions())
            self._terms.fold(whole=compact)
            database.set_meta(self._db, "generation", self._generation)
            database.set_meta(self._db, "next_number", self._next_number)
            if self.notes != self._meta.get(database.NOTES, {}):
                database.set_meta(self._db, database.NOTES, self.notes)
            self._store_fitted_weights()
            self._checksums.store(self._db, self._generation, self._terms.next_number)
            self._check_in_place()
            database.mark_finished(self._db, self._generation)
            just_before()
            database.commit(self._db, self._path)
        self._opened.terms.committed(self._checksums.of_terms)
        self.changed = False
        shrink = compact or (self._generation == 1 and not self._rows.store_texts)
        self._tidy_up(sweep=compaction.leaves_files, shrink=shrink)

    def _tidy_up(self, *, sweep: bool, shrink: bool) -> None:
        """Clean up after a commit. It is durable now, so a failure here must not look like a failed commit."""
        with suppress(OSError, sqlite3.Error, VizslaError), forking.inside_sqlite:
            self._check_in_place()
            if sweep:
                segment_files.sweep_segments(self._path, database.live_files(self._db, self._path))
            self._opened.are_swept = True
        if shrink:  # with stored texts it would take long
            self._shrink()

    def _store_fitted_weights(self) -> None:
        """Fit the weights of a model that needs it to the sample of documents, and store them."""
        if self._sample and self.model.needs_fit:
            fitted = self.model.fit([d.content for d in self._sample])
            if not fitted.needs_fit:
                self.set_weights(fitted)

    def _shrink(self) -> None:
        """Give the space of deleted rows back to the disk; this needs as much free space for a moment."""
        with suppress(sqlite3.Error), forking.inside_sqlite:  # harmless without free space: the file keeps its size
            self._db.execute("VACUUM")

    def shorten_log(self) -> None:
        """Move a long write-ahead log into the database, as far as readers allow."""
        database.shorten_log(self._db, self._path)

    def empty_log(self) -> None:
        """Move the write-ahead log into the database and truncate it, as far as readers allow."""
        with suppress(sqlite3.Error), forking.inside_sqlite:
            self._db.execute("PRAGMA busy_timeout=0")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def leave_to_parent(self) -> None:
        """In a forked child: leave pending changes to the parent."""
        self._unfinished = None
        self._close_database.detach()
        forking.leave_alone(self._path, self._db)

    def close(self) -> None:
        """Discard uncommitted changes; the next writer removes their rows."""
        try:
            if self._unfinished is not None:
                self._unfinished[1].give_up()
        finally:
            self._close_database()


def _replaced(path: Path) -> CollectionError:
    what = "removed" if database.identity(path) is None else "replaced by another one; open it again"
    return CollectionError(f"{path}: the index has been {what}")


def _no_queries(model: Model) -> VizslaError:
    return VizslaError(
        f"{model.name} reads generated queries, and no document has the field {QUERIES!r}; write it with "
        "vizsla queries generate"
    )
