"""Analysis of documents for a writer: they are checked, cut into passages and encoded, in a thread or in processes.

An analyst has its own numbers for terms and sends only the texts of new terms, so that processes exchange little data.
The writer takes batches in order and gives the terms the numbers of the index.
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
from vizsla.models import Component, DenseComponent, Model, SparseComponent, TokenComponent, as_text, is_text
from vizsla.runs.documents import refusal
from vizsla.vectors import SparseVectors

BATCH_CHARACTERS = 4_000_000
BYTES_PER_TERM = 250  # the memory of an encoder for a term: its forms, its text, its number
_MAX_VALUE = (1 << 32) - 1  # of a weight, as it is stored

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


@dataclass(frozen=True, eq=False)
class SparseBatch:
    """The rows of a batch in a sparse namespace; terms have the numbers of the analyst."""

    counts: np.ndarray
    """The number of terms of each document."""
    indices: np.ndarray
    values: np.ndarray
    lengths: np.ndarray
    new_terms: list[str]
    """The terms that the analyst sends for the first time."""

    @property
    def findable(self) -> np.ndarray:
        """The number of terms that each document can be found by."""
        return self.counts


@dataclass(frozen=True, eq=False)
class DenseBatch:
    """The vectors of a batch in a dense namespace, [documents, dimensions]."""

    vectors: np.ndarray
    lengths: np.ndarray

    @property
    def findable(self) -> np.ndarray:
        """1 for each document that has a vector."""
        return (self.lengths > 0).astype(np.uint32)


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """The token vectors of a batch, [tokens, dimensions], and where those of each document begin."""

    vectors: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    @property
    def findable(self) -> np.ndarray:
        """The number of vectors of each document."""
        return np.diff(self.starts).astype(np.uint32)


NamespaceBatch = SparseBatch | DenseBatch | TokenBatch


@dataclass(frozen=True, eq=False)
class AnalysedBatch:
    """An analysed batch: ids and origins of its documents, and the rows to store for each document or passage."""

    analyst: int
    fresh: bool
    """Whether the analyst has forgotten all terms of earlier batches."""
    ids: list[str]
    origins: list[Origin | None]
    stored: list[tuple[str, str | None, str | None]]
    """Id, metadata (None if empty) and fields (None if they are not stored)."""
    namespaces: list[NamespaceBatch]
    fields: frozenset[str]
    """Which fields of the model the documents have."""


class _NamespaceEncoder(ABC):
    """Encodes documents for one namespace of an index."""

    terms = 0
    """The number of terms it remembers."""

    @abstractmethod
    def encode(self, documents: Sequence[Document]) -> NamespaceBatch:
        """The rows of documents; a model that gives something that cannot be stored is refused."""

    @staticmethod
    def of(component: Component) -> _NamespaceEncoder:
        """The encoder for a sparse, dense or token component; other kinds of component are refused."""
        if isinstance(component, SparseComponent):
            return _SparseEncoder(component)
        if isinstance(component, DenseComponent):
            return _DenseEncoder(component)
        if isinstance(component, TokenComponent):
            return _TokenEncoder(component)
        raise VizslaError(f"{component.name} is no sparse, dense or token component, so it cannot be indexed")


class _SparseEncoder(_NamespaceEncoder):
    def __init__(self, component: SparseComponent) -> None:
        self._name = component.name
        self._encoder = component.document_encoder()

    def encode(self, documents: Sequence[Document]) -> SparseBatch:
        vectors, lengths = self._encoder.encode([d.content for d in documents])
        self._check(vectors, documents)
        ((_, terms),) = vectors.vocabulary.parts
        new_terms = list(terms[self.terms : len(vectors.vocabulary)])
        self.terms += len(new_terms)
        dtype = np.float32 if vectors.values.dtype.kind == "f" else np.uint32
        return SparseBatch(
            np.diff(vectors.pointers).astype(np.uint32),
            vectors.indices.astype(np.uint32, copy=False),
            vectors.values.astype(dtype, copy=False),
            lengths.astype(np.uint32, copy=False),
            new_terms,
        )

    def _check(self, vectors: SparseVectors, documents: Sequence[Document]) -> None:
        values = vectors.values
        if not len(values) or (values.min() > 0 and values.max() <= _MAX_VALUE):
            return
        place = int(np.argmin((values > 0) & (values <= _MAX_VALUE)))
        row = int(np.searchsorted(vectors.pointers, place, side="right")) - 1
        raise VizslaError(
            f"{self._name} gives a term of the document {documents[row].id!r} the weight {values[place]}; weights must "
            "be finite numbers above 0"
        )


class _DenseEncoder(_NamespaceEncoder):
    def __init__(self, component: DenseComponent) -> None:
        self._component = component

    def encode(self, documents: Sequence[Document]) -> DenseBatch:
        vectors, lengths = self._component.encode([d.content for d in documents])
        if vectors.shape != (len(documents), self._component.dimensions):
            raise VizslaError(
                f"{self._component.name} gives vectors of the shape {vectors.shape} for {len(documents):,} documents; "
                f"expected {len(documents), self._component.dimensions}"
            )
        return DenseBatch(vectors, lengths.astype(np.uint32, copy=False))


class _TokenEncoder(_NamespaceEncoder):
    def __init__(self, component: TokenComponent) -> None:
        self._component = component

    def encode(self, documents: Sequence[Document]) -> TokenBatch:
        vectors, starts, lengths = self._component.encode([d.content for d in documents])
        if len(starts) != len(documents) + 1 or vectors.shape != (starts[-1], self._component.dimensions):
            raise VizslaError(
                f"{self._component.name} gives vectors of the shape {vectors.shape} for {len(starts) - 1:,} of "
                f"{len(documents):,} documents; expected {starts[-1], self._component.dimensions}"
            )
        return TokenBatch(vectors, starts, lengths.astype(np.uint32, copy=False))


class Analyst:
    """Analyses batches for a model; it remembers terms up to `max_bytes`, then forgets them all and starts again."""

    def __init__(self, model: Model, splitter: Splitter | None, store: bool, max_bytes: int) -> None:
        self._model = model
        self._splitter = splitter
        self._store = store
        self._max_terms = max(max_bytes // BYTES_PER_TERM, 1)
        self._begin()

    def _begin(self) -> None:
        self._encoders = [_NamespaceEncoder.of(part.component) for part in self._model.parts]
        self._fresh = True

    def analyse(self, batch: list[Document] | RawLines) -> AnalysedBatch:
        """Check and encode a batch of documents."""
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
        if sum(encoder.terms for encoder in self._encoders) > self._max_terms:
            self._begin()
        fresh, self._fresh = self._fresh, False
        return AnalysedBatch(
            os.getpid(),
            fresh,
            [d.id for d in documents],
            [d.origin for d in documents],
            [self._row(d) for d in stored],
            [encoder.encode(stored) for encoder in self._encoders],
            frozenset(name for name in fields if any(name in d.content for d in stored)),
        )

    def _row(self, document: Document) -> tuple[str, str | None, str | None]:
        """The row of a document: id, metadata and fields as JSON; half a surrogate pair is refused."""
        content = document.content
        fields = {f: content[f] for f in self._model.fields if f in content}
        metadata = {key: value for key, value in content.items() if key not in fields} if content != fields else {}
        try:
            row = document.id, _JSON(metadata) if metadata else None, _JSON(fields)
            for text in row:
                text is None or text.isascii() or text.encode("utf-8")
        except (TypeError, ValueError, RecursionError) as e:
            doc_id = document.id if self._splitter is None else document_of(document.id)
            name = doc_id.encode("utf-8", "replace").decode()
            raise refusal(f"the document {name!r} cannot be stored as JSON ({e})", document.origin) from None
        return row if self._store else (*row[:2], None)


def batches(items: Iterable[Document | RawLines], max_size: int) -> Iterator[list[Document] | RawLines]:
    """Batches of at most `max_size` documents, and of a limited number of characters; raw lines are passed through."""
    stream = iter(items)
    for item in stream:
        if isinstance(item, RawLines):
            yield item
            continue
        batch, size = [item], _size(item)
        for following in stream:
            if isinstance(following, RawLines):
                stream = chain([following], stream)
                break
            batch.append(following)
            size += _size(following)
            if len(batch) >= max_size or size >= BATCH_CHARACTERS:
                break
        yield batch


def _size(document: Document) -> int:
    return sum(len(as_text(v)) for v in document.content.values() if is_text(v))


Task = Callable[[list[Document] | RawLines], AnalysedBatch]


@contextmanager
def analysing(
    model: Model,
    description: dict[str, Any],
    folder: Path,
    splitter: Splitter | None,
    store: bool,
    max_bytes: int,
    workers: int,
) -> Iterator[Callable[[Iterable[Document | RawLines]], Iterator[AnalysedBatch]]]:
    """A context with a function that analyses documents, in order and some batches ahead of the writer.

    One worker is a thread, which helps because kernels and the database release the GIL. Several workers are
    processes, each with a share of the memory; they build the model from its description and its files in `folder`.
    """
    executor: Executor
    processes = _Processes()
    if workers == 1:
        task: Task = Analyst(model, splitter, store, max_bytes).analyse
        executor = ThreadPoolExecutor(1)
    else:
        start = (description, folder, splitter, store, max_bytes // workers)
        executor = ProcessPoolExecutor(workers, processes, _start, start)
        task = _work
    ahead = 1 if workers == 1 else 2 * workers
    try:
        max_size = min(p.component.batch_size for p in model.parts)
        yield lambda items: _in_order(executor, task, batches(items, max_size), ahead)
    except BrokenExecutor:
        executor.shutdown()
        raise VizslaError(processes.failure()) from None
    except BaseException:  # nobody needs the results of the workers
        processes.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def _in_order(
    executor: Executor, task: Task, work: Iterator[list[Document] | RawLines], ahead: int
) -> Iterator[AnalysedBatch]:
    futures: deque[Future[AnalysedBatch]] = deque()
    for batch in work:
        futures.append(executor.submit(task, batch))
        if len(futures) > ahead:
            yield futures.popleft().result()
    while futures:
        yield futures.popleft().result()


class _Processes(SpawnContext):
    """Starts the processes of the workers and reports how one of them has failed."""

    def __init__(self) -> None:
        self._all: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **options: Any) -> SpawnProcess:  # type: ignore[override]
        process = _Process(*arguments, **options)
        self._all.append(process)
        return process

    def terminate(self) -> None:
        """Terminate all processes that have been started."""
        for process in self._all:
            if process.pid is not None:  # it has been started
                process.terminate()

    def failure(self) -> str:
        """A sentence that says how a process has failed; the pool has terminated the others."""
        codes = {process.pid: process.exitcode for process in self._all if process.exitcode}
        first = next((pid for pid, code in codes.items() if code != -signal.SIGTERM), next(iter(codes), None))
        code = codes.get(first) or 0
        if code >= 0:
            return (
                f"worker process {first} ended by itself (exit code {code}), see its message above; "
                "index with one worker, or, in a script of your own, under if __name__ == '__main__'"
            )
        return (
            f"worker process {first} was killed ({signal.Signals(-code).name}), probably because memory ran "
            "out; try again with fewer workers or less memory (--workers, --memory)"
        )


class _Process(SpawnProcess):
    """A process that ignores Ctrl-C from its start; the parent process handles it and terminates its workers."""

    def start(self) -> None:
        """Start the process with SIGINT blocked."""
        if not hasattr(signal, "pthread_sigmask"):
            super().start()
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a new process inherits the mask
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


_analyst: Analyst | None = None


def _start(description: dict[str, Any], folder: Path, splitter: Splitter | None, store: bool, max_bytes: int) -> None:
    """Prepare a worker process."""
    global _analyst
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        _analyst = Analyst(Model.from_description(description, folder), splitter, store, max_bytes)
    except VizslaError:  # such as a token filter of the user's own; the first batch raises the error
        _analyst = None


def _exit_with_parent() -> None:
    """Exit when the parent ends; a worker would wait for ever, since other workers hold its pipe open."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(batch: list[Document] | RawLines) -> AnalysedBatch:
    if _analyst is None:
        raise VizslaError("the model cannot be created in another process; index with one worker")
    return _analyst.analyse(batch)
