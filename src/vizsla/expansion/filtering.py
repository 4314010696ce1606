"""Generated queries scored with their documents and filtered, as in Doc2Query--, or cut to the first ones."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from vizsla.errors import VizslaError
from vizsla.expansion.output import queries_of, whole_line
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
    """Scores by a cross-encoder, as in Doc2Query--."""

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
    """Scores by any retrieval model: those that a search of the documents would give."""

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


_CHUNK = 1 << 20  # scores that are read at once
_HALF = 16  # bits of a score that are counted at once

Read = Callable[[], Iterable[Document]]
"""Reads the documents from the beginning."""
Progress = Callable[[str, int], None]
"""Is called with what is done ("reading", "scoring", "writing") and for how many documents."""


@dataclass(frozen=True)
class QueryFilter:
    """Which queries are kept: the best `share` of all, or those that score `min_score` or more; without both, all.

    `first`: only this many first queries of each document are considered.
    """

    scorer: QueryScorer | None = None
    share: float | None = None
    min_score: float | None = None
    first: int | None = None

    def __post_init__(self) -> None:
        if self.share is not None and not 0 < self.share <= 1:
            raise VizslaError(f"the share of queries to keep is above 0 and at most 1, not {self.share:g}")
        if self.first is not None and self.first < 1:
            raise VizslaError(f"the number of queries to keep of each document must be 1 or more, not {self.first}")
        if self.scorer is None and (self.share is not None or self.min_score is not None):
            raise VizslaError("a share or a score needs something that scores the queries; name a model or a reranker")
        if self.scorer is not None and (self.share is None) == (self.min_score is None):
            raise VizslaError("name either the share of queries to keep or the lowest score")
        if self.scorer is None and self.first is None:
            raise VizslaError("say what to keep: a share by a model's scores, or the first queries of each document")


@dataclass
class FilterReport:
    """What a filter has kept."""

    documents: int = 0
    queries: int = 0
    """Before filtering."""
    counted: int = 0
    """The queries that are considered: with `first`, only the first ones of each document."""
    kept: int = 0
    without_queries: int = 0
    """Documents that have no query left."""
    threshold: float | None = None
    """The lowest score that is kept."""


def filter_queries(
    read: Read, output: Path, chosen: QueryFilter, *, with_scores: bool = False, progress: Progress | None = None
) -> FilterReport:
    """Write the documents that `read` gives with only the queries that a filter keeps, in their order.

    The documents are read two or three times: to count statistics if the scorer needs them, to score, and to write.
    Scores are stored in a temporary file. Of queries whose score equals the threshold the first ones are kept, so that
    the share is exact. The output file appears only when it is complete.
    """
    if with_scores and chosen.scorer is None:
        raise VizslaError("there are no scores to write without a model or a reranker that scores the queries")
    report = FilterReport()
    with tempfile.TemporaryFile(prefix="vizsla-") as scores:
        ties = None
        if chosen.scorer is not None:
            count = _score(read, chosen.scorer, chosen.first, scores, progress)
            if chosen.share is not None:
                report.threshold, ties = _threshold(scores, count, round(chosen.share * count))
            else:
                report.threshold = chosen.min_score
        scores.seek(0)
        beside = output.with_name(output.name + ".new")
        try:
            with beside.open("wb") as file:
                values = scores if chosen.scorer is not None else None
                _write(read, chosen.first, values, ties, file, report, with_scores, progress)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(output)
        except BaseException:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise
    return report


def _score(read: Read, scorer: QueryScorer, first: int | None, scores: IO[bytes], progress: Progress | None) -> int:
    """Write the scores of all queries to a file and return their number."""
    if scorer.needs_fit:
        scorer.fit(_counted(read(), "reading", progress))
    count = done = 0
    for documents, queries in batches(read(), first):
        values = scorer.scores(documents, queries)
        if not np.isfinite(values).all():
            raise VizslaError(f"{scorer.name} gives a query a score that is not a finite number")
        scores.write(values.astype(np.float32).tobytes())
        count += len(values)
        done += len(documents)
        if progress is not None:
            progress("scoring", done)
    return count


def _write(
    read: Read, first: int | None, scores: IO[bytes] | None, ties: int | None, file: BinaryIO, report: FilterReport,
    with_scores: bool, progress: Progress | None,
) -> None:  # fmt: skip
    """Write the documents with the queries that are kept. `ties`: how many with exactly the threshold are kept."""
    left = ties
    for documents, queries in batches(read(), first):
        for document, some in zip(documents, queries, strict=True):
            values = None if scores is None else np.frombuffer(scores.read(4 * len(some)), np.float32)
            kept = list(range(len(some)))
            if values is not None:
                keep = values >= np.float32(report.threshold)
                if left is not None:
                    equal = np.flatnonzero(values == np.float32(report.threshold))
                    keep[equal[left:]] = False
                    left -= min(left, len(equal))
                kept = np.flatnonzero(keep).tolist()
            shown = [float(f"{values[i]:.6g}") for i in kept] if with_scores and values is not None else None
            file.write(whole_line(document, [some[i] for i in kept], shown))
            report.documents += 1
            report.queries += len(document["queries"])
            report.counted += len(some)
            report.kept += len(kept)
            report.without_queries += not kept
        if progress is not None:
            progress("writing", report.documents)


def _threshold(scores: IO[bytes], count: int, keep: int) -> tuple[float, int]:
    """The `keep`-th largest of the scores in a file, and how many that equal it are among the `keep` largest.

    Scores are mapped to integers in the same order, and counted by their upper and then by their lower 16 bits, so that
    memory does not grow with the file.
    """
    if keep < 1:
        return np.inf, 0
    upper, above = _place(_histogram(scores, count, None), keep)
    lower, more = _place(_histogram(scores, count, upper), keep - above)
    ordered = np.uint32((upper << _HALF) | lower)
    bits = ordered ^ np.uint32(0x80000000) if ordered >> np.uint32(31) else ~ordered
    return float(np.array([bits], np.uint32).view(np.float32)[0]), keep - above - more


def _place(histogram: np.ndarray, wanted: int) -> tuple[int, int]:
    """The bin that holds the `wanted`-th largest, and how many are in the bins above it."""
    from_above = np.cumsum(histogram[::-1])
    at = int(np.searchsorted(from_above, wanted))
    return len(histogram) - 1 - at, int(from_above[at] - histogram[::-1][at])


def _histogram(scores: IO[bytes], count: int, upper: int | None) -> np.ndarray:
    """How many scores have each upper half; or each lower half, of those with some upper half."""
    counted = np.zeros(1 << _HALF, np.int64)
    scores.seek(0)
    for values in _chunks(scores, count):
        bits = values.view(np.uint32)
        ordered = np.where(bits >> np.uint32(31), ~bits, bits | np.uint32(0x80000000))
        top = ordered >> np.uint32(_HALF)
        halves = top if upper is None else ordered[top == upper] & np.uint32((1 << _HALF) - 1)
        counted += np.bincount(halves, minlength=len(counted))
    return counted


def _chunks(scores: IO[bytes], count: int) -> Iterator[np.ndarray]:
    for _ in range(0, count, _CHUNK):
        values = np.frombuffer(scores.read(4 * _CHUNK), np.float32)
        yield values + np.float32(0)  # -0 becomes 0, which is equal to it


def _counted(documents: Iterable[Document], what: str, progress: Progress | None) -> Iterator[Document]:
    for number, document in enumerate(documents, 1):
        yield document
        if progress is not None and number % 500 == 0:
            progress(what, number)
