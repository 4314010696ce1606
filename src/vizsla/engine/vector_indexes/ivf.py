"""IVF: lists of near vectors, of which a few are searched."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from vizsla.engine.vector_indexes.approximate import (
    CODES,
    CODES_HELP,
    DEVICE_HELP,
    M_HELP,
    NBITS_HELP,
    POINTS_PER_CENTROID,
    SHARED_HELP,
    Clustered,
)
from vizsla.engine.vector_indexes.base import VECTOR_INDEXES, check_choice, check_ranges
from vizsla.spec import options_of


@dataclass(frozen=True, kw_only=True)
class IVF(Clustered):
    """Vectors in `nlist` lists, of which the nearest `nprobe` are searched.

    An `nlist` of 0 stands for four times the square root of the number of documents.
    """

    nlist: int = 0
    nprobe: int = 16
    codes: str = "sq8"

    name: ClassVar[str] = "ivf"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("codes", self.codes, (*CODES, "pq"))
        check_ranges(self, nlist=(0, 1 << 20), nprobe=(1, 1 << 20))

    @property
    def has_product_quantizer(self) -> bool:
        return self.codes == "pq"

    def faiss_factory(self, documents: int, width: int) -> str | None:
        nlist = self.nlist or max(min(int(4 * math.sqrt(documents)), documents // POINTS_PER_CENTROID), 1)
        return self.ivf_factory(documents, width, nlist, self.codes)

    @property
    def probes(self) -> int:
        return self.nprobe


VECTOR_INDEXES.register(
    IVF.name,
    help="Lists of near vectors, of which a few are searched.",
    options=options_of(
        IVF,
        nlist="number of lists; 0 for four times the square root of the number of documents",
        nprobe="lists that are searched",
        codes=f"{CODES_HELP}, or pq",
        m=M_HELP,
        nbits=NBITS_HELP,
        device=DEVICE_HELP,
        **SHARED_HELP,
    ),
    needs=("faiss",),
)(IVF)
