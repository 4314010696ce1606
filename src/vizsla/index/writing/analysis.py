"""Documents to analysed batches: they are checked, cut into passages and encoded, some batches ahead of the writer.

An analyst numbers terms itself and sends the text of a term only once, so that processes exchange little data. The
writer takes batches in order and maps these numbers to the term numbers of the index.

Several batches are analysed at a time in threads or in processes. Threads share the encoders of one analyst. That is
fast where kernels do nearly all of the work, which do not hold the GIL: words that are counted, from lines that a
kernel reads. For everything else several workers are processes.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any

from vizsla.datasets import Document, Origin, RawLines, Skipped, Splitter, document_of
from vizsla.datasets.raw_lines import PlainLines
from vizsla.engine import processors, submit
from vizsla.errors import InputError, VizslaError
from vizsla.index.writing.encoders import NamespaceBatch, NamespaceEncoder
from vizsla.models import Model, as_text, is_text
from vizsla.neural.device import opening_on
from vizsla.runs.documents import refusal

BATCH_CHARACTERS = 4_000_000
BYTES_PER_TERM = 250  # the memory of an encoder for a term: its forms, its text, its number
_AHEAD = 8  # batches, beside two for each thread, so that threads go on while the writer writes a segment
_BYTES_PER_BYTE = 12  # that analysing a batch of lines takes: code points, words, places of values
_WAITING = 1, 3  # bytes that a batch takes for each byte of its lines while it waits; the second with stored texts
_MOST_THREADS = 16  # by default; more wait for the writer
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode

Batch = list[Document] | RawLines
"""Documents that are analysed together."""


@dataclass(frozen=True, eq=False)
class AnalysedBatch:
    """An analysed batch: ids and origins of its documents, and the rows to store for each document or passage."""

    analyst: int
    fresh: bool
    """Whether the analyst has forgotten all terms of earlier batches."""
    ids: list[str]
    origins: Sequence[Origin | None]
    stored: list[tuple[str, str | None, str | None]]
    """Id, metadata (None if empty) and fields (None if they are not stored)."""
    namespaces: list[NamespaceBatch]
    fields: frozenset[str]
    """Which fields of the model the documents have."""
    repeated: int = 0
    """How many documents were left out because a later one of the batch has the same id."""
    skipped: Skipped | None = None
    """What was left out because it cannot be added."""


class Analyst:
    """Analyses batches for a model; it remembers terms up to `max_bytes`, then forgets them all and starts again."""

    def __init__(
        self, model: Model, splitter: Splitter | None, store: bool, max_bytes: int, *, skip_bad: bool = False
    ) -> None:
        """`skip_bad`: leave out documents that cannot be added, and say so; otherwise the first of them is an error."""
        self._model = model
        self._skip_bad = skip_bad
        self._splitter = splitter
        self._store = store
        self._max_terms = max(max_bytes // BYTES_PER_TERM, 1)
        self._finished: Sequence[NamespaceEncoder] | None = None
        self._begin()

    def _begin(self) -> None:
        self._encoders = [NamespaceEncoder.of(part.component) for part in self._model.parts]

    def analyse(self, batch: Batch) -> AnalysedBatch:
        """Check and encode a batch of documents."""
        encoders = self.next_encoders()
        return self.finish(self.encode(batch, encoders), encoders)

    def can_share(self, batch: object) -> bool:
        """Whether several threads analyse batches like this one faster than one, because they rarely need the GIL."""
        shared = self._splitter is None and all(encoder.is_shared for encoder in self._encoders)
        return shared and isinstance(batch, RawLines) and self._plain(batch) is not None

    def next_encoders(self) -> list[NamespaceEncoder]:
        """The encoders for the next batch: new ones if the others remember too many terms."""
        if sum(encoder.terms for encoder in self._encoders) > self._max_terms:
            self._begin()
        return self._encoders

    def encode(self, batch: Batch, encoders: Sequence[NamespaceEncoder]) -> AnalysedBatch:
        """Check and encode a batch, in any thread; `finish` puts the terms in order."""
        plain = None
        if isinstance(batch, RawLines) and self._splitter is None and all(encoder.is_shared for encoder in encoders):
            plain = self._plain(batch)
        if plain is not None and len(set(plain.ids)) == len(plain):
            return self._encode_lines(plain, encoders)
        skipped = Skipped() if self._skip_bad else None
        given = batch.documents(skipped) if isinstance(batch, RawLines) else batch
        fields = self._model.fields
        for document in given if skipped is None else ():
            problem = self._model.problem(document.with_fields(fields).content)
            if problem is not None:
                raise refusal(f"the document {document.id!r} {problem}", document.origin)
        storable = given if skipped is None else self._storable(given, skipped)
        documents = last_of_each(storable)
        stored = read = [d.with_fields(fields) for d in documents]
        if self._splitter is not None:
            cut = [(d, list(self._splitter.passages(d))) for d in documents]
            stored = [p.with_fields(fields) for _, passages in cut for p in passages]
            read = [p.with_fields(fields) for d, passages in cut for p in self._splitter.read(d, passages)]
        return AnalysedBatch(
            os.getpid(),
            False,
            [d.id for d in documents],
            [d.origin for d in documents],
            [self._row(d) for d in stored],
            [encoder.encode(read) for encoder in encoders],
            frozenset(name for name in fields if any(name in d.content for d in read)),
            len(storable) - len(documents),
            skipped,
        )

    def _storable(self, documents: list[Document], skipped: Skipped) -> list[Document]:
        """The documents that can be added; the others are noted."""
        kept = []
        for document in documents:
            read = document.with_fields(self._model.fields)
            problem = self._model.problem(read.content)
            try:
                if problem is not None:
                    raise refusal(f"the document {document.id!r} {problem}", document.origin)
                self._row(read)
            except InputError as e:
                skipped.add(e)
            else:
                kept.append(document)
        return kept

    def finish(self, batch: AnalysedBatch, encoders: Sequence[NamespaceEncoder]) -> AnalysedBatch:
        """Put the terms of an encoded batch in order. Call it for one batch after the other, as they were read."""
        fresh, self._finished = self._finished is not encoders, encoders
        namespaces = [encoder.finish(rows) for encoder, rows in zip(encoders, batch.namespaces, strict=True)]
        return replace(batch, fresh=fresh, namespaces=namespaces)

    def _plain(self, batch: RawLines) -> PlainLines | None:
        groups = [part.component.fields for part in self._model.parts]
        return batch.plain(self._model.fields, groups, lambda content: self._model.problem(content) is None)

    def _encode_lines(self, lines: PlainLines, encoders: Sequence[NamespaceEncoder]) -> AnalysedBatch:
        """As `encode`, without an object for each document."""
        ids = lines.ids
        texts = lines.objects() if self._store else repeat(None, len(ids))
        return AnalysedBatch(
            os.getpid(),
            False,
            ids,
            lines.origins,
            list(zip(ids, lines.metadata, texts, strict=True)),
            [encoder.encode_lines(lines) for encoder in encoders],
            frozenset(lines.places),
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
            doc_id = document.id if self._splitter is None else document_of(document.id) or document.id
            name = doc_id.encode("utf-8", "replace").decode()
            raise refusal(f"the document {name!r} cannot be stored as JSON ({e})", document.origin) from None
        return row


def last_of_each(documents: list[Document]) -> list[Document]:
    """The documents, of those with the same id the last.

    >>> [d["text"] for d in last_of_each([Document("1", {"text": t}) for t in ("a", "b")])]
    ['b']
    """
    last = {document.id: number for number, document in enumerate(documents)}
    if len(last) == len(documents):
        return documents
    return [document for number, document in enumerate(documents) if last[document.id] == number]


def batches(items: Iterable[Document | RawLines], max_size: int) -> Iterator[Batch]:
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


# Several batches at a time


@dataclass(frozen=True)
class Analysis:
    """How documents are analysed. Worker processes create the model from its description and its files in a folder."""

    model: Model
    description: dict[str, Any]
    folder: Path
    splitter: Splitter | None
    store: bool
    max_bytes: int
    """The memory for terms."""
    skip_bad: bool = False
    batch_bytes: int = 1 << 27
    """The memory for batches that are analysed, or wait to be stored."""

    def run(self, items: Iterable[Document | RawLines], workers: int | None = None) -> Generator[AnalysedBatch]:
        """Analyse documents; close the generator if you do not need all of them.

        `workers`: the number of threads or processes; None for one thread per core if that is faster, otherwise one
        thread.
        """
        stream = iter(items)
        work = batches(stream, min(p.component.batch_size for p in self.model.parts))
        first = list(islice(work, 2))
        if not first:
            return
        analyst = Analyst(self.model, self.splitter, self.store, self.max_bytes, skip_bad=self.skip_bad)
        if workers in (None, 1) and len(first) == 1:  # a single batch: a thread would not help
            yield analyst.analyse(first[0])
        elif analyst.can_share(first[0]):
            threads = workers or min(processors(), _MOST_THREADS)
            yield from _in_threads(analyst, chain(first, work), threads, self.batch_bytes, stored=self.store)
        elif workers in (None, 1):
            yield from _in_a_thread(analyst, chain(first, work))
        else:
            assert workers is not None
            yield from self._in_processes(chain(first, work), workers)

    def _in_processes(self, work: Iterator[Batch], workers: int) -> Generator[AnalysedBatch]:
        """In processes, each with a share of the memory."""
        processes = _Processes()
        start = (
            self.description, self.folder, self.splitter, self.store, self.max_bytes // workers, self.model.device,
            self.skip_bad,
        )  # fmt: skip
        executor = ProcessPoolExecutor(workers, processes, _start, start)
        try:
            yield from _in_order(lambda batch: executor.submit(_work, batch).result, work, 2 * workers)
        except BrokenExecutor:
            executor.shutdown()
            raise VizslaError(processes.failure()) from None
        except BaseException:  # nobody needs the results of the workers
            processes.terminate()
            raise
        finally:
            executor.shutdown(cancel_futures=True)


def _in_a_thread(analyst: Analyst, work: Iterator[Batch]) -> Generator[AnalysedBatch]:
    """In one thread, which helps because kernels and the database release the GIL."""
    with _threads(1) as executor:
        yield from _in_order(lambda batch: submit(executor, analyst.analyse, batch).result, work, 1)


def _in_threads(
    analyst: Analyst, work: Iterator[Batch], workers: int, memory: int, *, stored: bool
) -> Generator[AnalysedBatch]:
    """In threads that share the terms of one analyst; its terms have the numbers that one thread would give them.

    `memory`: about how much batches may take, two thirds while they are analysed, and the rest before and afterwards;
    one is there in any case. `stored`: whether batches hold the texts of their documents.
    """
    most = 2 * memory // 3
    first = next(work)
    budget, workers = _MemoryBudget(most), max(min(workers, most // max(_BYTES_PER_BYTE * _bytes(first), 1)), 1)
    waiting: deque[tuple[int, Callable[[], AnalysedBatch]]] = deque()
    waits = 0
    with _threads(workers) as executor:

        def begin(batch: Batch) -> Callable[[], AnalysedBatch]:
            encoders = analyst.next_encoders()
            size = _BYTES_PER_BYTE * _bytes(batch)
            budget.take(size)
            encoded = submit(executor, analyst.encode, batch, encoders)
            encoded.add_done_callback(lambda _: budget.give(size))
            return lambda: analyst.finish(encoded.result(), encoders)

        for batch in chain([first], work):
            size = _WAITING[stored] * _bytes(batch)
            while waiting and (len(waiting) > _AHEAD + 2 * workers or waits + size > memory - most):
                waits -= waiting[0][0]
                yield waiting.popleft()[1]()
            waiting.append((size, begin(batch)))
            waits += size
        while waiting:
            yield waiting.popleft()[1]()


def _bytes(batch: Batch) -> int:
    """The bytes of a batch of lines."""
    return len(batch.data) if isinstance(batch, RawLines) else 0


class _MemoryBudget:
    """Memory that batches take while they are analysed."""

    def __init__(self, size: int) -> None:
        self._left = self._size = size
        self._changed = threading.Condition()

    def take(self, size: int) -> None:
        """Wait until there is room; when nobody has any there is, for any size."""
        with self._changed:
            self._changed.wait_for(lambda: self._left >= min(size, self._size))
            self._left -= min(size, self._size)

    def give(self, size: int) -> None:
        """Give back what was taken."""
        with self._changed:
            self._left += min(size, self._size)
            self._changed.notify()


@contextmanager
def _threads(count: int) -> Iterator[Executor]:
    executor = ThreadPoolExecutor(count)
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


_Begin = Callable[[Batch], Callable[[], AnalysedBatch]]
"""Begins to analyse a batch, and returns a function that waits for the result."""


def _in_order(begin: _Begin, work: Iterator[Batch], ahead: int) -> Iterator[AnalysedBatch]:
    waiting: deque[Callable[[], AnalysedBatch]] = deque()
    for batch in work:
        waiting.append(begin(batch))
        if len(waiting) > ahead:
            yield waiting.popleft()()
    while waiting:
        yield waiting.popleft()()


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
            "out; try again with fewer workers or less memory (--workers and --memory, in Python workers= and memory=)"
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


def _start(
    description: dict[str, Any], folder: Path, splitter: Splitter | None, store: bool, max_bytes: int, device: str,
    skip_bad: bool,
) -> None:  # fmt: skip
    """Prepare a worker process."""
    global _analyst
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, daemon=True).start()
    try:
        with opening_on(device):
            model = Model.from_description(description, folder)
            _analyst = Analyst(model, splitter, store, max_bytes, skip_bad=skip_bad)
    except VizslaError:  # such as a token filter of the user's own; the first batch raises the error
        _analyst = None


def exit_with_parent() -> None:
    """Exit when the parent ends; a worker would wait for ever, since other workers hold its pipe open."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(batch: Batch) -> AnalysedBatch:
    if _analyst is None:
        raise VizslaError("the model cannot be created in another process; index with one worker")
    return _analyst.analyse(batch)
