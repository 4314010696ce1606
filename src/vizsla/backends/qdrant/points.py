"""Documents as points: what an index would store of them, weighted, as vectors and payload; and points read again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from qdrant_client import QdrantClient, models

from vizsla.backends.qdrant.connection import Connection, Json
from vizsla.backends.qdrant.layout import COUNTS, DOCUMENT, ID, LENGTHS, NUMBER, SPARSE, point_id, vector_name
from vizsla.backends.qdrant.state import CollectionState
from vizsla.engine import Weighting
from vizsla.errors import CollectionError, VizslaError
from vizsla.index.writing.analysis import AnalysedBatch
from vizsla.index.writing.encoders import DenseBatch, NamespaceBatch, SparseBatch, TokenBatch
from vizsla.models import Component, Model, SparseComponent, Statistics
from vizsla.plain_data import parse_json
from vizsla.runs import Document

_MAX_WHOLE = 1 << 64  # integers below this are stored exactly by a server
_LONG_NUMBER = re.compile(r"\d{19}")
_POWERS = 10.0 ** np.arange(23)  # those that 64 bits hold exactly


class BatchNumbers:
    """Gives the terms of analysed batches their numbers in a collection.

    `numbers`: a function from some terms of a namespace to their numbers. An analyst has its own numbers and sends only
    new terms.
    """

    def __init__(self, numbers: Callable[[str, Sequence[str]], np.ndarray], namespaces: Sequence[str]) -> None:
        self._numbers = numbers
        self._namespaces = namespaces
        self._known: dict[tuple[int, int], np.ndarray] = {}

    def of(self, batch: AnalysedBatch) -> list[np.ndarray]:
        """For each namespace the term number of each posting; empty for a namespace with vectors."""
        found = []
        for space, rows in enumerate(batch.namespaces):
            if not isinstance(rows, SparseBatch):
                found.append(np.zeros(0, np.int64))
                continue
            key = batch.analyst, space
            known = np.zeros(0, np.int64) if batch.fresh else self._known[key]
            if rows.new_terms:
                known = np.concatenate([known, self._numbers(self._namespaces[space], rows.new_terms)])
            self._known[key] = known
            found.append(known[rows.indices])
        return found


class PointEncoder:
    """Turns analysed batches into points, weighted with frozen statistics.

    `statistics`: by namespace, see `CollectionState.frozen_statistics`. Stored are the document weights of terms in 32
    bits; idf and the weights of a sum are applied to queries.
    """

    def __init__(self, model: Model, statistics: Mapping[str, Statistics]) -> None:
        self._components = [part.component for part in model.parts]
        self._statistics = statistics

    def points(self, batch: AnalysedBatch, first: int, numbers: Sequence[np.ndarray]) -> Iterator[Json]:
        """The points of a batch, as requests have them; each is made when it is its turn.

        `first`: the insertion number of its first document. `numbers`: by namespace those of its postings' terms, see
        `BatchNumbers`. Vectors that cannot be stored are refused at once.
        """
        counts: dict[int, dict[str, float]] = {}
        adders = [
            self._terms(component, rows, own, counts) if isinstance(rows, SparseBatch) else _vectors(component, rows)
            for component, rows, own in zip(self._components, batch.namespaces, numbers, strict=True)
        ]
        lengths = np.array([rows.lengths for rows in batch.namespaces], np.int64).T.tolist()
        names = [component.namespace for component in self._components]

        def point(row: int, doc_id: str, metadata: str | None, fields: str | None) -> Json:
            vector: Json = {}
            for add in adders:
                add(row, vector)
            payload: Json = {
                ID: doc_id,
                NUMBER: first + row,
                LENGTHS: dict(zip(names, lengths[row], strict=True)),
                DOCUMENT: {**_object(fields), **_object(metadata)},
            }
            if row in counts:
                payload[COUNTS] = counts[row]
            return {"id": point_id(doc_id), "vector": vector, "payload": payload}

        return (point(row, *stored) for row, stored in enumerate(batch.stored))

    def _terms(
        self, component: Component, rows: SparseBatch, numbers: np.ndarray, counts: dict[int, dict[str, float]]
    ) -> _Adder:
        """Adds a document's terms of a namespace; to `counts` those that cannot be recovered from weights, by row."""
        assert isinstance(component, SparseComponent)
        weighting = weighting_of(component, self._statistics[component.namespace], rows.lengths)
        codes = np.repeat(component.length_codes(rows.lengths), rows.counts)
        weights = weighting.weigh(rows.values, codes).astype(np.float32)
        if not np.isfinite(weights).all():
            raise VizslaError(f"{component.name} gives a term a weight that 32 bits cannot hold")
        lost = np.flatnonzero(values_of(weighting, weights, codes) != rows.values)
        owners = np.repeat(np.arange(len(rows.counts)), rows.counts)[lost]
        for row, place in zip(owners.tolist(), lost.tolist(), strict=True):
            counts.setdefault(row, {})[str(numbers[place])] = rows.values[place].item()
        indices, values = numbers.tolist(), in_nine_digits(weights).tolist()
        ends = [0, *np.cumsum(rows.counts).tolist()]

        def add(row: int, vector: Json) -> None:
            start, end = ends[row], ends[row + 1]
            if end > start:
                terms = vector.setdefault(SPARSE, {"indices": [], "values": []})
                terms["indices"] += indices[start:end]
                terms["values"] += values[start:end]

        return add


