"""What all vector indexes share, their registry, and exact search, which scores every vector."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.spec import Call, Registry, format_call, options_of, parse_call, parse_options

STORES = ("float32", "float16", "sq8")
"""The types a vector can be stored in, the most exact first: four bytes a number, two, or one."""
DEVICES = ("cpu", "gpu")
STORE_HELP = "type of the stored vectors: float32, float16 or sq8"
MIN_DOCUMENTS_HELP = "segments with fewer documents are searched exactly"


@dataclass(frozen=True, kw_only=True)
class VectorIndex:
    """How dense vectors are stored and searched; each kind is a subclass with its own options.

    `store` is the type a vector is stored in: `float32`, `float16` or `sq8`.

    >>> VectorIndex.parse("ivf(nlist=1024, nprobe=16)").nlist
    1024
    >>> str(VectorIndex.parse("hnsw( ef_search = 200, store=sq8 )")), str(VectorIndex.parse("exact(store=float16)"))
    ('hnsw(ef_search=200, store=sq8)', 'float16')
    """

    store: str = "float32"

    name: ClassVar[str]
    search_options: ClassVar[tuple[str, ...]] = ()
    """The options that may differ from one search to the next; the others take effect when the index is built."""

    def __post_init__(self) -> None:
        check_choice("storage type of vectors", self.store, STORES)

    @classmethod
    def parse(cls, text: str) -> VectorIndex:
        """The vector index that a text describes, as in `hnsw(M=32, ef_search=100)`."""
        return VECTOR_INDEXES.parse(text)

    def __str__(self) -> str:
        options = {option.name: getattr(self, option.name) for option in VECTOR_INDEXES[self.name].options}
        defaults = {option.name: option.default for option in VECTOR_INDEXES[self.name].options}
        return format_call(self.name, {name: value for name, value in options.items() if value != defaults[name]})

    def with_search_params(self, text: str) -> VectorIndex:
        """This vector index with other search parameters: `ef_search=200`, `hnsw(ef_search=200)`, or `exact`.

        >>> str(VectorIndex.parse("hnsw(M=16)").with_search_params("ef_search=200"))
        'hnsw(M=16, ef_search=200)'
        """
        exact = VECTOR_INDEXES["exact"].make(store=self.store)
        if text.strip() in ("exact", str(exact)):
            return exact
        if re.match(r"\s*\w+\s*=", text):
            call = Call(self.name, parse_options(text, text), text)
        else:
            call = parse_call(text, VECTOR_INDEXES.what, VECTOR_INDEXES.example)
        entry = VECTOR_INDEXES[call.name]
        if call.name != self.name:
            raise VizslaError(
                f"this index has {self} and cannot be searched by {call.name}; "
                f"'vizsla compact INDEX --vector-index {call.name}' builds it"
            )
        if unknown := [option for option in call.options if option not in {o.name for o in entry.options}]:
            raise VizslaError(
                f"{call.name} does not take the option {unknown[0]} in {text!r}; a search can change "
                f"{', '.join(self.search_options)}"
            )
        changes = entry.read_options(call)
        for option, value in changes.items():
            if option not in self.search_options and value != getattr(self, option):
                raise VizslaError(
                    f"{option} takes effect when the index is built; change it with "
                    "'vizsla compact INDEX --vector-index ...'"
                )
        return replace(self, **changes)

    @property
    def is_approximate(self) -> bool:
        """Whether faiss searches the vectors; otherwise every vector is scored."""
        return False

    @property
    def device(self) -> str:
        """Where vectors are searched: `cpu` or `gpu`."""
        return "cpu"

    def factory(self, documents: int, width: int) -> str | None:  # noqa: ARG002
        """The faiss index to build for this many vectors of a width; None if every vector is scored.

        The text is that of `faiss.index_factory`, for HNSW followed by a blank and `ef_construction`.
        """
        return None

    def check_width(self, width: int) -> None:
        """Refuse vectors of a width that cannot be indexed."""


VECTOR_INDEXES = Registry[VectorIndex](
    "vector index", package="vizsla.engine.vector_indexes", example="hnsw(ef_search=100)", first=("base", "plaid")
)


def check_choice(what: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of some names."""
    if value not in choices:
        raise UnknownNameError(what, value, tuple(choices))


def check_ranges(vector_index: Any, **ranges: tuple[int, int]) -> None:
    """Raise an error for an option outside its range, both ends included."""
    for option, (low, high) in ranges.items():
        value = getattr(vector_index, option)
        if not low <= value <= high:
            raise VizslaError(f"{option} of {vector_index.name} goes from {low:,} to {high:,}, not {value:,}")


@dataclass(frozen=True, kw_only=True)
class Exact(VectorIndex):
    """Scores every vector. `float16` and `sq8` are short for `exact(store=float16)` and `exact(store=sq8)`."""

    name: ClassVar[str] = "exact"

    def __str__(self) -> str:
        return self.name if self.store == "float32" else self.store


VECTOR_INDEXES.register("exact", help="Scores every vector.", options=options_of(Exact, store=STORE_HELP))(Exact)


@VECTOR_INDEXES.register("float16", help="Scores every vector; stores two bytes a number.")
def float16() -> Exact:
    """Exact search over vectors in 16-bit floats."""
    return Exact(store="float16")


@VECTOR_INDEXES.register("sq8", help="Scores every vector; stores one byte a number.")
def sq8() -> Exact:
    """Exact search over vectors in 8 bits a number."""
    return Exact(store="sq8")
