"""Fill a new generation in pieces, by several processes, so that an interrupted filling can continue.

The data is divided into numbered pieces. A piece always writes the same points, so it may be written twice. The
collection itself records which pieces were written and their source, in a point among its terms. At the end all points
are counted, and pieces that lack some are written again.
"""

from __future__ import annotations

import signal
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing import get_context
from typing import Any

from qdrant_client import QdrantClient, models

from vizsla.backends.qdrant.connection import Connection, Json, bodies, upsert
from vizsla.backends.qdrant.layout import NUMBER, terms_of
from vizsla.backends.qdrant.lock import WriteLock
from vizsla.errors import CollectionError, VizslaError
from vizsla.index.writing.analysis import exit_with_parent

THREADS = 3
"""Threads that write if there are no worker processes."""
_SAVE_SECONDS = 2.0
_ROUNDS = 3  # attempts to rewrite pieces that lack points
_RECORD_ID = str(uuid.uuid5(uuid.UUID("5a1f2d5e-6f6b-5d5c-9a43-0c1f7a2b9e01"), "filling"))

REWEIGHING = "reweigh "
"""The prefix of the source of a generation that is filled from the one before."""

Progress = Callable[[int, int], None]


class Pieces(ABC):
    """What is written to a collection, in pieces; a process gets a copy of it."""

    connection: Connection
    base: str

    @abstractmethod
    def expected(self) -> list[int]:
        """How many points each piece of documents has."""

    @abstractmethod
    def term_pieces(self) -> list[range]:
        """The numbers of terms of each piece of terms; these pieces come first."""

    def expected_terms(self) -> list[int]:
        """How many terms each piece of terms has."""
        return [len(numbers) for numbers in self.term_pieces()]

    @abstractmethod
    def numbers(self, piece: int) -> range:
        """The insertion numbers of the documents of a piece; `piece` is counted from the first one of documents."""

    @abstractmethod
    def write_terms(self, piece: int) -> None:
        """Write a piece of terms."""

    @abstractmethod
    def write_points(self, piece: int) -> None:
        """Write a piece of documents."""

    def open(self) -> None:  # noqa: B027 (not all have files to open)
        """Open what every process has for itself."""

    def write(self, piece: int) -> int:
        """Write a piece and return its number; pieces of terms come before those of documents."""
        terms = len(self.term_pieces())
        if piece < terms:
            self.write_terms(piece)
        else:
            self.write_points(piece - terms)
        return piece

    def send(self, points: Iterable[Json]) -> None:
        """Send points, as many at a time as fit into a request."""
        for body in bodies(points):
            self.connection.call(upsert, self.base, body)


@dataclass
class FillingRecord:
    """What a collection remembers of its filling.

    >>> record = FillingRecord("abc", done={0, 1, 2, 7})
    >>> FillingRecord.of(record.payload()).done == record.done
    True
    """

    source: str
    """A digest of what it is filled from."""
    replaces: str = ""
    """The build and the generation that was live when it began."""
    done: set[int] = field(default_factory=set)

    def payload(self) -> dict[str, Any]:
        """The record as it is stored: pieces as ranges, each from its first up to before its last."""
        ordered = sorted(self.done)
        cuts = [0, *(i for i, (a, b) in enumerate(pairwise(ordered), 1) if b != a + 1), len(ordered)]
        ranges = [[ordered[a], ordered[z - 1] + 1] for a, z in pairwise(cuts) if z > a]
        return {"source": self.source, "replaces": self.replaces, "done": ranges}

    @classmethod
    def of(cls, payload: dict[str, Any]) -> FillingRecord:
        """The record that is stored as payload."""
        try:
            done = {piece for first, end in payload["done"] for piece in range(int(first), int(end))}
            return cls(str(payload["source"]), str(payload["replaces"]), done)
        except (KeyError, TypeError, ValueError):
            raise CollectionError(
                "the record of an upload is damaged; remove its collection and upload again"
            ) from None


def read_record(connection: Connection, base: str) -> FillingRecord | None:
    """The record of a collection's filling; None if it was not filled in this way."""
    found = connection.call(QdrantClient.retrieve, terms_of(base), [_RECORD_ID])
    return FillingRecord.of(found[0].payload) if found and found[0].payload else None


def write_record(connection: Connection, base: str, record: FillingRecord) -> None:
    """Store the record of a collection's filling."""
    point = models.PointStruct(id=_RECORD_ID, vector={}, payload=record.payload())
    connection.call(QdrantClient.upsert, terms_of(base), [point], wait=True)


