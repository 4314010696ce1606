"""Hits from the top documents that the engine has found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vizsla.datasets import document_of, passage_of
from vizsla.engine import TopDocuments
from vizsla.index.reading.documents import DocumentStore
from vizsla.runs import Document, DocumentSource, Hit, lazy_hits

_TOGETHER = 1000  # documents of several queries that are read together, when one of them is looked at


class _NoDocuments:
    """Documents without content."""

    def document(self, number: int, doc_id: str) -> Document:  # noqa: ARG002 (a source like any other)
        return Document(doc_id, {})


_NO_DOCUMENTS = _NoDocuments()


def hits_of(store: DocumentStore, found: Sequence[TopDocuments], documents: bool, first: int = 1) -> list[list[Hit]]:
    """Hits with their ids; their documents are read together when one of them is looked at.

    Without `documents` they have none. `first`: the rank of the first.
    """
    if len(found) == 1 and documents:  # the short way for what is asked most
        (top,) = found
        numbers = top.numbers
        return [lazy_hits(numbers, store.ids_of(numbers), top.scores.tolist(), store.found([numbers]), first)]  # type: ignore[arg-type]
    sources = _sources(store, [top.numbers for top in found]) if documents else [_NO_DOCUMENTS] * len(found)
    return [
        lazy_hits(top.numbers, store.ids_of(top.numbers), top.scores.tolist(), source, first)  # type: ignore[arg-type]
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


def page_hits(store: DocumentStore, top: TopDocuments, documents: bool, offset: int, in_passages: bool) -> list[Hit]:
    """The hits of a page, ranked from where it begins; rows of passages become documents."""
    (hits,) = hits_of(store, [top], documents, offset + 1)
    return list(map(_document_hit, hits)) if in_passages else hits


def _document_hit(passage: Hit, rank: int | None = None) -> Hit:
    """The hit of a document from that of its passage."""
    return passage.as_passage(document_of(passage.id), passage_of(passage.id), rank or passage.rank)


def best_passages(search: Callable[[int], list[Hit]], k: int) -> list[Hit]:
    """The best k documents by their best passages: more passages are searched until there are enough documents."""
    depth = k
    while True:
        passages = search(depth)
        best: dict[str, Hit] = {}
        for hit in passages:
            doc_id = document_of(hit.id)
            if doc_id not in best:
                best[doc_id] = _document_hit(hit, len(best) + 1)
        if len(best) >= k or len(passages) < depth:
            return list(best.values())[:k]
        depth *= 4


def documents_by_id(store: DocumentStore, ids: set[str], documents: bool) -> dict[str, Document]:
    """Documents by id; without `documents` they have their id only."""
    if not documents:
        return {d: Document(d, {}) for d in ids}
    numbers = {n: d for d in ids for n in store.numbers_of(d)}
    return {numbers[n]: document for n, document in store.by_number(numbers).items()}
