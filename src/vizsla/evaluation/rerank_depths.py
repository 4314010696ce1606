"""What reranking gains at which depth: the figures of several first stages, and the recall that limits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vizsla.errors import VizslaError
from vizsla.evaluation.figures import evaluate
from vizsla.retrievers import PairScores, rerank_by_scores
from vizsla.runs import Measure, Qrels, Run, parse_measures


@dataclass(frozen=True)
class DepthResult:
    """The figures of a first stage with its first `depth` documents reranked; depth 0 is the first stage alone."""

    run: str
    depth: int
    measures: dict[str, float]
    recall: float | None
    """The recall of the first stage at this depth, which limits what any reranker can reach."""
    seconds: float
    """How long reranking takes for a query."""


def evaluate_at_depths(
    runs: Mapping[str, Run],
    scores: PairScores,
    qrels: Qrels,
    measures: str | Sequence[str | Measure],
    depths: Sequence[int],
    convention: str = "anserini",
) -> list[DepthResult]:
    """The figures of first stages at several depths, by scores that were computed once for the deepest."""
    wanted = parse_measures(measures)
    results = []
    for name, run in runs.items():
        for depth in (0, *depths):
            recall = Measure("R", depth) if depth else None
            reranked = rerank_by_scores(run, scores.scores, depth) if depth else run
            figures = evaluate(reranked, qrels, wanted, convention).measures
            reached = evaluate(run, qrels, [recall], convention).measures[str(recall)] if recall else None
            seconds = scores.seconds_per_query(run, depth) if depth else 0.0
            results.append(DepthResult(name, depth, figures, reached, seconds))
    return results


def parse_depths(text: str) -> list[int]:
    """Depths from a text, ascending, each once.

    >>> parse_depths("50,5,10,5")
    [5, 10, 50]
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise VizslaError(f"{text!r} are no depths; expected something like 5,10,50,100")
    return sorted({int(part) for part in parts})
