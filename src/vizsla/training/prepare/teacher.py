"""Teachers: what gives a query and a document the score that a trained model is to learn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vizsla.datasets import Document
from vizsla.encoders.packages import package_of
from vizsla.errors import UnknownNameError, VizslaError
from vizsla.models import Model, Reranker, field_text, parse_model
from vizsla.vectors import DenseVectors, JoinedVectors, SparseVectors, Vectors

_PAIRS = 65_536  # dense products made at once
_QUERIES = 10_000  # encoded at once


def open_teacher(text: str) -> Model | Reranker:
    """A model by its expression or folder, or a cross-encoder by its folder, its ONNX file or its name.

    >>> open_teacher("bm25 + 0.5 * bm25-wp").name
    'bm25 + 0.5 * bm25-wp'
    """
    folder = Path(text)
    if (folder.is_dir() and not (folder / "model.json").is_file()) or text.endswith(".onnx") or package_of(text):
        return Reranker.open(folder)
    try:
        return parse_model(text)
    except UnknownNameError:
        if "/" not in text:
            raise
    return Reranker.open(text)


def teacher_scores(
    teacher: Model | Reranker,
    documents: Sequence[Document],
    queries: Sequence[str],
    query_numbers: np.ndarray,
    document_numbers: np.ndarray,
) -> np.ndarray:
    """[pairs] the score of each query with the document at the same place, both given by their numbers.

    A model that counts words counts them in all documents.
    """
    if isinstance(teacher, Reranker):
        texts = [field_text(documents[d].content, teacher.fields) for d in document_numbers.tolist()]
        scores = teacher.pair_scores([queries[q] for q in query_numbers.tolist()], texts)
    else:
        scores = _model_scores(teacher, documents, queries, query_numbers, document_numbers)
    if not np.isfinite(scores).all():
        raise VizslaError(f"the teacher {teacher.name} gives scores that are not finite")
    return scores


def _model_scores(
    model: Model, documents: Sequence[Document], queries: Sequence[str], query_numbers: np.ndarray,
    document_numbers: np.ndarray,
) -> np.ndarray:  # fmt: skip
    contents = [d.content for d in documents]
    if model.needs_corpus_statistics or model.needs_fit:
        model = model.fit(contents)
    if model.needs_texts:
        raise VizslaError(f"{model.name} searches before it scores, so it cannot be a teacher; name a model without it")
    statistics = model.statistics(contents)
    used, places = np.unique(document_numbers, return_inverse=True)
    encoded = model.encode_documents([contents[d] for d in used.tolist()], statistics)
    scores = np.zeros(len(query_numbers))
    for first in range(0, len(queries), _QUERIES):
        block = queries[first : first + _QUERIES]
        here = np.flatnonzero((query_numbers >= first) & (query_numbers < first + len(block)))
        vectors = model.encode_queries(block, statistics)
        scores[here] = pair_products(vectors, encoded, query_numbers[here] - first, places[here])
    return scores


def pair_products(
    queries: Vectors, documents: Vectors, query_numbers: np.ndarray, document_numbers: np.ndarray
) -> np.ndarray:
    """[pairs] the inner product of each query with the document at the same place.

    >>> queries = SparseVectors.from_rows([{"dog": 2.0}, {"cat": 1.0, "dog": 1.0}], "words")
    >>> documents = SparseVectors.from_rows([{"cat": 3.0}, {"dog": 4.0}], "words")
    >>> pair_products(queries, documents, np.array([0, 1, 1]), np.array([0, 0, 1])).tolist()
    [0.0, 3.0, 4.0]
    """
    if isinstance(queries, JoinedVectors) and isinstance(documents, JoinedVectors):
        numbers = query_numbers, document_numbers
        total: np.ndarray = _sparse_products(queries.sparse, documents.sparse, *numbers)
        total += _dense_products(queries.dense, documents.dense, *numbers)
        return total
    if isinstance(queries, DenseVectors) and isinstance(documents, DenseVectors):
        return _dense_products(queries, documents, query_numbers, document_numbers)
    assert isinstance(queries, SparseVectors)
    assert isinstance(documents, SparseVectors)
    return _sparse_products(queries, documents, query_numbers, document_numbers)


def _dense_products(
    queries: DenseVectors, documents: DenseVectors, query_numbers: np.ndarray, document_numbers: np.ndarray
) -> np.ndarray:
    products = np.zeros(len(query_numbers))
    for first in range(0, len(query_numbers), _PAIRS):
        part = slice(first, first + _PAIRS)
        for name, matrix in queries.parts.items():
            rows, others = matrix[query_numbers[part]], documents.parts[name][document_numbers[part]]
            products[part] += np.einsum("ij,ij->i", rows, others)
    return products


def _sparse_products(
    queries: SparseVectors, documents: SparseVectors, query_numbers: np.ndarray, document_numbers: np.ndarray
) -> np.ndarray:
    """Each query is laid out over all terms once, and the rows of its documents are looked up there."""
    known = documents.vocabulary
    numbers = [known.number(*queries.vocabulary[i]) for i in range(len(queries.vocabulary))]
    columns = np.array([len(known) if n is None else n for n in numbers], np.int64)
    weights, products = np.zeros(len(known) + 1), np.zeros(len(query_numbers))
    order = np.argsort(query_numbers, kind="stable")
    bounds = np.searchsorted(query_numbers[order], np.arange(len(queries) + 1)).tolist()
    for query in np.unique(query_numbers).tolist():
        own = slice(queries.pointers[query], queries.pointers[query + 1])
        weights[columns[queries.indices[own]]] = queries.values[own]
        weights[-1] = 0.0  # of terms that no document has
        for pair in order[bounds[query] : bounds[query + 1]].tolist():
            row = slice(*documents.pointers[document_numbers[pair] : document_numbers[pair] + 2].tolist())
            products[pair] = weights[documents.indices[row]] @ documents.values[row]
        weights[columns[queries.indices[own]]] = 0.0
    return products
