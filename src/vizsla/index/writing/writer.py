"""The writer of an index: add, delete, commit, from any thread, one writer at a time."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from vizsla.datasets import RawLines, Skipped, Splitter, changes_by_id, documents_from
from vizsla.engine import VectorIndex
from vizsla.errors import CollectionError, UncommittedChangesWarning, VizslaError, kind_of
from vizsla.index.storage import database, forking
from vizsla.index.storage.locks import FileLock
from vizsla.index.writing.analysis import AnalysedBatch
from vizsla.index.writing.segment_state import OpenSegments
from vizsla.index.writing.transaction import Added, Updated, WriteTransaction
from vizsla.models import Model
from vizsla.runs import Document, FilterLike
from vizsla.runs.retriever import check_count, document_ids

T = TypeVar("T")
DEFAULT_MEMORY = 1 << 30
DEFAULT_TIMEOUT = 5.0


def _nothing(*_: int) -> None:
    pass


def _no_reader(_: FilterLike) -> list[str]:
    raise VizslaError("this writer has no index to look for documents in; give their ids")


class Hooks(NamedTuple):
    """Callbacks of a reader of the same index, called around a transaction."""

    on_begin: Callable[[int], None] = _nothing
    """Called when a transaction begins, with the generation of the last commit."""
    before_commit: Callable[[], None] = _nothing
    after_commit: Callable[[], None] = _nothing
    on_end: Callable[[], None] = _nothing
    """Called when the transaction ends, committed or not."""
    matching_ids: Callable[[FilterLike], list[str]] = _no_reader
    """Gives the ids of the committed documents that pass a filter."""


class Target(NamedTuple):
    """The index that is written to."""

    path: Path
    uuid: str
    model: Model
    splitter: Splitter | None


class Writer:
    """Changes an index; `commit` makes all changes visible at once.

    It is thread-safe; calls are serialised. An index has at most one writer at a time, among all processes. Use it as a
    context manager, or call `close`; uncommitted changes are discarded.

    >>> import tempfile
    >>> from vizsla import Index
    >>> with Index.create(tempfile.mkdtemp() + "/dogs.index") as index:
    ...     with index.writer() as writer:
    ...         _ = writer.add([{"id": "1", "text": "Dogs bark."}, {"id": "2", "text": "Cats do not."}])
    ...         _ = writer.delete("2")
    ...         writer.commit()
    ...     len(index)
    1
    """

    def __init__(
        self,
        target: Target,
        *,
        memory: int = DEFAULT_MEMORY,
        timeout: float | None = DEFAULT_TIMEOUT,
        hooks: Hooks | None = None,
        keep_lock: bool = True,
    ) -> None:
        """`keep_lock`: hold the lock until `close`; otherwise from the first change to the commit."""
        self._target = target
        self._model = target.model
        self._memory = memory
        self._timeout = _checked_timeout(timeout)
        self._hooks = hooks or Hooks()
        self._keep_lock = keep_lock
        self._turns = threading.RLock()  # one thread writes at a time; the others wait
        self._changing = False
        self._discarded = False
        self._closed = False
        self._transaction: WriteTransaction | None = None
        self._opened = OpenSegments()
        self._thread = 0
        self._lock: FileLock | None = self._acquire_lock() if keep_lock else None

    @property
    def has_changes(self) -> bool:
        """Whether the writer has changes to commit."""
        return self._transaction is not None and self._transaction.changed

    @property
    def is_writing(self) -> bool:
        """Whether a transaction is open."""
        return self._transaction is not None

    @property
    def is_used_by_this_thread(self) -> bool:
        """Whether the calling thread holds the lock by this writer."""
        return self._lock is not None and self._thread == threading.get_ident()

    def writes_to(self, uuid: str) -> bool:
        """Whether it is a writer of the index with this uuid."""
        return self._target.uuid == uuid

    @property
    def is_open(self) -> bool:
        """Whether the writer has not been closed."""
        return not self._closed

    def add(
        self,
        documents: Iterable[Document | Mapping[str, Any] | RawLines],
        *,
        workers: int | None = None,
        skip_bad: bool = False,
    ) -> Added:
        """Add documents: mappings with an id under `_id` or `id` and a `text`. `commit` makes them findable.

        A document replaces an earlier one with the same id; of several in one call the last is kept, and `repeated`
        counts the others. One with a text and no id gets a hash of its content as id. `skip_bad`: leave out what cannot
        be added, and list it in `skipped`; otherwise the first such document is an error. A call that fails adds
        nothing, and the changes of earlier calls stay. If storing fails, as on a full disk, all pending changes are
        discarded, and `commit` raises an error until you call `rollback`.

        `workers`: how many documents are analysed at a time. With `Source.raw_lines` and a model that counts words,
        these are threads, by default one for each core. For anything else there is one thread by default, and several
        workers are processes; then call it under `if __name__ == "__main__":`.
        """
        if workers is not None:
            workers = check_count(workers, "workers, the number of threads or processes,")
        skipped = Skipped() if skip_bad else None
        added = self._change(
            lambda transaction: transaction.add(documents_from(documents, skipped), workers, skip_bad=skip_bad)
        )
        if skipped is not None:
            skipped.merge(added.skipped)
            added.skipped = skipped
        return added

    def add_analysed(self, batches: Callable[[int], Iterable[AnalysedBatch]]) -> Added:
        """Add documents that were analysed for the model of this index elsewhere; else as `add`.

        `batches`: a function that returns the batches; its argument is the memory in bytes that their terms may take.
        """
        return self._change(lambda transaction: transaction.add_analysed(batches(transaction.terms_bytes)))

    def update(self, documents: Iterable[Document | Mapping[str, Any]]) -> Updated:
        """Change fields of documents: mappings with an id under `_id` or `id`. `commit` makes it visible.

        The given fields change and the others stay; None removes a field. Fields have the names that the index shows.
        What this writer has added or changed before is seen. Ids without a document are `missing` in the result, and
        nothing is added for them. A call that fails changes nothing.

        >>> import tempfile
        >>> from vizsla import Index
        >>> with Index.create(tempfile.mkdtemp() + "/dogs.index") as index, index.writer() as writer:
        ...     _ = writer.add([{"id": "1", "text": "Dogs bark.", "year": 1999, "lang": "en"}])
        ...     _ = writer.update([{"id": "1", "year": 2001, "lang": None}])
        ...     writer.commit()
        ...     dict(index.get("1").content)
        {'text': 'Dogs bark.', 'year': 2001}
        """
        changes = changes_by_id(documents)
        return self._change(lambda transaction: transaction.update(changes))

    def delete(self, ids: str | int | Iterable[str | int] | None = None, *, filter: FilterLike = None) -> int:
        """Delete documents by id, or all that pass a filter, and return how many there were.

        `commit` makes it visible. A filter looks at committed documents.
        """
        if (ids is None) == (filter is None):
            raise VizslaError("give either the ids of the documents to delete or a filter")
        with self._turns:
            self._check_idle()
            find = self._hooks.matching_ids
        stored_ids = find(filter) if ids is None else document_ids(ids)
        return self._change(lambda transaction: transaction.delete(stored_ids))

    def set_weights(self, model: Model) -> None:
        """Search with the weights of this model from now on; its parts are those of the index. `commit` makes it so."""
        self._change(lambda transaction: transaction.set_weights(model))

    def notes(self) -> dict[str, Any]:
        """What `set_note` has stored, by name."""
        return self._change(lambda transaction: dict(transaction.notes))

    def set_note(self, name: str, value: Any) -> None:
        """Store a JSON value under a name with the next commit, or remove it with None.

        Documents and notes are committed together, so a program that feeds an index can store its progress in a note,
        and resume there after a crash.
        """
        self._change(lambda transaction: transaction.set_note(name, value))

    def commit(self) -> None:
        """Make all changes visible, at once and durably.

        If it fails, as on a full disk, the changes are discarded, and writing raises an error until you call
        `rollback`. If the disk stays full at the very end, the error says that it is not known whether they are
        committed; open the index again to see.
        """
        with self._turns:
            self._check_idle()
            if self._transaction is not None:
                self._finish(compact=False)

    def compact(self, vector_index: VectorIndex | None = None, *, positions: bool | None = None) -> None:
        """Commit, and rewrite the index as one segment without deleted and replaced documents.

        `vector_index`: how dense vectors are stored and searched from now on; by default as before.
        `positions`: whether the positions of words are stored from now on; by default as before.
        """
        with self._turns:
            self._check_idle()
            self._finish(compact=True, vector_index=vector_index, positions=positions)

    def rollback(self) -> None:
        """Discard all changes since the last commit."""
        with self._turns:
            self._check_not_changing()
            self._discarded = False
            self._end()

    def close(self) -> None:
        """Discard uncommitted changes and release the lock for the next writer."""
        with self._turns:
            self.rollback()
            self._opened.keep(())
            self._opened.terms.forget()
            self._closed = True
            self._hooks = Hooks()  # the index, which holds its last writer, is freed as soon as nobody uses it
            self._release_lock()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        with self._turns:
            discarded = kind is None and self.has_changes
            self.close()
        if discarded:
            warn_of_lost_changes(self._target.path)

    def _change(self, change: Callable[[WriteTransaction], T]) -> T:
        """Apply a change; if it leaves the transaction in an unknown state, discard all pending changes."""
        with self._turns:
            self._check_idle()
            transaction = self._begin()
            self._changing = True
            try:
                transaction.check()
                return change(transaction)
            finally:
                self._changing = False
                if not transaction.sound:
                    discarded = transaction.changed
                    self._end()
                    self._discarded = discarded

    def _check_idle(self) -> None:
        """Refuse to write after `close`, inside another change, or after pending changes were discarded."""
        path = self._target.path
        if self._closed:
            raise CollectionError(f"{path}: the writer has been closed")
        forking.check(path)
        self._check_not_changing()
        if self._discarded:
            raise CollectionError(
                f"{path}: an earlier call failed while it was stored, and all changes since the last commit were "
                "discarded; call rollback() to begin again"
            )

    def _check_not_changing(self) -> None:
        if self._changing:
            raise VizslaError("this index is being changed; documents that are added cannot change it themselves")

    def _acquire_lock(self) -> FileLock:
        lock = database.lock_for_writing(self._target.path, self._timeout)
        self._thread = threading.get_ident()
        return lock

    def _release_lock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _begin(self) -> WriteTransaction:
        if self._transaction is None:
            self._lock = self._lock or self._acquire_lock()
            target = self._target
            try:
                self._transaction = WriteTransaction(
                    target.path, self._model, target.uuid, target.splitter, self._memory, self._opened
                )
            finally:
                if self._transaction is None and not self._keep_lock:
                    self._release_lock()
            self._hooks.on_begin(self._transaction.base)
        return self._transaction

    def _end(self) -> None:
        """Close the transaction and discard its uncommitted changes."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            try:
                self._hooks.on_end()
            finally:
                transaction.close()
                if not self._keep_lock:
                    self._release_lock()

    def _finish(self, *, compact: bool, vector_index: VectorIndex | None = None, positions: bool | None = None) -> None:
        try:
            transaction = self._begin()
            transaction.commit(
                compact=compact,
                just_before=self._hooks.before_commit,
                vector_index=vector_index,
                positions=positions,
            )
            self._model = transaction.model
            self._after_commit()
            transaction.shorten_log()
            if compact:  # the write-ahead log now holds a copy of everything; empty it as soon as nobody reads it
                transaction.empty_log()
                self._after_commit()
                transaction.empty_log()
        finally:
            lost = self.has_changes
            self._end()
            self._discarded = lost

    def _after_commit(self) -> None:
        """Make readers open the commit. It is durable now, so a failure here is not a failed commit."""
        try:
            self._hooks.after_commit()
        except VizslaError as e:
            raise CollectionError(f"the changes are committed, but cannot be read yet: {e}") from e

    def leave_to_parent(self) -> None:
        """In a forked child: leave pending changes and the lock to the parent."""
        self._turns = threading.RLock()
        self._changing = False
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.leave_to_parent()
        self._release_lock()
        self._closed = True


def warn_of_lost_changes(path: Path) -> None:
    """Warn that uncommitted changes are discarded."""
    warnings.warn(
        f"{path}: changes that were not committed are discarded; call commit() to keep them",
        UncommittedChangesWarning,
        stacklevel=3,
    )


def _checked_timeout(timeout: float | None) -> float:
    if timeout is None:
        return math.inf
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise VizslaError(
            f"the timeout of a writer must be a number of seconds, 0 or more, or None, not {kind_of(timeout)}"
        )
    return timeout
