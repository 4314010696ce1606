"""How dense vectors are kept and searched, as a setting: `exact`, `sq8`, `hnsw(ef=100)`, `ivf(lists=1024)`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from vizsla.errors import UnknownNameError, VizslaError

STORES = ("float32", "float16", "sq8")
"""The forms a vector can be kept in, the most exact first: four bytes a number, two, or one."""
CODES = {"float32": "Flat", "float16": "SQfp16", "sq8": "SQ8"}
DEVICES = ("cpu", "gpu")
POINTS_PER_CENTRE = 39  # vectors that faiss wants to see for each centre it learns
_EFFORT = ("ef", "probes", "oversample", "device")
"""What may differ from one search to the next; all else is a matter of how the structure was built."""
_FOR_ALL = ("store", "oversample", "least")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "exact": ("store",),
    "hnsw": ("links", "building", "ef", "codes", *_FOR_ALL),
    "ivf": ("lists", "probes", "codes", "parts", "bits", "device", *_FOR_ALL),
    "pq": ("parts", "bits", "device", *_FOR_ALL),
}
KINDS = (*_OPTIONS, "float16", "sq8")
_RANGES = {
    "links": (2, 256),
    "building": (4, 10_000),
    "ef": (1, 100_000),
    "lists": (0, 1 << 20),
    "probes": (1, 1 << 20),
    "parts": (0, 4096),
    "bits": (4, 8),
    "oversample": (0, 1000),
    "least": (1, 1 << 40),
}


@dataclass(frozen=True)
class VectorIndex:
    """How dense vectors are searched, and the form they are stored in.

    `exact` scores every vector. `hnsw`, `ivf` and `pq` have a structure of faiss's in each segment of at least `least`
    documents; it names `oversample` times as many candidates as are asked for, and these are scored from the stored
    vectors. Smaller segments are searched exactly. `store`: what is kept of a vector; `float16` and `sq8` as names are
    short for `exact(store=float16)` and `exact(store=sq8)`.

    hnsw, a graph: `links` a node has, `building` and `ef` nodes looked at when it is built and searched. ivf, lists of
    near vectors: how many `lists`, 0 for four times the root of the documents, of which `probes` are looked through.
    pq: a vector as `parts` codes of `bits` bits each. `codes`: what the structure keeps of a vector by itself.

    >>> VectorIndex.parse("ivf(lists=1024, probes=16)").lists
    1024
    >>> str(VectorIndex.parse("hnsw( ef = 200, store=sq8 )")), str(VectorIndex.parse("exact(store=float16)"))
    ('hnsw(ef=200, store=sq8)', 'float16')
    """

    name: str = "exact"
    links: int = 32
    building: int = 100
    ef: int = 64
    lists: int = 0
    probes: int = 16
    codes: str = "sq8"
    parts: int = 0
    bits: int = 8
    device: str = "cpu"
    store: str = "float32"
    oversample: int = 0
    """0: 8 where codes are those of product quantisation, else 2."""
    least: int = 10_000

    def __post_init__(self) -> None:
        for what, name, names in (
            ("kind of dense search", self.name, tuple(_OPTIONS)),
            ("form to store vectors in", self.store, STORES),
            ("codes", self.codes, (*CODES, "pq") if self.name == "ivf" else tuple(CODES)),
            ("device", self.device, DEVICES),
        ):
            if name not in names:
                raise UnknownNameError(what, name, names)
        for option, (low, high) in _RANGES.items():
            value = getattr(self, option)
            if not low <= value <= high:
                raise VizslaError(f"{option} of {self.name} goes from {low:,} to {high:,}, not {value:,}")

    @classmethod
    def parse(cls, text: str) -> VectorIndex:
        name, options = _split(text)
        if name not in KINDS:
            raise UnknownNameError("kind of dense search", name, KINDS)
        if name in STORES:
            if options:
                raise VizslaError(f"{name} takes no options, as in {text!r}")
            return cls("exact", store=name)
        return cls(name, **_read(options, name, text))

    def __str__(self) -> str:
        if self.name == "exact" and self.store != "float32":
            return self.store
        plain = {f.name: f.default for f in fields(self)}
        told = [f"{o}={getattr(self, o)}" for o in _OPTIONS[self.name] if getattr(self, o) != plain[o]]
        return f"{self.name}({', '.join(told)})" if told else self.name

    def asked(self, text: str) -> VectorIndex:
        """The kind of one search on what this kind has built: `exact`, `ef=200`, or `hnsw(ef=200)`.

        >>> str(VectorIndex.parse("hnsw(links=16)").asked("ef=200"))
        'hnsw(links=16, ef=200)'
        """
        if text.strip() in ("exact", str(VectorIndex(store=self.store))):
            return VectorIndex(store=self.store)
        name, options = (self.name, text) if re.match(r"\s*\w+\s*=", text) else _split(text)
        if name not in KINDS:
            raise UnknownNameError("kind of dense search", name, KINDS)
        if name != self.name:
            raise VizslaError(
                f"this index has {self} and cannot be searched by {name}; 'vizsla compact DIR --dense {name}' builds it"
            )
        changes = _read(options, name, text)
        fixed = [o for o, value in changes.items() if o not in _EFFORT and value != getattr(self, o)]
        if fixed:
            raise VizslaError(
                f"{fixed[0]} is a matter of how the index is built; change it with 'vizsla compact DIR --dense ...'"
            )
        return replace(self, **changes)

    @property
    def built(self) -> bool:
        """Whether there is a structure to build and to search."""
        return self.name != "exact"

    @property
    def product_codes(self) -> bool:
        return self.name == "pq" or (self.name == "ivf" and self.codes == "pq")

    def candidates(self, k: int) -> int:
        """How many candidates a structure is asked for."""
        return k * (self.oversample or (8 if self.product_codes else 2))

    def structure(self, documents: int, width: int) -> str | None:
        """What is built for so many vectors of so many numbers, in faiss's words; None where they are too few."""
        if not self.built or documents < self.least:
            return None
        lists = 1 if self.name == "pq" else self.lists or max(int(4 * math.sqrt(documents)), 1)
        if self.name == "ivf" and not self.lists:
            lists = max(min(lists, documents // POINTS_PER_CENTRE), 1)
        centres = max(lists, 1 << self.bits if self.product_codes else 1)
        if self.name != "hnsw" and documents < POINTS_PER_CENTRE * centres:
            return None
        if self.name == "hnsw":
            joined = ",Flat" if self.codes == "float32" else f"_{CODES[self.codes]}"
            return f"HNSW{self.links}{joined} {self.building}"
        codes = f"PQ{self._parts_of(width)}x{self.bits}" if self.product_codes else CODES[self.codes]
        return f"IVF{lists},{codes}"

    def check_width(self, width: int) -> None:
        """Refuse to cut vectors into parts that are not equal."""
        if self.product_codes and width % self._parts_of(width):
            raise VizslaError(f"vectors of {width} numbers cannot be cut into {self.parts} equal parts for {self.name}")

    def _parts_of(self, width: int) -> int:
        """As many parts as there are groups of eight numbers, or the next number of parts that divides them."""
        return self.parts or max(parts for parts in range(1, max(width // 8, 1) + 1) if width % parts == 0)


def _split(text: str) -> tuple[str, str]:
    match = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", text)
    if match is None:
        raise VizslaError(f"{text!r} is no kind of dense search; expected something like hnsw or ivf(lists=1024)")
    return match[1], match[2] or ""


def _read(options: str, name: str, text: str) -> Mapping[str, Any]:
    kinds = {f.name: f.type for f in fields(VectorIndex)}
    out: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in options.split(","))):
        option, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not value:
            raise VizslaError(f"{item!r} in {text!r} is no option; expected name=value")
        if option not in _OPTIONS[name]:
            raise UnknownNameError(f"option of {name}", option, _OPTIONS[name])
        try:
            out[option] = int(value) if kinds[option] == "int" else value
        except ValueError:
            raise VizslaError(f"{value!r} is no whole number for {option} in {text!r}") from None
    return out
