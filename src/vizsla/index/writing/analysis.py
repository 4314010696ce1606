"""Analysis of documents for a writer: they are checked, cut into passages and encoded, in a thread or in processes.

An analyst has its own numbers for terms and sends only the texts of new terms, so that processes exchange little data.
The writer takes batches in order and gives the terms the numbers of the index.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any

from vizsla.datasets import Document, Origin, RawLines, Splitter, document_of
from vizsla.errors import VizslaError
from vizsla.index.writing.namespaces import NamespaceBatch, NamespaceEncoder
from vizsla.models import Model, as_text, is_text
from vizsla.runs.documents import refusal

BATCH_CHARACTERS = 4_000_000
BYTES_PER_TERM = 250  # the memory of an encoder for a term: its forms, its text, its number

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


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


class Analyst:
    """Analyses batches for a model; it remembers terms up to `max_bytes`, then forgets them all and starts again."""

    def __init__(self, model: Model, splitter: Splitter | None, store: bool, max_bytes: int) -> None:
        self._model = model
        self._splitter = splitter
        self._store = store
        self._max_terms = max(max_bytes // BYTES_PER_TERM, 1)
        self._begin()

    def _begin(self) -> None:
        self._encoders = [NamespaceEncoder.of(part.component) for part in self._model.parts]
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
            row = document.id, _JSON(metadata) if metadata else None, _JSON(fields) if self._store else None
            texts = (
                row if self._store else (*row[:2], *(v if isinstance(v, str) else _JSON(v) for v in fields.values()))
            )
            for text in texts:
                text is None or text.isascii() or text.encode("utf-8")
        except (TypeError, ValueError, RecursionError) as e:
            doc_id = document.id if self._splitter is None else document_of(document.id)
            name = doc_id.encode("utf-8", "replace").decode()
            raise refusal(f"the document {name!r} cannot be stored as JSON ({e})", document.origin) from None
        return row


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
    try:
        max_size = min(p.component.batch_size for p in model.parts)
        yield lambda items: _in_order(executor, task, batches(items, max_size), workers)
    except BrokenExecutor:
        executor.shutdown()
        raise VizslaError(processes.failure()) from None
    except BaseException:  # nobody needs the results of the workers
        processes.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def _in_order(
    executor: Executor, task: Task, work: Iterator[list[Document] | RawLines], workers: int
) -> Iterator[AnalysedBatch]:
    ahead = 1 if workers == 1 else 2 * workers
    futures: deque[Future[AnalysedBatch]] = deque()
    first = list(islice(work, 2))
    if workers == 1 and len(first) == 1:  # nothing to do meanwhile, so a thread would not help
        yield task(first[0])
        return
    for batch in chain(first, work):
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
    threading.Thread(target=exit_with_parent, daemon=True).start()
    try:
        _analyst = Analyst(Model.from_description(description, folder), splitter, store, max_bytes)
    except VizslaError:  # such as a token filter of the user's own; the first batch raises the error
        _analyst = None


def exit_with_parent() -> None:
    """Exit when the parent ends; a worker would wait for ever, since other workers hold its pipe open."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(batch: list[Document] | RawLines) -> AnalysedBatch:
    if _analyst is None:
        raise VizslaError("the model cannot be created in another process; index with one worker")
    return _analyst.analyse(batch)
