"""Documents to analysed batches, in order and some batches ahead of the writer: in threads or in processes.

Threads share the encoders of one analyst. That is fast where kernels do nearly all of the work, which do not hold the
GIL: words that are counted, from lines that a kernel reads. For everything else several workers are processes.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any

from vizsla.datasets import Document, RawLines, Splitter
from vizsla.errors import VizslaError
from vizsla.index.writing.analysis import AnalysedBatch, Analyst, Batch, batches
from vizsla.models import Model

_AHEAD = 8  # batches, beside two for each thread, so that threads go on while the writer writes a segment
_MOST_THREADS = 8  # by default; more wait for the writer
Submit = Callable[[Batch], Callable[[], AnalysedBatch]]
"""Has a batch analysed, and gives what waits for it."""


@dataclass(frozen=True)
class Analysis:
    """How documents are analysed. Other processes make the model from its description and its files in a folder."""

    model: Model
    description: dict[str, Any]
    folder: Path
    splitter: Splitter | None
    store: bool
    max_bytes: int
    """The memory for terms."""

    def run(self, items: Iterable[Document | RawLines], workers: int | None = None) -> Generator[AnalysedBatch]:
        """Analyse documents; close the generator if you do not need all of them.

        `workers`: how many threads or processes; None for as many threads as there are cores where that is faster,
        else one.
        """
        stream = iter(items)
        work = batches(stream, min(p.component.batch_size for p in self.model.parts))
        first = list(islice(work, 2))
        if not first:
            return
        analyst = Analyst(self.model, self.splitter, self.store, self.max_bytes)
        if workers in (None, 1) and len(first) == 1:  # nothing to do meanwhile, so a thread would not help
            yield analyst.analyse(first[0])
        elif analyst.can_share(first[0]):
            yield from _in_threads(analyst, chain(first, work), workers or min(available_cores(), _MOST_THREADS))
        elif workers in (None, 1):
            yield from _in_a_thread(analyst, chain(first, work))
        else:
            assert workers is not None
            yield from self._in_processes(chain(first, work), workers)

    def _in_processes(self, work: Iterator[Batch], workers: int) -> Generator[AnalysedBatch]:
        """In processes, each with a share of the memory."""
        processes = _Processes()
        start = (self.description, self.folder, self.splitter, self.store, self.max_bytes // workers)
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


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_a_thread(analyst: Analyst, work: Iterator[Batch]) -> Generator[AnalysedBatch]:
    """In one thread, which helps because kernels and the database release the GIL."""
    with _threads(1) as executor:
        yield from _in_order(lambda batch: executor.submit(analyst.analyse, batch).result, work, 1)


def _in_threads(analyst: Analyst, work: Iterator[Batch], workers: int) -> Generator[AnalysedBatch]:
    """In threads that share the terms of one analyst; its terms have the numbers that one thread would give them."""
    with _threads(workers) as executor:

        def submit(batch: Batch) -> Callable[[], AnalysedBatch]:
            encoders = analyst.next_encoders()
            encoded = executor.submit(analyst.encode, batch, encoders)
            return lambda: analyst.finish(encoded.result(), encoders)

        yield from _in_order(submit, work, _AHEAD + 2 * workers)


@contextmanager
def _threads(count: int) -> Iterator[Executor]:
    executor = ThreadPoolExecutor(count)
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


def _in_order(submit: Submit, work: Iterator[Batch], ahead: int) -> Iterator[AnalysedBatch]:
    waiting: deque[Callable[[], AnalysedBatch]] = deque()
    for batch in work:
        waiting.append(submit(batch))
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


def _work(batch: Batch) -> AnalysedBatch:
    if _analyst is None:
        raise VizslaError("the model cannot be created in another process; index with one worker")
    return _analyst.analyse(batch)
