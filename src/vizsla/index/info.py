"""Facts about an index, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from vizsla.engine import Plaid, Segment, VectorIndex, storage_of, token_store
from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.storage import database
from vizsla.models import DenseComponent, Model, TokenComponent, TokenMatchComponent

_WITH_VECTORS = (DenseComponent, TokenComponent, TokenMatchComponent)


def index_info(snapshot: Snapshot) -> dict[str, Any]:
    """What there is to know about the index; see `Index.info`."""
    namespaces = {}
    for (name, statistics), (_, component) in zip(snapshot.statistics.items(), snapshot.model.parts, strict=True):
        namespaces[name] = {
            "documents": statistics.documents,
            "unit": "document" if snapshot.splitter is None or component.reads_documents else "passage",
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
        "dense": _dense_facts(snapshot.vector_index, snapshot.segments, snapshot.model),
        "token_vectors": _token_facts(snapshot.vector_index, snapshot.segments, snapshot.model),
        "vector_postings": _match_facts(snapshot.vector_index, snapshot.segments),
        "ngrams": _ngram_facts(snapshot.segments),
        "positions": bool(snapshot.meta.get(database.POSITIONS)),
        "position_bytes": sum(s.nbytes for segment in snapshot.segments for s in segment.sequences.values()),
        "index_bytes": snapshot.file_bytes,
        "document_bytes": _document_bytes(snapshot.path),
        "stored": snapshot.meta["stored"],
        "created": snapshot.meta["created"],
        "vizsla": snapshot.meta["vizsla"],
        "format": snapshot.meta["format"],
        "generation": snapshot.generation,
    }


def _document_bytes(path: Path) -> int:
    """The size of the document store; its log comes and goes with writers, and the index may be deleted meanwhile."""
    total = 0
    with suppress(FileNotFoundError):
        for file in path.glob(database.FILE + "*"):
            with suppress(FileNotFoundError):
                total += file.stat().st_size
    return total


def _dense_facts(vector_index: VectorIndex, segments: Sequence[Segment], model: Model) -> dict[str, Any] | None:
    """How an index keeps and searches its dense vectors; None if it has none."""
    spaces = [i for i, part in enumerate(model.parts) if isinstance(part.component, DenseComponent)]
    if not spaces:
        return None
    ann_indexes = [ann_index for segment in segments for ann_index in segment.ann.values()]
    return {
        "kind": str(vector_index),
        "store": vector_index.store,
        "built_segments": sum(bool(segment.ann) for segment in segments),
        "exact_segments": sum(not segment.ann for segment in segments),
        "vector_bytes": sum(segment.dense[s].nbytes for segment in segments for s in spaces),
        "structure_bytes": sum(ann_index.bytes for ann_index in ann_indexes),
        "built": sorted({ann_index.factory for ann_index in ann_indexes}),
    }


def _token_facts(vector_index: VectorIndex, segments: Sequence[Segment], model: Model) -> dict[str, Any] | None:
    """How an index keeps and searches its token vectors; None if it has none."""
    spaces = [i for i, part in enumerate(model.parts) if isinstance(part.component, TokenComponent)]
    if not spaces:
        return None
    rows = [segment.tokens[s] for segment in segments for s in spaces]
    lists = [some.lists for some in rows if some.lists is not None]
    structure = sum(some.nbytes for some in lists)
    return {
        "kind": str(vector_index) if isinstance(vector_index, Plaid) else "exact",
        "store": ", ".join(sorted({storage_of(some.vectors) for some in rows})) or token_store(vector_index.store),
        "vectors": sum(len(some.vectors) for some in rows),
        "vector_bytes": sum(some.nbytes for some in rows) - structure,
        "structure_bytes": structure,
        "centroids": max((len(some.centroids) for some in lists), default=0),
        "built_segments": len(lists),
        "exact_segments": len(rows) - len(lists),
    }


def _match_facts(vector_index: VectorIndex, segments: Sequence[Segment]) -> dict[str, Any] | None:
    """How an index keeps posting lists with vectors; None if it has none."""
    lists = [some for segment in segments for some in segment.matches.values()]
    if not lists:
        return None
    return {
        "store": token_store(vector_index.store),
        "vectors": sum(map(len, lists)),
        "bytes": sum(some.nbytes for some in lists),
    }


def _ngram_facts(segments: Sequence[Segment]) -> dict[str, Any] | None:
    """How many tokens the suffix arrays of an index have, and their bytes; None if it has none."""
    arrays = [rows for segment in segments for rows in segment.ngrams.values()]
    if not arrays:
        return None
    return {"tokens": sum(len(rows.tokens) for rows in arrays), "bytes": sum(rows.nbytes for rows in arrays)}
