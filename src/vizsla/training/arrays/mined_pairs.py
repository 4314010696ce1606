"""Queries with positives and hard negatives, drawn by the rules of Tevatron."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vizsla.errors import VizslaError
from vizsla.training.arrays.batch import TrainingBatch
from vizsla.training.arrays.special_tokens import with_special_tokens
from vizsla.training.arrays.token_corpus import TokenCorpus

_PARTS = ("queries", "documents", "positives", "negatives")


@dataclass(frozen=True, eq=False)
class MinedPairs:
    """Queries with documents that answer them (positives) and documents that only look like it (hard negatives).

    Every epoch goes through the queries in another order. A query's positives take turns by epoch; of its negatives,
    `negatives_per_query` are drawn at random, or none, and then the other documents of the batch are the negatives. A
    document of the batch that answers another query of the batch is not a negative for that query.

    `positive_decay`: for ranked positives. One of them is drawn at random, and each is this many times as likely as
    the one ranked before it; 1 makes all equally likely. Lengths count special tokens.
    """

    queries: TokenCorpus
    documents: TokenCorpus
    positives: TokenCorpus
    """For each query, the numbers of the documents that answer it."""
    negatives: TokenCorpus
    negatives_per_query: int = 7
    max_query_length: int = 64
    max_document_length: int = 256
    positive_decay: float | None = None

    def __post_init__(self) -> None:
        if self.positive_decay is not None and not 0 < self.positive_decay <= 1:
            raise VizslaError(f"positive_decay must be above 0 and at most 1, not {self.positive_decay:g}")
        if self.negatives_per_query < 0:
            raise VizslaError(f"negatives_per_query must be 0 or more, not {self.negatives_per_query}")

    @classmethod
    def concatenate(cls, several: Sequence[MinedPairs]) -> MinedPairs:
        """Pairs of several data sets as pairs of one; a batch mixes queries of all of them."""
        before = np.cumsum([0, *(len(pairs.documents) for pairs in several)]).tolist()

        def joined(name: str, document_numbers: bool = False) -> TokenCorpus:
            corpora: list[TokenCorpus] = [getattr(pairs, name) for pairs in several]
            if document_numbers:
                corpora = [TokenCorpus(c.ids + first, c.offsets) for c, first in zip(corpora, before, strict=False)]
            return TokenCorpus.concatenate(corpora)

        return replace(
            several[0],
            queries=joined("queries"),
            documents=joined("documents"),
            positives=joined("positives", document_numbers=True),
            negatives=joined("negatives", document_numbers=True),
        )

    def __len__(self) -> int:
        """How many queries are drawn in an epoch: those with positives, and with negatives where some are drawn."""
        return len(self.usable)

    def batch(self, size: int, seed: int, step: int, device: torch.device) -> TrainingBatch:
        """`size` queries, one positive for each, and `size * negatives_per_query` negatives."""
        return self.batch_of(self.draw(size, seed, step), device)

    def batch_of(self, drawn: tuple[np.ndarray, np.ndarray, np.ndarray], device: torch.device) -> TrainingBatch:
        """The batch of some queries, their positives and their negatives, given by their numbers."""
        queries, positives, negatives = drawn
        texts = [with_special_tokens(self.queries, queries, device, max_length=self.max_query_length)]
        texts += [
            with_special_tokens(self.documents, documents, device, max_length=self.max_document_length)
            for documents in ((positives, negatives) if len(negatives) else (positives,))
        ]
        false_negatives = self._false_negatives(queries, np.concatenate([positives, negatives]))
        return TrainingBatch(texts, false_negatives.to(device))

    def draw(self, size: int, seed: int, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of queries, of a positive for each, and of `negatives_per_query` negatives each, in order."""
        return self.numbers_at(*self.draw_places(size, seed, step))

    def numbers_at(
        self, queries: np.ndarray, positives: np.ndarray, negatives: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of queries, and of the documents at places of `positives.ids` and `negatives.ids`."""
        return queries, self.positives.ids[positives].astype(np.int64), self.negatives.ids[negatives].astype(np.int64)

    def draw_places(self, size: int, seed: int, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of queries, and the places of what is drawn for them in `positives.ids` and `negatives.ids`."""
        self.check_size(size)
        usable = self.usable
        steps = len(usable) // size
        epoch, place = divmod(step, steps)
        if (seed, epoch) not in self._orders:  # the order of one epoch is kept, not of all
            self._orders.clear()
            self._orders[seed, epoch] = np.random.default_rng((seed, epoch)).permutation(len(usable))
        chosen = usable[self._orders[seed, epoch][place * size : (place + 1) * size]]
        rng = np.random.default_rng((seed, epoch, place))
        return chosen, self.draw_positives(chosen, epoch, rng), self._draw_negatives(chosen, rng).ravel()

    def check_size(self, size: int) -> None:
        """Refuse a batch of more queries than there are."""
        if size > len(self.usable):
            needed = "positives and negatives" if self.negatives_per_query else "positives"
            raise VizslaError(
                f"a batch of {size:,} needs as many queries with {needed}, and there are {len(self.usable):,}; use a "
                "smaller batch, as in --set training.batch_size=64"
            )

    def narrow(self) -> MinedPairs:
        """The same pairs, with all numbers in as few bytes as they need."""
        return replace(self, **{name: getattr(self, name).narrow() for name in _PARTS})

    def save(self, folder: str | Path) -> None:
        """Write texts and numbers into a folder."""
        for name in _PARTS:
            getattr(self, name).save(Path(folder) / name)

    @classmethod
    def open(cls, folder: str | Path, **options: Any) -> MinedPairs:
        """Saved pairs, mapped into memory; `options` say how they are drawn."""
        queries, documents, positives, negatives = (TokenCorpus.open(Path(folder) / name) for name in _PARTS)
        return cls(queries, documents, positives, negatives, **options)

    @cached_property
    def _orders(self) -> dict[tuple[int, int], np.ndarray]:
        """The order of the queries by seed and epoch."""
        return {}

    @cached_property
    def usable(self) -> np.ndarray:
        """The queries that can be drawn."""
        answered = np.diff(self.positives.offsets) > 0
        return np.flatnonzero(answered & (np.diff(self.negatives.offsets) >= min(self.negatives_per_query, 1)))

    def draw_positives(self, queries: np.ndarray, epoch: int, rng: np.random.Generator) -> np.ndarray:
        """Where a positive of each query lies in `positives.ids`."""
        first, counts = _slices(self.positives, queries)
        if self.positive_decay is None:
            rank = epoch % counts
        else:
            cumulative = np.cumsum(self.positive_decay ** np.arange(counts.max(initial=1)))
            rank = np.searchsorted(cumulative, rng.random(len(queries)) * cumulative[counts - 1], side="right")
        places: np.ndarray = first + np.minimum(rank, counts - 1)
        return places

    def _draw_negatives(self, queries: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """[queries, negatives_per_query] where random negatives lie; where a query has too few, some come twice."""
        if not self.negatives_per_query:
            return np.zeros((len(queries), 0), np.int64)
        first, counts = _slices(self.negatives, queries)
        keys = rng.random((len(queries), counts.max(initial=1)))
        keys[np.arange(keys.shape[1]) >= counts[:, None]] = 2.0  # sorts behind the negatives of the query
        order = np.argsort(keys, axis=1)
        turns = np.arange(self.negatives_per_query)[None, :] % counts[:, None]
        places: np.ndarray = first[:, None] + np.take_along_axis(order, turns, axis=1)
        return places

    def _false_negatives(self, queries: np.ndarray, documents: np.ndarray) -> torch.Tensor:
        """[queries, documents] where a document answers a query and is not the positive drawn for it."""
        first, sizes = _slices(self.positives, queries)
        answers = self.positives.ids[np.repeat(first, sizes) + _within(sizes)]
        order = np.argsort(documents, kind="stable")
        begin, end = (np.searchsorted(documents[order], answers, side) for side in ("left", "right"))
        rows = np.repeat(np.repeat(np.arange(len(queries)), sizes), end - begin)
        answering = np.zeros((len(queries), len(documents)), bool)
        answering[rows, order[np.repeat(begin, end - begin) + _within(end - begin)]] = True
        answering[np.arange(len(queries)), np.arange(len(queries))] = False
        return torch.from_numpy(answering)


def _slices(numbers: TokenCorpus, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the numbers of each query begin, and how many it has."""
    return numbers.offsets[queries], numbers.offsets[queries + 1] - numbers.offsets[queries]


def _within(sizes: np.ndarray) -> np.ndarray:
    """The positions 0, 1, ... within groups of these sizes.

    >>> _within(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # type: ignore[no-any-return]
