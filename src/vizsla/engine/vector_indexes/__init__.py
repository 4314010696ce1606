"""How vectors are stored and searched: `exact`, `sq8`, `hnsw(ef_search=100)`, `ivf(nlist=1024)`, `plaid(nbits=2)`.

Each kind is a file of this folder that registers itself. Names of options are those of faiss.
"""

from __future__ import annotations

from vizsla.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vizsla.engine.vector_indexes.approximate import Approximate
    from vizsla.engine.vector_indexes.base import STORES, VECTOR_INDEXES, VectorIndex
    from vizsla.engine.vector_indexes.exact import Exact
    from vizsla.engine.vector_indexes.plaid import Plaid

_HOMES = {
    "STORES": "base",
    "VECTOR_INDEXES": "base",
    "Approximate": "approximate",
    "Exact": "exact",
    "Plaid": "plaid",
    "VectorIndex": "base",
}

__all__ = ["STORES", "VECTOR_INDEXES", "Approximate", "Exact", "Plaid", "VectorIndex"]

__getattr__ = lazy_names(__name__, _HOMES)