class Filling:
    """Writes the pieces that a collection does not have yet, and checks at the end that all are there."""

    def __init__(self, pieces: Pieces, record: FillingRecord, lock: WriteLock, workers: int) -> None:
        self._pieces = pieces
        self._record = record
        self._lock = lock
        self._workers = workers
        self._saved = time.monotonic()

    def run(self, progress: Progress | None = None) -> None:
        """Write all pieces; after an error or the loss of the lock it can be continued later."""
        terms = len(self._pieces.term_pieces())
        expected = [0] * terms + self._pieces.expected()
        counted = sum(expected[piece] for piece in self._record.done if piece < len(expected))
        missing = [piece for piece in range(len(expected)) if piece not in self._record.done]
        for _ in range(_ROUNDS):
            try:
                for piece in self._write(missing):
                    self._record.done.add(piece)
                    counted += expected[piece]
                    if progress is not None:
                        progress(counted, counted)
                    self._lock.check()
                    if time.monotonic() - self._saved > _SAVE_SECONDS:
                        self._save()
            except BaseException:
                with suppress(VizslaError):  # the error that stopped the work may also stop this
                    self._lock.check()
                    self._save()
                raise
            self._save()
            missing = self._incomplete(terms)
            if not missing:
                return
            counted -= sum(expected[piece] for piece in missing)
        raise CollectionError(
            f"the collection {self._pieces.base!r} lacks documents that its servers have confirmed; see whether all "
            "servers run and have room on their disks, and upload again"
        )

    def _save(self) -> None:
        self._saved = time.monotonic()
        write_record(self._pieces.connection, self._pieces.base, self._record)

    def _write(self, pieces: Sequence[int]) -> Iterator[int]:
        """Write pieces, in this process or in several others; gives the number of each one that is written."""
        if self._workers == 1 or len(pieces) <= 1:
            self._pieces.open()
            with ThreadPoolExecutor(THREADS) as threads:  # one encodes points while a server stores those of another
                try:
                    yield from _completed(threads, self._pieces.write, pieces, THREADS + 1)
                except BaseException:
                    threads.shutdown(wait=False, cancel_futures=True)
                    raise
            return
        workers = min(self._workers, len(pieces))
        with ProcessPoolExecutor(workers, get_context("spawn"), _start, (self._pieces,)) as executor:
            try:
                yield from _completed(executor, _work, pieces, 2 * workers)
            except BrokenExecutor:
                raise VizslaError(
                    "a process that wrote documents was killed, probably because memory ran out; the same command "
                    "continues where it stopped, perhaps with a smaller --parallel"
                ) from None
            except BaseException:
                executor.shutdown(wait=False, cancel_futures=True)
                raise

    def _incomplete(self, terms: int) -> list[int]:
        """The pieces that lack points."""
        connection, base = self._pieces.connection, self._pieces.base
        missing = []
        numbers, sizes = self._pieces.term_pieces(), self._pieces.expected_terms()
        if count_numbers(connection, terms_of(base), range(numbers[-1].stop if numbers else 0)) != sum(sizes):
            counted = [count_numbers(connection, terms_of(base), some) for some in numbers]
            missing += [i for i, size in enumerate(sizes) if counted[i] != size]
        expected = self._pieces.expected()
        if connection.call(QdrantClient.count, base, exact=True).count != sum(expected):
            missing += [
                terms + i
                for i, size in enumerate(expected)
                if count_numbers(connection, base, self._pieces.numbers(i)) != size
            ]
            if not missing:
                raise CollectionError(
                    f"the collection {base!r} has documents that this upload did not write; remove it and upload again"
                )
        return missing


def count_numbers(connection: Connection, collection: str, numbers: range) -> int:
    """How many points have one of these numbers."""
    if not numbers:
        return 0
    among = models.Range(gte=numbers.start, lt=numbers.stop)
    condition = models.Filter(must=[models.FieldCondition(key=NUMBER, range=among)])
    return connection.call(QdrantClient.count, collection, condition, exact=True).count


def _completed(executor: Executor, write: Callable[[int], int], pieces: Sequence[int], ahead: int) -> Iterator[int]:
    """The numbers of pieces as they are written; a few more than can be written at once are waiting."""
    rest = iter(pieces)
    running: set[Future[int]] = set()
    while True:
        for piece in rest:
            running.add(executor.submit(write, piece))
            if len(running) >= ahead:
                break
        if not running:
            return
        done, running = wait(running, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in sorted(done, key=lambda one: one.exception() is not None))


_pieces: Pieces | None = None


def _start(pieces: Pieces) -> None:
    """Prepare a worker process."""
    global _pieces
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, daemon=True).start()
    pieces.open()
    _pieces = pieces


def _work(piece: int) -> int:
    assert _pieces is not None
    return _pieces.write(piece)
