"""The writer of a collection: documents are staged on this machine, and a commit sends them.

Qdrant has no transactions. A commit marks the collection as being written to, sends all changes, and at the end stores
the statistics with the next generation number. An interrupted commit leaves the mark, and the next writer recounts all
statistics first. Documents that were sent stay, and sending them again changes nothing.
"""

from __future__ import annotations

import pickle
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from qdrant_client import QdrantClient

from vizsla.backends.qdrant.connection import Connection, bodies, upsert
from vizsla.backends.qdrant.layout import SPARSE, point_id
from vizsla.backends.qdrant.lock import DEFAULT_TIMEOUT, WriteLock
from vizsla.backends.qdrant.model_files import DescribedModel
from vizsla.backends.qdrant.points import (
    BatchNumbers,
    PointEncoder,
    StoredPoint,
    check_batch,
    find_points,
    recount,
    sparse_components,
)
from vizsla.backends.qdrant.state import (
    READY,
    WRITING,
    CollectionState,
    check_writable,
    read_state,
    with_fitted_weights,
)
from vizsla.backends.qdrant.terms import TermLedger
from vizsla.backends.qdrant.unsupported import cannot
from vizsla.datasets import RawLines, Skipped, documents_from
from vizsla.errors import CollectionError
from vizsla.index import Added
from vizsla.index.writing.analysis import AnalysedBatch, Analysis
from vizsla.models import SAMPLE, Model
from vizsla.plain_data import parse_json
from vizsla.runs import Document
from vizsla.runs.retriever import check_count, document_ids

TERMS_BYTES = 256 << 20
"""Memory that an analyst may take for its terms."""


