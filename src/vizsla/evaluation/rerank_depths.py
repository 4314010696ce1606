"""What reranking gains at which depth: figures of several first stages, and the recall that bounds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vizsla.errors import VizslaError
from vizsla.evaluation.figures import evaluate
from vizsla.index import PairScores, reranked
from vizsla.runs import Measure, Qrels, Run, parse_measures


@dataclass(frozen=True)
class DepthResult:
    """A first stage whose best documents were ranked anew, so many a query; depth 0 is the first stage alone."""

    run: str
    depth: int
    measures: dict[str, float]
    recall: float | None
    """The share of relevant documents the first stage has down to there, which no reranker can better."""
    seconds: float
    """What reranking takes, a query."""


def evaluate_at_depths(
    runs: Mapping[str, Run],
    scores: PairScores,
    qrels: Qrels,
    measures: str | Sequence[str | Measure],
    depths: Sequence[int],
    convention: str = "anserini",
) -> list[DepthResult]:
    """Figures of first stages at several depths, by scores that were computed once for the deepest."""
    wanted = parse_measures(measures)
    found = []
    for name, run in runs.items():
        for depth in (0, *depths):
            recall = Measure("R", depth) if depth else None
            again = reranked(run, scores.scores, depth) if depth else run
            figures = evaluate(again, qrels, wanted, convention).measures
            reached = evaluate(run, qrels, [recall], convention).measures[str(recall)] if recall else None
            found.append(DepthResult(name, depth, figures, reached, scores.seconds_a_query(run, depth) if depth else 0.0))
    return found


def parse_depths(text: str) -> list[int]:
    """Depths from a text, ascending, each once.

    >>> parse_depths("50,5,10,5")
    [5, 10, 50]
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise VizslaError(f"{text!r} are no depths; expected something like 5,10,50,100")
    return sorted({int(part) for part in parts})
