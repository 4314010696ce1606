"""New, empty collections."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from qdrant_client import QdrantClient

import vizsla
from vizsla.backends.qdrant import layout
from vizsla.backends.qdrant.address import check_name
from vizsla.backends.qdrant.connection import Connection, ExistingCollectionError
from vizsla.backends.qdrant.files import DescribedModel, store_files
from vizsla.backends.qdrant.state import READY, CollectionState, NamespaceState, write_state
from vizsla.index.parts.settings import model_digest
from vizsla.models import Model


def create_collection(
    connection: Connection,
    base: str,
    model: Model,
    *,
    overwrite: bool = False,
    shards: int | None = None,
    replicas: int | None = None,
    status: str = READY,
) -> CollectionState:
    """Make the collections of a model and store its files and its state, in this order; gives the state.

    `shards` and `replicas`: by default as the servers are set up. `status`: `building` for a collection that nobody may
    search before it is filled.
    """
    check_name(base)
    connection.check_version()
    layout.check_storable(model)
    names = base, layout.terms_of(base)
    there = [name for name in names if connection.call(QdrantClient.collection_exists, name)]
    if there and not overwrite:
        raise ExistingCollectionError(
            f"there is a collection {there[0]!r} at {connection} already; take another name, or replace it"
        )
    with DescribedModel(model) as described:
        layout.create_collections(connection, base, model, shards=shards, replicas=replicas)
        store_files(connection, base, described, replicas)
        state = CollectionState(
            base=base,
            build=secrets.token_hex(8),
            model=described.description,
            files=described.files,
            digest=model_digest(model),
            namespaces={name: NamespaceState() for name in model.namespaces},
            vizsla=vizsla.__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            status=status,
        )
    write_state(connection, state)
    return state
