"""Exact search: every vector is scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vizsla.engine.vector_indexes.base import VECTOR_INDEXES, VectorIndex
from vizsla.spec import options_of


@dataclass(frozen=True, kw_only=True)
class Exact(VectorIndex):
    """Scores every vector. `float16` and `sq8` are short for `exact(store=float16)` and `exact(store=sq8)`."""

    name: ClassVar[str] = "exact"

    def __str__(self) -> str:
        return self.name if self.store == "float32" else self.store


STORE_HELP = "type of the stored vectors: float32, float16 or sq8"

VECTOR_INDEXES.register("exact", help="Scores every vector.", options=options_of(Exact, store=STORE_HELP))(Exact)


@VECTOR_INDEXES.register("float16", help="Scores every vector; stores two bytes a number.")
def float16() -> Exact:
    """Exact search over vectors in 16-bit floats."""
    return Exact(store="float16")


@VECTOR_INDEXES.register("sq8", help="Scores every vector; stores one byte a number.")
def sq8() -> Exact:
    """Exact search over vectors in 8 bits a number."""
    return Exact(store="sq8")
