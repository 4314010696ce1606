"""Facts about an index, as plain data."""

from __future__ import annotations

from typing import Any

from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.search.vector_indexes import dense_facts, match_facts, token_facts
from vizsla.index.storage import database
from vizsla.models import DenseComponent, TokenComponent, TokenMatchComponent

_WITH_VECTORS = (DenseComponent, TokenComponent, TokenMatchComponent)


def index_info(snapshot: Snapshot) -> dict[str, Any]:
    """What there is to know about the index; see `Index.info`."""
    namespaces = {}
    for (name, statistics), (_, component) in zip(snapshot.statistics.items(), snapshot.model.parts, strict=True):
        namespaces[name] = {
            "documents": statistics.documents,
            "tokens": statistics.total_length,
            "average_length": statistics.total_length / max(statistics.documents, 1),
            "dimensions": component.dimensions if isinstance(component, _WITH_VECTORS) else 0,
        }
    return {
        "path": str(snapshot.path),
        "model": snapshot.model.name,
        "documents": snapshot.document_count,
        "passages": None if snapshot.splitter is None else snapshot.stored_count,
        "deleted": sum(len(segment) for segment in snapshot.segments) - snapshot.stored_count,
        "segments": len(snapshot.segments),
        "postings": sum(segment.postings for segment in snapshot.segments),
        "namespaces": namespaces,
        "dense": dense_facts(snapshot.vector_index, snapshot.segments, snapshot.model),
        "token_vectors": token_facts(snapshot.vector_index, snapshot.segments, snapshot.model),
        "vector_postings": match_facts(snapshot.vector_index, snapshot.segments),
        "positions": bool(snapshot.meta.get(database.POSITIONS)),
        "position_bytes": sum(s.nbytes for segment in snapshot.segments for s in segment.sequences.values()),
        "index_bytes": snapshot.file_bytes,
        "document_bytes": sum(f.stat().st_size for f in snapshot.path.glob(database.FILE + "*")),
        "stored": snapshot.meta["stored"],
        "created": snapshot.meta["created"],
        "vizsla": snapshot.meta["vizsla"],
        "format": snapshot.meta["format"],
        "generation": snapshot.generation,
    }
