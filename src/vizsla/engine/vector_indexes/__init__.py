"""How vectors are stored and searched: `exact`, `sq8`, `hnsw(ef_search=100)`, `ivf(nlist=1024)`, `plaid(nbits=2)`.

Each kind registers itself, in a file of this folder or in a plugin. Names of options are those of faiss.
"""

from __future__ import annotations

from vizsla.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vizsla.engine.vector_indexes.base import STORES, VECTOR_INDEXES, Exact, VectorIndex
    from vizsla.engine.vector_indexes.faiss_indexes import (
        HNSW,
        IVF,
        PQ,
        AnnIndex,
        Approximate,
        build_ann_index,
        check_gpu,
        faiss_for,
    )
    from vizsla.engine.vector_indexes.plaid import Plaid

_HOMES = {
    "STORES": "base",
    "VECTOR_INDEXES": "base",
    "HNSW": "faiss_indexes",
    "IVF": "faiss_indexes",
    "PQ": "faiss_indexes",
    "AnnIndex": "faiss_indexes",
    "Approximate": "faiss_indexes",
    "Exact": "base",
    "Plaid": "plaid",
    "VectorIndex": "base",
    "build_ann_index": "faiss_indexes",
    "check_gpu": "faiss_indexes",
    "faiss_for": "faiss_indexes",
}

__all__ = [
    "HNSW",
    "IVF",
    "PQ",
    "STORES",
    "VECTOR_INDEXES",
    "AnnIndex",
    "Approximate",
    "Exact",
    "Plaid",
    "VectorIndex",
    "build_ann_index",
    "check_gpu",
    "faiss_for",
]

__getattr__ = lazy_names(__name__, _HOMES)
