"""Which way of keeping and searching dense vectors a model can have, and what an index has of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vizsla.engine import STORES, Approximate, Exact, Segment, VectorIndex, check_gpu, faiss_for
from vizsla.errors import VizslaError
from vizsla.models import Model


def check_kind(kind: VectorIndex, model: Model) -> None:
    """Refuse a kind that cannot be built for a model, or not here."""
    if kind == Exact():
        return
    widths = [p.component.dimensions for p in model.parts if p.component.dimensions]
    if not widths:
        raise VizslaError(f"{model.name} has no dense vectors, which {kind} is for")
    for width in widths:
        kind.check_width(width)
    if isinstance(kind, Approximate):
        faiss = faiss_for(kind.name)
        if kind.device == "gpu":
            check_gpu(faiss)


def check_change(new: VectorIndex, old: VectorIndex) -> None:
    """Refuse to store in more bits what was stored in fewer."""
    if STORES.index(new.store) < STORES.index(old.store):
        raise VizslaError(
            f"the vectors of this index are stored in {old.store}, and what {new.store} would have is lost; "
            f"add store={old.store}, or index anew"
        )


def dense_facts(kind: VectorIndex, segments: Sequence[Segment], model: Model) -> dict[str, Any] | None:
    """How an index keeps and searches its dense vectors; None where it has none."""
    spaces = [i for i, part in enumerate(model.parts) if part.component.dimensions]
    if not spaces:
        return None
    ann_indexes = [ann_index for segment in segments for ann_index in segment.ann.values()]
    return {
        "kind": str(kind),
        "store": kind.store,
        "built_segments": sum(bool(segment.ann) for segment in segments),
        "exact_segments": sum(not segment.ann for segment in segments),
        "vector_bytes": sum(segment.dense[s].nbytes for segment in segments for s in spaces),
        "structure_bytes": sum(ann_index.bytes for ann_index in ann_indexes),
        "built": sorted({ann_index.factory for ann_index in ann_indexes}),
    }
