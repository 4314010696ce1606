"""What is served: an index in a folder, or a collection in Qdrant, which cannot answer all that an index can."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vizsla import index as local
from vizsla.errors import VizslaError
from vizsla.index import Facets, Index, Suggestion, TermStatistics
from vizsla.index.inspection import cache_sizes as cache_sizes_of_index
from vizsla.models import Model
from vizsla.retrievers import open as open_location
from vizsla.runs import FilterLike

if TYPE_CHECKING:
    from vizsla.backends.qdrant.index import QdrantIndex

    Served = Index | QdrantIndex

_CLUSTERS = ("qdrant://", "qdrants://")


def is_cluster(location: str) -> bool:
    """Whether a location is the address of a collection in Qdrant.

    >>> is_cluster("qdrant://localhost:6333/my"), is_cluster("my.index")
    (True, False)
    """
    return location.lower().startswith(_CLUSTERS)


def open_served(location: str, memory: int) -> Served:
    """The index in a folder, or the collection at an address; `memory`: what writing to a folder may take."""
    if is_cluster(location):
        return open_location(location)  # type: ignore[return-value]
    return Index.open(Path(location).absolute(), memory=memory)


def generation(index: Served) -> int:
    """The number of the commit that searches see."""
    return local.generation(index) if isinstance(index, Index) else index.reader.state.generation


def is_outdated(index: Served) -> bool:
    """Whether `refresh` would find something newer; a collection in Qdrant looks for it by itself."""
    return isinstance(index, Index) and local.is_outdated(index)


def facet_fields(index: Served) -> list[str]:
    """Fields worth counting."""
    return local.facet_fields(index) if isinstance(index, Index) else []


def facets(
    index: Served,
    fields: Sequence[str],
    query: str | None,
    filter: FilterLike,
    *,
    model: Model | None,
    size: int,
    syntax: str | None = None,
) -> Facets:
    """How often the values of fields occur among the documents that match."""
    if isinstance(index, Index):
        return local.facets(index, fields, query, filter, model=model, size=size, syntax=syntax)
    raise VizslaError(
        "this index is in a cluster, where the values of fields are not counted over all documents; count the best "
        'ones, as in "over": 100'
    )


def similar_query(index: Served, doc_id: str, *, model: Model | None) -> str:
    """The query that finds documents like a document."""
    if isinstance(index, Index):
        return local.similar_query(index, doc_id, model=model)
    from vizsla.backends.qdrant import inspection

    return inspection.similar_query(index, doc_id, model=model)


def suggest(index: Served, prefix: str, size: int) -> list[Suggestion]:
    """Completions of the last word; there are none in a collection in Qdrant."""
    return local.suggest(index, prefix, size) if isinstance(index, Index) else []


def term_statistics(index: Served, text: str) -> list[TermStatistics]:
    """How common the terms of a text are."""
    return local.term_statistics(index, text) if isinstance(index, Index) else index.reader.term_statistics(text)


def matching_ids(index: Served, filter: FilterLike) -> list[str]:
    """The ids of the documents that pass a filter."""
    if isinstance(index, Index):
        return local.matching_ids(index, filter)
    from vizsla.backends.qdrant import inspection

    return inspection.matching_ids(index, filter)


def cache_sizes(index: Served) -> dict[str, int]:
    """How much is kept in memory for the next searches."""
    return cache_sizes_of_index(index) if isinstance(index, Index) else {}
