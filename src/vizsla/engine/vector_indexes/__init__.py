"""How vectors are stored and searched: `exact`, `sq8`, `hnsw(ef_search=100)`, `ivf(nlist=1024)`, `plaid(nbits=2)`.

Each kind is a file of this folder that registers itself. Names of options are those of faiss.
"""

from __future__ import annotations

from vizsla.engine.vector_indexes.approximate import Approximate
from vizsla.engine.vector_indexes.base import STORES, VECTOR_INDEXES, VectorIndex
from vizsla.engine.vector_indexes.exact import Exact
from vizsla.engine.vector_indexes.metadata import read_vector_index
from vizsla.engine.vector_indexes.plaid import Plaid

__all__ = ["STORES", "VECTOR_INDEXES", "Approximate", "Exact", "Plaid", "VectorIndex", "read_vector_index"]
