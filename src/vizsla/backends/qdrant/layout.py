"""The layout of a collection in Qdrant: which collections there are, what they contain, and the ids of points.

| collection | points |
|---|---|
| NAME | one a document: a sparse vector of all sparse parts, a vector for each dense part, several for each part of
  late interaction; the document, its insertion number and its lengths as payload |
| NAME.terms | one a term, or one for many of them: their numbers and their document frequencies (`terms.py`); and one
  that describes the collection (`state.py`) |
| NAME.files | pieces of the model's files, if it has any |

NAME may be an alias, as may the others: then the collections have another name, the base.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from qdrant_client import QdrantClient, models

from vizsla.backends.qdrant.connection import Connection
from vizsla.errors import CollectionError, VizslaError
from vizsla.models import Component, DenseComponent, Model, SparseComponent, TokenComponent

FORMAT = 2
SPARSE = "terms"
"""The name of the sparse vector of all sparse parts; term numbers are disjoint."""
ID, NUMBER, LENGTHS, COUNTS, DOCUMENT = "id", "number", "lengths", "counts", "document"
"""Keys of a point's payload: the document's id, its insertion number, its length in each namespace, counts that its
weights do not give back, and its fields."""
_NAMESPACE = uuid.UUID("5a1f2d5e-6f6b-5d5c-9a43-0c1f7a2b9e01")
_NO_GRAPH = 0  # HNSW's m: every search is exact, so no graph is built


def terms_of(base: str) -> str:
    """The collection of terms."""
    return f"{base}.terms"


def files_of(base: str) -> str:
    """The collection of the model's files."""
    return f"{base}.files"


def _uuid(text: str) -> str:
    """The UUID of a text by its SHA-1, as `uuid.uuid5` gives it, in a fraction of its time.

    >>> _uuid("dog") == str(uuid.uuid5(_NAMESPACE, "dog"))
    True
    """
    digest = bytearray(hashlib.sha1(_NAMESPACE.bytes + text.encode(), usedforsecurity=False).digest()[:16])
    digest[6], digest[8] = digest[6] & 0x0F | 0x50, digest[8] & 0x3F | 0x80
    x = digest.hex()
    return f"{x[:8]}-{x[8:12]}-{x[12:16]}-{x[16:20]}-{x[20:]}"


def point_id(doc_id: str) -> str:
    """The point of a document."""
    return _uuid(f"document\0{doc_id}")


def term_id(namespace: str, term: str) -> str:
    """The point of a term; lone surrogates become question marks, as in an index."""
    valid = term if term.isascii() else term.encode("utf-8", "replace").decode()
    return _uuid(f"term\0{namespace}\0{valid}")


def block_id(block: int) -> str:
    """The point of a block of terms."""
    return _uuid(f"terms\0{block}")


def file_id(name: str, piece: int) -> str:
    """The point of a piece of a file."""
    return _uuid(f"file\0{name}\0{piece}")


STATE_ID = _uuid("state")
"""The point that describes a collection, in its collection of terms."""


def vector_name(component: Component) -> str:
    """The name of the vector that a component's documents have."""
    if isinstance(component, SparseComponent):
        return SPARSE
    return f"{'tokens' if isinstance(component, TokenComponent) else 'dense'}.{component.namespace}"


def check_storable(model: Model) -> None:
    """Refuse a model whose scores Qdrant cannot compute, or that needs the statistics of all documents first."""
    for part in model.parts:
        if not isinstance(part.component, SparseComponent | DenseComponent | TokenComponent):
            raise VizslaError(f"{part.component.name} compares equal tokens, which Qdrant cannot do; use a local index")
    if model.needs_corpus_statistics:
        raise VizslaError(f"{model.name} needs the statistics of all documents; call model.fit(documents) first")


def vector_parameters(model: Model) -> dict[str, models.VectorParams]:
    """The parameters of the dense and token vectors of a model, by name."""
    parameters = {}
    for _, component in model.parts:
        if isinstance(component, DenseComponent | TokenComponent):
            several = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
            parameters[vector_name(component)] = models.VectorParams(
                size=component.dimensions,
                distance=models.Distance.DOT,
                hnsw_config=models.HnswConfigDiff(m=_NO_GRAPH),
                multivector_config=several if isinstance(component, TokenComponent) else None,
            )
    return parameters


def create_collections(
    connection: Connection, base: str, model: Model, *, shards: int | None = None, replicas: int | None = None
) -> None:
    """Make the empty collections of a model; those of the same name are replaced.

    `shards` and `replicas`: of the documents, by default as the servers are set up. Terms have as many replicas.
    """
    check_storable(model)
    has_sparse = any(isinstance(p.component, SparseComponent) for p in model.parts)
    sparse = {SPARSE: models.SparseVectorParams(index=models.SparseIndexParams(on_disk=False))} if has_sparse else None
    for name in (files_of(base), terms_of(base), base):
        if connection.call(QdrantClient.collection_exists, name):
            connection.call(QdrantClient.delete_collection, name)
    number = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=True, range=True)

    def create(name: str, vectors: dict[str, models.VectorParams], sparse: Any, **options: Any) -> None:
        connection.call(QdrantClient.create_collection, name, vectors, sparse, replication_factor=replicas, **options)
        connection.call(QdrantClient.create_payload_index, name, NUMBER, number)

    with ThreadPoolExecutor(2) as pool:  # a server waits for its disk
        documents = pool.submit(create, base, vector_parameters(model), sparse, shard_number=shards)
        terms = pool.submit(create, terms_of(base), {}, None, shard_number=1, on_disk_payload=False)
        documents.result()
        terms.result()


def drop_collections(connection: Connection, base: str) -> None:
    """Remove the collections of a base; missing ones are ignored."""
    for name in (base, files_of(base), terms_of(base)):
        connection.call(QdrantClient.delete_collection, name)


def check_collection(connection: Connection, base: str, model: Model) -> None:
    """Refuse a collection whose vectors are not those of a model."""
    values = connection.call(QdrantClient.get_collection, base).config.params
    there = values.vectors if isinstance(values.vectors, Mapping) else {}
    for name, expected in vector_parameters(model).items():
        found = there.get(name)
        if found is None or found.size != expected.size or found.distance != expected.distance:
            has = "none" if found is None else f"vectors of {found.size} numbers, compared by {found.distance.value}"
            raise CollectionError(
                f"{base}: {model.name} needs vectors of {expected.size} numbers, compared by Dot, under the name "
                f"{name!r}, and the collection has {has}; it was changed after it was built, so build it again"
            )
    if any(isinstance(p.component, SparseComponent) for p in model.parts):
        sparse = (values.sparse_vectors or {}).get(SPARSE)
        if sparse is None or sparse.modifier is models.Modifier.IDF:
            has = "none" if sparse is None else "some whose idf Qdrant counts, shard by shard"
            raise CollectionError(
                f"{base}: {model.name} needs sparse vectors under the name {SPARSE!r}, and the collection has {has}; "
                "it was changed after it was built, so build it again"
            )
