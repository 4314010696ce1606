"""Which vector index a model can have, and facts about the vector index of an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vizsla.engine import (
    STORES,
    Approximate,
    Exact,
    Plaid,
    Segment,
    VectorIndex,
    check_gpu,
    faiss_for,
    storage_of,
    token_store,
)
from vizsla.errors import VizslaError
from vizsla.models import DenseComponent, Model, TokenComponent, TokenMatchComponent


def check_vector_index(vector_index: VectorIndex, model: Model) -> None:
    """Refuse a vector index that cannot be built for a model, or not on this machine."""
    if vector_index == Exact():
        return
    if isinstance(vector_index, Exact) and any(isinstance(p.component, TokenMatchComponent) for p in model.parts):
        return  # their vectors can be stored in any type
    sizes = [p.component.dimensions for p in model.parts if isinstance(p.component, DenseComponent)]
    has_tokens = any(isinstance(p.component, TokenComponent) for p in model.parts)
    if isinstance(vector_index, Plaid) and not has_tokens:
        raise VizslaError(f"{vector_index} is for token vectors, and {model.name} has none; take hnsw, ivf or pq")
    if not sizes and not (has_tokens and isinstance(vector_index, Exact | Plaid)):
        raise VizslaError(f"{vector_index} is for dense vectors, and {model.name} has no dense part")
    for dimensions in sizes:
        vector_index.check_width(dimensions)
    if isinstance(vector_index, Approximate):
        faiss = faiss_for(vector_index.name)
        if vector_index.device == "gpu":
            check_gpu(faiss)


def check_change(new: VectorIndex, old: VectorIndex) -> None:
    """Refuse to store in more bits what was stored in fewer."""
    if STORES.index(new.store) < STORES.index(old.store):
        raise VizslaError(
            f"the vectors of this index are stored in {old.store}, and what {new.store} would have is lost; "
            f"add store={old.store}, or build the index again"
        )
    bits = old.nbits if isinstance(old, Plaid) else 0
    if bits and not (isinstance(new, Plaid) and 0 < new.nbits <= bits):
        raise VizslaError(
            f"the token vectors of this index are stored in {bits} bits, and what {new} would have is lost; "
            f"give plaid(nbits={bits}), or build the index again"
        )


def dense_facts(vector_index: VectorIndex, segments: Sequence[Segment], model: Model) -> dict[str, Any] | None:
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


def token_facts(vector_index: VectorIndex, segments: Sequence[Segment], model: Model) -> dict[str, Any] | None:
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


def match_facts(vector_index: VectorIndex, segments: Sequence[Segment]) -> dict[str, Any] | None:
    """How an index keeps posting lists with vectors; None if it has none."""
    lists = [some for segment in segments for some in segment.matches.values()]
    if not lists:
        return None
    return {
        "store": token_store(vector_index.store),
        "vectors": sum(map(len, lists)),
        "bytes": sum(some.nbytes for some in lists),
    }
