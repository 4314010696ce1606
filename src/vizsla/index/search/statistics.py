"""What an index knows of its terms and vectors: term statistics, dense and token vectors as data, sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vizsla.errors import VizslaError
from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.search.bound_model import DensePart, MatchPart, SparsePart
from vizsla.index.search.searcher import Searcher
from vizsla.models import Model
from vizsla.models.components import typed_terms

_DOCUMENTS = 1024  # whose vectors are read at once


class TermStatistics(NamedTuple):
    """How common a term is in the live documents."""

    namespace: str
    term: str
    documents: int
    occurrences: float
    words: tuple[str, ...] = ()
    """The words of the text that make the term."""
    is_piece: bool = False
    """Whether it is a piece of these words only."""


def term_statistics(searcher: Searcher, text: str) -> list[TermStatistics]:
    """For each term of a text, in each namespace: in how many documents and how often it occurs."""
    found = []
    for part in searcher.own.sparse:
        typed = typed_terms(text, part.component.tokens(text))
        terms = list(typed)
        numbers, frequencies = part.statistics.terms.lookup(part.space, terms)
        counts = frequencies.tolist(), _occurrences(searcher.snapshot, numbers)
        found += [
            TermStatistics(part.component.namespace, *row)
            for row in zip(terms, *counts, *zip(*typed.values(), strict=True), strict=True)
        ]
    return found


def _occurrences(snapshot: Snapshot, numbers: np.ndarray) -> list[float]:
    """How often terms occur in live documents, or the sums of their weights."""
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
    for part in searcher.bind(model).all_parts:
        if not isinstance(part, SparsePart):
            total += sum(segment.vector_bytes(part.space) + segment.numbers.nbytes for segment in snapshot.segments)
            continue
        terms = snapshot.terms.numbers_of(part.space)
        with snapshot.naming_damage():
            total += sum(segment.bytes_of(terms) for segment in snapshot.segments)
    return total


class VectorBlock(NamedTuple):
    """The dense and the token vectors of some neighbouring live documents."""

    numbers: list[int]
    vectors: dict[str, np.ndarray]
    """By namespace: the decoded vectors of the documents, concatenated."""
    sizes: dict[str, np.ndarray]
    """By namespace with token vectors: how many of them each document has."""


def vector_blocks(searcher: Searcher) -> Iterator[VectorBlock]:
    """The dense and token vectors of all live documents, some documents at a time."""
    snapshot = searcher.snapshot
    parts = [part for part in searcher.own.parts if not isinstance(part, SparsePart)]
    if any(isinstance(part, MatchPart) for part in parts):
        raise VizslaError(f"{searcher.own.model.name} has vectors in posting lists, which cannot be exported")
    if not parts:
        raise VizslaError(f"{searcher.own.model.name} has no dense or token vectors; export its terms as jsonl")
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
