"""An index for other engines: its documents, posting lists and queries as data, a little at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from vizsla.datasets import document_of
from vizsla.errors import VizslaError
from vizsla.index.index import Index
from vizsla.index.search import exported
from vizsla.index.search.exported import EncodedQuery, TermList


class ExportFacts(NamedTuple):
    """The facts of an index that another engine needs before the documents."""

    model: str
    sparse: tuple[str, ...]
    """The namespaces of terms."""
    dense: dict[str, int]
    """The namespaces of dense vectors, and how many numbers a vector has."""
    has_passages: bool
    has_texts: bool


class ExportedDocument(NamedTuple):
    """A document or passage for another engine."""

    id: str
    """Of a passage: the document's id, `#` and the passage's number."""
    document: str
    """The id of the whole document."""
    terms: dict[str, dict[str, float]]
    """By namespace the full weights of terms."""
    vectors: dict[str, np.ndarray]
    """By namespace dense vectors; a document without a known token has none."""
    content: dict[str, Any]
    """Its fields, if they are asked for."""


def facts_for_export(index: Index) -> ExportFacts:
    """The facts for an export; raises an error if the scores of the index are not inner products."""
    with index._reading() as searcher:
        exported.check_exportable(searcher)
        own, snapshot = searcher.own, searcher.snapshot
        sizes = {part.component.namespace: part.component.dimensions for part in own.dense}
        return ExportFacts(
            own.model.name,
            tuple(part.component.namespace for part in own.sparse),
            sizes,
            snapshot.splitter is not None,
            snapshot.documents.has_texts,
        )


def document_vectors(index: Index) -> Iterator[tuple[str, dict[str, float]]]:
    """The id of each document and the full weights of its terms, idf included.

    A document in passages has a vector for each of them, one after the other, all with its id.
    """
    with index._reading() as searcher:
        snapshot = searcher.snapshot
        for number, vector in exported.document_vectors(searcher):
            stored = snapshot.documents.ids([number])[number]
            yield stored if snapshot.splitter is None else document_of(stored), vector


def exported_documents(index: Index, *, contents: bool = False) -> Iterator[ExportedDocument]:
    """All documents or passages with their vectors, in the order of insertion; `contents`: with their fields."""
    with index._reading() as searcher:
        snapshot = searcher.snapshot
        documents = snapshot.documents
        if contents and not documents.has_texts:
            raise VizslaError(f"{index.path}: this index keeps no texts to export")
        for some in exported.exported_vectors(searcher):
            numbers = [row.number for row in some]
            ids = documents.ids(numbers)
            fields = documents.by_number(numbers) if contents else {}
            for number, terms, vectors in some:
                stored = ids[number]
                whole = stored if snapshot.splitter is None else document_of(stored)
                content = dict(fields[number].content) if contents else {}
                yield ExportedDocument(stored, whole, terms, vectors, content)


def stored_ids(index: Index) -> Iterator[str]:
    """The ids of all documents or passages, in the order of insertion."""
    with index._reading() as searcher:
        numbers = searcher.snapshot.numbers()
        for first in range(0, len(numbers), 1000):
            some = numbers[first : first + 1000].tolist()
            ids = searcher.snapshot.documents.ids(some)
            yield from (ids[number] for number in some)


def term_lists(index: Index, *, weighted: bool = False) -> Iterator[TermList]:
    """The posting lists of all terms of a sparse model, in the order of their UTF-8 bytes.

    `weighted`: full weights, idf included, instead of what is stored.
    """
    with index._reading() as searcher:
        yield from exported.term_lists(searcher, weighted=weighted)


def stores_whole_numbers(index: Index) -> bool:
    """Whether posting lists hold counts or whole weights, which another engine can take as they are."""
    with index._reading() as searcher:
        return exported.stores_whole_numbers(searcher)


def document_lengths(index: Index) -> np.ndarray:
    """The length of each document or passage for a sparse model, in the order of insertion."""
    with index._reading() as searcher:
        return exported.document_lengths(searcher)


def max_norms(index: Index) -> dict[str, float]:
    """The length of the longest vector of each dense namespace; every vector is read once."""
    with index._reading() as searcher:
        return exported.max_norms(searcher)


def encoded_queries(index: Index, texts: Sequence[str]) -> list[EncodedQuery]:
    """Queries as weighted terms, without idf, and dense vectors: for the documents of `exported_documents`."""
    with index._reading() as searcher:
        return exported.encoded_queries(searcher, texts)
