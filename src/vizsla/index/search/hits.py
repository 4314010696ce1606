"""Hits from the top documents that the engine has found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vizsla.datasets import document_of, passage_of
from vizsla.engine import TopDocuments
from vizsla.index.reading.documents import DocumentStore
from vizsla.runs import NO_DOCUMENTS, DocumentSource, Hits

_TOGETHER = 1000  # documents of several queries that are read together, when one of them is looked at


def hits_of(store: DocumentStore, found: Sequence[TopDocuments], documents: bool, first: int = 1) -> list[Hits]:
    """Hits with their ids; their documents are read together when one of them is looked at.

    Without `documents` they have none. `first`: the rank of the first.
    """
    if len(found) == 1 and documents:  # the short way for what is asked most
        (top,) = found
        numbers = top.numbers
        ids, scores = store.ids_of(numbers), top.scores.tolist()
        return [Hits.from_columns(ids, scores, numbers, store.found([numbers]), first=first)]
    sources = _sources(store, [top.numbers for top in found]) if documents else [NO_DOCUMENTS] * len(found)
    return [
        Hits.from_columns(store.ids_of(top.numbers), top.scores.tolist(), top.numbers, source, first=first)
        for top, source in zip(found, sources, strict=True)
    ]


def _sources(store: DocumentStore, numbers: Sequence[np.ndarray]) -> list[DocumentSource]:
    """For each query what reads its documents, with those of its neighbours as long as they are not too many."""
    sources: list[DocumentSource] = []
    while len(sources) < len(numbers):
        end, size = len(sources), 0
        while end < len(numbers) and (end == len(sources) or size + len(numbers[end]) <= _TOGETHER):
            size += len(numbers[end])
            end += 1
        some = numbers[len(sources) : end]
        sources += [store.found(some)] * len(some)
    return sources


def passage_hits(store: DocumentStore, top: TopDocuments, documents: bool, first: int = 1) -> Hits:
    """Hits of documents by the passages that were found of them."""
    rows = store.ids_of(top.numbers)
    ids, passages = [document_of(row) for row in rows], [passage_of(row) for row in rows]
    source = store.found([top.numbers]) if documents else NO_DOCUMENTS
    return Hits.from_columns(ids, top.scores.tolist(), top.numbers, source, first=first, passages=passages)


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
