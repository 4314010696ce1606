"""Reweigh a collection: recompute document weights with the current mean length, in a new generation.

A document's weights depend on the mean length of all documents, which was frozen when the collection was filled. The
counts of terms can be recovered exactly from the stored weights, so neither texts nor networks are needed. The old
generation is searched until all documents have their new weights; then the new one replaces it. No ranking mixes old
and new weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
from qdrant_client import QdrantClient, models

from vizsla.backends.qdrant.connection import THRESHOLD, Address, Connection, Json, bodies, upsert
from vizsla.backends.qdrant.filling import (
    REWEIGHING,
    Filling,
    FillingRecord,
    Pieces,
    Progress,
    count_numbers,
    read_record,
)
from vizsla.backends.qdrant.generations import (
    Generations,
    begin_generation,
    drop_others,
    find_finished,
    swap,
    version_of,
    writing_live,
)
from vizsla.backends.qdrant.layout import NUMBER, terms_of, vector_name
from vizsla.backends.qdrant.lock import DEFAULT_TIMEOUT, WriteLock
from vizsla.backends.qdrant.model_files import DescribedModel, load_model
from vizsla.backends.qdrant.points import (
    PointEncoder,
    StoredPoint,
    all_points,
    recount,
    sparse_components,
    weighting_of,
)
from vizsla.backends.qdrant.state import (
    READY,
    CollectionState,
    check_writable,
    read_state,
    replaced_state,
    write_state,
)
from vizsla.backends.qdrant.terms import BATCH, BLOCK_BATCH, term_points
from vizsla.backends.qdrant.upload import is_reweighing
from vizsla.engine import Weighting
from vizsla.errors import CollectionError, VizslaError
from vizsla.index.writing.analysis import AnalysedBatch
from vizsla.index.writing.encoders import DenseBatch, NamespaceBatch, SparseBatch, TokenBatch
from vizsla.models import Component, DenseComponent, Model, SparseComponent, Statistics
from vizsla.runs.retriever import check_count

PIECE = 1000
"""Insertion numbers of a piece."""


@dataclass
class ReweighReport:
    """What a reweighing has done."""

    base: str
    """The collection that has the weights."""
    documents: int
    drift: dict[str, float]
    """By namespace whose weights depend on lengths: the relative drift of the mean length."""
    renewed: bool = False
    dropped: tuple[str, ...] = field(default=())
    """The generations that were removed."""


def reweigh(
    address: str | Address,
    threshold: float = THRESHOLD,
    *,
    workers: int = 1,
    drop_old: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
    connection: Connection | None = None,
    progress: Progress | None = None,
) -> ReweighReport:
    """Recompute the weights of all documents if the mean length has drifted by at least `threshold`, as in 0.01.

    Searches continue. Other writers wait, or get an error that names this one. The same call continues an interrupted
    reweighing. `workers`: how many processes write. `drop_old`: remove the earlier generations.
    """
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not threshold >= 0:
        raise VizslaError(f"the threshold is a share of the mean length of 0 or more, as in 0.01, not {threshold!r}")
    check_count(workers, "workers, the number of processes,")
    where = Address.parse(address) if isinstance(address, str) else address
    opened = connection or Connection(where.servers)
    try:
        with writing_live(opened, where.name, timeout) as (generations, lock):
            report = _Reweighing(opened, generations, lock, workers).run(threshold, progress)
        if drop_old:
            report.dropped = tuple(drop_others(opened, where.name))
        return report
    finally:
        if connection is None:
            opened.close()


def drifts(state: CollectionState, model: Model) -> dict[str, float]:
    """The drift of mean lengths, for namespaces whose weights depend on them."""
    components = sparse_components(model)
    frozen = state.frozen_statistics()
    depends = (name for name, c in components.items() if c.weighting(frozen[name]).norms is not None)
    return {name: state.namespaces[name].drift for name in depends}


def needs_reweighing(state: CollectionState, model: Model, threshold: float) -> bool:
    """Whether the mean length that weights depend on has drifted by so much."""
    return any(abs(drift) >= threshold and drift for drift in drifts(state, model).values())


def score_errors(state: CollectionState, model: Model) -> dict[str, float]:
    """By namespace how far scores may be off for their drift, as a share of them; see `error_bound`."""
    components, frozen = sparse_components(model), state.frozen_statistics()
    errors = {}
    for name in drifts(state, model):
        longest = np.array([max(state.namespaces[name].longest, 1)])
        now = state.namespaces[name].freeze().frozen
        before, after = (weighting_of(components[name], statistics, longest) for statistics in (frozen[name], now))
        errors[name] = error_bound(before, after, int(components[name].length_codes(longest)[0]))
    return errors


def error_bound(frozen: Weighting, now: Weighting, last: int) -> float:
    """By what share of itself a weight may differ from the one it would have now, at most.

    `last`: the length code of the longest document. A score adds up weights times idf, so that as long as no idf is
    negative a score differs by no greater share. A weight is scale * (v + shift * n) / (v + slope * n) + floor with a
    count v of at least 1; the logarithm of the fraction has the derivative v * (shift - slope) / ((v + shift * n) *
    (v + slope * n)) in n. Without a shift this is largest for v = 1. With one it is, whatever v is, at most
    (sqrt(slope) - sqrt(shift)) / (sqrt(slope) + sqrt(shift)) / n.

    >>> norms = np.array([1.0, 3.0]), np.array([1.0, 2.0])
    >>> round(error_bound(*(Weighting(slope=1.0, norms=some) for some in norms), last=1), 6)
    0.333333
    """
    if frozen.norms is None or now.norms is None:
        return 0.0
    old, new = frozen.norms[: last + 1], now.norms[: last + 1]
    if frozen.shift:
        roots = math.sqrt(frozen.slope), math.sqrt(frozen.shift)
        ratios = np.divide(new, old, out=np.ones_like(old), where=old > 0)
        moved = np.abs(np.log(ratios)) * abs(roots[0] - roots[1]) / sum(roots)
    else:
        moved = np.abs(np.log((1 + frozen.slope * new) / (1 + frozen.slope * old)))
    return float(np.expm1(moved.max()))


class _Reweighing:
    """One reweighing of the live generation, whose lock is held."""

    def __init__(self, connection: Connection, generations: Generations, lock: WriteLock, workers: int) -> None:
        self._connection = connection
        self._generations = generations
        self._lock = lock
        self._workers = workers

    def run(self, threshold: float, progress: Progress | None) -> ReweighReport:
        state = self._lock.state()
        check_writable(state)
        model = load_model(self._connection, state)
        if self._lock.interrupted:  # a writer has died, so statistics may be wrong
            state = replace(recount(self._connection, state, model), status=READY)
            state = replace(state, generation=state.generation + 1)
            self._lock.save(state)
        report = ReweighReport(state.base, state.documents, drifts(state, model))
        if not needs_reweighing(state, model, threshold):
            return report
        report.base = self._fill(state, model, progress)
        swap(self._connection, self._generations.name, report.base)
        self._lock.release(replaced_state(state))
        report.renewed = True
        return report

    def _fill(self, state: CollectionState, model: Model, progress: Progress | None) -> str:
        """Fill a generation with new weights; returns its name."""
        source = REWEIGHING + version_of(state)
        finished = find_finished(self._connection, self._generations, source)
        if finished is not None:  # it was stopped just before the swap
            return finished
        shards, replicas = self._layout(state.base)
        base, _ = begin_generation(
            self._connection, self._generations.name, model, FillingRecord(source, version_of(state)), is_reweighing,
            shards=shards, replicas=replicas,
        )  # fmt: skip
        record = read_record(self._connection, base)
        if record is None:
            raise CollectionError(f"the record of {base!r} is gone; remove this collection, and try again")
        with ExitStack() as stack:
            described = stack.enter_context(DescribedModel(model))
            pieces = StoredPieces(self._connection, base, described, state)
            Filling(pieces, record, self._lock, self._workers).run(progress)
        begun = read_state(self._connection, base)
        spaces = {name: space.freeze() for name, space in state.namespaces.items()}
        new = replace(
            state, base=base, build=begun.build, created=begun.created, vizsla=begun.vizsla, status=READY,
            generation=state.generation + 1, namespaces=spaces,
        )  # fmt: skip
        write_state(self._connection, new)
        return base

    def _layout(self, base: str) -> tuple[int | None, int | None]:
        """The shards and replicas of a collection."""
        params = self._connection.call(QdrantClient.get_collection, base).config.params
        return params.shard_number, params.replication_factor


class StoredPieces(Pieces):
    """The terms and documents of another collection, with new weights."""

    def __init__(self, connection: Connection, base: str, model: DescribedModel, state: CollectionState) -> None:
        self.connection = connection
        self.base = base
        self._description, self._files = model.description, model.folder
        self._state = state
        self._ranges = [_range(i, PIECE, state.next_number) for i in range(0, state.next_number, PIECE)]
        blocks = state.term_blocks
        self._terms = [_range(i, BLOCK_BATCH, blocks.count) for i in range(0, blocks.count, BLOCK_BATCH)]
        self._terms += [_range(i, BATCH, state.next_term) for i in range(blocks.end, state.next_term, BATCH)]
        self._expected = [count_numbers(connection, state.base, some) for some in self._ranges]
        self._expected_terms = [count_numbers(connection, terms_of(state.base), some) for some in self._terms]

    def open(self) -> None:
        self._model = Model.from_description(self._description, self._files)
        now = {name: space.freeze().frozen for name, space in self._state.namespaces.items()}
        self._encoder = PointEncoder(self._model, now)
        self._sparse = sparse_components(self._model)

    def expected(self) -> list[int]:
        return self._expected

    def expected_terms(self) -> list[int]:
        return self._expected_terms

    def numbers(self, piece: int) -> range:
        return self._ranges[piece]

    def term_pieces(self) -> list[range]:
        return self._terms

    def write_terms(self, piece: int) -> None:
        for records in term_points(self.connection, self._state.base, self._terms[piece]):
            points = [{"id": record.id, "vector": {}, "payload": record.payload} for record in records]
            self.connection.send(upsert, terms_of(self.base), bodies(points))

    def write_points(self, piece: int) -> None:
        some = self._ranges[piece]
        among = models.Range(gte=some.start, lt=some.stop)
        condition = models.Filter(must=[models.FieldCondition(key=NUMBER, range=among)])
        found = all_points(self.connection, self._state.base, vectors=True, condition=condition)
        points = sorted((point for page in found for point in page), key=lambda point: point.number)
        if points:
            self.send(self._renewed(points))

    def _renewed(self, points: Sequence[StoredPoint]) -> Iterator[Json]:
        """The points with new weights, otherwise unchanged."""
        spaces = self._spaces(points)
        batch, numbers = batch_of(points, self._model, self._state.frozen_statistics(), spaces)
        renewed = self._encoder.points(batch, 0, numbers)
        for point, stored in zip(renewed, points, strict=True):
            point["payload"][NUMBER] = stored.number
            yield point

    def _spaces(self, points: Sequence[StoredPoint]) -> Mapping[int, str]:
        """The namespaces of all terms of some documents."""
        numbers = np.unique(np.concatenate([point.terms for point in points])).tolist()
        if len(self._sparse) == 1:
            return dict.fromkeys(numbers, next(iter(self._sparse)))
        entries = self._state.terms(self.connection).numbered(numbers) if numbers else {}
        if len(entries) < len(numbers):
            raise CollectionError(
                f"a document of {self._state.base!r} has a term that the collection does not; build it again"
            )
        return {number: entry.namespace for number, entry in entries.items()}


def _range(start: int, size: int, end: int) -> range:
    return range(start, min(start + size, end))


def batch_of(
    points: Sequence[StoredPoint], model: Model, statistics: Mapping[str, Statistics], spaces: Mapping[int, str]
) -> tuple[AnalysedBatch, list[np.ndarray]]:
    """Stored points as the batch that they were made from, and the numbers of its terms by namespace.

    `statistics`: the frozen ones that the weights were made with. `spaces`: the namespaces of terms.
    """
    components = sparse_components(model)
    values = [point.values(components, statistics, spaces) for point in points]
    rows: list[NamespaceBatch] = []
    numbers = []
    for _, component in model.parts:
        lengths = np.array([point.lengths.get(component.namespace, 0) for point in points], np.uint32)
        if isinstance(component, SparseComponent):
            own = [np.array([spaces[n] == component.namespace for n in p.terms.tolist()], bool) for p in points]
            counts = np.array([here.sum() for here in own], np.uint32)
            stored = np.concatenate([some[here] for some, here in zip(values, own, strict=True)])
            whole = stored.astype(np.uint32) if (stored == np.floor(stored)).all() else stored.astype(np.float32)
            numbers.append(np.concatenate([p.terms[here] for p, here in zip(points, own, strict=True)]))
            rows.append(SparseBatch(counts, np.zeros(0, np.uint32), whole, lengths, []))
        else:
            numbers.append(np.zeros(0, np.int64))
            rows.append(_vectors_of(points, component, lengths))
    stored_rows = [(p.doc_id, None, json.dumps(p.content)) for p in points]
    ids = [p.doc_id for p in points]
    return AnalysedBatch(0, True, ids, [None] * len(ids), stored_rows, rows, frozenset()), numbers  # type: ignore[arg-type]


def _vectors_of(points: Sequence[StoredPoint], component: Component, lengths: np.ndarray) -> NamespaceBatch:
    """The vectors of a dense or token component; a document without one has no length there."""
    name = vector_name(component)
    if isinstance(component, DenseComponent):
        empty = np.zeros(component.dimensions, np.float32)
        return DenseBatch(np.stack([point.vectors.get(name, empty) for point in points]), lengths)
    none = np.zeros((0, component.dimensions), np.float32)  # type: ignore[attr-defined]
    vectors = [point.vectors.get(name, none) for point in points]
    starts = np.append(0, np.cumsum([len(some) for some in vectors])).astype(np.int64)
    return TokenBatch(np.concatenate(vectors), starts, lengths)
