"""The contract of a collection for programs with an event loop: the methods of `Collection` as coroutines.

Each is written once, in `Collection`. Here it becomes a coroutine with the same parameters and the same result; how a
call is made is up to the kind of collection: in a thread (`async_index.py`) or over a network (`retrievers/remote.py`).
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from vizsla.datasets import RawLines
from vizsla.index.collection import Collection, CollectionView
from vizsla.index.writing.transaction import Added
from vizsla.runs import Document

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[AsyncCollectionView, P], Coroutine[Any, Any, T]]:
    """A method of a collection as a coroutine."""

    @wraps(method)
    async def coroutine(self: AsyncCollectionView, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await self._call(method.__name__, *arguments, **options)  # type: ignore[no-any-return]

    coroutine.__isabstractmethod__ = False  # type: ignore[attr-defined]
    coroutine.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
    return coroutine


class AsyncCollectionView(ABC):
    """The documents of an `AsyncCollection`, searched in one way: what its `with_model` gives."""

    name: str
    """What the model is called."""

    @abstractmethod
    async def _call(self, method: str, /, *arguments: Any, **options: Any) -> Any:
        """What a method of the collection, by its name, gives for these arguments."""

    search = _awaited(CollectionView.search)
    search_many = _awaited(CollectionView.search_many)
    run = _awaited(CollectionView.run)
    get = _awaited(CollectionView.get)
    get_many = _awaited(CollectionView.get_many)
    explain = _awaited(CollectionView.explain)
    facets = _awaited(CollectionView.facets)
    count = _awaited(CollectionView.count)
    similar = _awaited(CollectionView.similar)
    suggest = _awaited(CollectionView.suggest)
    term_statistics = _awaited(CollectionView.term_statistics)
    info = _awaited(CollectionView.info)

    @abstractmethod
    async def with_model(self, model: str | None = None) -> AsyncCollectionView:
        """The same documents, searched with another model; see `Collection.with_model`."""


class AsyncCollection(AsyncCollectionView):
    """Documents that are searched, asked about and changed by the tasks of an event loop, which they do not block.

    An `AsyncIndex` is one, and an `AsyncRemoteIndex`. The methods are those of `Collection`, as coroutines; for `len`
    there is `count`. Hits come with their documents. Use it in `async with`, or await `open` first and `close` last.

    >>> import asyncio
    >>> from vizsla import AsyncIndex
    >>> async def main():
    ...     async with await AsyncIndex.create(":memory:") as index:
    ...         _ = await index.add([{"id": "1", "text": "Dogs bark."}, {"id": "2", "text": "Cats do not."}])
    ...         _ = await index.commit()
    ...         found = await asyncio.gather(index.search("dogs"), index.search("cats"))
    ...         return [hits[0]["text"] for hits in found]
    >>> asyncio.run(main())
    ['Dogs bark.', 'Cats do not.']
    """

    search = _awaited(Collection.search)
    search_many = _awaited(Collection.search_many)
    run = _awaited(Collection.run)
    explain = _awaited(Collection.explain)
    facets = _awaited(Collection.facets)
    count = _awaited(Collection.count)
    similar = _awaited(Collection.similar)

    @abstractmethod
    async def add(
        self,
        documents: Iterable[Document | Mapping[str, Any] | RawLines] | AsyncIterable[Document | Mapping[str, Any]],
        *,
        workers: int | None = None,
        skip_bad: bool = False,
    ) -> Added:
        """Add documents, of an iterable or an asynchronous one; see `Collection.add`. `commit` makes them findable."""

    update = _awaited(Collection.update)
    delete = _awaited(Collection.delete)
    commit = _awaited(Collection.commit)
    rollback = _awaited(Collection.rollback)
    compact = _awaited(Collection.compact)
    refresh = _awaited(Collection.refresh)

    async def generation(self) -> int:
        """The number of the commit that searches see."""
        return await self._call("generation")  # type: ignore[no-any-return]

    @abstractmethod
    async def open(self) -> Self:
        """Open the collection; `async with` does this."""

    @abstractmethod
    async def close(self) -> None:
        """Free files, locks and connections; what is not committed is discarded."""

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()