_Adder = Callable[[int, Json], None]
"""Adds what a component has of a document, given by its row, to the vectors of its point."""


def _vectors(component: Component, rows: NamespaceBatch) -> _Adder:
    """Adds a document's vector, or its token vectors, if it has any."""
    assert isinstance(rows, DenseBatch | TokenBatch)
    name, vectors = vector_name(component), in_nine_digits(rows.vectors)
    starts = rows.starts.tolist() if isinstance(rows, TokenBatch) else None
    lengths = rows.lengths

    def add(row: int, vector: Json) -> None:
        if starts is None:
            if lengths[row]:
                vector[name] = vectors[row].tolist()
        elif starts[row + 1] > starts[row]:
            vector[name] = vectors[starts[row] : starts[row + 1]].tolist()

    return add


def in_nine_digits(values: np.ndarray) -> np.ndarray:
    """Numbers of 32 bits in 64, each rounded so that its text has at most nine digits and still means the same 32 bits.

    Otherwise most texts have 17 digits or more, which takes longer to send and to read.

    >>> np.float32(0.1).item(), in_nine_digits(np.array([0.1, 3], np.float32)).tolist()
    (0.10000000149011612, [0.100000001, 3.0])
    """
    wide = values.astype(np.float64)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        power = 8 - np.floor(np.log10(np.abs(wide)))
        scale = _POWERS[np.clip(np.nan_to_num(power), 0, len(_POWERS) - 1).astype(np.int64)]
        rounded = np.rint(wide * scale) / scale
        exact: np.ndarray = np.where(rounded.astype(np.float32) == values, rounded, wide)
    return exact


def _object(text: str | None) -> dict[str, Any]:
    return {} if text is None else parse_json(text)


def weighting_of(component: SparseComponent, statistics: Statistics, lengths: np.ndarray) -> Weighting:
    """The weighting under frozen statistics, for documents that may be longer than all that were counted."""
    longest = int(max(statistics.longest, lengths.max(initial=0)))
    return component.weighting(_Longer(statistics, longest))


@dataclass(frozen=True)
class _Longer:
    """Statistics with another longest document."""

    other: Statistics
    longest: int

    @property
    def documents(self) -> int:
        return self.other.documents

    @property
    def total_length(self) -> int:
        return self.other.total_length

    def document_frequencies(self, terms: Sequence[str]) -> np.ndarray:
        return self.other.document_frequencies(terms)


