"""What an index knows of its terms and vectors: term statistics, vectors as data, sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from vizsla.engine import by_document
from vizsla.errors import VizslaError
from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.search.bound_model import DensePart, SparsePart
from vizsla.index.search.searcher import Searcher
from vizsla.models import Model

_DOCUMENTS = 1024  # whose vectors are read at once


class TermStatistics(NamedTuple):
    """How common a term is in the living documents."""

    namespace: str
    term: str
    documents: int
    occurrences: float


def term_statistics(searcher: Searcher, text: str) -> list[TermStatistics]:
    """For each term of a text, in each namespace: in how many documents and how often it occurs."""
    found = []
    for part in searcher.own.sparse:
        terms = list(dict.fromkeys(token.term for token in part.component.tokens(text)))
        numbers, frequencies = part.statistics.terms.lookup(part.space, terms)
        counts = frequencies.tolist(), _occurrences(searcher.snapshot, numbers)
        found += [TermStatistics(part.component.namespace, *row) for row in zip(terms, *counts, strict=True)]
    return found


def _occurrences(snapshot: Snapshot, numbers: np.ndarray) -> list[float]:
    """How often terms occur in living documents, or the sums of their weights."""
    totals = np.zeros(len(numbers))
    with snapshot.naming_damage():
        for segment, alive in zip(snapshot.segments, snapshot.alive, strict=True):
            for i, number in enumerate(numbers.tolist()):
                documents, values = segment.list_of(number)
                totals[i] += values.sum() if alive is None else values[alive[documents]].sum()
    return totals.tolist()


def bytes_of(searcher: Searcher, model: Model) -> int:
    """What an index of this model alone would take, without the documents."""
    snapshot, total = searcher.snapshot, 0
    for part in searcher.bind(model).parts:
        if not isinstance(part, SparsePart):
            total += sum(segment.vector_bytes(part.space) + segment.numbers.nbytes for segment in snapshot.segments)
            continue
        terms = snapshot.terms.numbers_of(part.space)
        with snapshot.naming_damage():
            total += sum(segment.bytes_of(terms) for segment in snapshot.segments)
    return total


def document_vectors(searcher: Searcher) -> Iterator[tuple[int, dict[str, float]]]:
    """The number of each living document and the full weights of its terms, idf included.

    In a sum the terms are prefixed by their namespaces.
    """
    if searcher.own.has_vectors:
        name = next(part.component.name for part in searcher.own.parts if not isinstance(part, SparsePart))
        raise VizslaError(
            f"the vectors of {name} have no terms to list; dense and token vectors are exported as arrays"
        )
    snapshot, parts = searcher.snapshot, searcher.own.sparse
    names, spaces, factors = _term_table(snapshot, parts)
    weightings = [p.component.weighting(p.statistics) for p in parts]
    for segment, alive in zip(snapshot.segments, snapshot.alive, strict=True):
        with snapshot.naming_damage():
            pointers, terms, values = by_document(segment)
        for row in range(len(segment)) if alive is None else np.flatnonzero(alive).tolist():
            numbers = terms[pointers[row] : pointers[row + 1]]
            stored = values[pointers[row] : pointers[row + 1]]
            weights = np.zeros(len(numbers))
            for space, weighting in enumerate(weightings):
                here = spaces[numbers] == space
                codes = np.full(int(here.sum()), segment.lengths[space, row])
                weights[here] = weighting.weigh(stored[here], codes) * factors[numbers[here]]
            yield int(segment.numbers[row]), dict(zip((names[n] for n in numbers), weights.tolist(), strict=True))


class VectorBlock(NamedTuple):
    """The dense and the token vectors of some neighbouring living documents."""

    numbers: list[int]
    vectors: dict[str, np.ndarray]
    """By namespace: the numbers that stored vectors stand for, those of one document behind those of the other."""
    sizes: dict[str, np.ndarray]
    """By namespace with token vectors: how many of them each document has."""


def vector_blocks(searcher: Searcher) -> Iterator[VectorBlock]:
    """The dense and token vectors of all living documents, some documents at a time."""
    snapshot = searcher.snapshot
    parts = [part for part in searcher.own.parts if not isinstance(part, SparsePart)]
    if not parts:
        raise VizslaError(f"{searcher.own.model.name} has no dense or token vectors; export its terms as jsonl or npz")
    for segment, alive in zip(snapshot.segments, snapshot.alive, strict=True):
        for first in range(0, len(segment), _DOCUMENTS):
            last = min(first + _DOCUMENTS, len(segment))
            kept = np.ones(last - first, np.bool_) if alive is None else alive[first:last]
            vectors, sizes = {}, {}
            with snapshot.naming_damage():
                for part in parts:
                    name = part.component.namespace
                    if isinstance(part, DensePart):
                        vectors[name] = segment.dense[part.space][first:last][kept]
                        continue
                    rows = segment.tokens[part.space]
                    bounds = rows.bounds(first, last)
                    own = np.diff(bounds)
                    vectors[name] = rows.vectors[int(bounds[0]) : int(bounds[-1])][np.repeat(kept, own)]
                    sizes[name] = own[kept]
            yield VectorBlock(segment.numbers[first:last][kept].tolist(), vectors, sizes)


def _term_table(snapshot: Snapshot, parts: Sequence[SparsePart]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """For each term number its label, its namespace, and the weight of a query that has it once."""
    size = snapshot.meta["next_term"]
    labels, spaces, factors = [""] * size, np.zeros(size, np.int64), np.zeros(size)
    for part in parts:
        prefix = "" if len(parts) == 1 else f"{part.component.namespace}:"
        rows = snapshot.terms.all_of(part.space, size)
        (weights,) = part.query_weights([{term: 1.0 for _, term in rows}])
        for number, term in rows:
            labels[number], spaces[number] = prefix + term, part.space
            factors[number] = weights.get(term, 0.0)
    return labels, spaces, factors
