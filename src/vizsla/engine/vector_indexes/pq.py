"""PQ: product quantization codes, all of which are searched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vizsla.engine.vector_indexes.approximate import DEVICE_HELP, M_HELP, NBITS_HELP, SHARED_HELP, Clustered
from vizsla.engine.vector_indexes.base import VECTOR_INDEXES
from vizsla.spec import options_of


@dataclass(frozen=True, kw_only=True)
class PQ(Clustered):
    """A vector as `m` codes of `nbits` bits each. All codes are searched: an IVF index with one list."""

    name: ClassVar[str] = "pq"
    search_options: ClassVar[tuple[str, ...]] = ("oversample", "device")

    @property
    def has_product_quantizer(self) -> bool:
        return True

    def faiss_factory(self, documents: int, width: int) -> str | None:
        return self.ivf_factory(documents, width, 1, "pq")

    @property
    def probes(self) -> int:
        return 1


VECTOR_INDEXES.register(
    PQ.name,
    help="Product quantization: a few bytes a vector.",
    options=options_of(PQ, m=M_HELP, nbits=NBITS_HELP, device=DEVICE_HELP, **SHARED_HELP),
    needs=("faiss",),
)(PQ)
