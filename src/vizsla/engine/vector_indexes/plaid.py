"""PLAID: token vectors around centroids, in residual codes of 2 or 4 bits, searched by lists of documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vizsla.engine.centroids import MAX_CENTROIDS, default_centroids
from vizsla.engine.vector_indexes.base import (
    MIN_DOCUMENTS_HELP,
    STORE_HELP,
    VECTOR_INDEXES,
    VectorIndex,
    check_ranges,
)
from vizsla.errors import VizslaError
from vizsla.spec import options_of

MORE = 30  # documents beside 2 k that are scored exactly by default


@dataclass(frozen=True, kw_only=True)
class Plaid(VectorIndex):
    """Token vectors around `nlist` centroids, which are learnt from them.

    With 2 or 4 `nbits` the vectors are stored as their nearest centroid and a code for the rest; with 0 they are stored
    as `store` says, and centroids only lead the search. Dense vectors of the same model are searched exactly.
    """

    nbits: int = 4
    nlist: int = 0
    nprobe: int = 128
    depth: int = 4096
    oversample: int = 0
    min_documents: int = 1000

    name: ClassVar[str] = "plaid"
    search_options: ClassVar[tuple[str, ...]] = ("nprobe", "depth", "oversample")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nbits not in (0, 2, 4):
            raise VizslaError(f"nbits of plaid are 2 or 4, or 0 for vectors as they are, not {self.nbits}")
        check_ranges(self, nlist=(0, MAX_CENTROIDS), nprobe=(1, MAX_CENTROIDS), depth=(1, 1 << 30))
        check_ranges(self, oversample=(0, 1000), min_documents=(1, 1 << 40))

    @property
    def is_approximate(self) -> bool:
        return True

    def centroids(self, tokens: int) -> int:
        """How many centroids are learnt for so many tokens."""
        return min(self.nlist, tokens) or default_centroids(tokens)

    def candidates(self, k: int) -> int:
        """How many documents are scored exactly for the best k."""
        return k * self.oversample or 2 * k + MORE


VECTOR_INDEXES.register(
    Plaid.name,
    help="Token vectors around centroids, in residual codes, searched by lists of documents.",
    options=options_of(
        Plaid,
        nbits="bits of a number's residual code: 2 or 4; 0 stores vectors as `store` says",
        nlist="number of centroids; 0 for a power of two near 16 times the square root of the number of tokens",
        nprobe="centroids that a query token looks at",
        depth="documents that are scored by their most likely tokens",
        store=STORE_HELP,
        oversample="this many times k documents are scored exactly; 0 for twice k and 30 more",
        min_documents=MIN_DOCUMENTS_HELP,
    ),
)(Plaid)
