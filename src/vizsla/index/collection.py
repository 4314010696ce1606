"""The contract of a collection: documents that are searched, asked about and changed, wherever they are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from vizsla.datasets import RawLines
from vizsla.errors import VizslaError
from vizsla.index.search.facets import Facets
from vizsla.index.search.plan import ModelFreeOptions, SearchKeywords, SearchSettings
from vizsla.index.search.suggestions import Suggestion
from vizsla.index.search.term_statistics import TermStatistics
from vizsla.index.writing.transaction import Added, Updated
from vizsla.models import Model
from vizsla.runs import Document, Explanation, FilterLike, Hits, PageOptions, Retriever, Run
from vizsla.runs.retriever import check_mapping, query_with_words, ranking_of


class CollectionView(Retriever):
    """The documents of a collection, searched in one way: what `Collection.with_model` gives.

    It shares files and connections with its collection and sees what the collection sees; close the collection.
    """

    @abstractmethod
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

        `page`: offset, sort, collapse, min_score, typos, total, passages, window and max_tokens, as in
        `Collection.search_many`.
        """

    def search(self, query: str, k: int = 10, filter: FilterLike = None, **page: Unpack[PageOptions]) -> Hits:
        """The k best documents for a query, best first; see `search_many`. An empty query is refused."""
        return self.search_many([query_with_words(query)], k, filter, **page)[0]

    def run(self, queries: Mapping[str, str], k: int = 1000, filter: FilterLike = None) -> Run:
        """The rankings of many queries, by query id."""
        rankings = map(ranking_of, self.search_many(list(check_mapping(queries).values()), k, filter, documents=False))
        return Run(dict(zip(queries, rankings, strict=True)), self.name)

    @abstractmethod
    def facets(
        self,
        fields: Sequence[str],
        query: str | None = None,
        filter: FilterLike = None,
        *,
        over: str | int = "all",
        size: int = 10,
    ) -> Facets:
        """The values of fields over the documents that match; see `Collection.facets`."""

    def count(self, query: str | None = None, filter: FilterLike = None) -> int:
        """How many documents match; see `Collection.count`."""
        return len(self) if query is None and filter is None else self.facets([], query, filter).documents

    @abstractmethod
    def similar(self, doc_id: str | int, k: int = 10, filter: FilterLike = None) -> Hits:
        """The k documents that are most like a document; see `Collection.similar`."""

    @abstractmethod
    def suggest(self, prefix: str, size: int = 8, *, language: str | None = None) -> list[Suggestion]:
        """Words of the collection that complete the last word of what is typed, those in most documents first.

        A suggestion is the most frequent word, in some documents that are looked at, of a term that the index holds;
        its `documents` are those that have the term. Where an index keeps no texts, terms themselves are suggested.
        After a blank there is nothing to complete. `language`: see `Collection.search_many`.
        """

    @abstractmethod
    def term_statistics(self, text: str) -> list[TermStatistics]:
        """For each term of a text, in each namespace: in how many documents and how often it occurs."""

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """What there is to know about the collection.

        Everywhere there are `model`, `documents`, `generation`, `passages` (how many there are if documents are cut
        into passages, else None) and `stored` (whether texts are kept).
        """

    @abstractmethod
    def with_model(self, model: str | None = None) -> CollectionView:
        """The same documents, searched with another model; one that there is no data for is refused."""


