"""The Retriever: whatever can be searched."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from vizsla.errors import CannotExplainError, VizslaError, kind_of
from vizsla.runs.documents import Document, document_id
from vizsla.runs.explanation import Explanation
from vizsla.runs.filters import FilterLike
from vizsla.runs.hits import Hit, Hits
from vizsla.runs.run import Ranking, Run


class Retriever(ABC):
    """Something that can be searched: an index on disk, a remote engine, several fused, one that reranks another.

    A retriever of your own defines `name`, `search_many`, `get_many` and `__len__`; all else follows from them.

    >>> class Alphabet(Retriever):
    ...     name = "alphabet"
    ...     def search_many(self, queries, k=10, filter=None):
    ...         return [[Hit(1, 1.0, Document(query[0], {}))][:k] for query in queries]
    ...     def get_many(self, ids):
    ...         return {letter: Document(letter, {}) for letter in ids if letter in "abc"}
    ...     def __len__(self):
    ...         return 3
    >>> alphabet = Alphabet()
    >>> alphabet.search("cat")[0].id, alphabet.run({"q1": "bat"})["q1"].documents, alphabet.get("z")
    ('c', ['b'], None)
    """

    name: str
    """What it is called in tables and messages."""

    @abstractmethod
    def search_many(self, queries: Sequence[str], k: int = 10, filter: FilterLike = None) -> Sequence[Sequence[Hit]]:
        """The k best documents for each query, best first, as `Hits` or a list of `Hit`.

        A query without a word finds nothing.
        """

    @abstractmethod
    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        """Documents by id; ids of unknown documents are left out."""

    @abstractmethod
    def __len__(self) -> int:
        """How many documents can be found."""

    def __bool__(self) -> bool:
        """True, also without documents."""
        return True

    def search(self, query: str, k: int = 10, filter: FilterLike = None) -> Hits:
        """The k best documents for a query, best first."""
        return Hits(self.search_many([query_with_words(query)], k, filter)[0])

    def run(self, queries: Mapping[str, str], k: int = 1000, filter: FilterLike = None) -> Run:
        """The rankings of many queries, by query id."""
        rankings = map(ranking_of, self.search_many(list(check_mapping(queries).values()), k, filter))
        return Run(dict(zip(queries, rankings, strict=True)), self.name)

    def get(self, doc_id: str | int) -> Document | None:
        """The document with an id, or None."""
        return self.get_many([doc_id]).get(document_id(doc_id))

    def explain(self, query: str, doc_id: str | int, filter: FilterLike = None) -> Explanation:  # noqa: ARG002
        """Why a document has its score for a query; a retriever that cannot tell raises `CannotExplainError`."""
        raise CannotExplainError(f"{self.name} cannot explain its scores")

    def close(self) -> None:  # noqa: B027 (many have nothing to free)
        """Free files, locks and connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def ranking_of(hits: Sequence[Hit]) -> Ranking:
    """The ids and scores of hits as a ranking.

    >>> ranking_of([Hit(1, 2.5, Document("7", {})), Hit(2, 1.5, Document("8", {}))])
    Ranking([('7', 2.5), ('8', 1.5)])
    """
    columns = Hits(hits)
    return Ranking(columns.ids, columns.scores)


def check_count(number: object, what: str) -> int:
    """A whole number from 1 on, as an int; `what` names it in the message.

    >>> check_count(10, "k, the number of results,")
    10
    """
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise VizslaError(f"{what} must be a whole number, not {kind_of(number)}")
    whole = operator.index(number)
    if whole < 1:
        raise VizslaError(f"{what} must be 1 or more, not {whole}")
    return whole


def document_ids(ids: object) -> list[str]:
    """Ids as they are stored; a single id is a list of one."""
    given = [ids] if isinstance(ids, str | int) else ids
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise VizslaError(f"ids are texts or whole numbers, or a list of them, not {kind_of(given)}")
    return [document_id(i) for i in given]


def check_retriever(retriever: object) -> None:
    """Refuse what cannot be searched."""
    if not isinstance(retriever, Retriever):
        raise VizslaError(f"this must be a Retriever, as vizsla.open(location) gives it, not {kind_of(retriever)}")


def check_mapping(queries: Mapping[str, str]) -> Mapping[str, str]:
    """Refuse what is not a mapping of query ids to texts."""
    if not isinstance(queries, Mapping):
        raise VizslaError("run() takes a mapping of query ids to texts; for a list of texts use search_many()")
    return queries


def check_query(query: object) -> str:
    """Refuse a query that is not a text."""
    if not isinstance(query, str):
        raise VizslaError(f"a query is a text, not {kind_of(query)}")
    return query


def check_queries(queries: object) -> list[str]:
    """Queries as a list of texts; anything else is refused."""
    if isinstance(queries, str):
        raise VizslaError("queries are a list of texts; for a single text use search()")
    if isinstance(queries, Mapping):
        raise VizslaError("queries are a list of texts; for a mapping of ids to texts use run()")
    if isinstance(queries, bytes) or not isinstance(queries, Iterable):
        raise VizslaError(f"queries are a list of texts, not {kind_of(queries)}")
    return [check_query(query) for query in queries]


def query_with_words(query: object) -> str:
    """A query with at least one word; raises an error for an empty one."""
    if isinstance(query, str) and query.strip():
        return query
    check_query(query)
    raise VizslaError("the query is empty; give at least one word")
