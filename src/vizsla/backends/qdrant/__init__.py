"""Collections in Qdrant, a distributed engine, as retrievers: `vizsla.open("qdrant://localhost:6333/my")`.

The client is imported when it is first needed.
"""

from __future__ import annotations

from vizsla.errors import VizslaError
from vizsla.retrievers.locations import LOCATIONS
from vizsla.runs import Retriever


@LOCATIONS.register("qdrant", help="A collection in Qdrant: qdrant://host:6333,host2:6333/my", needs=("qdrant_client",))
def open_qdrant(location: str) -> Retriever:
    """The collection at an address; the key is that of the environment variable QDRANT_API_KEY."""
    try:
        import qdrant_client  # noqa: F401
    except ImportError:
        raise VizslaError(
            f"{location}: this needs the package qdrant-client; get it with: pip install 'vizsla[qdrant]'"
        ) from None
    from vizsla.backends.qdrant.index import QdrantIndex

    return QdrantIndex(location)


LOCATIONS.register("qdrants", help="The same over an encrypted connection.", needs=("qdrant_client",))(open_qdrant)
