"""Several runs fused into one: reciprocal rank fusion, weighted sums of normalised scores, interleaving.

A fusion of your own is one class in a file of your own; import the file, or name it in VIZSLA_PLUGINS:

    @FUSIONS.register("best", help="The best score that any run gives a document.")
    class Best(Fusion):
        name = "best"

        def fuse_rankings(self, rankings, weights):
            scores = {}
            for ranking, weight in zip(rankings, weights):
                for document, score in ranking:
                    scores[document] = max(scores.get(document, 0.0), weight * score)
            return Ranking.of_pairs(scores.items())
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import ClassVar

import numpy as np

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.runs.run import Ranking, Run
from vizsla.spec import Option, Registry, format_call

DEPTH = 1000
RRF_K = 60.0  # Cormack, Clarke and Buettcher, SIGIR 2009
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
"""How a ranking's scores are normalised before they are added. Pyserini's hybrids use `centred`; `rank` is Borda's."""
AROUND_ZERO = ("centred", "zscore")
"""Normalisations that give an average document 0. A missing document then gets the lowest score by default."""


class Fusion(ABC):
    """How several rankings become one. Subclasses are parsed from text and printed back.

    >>> a, b = Run({"q": [("x", 9.0), ("y", 8.0)]}), Run({"q": [("y", 2.0), ("z", 1.0)]})
    >>> Fusion.parse("rrf").fuse([a, b])["q"].documents, Fusion.parse("interleave").fuse([a, b])["q"].documents
    (['y', 'x', 'z'], ['x', 'y', 'z'])
    >>> str(Fusion.parse("linear(missing=min)"))
    'linear(normalise=minmax, missing=min)'
    """

    name: ClassVar[str]
    """The name it is registered by."""
    takes_weights: ClassVar[bool] = True

    @abstractmethod
    def fuse_rankings(self, rankings: Sequence[Ranking], weights: Sequence[float]) -> Ranking:
        """The rankings of one query as one ranking, with one weight for each of them.

        A ranking is empty if its run did not find anything.
        """

    @staticmethod
    def parse(text: str) -> Fusion:
        """The fusion that a text such as `rrf(k=60)` stands for."""
        return FUSIONS.parse(text)

    @property
    def options(self) -> dict[str, object]:
        """The options and their values, as they are printed."""
        return {f.name: getattr(self, f.name) for f in fields(self)} if is_dataclass(self) else {}

    def __str__(self) -> str:
        return format_call(self.name, self.options)

    def fuse(self, runs: Sequence[Run], weights: Sequence[float] | None = None, depth: int = DEPTH) -> Run:
        """The runs as one run with at most `depth` documents for each query.

        Documents with equal scores keep the order in which the runs have them.
        """
        if not runs:
            raise VizslaError("there are no runs to fuse")
        if depth < 1:
            raise VizslaError(f"the depth of a fused run must be 1 or more, not {depth}")
        checked = self.check_weights(weights, len(runs))
        queries = dict.fromkeys(q for run in runs for q in run)
        fused = {}
        for query in queries:
            rankings = [run.get(query) or Ranking([], []) for run in runs]
            ranking = self.fuse_rankings(rankings, checked)
            fused[query] = ranking if len(ranking) <= depth else ranking[:depth]
        return Run(fused, str(self))

    def check_weights(self, weights: Sequence[float] | None, count: int) -> list[float]:
        """The weights of so many runs, 1 for each if None is given; wrong weights are refused."""
        if weights is None:
            return [1.0] * count
        if not self.takes_weights:
            raise VizslaError(f"{self.name} does not take weights")
        listed = list(weights)
        if len(listed) != count or not np.isfinite(listed).all():
            raise VizslaError(f"{count} runs need as many weights, all numbers, not {listed}")
        return listed


FUSIONS = Registry[Fusion]("fusion", example="rrf(k=60) or linear(normalise=minmax)")
"""The fusions by name."""


