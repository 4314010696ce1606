"""What the vector indexes that faiss searches share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from vizsla.engine.vector_indexes.base import DEVICES, VectorIndex, check_choice, check_ranges
from vizsla.errors import VizslaError

CODES = {"float32": "Flat", "float16": "SQfp16", "sq8": "SQ8"}
"""How faiss names the types it keeps vectors in."""
POINTS_PER_CENTROID = 39  # vectors that faiss wants to see for each centroid it learns
CODES_HELP = "type faiss keeps vectors in"
SHARED_HELP = {
    "store": "type of the stored vectors: float32, float16 or sq8",
    "oversample": "faiss gives this many times k candidates, which are scored exactly; 0 decides by itself",
    "min_documents": "segments with fewer documents are searched exactly",
}
DEVICE_HELP = "where faiss searches: cpu or gpu"
M_HELP = "number of sub-quantizers; 0 for one for every eight numbers"
NBITS_HELP = "bits of a sub-quantizer's code"


@dataclass(frozen=True, kw_only=True)
class Approximate(VectorIndex):
    """A vector index of faiss in each segment of at least `min_documents` documents.

    faiss gives `oversample` times k candidates, which are scored exactly from the stored vectors. An `oversample` of 0
    stands for 8 with product quantization and for 2 without.
    """

    oversample: int = 0
    min_documents: int = 10_000

    search_options: ClassVar[tuple[str, ...]] = ("oversample",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, oversample=(0, 1000), min_documents=(1, 1 << 40))

    @property
    def is_approximate(self) -> bool:
        return True

    @property
    def has_product_quantizer(self) -> bool:
        """Whether faiss keeps product quantization codes."""
        return False

    def candidates(self, k: int) -> int:
        """How many candidates faiss gives for the best k."""
        return k * (self.oversample or (8 if self.has_product_quantizer else 2))

    def factory(self, documents: int, width: int) -> str | None:
        return None if documents < self.min_documents else self.faiss_factory(documents, width)

    @abstractmethod
    def faiss_factory(self, documents: int, width: int) -> str | None:
        """What faiss builds where there are enough documents by `min_documents`."""

    @abstractmethod
    def parameters(self, faiss: Any, count: int, **options: Any) -> Any:
        """faiss's parameters of one search for so many candidates."""


@dataclass(frozen=True, kw_only=True)
class Clustered(Approximate):
    """Vectors in lists around centroids, as faiss's IVF indexes have them; `m` and `nbits` for product quantization."""

    m: int = 0
    nbits: int = 8
    device: str = "cpu"

    search_options: ClassVar[tuple[str, ...]] = ("nprobe", "oversample", "device")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("device", self.device, DEVICES)
        check_ranges(self, m=(0, 4096), nbits=(4, 8))

    @property
    @abstractmethod
    def probes(self) -> int:
        """How many lists are searched."""

    def parameters(self, faiss: Any, count: int, **options: Any) -> Any:  # noqa: ARG002
        return faiss.SearchParametersIVF(nprobe=self.probes, **options)

    def check_width(self, width: int) -> None:
        """Refuse to cut vectors into sub-vectors that are not equal."""
        if self.has_product_quantizer and width % self._sub_quantizers(width):
            raise VizslaError(f"vectors of {width} numbers cannot be cut into {self.m} equal parts for {self.name}")

    def ivf_factory(self, documents: int, width: int, nlist: int, codes: str) -> str | None:
        """The faiss factory string of an IVF index; None if there are too few documents to train the centroids."""
        centroids = max(nlist, 1 << self.nbits if self.has_product_quantizer else 1)
        if documents < POINTS_PER_CENTROID * centroids:
            return None
        if self.has_product_quantizer:
            return f"IVF{nlist},PQ{self._sub_quantizers(width)}x{self.nbits}"
        return f"IVF{nlist},{CODES[codes]}"

    def _sub_quantizers(self, width: int) -> int:
        """`m`, or one for every eight numbers, or the next lower number that divides the width."""
        return self.m or max(m for m in range(1, max(width // 8, 1) + 1) if width % m == 0)
