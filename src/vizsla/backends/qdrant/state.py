"""The stored state of a collection: its model, its statistics, and its current writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from qdrant_client import QdrantClient, models

from vizsla.backends.qdrant.connection import Connection, MissingCollectionError
from vizsla.backends.qdrant.layout import FORMAT, STATE_ID, terms_of
from vizsla.backends.qdrant.terms import StoredTerms, TermBlocks
from vizsla.errors import CollectionError
from vizsla.models import AutoWeightedSum, CountedStatistics, Fields, Model, fitted_description
from vizsla.plain_data import DescriptionError, check_type, fields_from_data

BUILDING, READY, WRITING = "building", "ready", "writing"
REPLACED = {READY: "replaced", WRITING: "replaced while writing"}
"""The status of a replaced collection, by its status before; `writing` if its writer had died."""
WRITER = "writer"
"""The key of the payload that says who writes; see `lock.py`."""


@dataclass(frozen=True)
class NamespaceState:
    """The statistics of one namespace: those of the live documents, and the frozen ones used in document weights.

    >>> NamespaceState(documents=2, total_length=15, longest=8, frozen_documents=1, frozen_length=5).drift
    0.5
    """

    documents: int = 0
    total_length: int = 0
    longest: int = 0
    frozen_documents: int = 0
    frozen_length: int = 0

    @property
    def average_length(self) -> float:
        """The mean length of the living documents."""
        return self.total_length / self.documents if self.documents else 1.0

    @property
    def frozen_average(self) -> float:
        """The mean length that is in the weights of documents."""
        return self.frozen_length / self.frozen_documents if self.frozen_documents else self.average_length

    @property
    def drift(self) -> float:
        """The relative change of the mean length since it was frozen; 0.01 is one percent longer."""
        return self.average_length / self.frozen_average - 1 if self.documents else 0.0

    @property
    def frozen(self) -> CountedStatistics:
        """The statistics that documents are weighted with."""
        if not self.frozen_documents:
            return CountedStatistics(self.documents, self.total_length, self.longest, {})
        return CountedStatistics(self.frozen_documents, self.frozen_length, self.longest, {})

    def freeze(self) -> NamespaceState:
        """The same with the current statistics frozen."""
        return replace(self, frozen_documents=self.documents, frozen_length=self.total_length)

    def changed(self, documents: int, total_length: int, longest: int = 0) -> NamespaceState:
        """The statistics after documents were added or deleted; `longest` never decreases."""
        return replace(
            self,
            documents=self.documents + documents,
            total_length=self.total_length + total_length,
            longest=max(self.longest, longest),
        )


@dataclass(frozen=True)
class CollectionState:
    """Everything a client must know about a collection to search or write."""

    base: str
    """The name of the collection itself, where NAME is an alias."""
    build: str
    """A random text, different for each build."""
    model: dict[str, Any]
    files: dict[str, Any]
    """The SHA-256 and the size of each of the model's files."""
    digest: str
    """Of the model, as parts have it."""
    namespaces: dict[str, NamespaceState]
    vizsla: str = ""
    created: str = ""
    format: int = FORMAT
    status: str = READY
    generation: int = 0
    documents: int = 0
    next_number: int = 0
    next_term: int = 0
    term_blocks: TermBlocks = field(default_factory=TermBlocks)
    notes: dict[str, Any] = field(default_factory=dict)
    """What `QdrantWriter.set_note` has stored."""
    writer: dict[str, Any] | None = field(default=None, compare=False)

    def payload(self) -> dict[str, Any]:
        """The state as it is stored, without the writer."""
        return {name: value for name, value in asdict(self).items() if name != WRITER}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> CollectionState:
        """The state that is stored as payload; raises `DescriptionError` if this is none."""
        stored = fields_from_data(cls, dict(payload), namespaces="dict", model="dict", files="dict", term_blocks="dict")
        for entry in stored["namespaces"].values():
            check_type("the statistics of a namespace", entry, "dict")
        spaces = {
            name: NamespaceState(**fields_from_data(NamespaceState, e)) for name, e in stored["namespaces"].items()
        }
        blocks = TermBlocks(**fields_from_data(TermBlocks, stored["term_blocks"]))
        return cls(**{**stored, "namespaces": spaces, "term_blocks": blocks})

    @property
    def distinct_terms(self) -> int:
        """How many terms the collection has, also those of documents that were deleted."""
        return self.term_blocks.terms + self.next_term - self.term_blocks.end

    def terms(self, connection: Connection) -> StoredTerms:
        """The terms of the collection."""
        return StoredTerms(connection, self.base, self.term_blocks)

    def frozen_statistics(self) -> dict[str, CountedStatistics]:
        """By namespace the statistics that documents are weighted with."""
        return {name: space.frozen for name, space in self.namespaces.items()}


def read_state(connection: Connection, name: str) -> CollectionState:
    """The state of a collection by its name or alias; an error if it does not exist or was not made by Vizsla."""
    where = f"the collection {name!r} at {connection}"
    try:
        found = connection.call(QdrantClient.retrieve, terms_of(name), [STATE_ID])
    except MissingCollectionError:
        if connection.call(QdrantClient.collection_exists, name):
            raise CollectionError(
                f"{where} was not made by Vizsla: there is no collection {terms_of(name)!r} beside it"
            ) from None
        raise MissingCollectionError(f"there is no collection {name!r} at {connection}; fill one first") from None
    if not found or found[0].payload is None:
        raise CollectionError(f"{where} was not made by Vizsla, or creating it was interrupted; build it again")
    payload = found[0].payload
    if payload.get("format") != FORMAT:
        raise CollectionError(
            f"{where} has the format {payload.get('format')}, and this version of Vizsla reads {FORMAT}; build it "
            "again, or use the version that made it"
        )
    try:
        return CollectionState.from_payload(payload)
    except DescriptionError as e:
        raise CollectionError(f"the state of {where} is damaged ({e}); build it again") from None


def check_searchable(state: CollectionState) -> None:
    """Refuse a collection that is not filled yet."""
    if state.status == BUILDING:
        raise CollectionError(
            f"the collection {state.base!r} is not finished: its upload goes on, or was stopped; run the upload again"
        )


def check_writable(state: CollectionState) -> None:
    """Refuse to write to a collection that is not filled yet or has been replaced."""
    check_searchable(state)
    if state.status in REPLACED.values():
        raise CollectionError(f"the collection {state.base!r} has been replaced by another one; open it again")


def replaced_state(state: CollectionState) -> CollectionState:
    """The state of a replaced collection, which is read-only."""
    return replace(state, status=REPLACED.get(state.status, state.status))


def restored_state(state: CollectionState) -> CollectionState:
    """The state of a collection that had been replaced and is used again."""
    before = {status: name for name, status in REPLACED.items()}
    return replace(state, status=before.get(state.status, state.status))


def with_fitted_weights(state: CollectionState, model: Model, sample: Sequence[Fields]) -> CollectionState:
    """The state with the weights of a sum fitted to some documents, if they are still to be fitted."""
    if not state.model.get(AutoWeightedSum.kind) or not sample:
        return state
    fitted = model.fit(sample)
    if fitted.needs_fit:  # too few documents
        return state
    return replace(state, model=fitted_description(state.model, fitted))


def write_state(connection: Connection, state: CollectionState) -> None:
    """Store a complete state without a writer, for a new collection that no other client knows yet."""
    point = models.PointStruct(id=STATE_ID, vector={}, payload=state.payload())
    connection.call(QdrantClient.upsert, terms_of(state.base), [point], wait=True)