def values_of(weighting: Weighting, weights: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The stored values that 32-bit weights come from, in 64 bits: counts as whole numbers.

    Most are recovered exactly. A count that is not, because it is so high that one more does not change the weight, is
    stored in the payload.
    """
    values = weighting.values_of(weights, codes)
    return values if weighting.norms is None else np.maximum(np.rint(np.nan_to_num(values, posinf=0, neginf=0)), 1)


@dataclass(frozen=True, eq=False)
class StoredPoint:
    """A point as it was read back."""

    doc_id: str
    number: int
    lengths: dict[str, int]
    content: dict[str, Any]
    counts: dict[int, float]
    """Values of terms that cannot be recovered from the weights, by term number."""
    terms: np.ndarray
    weights: np.ndarray
    vectors: dict[str, np.ndarray]
    """Dense vectors, [dimensions], and token vectors, [tokens, dimensions], by name."""

    @classmethod
    def of(cls, record: models.Record | models.ScoredPoint) -> StoredPoint:
        """What a record of a collection holds; one that is not ours is refused."""
        payload, given = record.payload or {}, record.vector if isinstance(record.vector, dict) else {}
        sparse = given.get(SPARSE)
        terms, weights = (sparse.indices, sparse.values) if isinstance(sparse, models.SparseVector) else ([], [])
        try:
            return cls(
                str(payload[ID]),
                int(payload[NUMBER]),
                {str(name): int(length) for name, length in payload.get(LENGTHS, {}).items()},
                dict(payload.get(DOCUMENT) or {}),
                {int(number): float(value) for number, value in (payload.get(COUNTS) or {}).items()},
                np.array(terms, np.int64),
                np.array(weights, np.float32),
                {name: np.array(rows, np.float32) for name, rows in given.items() if isinstance(rows, list)},
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise CollectionError(
                f"the point {record.id} of the collection was not written by Vizsla; remove it, or build it again"
            ) from None

    def only(self, number: int) -> StoredPoint:
        """The same with one of its terms."""
        here = self.terms == number
        return replace(self, terms=self.terms[here], weights=self.weights[here])

    def vector_of(self, component: Component, empty: tuple[int, ...]) -> np.ndarray:
        """The vector, or vectors, of a component; zeros of a shape where the document has none."""
        found = self.vectors.get(vector_name(component))
        return np.zeros(empty, np.float32) if found is None else found

    @property
    def document(self) -> Document:
        """The document as it was added."""
        return Document(self.doc_id, self.content)

    def values(
        self, components: Mapping[str, SparseComponent], statistics: Mapping[str, Statistics], spaces: Mapping[int, str]
    ) -> np.ndarray:
        """The stored value of each term, in the order of `terms`: counts or weights, as an index keeps them.

        `components` and `statistics`: by namespace, the frozen ones. `spaces`: the namespaces of terms.
        """
        values = np.zeros(len(self.terms))
        own = np.array([spaces[number] for number in self.terms.tolist()], object)
        for namespace in set(own.tolist()):
            here, component = own == namespace, components[namespace]
            length = np.array([self.lengths.get(namespace, 0)], np.int64)
            weighting = weighting_of(component, statistics[namespace], length)
            codes = np.repeat(component.length_codes(length), int(here.sum()))
            values[here] = values_of(weighting, self.weights[here], codes)
        for place, number in enumerate(self.terms.tolist()):
            if number in self.counts:
                values[place] = self.counts[number]
        return values


def check_batch(batch: AnalysedBatch, model: Model) -> None:
    """Refuse documents that a server would not store unchanged, before any of them is sent."""
    for doc_id, metadata, fields in batch.stored:
        for text in (metadata, fields):
            problem = _unstorable(parse_json(text)) if text is not None and _LONG_NUMBER.search(text) else None
            if problem is not None:
                raise VizslaError(f"the document {doc_id!r} has the number {problem}, which needs more than 64 bits")
    for rows, part in zip(batch.namespaces, model.parts, strict=True):
        if isinstance(rows, DenseBatch | TokenBatch) and not np.isfinite(rows.vectors).all():
            raise VizslaError(f"{part.component.name} makes vectors with numbers that are NaN or infinite")


def _unstorable(value: Any) -> int | None:
    if isinstance(value, int):
        return None if -_MAX_WHOLE // 2 <= value < _MAX_WHOLE else value
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((problem for element in inside if (problem := _unstorable(element)) is not None), None)


BATCH = 500
"""Points that are read at once."""


def find_points(
    connection: Connection, base: str, ids: Sequence[str], *, vectors: bool | list[str] = False, document: bool = True
) -> list[StoredPoint]:
    """The points of documents by their ids; documents that are not there are left out."""
    found = []
    for first in range(0, len(ids), BATCH):
        wanted = [point_id(doc_id) for doc_id in ids[first : first + BATCH]]
        records = connection.call(QdrantClient.retrieve, base, wanted, _payload(document), vectors)
        found += [StoredPoint.of(record) for record in records]
    return found


def all_points(
    connection: Connection,
    base: str,
    *,
    vectors: bool | list[str] = False,
    document: bool = True,
    condition: models.Filter | None = None,
) -> Iterator[list[StoredPoint]]:
    """All points that meet a condition, in any order, some at a time."""
    wanted: dict[str, Any] = {"with_payload": _payload(document), "with_vectors": vectors}
    offset = None
    while True:
        records, offset = connection.call(QdrantClient.scroll, base, condition, BATCH, offset=offset, **wanted)
        if records:
            yield [StoredPoint.of(record) for record in records]
        if offset is None:
            return


def _payload(document: bool) -> list[str]:
    return [ID, NUMBER, LENGTHS, COUNTS, *([DOCUMENT] if document else [])]


def sparse_components(model: Model) -> dict[str, SparseComponent]:
    """The sparse components of a model by namespace."""
    return {c.namespace: c for _, c in model.parts if isinstance(c, SparseComponent)}


def recount(connection: Connection, state: CollectionState, model: Model) -> CollectionState:
    """The state with all statistics recounted from the points after a crash; also corrects the stored terms."""
    components, frozen = sparse_components(model), state.frozen_statistics()
    stored = state.terms(connection)
    terms = {entry.number: entry for entry in stored.all()}
    spaces = {number: entry.namespace for number, entry in terms.items()}
    frequencies: Counter[int] = Counter()
    occurrences: Counter[int] = Counter()
    lengths: dict[str, list[np.ndarray]] = {name: [np.zeros(0, np.int64)] for name in state.namespaces}
    documents, last = 0, -1
    vectors = [SPARSE] if components else False
    for points in all_points(connection, state.base, vectors=vectors, document=False):
        for point in points:
            documents, last = documents + 1, max(last, point.number)
            frequencies.update(point.terms.tolist())
            values = point.values(components, frozen, spaces).tolist()
            for number, value in zip(point.terms.tolist(), values, strict=True):
                occurrences[number] += value
        for name, known in lengths.items():
            known.append(np.array([point.lengths.get(name, 0) for point in points], np.int64))
    wrong = [
        entry
        for number, entry in terms.items()
        if entry.documents != frequencies[number] or entry.occurrences != occurrences[number]
    ]
    for entry in wrong:
        entry.documents, entry.occurrences = frequencies[entry.number], float(occurrences[entry.number])
    stored.store(wrong)
    namespaces = {}
    for name, space in state.namespaces.items():
        here = np.concatenate(lengths[name])
        counted = int(np.count_nonzero(here)), int(here.sum()), max(space.longest, int(here.max(initial=0)))
        namespaces[name] = replace(space, documents=counted[0], total_length=counted[1], longest=counted[2])
    return replace(
        state,
        namespaces=namespaces,
        documents=documents,
        next_number=max(state.next_number, last + 1),
        next_term=max([state.next_term, *(number + 1 for number in terms)]),
    )


def points_in_order(connection: Connection, base: str) -> Iterator[list[StoredPoint]]:
    """All points in the order of their insertion, some at a time, without vectors."""
    first = 0
    while True:
        order = models.OrderBy(key=NUMBER, direction=models.Direction.ASC, start_from=first)
        records, _ = connection.call(QdrantClient.scroll, base, None, BATCH, order, with_payload=_payload(True))
        if not records:
            return
        points = [StoredPoint.of(record) for record in records]
        yield points
        first = points[-1].number + 1