class _ScoreFusion(Fusion):
    """A fusion that adds up a value for each document of each ranking."""

    def fuse_rankings(self, rankings: Sequence[Ranking], weights: Sequence[float]) -> Ranking:
        numbers: dict[str, int] = {}
        rows = [[numbers.setdefault(d, len(numbers)) for d in ranking.documents] for ranking in rankings]
        totals, counts = np.zeros(len(numbers)), np.zeros(len(numbers))
        for ranking, weight, row in zip(rankings, weights, rows, strict=True):
            if row:
                values = self._values(ranking.scores)
                added = np.full(len(numbers), self._missing_value(values))
                added[row] = values
                totals += weight * added
                counts[row] += 1
        totals = self._combined(totals, counts)
        order = np.argsort(-totals, kind="stable")
        documents = list(numbers)
        return Ranking([documents[i] for i in order.tolist()], totals[order])

    @abstractmethod
    def _values(self, scores: np.ndarray) -> np.ndarray:
        """The values of a ranking's documents, from their scores, best first."""

    def _missing_value(self, values: np.ndarray) -> float:  # noqa: ARG002
        """The value of documents that a ranking does not have."""
        return 0.0

    def _combined(self, totals: np.ndarray, counts: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """The final scores, from the sums of values and the number of rankings that have each document."""
        return totals


@FUSIONS.register(
    "rrf",
    help="Reciprocal rank fusion: the sum of 1 / (k + rank).",
    options=[Option("k", "float", RRF_K, "a larger k makes the first ranks count less")],
)
@dataclass(frozen=True)
class ReciprocalRankFusion(_ScoreFusion):
    """Reciprocal rank fusion: a document's score is the sum of 1 / (k + rank) over the runs that have it."""

    name: ClassVar[str] = "rrf"
    k: float = RRF_K

    def __post_init__(self) -> None:
        if not (self.k >= 0 and np.isfinite(self.k)):
            raise VizslaError(f"k of rrf must be 0 or more, not {self.k:g}")

    def _values(self, scores: np.ndarray) -> np.ndarray:
        return np.asarray(1 / (self.k + np.arange(1, len(scores) + 1)))


_NORMALISE = Option("normalise", "str", "minmax", f"how scores are normalised: {', '.join(NORMALISATIONS)}")
_MISSING = Option("missing", "str", "", "what a document gets from a run without it: zero, or min, the run's lowest")


@FUSIONS.register("linear", help="The weighted sum of normalised scores.", options=[_NORMALISE, _MISSING])
@dataclass(frozen=True)
class LinearFusion(_ScoreFusion):
    """The weighted sum of normalised scores.

    A document that a run does not have gets 0 there, or with `missing=min` the lowest score of that run, which is the
    default after `centred` and `zscore`.
    """

    name: ClassVar[str] = "linear"
    normalise: str = "minmax"
    missing: str = ""

    def __post_init__(self) -> None:
        if not self.missing:
            object.__setattr__(self, "missing", "min" if self.normalise in AROUND_ZERO else "zero")
        if self.normalise not in NORMALISATIONS:
            raise UnknownNameError("normalisation", self.normalise, tuple(NORMALISATIONS))
        if self.missing not in MISSING:
            raise UnknownNameError("rule for missing documents", self.missing, MISSING)

    def _values(self, scores: np.ndarray) -> np.ndarray:
        return NORMALISATIONS[self.normalise](scores)

    def _missing_value(self, values: np.ndarray) -> float:
        return float(values.min()) if self.missing == "min" else 0.0


@FUSIONS.register(
    "mnz",
    help="CombMNZ: the weighted sum of normalised scores, times the number of runs that have the document.",
    options=[_NORMALISE, _MISSING],
)
@dataclass(frozen=True)
class CombMNZ(LinearFusion):
    """The weighted sum of normalised scores, times the number of runs that have the document."""

    name: ClassVar[str] = "mnz"

    def _combined(self, totals: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return np.asarray(totals * counts)


@FUSIONS.register("interleave", help="The first document of each run in turn, then the second of each, and so on.")
@dataclass(frozen=True)
class InterleaveFusion(Fusion):
    """The first document of each run in turn, then the second of each, and so on, as in the RepBERT paper.

    A document that comes up again is skipped. Scores are 1 / rank.
    """

    name: ClassVar[str] = "interleave"
    takes_weights: ClassVar[bool] = False

    def fuse_rankings(self, rankings: Sequence[Ranking], weights: Sequence[float]) -> Ranking:  # noqa: ARG002
        longest = max(map(len, rankings))
        turns = (r.documents[i] for i in range(longest) for r in rankings if i < len(r))
        documents = list(dict.fromkeys(turns))
        return Ranking(documents, 1 / np.arange(1, len(documents) + 1))


def fuse(
    runs: Sequence[Run], fusion: str | Fusion = "rrf", weights: Sequence[float] | None = None, depth: int = DEPTH
) -> Run:
    """Several runs fused into one with at most `depth` documents for each query.

    `fusion`: a `Fusion` or its text, as in `rrf(k=60)` or `linear(normalise=zscore)`. `weights`: one for each run.

    >>> a, b = Run({"q": [("x", 9.0), ("y", 8.0)]}), Run({"q": [("y", 2.0), ("z", 1.0)]})
    >>> fuse([a, b], "linear(normalise=none)", weights=[1.0, 2.0])["q"]
    Ranking([('y', 12.0), ('x', 9.0), ('z', 2.0)])
    """
    chosen = Fusion.parse(fusion) if isinstance(fusion, str) else fusion
    return chosen.fuse(runs, weights, depth)


def _divided(values: np.ndarray, divisor: float, otherwise: float) -> np.ndarray:
    """Quotients; if the divisor is 0, because all scores are equal, every value is `otherwise`."""
    return values / divisor if divisor > 0 else np.full(len(values), otherwise)
