"""Judged pairs with mined negatives: supervised training, by the rules of Tevatron."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vizsla.errors import VizslaError
from vizsla.training.batches import Sides
from vizsla.training.corpus import TokenCorpus
from vizsla.training.dev import framed

_PARTS = ("queries", "documents", "positives", "negatives")


@dataclass(frozen=True, eq=False)
class MinedPairs:
    """Queries with documents that answer them and documents that only look like it.

    Every epoch goes through the queries in another order; a query's positives take turns by epoch, and its negatives
    are thrown for, `group - 1` a time. A document of the batch that answers another query of it
    is never held against that query.

    `persistence`: where positives are ranked, one is thrown for, the next always so much as likely as the one before
    it; 1 makes all equally likely. Lengths count special tokens.
    """

    queries: TokenCorpus
    documents: TokenCorpus
    positives: TokenCorpus
    """For each query, the numbers of its documents."""
    negatives: TokenCorpus
    group: int = 8
    query_length: int = 64
    document_length: int = 256
    persistence: float | None = None

    def __post_init__(self) -> None:
        if self.persistence is not None and not 0 < self.persistence <= 1:
            raise VizslaError(f"persistence is more than 0 and 1 at most, not {self.persistence:g}")
        if self.group < 2:
            raise VizslaError(f"a group is a document and its negatives, so 2 at least, not {self.group}")

    @classmethod
    def joined(cls, several: Sequence[MinedPairs]) -> MinedPairs:
        """Pairs of several data sets as those of one; a batch has queries of all."""
        before = np.cumsum([0, *(len(pairs.documents) for pairs in several)]).tolist()

        def joined(name: str, numbers: bool = False) -> TokenCorpus:
            corpora: list[TokenCorpus] = [getattr(pairs, name) for pairs in several]
            if numbers:
                corpora = [TokenCorpus(c.ids + first, c.offsets) for c, first in zip(corpora, before, strict=False)]
            return TokenCorpus.joined(corpora)

        return replace(
            several[0],
            queries=joined("queries"),
            documents=joined("documents"),
            positives=joined("positives", numbers=True),
            negatives=joined("negatives", numbers=True),
        )

    def sides(self, size: int, seed: int, step: int, device: torch.device) -> Sides:
        """Ids and masks of queries, of one document for each, and of `size * (group - 1)` negatives."""
        chosen, right, wrong = self.drawn(size, seed, step)
        texts = [
            _framed(self.queries, chosen, self.query_length, device),
            _framed(self.documents, right, self.document_length, device),
            _framed(self.documents, wrong, self.document_length, device),
        ]
        return Sides(texts, self._forbidden(chosen, np.concatenate([right, wrong])).to(device))

    def drawn(self, size: int, seed: int, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of queries, of one document for each, and of `group - 1` negatives a query, in order."""
        usable = self._usable
        if size > len(usable):
            raise VizslaError(
                f"a batch of {size:,} needs as many queries with positives and negatives, and there are "
                f"{len(usable):,}; ask for a smaller batch, as in --set batch=64"
            )
        steps = len(usable) // size
        epoch, place = divmod(step, steps)
        if (seed, epoch) not in self._orders:  # only that of one epoch is kept
            self._orders.clear()
            self._orders[seed, epoch] = np.random.default_rng((seed, epoch)).permutation(len(usable))
        chosen = usable[self._orders[seed, epoch][place * size : (place + 1) * size]]
        dice = np.random.default_rng((seed, epoch, place))
        return chosen, self._right(chosen, epoch, dice), self._taken(chosen, dice).ravel()

    def save(self, folder: str | Path) -> None:
        """Write texts and numbers into a folder, to be trained from elsewhere."""
        for name in _PARTS:
            getattr(self, name).save(Path(folder) / name)

    @classmethod
    def open(cls, folder: str | Path, **options: Any) -> MinedPairs:
        """Pairs that were saved, mapped into memory; how they are drawn is told again."""
        queries, documents, positives, negatives = (TokenCorpus.open(Path(folder) / name) for name in _PARTS)
        return cls(queries, documents, positives, negatives, **options)

    @cached_property
    def _orders(self) -> dict[tuple[int, int], np.ndarray]:
        """The order of the queries by seed and epoch."""
        return {}

    @cached_property
    def _usable(self) -> np.ndarray:
        there = (np.diff(self.positives.offsets) > 0) & (np.diff(self.negatives.offsets) > 0)
        return np.flatnonzero(there)

    def _right(self, queries: np.ndarray, epoch: int, dice: np.random.Generator) -> np.ndarray:
        """The document of each query in an epoch."""
        first, counts = _slices(self.positives, queries)
        if self.persistence is None:
            at = epoch % counts
        else:
            chances = np.cumsum(self.persistence ** np.arange(counts.max(initial=1)))
            at = np.searchsorted(chances, dice.random(len(queries)) * chances[counts - 1], side="right")
        chosen: np.ndarray = self.positives.ids[first + np.minimum(at, counts - 1)].astype(np.int64)
        return chosen

    def _taken(self, queries: np.ndarray, dice: np.random.Generator) -> np.ndarray:
        """[queries, group - 1] negatives of each query, thrown for; where there are too few, some come twice."""
        first, counts = _slices(self.negatives, queries)
        throws = dice.random((len(queries), counts.max(initial=1)))
        throws[np.arange(throws.shape[1]) >= counts[:, None]] = 2.0  # behind all there are
        order = np.argsort(throws, axis=1)
        at = np.take_along_axis(order, np.arange(self.group - 1)[None, :] % counts[:, None], axis=1)
        taken: np.ndarray = self.negatives.ids[first[:, None] + at].astype(np.int64)
        return taken

    def _forbidden(self, queries: np.ndarray, documents: np.ndarray) -> torch.Tensor:
        """[queries, documents] where a document answers a query and is not the one it is asked for."""
        first, sizes = _slices(self.positives, queries)
        answers = self.positives.ids[np.repeat(first, sizes) + _within(sizes)]
        order = np.argsort(documents, kind="stable")
        begin, end = (np.searchsorted(documents[order], answers, side) for side in ("left", "right"))
        rows = np.repeat(np.repeat(np.arange(len(queries)), sizes), end - begin)
        found = np.zeros((len(queries), len(documents)), bool)
        found[rows, order[np.repeat(begin, end - begin) + _within(end - begin)]] = True
        found[np.arange(len(queries)), np.arange(len(queries))] = False
        return torch.from_numpy(found)


def _slices(numbers: TokenCorpus, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the numbers of each query begin, and how many there are."""
    return numbers.offsets[queries], numbers.offsets[queries + 1] - numbers.offsets[queries]


def _within(sizes: np.ndarray) -> np.ndarray:
    """The places 0, 1, ... of everything in groups of these sizes.

    >>> _within(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # type: ignore[no-any-return]


def _framed(
    texts: TokenCorpus, chosen: np.ndarray, longest: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    return framed(texts, chosen, device, longest=longest)
