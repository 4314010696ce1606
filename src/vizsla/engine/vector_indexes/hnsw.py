"""HNSW: a graph of near neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vizsla.engine.vector_indexes.approximate import CODES, CODES_HELP, SHARED_HELP, Approximate
from vizsla.engine.vector_indexes.base import VECTOR_INDEXES, check_choice, check_ranges
from vizsla.spec import options_of


@dataclass(frozen=True, kw_only=True)
class HNSW(Approximate):
    """A graph in which each node has `M` links.

    The graph is built with a beam of `ef_construction` nodes and searched with one of `ef_search` nodes.
    """

    M: int = 32
    ef_construction: int = 100
    ef_search: int = 64
    codes: str = "sq8"

    name: ClassVar[str] = "hnsw"
    search_options: ClassVar[tuple[str, ...]] = ("ef_search", "oversample")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("codes", self.codes, tuple(CODES))
        check_ranges(self, M=(2, 256), ef_construction=(4, 10_000), ef_search=(1, 100_000))

    def faiss_factory(self, documents: int, width: int) -> str | None:  # noqa: ARG002
        codes = ",Flat" if self.codes == "float32" else f"_{CODES[self.codes]}"
        return f"HNSW{self.M}{codes} {self.ef_construction}"

    def parameters(self, faiss: Any, count: int, **options: Any) -> Any:
        return faiss.SearchParametersHNSW(efSearch=max(self.ef_search, count), **options)


VECTOR_INDEXES.register(
    HNSW.name,
    help="A graph of near neighbours: fast, and large.",
    options=options_of(
        HNSW,
        M="links of a node of the graph",
        ef_construction="size of the beam when the graph is built",
        ef_search="size of the beam when the graph is searched",
        codes=CODES_HELP,
        **SHARED_HELP,
    ),
    needs=("faiss",),
)(HNSW)
