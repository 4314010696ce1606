"""An index that a vizsla server serves, as a retriever: `vizsla.open("http://localhost:8080/my")`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from vizsla.index.search.facets import Facets
from vizsla.retrievers.locations import LOCATIONS
from vizsla.retrievers.remote_calls import Calls, RemoteOptions, Suggestion, meet
from vizsla.retrievers.remote_connection import Address, Connection, Patience
from vizsla.runs import Document, Explanation, FilterLike, Hits, PageOptions, Retriever, Run
from vizsla.runs.retriever import check_mapping, query_with_words, ranking_of


class RemoteView(Retriever):
    """An index of a server, searched in one way. It shares the connections of its `RemoteIndex`: close that one."""

    def __init__(self, connection: Connection, calls: Calls, name: str) -> None:
        self._connection = connection
        self._calls = calls
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}: {self.name}>"

    @property
    def address(self) -> str:
        """Where the index is served."""
        return f"{self._connection.server}/{self._calls.index}"

    def search_many(
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
        return self._connection.run(self._calls.search_many(queries, k, filter, documents, page))

    def search(self, query: str, k: int = 10, filter: FilterLike = None, **page: Unpack[PageOptions]) -> Hits:
        """The k best documents for a query, best first; see `search_many`. An empty query is refused."""
        return self.search_many([query_with_words(query)], k, filter, **page)[0]

    def run(self, queries: Mapping[str, str], k: int = 1000, filter: FilterLike = None) -> Run:
        """The rankings of many queries, by query id."""
        texts = list(check_mapping(queries).values())
        rankings = map(ranking_of, self.search_many(texts, k, filter, documents=False))
        return Run(dict(zip(queries, rankings, strict=True)), self.name)

    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        """Documents by id; ids of unknown documents are left out."""
        return self._connection.run(self._calls.get_many(ids))

    def __len__(self) -> int:
        """How many documents there are now."""
        return int(self.info()["documents"])

    def explain(self, query: str, doc_id: str | int, filter: FilterLike = None) -> Explanation:
        """Why a document has its score for a query."""
        return self._connection.run(self._calls.explain(query, doc_id, filter))

    def similar(self, doc_id: str | int, k: int = 10, filter: FilterLike = None) -> Hits:
        """The k documents that are most like one, best first, without itself."""
        return self._connection.run(self._calls.similar(doc_id, k, filter))

    def facets(
        self,
        fields: Sequence[str],
        query: str | None = None,
        filter: FilterLike = None,
        *,
        over: str | int = "all",
        size: int = 10,
    ) -> Facets:
        """How often the values of some fields occur among the documents that match.

        `over`: `all` counts all that match, exactly; a number counts the best so many. `size`: how many values of a
        field, the most frequent first.
        """
        return self._connection.run(self._calls.facets(fields, query, filter, over, size))

    def suggest(self, prefix: str, size: int = 8) -> list[Suggestion]:
        """Words of the collection that complete the last word of a text, the most frequent first."""
        return self._connection.run(self._calls.suggest(prefix, size))

    def info(self) -> dict[str, Any]:
        """What the server says of the index: documents, generation, model, fields, models to choose from."""
        return self._connection.run(self._calls.info())

    def with_model(
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
    ) -> RemoteView:
        """The same index, searched with another model or in another way. What the server cannot do is refused here.

        `model`: a text, as in `bm25(k1=1.2)`. `weights`: of the parts of the index's own model. `expand`: a query
        expander, as in `rm3`. `rerank`: the name of a reranker of the server, and `depth`: how many documents it reads.
        For `combine`, `search_params` and `syntax` see `Index.search_many`.
        """
        chosen = None if weights is None else tuple(float(weight) for weight in weights)
        options = RemoteOptions(model, chosen, combine, expand, search_params, rerank, depth, syntax)
        calls = self._calls.searched_with(options)
        return RemoteView(self._connection, calls, self._connection.run(calls.model_name()))


class RemoteIndex(RemoteView):
    """An index that a vizsla server serves. Ids and scores are those of the `Index` behind it.

    `address`: the server and the name of the index, as in `http://localhost:8080/my`; the name may be left out if the
    server has only one index. `key`: what the server asks for, by default the environment variable VIZSLA_API_KEY.
    `timeout`: how many seconds to wait for an answer, and for the next part of one. `connect_timeout`: the same for a
    connection. `write_timeout`: the same after documents were sent or deleted, and for `commit` and `compact`.
    `retries`: how many times a request is sent again after it has failed in a way that may pass: no connection, a
    hang-up, a server that is busy or starting. All requests may be repeated: reading changes nothing, and writing the
    same twice leaves the same documents.

    What is added or deleted is visible after `commit`, and every later search of this object sees it, whichever process
    of the server answers. Use it as a context manager, or call `close`. All methods may be called from any thread.
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
        where = Address.parse(address)
        connection = Connection(where.server, Patience(connect_timeout, timeout, write_timeout, retries), key)
        try:
            calls, facts = connection.run(meet(where.server, where.index))
        except BaseException:
            connection.close()
            raise
        super().__init__(connection, calls, str(facts["model"]))

    def add(self, documents: Iterable[Document | Mapping[str, Any]]) -> int:
        """Send documents; gives how many. `commit` makes them findable.

        They are sent in pieces while they are read, so any number takes little memory. A document replaces the one
        with the same id. If an error ends this, what was sent before stays with the server for the next commit.
        """
        return self._connection.run(self._calls.add(documents))

    def delete(self, ids: str | int | Iterable[str | int] | None = None, *, filter: FilterLike = None) -> None:
        """Delete documents by id, or all that meet a filter. `commit` makes it visible."""
        self._connection.run(self._calls.delete(ids, filter))

    def commit(self) -> int:
        """Make what was added and deleted visible, at once and durably; gives the generation of the commit."""
        return self._connection.run(self._calls.commit())

    def compact(self) -> int:
        """Let the server rewrite the index without deleted and replaced documents; gives the new generation."""
        return self._connection.run(self._calls.compact())

    def wait_for(self, generation: int) -> int:
        """Wait until searches see a commit, whoever made it, or a later one; gives the one they see."""
        return self._connection.run(self._calls.wait_for(generation))

    def close(self) -> None:
        """Free the connections."""
        self._connection.close()


@LOCATIONS.register("http", help="An index that a vizsla server serves: http://localhost:8080/my", needs=("httpx2",))
def open_http(location: str) -> Retriever:
    """The index at an address; the key is that of the environment variable VIZSLA_API_KEY."""
    return RemoteIndex(location)


@LOCATIONS.register("https", help="The same over an encrypted connection.", needs=("httpx2",))
def open_https(location: str) -> Retriever:
    """The index at an address; the key is that of the environment variable VIZSLA_API_KEY."""
    return RemoteIndex(location)
