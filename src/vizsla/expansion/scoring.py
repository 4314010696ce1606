"""How well generated queries fit their documents: each is scored with its own document, by a model or a reranker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np

from vizsla.errors import VizslaError
from vizsla.expansion.records import queries_of
from vizsla.models import (
    QUERIES,
    SAMPLE,
    CountedStatistics,
    DenseComponent,
    Model,
    SparseComponent,
    count_statistics,
    field_text,
    text_problem,
)
from vizsla.retrievers import PairScorer
from vizsla.runs import Document
from vizsla.runs.documents import refusal

BATCH = 2000
"""Queries that are scored together, or those of one document if they are more."""


class QueryScorer(ABC):
    """Scores queries with their own documents, batch by batch."""

    name: str

    def fit(self, documents: Iterable[Document]) -> None:
        """Count what the scores depend on, over all documents, before the first score."""
        del documents

    @property
    def needs_fit(self) -> bool:
        """Whether `fit` has to see the documents."""
        return False

    @abstractmethod
    def scores(self, documents: Sequence[Document], queries: Sequence[Sequence[str]]) -> np.ndarray:
        """The scores of the queries of each document with that document, one after the other."""


class RerankerScorer(QueryScorer):
    """A cross-encoder, as Doc2Query-- filters with."""

    def __init__(self, reranker: PairScorer) -> None:
        self._reranker = reranker
        self.name = reranker.name
        _check_fields(self.name, reranker.fields)

    def scores(self, documents: Sequence[Document], queries: Sequence[Sequence[str]]) -> np.ndarray:
        contents = _contents(documents, self._reranker.fields)
        texts = [field_text(content, self._reranker.fields) for content in contents]
        repeated = [text for text, some in zip(texts, queries, strict=True) for _ in some]
        flat = [query for some in queries for query in some]
        return np.asarray(self._reranker.pair_scores(flat, repeated), np.float64) if flat else np.zeros(0)


class ModelScorer(QueryScorer):
    """Any model that searches: the score that a search of the documents would give the query and the document."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = model.name
        _check_fields(self.name, model.fields)
        self._statistics: dict[str, CountedStatistics] = {}
        self._encoders: dict[str, Any] = {}

    @property
    def needs_fit(self) -> bool:
        return self._is_unfitted or any(map(_needs_statistics, self._model.parts))

    @property
    def _is_unfitted(self) -> bool:
        return self._model.needs_fit or self._model.needs_corpus_statistics

    def fit(self, documents: Iterable[Document]) -> None:
        """Count the statistics of the collection; a model whose weights are fitted reads its first documents."""
        contents: Iterator[Mapping[str, Any]] = (_contents([document], self._model.fields)[0] for document in documents)
        if self._is_unfitted:
            # A model with frozen statistics is fitted to all documents in memory, one with fitted weights to a few.
            held = list(islice(contents, None if self._model.needs_corpus_statistics else SAMPLE))
            self._model = self._model.fit(held)
            contents = chain(held, contents)
        counters = {
            part.component.namespace: (part.component.document_encoder(), Counter[str](), Counter[str]())
            for part in self._model.parts
            if isinstance(part.component, SparseComponent) and _needs_statistics(part)
        }
        while batch := list(islice(contents, BATCH)):
            for encoder, totals, frequencies in counters.values():
                counted = count_statistics(encoder.encode(batch))
                totals.update(documents=counted.documents, length=counted.total_length)
                totals["longest"] = max(totals["longest"], counted.longest)
                frequencies.update(counted.frequencies)
        self._statistics = {
            name: CountedStatistics(totals["documents"], totals["length"], totals["longest"], frequencies)
            for name, (_, totals, frequencies) in counters.items()
        }

    def scores(self, documents: Sequence[Document], queries: Sequence[Sequence[str]]) -> np.ndarray:
        contents = _contents(documents, self._model.fields)
        flat = [query for some in queries for query in some]
        rows = np.repeat(np.arange(len(documents)), [len(some) for some in queries])
        total = np.zeros(len(flat))
        if not flat:
            return total
        for weight, component in self._model.parts:
            if isinstance(component, SparseComponent):
                total += weight * self._sparse(component, contents, flat, rows)
            elif isinstance(component, DenseComponent):
                own, _ = component.document_embeddings(contents)
                asked, _ = component.query_embeddings(flat)
                total += weight * np.einsum("ij,ij->i", own[rows].astype(np.float64), asked.astype(np.float64))
            else:
                raise VizslaError(f"{component.name} is neither a sparse nor a dense component, so it cannot score")
        return total

    def _sparse(
        self, component: SparseComponent, contents: Sequence[Mapping[str, Any]], queries: Sequence[str],
        rows: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        space = component.namespace
        encoder = self._encoders.setdefault(space, component.document_encoder())
        statistics = self._statistics.get(space, _EVERY_TERM)
        vectors = component.weigh(encoder.encode(contents), statistics)
        ((_, terms),) = vectors.vocabulary.parts
        weights = [
            dict(zip(map(terms.__getitem__, vectors.indices[a:z].tolist()), vectors.values[a:z].tolist(), strict=True))
            for a, z in pairwise(vectors.pointers.tolist())
        ]
        weighted = component.query_weights(component.query_terms(queries), statistics)
        pairs = zip(weighted, rows.tolist(), strict=True)
        return np.array([sum(w * weights[row].get(term, 0.0) for term, w in query.items()) for query, row in pairs])


class _EveryTerm(CountedStatistics):
    """The statistics for models that do not depend on any: every term is known."""

    def document_frequencies(self, terms: Sequence[str]) -> np.ndarray:
        return np.ones(len(terms), np.int64)


_EVERY_TERM = _EveryTerm(1, 1, 1, {})


def _needs_statistics(part: Any) -> bool:
    """Whether scores depend on the collection: on lengths or document frequencies."""
    component = part.component
    if not isinstance(component, SparseComponent):
        return False
    plain = type(component).term_factors is SparseComponent.term_factors
    return not plain or component.weighting(_EVERY_TERM).norms is not None


def _check_fields(name: str, fields: Sequence[str]) -> None:
    if QUERIES in fields:
        raise VizslaError(
            f"{name} reads the field {QUERIES!r} itself, so it would find each query in its document; score with a "
            "model that reads the documents alone"
        )


def _contents(documents: Sequence[Document], fields: Sequence[str]) -> list[Mapping[str, Any]]:
    """What a model reads of documents; a field that is not a text is refused."""
    contents = []
    for document in documents:
        content = document.with_fields(fields).content
        problem = text_problem(content, fields)
        if problem is not None:
            raise refusal(f"the document {document.id!r} {problem}", document.origin)
        contents.append(content)
    return contents


def batches(documents: Iterable[Document], first: int | None) -> Iterator[tuple[list[Document], list[list[str]]]]:
    """Documents with their queries, or the first of them, in batches of about `BATCH` queries."""
    batch: list[Document] = []
    queries: list[list[str]] = []
    size = 0
    for document in documents:
        batch.append(document)
        queries.append(queries_of(document)[:first])
        size += len(queries[-1]) + 1
        if size >= BATCH:
            yield batch, queries
            batch, queries, size = [], [], 0
    if batch:
        yield batch, queries
