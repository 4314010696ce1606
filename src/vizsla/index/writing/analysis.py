"""From documents to what a writer stores: checked, cut into passages, encoded; in a thread or in other processes.

An analyst numbers the terms it meets for itself and sends only the new ones, so little travels between processes. The
writer takes batches in their order and gives the terms the numbers of the index.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.datasets import Document, Origin, RawLines, Splitter, document_of
from vizsla.errors import VizslaError
from vizsla.models import Component, DenseComponent, Fields, Model, SparseComponent
from vizsla.runs.documents import refusal

BATCH_CHARACTERS = 4_000_000
BYTES_PER_TERM = 250  # what an encoder remembers of a term: its forms, its text, its number

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


@dataclass(frozen=True, eq=False)
class SparseBatch:
    """What is stored of a batch in a sparse namespace: rows of terms in the analyst's own numbers."""

    counts: np.ndarray
    """How many terms each document has."""
    indices: np.ndarray
    values: np.ndarray
    lengths: np.ndarray
    new_terms: list[str]
    """The terms that the analyst has not sent before."""

    @property
    def findable(self) -> np.ndarray:
        """By how many terms each document can be found."""
        return self.counts


@dataclass(frozen=True, eq=False)
class DenseBatch:
    """What is stored of a batch in a dense namespace: [documents, dimensions]."""

    vectors: np.ndarray
    lengths: np.ndarray

    @property
    def findable(self) -> np.ndarray:
        """1 for each document that has a vector."""
        return (self.lengths > 0).astype(np.uint32)


NamespaceBatch = SparseBatch | DenseBatch


@dataclass(frozen=True, eq=False)
class AnalysedBatch:
    """A batch ready to be stored: the ids and origins of documents, then what is stored, passage by passage."""

    analyst: int
    fresh: bool
    """Whether the analyst has started over and knows no terms from before this batch."""
    ids: list[str]
    origins: list[Origin | None]
    stored: list[tuple[str, str | None, str | None]]
    """Id, metadata, None where there are none, and fields, None where they are not stored."""
    namespaces: list[NamespaceBatch]


class _NamespaceEncoder(ABC):
    """Encodes documents for one namespace of an index."""

    terms = 0
    """How many terms it remembers."""

    @abstractmethod
    def encode(self, contents: Sequence[Fields]) -> NamespaceBatch: ...

    @staticmethod
    def of(component: Component) -> _NamespaceEncoder:
        """The encoder for a component; a kind of component that no encoder is for is refused."""
        if isinstance(component, SparseComponent):
            return _SparseEncoder(component)
        if isinstance(component, DenseComponent):
            return _DenseEncoder(component)
        raise VizslaError(f"{component.name} is neither a sparse nor a dense component, so it cannot be indexed")


class _SparseEncoder(_NamespaceEncoder):
    def __init__(self, component: SparseComponent) -> None:
        self._encoder = component.document_encoder()

    def encode(self, contents: Sequence[Fields]) -> SparseBatch:
        vectors, lengths = self._encoder.encode(contents)
        ((_, terms),) = vectors.vocabulary.parts
        new_terms = list(terms[self.terms : len(vectors.vocabulary)])
        self.terms += len(new_terms)
        kind = np.float32 if vectors.values.dtype.kind == "f" else np.uint32
        return SparseBatch(
            np.diff(vectors.pointers).astype(np.uint32),
            vectors.indices.astype(np.uint32, copy=False),
            vectors.values.astype(kind, copy=False),
            lengths.astype(np.uint32, copy=False),
            new_terms,
        )


class _DenseEncoder(_NamespaceEncoder):
    def __init__(self, component: DenseComponent) -> None:
        self._component = component

    def encode(self, contents: Sequence[Fields]) -> DenseBatch:
        vectors, lengths = self._component.encode(contents)
        return DenseBatch(vectors, lengths.astype(np.uint32, copy=False))


