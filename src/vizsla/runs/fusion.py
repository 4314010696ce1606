"""Several runs to one: reciprocal ranks, weighted sums of normalised scores, interleaving."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.numbers import number_text
from vizsla.runs.run import Ranking, Run

DEPTH = 1000
RRF_K = 60.0  # Cormack, Clarke and Buettcher, SIGIR 2009
FUSIONS = ("rrf", "linear", "mnz", "interleave")
MISSING = ("zero", "min")

NORMALISATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda s: s,
    "minmax": lambda s: _divided(s - s.min(), s.max() - s.min(), 1.0),
    "centred": lambda s: _divided(s - (s.min() + s.max()) / 2, s.max() - s.min(), 0.0),
    "zscore": lambda s: _divided(s - s.mean(), s.std(), 0.0),
    "max": lambda s: _divided(s, np.abs(s).max(), 0.0),
    "sum": lambda s: _divided(s - s.min(), (s - s.min()).sum(), 1 / len(s)),
    "rank": lambda s: 1 - np.arange(len(s)) / len(s),
}
"""What a ranking's scores become before they are added: `centred` is Pyserini's for hybrids, `rank` Borda's count."""
AROUND_ZERO = ("centred", "zscore")
"""Normalisations after which 0 is a middling score, so that a missing document gets the lowest instead."""


def _divided(values: np.ndarray, by: float, else_all: float) -> np.ndarray:
    """Quotients; where all scores are equal there is nothing to divide by, and all get the same."""
    return values / by if by > 0 else np.full(len(values), else_all)


@dataclass(frozen=True)
class Fusion:
    """How runs become one; parsed from text, printed back.

    `rrf(k=60)`: the sum of 1 / (k + rank). `linear(normalise=minmax, missing=zero)`: the weighted sum of scores;
    `mnz` the same times the number of runs that found the document. A document some run has not found gets 0 there, or
    with `missing=min` the lowest score of that run, which is the default after `centred` and `zscore`.
    `interleave`: first of the first, first of the second, and so on, each document at its first place, as in the
    RepBERT paper.

    >>> a, b = Run({"q": [("x", 9.0), ("y", 8.0)]}), Run({"q": [("y", 2.0), ("z", 1.0)]})
    >>> Fusion.parse("rrf").fuse([a, b])["q"].documents, Fusion.parse("interleave").fuse([a, b])["q"].documents
    (['y', 'x', 'z'], ['x', 'y', 'z'])
    >>> str(Fusion.parse("linear(missing=min)"))
    'linear(normalise=minmax, missing=min)'
    """

    kind: str = "rrf"
    k: float = RRF_K
    normalise: str = "minmax"
    missing: str = ""

    def __post_init__(self) -> None:
        if not self.missing:
            object.__setattr__(self, "missing", "min" if self.normalise in AROUND_ZERO else "zero")
        for what, name, names in (
            ("fusion", self.kind, FUSIONS),
            ("normalisation", self.normalise, tuple(NORMALISATIONS)),
            ("rule for missing documents", self.missing, MISSING),
        ):
            if name not in names:
                raise UnknownNameError(what, name, names)
        if not (self.k >= 0 and np.isfinite(self.k)):
            raise VizslaError(f"k of rrf must be 0 or more, not {self.k:g}")

    @classmethod
    def parse(cls, text: str) -> Fusion:
        match = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", text)
        if match is None:
            raise VizslaError(f"{text!r} is no fusion; expected something like rrf(k=60) or linear(normalise=minmax)")
        options = dict(re.split(r"\s*=\s*", part, maxsplit=1) for part in _parts(match[2], text))
        known = {"rrf": {"k"}, "linear": {"normalise", "missing"}, "mnz": {"normalise", "missing"}}
        wrong = set(options) - known.get(match[1], set())
        if match[1] in FUSIONS and wrong:
            raise UnknownNameError(f"option of {match[1]}", min(wrong), sorted(known.get(match[1], set())))
        try:
            k = float(options.pop("k", RRF_K))
        except ValueError:
            raise VizslaError(f"{text!r} is no fusion: k must be a number") from None
        return cls(match[1], k, **options)

    def __str__(self) -> str:
        if self.kind == "rrf":
            return f"rrf(k={number_text(self.k)})"
        if self.kind == "interleave":
            return self.kind
        return f"{self.kind}(normalise={self.normalise}, missing={self.missing})"

    def fuse(self, runs: Sequence[Run], weights: Sequence[float] | None = None, depth: int = DEPTH) -> Run:
        """The runs as one, `depth` deep. Equal scores keep the order in which the runs have the documents."""
        if not runs:
            raise VizslaError("there are no runs to fuse")
        if depth < 1:
            raise VizslaError(f"a fused run must be 1 deep or more, not {depth}")
        if self.kind == "interleave" and weights is not None:
            raise VizslaError("interleaving knows no weights")
        given = [1.0] * len(runs) if weights is None else list(weights)
        if len(given) != len(runs) or not np.isfinite(given).all():
            raise VizslaError(f"{len(runs)} runs need as many weights, all numbers, not {given}")
        queries = dict.fromkeys(q for run in runs for q in run)
        fused = {}
        for query in queries:
            rankings = [run.get(query) or Ranking([], []) for run in runs]
            fused[query] = self._ranking(rankings, given, depth)
        return Run(fused, str(self))

    def _ranking(self, rankings: Sequence[Ranking], weights: Sequence[float], depth: int) -> Ranking:
        if self.kind == "interleave":
            documents = _interleaved([r.documents for r in rankings], depth)
            return Ranking(documents, 1 / np.arange(1, len(documents) + 1))
        numbers: dict[str, int] = {}
        codes = [[numbers.setdefault(d, len(numbers)) for d in r.documents] for r in rankings]
        totals, found = np.zeros(len(numbers)), np.zeros(len(numbers))
        for ranking, weight, places in zip(rankings, weights, codes, strict=True):
            if places:
                values = self._values(ranking.scores)
                share = np.full(len(numbers), values.min() if self.missing == "min" and self.kind != "rrf" else 0.0)
                share[places] = values
                totals += weight * share
                found[places] += 1
        if self.kind == "mnz":
            totals *= found
        order = np.argsort(-totals, kind="stable")[:depth]
        documents = list(numbers)
        return Ranking([documents[i] for i in order.tolist()], totals[order])

    def _values(self, scores: np.ndarray) -> np.ndarray:
        if self.kind == "rrf":
            return 1 / (self.k + np.arange(1, len(scores) + 1))
        return NORMALISATIONS[self.normalise](scores)


def _parts(options: str | None, text: str) -> list[str]:
    parts = [part.strip() for part in (options or "").split(",") if part.strip()]
    if any("=" not in part for part in parts):
        raise VizslaError(f"{text!r} is no fusion: options are written as name=value")
    return parts


def _interleaved(columns: Sequence[list[str]], depth: int) -> list[str]:
    longest = max(map(len, columns))
    turns = (column[i] for i in range(longest) for column in columns if i < len(column))
    return list(dict.fromkeys(turns))[:depth]


def fuse(
    runs: Sequence[Run], how: str | Fusion = "rrf", weights: Sequence[float] | None = None, depth: int = DEPTH
) -> Run:
    """Several runs as one; see `Fusion`."""
    fusion = Fusion.parse(how) if isinstance(how, str) else how
    return fusion.fuse(runs, weights, depth)
