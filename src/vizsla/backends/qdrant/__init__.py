"""Collections in Qdrant, a distributed engine, as retrievers: `vizsla.open("qdrant://localhost:6333/my")`.

The client is imported when it is first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vizsla.errors import VizslaError
from vizsla.lazy import lazy_names
from vizsla.retrievers.locations import LOCATIONS
from vizsla.runs import Retriever

if TYPE_CHECKING:
    from vizsla.backends.qdrant.index import QdrantIndex

__all__ = ["QdrantIndex", "open_qdrant"]


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


__getattr__ = lazy_names(__name__, {"QdrantIndex": "index"})

LOCATIONS.register("qdrants", help="The same over an encrypted connection.", needs=("qdrant_client",))(open_qdrant)
