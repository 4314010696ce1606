"""How well a model imitates another, its teacher: SPAR's validation MRR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.errors import VizslaError
from vizsla.evaluation.retrieval import retrieve
from vizsla.index import Index, scores_among
from vizsla.models import Model


@dataclass(frozen=True)
class ImitationPool:
    """Questions with the teacher's first document for each, and a pool: these documents and one of the last of each."""

    texts: Sequence[str]
    documents: Sequence[str]
    first: np.ndarray
    """[questions] which document of the pool the teacher ranks first."""

    @classmethod
    def search(
        cls,
        index: Index,
        teacher: str | Model,
        texts: Mapping[str, str],
        *,
        depth: int = 50,
        last: int = 5,
        seed: int = 0,
    ) -> ImitationPool:
        """The pool of questions in an index: the teacher's first document, and one of the `last` of its best `depth`.

        Questions for which the teacher finds fewer than `depth` documents are left out. A document is in the pool once.
        """
        if not 1 <= last < depth:
            raise VizslaError(
                f"one of the last {last} of {depth} documents goes into a pool; expected 1 <= last < depth"
            )
        run = retrieve(index.with_model(teacher), texts, depth)
        ranked = {q: run[q].documents for q in texts if q in run and len(run[q]) == depth}
        if not ranked:
            raise VizslaError(f"the teacher finds {depth} documents for none of the questions")
        places = np.random.default_rng(seed).integers(1, last + 1, len(ranked)).tolist()
        pooled = [(ranking[0], ranking[-place]) for ranking, place in zip(ranked.values(), places, strict=True)]
        numbers: dict[str, int] = {}
        for pair in pooled:
            for document in pair:
                numbers.setdefault(document, len(numbers))
        first = np.array([numbers[document] for document, _ in pooled], np.int64)
        return cls([texts[q] for q in ranked], list(numbers), first)

    def mrr(self, index: Index, model: str | Model) -> float:
        """The mean reciprocal rank that a model in the same index gives the teacher's first document in the pool.

        A document with the same score counts as ranked before it.
        """
        scores = scores_among(index, self.texts, self.documents, index.with_model(model).model)
        reciprocal: list[float] = []
        for block in scores:
            own = self.first[len(reciprocal) : len(reciprocal) + len(block)]
            ranks = (block >= block[np.arange(len(block)), own][:, None]).sum(1)
            reciprocal += (1 / ranks).tolist()
        return float(np.mean(reciprocal))
