"""Facts about a collection, as plain data."""

from __future__ import annotations

from typing import Any

from qdrant_client import QdrantClient

from vizsla.backends.qdrant.address import Address
from vizsla.backends.qdrant.connection import Connection
from vizsla.backends.qdrant.generations import find_generations
from vizsla.backends.qdrant.state import CollectionState
from vizsla.models import DenseComponent, Model, TokenComponent


def collection_info(connection: Connection, address: str, state: CollectionState, model: Model) -> dict[str, Any]:
    """What there is to know about a collection; see `QdrantIndex.info`."""
    namespaces = {}
    for name, (_, component) in zip(model.namespaces, model.parts, strict=True):
        space = state.namespaces[name]
        namespaces[name] = {
            "documents": space.documents,
            "tokens": space.total_length,
            "average_length": space.total_length / max(space.documents, 1),
            "frozen_average_length": space.frozen_average,
            "drift": space.drift,
            "dimensions": component.dimensions if isinstance(component, DenseComponent | TokenComponent) else 0,
        }
    params = connection.call(QdrantClient.get_collection, state.base).config.params
    return {
        "address": address,
        "collection": state.base,
        "kept": list(find_generations(connection, Address.parse(address).name).others),
        "model": model.name,
        "documents": state.documents,
        "passages": None,
        "stored": True,
        "distinct_terms": state.next_term,
        "namespaces": namespaces,
        "shards": params.shard_number or 1,
        "replicas": params.replication_factor or 1,
        "status": state.status,
        "writer": None if state.writer is None else {k: state.writer.get(k) for k in ("host", "process", "since")},
        "created": state.created,
        "vizsla": state.vizsla,
        "format": state.format,
        "generation": state.generation,
    }
