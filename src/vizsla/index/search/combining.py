"""How the parts of a sum become one ranking: by the exact sum, or by a rule over the best documents of each part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.engine import Query
from vizsla.engine.arrays import distinct
from vizsla.errors import UnknownNameError, VizslaError
from vizsla.numbers import short
from vizsla.runs import FUSIONS, Fusion, Ranking, Run
from vizsla.spec import Option, format_call, parse_call

DEPTH = 100
CANDIDATES = "candidates"
_OWN = ("sum", "union", CANDIDATES)
_DEPTH_OPTION = Option("depth", "int", DEPTH, "how many documents of each part are looked at")


@dataclass(frozen=True)
class Combination:
    """A rule by its name; parsed from text, printed back.

    `sum` ranks all documents by the sum of their scores, exactly. `union(depth=100)` ranks the union of the best
    max(depth, k) documents of each part by the sum of their scores. `candidates(depth=100)` is the same, but parts of
    late interaction only score what the others find. A fusion, as in `rrf(k=60, depth=100)`, ranks the best documents
    of each part by their ranks or normalised scores, without the weights of the sum.

    >>> str(Combination.parse("rrf")), str(Combination.parse("union(depth=20)"))
    ('rrf(k=60, depth=100)', 'union(depth=20)')
    """

    name: str
    depth: int = DEPTH
    fusion: Fusion | None = None

    @classmethod
    def parse(cls, text: str) -> Combination:
        """The combination that a text such as `rrf(k=60, depth=100)` stands for."""
        call = parse_call(text, "way to combine", "rrf(k=60, depth=100)")
        if call.name not in _OWN and call.name not in FUSIONS:
            raise UnknownNameError("way to combine", call.name, (*_OWN, *FUSIONS.names()))
        options = {key: value for key, value in call.options.items() if key != _DEPTH_OPTION.name}
        depth = _read_depth(call.options.get(_DEPTH_OPTION.name), text)
        if call.name in _OWN and (options or (call.name == "sum" and call.options)):
            raise VizslaError(f"{short(text)} has an option that {call.name} does not take")
        fusion = None if call.name in _OWN else FUSIONS.make(call._replace(options=options))
        return cls(call.name, depth, fusion)

    def __str__(self) -> str:
        if self.name == "sum":
            return self.name
        options = self.fusion.options if self.fusion is not None else {}
        return format_call(self.name, {**options, _DEPTH_OPTION.name: self.depth})

    def fused(self, rankings: Sequence[Sequence[Ranking]], k: int) -> list[Ranking]:
        """For each query one ranking of k documents, from the rankings of all queries by each part."""
        assert self.fusion is not None
        runs = [Run({str(q): ranking for q, ranking in enumerate(part)}) for part in rankings]
        fused = self.fusion.fuse(runs, depth=k)
        return [fused[str(q)] for q in range(len(rankings[0]))]


def _read_depth(text: str | None, whole: str) -> int:
    if text is None:
        return DEPTH
    try:
        depth = int(_DEPTH_OPTION.read(text))
    except ValueError:
        raise VizslaError(f"{short(text)} is not {_DEPTH_OPTION.expected} for depth in {short(whole)}") from None
    if depth < 1:
        raise VizslaError(f"each part must be searched for 1 document or more, not {depth}")
    return depth


def parts_of(query: Query, spaces: Sequence[int]) -> list[Query]:
    """The part of a query that belongs to each namespace."""
    parts = []
    for space in spaces:
        here = query.spaces == space
        dense = {space: query.dense[space]} if space in query.dense else {}
        tokens = {space: query.tokens[space]} if space in query.tokens else {}
        matches = {space: query.matches[space]} if space in query.matches else {}
        ngrams = {space: query.ngrams[space]} if space in query.ngrams else {}
        parts.append(Query(query.terms[here], query.spaces[here], query.weights[here], dense, tokens, matches, ngrams))
    return parts


def union_of(numbers: Sequence[np.ndarray]) -> np.ndarray:
    """The numbers of all documents that are in any of the arrays."""
    return distinct(np.concatenate([*numbers, np.zeros(0, np.int64)]))
