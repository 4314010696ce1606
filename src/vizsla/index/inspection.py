"""A closer look at an index: facets, suggestions, similar documents, term statistics, dense vectors, and more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from vizsla.datasets import document_of
from vizsla.errors import VizslaError, kind_of
from vizsla.index.index import Index
from vizsla.index.search import ann_recall, matching, pooling, statistics
from vizsla.index.search import facets as facet_counting
from vizsla.index.search import similar as similarity
from vizsla.index.search.ann_recall import Recall
from vizsla.index.search.facets import Facets
from vizsla.index.search.pooling import Pool
from vizsla.index.search.statistics import TermStatistics, VectorBlock
from vizsla.index.search.suggestions import Suggestion
from vizsla.index.storage import trust
from vizsla.models import Model
from vizsla.runs import Filter, FilterLike, Hits, document_id
from vizsla.runs.query_language import check_syntax
from vizsla.runs.retriever import check_query


def facets(
    index: Index,
    fields: Sequence[str],
    query: str | None = None,
    filter: FilterLike = None,
    *,
    model: str | Model | None = None,
    size: int = 10,
    syntax: str | None = None,
) -> Facets:
    """The values of fields over all documents that match, and how many documents have each; the counts are exact.

    A document matches if it passes the filter and a search for the query could find it, at whatever rank: it has a
    term of the query or, for a model with a dense part, a vector. Without a query all that pass the filter match.

    `fields`: as filters name them, `source.name` for a field inside of an object. Texts, numbers and booleans are
    counted; of a list each different element counts once a document. A field in which no document has one is refused.
    `size`: how many values to give for each field. `syntax`: the language of the query, as in `Index.search_many`.
    """
    text, condition, chosen = None if query is None else check_query(query), Filter.of(filter), index._model_of(model)
    with index._reading() as searcher:
        bound = searcher.own if chosen is None else searcher.bind(chosen)
        return facet_counting.count_facets(searcher, bound, fields, text, condition, size, check_syntax(syntax))


def facet_fields(index: Index) -> list[str]:
    """The fields worth counting, found by looking at the metadata of the first documents; at most a dozen.

    These are fields of short texts, numbers or booleans, or of lists of them, whose values come again or are few. The
    fields that the model reads are not among them.
    """
    with index._reading() as searcher:
        return facet_counting.facet_fields(searcher)


def suggest(index: Index, prefix: str, size: int = 8) -> list[Suggestion]:
    """Completions of the last word of what is typed, from the collection's own words; those in most documents first.

    A suggestion is the most frequent word, in some documents that are looked at, of a term that the index holds; its
    `documents` are those that have the term. Where the index keeps no texts, terms themselves are suggested. After a
    blank there is nothing to complete.
    """
    with index._reading() as searcher:
        return searcher.completer.suggest(prefix, size)


def similar(
    index: Index,
    doc_id: str | int,
    k: int = 10,
    filter: FilterLike = None,
    *,
    model: str | Model | None = None,
) -> Hits:
    """The k documents that are most like a document, best first, without the document itself.

    They are what a search finds for the query that `similar_query` gives.
    """
    wanted, chosen = document_id(doc_id), index._model_of(model)
    with index._reading() as searcher:
        return similarity.similar(searcher, wanted, k, filter, chosen)


def similar_query(index: Index, doc_id: str | int, *, model: str | Model | None = None) -> str:
    """The query that finds documents like a document.

    For a sparse model these are the document's 25 most telling words, those with the highest tf times idf; for one
    with a dense part the beginning of the document's text. A document without words has an empty query.
    """
    wanted, chosen = document_id(doc_id), index._model_of(model)
    with index._reading() as searcher:
        return similarity.similar_query(searcher, wanted, chosen)


def matching_ids(index: Index, filter: FilterLike) -> list[str]:
    """The ids of all documents that pass a filter, in the order of insertion."""
    condition = Filter.of(filter)
    if condition is None:
        raise VizslaError("give a filter, as in year < 1999; without one all documents would match")
    with index._reading() as searcher:
        return matching.matching_ids(searcher, condition)


def generation(index: Index) -> int:
    """The number of the commit that the Index object sees."""
    return index._searcher.snapshot.generation


def newest_generation(index: Index) -> int:
    """The number of the last commit that the folder of the index holds now; `refresh` would make it visible.

    This takes microseconds as long as nothing is written. If the folder holds another index by now, it is the number
    of that one's last commit, so ask `is_outdated` whether to refresh.
    """
    index._check_open()
    return index._searcher.snapshot.watch.newest().generation


def is_outdated(index: Index) -> bool:
    """Whether `refresh` would find something else than what the Index object sees; as cheap as `newest_generation`.

    That is a newer commit, another index in its place, or no index or a damaged one, which `refresh` tells as an error.
    """
    index._check_open()
    return not index._searcher.snapshot.is_newest


def term_statistics(index: Index, text: str) -> list[TermStatistics]:
    """For each term of a text, in each namespace: in how many documents and how often it occurs."""
    if not isinstance(text, str):
        raise VizslaError(f"term statistics need a text, not {kind_of(text)}")
    with index._reading() as searcher:
        return statistics.term_statistics(searcher, text)


def vector_blocks(index: Index) -> Iterator[tuple[list[str], VectorBlock]]:
    """The dense and token vectors of all documents, some documents at a time, with the ids of these documents."""
    with index._reading() as searcher:
        snapshot = searcher.snapshot
        for block in statistics.vector_blocks(searcher):
            stored = snapshot.documents.ids(block.numbers)
            ids = [stored[number] for number in block.numbers]
            yield ids if snapshot.splitter is None else [document_of(one) for one in ids], block


def pools(index: Index, queries: Sequence[str], depth: int = 100, model: Model | None = None) -> list[Pool]:
    """For each query the best `depth` documents of each part of a model, with their scores by all parts."""
    with index._reading() as searcher:
        return pooling.pools_of(searcher, queries, depth, model)


def scores_among(
    index: Index, queries: Sequence[str], documents: Sequence[str], model: Model | None = None
) -> Iterator[np.ndarray]:
    """For some queries at a time: [queries, documents] the scores of documents given by their ids, all different."""
    with index._reading() as searcher:
        yield from pooling.scores_among(searcher, queries, documents, model)


def measure_recall(
    index: Index,
    queries: Sequence[str],
    search_params: Sequence[str],
    k: int = 10,
    *,
    model: Model | None = None,
    batch_size: int = 1,
) -> list[Recall]:
    """What approximate dense search finds of the exact top k, and how fast it is; the first result is exact search."""
    with index._reading() as searcher:
        return ann_recall.measure_recall(searcher, model, queries, k, search_params, batch_size)


def bytes_of(index: Index, model: Model) -> int:
    """How many bytes an index of this model alone would take, without documents."""
    with index._reading() as searcher:
        return statistics.bytes_of(searcher, model)


def trust_vector_indexes(index: Index) -> int:
    """Let faiss open the vector indexes that were built on another machine; gives how many there are.

    Do this only if you know who made the index: faiss does not check the files it reads.
    """
    with index._reading() as searcher:
        hashes = {ann.sha256 for segment in searcher.snapshot.segments for ann in segment.ann.values()}
    for sha256 in hashes:
        trust.remember(sha256)
    return len(hashes)


def cache_sizes(index: Index) -> dict[str, int]:
    """How many filters, models, ids of documents and terms are kept in memory for the next searches."""
    with index._reading() as searcher:
        return {**searcher.cache_sizes, **searcher.snapshot.cache_sizes}
