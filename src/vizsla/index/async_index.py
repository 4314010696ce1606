"""An index for programs with an event loop: its methods run in threads, and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from vizsla.datasets import RawLines
from vizsla.errors import CollectionError, VizslaError, kind_of
from vizsla.index.async_collection import AsyncCollection, AsyncCollectionView
from vizsla.index.collection import Collection, CollectionView
from vizsla.index.index import Index
from vizsla.index.search.plan import ModelFreeOptions
from vizsla.index.storage import forking
from vizsla.index.writing.transaction import Added
from vizsla.index.writing.writer import DEFAULT_MEMORY
from vizsla.models import Model
from vizsla.runs import Document, Hits
from vizsla.stopping import Stop

T = TypeVar("T")
_CHANGES = frozenset({"add", "update", "delete", "commit", "rollback", "compact", "refresh"})
"""What goes on to its end if its task is cancelled; everything else is stopped."""
_BATCH = 500
"""Documents of an asynchronous iterable that a thread gets from the event loop at once."""
_WAIT = 0.2  # seconds after which a thread that waits for documents looks whether anybody wants them


class _Threads:
    """The threads in which the methods of one collection run. A forked child, which inherits none, gets its own."""

    def __init__(self) -> None:
        self._start()
        forking.watch(self, lambda threads, _: threads._start())

    def _start(self) -> None:
        self._pool = ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 4), thread_name_prefix="vizsla")

    async def run(self, call: Callable[..., T], /, *arguments: Any, **options: Any) -> T:
        """What a call gives, from a thread. If the task is cancelled, the call is stopped where it can be."""
        stop, context = Stop(), contextvars.copy_context()

        def work() -> T:
            with stop.active():
                return _read(context.run(call, *arguments, **options))

        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except asyncio.CancelledError:
            stop.set("the task was cancelled")
            raise

    async def finish(self, call: Callable[..., T], /, *arguments: Any, **options: Any) -> T:
        """What a call gives, from a thread. It goes on to its end if the task is cancelled."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, lambda: context.run(call, *arguments, **options)
        )

    def close(self) -> None:
        """Start no more calls."""
        self._pool.shutdown(wait=False)


def _read(result: T) -> T:
    """A result whose documents have been read, so that looking at them reads no file in the event loop."""
    if isinstance(result, Hits):
        for hit in result:
            _ = hit.document
    elif isinstance(result, list):
        for hits in result:
            _read(hits)
    return result


class AsyncIndexView(AsyncCollectionView):
    """An index, searched in one way by the tasks of an event loop. It shares everything with its `AsyncIndex`."""

    def __init__(self, view: CollectionView, threads: _Threads) -> None:
        self._view = view
        self._threads = threads
        self.name = view.name

    async def _call(self, method: str, /, *arguments: Any, **options: Any) -> Any:
        return await self._threads.run(getattr(self._view, method), *arguments, **options)

    async def with_model(self, model: str | Model | None = None) -> AsyncIndexView:
        """The same view with another model."""
        return AsyncIndexView(await self._call("with_model", model), self._threads)