class Collection(CollectionView):
    """Documents that are searched, asked about and changed: an `Index`, a `RemoteIndex`, a `QdrantIndex`.

    All have these methods, with the same parameters and results, so a program need not know where its documents are.
    What one of them cannot do raises `UnsupportedError`.

    >>> import tempfile
    >>> from vizsla import Collection, Index
    >>> def languages(collection: Collection) -> list[object]:
    ...     _ = collection.add([{"id": "3", "text": "Hunde bellen.", "lang": "de"}])
    ...     _ = collection.commit()
    ...     return [(facet.value, facet.count) for facet in collection.facets(["lang"])["lang"].values]
    >>> with Index.create(tempfile.mkdtemp() + "/dogs.index") as index:
    ...     _ = index.add([{"id": "1", "text": "Dogs bark.", "lang": "en"}, {"id": "2", "text": "Cats.", "lang": "en"}])
    ...     languages(index)  # or vizsla.open("http://localhost:8080/dogs")
    [('en', 2), ('de', 1)]
    """

    # Searching

    @abstractmethod
    def search(self, query: str, k: int = 10, filter: FilterLike = None, **options: Unpack[SearchKeywords]) -> Hits:
        """The k best documents, best first; equal scores in order of insertion. An empty query is refused.

        `filter`: a condition on the documents, as in `year >= 1999 and lang = "en"`. It is applied before the top k is
        taken, so there are k results if k documents match. A mapping, as in `{"year": 1999, "lang": ["en", "de"]}`,
        gives the value of each field, or a list of values of which one must match.
        `options`: see `search_many`.
        """

    @abstractmethod
    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        filter: FilterLike = None,
        *,
        documents: bool = True,
        **options: Unpack[SearchKeywords],
    ) -> list[Hits]:
        """The hits of many queries. An empty query finds nothing.

        `model`: search with a model other than the collection's own that reads the same postings: other k1, b, variant
        or weights, or only some parts of a sum. No document is indexed again. A server takes it as a text.
        `combine`: how the parts of a sum become one ranking. `sum` is exact; `union` and `rrf` only look at the best
        documents of each part, see `Combination`.
        `search_params`: how dense vectors are searched if the index has a vector index: `exact`, or other parameters
        than its own, as in `ef_search=200` or `nprobe=64`. A sum is searched exactly.
        `approximate`: a number from 0 to 1 makes the search faster and may miss documents: common words are estimated
        to add at most this share of what they could. Scores stay exact. Without it the search is exact.
        `threads`: of an index on this machine; as many as there are processors by default.
        `documents`: without them a hit's document has an id and nothing else, which is faster.
        `syntax`: `lucene` reads queries as Lucene's query language, as in `+dogs "big cats"~2 -title:fish`. `typing`
        is for a search while somebody types: the last word stands for all terms that begin with it.
        `language`: in a collection of several languages, that of the queries, as in `de`, or several, as in `de,en`.
        Only documents in these languages are found, and what parts of the model find that belong to no language, such
        as dense vectors. By default a query is analysed in every language.
        `typos`: if no document has a word of the query, `suggest` gives a corrected query in `did_you_mean` of the
        hits, and `on` searches for it and gives it in `corrected`. By default nothing is corrected.
        `total`: count all results exactly: `total` of the hits is their number on all pages together, as `count` gives
        it, without those that `collapse` and `min_score` leave out. To a dense model every document with a vector is a
        result. By default `total` is None, unless the search finds all results anyway.
        `timeout`: after so many seconds the search is stopped, and `StoppedError` is raised.
        `offset`: how many of the first results are left out. `min_score`: only results with this score or a higher one.
        `sort`: a field to sort all results by: `year` ascending, `-year` descending.
        `collapse`: a field; of the results with the same value only the best is kept.
        `passages`: in an index of passages, how many of a document there may be among the k hits; by default the best.
        `window`: show so many passages before and after each as one text, or the whole `document`; what a better hit
        shows is not shown again.
        `max_tokens`: the best of the k hits whose texts have at most so many tokens together, each with a line that
        says where it is from (`Hits.context`). Tokens are estimated, see `vizsla.count_tokens`; `Hits.within` counts
        with a tokenizer.
        """

    @abstractmethod
    def run(
        self, queries: Mapping[str, str], k: int = 1000, filter: FilterLike = None, **options: Unpack[SearchSettings]
    ) -> Run:
        """The rankings of many queries, by query id; see `search_many`. An empty query finds nothing.

        A run holds no more than rankings of documents, so `typos`, `total`, `passages`, `window` and `max_tokens` are
        refused.
        """

    @abstractmethod
    def with_model(self, model: str | Model | None = None, **options: Unpack[ModelFreeOptions]) -> CollectionView:
        """The same documents, searched with another model or in another way; see `search_many`.

        `options`: combine, search_params, approximate, threads, syntax, language, timeout. A model that the collection
        has no data for is refused here.
        """

    # Asking

    @abstractmethod
    def explain(
        self,
        query: str,
        doc_id: str | int,
        filter: FilterLike = None,
        *,
        model: str | Model | None = None,
        syntax: str | None = None,
        language: str | None = None,
    ) -> Explanation:
        """Why a document has its score for a query: the share of each term, adding up to the score.

        Give the `filter` of the search: a query that is expanded from documents uses those that pass it.
        """

    @abstractmethod
    def facets(
        self,
        fields: Sequence[str],
        query: str | None = None,
        filter: FilterLike = None,
        *,
        over: str | int = "all",
        size: int = 10,
        model: str | Model | None = None,
        syntax: str | None = None,
        language: str | None = None,
    ) -> Facets:
        """The values of fields over the documents that match, and how many documents have each.

        A document matches if it passes the filter and a search for the query could find it, at whatever rank: it has a
        term of the query or, for a model with a dense part, a vector. Without a query all that pass the filter match.

        `fields`: as filters name them, `source.name` for a field inside of an object. Texts, numbers and booleans are
        counted; of a list each different element counts once a document. A field in which no document has one is
        refused. `over`: `all` counts all that match, exactly; a number counts the best so many, which needs a query.
        `size`: how many values to give for each field, the most frequent first. `syntax` and `language`: see
        `search_many`.
        """

    def count(
        self,
        query: str | None = None,
        filter: FilterLike = None,
        *,
        model: str | Model | None = None,
        syntax: str | None = None,
        language: str | None = None,
    ) -> int:
        """How many documents match a query and a filter, at whatever rank; see `facets`. Without both, all."""
        if query is None and filter is None:
            return len(self)
        return self.facets([], query, filter, model=model, syntax=syntax, language=language).documents

    @abstractmethod
    def similar(
        self, doc_id: str | int, k: int = 10, filter: FilterLike = None, *, model: str | Model | None = None
    ) -> Hits:
        """The k documents that are most like a document, best first, without the document itself.

        The document makes a query: for a sparse model its 25 most telling words, those with the highest tf times idf;
        for one with a dense part the beginning of its text.
        """

    # Changing

    @abstractmethod
    def add(
        self,
        documents: Iterable[Document | Mapping[str, Any] | RawLines],
        *,
        workers: int | None = None,
        skip_bad: bool = False,
    ) -> Added:
        """Add documents: mappings with an id under `_id` or `id` and a `text`. `commit` makes them findable.

        A document replaces the one with the same id. `skip_bad`: leave out what cannot be added, and list it in
        `skipped` of the result; otherwise the first such document is an error. `workers`: how many documents are
        analysed at a time on this machine; see `Writer.add`. The result says how many were added, how many replace
        others, how many were left out because a later one has the same id, and which have nothing to be found by. A
        server, which analyses documents at the commit, counts those that replace committed ones, and names those
        without any text.
        """

    @abstractmethod
    def update(self, documents: Iterable[Document | Mapping[str, Any]]) -> Updated:
        """Change fields of documents: mappings with an id under `_id` or `id`. `commit` makes it visible.

        The given fields change and the others stay; None removes a field. Fields have the names that the collection
        shows. Of several changes of a field the last one counts. Ids without a document are `missing` in the result,
        and nothing is added for them. A collection that stores no texts cannot do this, nor can one in a cluster.
        """

    @abstractmethod
    def delete(self, ids: str | int | Iterable[str | int] | None = None, *, filter: FilterLike = None) -> int:
        """Delete documents by id, or all that pass a filter; gives how many there were. `commit` makes it visible.

        A filter looks at committed documents, so commit first what it should see; so does a server when it counts.
        """

    @abstractmethod
    def commit(self) -> int:
        """Make what was added and deleted visible, durably; gives the generation, the number of the commit."""

    @abstractmethod
    def rollback(self) -> None:
        """Discard what was added and deleted since the last commit."""

    @abstractmethod
    def compact(self) -> int:
        """Commit, and rewrite the index without deleted and replaced documents; gives the generation."""

    @abstractmethod
    def refresh(self) -> None:
        """See the newest commit from now on, whoever made it; an error changes nothing."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """The number of the commit that searches see."""


def ids_or_filter(ids: object, filter: FilterLike) -> None:
    """Refuse a deletion that names neither documents nor a filter, or both."""
    if (ids is None) == (filter is None):
        raise VizslaError("give either the ids of the documents to delete or a filter")