class QdrantWriter:
    """Stages changes of a collection; `commit` sends them. Any thread may call it; calls take turns.

    Use it as a context manager, or call `close`; changes that are not committed are forgotten.
    """

    def __init__(
        self, connection: Connection, base: str, model: Model, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> None:
        self._connection = connection
        self._base = base
        self._model = model
        self._timeout = float("inf") if timeout is None else timeout
        self._turns = threading.RLock()
        self._staging = Staging()
        self._seen_notes: dict[str, Any] | None = None

    @property
    def has_changes(self) -> bool:
        """Whether there is something to commit."""
        return self._staging.count > 0 or bool(self._staging.notes)

    def add(
        self,
        documents: Iterable[Document | Mapping[str, Any] | RawLines],
        *,
        workers: int | None = None,
        skip_bad: bool = False,
    ) -> Added:
        """Stage documents: mappings with an id under `_id` or `id` and a `text`. `commit` makes them findable.

        A document replaces an earlier one with the same id. A call that fails stages nothing.
        `workers`, `skip_bad`: as for `Writer.add` of an index.
        """
        if workers is not None:
            workers = check_count(workers, "workers, the number of threads or processes,")
        with ExitStack() as stack:
            description: dict[str, Any] = {}
            folder = Path()
            if workers is not None and workers > 1:  # other processes make the model from its files
                described = stack.enter_context(DescribedModel(self._model))
                description, folder = described.description, described.folder
            analysis = Analysis(self._model, description, folder, None, True, TERMS_BYTES, skip_bad)
            skipped = Skipped() if skip_bad else None
            found = documents_from(documents, skipped)
            added = self._stage(stack.enter_context(closing(analysis.run(found, workers))))
        if skipped is not None:
            skipped.merge(added.skipped)
            added.skipped = skipped
        return added

    def add_analysed(self, batches: Callable[[int], Iterable[AnalysedBatch]]) -> Added:
        """Stage documents that were analysed for the model of this collection elsewhere; else as `add`.

        `batches`: a function that returns the batches; its argument is the memory in bytes that their terms may take.
        """
        return self._stage(batches(TERMS_BYTES))

    def _stage(self, batches: Iterable[AnalysedBatch]) -> Added:
        added, seen = Added(), set[str]()
        with self._turns:
            mark = self._staging.mark()
            try:
                for batch in batches:
                    check_batch(batch, self._model)
                    repeated = seen.intersection(batch.ids)
                    added.documents += len(batch.ids) - len(repeated)
                    added.repeated += batch.repeated + len(repeated)
                    added.replaced += sum(self._there([doc_id for doc_id in batch.ids if doc_id not in seen]))
                    seen.update(batch.ids)
                    if batch.skipped is not None:
                        added.skipped.merge(batch.skipped)
                    findable = np.sum([rows.findable for rows in batch.namespaces], axis=0)
                    empty = np.flatnonzero(findable == 0).tolist()
                    added.empty += [Document(batch.ids[row], {}, batch.origins[row]) for row in empty]
                    self._staging.add(batch, self._model.namespaces)
            except BaseException:
                self._staging.go_back(mark)
                raise
        return added

    def delete(self, ids: str | int | Iterable[str | int]) -> int:
        """Stage the deletion of documents by id; returns how many of them exist. `commit` makes it visible."""
        wanted = list(dict.fromkeys(document_ids(ids)))
        with self._turns:
            existing = tuple(doc_id for doc_id, there in zip(wanted, self._there(wanted), strict=True) if there)
            if existing:
                self._staging.delete(existing)
            return len(existing)

    def _there(self, ids: Sequence[str]) -> list[bool]:
        """Whether documents exist, staged changes included."""
        staged = self._staging.there
        unknown = [doc_id for doc_id in ids if doc_id not in staged]
        stored = {p.doc_id for p in find_points(self._connection, self._base, unknown, document=False)}
        return [staged.get(doc_id, doc_id in stored) for doc_id in ids]

    def rollback(self) -> None:
        """Discard all changes since the last commit."""
        with self._turns:
            self._staging.close()
            self._staging = Staging()

    def close(self) -> None:
        """Forget all changes."""
        self.rollback()

    def __enter__(self) -> QdrantWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def notes(self) -> dict[str, Any]:
        """The notes stored by `set_note`; a commit fails if another writer has changed one of them since."""
        with self._turns:
            self._seen_notes = read_state(self._connection, self._base).notes
            return dict(self._seen_notes)

    def set_note(self, name: str, value: Any) -> None:
        """Store a JSON value under a name with the next commit, or remove it with None; as `Writer.set_note`."""
        with self._turns:
            self._staging.notes[name] = value

    def commit(self) -> CollectionState | None:
        """Send all changes, one writer at a time; returns the new state, or None if there was nothing to send."""
        with self._turns:
            if not self.has_changes:
                return None
            with WriteLock(self._connection, self._base, self._timeout) as lock:
                commit = Commit(self._connection, self._model, lock)
                if self._seen_notes is not None:
                    commit.check_notes(self._seen_notes, self._staging.notes)
                state = commit.apply(self._staging)
                lock.release(state)
            self.rollback()
            if self._seen_notes is not None:
                self._seen_notes = state.notes
            return state

    def compact(self) -> None:
        """The servers do this themselves."""
        raise cannot(self._base, "compact")


class Commit:
    """Sends staged changes to a collection whose lock is held."""

    def __init__(self, connection: Connection, model: Model, lock: WriteLock) -> None:
        self._connection = connection
        self._model = model
        self._lock = lock
        self._components = sparse_components(model)
        self._state = lock.state()
        check_writable(self._state)
        if lock.interrupted:
            self._state = recount(connection, self._state, model)
        self._ledger = TermLedger(self._state.terms(connection), self._state.base, self._state.next_term)
        self._numbers = BatchNumbers(self._ledger.numbers, model.namespaces)

    def check_notes(self, seen: Mapping[str, Any], changed: Iterable[str]) -> None:
        """Refuse to change notes that another writer has changed since they were seen."""
        if any(self._state.notes.get(name) != seen.get(name) for name in changed):
            raise CollectionError(
                f"the collection {self._state.base!r}: another writer has committed the same changes; try again"
            )

    def apply(self, staging: Staging) -> CollectionState:
        """The state after all changes; the lock stores it."""
        self._freeze(staging)
        self._state = replace(with_fitted_weights(self._state, self._model, staging.sample), status=WRITING)
        self._lock.save(self._state)
        self._encoder = PointEncoder(self._model, self._state.frozen_statistics())
        for change in staging.changes():
            if isinstance(change, Deletion):
                self._remove(change.ids, delete=True)
            else:
                self._add(change)
            self._lock.check()
        self._ledger.store()
        return replace(
            self._state,
            status=READY,
            generation=self._state.generation + 1,
            next_term=self._ledger.next_number,
            notes={k: v for k, v in {**self._state.notes, **staging.notes}.items() if v is not None},
        )

    def _freeze(self, staging: Staging) -> None:
        """Freeze the mean lengths of these documents for namespaces that have no documents yet."""
        spaces = dict(self._state.namespaces)
        for name, space in spaces.items():
            if not space.documents:
                documents, total, _ = staging.lengths.get(name, (0, 0, 0))
                spaces[name] = replace(space, frozen_documents=documents, frozen_length=total)
        self._state = replace(self._state, namespaces=spaces)

    def _add(self, batch: AnalysedBatch) -> None:
        first = self._state.next_number
        numbers = self._numbers.of(batch)
        points = self._encoder.points(batch, first, numbers)
        for own, rows in zip(numbers, batch.namespaces, strict=True):
            if len(own):
                self._ledger.change(own, rows.values, 1)  # type: ignore[union-attr]
        self._ledger.store_new()
        self._remove(batch.ids, delete=False)  # points with the same ids are overwritten
        self._connection.send(upsert, self._state.base, bodies(points))
        spaces = {}
        for name, rows in zip(self._model.namespaces, batch.namespaces, strict=True):
            sizes = rows.lengths
            counted = int(np.count_nonzero(sizes)), int(sizes.sum(dtype=np.int64)), int(sizes.max(initial=0))
            spaces[name] = self._state.namespaces[name].changed(*counted)
        self._state = replace(
            self._state,
            namespaces=spaces,
            documents=self._state.documents + len(batch.stored),
            next_number=first + len(batch.stored),
        )

    def _remove(self, ids: Sequence[str], *, delete: bool) -> None:
        """Take documents out of the statistics, and out of the collection."""
        if not self._state.documents:
            return
        vectors: bool | list[str] = [SPARSE] if self._components else False
        found = find_points(self._connection, self._state.base, ids, vectors=vectors, document=False)
        for point in found:
            self._forget(point)
        if delete and found:
            gone: list[Any] = [point_id(point.doc_id) for point in found]
            self._connection.call(QdrantClient.delete, self._state.base, gone, wait=True)
        spaces = self._state.namespaces
        for name in spaces:
            sizes = np.array([point.lengths.get(name, 0) for point in found], np.int64)
            spaces = {**spaces, name: spaces[name].changed(-int(np.count_nonzero(sizes)), -int(sizes.sum()))}
        self._state = replace(self._state, namespaces=spaces, documents=self._state.documents - len(found))

    def _forget(self, point: StoredPoint) -> None:
        if len(point.terms):
            spaces = self._ledger.spaces(point.terms.tolist())
            values = point.values(self._components, self._state.frozen_statistics(), spaces)
            self._ledger.change(point.terms, values, -1)


# Staged changes: analysed documents and deletions, in their order, in a file of this machine

IN_MEMORY = 32 << 20
"""Bytes of changes that are kept in memory; more go to a file."""


@dataclass(frozen=True)
class Deletion:
    """Documents to delete, by id."""

    ids: tuple[str, ...]


Change = AnalysedBatch | Deletion


@dataclass
class Mark:
    """A savepoint among the changes."""

    end: int
    count: int
    there: dict[str, bool]
    lengths: dict[str, tuple[int, int, int]]
    sample: int


@dataclass
class Staging:
    """Changes in the order they were made. The file is temporary and disappears with this process."""

    file: IO[bytes] | None = None
    count: int = 0
    there: dict[str, bool] = field(default_factory=dict)
    """By id, whether a document exists after these changes."""
    lengths: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By namespace the number, total length and greatest length of all added documents."""
    sample: list[dict[str, Any]] = field(default_factory=list)
    """The fields of the first documents, for models whose weights are fitted to some."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What is noted with the commit, by name; None removes a note."""

    def add(self, batch: AnalysedBatch, namespaces: tuple[str, ...]) -> None:
        """Stage documents."""
        self._append(batch)
        self.there.update(dict.fromkeys(batch.ids, True))
        first = islice(batch.stored, SAMPLE - len(self.sample))
        self.sample += [parse_json(fields or "{}") for _, _, fields in first]
        for name, rows in zip(namespaces, batch.namespaces, strict=True):
            documents, total, longest = self.lengths.get(name, (0, 0, 0))
            sizes = rows.lengths
            self.lengths[name] = (
                documents + int(np.count_nonzero(sizes)),
                total + int(sizes.sum(dtype=np.int64)),
                max(longest, int(sizes.max(initial=0))),
            )

    def delete(self, ids: tuple[str, ...]) -> None:
        """Stage deletions."""
        self._append(Deletion(ids))
        self.there.update(dict.fromkeys(ids, False))

    def _append(self, change: Change) -> None:
        if self.file is None:
            self.file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 (see close)
        self.file.seek(0, 2)
        pickle.dump(change, self.file, pickle.HIGHEST_PROTOCOL)
        self.count += 1

    def changes(self) -> Iterator[Change]:
        """All changes in their order."""
        at = 0
        for _ in range(self.count):
            assert self.file is not None
            self.file.seek(at)
            change: Any = pickle.load(self.file)
            at = self.file.tell()
            yield change

    def mark(self) -> Mark:
        """Where the changes end now."""
        return Mark(
            0 if self.file is None else self.file.seek(0, 2),
            self.count,
            dict(self.there),
            dict(self.lengths),
            len(self.sample),
        )

    def go_back(self, mark: Mark) -> None:
        """Discard everything that was staged after a mark."""
        if self.file is not None:
            self.file.seek(mark.end)
            self.file.truncate()
        self.count, self.there, self.lengths = mark.count, mark.there, mark.lengths
        del self.sample[mark.sample :]

    def close(self) -> None:
        """Forget everything."""
        if self.file is not None:
            self.file.close()
