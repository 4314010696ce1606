"""A search of many queries: options checked once, queries in batches, each batch in a thread."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypedDict, TypeVar

import numpy as np

from vizsla.datasets import document_of, passage_of
from vizsla.engine import Plaid, Query, TopDocuments, TopLists, VectorIndex, in_turns, processors
from vizsla.errors import UnknownNameError, UnsupportedError, VizslaError, kind_of
from vizsla.index.reading.documents import DocumentStore
from vizsla.index.search.bound_model import BoundModel, TokenPart
from vizsla.index.search.combining import CANDIDATES, Combination, parts_of, union_of
from vizsla.index.search.document_scores import DocumentScores
from vizsla.index.search.matching import count_matching
from vizsla.index.search.pages import Page
from vizsla.index.search.searcher import Searcher
from vizsla.index.search.word_query import WordQuery
from vizsla.index.search.words import word_parts
from vizsla.lazy import cached_property
from vizsla.models import DenseComponent, Model
from vizsla.runs import NO_DOCUMENTS, DocumentSource, Filter, FilterLike, Hits, PageOptions, Ranking
from vizsla.runs.hits import HitLists, check_max_tokens, check_total, check_typos
from vizsla.runs.query_language import check_syntax
from vizsla.runs.retriever import check_queries, ranking_of

T = TypeVar("T")
BATCH_SIZE = 128  # queries that are searched together at most
_LEAST = 8  # what is done once for each batch would take too long for fewer
_MOST_RESULTS = 1 << 20  # of a batch
DENSE_BATCH_SIZE = 512  # one product of matrices uses all processors by itself
_SUM = Combination("sum")
_MAX_PLANS = 64
_PLAIN_PAGE = (0, None, None, None, 1, 0)
_Ranker = Callable[[int], TopDocuments]


class SearchOptions(NamedTuple):
    """Search options; None stands for the default of the index. See `Index.search_many`."""

    model: Model | None = None
    combine: str | None = None
    search_params: str | None = None
    approximate: float | None = None
    threads: int | None = None
    syntax: str | None = None
    language: str | None = None
    timeout: float | None = None
    typos: str | None = None
    total: bool = False
    max_tokens: int | None = None
    offset: int = 0
    sort: str | None = None
    collapse: str | None = None
    min_score: float | None = None
    passages: int = 1
    window: int | str = 0


def check_options(given: Iterable[str]) -> None:
    """Refuse an option of a search that does not exist."""
    for name in given:
        if name not in SearchOptions._fields:
            raise UnknownNameError("search option", name, SearchOptions._fields)


NO_TYPOS = "a run cannot say which queries were corrected; leave out typos, or use search or search_many"

NO_PASSAGES = "a run holds whole documents; leave out passages, window and max_tokens, or use search or search_many"

NO_TOTAL = "a run cannot say how many results there are in all; leave out total, or use search or search_many"

ONE_TEXT = SearchOptions(threads=1)
"""The default options for a single query."""


class ModelFreeOptions(TypedDict, total=False):
    """How to search, apart from the model."""

    combine: str | None
    search_params: str | None
    approximate: float | None
    threads: int | None
    syntax: str | None
    language: str | None
    timeout: float | None


class SearchSettings(ModelFreeOptions, total=False):
    """How to search."""

    model: str | Model | None


class SearchKeywords(SearchSettings, PageOptions, total=False):
    """How to search, and which results to give: the options of `Index.search`."""


@dataclass(frozen=True)
class Search:
    """A search whose options have been checked; the results do not depend on the number of threads."""

    searcher: Searcher
    bound: BoundModel
    k: int
    condition: Filter | None = None
    threads: int = 1
    expected: float = 1.0
    vector_index: VectorIndex | None = None
    """How dense vectors are searched; None scores every vector."""
    union: Combination | None = None
    """Only the best of each part are scored by the sum."""
    fusion: Combination | None = None
    parts: tuple[Search, ...] = ()
    """The searches that are fused."""
    syntax: str | None = None
    """The query language that queries are written in; None for plain texts."""
    language: str | None = None
    """The language of documents that is searched, in an index of several; None for all."""
    page: Page | None = None
    """Which results are given; None for the best."""
    typos: str | None = None
    """Whether words that may be misspelt are corrected, or a correction is suggested; None for neither."""
    total: bool = False
    """Whether all results are counted."""
    max_tokens: int | None = None
    """How many tokens the texts of the results have at most; None for no limit."""
    masks: Sequence[np.ndarray] | None = None
    """The rows that may be found, for a query in a query language."""

    @classmethod
    def prepare(cls, searcher: Searcher, k: int, filter: FilterLike, options: SearchOptions) -> Search:
        """A search with its options checked."""
        if filter is not None or options is not ONE_TEXT or type(k) is not int:
            return cls._prepared(searcher, k, filter, options)
        known = searcher.plans.get(k)  # searches with default options are prepared once for each k
        if known is None:
            if len(searcher.plans) >= _MAX_PLANS:
                searcher.plans.clear()
            known = searcher.plans[k] = cls._prepared(searcher, k, filter, options)
        assert isinstance(known, cls)
        return known

    @classmethod
    def _prepared(cls, searcher: Searcher, k: int, filter: FilterLike, options: SearchOptions) -> Search:
        k = positive(k, "k, the number of results,")
        condition = None if filter is None else Filter.of(filter)
        if condition is not None:
            searcher.masks(condition)  # refuses a filter that no document can pass
        threads = options.threads
        if type(threads) is not int or threads != 1:
            threads = processors() if threads is None else positive(threads, "the number of threads")
        expected = 1.0 if options.approximate is None else _share(options.approximate)
        bound = searcher.chosen(options.model, options.language)
        own = searcher.snapshot.vector_index
        vector_index = own if options.search_params is None else _with_params(searcher, bound, options.search_params)
        combination = combination_of(options.combine)
        single = len(bound.parts) == 1
        if bound.documents is not None and combination.name != "sum":
            raise UnsupportedError(f"{combination.name} combines rankings of passages; leave out scores of documents")
        if single and combination.name != "sum":
            raise VizslaError(f"{combination.name} combines the parts of a sum, and this model has only one part")
        syntax = None if options.syntax is None else check_syntax(options.syntax)
        typos = None if options.typos is None else check_typos(options.typos)
        total = check_total(options.total)
        page = None if options[-6:] == _PLAIN_PAGE else Page.of(*options[-6:])
        max_tokens = check_max_tokens(options.max_tokens)
        _check_passages(searcher, page, max_tokens)
        if syntax is not None:
            word_parts(searcher.words, bound)  # refuses an index without words
        if total and combination.fusion is not None and options.min_score is not None:
            raise UnsupportedError("fused scores depend on how many are fused, so with min_score there is no total")
        asked: Any = {"syntax": syntax, "page": page, "typos": typos, "total": total, "max_tokens": max_tokens}
        asked["language"] = options.language
        if not bound.has_vectors and combination.name == "sum":
            return cls(searcher, bound, k, condition, threads, expected, None, **asked)
        exact_sum = combination.name == "sum" and (not single or bound.documents is not None)
        if exact_sum and options.search_params is not None and vector_index.is_approximate:
            raise VizslaError(
                "a sum is searched exactly; give search parameters with one model with vectors alone, or with combine"
            )
        plan = cls(searcher, bound, k, condition, threads, expected, None, **asked)
        if vector_index.is_approximate and not exact_sum:
            plan = replace(plan, vector_index=vector_index)
        return plan if combination.name == "sum" else plan._combined(combination)

    def _combined(self, combination: Combination) -> Search:
        if combination.name == CANDIDATES:
            self._check_candidates()
        if combination.fusion is None:
            return replace(self, union=combination)
        deep = replace(self, k=max(self.k, combination.depth), page=None, total=False)
        sparse = replace(deep, vector_index=None)
        models = [self.searcher.bind(part.component) for part in self.bound.parts]
        parts = tuple(replace(deep if bound.has_vectors else sparse, bound=bound) for bound in models)
        return replace(self, fusion=combination, parts=parts)

    def _check_candidates(self) -> None:
        """Raise an error if the model has no part that finds candidates, or no late interaction to score them."""
        finding = [part.weight for part in self.bound.parts if not isinstance(part, TokenPart)]
        if not self.bound.tokens or not finding:
            raise VizslaError(f"{CANDIDATES} needs a sum of late interaction and another model, as bm25 + colbert(...)")
        if 0 in finding:
            raise VizslaError("a model with the weight 0 finds no candidates; give it a small weight, such as 1e-6")

    def hits_of(self, query: str) -> Hits:
        """The best k documents for one query with words."""
        if self.typos is not None or self.total or self.max_tokens is not None:
            return self.hits([query])[0]
        return self._hits([query], True)[0]

    def hits(self, queries: Iterable[str], *, documents: bool = True) -> list[Hits]:
        """The best k documents for each query, best first; without `documents` hits have ids and scores only.

        An empty query finds nothing.
        """
        if self.max_tokens is not None:
            every = replace(self, max_tokens=None).hits(queries)
            return [best_within(hits, self.max_tokens, documents) for hits in every]
        if self.typos is not None:
            return self._spelled(check_queries(queries), documents)
        return self._each(lambda batch: self._counted(batch, documents), lambda: Hits().with_total(0), queries)

    def _spelled(self, queries: Sequence[str], documents: bool) -> list[Hits]:
        """The same with what there is to say about the spelling of each query."""
        plan, speller = replace(self, typos=None), self.searcher.speller(self.language)
        corrected = [speller.corrected(query, self.syntax, self.bound.sparse) for query in queries]
        if self.typos != "on":
            found = plan.hits(queries, documents=documents)
            return [hits.with_spelling(did_you_mean=text) for hits, text in zip(found, corrected, strict=True)]
        found = plan.hits([text or query for text, query in zip(corrected, queries, strict=True)], documents=documents)
        return [hits.with_spelling(corrected=text) for hits, text in zip(found, corrected, strict=True)]

    def rankings(self, queries: Iterable[str]) -> list[Ranking]:
        """Ids and scores alone, for runs: at a depth of a thousand, making hits costs more than finding them.

        An empty query finds nothing.
        """
        if self.typos is not None:
            raise VizslaError(NO_TYPOS)
        if self.total:
            raise VizslaError(NO_TOTAL)
        if self.max_tokens is not None or (self.page is not None and (self.page.passages > 1 or self.page.window)):
            raise VizslaError(NO_PASSAGES)
        return self._each(self._rankings, lambda: Ranking([], []), queries)

    def _each(
        self, search: Callable[[Sequence[str]], list[T]], nothing: Callable[[], T], queries: Iterable[str]
    ) -> list[T]:
        """What a search gives for each query, and nothing for queries without a word."""
        checked = check_queries(queries)
        with_words = [query for query in checked if query.strip()]
        found = search(with_words) if len(with_words) == 1 else self._in_threads(search, with_words)
        if len(found) == len(checked):
            return found
        remaining = iter(found)
        return [next(remaining) if query.strip() else nothing() for query in checked]

    def _in_threads(self, search: Callable[[Sequence[str]], list[T]], queries: Sequence[str]) -> list[T]:
        """What a search gives for all queries, batch by batch, in their order."""
        multiplies = self.bound.has_vectors
        size = DENSE_BATCH_SIZE if multiplies else self._batch_size(len(queries))
        batches = [queries[a : a + size] for a in range(0, len(queries), size)]
        found = in_turns(search, batches, 1 if multiplies else self.threads)
        return [result for batch in found for result in batch]

    def _batch_size(self, queries: int) -> int:
        """How many queries are searched together; threads get equally many batches, unless these become too small."""
        most = max(min(BATCH_SIZE, _MOST_RESULTS // self.k), 1)
        rounds = -(-queries // (most * self.threads))
        return min(max(-(-queries // max(rounds * self.threads, 1)), _LEAST), most)

    def _counted(self, texts: Sequence[str], documents: bool) -> list[Hits]:
        """The hits of queries, with their totals where these are asked for, or known without counting."""
        found = self._hits(texts, documents)
        if not self.total:
            return found
        pairs = zip(texts, found, strict=True)
        return [hits if hits.total is not None else hits.with_total(self._total_of(text)) for text, hits in pairs]

    @cached_property
    def _complete_below(self) -> int:
        """Fewer results than this are all that there are."""
        return self.k if self.expected == 1 and self.vector_index is None else 0

    def _total_of(self, text: str) -> int:
        """How many results all pages have: those that match, unless some of these are left out."""
        page = Page() if self.page is None else replace(self.page, offset=0)
        by_candidates = self.union is not None and self.union.name == CANDIDATES
        if not page.leaves_out and not by_candidates:
            return count_matching(self.searcher, self.bound, text, self.condition, self.syntax)
        every = max(self.searcher.snapshot.stored_count, 1)
        exact = replace(self, k=every, page=page, expected=1.0, vector_index=None)
        total = page.select(self.searcher, exact._ranker(text), every).total
        assert total is not None
        return total

    def _hits(self, texts: Sequence[str], documents: bool) -> list[Hits]:
        if self.page is not None:
            return [self._page_hits(self.page, text, documents) for text in texts]
        if self.fusion is not None:
            return self._fused_hits(self.fusion, texts, documents)
        searcher = self.searcher
        if searcher.snapshot.splitter is not None:
            return [self._document_hits(self._ranker(text), documents) for text in texts]
        if self.union is None and self.syntax is None:
            queries = searcher.encode(texts, self.bound, self.condition)
            top = searcher.top_k(queries, self.bound, self.k, *self._how)
            return hits_of(searcher.snapshot.documents, top, documents, below=self._complete_below)
        return hits_of(searcher.snapshot.documents, self._found(texts), documents, below=self._complete_below)

    def _document_hits(self, rank: _Ranker, documents: bool) -> Hits:
        """The best documents by their best passages."""
        store = self.searcher.snapshot.documents
        return passage_hits(store, best_passages(store, rank, self.k), documents, below=self._complete_below)

    def _page_hits(self, page: Page, text: str, documents: bool) -> Hits:
        snapshot = self.searcher.snapshot
        top, total, windows = page.select(self.searcher, self._ranker(text), self.k)
        store, first = snapshot.documents, page.offset + 1
        if snapshot.splitter is not None:
            hits = passage_hits(store, top, documents, first, windows=windows)
        else:
            hits = hits_of(store, [top], documents, first)[0]
        is_known = total is not None and self._complete_below and self.fusion is None  # a fusion looks only so deep
        return hits.with_total(total) if is_known else hits

    def _found(self, texts: Sequence[str]) -> Sequence[TopDocuments]:
        """The best k rows for each query; of a fusion see `_ranker`."""
        if self.syntax is None:
            return self.top_k(self.searcher.encode(texts, self.bound, self.condition), self.k)
        return [self._ranker(text)(self.k) for text in texts]

    def _ranker(self, text: str) -> _Ranker:
        """What gives the best n rows for a query."""
        rank, whole = self._own_ranker(text), self.bound.documents
        if whole is None:
            return rank
        if self.syntax is not None:
            text = WordQuery(self.searcher, self.bound, text, self.condition, self.syntax).plain_text
        (query,) = self.searcher.encode([text], whole, self.condition)
        return DocumentScores(self.searcher, whole, query).added_to(rank)

    def _own_ranker(self, text: str) -> _Ranker:
        """The same without the scores of whole documents."""
        if self.fusion is not None:
            return lambda n: self._fused_rows(text, n)
        if self.syntax is None:
            (query,) = self.searcher.encode([text], self.bound, self.condition)
            return lambda n: self.top_k([query], n)[0]
        words = WordQuery(self.searcher, self.bound, text, self.condition, self.syntax)
        return lambda n: self._top_k_of_words(words, n)

    def _top_k_of_words(self, words: WordQuery, k: int) -> TopDocuments:
        """The best of the rows that match a query; models with vectors also need a vector or a term in common."""
        query = words.query
        if self.union is None and query.is_plain:
            return words.top_k(k)
        return replace(self, masks=words.masks).top_k([query], k)[0]

    def _fused_rows(self, text: str, n: int) -> TopDocuments:
        """The best rows of a fusion, from rankings as deep as its depth or the page."""
        assert self.fusion is not None
        offset = 0 if self.page is None else self.page.offset
        k = min(n, max(self.k + offset, self.fusion.depth))
        if self.page is not None and self.page.passages > 1:
            return self._fused_passages(text, k)
        plan = replace(self, k=k, page=None, fusion=None, parts=())._combined(self.fusion)
        hits, store = plan._hits([text], documents=False)[0], self.searcher.snapshot.documents
        numbers = [store.numbers_of(hit.id)[hit.passage or 0] for hit in hits]
        return TopDocuments(np.array(numbers, np.int64), np.array(hits.scores, np.float64))

    def _fused_passages(self, text: str, k: int) -> TopDocuments:
        """The best passages of a fusion of rankings of passages, in which several may be of one document."""
        assert self.fusion is not None
        store, numbers = self.searcher.snapshot.documents, dict[str, int]()
        rankings = []
        for part in self.parts:
            top = part._ranker(text)(max(k, self.fusion.depth))
            ids = store.ids_of(top.numbers)
            numbers |= zip(ids, top.numbers.tolist(), strict=True)
            rankings.append([Ranking(ids, top.scores)])
        (fused,) = self.fusion.fused(rankings, k)
        return TopDocuments(np.array([numbers[p] for p in fused.documents], np.int64), fused.scores)

    def _rankings(self, texts: Sequence[str]) -> list[Ranking]:
        if self.fusion is not None:
            return self.fusion.fused([part._rankings(texts) for part in self.parts], self.k)
        snapshot = self.searcher.snapshot
        if snapshot.splitter is not None:
            return [ranking_of(hits) for hits in self._hits(texts, documents=False)]
        top = TopLists.of(self._found(texts))
        ids = snapshot.documents.id_lists(top.numbers, top.bounds)
        return Ranking.of_many(ids, top.scores, top.bounds.tolist())

    def top_k(self, queries: Sequence[Query], k: int) -> Sequence[TopDocuments]:
        """The best k documents of encoded queries."""
        if self.union is not None:
            return self._top_k_of_union(queries, k, max(k, self.union.depth))
        return self.searcher.top_k(queries, self.bound, k, *self._how)

    @property
    def _how(self) -> tuple[Filter | None, float, VectorIndex | None, int, Sequence[np.ndarray] | None]:
        """The arguments of `Searcher.top_k` besides the queries."""
        return self.condition, self.expected, self.vector_index, self.threads, self.masks

    def _top_k_of_union(self, queries: Sequence[Query], k: int, depth: int) -> Sequence[TopDocuments]:
        """The best documents by the sum of all parts, among those found by any part that searches for candidates."""
        assert self.union is not None
        finding = [p for p in self.bound.parts if self.union.name != CANDIDATES or not isinstance(p, TokenPart)]
        spaces = [part.space for part in finding]
        by_part = zip(*(parts_of(query, spaces) for query in queries), strict=True)
        top_k, rest = self.searcher.top_k, (depth, *self._how)
        found = zip(*(top_k(part, self.bound, *rest) for part in by_part), strict=True)
        unions = [union_of([hits.numbers for hits in parts]) for parts in found]
        pairs = zip(queries, unions, strict=True)
        return [self.searcher.top_k_among(query, self.bound, numbers, k) for query, numbers in pairs]

    def _fused_hits(self, fusion: Combination, texts: Sequence[str], documents: bool) -> list[Hits]:
        """Fused rankings as hits; a split document is shown by the passage that the first part found."""
        snapshot = self.searcher.snapshot
        if snapshot.splitter is None:
            return self._ranking_hits(self._rankings(texts), documents)
        rows = [part._hits(texts, documents) for part in self.parts]
        fused = fusion.fused([[ranking_of(hits) for hits in part] for part in rows], self.k)
        by_query = zip(*rows, strict=True)
        known = [{hit.id: hit for hits in reversed(found) for hit in hits} for found in by_query]
        return [
            Hits(found[d].at_rank(rank, score) for rank, (d, score) in enumerate(ranking, 1))
            for ranking, found in zip(fused, known, strict=True)
        ]

    def _ranking_hits(self, rankings: Sequence[Ranking], documents: bool) -> list[Hits]:
        """Rankings of whole documents as hits."""
        if not documents:
            return [Hits.from_columns(ranking.documents, ranking.scores.tolist()) for ranking in rankings]
        store = self.searcher.snapshot.documents
        numbers = store.numbers_of_many({doc_id for ranking in rankings for doc_id in ranking.documents})
        rows = [np.array([numbers[d][0] for d in ranking.documents], np.int64) for ranking in rankings]
        tops = [TopDocuments(r, x.scores) for r, x in zip(rows, rankings, strict=True)]
        return hits_of(store, tops, documents, below=self._complete_below)


def combination_of(text: str | None) -> Combination:
    """How the parts of a sum become one ranking, from its text; None stands for the sum."""
    return _SUM if text is None else Combination.parse(check_text(text, "combine", "rrf"))


def _with_params(searcher: Searcher, bound: BoundModel, search_params: object) -> VectorIndex:
    """How dense vectors are searched with other parameters than the index's own."""
    text = check_text(search_params, "search_params", "ef_search=200").strip()
    if isinstance(searcher.snapshot.vector_index, Plaid):
        if text != "exact" and not bound.tokens:
            raise VizslaError(f"the model reads no token vectors, so {text!r} has no effect")
    elif text != "exact" and not bound.dense:
        own = searcher.snapshot.model.parts
        where = "the model reads" if any(isinstance(p.component, DenseComponent) for p in own) else "the index has"
        raise VizslaError(f"{where} no dense vectors, so {text!r} has no effect")
    return searcher.snapshot.vector_index.with_search_params(text)


