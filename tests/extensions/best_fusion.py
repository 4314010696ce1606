"""A fusion of one's own: the best score that any ranking gives a document."""

from __future__ import annotations

from collections.abc import Sequence

from vizsla.runs import FUSIONS, Fusion, Ranking


@FUSIONS.register("best", help="The best score of any ranking.")
class Best(Fusion):
    name = "best"

    def fuse_rankings(self, rankings: Sequence[Ranking], weights: Sequence[float]) -> Ranking:
        scores: dict[str, float] = {}
        for ranking, weight in zip(rankings, weights, strict=True):
            for document, score in ranking:
                scores[document] = max(scores.get(document, 0.0), weight * score)
        return Ranking.of_pairs(scores.items())
