"""Hits from the top documents that the engine has found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from vizsla.datasets import document_of, passage_of
from vizsla.engine import TopDocuments
from vizsla.index.reading.documents import DocumentStore
from vizsla.runs import Document, Hit


def hits_of(store: DocumentStore, found: Sequence[TopDocuments], documents: bool) -> list[list[Hit]]:
    """Hits with their documents, all looked up together; without `documents` they have ids only."""
    numbers = {n for top in found for n in top.numbers.tolist()}
    if documents:
        stored = store.by_number(numbers)
    else:
        stored = {n: Document(doc_id, {}) for n, doc_id in store.ids(numbers).items()}
    pairs = (zip(top.numbers.tolist(), top.scores.tolist(), strict=True) for top in found)
    return [[Hit(rank, score, stored[n]) for rank, (n, score) in enumerate(some, 1)] for some in pairs]


def page_hits(store: DocumentStore, top: TopDocuments, documents: bool, offset: int, in_passages: bool) -> list[Hit]:
    """The hits of a page, ranked from where it begins; rows of passages become documents."""
    (hits,) = hits_of(store, [top], documents)
    if not in_passages:
        return [replace(hit, rank=offset + hit.rank) for hit in hits]
    return [
        Hit(offset + hit.rank, hit.score, Document(document_of(hit.id), hit.document.content), passage_of(hit.id))
        for hit in hits
    ]


def best_passages(search: Callable[[int], list[Hit]], k: int) -> list[Hit]:
    """The best k documents by their best passages: more passages are searched until there are enough documents."""
    depth = k
    while True:
        passages = search(depth)
        best: dict[str, Hit] = {}
        for hit in passages:
            document = Document(document_of(hit.id), hit.document.content)
            best.setdefault(document.id, Hit(len(best) + 1, hit.score, document, passage_of(hit.id)))
        if len(best) >= k or len(passages) < depth:
            return list(best.values())[:k]
        depth *= 4


def documents_by_id(store: DocumentStore, ids: set[str], documents: bool) -> dict[str, Document]:
    """Documents by id; without `documents` they have their id only."""
    if not documents:
        return {d: Document(d, {}) for d in ids}
    numbers = {n: d for d in ids for n in store.numbers_of(d)}
    return {numbers[n]: document for n, document in store.by_number(numbers).items()}