class Analyst:
    """Analyses batches for a model; it remembers terms up to a bound and then starts over."""

    def __init__(self, model: Model, splitter: Splitter | None, store: bool, most_bytes: int) -> None:
        self._model = model
        self._splitter = splitter
        self._store = store
        self._most_terms = max(most_bytes // BYTES_PER_TERM, 1)
        self._begin()

    def _begin(self) -> None:
        self._encoders = [_NamespaceEncoder.of(part.component) for part in self._model.parts]
        self._fresh = True

    def analyse(self, batch: list[Document] | RawLines) -> AnalysedBatch:
        documents = batch.documents() if isinstance(batch, RawLines) else batch
        fields = self._model.fields
        for document in documents:
            problem = self._model.problem(document.with_fields(fields).content)
            if problem is not None:
                raise refusal(f"the document {document.id!r} {problem}", document.origin)
        stored = documents
        if self._splitter is not None:
            stored = [p for d in documents for p in self._splitter.passages(d)]
        stored = [d.with_fields(fields) for d in stored]
        if sum(encoder.terms for encoder in self._encoders) > self._most_terms:
            self._begin()
        fresh, self._fresh = self._fresh, False
        return AnalysedBatch(
            os.getpid(),
            fresh,
            [d.id for d in documents],
            [d.origin for d in documents],
            [self._row(d) for d in stored],
            [encoder.encode([d.content for d in stored]) for encoder in self._encoders],
        )

    def _row(self, document: Document) -> tuple[str, str | None, str | None]:
        """Id, metadata and fields of a document as they are stored; half a surrogate pair cannot be."""
        content = document.content
        fields = {f: content[f] for f in self._model.fields if f in content}
        metadata = {key: value for key, value in content.items() if key not in fields} if content != fields else {}
        try:
            row = document.id, _JSON(metadata) if metadata else None, _JSON(fields)
            for text in row:
                text is None or text.isascii() or text.encode("utf-8")
        except (TypeError, ValueError, RecursionError) as e:
            own = document.id if self._splitter is None else document_of(document.id)
            name = own.encode("utf-8", "replace").decode()
            raise refusal(f"the document {name!r} cannot be stored as JSON ({e})", document.origin) from None
        return row if self._store else (*row[:2], None)


def batches(items: Iterable[Document | RawLines], most: int) -> Iterator[list[Document] | RawLines]:
    """Documents in batches of at most so many, and roughly bounded in characters; raw lines as they come."""
    stream = iter(items)
    for item in stream:
        if isinstance(item, RawLines):
            yield item
            continue
        batch, size = [item], _size(item)
        for more in stream:
            if isinstance(more, RawLines):
                stream = chain([more], stream)
                break
            batch.append(more)
            size += _size(more)
            if len(batch) >= most or size >= BATCH_CHARACTERS:
                break
        yield batch


def _size(document: Document) -> int:
    return sum(len(v) for v in document.content.values() if isinstance(v, str))


Task = Callable[[list[Document] | RawLines], AnalysedBatch]


@contextmanager
def analysing(
    model: Model,
    description: dict[str, Any],
    folder: Path,
    splitter: Splitter | None,
    store: bool,
    most_bytes: int,
    workers: int,
) -> Iterator[Callable[[Iterable[Document | RawLines]], Iterator[AnalysedBatch]]]:
    """A function that analyses documents ahead of their storing, in their order.

    One worker is a thread, which helps because kernels and the database work without the GIL; more are processes,
    each with a share of the memory, which build the model from its description beside its files in the folder.
    """
    executor: Executor
    processes = _Processes()
    if workers == 1:
        task: Task = Analyst(model, splitter, store, most_bytes).analyse
        executor = ThreadPoolExecutor(1)
    else:
        start = (description, folder, splitter, store, most_bytes // workers)
        executor = ProcessPoolExecutor(workers, processes, _start, start)
        task = _work
    ahead = 1 if workers == 1 else 2 * workers
    try:
        most = min(p.component.batch_size for p in model.parts)
        yield lambda items: _in_order(executor, task, batches(items, most), ahead)
    except BrokenExecutor:
        executor.shutdown()
        raise VizslaError(processes.obituary()) from None
    except BaseException:  # nobody waits for what the workers are at
        processes.end()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def _in_order(
    executor: Executor, task: Task, work: Iterator[list[Document] | RawLines], ahead: int
) -> Iterator[AnalysedBatch]:
    waiting: deque[Future[AnalysedBatch]] = deque()
    for batch in work:
        waiting.append(executor.submit(task, batch))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class _Processes(SpawnContext):
    """Starts the workers' processes and knows what became of them."""

    def __init__(self) -> None:
        self._all: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **options: Any) -> SpawnProcess:  # type: ignore[override]
        process = _Process(*arguments, **options)
        self._all.append(process)
        return process

    def end(self) -> None:
        for process in self._all:
            if process.pid is not None:  # it has been started
                process.terminate()

    def obituary(self) -> str:
        """Why the work cannot go on, in a sentence; the pool has ended the others by SIGTERM."""
        codes = {process.pid: process.exitcode for process in self._all if process.exitcode}
        first = next((pid for pid, code in codes.items() if code != -signal.SIGTERM), next(iter(codes), None))
        code = codes.get(first) or 0
        if code >= 0:
            return (
                f"worker process {first} ended by itself (exit code {code}), what it says is above; "
                "index with one worker, or, in a script of your own, under if __name__ == '__main__'"
            )
        return (
            f"worker process {first} was killed ({signal.Signals(-code).name}), as the system does where memory runs "
            "out; try again with fewer workers or less memory (--workers, --memory)"
        )


class _Process(SpawnProcess):
    """A process that Ctrl-C does not reach, from its first moment on: the parent hears it, and ends its workers."""

    def start(self) -> None:
        if not hasattr(signal, "pthread_sigmask"):
            super().start()
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what a new process inherits
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


_analyst: Analyst | None = None


def _start(description: dict[str, Any], folder: Path, splitter: Splitter | None, store: bool, most_bytes: int) -> None:
    """What a process does first."""
    global _analyst
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    try:
        _analyst = Analyst(Model.from_description(description, folder), splitter, store, most_bytes)
    except VizslaError:  # a filter of the user's own, say: told by the first batch, where it can be heard
        _analyst = None


def _end_with_the_parent() -> None:
    """A worker waits for work for ever, since other workers hold the pipe that it comes by, too."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(batch: list[Document] | RawLines) -> AnalysedBatch:
    if _analyst is None:
        raise VizslaError("the model cannot be made in another process; index with one worker")
    return _analyst.analyse(batch)
