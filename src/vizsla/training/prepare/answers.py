"""Queries with the documents that answer them and hard negatives, before they are tokenized."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vizsla.datasets import Document
from vizsla.models import field_text
from vizsla.text import Analyzer
from vizsla.training.prepare.texts import FIELDS, packed_texts

if TYPE_CHECKING:
    from vizsla.training.arrays.mined_pairs import MinedPairs
    from vizsla.training.arrays.token_corpus import TokenCorpus


class AnsweredQueries(NamedTuple):
    """The texts of queries, and for each the numbers of documents that answer it (positives) and that do not."""

    documents: Sequence[Document]
    queries: Sequence[str]
    positives: TokenCorpus
    negatives: TokenCorpus

    def thinned(self, kept_negatives: int, rng: np.random.Generator) -> AnsweredQueries:
        """The same with so many negatives a query, drawn at random; 0 keeps all. Unused documents are left out."""
        from vizsla.training.arrays.token_corpus import TokenCorpus

        negatives = self.negatives
        if kept_negatives:
            rows = [negatives[query] for query in range(len(negatives))]
            chosen = [np.sort(rng.permutation(len(row))[:kept_negatives]) for row in rows]
            negatives = TokenCorpus.of([np.asarray(row)[places] for row, places in zip(rows, chosen, strict=True)])
        used = np.union1d(self.positives.ids, negatives.ids).astype(np.int64)
        sides = (TokenCorpus(np.searchsorted(used, side.ids), side.offsets) for side in (self.positives, negatives))
        return AnsweredQueries([self.documents[i] for i in used.tolist()], self.queries, *sides)

    def packed(self, analyzer: Analyzer) -> MinedPairs:
        """The same as token ids."""
        from vizsla.training.arrays.mined_pairs import MinedPairs

        contents = [field_text(document.content, FIELDS) for document in self.documents]
        queries, documents = (packed_texts(one, analyzer) for one in (self.queries, contents))
        return MinedPairs(queries, documents, self.positives, self.negatives)
