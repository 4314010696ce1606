"""The vector index in the metadata of an index, which may have the option names of older versions."""

from __future__ import annotations

from vizsla.engine.vector_indexes.base import VECTOR_INDEXES, VectorIndex
from vizsla.spec import parse_call

_RENAMED = {
    "links": "M",
    "building": "ef_construction",
    "ef": "ef_search",
    "lists": "nlist",
    "probes": "nprobe",
    "parts": "m",
    "bits": "nbits",
    "least": "min_documents",
}


def read_vector_index(text: str | None) -> VectorIndex:
    """The vector index that an index was built with; an index that says nothing has exact search.

    >>> str(read_vector_index("ivf(lists=1024, probes=8)")), str(read_vector_index(None))
    ('ivf(nlist=1024, nprobe=8)', 'exact')
    """
    call = parse_call(text or "exact", VECTOR_INDEXES.what, VECTOR_INDEXES.example)
    options = {_RENAMED.get(name, name): value for name, value in call.options.items()}
    return VECTOR_INDEXES.make(call._replace(options=options))