def _check_passages(searcher: Searcher, page: Page | None, max_tokens: int | None) -> None:
    """Refuse passages of whole documents, and texts of an index that has none."""
    snapshot = searcher.snapshot
    if page is not None and (page.passages > 1 or page.window) and snapshot.splitter is None:
        raise UnsupportedError(
            f"{snapshot.path}: the index holds whole documents; build it with passages=200 to search for passages"
        )
    if not snapshot.documents.has_texts and (max_tokens is not None or (page is not None and page.window)):
        raise UnsupportedError(f"{snapshot.path}: the index stores no texts, so window and max_tokens cannot be used")


def best_within(hits: Hits, max_tokens: int, documents: bool) -> Hits:
    """The best hits whose texts have so many tokens; without `documents` they have ids and scores only."""
    fitting = hits.within(max_tokens)
    if documents or not fitting:
        return fitting
    passages = [hit.passage for hit in fitting]
    bare = Hits.from_columns(fitting.ids, fitting.scores, first=fitting[0].rank, passages=passages, total=hits.total)
    return bare.with_spelling(did_you_mean=hits.did_you_mean, corrected=hits.corrected)


def _share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        written = f"{value:g}" if isinstance(value, float) else kind_of(value)
        raise VizslaError(f"approximate goes from 0 to 1, where the search is exact, not {written}")
    return value