class AsyncIndex(AsyncCollection):
    """An index whose methods are coroutines: `Index` for the tasks of an event loop, which they do not block.

        async with AsyncIndex("my.index", refresh_every=1.0) as index:
            hits = await index.search("barking dogs")

    The arguments are those of `Index.open`, and the methods those of `Collection`. They run in threads, and several
    searches at a time. A search whose task is cancelled, as by `asyncio.timeout`, is stopped. A change is
    completed; only an `add` that waits for an asynchronous iterable stops, and adds nothing. Where it is unpickled, it
    is opened again if it was open, as an `Index` is.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        memory: int = DEFAULT_MEMORY,
        device: str | None = None,
        refresh_every: float | None = None,
    ) -> None:
        self.name = str(path)
        self._open = partial(Index.open, path, memory=memory, device=device, refresh_every=refresh_every)
        self._collection: Collection | None = None
        self._threads = _Threads()
        self._closed = False

    @classmethod
    def of(cls, collection: Collection) -> AsyncIndex:
        """A collection that is open already, as an `Index` or a `QdrantIndex`; `close` closes it.

        >>> import asyncio
        >>> index = AsyncIndex.of(Index.create(":memory:"))
        >>> asyncio.run(index.count())
        0
        >>> asyncio.run(index.close())
        """
        if not isinstance(collection, Collection):
            raise VizslaError(f"expected a Collection, as Index.open gives it, not {kind_of(collection)}")
        index = cls(getattr(collection, "path", ""))
        index._collection, index.name = collection, collection.name
        return index

    @classmethod
    async def create(cls, path: str | Path, model: Model | str | None = None, **options: Any) -> AsyncIndex:
        """A new, empty index, which is open; the arguments are those of `Index.create`."""
        index = cls(path)
        index._collection = await index._threads.finish(Index.create, path, model, **options)
        index.name = index._collection.name
        return index

    def __reduce__(self) -> tuple[Any, ...]:
        if self._closed:
            raise CollectionError(f"{self.name}: the index has been closed")
        if self._collection is not None:
            return AsyncIndex.of, (self._collection,)
        return partial(AsyncIndex, **self._open.keywords), self._open.args

    def __repr__(self) -> str:
        return f"<AsyncIndex {self.name}>" if self._collection is None else f"<AsyncIndex of {self._collection!r}>"

    async def open(self) -> Self:
        """Open the index."""
        if self._closed:
            raise CollectionError(f"{self.name}: the index has been closed")
        if self._collection is None:
            self._collection = await self._threads.finish(self._open)
            self.name = self._collection.name
        return self

    async def _call(self, method: str, /, *arguments: Any, **options: Any) -> Any:
        if self._collection is None or self._closed:
            state = "has been closed" if self._closed else "is not open; use async with, or await open()"
            raise CollectionError(f"{self.name}: the index {state}")
        if method == "generation":
            return await self._threads.run(lambda index: index.generation, self._collection)
        run = self._threads.finish if method in _CHANGES else self._threads.run
        return await run(getattr(self._collection, method), *arguments, **options)

    async def with_model(self, model: str | Model | None = None, **options: Unpack[ModelFreeOptions]) -> AsyncIndexView:
        """The same documents, searched with another model or in another way; see `Collection.with_model`."""
        return AsyncIndexView(await self._call("with_model", model, **options), self._threads)

    async def add(
        self,
        documents: Iterable[Document | Mapping[str, Any] | RawLines] | AsyncIterable[Document | Mapping[str, Any]],
        *,
        workers: int | None = None,
        skip_bad: bool = False,
    ) -> Added:
        """Add documents, from an iterable or an asynchronous one; see `Collection.add`. `commit` makes them findable.

        An iterable is read in a thread, an asynchronous one in the event loop.
        """
        if not isinstance(documents, AsyncIterable):
            return await self._call("add", documents, workers=workers, skip_bad=skip_bad)  # type: ignore[no-any-return]
        fed = _Fed(documents)
        try:
            return await self._call("add", fed, workers=workers, skip_bad=skip_bad)  # type: ignore[no-any-return]
        finally:
            fed.ended.set()

    async def close(self) -> None:
        """Discard what is not committed, and free files, locks and threads."""
        if self._collection is not None:
            await self._end(self._collection.close)

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._collection is not None:
            await self._end(self._collection.__exit__, kind, e, tb)  # which warns of changes that are lost

    async def _end(self, call: Callable[..., None], *arguments: Any) -> None:
        if not self._closed:
            self._closed = True
            try:
                await self._threads.finish(call, *arguments)
            finally:
                self._threads.close()


class _Fed(Iterable[Any]):
    """An asynchronous iterable, read by a thread: its documents come from the event loop, some hundred at a time."""

    def __init__(self, documents: AsyncIterable[Any]) -> None:
        self.ended = threading.Event()
        """Set when nobody wants more documents."""
        self._documents = aiter(documents)
        self._loop = asyncio.get_running_loop()

    def __iter__(self) -> Iterator[Any]:
        while batch := self._next():
            yield from batch

    def _next(self) -> list[Any]:
        if self.ended.is_set():
            raise CollectionError("the task was cancelled")
        future = asyncio.run_coroutine_threadsafe(self._batch(), self._loop)
        while True:
            try:
                return future.result(_WAIT)
            except TimeoutError:
                if future.done():
                    return future.result()  # or the iterable's own error
                if self.ended.is_set():
                    future.cancel()
                    raise CollectionError("the task was cancelled") from None

    async def _batch(self) -> list[Any]:
        batch: list[Any] = []
        async for document in self._documents:
            batch.append(document)
            if len(batch) == _BATCH:
                break
        return batch
