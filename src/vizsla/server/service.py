"""The shared state of a worker's routes: its indexes, its threads, its metrics."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from vizsla.engine import processors
from vizsla.errors import VizslaError
from vizsla.server.batching import Batcher
from vizsla.server.collections import STAGED
from vizsla.server.errors import RequestError, UnavailableError
from vizsla.server.hosting import POLL, Hosted, Hosting
from vizsla.server.judgements import Judgements
from vizsla.server.metrics import Metrics
from vizsla.server.settings import Settings
from vizsla.server.writes import Staging
from vizsla.stopping import Stop

log = logging.getLogger("vizsla.server")
T = TypeVar("T")
MAX_WAITING_WRITES = 16


class Service:
    """The state of a worker. Searches run in few threads, other reads in some more, and writes in one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.hosting = Hosting(settings)
        self.metrics = Metrics(self.hosting)
        threads = max(processors() // settings.workers, 1)
        self._reading = ThreadPoolExecutor(4, "read")
        self._writing = ThreadPoolExecutor(1, "write")
        self.in_flight = 0
        """Requests that are being answered."""
        self._waiting_writes = 0
        self._stops: dict[Stop, None] = {}  # the stop flags of running reads
        self.batcher: Batcher[bytes] = Batcher(threads, self.metrics.observe_batch)

    def start(self) -> None:
        """Open the indexes, and search each once to warm it up."""
        self.hosting.open()
        for hosted in self.hosting.indexes.values():
            if hosted.is_open:
                with suppress(VizslaError, OSError):
                    hosted.index.search_many(["a word", "another"], 1)

    async def poll(self) -> None:
        """Look for new commits forever. Slow reads do not delay it, and an error does not end it."""
        while True:
            try:
                await asyncio.to_thread(self.hosting.poll)
            except Exception:
                log.exception("looking for new commits failed; the server tries again")
            self.metrics.update(self.in_flight)
            await asyncio.sleep(POLL)

    async def read(self, call: Callable[..., T], *arguments: object) -> T:
        """Call a function off the event loop. It is stopped when its result is no longer wanted."""
        stop = Stop()

        def work() -> T:
            with stop.active():
                return call(*arguments)

        self._stops[stop] = None
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reading, work)
        except asyncio.CancelledError:
            stop.set("nobody waits for this any more")
            raise
        finally:
            self._stops.pop(stop, None)

    async def see(self, hosted: Hosted, generation: int | None) -> None:
        """Return as soon as searches of an index see this commit or a later one; 503 if they do not in time."""
        deadline = time.monotonic() + self.settings.limits.seconds / 2
        while generation is not None and hosted.generation < generation:
            await self.read(hosted.open)
            if hosted.generation >= generation:
                return
            if time.monotonic() > deadline:
                seen = f"the index {hosted.name} has the generation {hosted.generation}"
                raise UnavailableError(f"{seen}, not {generation} yet")
            await asyncio.sleep(0.05)

    async def write(self, call: Callable[..., T], *arguments: object) -> T:
        """Call a function that writes; a worker runs one write at a time, and the queue is short."""
        if self._waiting_writes >= MAX_WAITING_WRITES:
            raise RequestError("too many writes are waiting; try again later", 429, {"Retry-After": "5"})
        self._waiting_writes += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._writing, call, *arguments)
        finally:
            self._waiting_writes -= 1

    def staging(self, hosted: Hosted) -> Staging:
        """Where documents of an index wait for a commit."""
        return Staging(hosted.state / STAGED, is_made=hosted.collection is None)

    def judgements(self, hosted: Hosted) -> Judgements:
        """The relevance judgements for an index."""
        return Judgements(hosted.state / "judgements.db", is_made=hosted.collection is None)

    def close(self) -> None:
        """Stop what is being read, wait for what is being written, and close the indexes."""
        for stop in list(self._stops):
            stop.set("the server ends")
        self.batcher.close()
        self._reading.shutdown(wait=True, cancel_futures=True)
        self._writing.shutdown(wait=True, cancel_futures=True)
        self.hosting.close()