def check_text(value: object, name: str, example: str) -> str:
    """A text, and nothing else; `example`: one that could be given."""
    if not isinstance(value, str):
        raise VizslaError(f"{name} is a text, as in {example!r}, not {kind_of(value)}")
    return value


def positive(number: object, name: str) -> int:
    """A positive integer of any integer type, as an int; raises an error for anything else."""
    try:
        if isinstance(number, bool):
            raise TypeError
        whole = operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        written = repr(number) if isinstance(number, str | float) else kind_of(number)
        raise VizslaError(f"{name} must be a whole number, not {written}") from None
    if whole < 1:
        raise VizslaError(f"{name} must be 1 or more, not {whole}")
    return whole


# Hits from the top documents that the engine has found


_TOGETHER = 1000  # documents of several queries that are read together, when one of them is looked at


def hits_of(
    store: DocumentStore, found: Sequence[TopDocuments], documents: bool, first: int = 1, below: int = 0
) -> list[Hits]:
    """Hits with their ids; their documents are read together when one of them is looked at.

    Without `documents` they have none. `first`: the rank of the first. `below`: fewer hits than this are all.
    """
    top = TopLists.of(found)
    bounds: list[int] = top.bounds.tolist()
    queries = len(bounds) - 1
    lists = HitLists(store.id_lists(top.numbers, top.bounds), top.scores, top.numbers, bounds, first, below)
    if not documents:
        return lists.hits(range(queries), NO_DOCUMENTS)
    hits: list[Hits] = []
    while len(hits) < queries:  # neighbouring queries share a source up to a number of documents
        start = len(hits)
        end = max(bisect_right(bounds, bounds[start] + _TOGETHER) - 1, start + 1)
        hits += lists.hits(range(start, end), store.found(top.numbers[bounds[start] : bounds[end]]))
    return hits


