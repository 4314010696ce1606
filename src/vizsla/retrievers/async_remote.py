"""An index that a vizsla server serves, for programs with an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from vizsla.index.search.facets import Facets
from vizsla.retrievers.remote_calls import Calls, Pieces, RemoteOptions, Suggestion, meet
from vizsla.retrievers.remote_connection import Address, AsyncConnection, Patience
from vizsla.runs import Document, Explanation, FilterLike, Hits, PageOptions, Run, document_id
from vizsla.runs.retriever import check_mapping, query_with_words, ranking_of


class AsyncRemoteView:
    """An index of a server, searched in one way. It shares the connections of its `AsyncRemoteIndex`."""

    def __init__(self, connection: AsyncConnection, calls: Calls, name: str) -> None:
        self._connection = connection
        self._calls = calls
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}: {self.name}>"

    @property
    def address(self) -> str:
        """Where the index is served."""
        return f"{self._connection.server}/{self._calls.index}"

    async def search(self, query: str, k: int = 10, filter: FilterLike = None, **page: Unpack[PageOptions]) -> Hits:
        """The k best documents for a query, best first; see `search_many`. An empty query is refused."""
        return (await self.search_many([query_with_words(query)], k, filter, **page))[0]

    async def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        filter: FilterLike = None,
        *,
        documents: bool = True,
        **page: Unpack[PageOptions],
    ) -> list[Hits]:
        """The k best documents for each query, best first; without `documents` hits have ids and scores only.

        `page`: offset, sort, collapse and min_score, as in `Index.search_many`.
        """
        return await self._connection.run(self._calls.search_many(queries, k, filter, documents, page))

    async def run(self, queries: Mapping[str, str], k: int = 1000, filter: FilterLike = None) -> Run:
        """The rankings of many queries, by query id."""
        texts = list(check_mapping(queries).values())
        rankings = map(ranking_of, await self.search_many(texts, k, filter, documents=False))
        return Run(dict(zip(queries, rankings, strict=True)), self.name)

    async def get(self, doc_id: str | int) -> Document | None:
        """The document with an id, or None."""
        return (await self.get_many([doc_id])).get(document_id(doc_id))

    async def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        """Documents by id; ids of unknown documents are left out."""
        return await self._connection.run(self._calls.get_many(ids))

    async def count(self) -> int:
        """How many documents there are now."""
        return int((await self.info())["documents"])

    async def explain(self, query: str, doc_id: str | int, filter: FilterLike = None) -> Explanation:
        """Why a document has its score for a query."""
        return await self._connection.run(self._calls.explain(query, doc_id, filter))

    async def similar(self, doc_id: str | int, k: int = 10, filter: FilterLike = None) -> Hits:
        """The k documents that are most like one, best first, without itself."""
        return await self._connection.run(self._calls.similar(doc_id, k, filter))

    async def facets(
        self,
        fields: Sequence[str],
        query: str | None = None,
        filter: FilterLike = None,
        *,
        over: str | int = "all",
        size: int = 10,
    ) -> Facets:
        """How often the values of some fields occur among the documents that match; see `RemoteIndex.facets`."""
        return await self._connection.run(self._calls.facets(fields, query, filter, over, size))

    async def suggest(self, prefix: str, size: int = 8) -> list[Suggestion]:
        """Words of the collection that complete the last word of a text, the most frequent first."""
        return await self._connection.run(self._calls.suggest(prefix, size))

    async def info(self) -> dict[str, Any]:
        """What the server says of the index: documents, generation, model, fields, models to choose from."""
        return await self._connection.run(self._calls.info())

    async def with_model(
        self,
        model: str | None = None,
        *,
        weights: Sequence[float] | None = None,
        combine: str | None = None,
        expand: str | None = None,
        search_params: str | None = None,
        rerank: str | None = None,
        depth: int | None = None,
        syntax: str | None = None,
    ) -> AsyncRemoteView:
        """The same index, searched with another model or in another way; see `RemoteIndex.with_model`."""
        chosen = None if weights is None else tuple(float(weight) for weight in weights)
        options = RemoteOptions(model, chosen, combine, expand, search_params, rerank, depth, syntax)
        calls = self._calls.searched_with(options)
        return AsyncRemoteView(self._connection, calls, await self._connection.run(calls.model_name()))


class AsyncRemoteIndex(AsyncRemoteView):
    """An index that a vizsla server serves: `RemoteIndex` with coroutines, for the tasks of one event loop.

        async with AsyncRemoteIndex("http://localhost:8080/my") as index:
            hits = await index.search("barking dogs")

    Outside of `async with`, await `open` first and `close` last. The arguments are those of `RemoteIndex`.
    """

    def __init__(
        self,
        address: str,
        *,
        key: str | None = None,
        timeout: float = 60.0,
        connect_timeout: float = 5.0,
        write_timeout: float = 600.0,
        retries: int = 3,
    ) -> None:
        self._where = Address.parse(address)
        connection = AsyncConnection(
            self._where.server, Patience(connect_timeout, timeout, write_timeout, retries), key
        )
        super().__init__(connection, Calls(self._where.index), "")

    async def open(self) -> Self:
        """Meet the server; one that cannot be used is refused."""
        try:
            self._calls, facts = await self._connection.run(meet(self._where.server, self._where.index))
        except BaseException:
            await self.close()
            raise
        self.name = str(facts["model"])
        return self

    async def add(
        self, documents: Iterable[Document | Mapping[str, Any]] | AsyncIterable[Document | Mapping[str, Any]]
    ) -> int:
        """Send documents, in pieces while they are read; gives how many. `commit` makes them findable."""
        if not isinstance(documents, AsyncIterable):
            return await self._connection.run(self._calls.add(documents))
        pieces = Pieces()
        async for document in documents:
            if piece := pieces.take(document):
                await self._connection.ask(self._calls.piece(piece))
        if piece := pieces.rest():
            await self._connection.ask(self._calls.piece(piece))
        return pieces.count

    async def delete(self, ids: str | int | Iterable[str | int] | None = None, *, filter: FilterLike = None) -> None:
        """Delete documents by id, or all that meet a filter. `commit` makes it visible."""
        await self._connection.run(self._calls.delete(ids, filter))

    async def commit(self) -> int:
        """Make what was added and deleted visible, at once and durably; gives the generation of the commit."""
        return await self._connection.run(self._calls.commit())

    async def compact(self) -> int:
        """Let the server rewrite the index without deleted and replaced documents; gives the new generation."""
        return await self._connection.run(self._calls.compact())

    async def wait_for(self, generation: int) -> int:
        """Wait until searches see a commit, whoever made it, or a later one; gives the one they see."""
        return await self._connection.run(self._calls.wait_for(generation))

    async def close(self) -> None:
        """Free the connections."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()
