"""Rankings of two retrievers beside each other: equal, except inside ties that rounding makes."""

from __future__ import annotations

from collections.abc import Mapping

from vizsla.runs import Retriever

ROUNDING = 1e-6


def differences(
    expected: Retriever,
    other: Retriever,
    queries: Mapping[str, str],
    k: int,
    filter: str | None = None,
    *,
    cancelling: bool = False,
) -> list[str]:
    """What is wrong with the other's rankings: another number of documents, another score, another order of scores.

    `cancelling`: products of vectors add up numbers far larger than their sum, so that rounding is relative to the
    largest scores there are, not to each.
    """
    deep, found = expected.run(queries, k + 50, filter), other.run(queries, k, filter)
    wrong = []
    for query in queries:
        scores = dict(deep[query])
        first, second = list(deep[query])[:k], list(found[query])
        if len(first) != len(second):
            wrong.append(f"{query}: {len(second)} documents, not {len(first)}")
            continue
        if len({doc_id for doc_id, _ in second}) < len(second):
            wrong.append(f"{query}: a document twice")
        largest = max(map(abs, scores.values()), default=0.0)
        for rank, ((mine, score), (yours, its)) in enumerate(zip(first, second, strict=True), 1):
            margin = ROUNDING * (4 * largest if cancelling else max(abs(score), abs(its)))
            if abs(score - its) > margin:
                wrong.append(f"{query}: rank {rank} has the score {its}, not {score}")
            elif mine != yours and (yours not in scores or abs(scores[yours] - score) > margin):
                wrong.append(f"{query}: rank {rank} is {yours}, not {mine}")
    return wrong