def passage_hits(
    store: DocumentStore,
    top: TopDocuments,
    documents: bool,
    first: int = 1,
    below: int = 0,
    windows: Sequence[np.ndarray] | None = None,
) -> Hits:
    """Hits of documents from the passages that were found; fewer than `below` are all.

    `windows`: the numbers of the passages that each hit shows; without them it shows the one that was found.
    """
    rows = store.ids_of(top.numbers)
    ids, passages = [document_of(row) for row in rows], [passage_of(row) for row in rows]
    source: DocumentSource = NO_DOCUMENTS
    if documents and windows is not None:
        source = store.found(top.numbers, dict(zip(top.numbers.tolist(), windows, strict=True)))
    elif documents:
        source = store.found(top.numbers)
    total = len(ids) if len(ids) < below else None
    return Hits.from_columns(ids, top.scores.tolist(), top.numbers, source, first=first, passages=passages, total=total)


def best_passages(store: DocumentStore, search: Callable[[int], TopDocuments], k: int) -> TopDocuments:
    """The best passages of the best k documents: more passages are searched until there are enough documents."""
    depth = k
    while True:
        top = search(depth)
        best: dict[str, int] = {}
        for place, row in enumerate(store.ids_of(top.numbers)):
            best.setdefault(document_of(row), place)
        if len(best) >= k or len(top.numbers) < depth:
            places = np.array(list(best.values())[:k], np.int64)
            return TopDocuments(top.numbers[places], top.scores[places])
        depth *= 4
