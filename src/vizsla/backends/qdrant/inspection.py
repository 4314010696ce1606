"""Questions about a collection that most users never have."""

from __future__ import annotations

from vizsla.backends.qdrant import scanning
from vizsla.backends.qdrant.index import QdrantIndex
from vizsla.errors import VizslaError
from vizsla.index import TermStatistics
from vizsla.index.search.similar import query_like
from vizsla.models import Model
from vizsla.runs import Filter, FilterLike, document_id
from vizsla.runs.retriever import check_query


def term_statistics(index: QdrantIndex, text: str) -> list[TermStatistics]:
    """For each term of a text, in each namespace: in how many documents and how often it occurs."""
    return index.reader.term_statistics(check_query(text))


def matching_ids(index: QdrantIndex, filter: FilterLike) -> list[str]:
    """The ids of the documents that pass a filter, in the order of insertion."""
    condition, reader = Filter.of(filter), index.reader
    if condition is None:
        raise VizslaError("the filter is empty; expected something like year >= 1999")
    translated = reader.translated(condition)
    found = scanning.all_points(reader.connection, reader.state.base, document=False, condition=translated)
    return [p.doc_id for p in sorted((p for some in found for p in some), key=lambda p: p.number)]


def similar_query(index: QdrantIndex, doc_id: str | int, *, model: Model | None = None) -> str:
    """The query that finds documents like a document, as an index makes it; see `vizsla.index.similar_query`."""
    wanted, reader = document_id(doc_id), index.reader
    document = index.get(wanted)
    if document is None:
        raise VizslaError(f"there is no document with the id {wanted!r}")
    return query_like(document, reader.own if model is None else reader.bind(model))


def generation(index: QdrantIndex) -> int:
    """The number of the commit that searches see."""
    return index.reader.state.generation
