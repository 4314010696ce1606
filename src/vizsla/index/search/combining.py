"""How the parts of a sum become one ranking: by the sum itself, exactly, or by rules over the best of each part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.engine import Query
from vizsla.errors import UnknownNameError, VizslaError
from vizsla.runs import FUSIONS, Fusion, Ranking, Run

DEPTH = 100
WAYS = ("sum", "union", *FUSIONS)


@dataclass(frozen=True)
class Combination:
    """A rule by its name; parsed from text, printed back.

    `sum`: every document by the sum of its scores, which is exact. `union(depth=100)`: the best documents of each part,
    so many or as many as are asked for, by the sum. A fusion, as in `rrf(k=60, depth=100)`: the best of each part by
    their ranks or normalised scores alone; the weights of the sum do not count.

    >>> str(Combination.parse("rrf")), str(Combination.parse("union(depth=20)"))
    ('rrf(k=60, depth=100)', 'union(depth=20)')
    """

    name: str
    depth: int = DEPTH
    fusion: Fusion | None = None

    @classmethod
    def parse(cls, text: str) -> Combination:
        match = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", text)
        if match is None or match[1] not in WAYS:
            raise UnknownNameError("way to combine", text if match is None else match[1], WAYS)
        options = [option.strip() for option in (match[2] or "").split(",") if option.strip()]
        depths = [re.fullmatch(r"depth\s*=\s*(\d+)", option) for option in options]
        others = [option for option, depth in zip(options, depths, strict=True) if depth is None]
        depth = next((int(found[1]) for found in depths if found), DEPTH)
        if depth < 1:
            raise VizslaError(f"each part must be searched for 1 document or more, not {depth}")
        if match[1] not in FUSIONS:
            if others or (match[1] == "sum" and options):
                raise VizslaError(f"{match[1]} does not take one of the options in {text!r}")
            return cls(match[1], depth)
        return cls(match[1], depth, Fusion.parse(f"{match[1]}({', '.join(others)})"))

    def __str__(self) -> str:
        if self.name == "sum":
            return self.name
        name, bracket, options = str(self.fusion or self.name).removesuffix(")").partition("(")
        return f"{name}({options + ', ' if bracket else ''}depth={self.depth})"

    def fused(self, rankings: Sequence[Sequence[Ranking]], k: int) -> list[Ranking]:
        """For each query the rankings of all parts as one, k deep; given part by part."""
        assert self.fusion is not None
        runs = [Run({str(q): ranking for q, ranking in enumerate(part)}) for part in rankings]
        fused = self.fusion.fuse(runs, depth=k)
        return [fused[str(q)] for q in range(len(rankings[0]))]


def parts_of(query: Query, spaces: Sequence[int]) -> list[Query]:
    """What a query asks of each namespace."""
    found = []
    for space in spaces:
        here = query.spaces == space
        dense = {space: query.dense[space]} if space in query.dense else {}
        found.append(Query(query.terms[here], query.spaces[here], query.weights[here], dense))
    return found


def union_of(numbers: Sequence[np.ndarray]) -> np.ndarray:
    """All documents that are in one of these."""
    return np.unique(np.concatenate([*numbers, np.zeros(0, np.int64)]))
