"""A reader's view of an index: one commit, whatever writers do later."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vizsla.datasets import Splitter
from vizsla.engine import DamagedSegmentError, Segment, SegmentList, VectorIndex
from vizsla.errors import CollectionError, VizslaError
from vizsla.index.reading.connection import ReadConnection, Watch
from vizsla.index.reading.documents import DocumentStore
from vizsla.index.reading.terms import NamespaceStatistics, TermTable
from vizsla.index.storage import arrays, checksums, database, document_ids, live_documents, segment_files
from vizsla.index.storage.document_ids import SegmentIds
from vizsla.index.storage.folder import check_model_folder, recover
from vizsla.index.storage.live_documents import LiveDocuments
from vizsla.index.storage.stored_ids import StoredIds
from vizsla.models import DenseComponent, Model, NgramComponent, TokenComponent, TokenMatchComponent
from vizsla.neural.device import opening_on

_ATTEMPTS = 5


class _StoredSegment:
    """A segment on disk, and which of its documents live."""

    def __init__(
        self, path: Path, name: str, facts: dict[str, arrays.Facts], listed: list[int], before: _StoredSegment | None
    ) -> None:
        """`listed`: deleted rows, see `LiveDocuments`. `before`: the same segment in an earlier commit; only its
        deleted documents can differ.
        """
        self.name = name
        self.facts = facts
        self.listed = listed
        same = before if before is not None and _lasting(before.facts) == _lasting(facts) else None
        self.segment: Segment = same.segment if same else segment_files.read_segment(path, name, facts)
        self.ids: StoredIds = same.ids if same else document_ids.read_ids(path, name, facts)
        self.living: LiveDocuments = LiveDocuments(path, name, facts, listed, same.living if same else None)
        if len(self.ids) != len(self.segment) or not self.living.fits(self.segment):
            raise CollectionError(f"{path}: segment {name} is damaged: its arrays contradict each other")


def _lasting(facts: dict[str, arrays.Facts]) -> dict[str, arrays.Facts]:
    """The files of a segment that stay as they are when documents are deleted."""
    return segment_files.without(facts, live_documents.FILES)


class _VectorSizes(NamedTuple):
    """How many namespaces there are, how many numbers the vectors of each have, and which have n-grams."""

    namespaces: int
    dense: dict[int, int]
    tokens: dict[int, int]
    matches: dict[int, int]
    ngrams: set[int]

    @classmethod
    def of_model(cls, model: Model) -> _VectorSizes:
        """What a segment of a model must have."""
        sizes = cls(len(model.parts), {}, {}, {}, set())
        for space, (_, component) in enumerate(model.parts):
            if isinstance(component, DenseComponent):
                sizes.dense[space] = component.dimensions
            elif isinstance(component, TokenComponent):
                sizes.tokens[space] = component.dimensions
            elif isinstance(component, TokenMatchComponent):
                sizes.matches[space] = component.dimensions
                if component.cls_dimensions:
                    sizes.dense[space] = component.cls_dimensions
            elif isinstance(component, NgramComponent):
                sizes.ngrams.add(space)
        return sizes

    @classmethod
    def of_segment(cls, segment: Segment) -> _VectorSizes:
        """What a segment has."""
        return cls(
            len(segment.sizes),
            {space: rows.shape[1] for space, rows in segment.dense.items()},
            {space: rows.width for space, rows in segment.tokens.items()},
            {space: lists.width for space, lists in segment.matches.items()},
            {space for space, rows in segment.ngrams.items() if rows.suffixes is not None},
        )


class Snapshot:
    """The segments, terms and documents of a commit.

    Segments are mapped into memory, and an open read transaction keeps the rows of the database. `previous`: a
    snapshot of the same index, from which everything unchanged is reused, most importantly the model. `device`: where
    the networks of the model run; empty for the device of the process.
    """

    def __init__(self, path: Path, previous: Snapshot | None = None, device: str = "") -> None:
        self.path, self.device = path, device
        self._lock = threading.RLock()
        self._users = 0
        self._retired = False
        self.watch = Watch(path)
        """Watches the folder for newer commits."""
        self._log_left: database.Stamp | None = None  # the log that this snapshot does not read from any more
        for attempt in range(_ATTEMPTS):
            recover(path)
            self.identity = database.identity(path)
            try:
                self._open(previous)
                return
            except CollectionError as e:
                if attempt == _ATTEMPTS - 1 or not (isinstance(e, arrays.MissingFileError) or self._is_replaced()):
                    raise

    def _open(self, previous: Snapshot | None) -> None:
        """Read the commit that the folder holds."""
        self.connection = ReadConnection(self.path)
        try:
            self._load(previous)
            if database.identity(self.path) != self.identity:
                raise CollectionError(f"{self.path}: the index was replaced while it was opened; open it again")
        except BaseException:
            self.connection.close()
            raise

    def _is_replaced(self) -> bool:
        """Whether the index that could not be opened has been, or is being, replaced by another.

        A newer commit may also have removed a file before it could be mapped; the next try finds its files.
        """
        was_there = self.path.exists()
        recover(self.path)
        found = database.identity(self.path)
        return found is not None and (found != self.identity or not was_there)

    def _load(self, previous: Snapshot | None) -> None:
        db = self.connection.db
        with database.using_sqlite(self.path):
            db.execute("BEGIN")
            self.meta: dict[str, Any] = database.read_meta(db, self.path)
            self.generation: int = self.meta["generation"]
            rows = database.segment_rows(db, self.path, self.generation)
            if problem := checksums.wrong_table(db, self.meta):
                raise database.damaged(self.path, f"{problem} is not what was written")
        self._stamp = database.stamp(self.path) if self.connection.is_unlocked else None
        self.splitter = Splitter.from_data(self.meta["passages"]) if self.meta["passages"] else None
        self.vector_index = VectorIndex.parse(self.meta[database.DENSE])
        self.model = self._model(previous)
        self._stored = self._read_segments(rows, previous)
        self.segments = SegmentList([s.segment for s in self._stored])
        self.alive = [s.living.alive for s in self._stored]
        self.stored_count: int = sum(statistics["living"] for *_, statistics in rows)
        """The number of live rows: documents, or passages if documents are split."""
        self.terms = TermTable(self.connection, self.segments, [s.living for s in self._stored])
        self.documents = DocumentStore(self.connection, self.meta, self.splitter, self._ids())
        by_segment = [statistics["namespaces"] for *_, statistics in rows]
        namespaces = self.model.namespaces
        if any(entries.keys() != set(namespaces) for entries in by_segment):
            raise database.damaged(self.path, "a segment has other namespaces than the model")
        self.statistics = {
            name: self._summed(space, [entries[name] for entries in by_segment])
            for space, name in enumerate(namespaces)
        }

    def _ids(self) -> list[SegmentIds]:
        """The ids of the documents of each segment."""
        return [SegmentIds(s.segment.numbers, s.ids, s.living.alive) for s in self._stored if len(s.segment)]

    def _model(self, previous: Snapshot | None) -> Model:
        """The model; if it has not changed, the one that is open already, since opening a network takes long."""
        same = ("uuid", "model", "model_files")
        if previous is not None and all(previous.meta[key] == self.meta[key] for key in same):
            return previous.model
        try:
            check_model_folder(self.path / "model")
            with opening_on(self.device):
                return Model.from_description(self.meta["model"], self.path / "model")
        except CollectionError:
            raise
        except (VizslaError, OSError) as e:
            raise CollectionError(f"{self.path}: the model of the index cannot be opened ({e})") from e

    def _read_segments(
        self, rows: list[tuple[str, dict[str, arrays.Facts], dict[str, Any]]], previous: Snapshot | None
    ) -> list[_StoredSegment]:
        """The segments in the order of insertion; those that have not changed stay mapped."""
        mapped = {} if previous is None else {s.name: s for s in previous._stored if len(s.segment)}
        stored = []
        expected = _VectorSizes.of_model(self.model)
        for name, facts, statistics in rows:
            known, listed = mapped.get(name), statistics.get(live_documents.LISTED, [])
            if known is None or known.facts != facts or known.listed != listed:
                known = _StoredSegment(self.path, name, facts, listed, known)
                if _VectorSizes.of_segment(known.segment) != expected:
                    raise database.damaged(self.path, "a segment does not match the model")
            stored.append(known)
        return sorted(stored, key=lambda s: int(s.segment.numbers[0]))

    def _summed(self, space: int, entries: list[dict[str, int]]) -> NamespaceStatistics:
        return NamespaceStatistics(
            sum(e["documents"] for e in entries),
            sum(e["total_length"] for e in entries),
            max((e["longest"] for e in entries), default=0),
            space,
            self.terms,
        )

    # What it holds

    @property
    def document_count(self) -> int:
        """How many documents there are; a document in passages counts once."""
        return self.documents.count(self.stored_count)

    @property
    def file_bytes(self) -> int:
        """How many bytes the files of segments have."""
        return sum(f["bytes"] for s in self._stored for f in s.facts.values())

    @property
    def cache_sizes(self) -> dict[str, int]:
        """How many terms are kept."""
        return {"terms": self.terms.cached_terms}

    def numbers(self) -> np.ndarray:
        """The insertion numbers of all live documents, ascending."""
        living = [s.numbers if a is None else s.numbers[a] for s, a in zip(self.segments, self.alive, strict=True)]
        return np.concatenate([*living, np.zeros(0, np.int64)])

    def position(self, number: int) -> tuple[int, int]:
        """The segment of the document with an insertion number, and its row there."""
        for i, segment in enumerate(self.segments):
            row = int(np.searchsorted(segment.numbers, number))
            if row < len(segment) and segment.numbers[row] == number:
                return i, row
        raise self.damage()  # the number was taken from a segment

    @contextmanager
    def naming_damage(self) -> Iterator[None]:
        """A context in which damage of a segment becomes an error that names the index."""
        try:
            yield
        except (DamagedSegmentError, IndexError):
            raise self.damage() from None

    def damage(self) -> CollectionError:
        """The error for a damaged segment."""
        return database.damaged_segment(self.path)

    # How long it stays open

    @property
    def is_unlocked(self) -> bool:
        """Whether a change of the index ends this snapshot, because its folder cannot be written to."""
        return self.connection.is_unlocked

    def pin(self) -> None:
        """Keep this commit readable whatever others write; the write-ahead log cannot shrink meanwhile."""
        if not self._retired:
            self.connection.begin()

    def unpin(self) -> None:
        """End the read transaction while nobody else can write, so that the rows of this commit are not removed."""
        self.connection.end()

    def leave_log(self) -> None:
        """Let writers restart a long write-ahead log, if this is the newest commit."""
        now = database.stamp(self.path, database.LOG)
        if now == self._log_left or not database.is_log_long(self.path):
            return
        with self._lock:
            if self._retired:  # by another thread, which has found a newer commit
                return
            self._users += 1
        try:
            with suppress(CollectionError):  # the log stays as it is, and the snapshot with it
                if self.connection.leave_log(self.meta["uuid"], self.generation):
                    self._log_left = now
        finally:
            self.release()

    def acquire(self) -> bool:
        """Keep the snapshot open until `release`, even if it is closed meanwhile; False if it is closed already."""
        if self._stamp is not None and self._has_changed(self._stamp):
            raise CollectionError(
                f"{self.path}: the index has changed, and without permission to write a reader cannot keep what it has "
                "opened; call refresh() or open it again"
            )
        with self._lock:
            if self._retired:
                return False
            self._users += 1
            return True

    def _has_changed(self, before: database.Stamp) -> bool:
        """Whether index.db was written to; for those who have it open, replacing or removing it changes nothing."""
        now = database.stamp(self.path)
        return now is not None and now.identity == before.identity and now != before

    @property
    def is_newest(self) -> bool:
        """Whether the folder holds this commit of this index, and not another, a damaged one, or none.

        Frequent calls do not prevent writers from restarting their log.
        """
        try:
            newest = self.watch.newest()
        except CollectionError:
            return False
        own = (self.identity, self.meta["uuid"], self.generation)
        if own != (newest.identity, newest.uuid, newest.generation):
            return False
        self.leave_log()
        return True

    def release(self) -> None:
        """Stop using the snapshot."""
        with self._lock:
            self._users -= 1
            if self._retired and self._users == 0:
                self._close()

    def close(self) -> None:
        """Close the snapshot as soon as its last user has released it."""
        with self._lock:
            self._retired = True
            if self._users == 0:
                self._close()

    def _close(self) -> None:
        """Let go of everything now: the garbage collector may be late."""
        try:
            self.documents.close()
        finally:
            self.connection.close()
        self.segments, self.alive, self._stored = SegmentList([]), [], []
        self.statistics = {}
        self.__dict__.pop("terms", None)

    def close_in_child(self, may_close: bool) -> None:
        """Close what a forked child has inherited if no other thread is using it, or leave it as it is."""
        self.documents.reopen_in_child()
        if not may_close and not self._retired:
            self.connection.leave_in_child()
            return
        self.connection.close_in_child()
        self._lock = threading.RLock()
        self._users = 0
        self.close()
