"""Batches of one topic with balanced margins, as TAS-B draws them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from vizsla.training.arrays.batch import TrainingBatch
from vizsla.training.arrays.scored_pairs import ScoredPairs
from vizsla.training.arrays.teacher_vectors import TeacherVectors


@dataclass(frozen=True, eq=False)
class TopicPairs:
    """Scored pairs whose batches have queries of one cluster, and negatives of all sizes of margins.

    Every epoch goes through all queries: each cluster gives as many whole batches as it can, and what is left of all
    clusters fills the last batches. The range of a query's margins is cut into `margin_bins` equal bins; a bin that is
    not empty is drawn, and then one of its negatives.
    """

    scored: ScoredPairs
    clusters: np.ndarray
    """[queries] the cluster of each query."""
    margin_bins: int = 10
    in_batch: TeacherVectors | None = None
    """The teacher that scores all documents of a batch."""

    def __len__(self) -> int:
        """How many queries are drawn in an epoch."""
        return len(self.scored)

    def batch(self, size: int, seed: int, step: int, device: torch.device) -> TrainingBatch:
        """As `ScoredPairs.batch`; with an in-batch teacher, its margins with all documents of the batch, too."""
        places = self.draw_places(size, seed, step)
        batch = self.scored.batch_of(places, device)
        if self.in_batch is None:
            return batch
        queries, positives, negatives = self.scored.pairs.numbers_at(*places)
        scores = self.in_batch.scores(queries, np.concatenate([positives, negatives]))
        margins = np.diagonal(scores)[:, None] - scores
        return batch._replace(extra=batch.extra._replace(in_batch=torch.from_numpy(margins).to(device)))

    def draw_places(self, size: int, seed: int, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of queries, and the places of what is drawn for them in `positives.ids` and `negatives.ids`."""
        pairs = self.scored.pairs
        pairs.check_size(size)
        epoch, place = divmod(step, len(pairs) // size)
        if (size, seed, epoch) not in self._orders:  # the order of one epoch is kept, not of all
            self._orders.clear()
            self._orders[size, seed, epoch] = self._order(size, np.random.default_rng((seed, epoch)))
        chosen = self._orders[size, seed, epoch][place]
        rng = np.random.default_rng((seed, epoch, place))
        positives = pairs.draw_positives(chosen, epoch, rng)
        return chosen, positives, self._draw_negatives(chosen, positives, rng).ravel()

    @cached_property
    def _orders(self) -> dict[tuple[int, int, int], np.ndarray]:
        """[batches, size] the queries of an epoch, by size, seed and epoch."""
        return {}

    def _order(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """[batches, size] the queries of an epoch, each batch of one cluster as far as they go."""
        usable = rng.permutation(self.scored.pairs.usable)
        names = rng.permutation(int(self.clusters.max(initial=0)) + 1)[self.clusters[usable]]
        order = np.argsort(names, kind="stable")
        usable, names = usable[order], names[order]
        _, first, members = np.unique(names, return_index=True, return_counts=True)
        within = np.arange(len(names)) - np.repeat(first, members)
        whole = within < np.repeat(members // size * size, members)
        queries = np.concatenate([usable[whole], usable[~whole]])
        batches = len(queries) // size
        return rng.permutation(queries[: batches * size].reshape(batches, size))

    def _draw_negatives(self, queries: np.ndarray, positives: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """[queries, negatives_per_query] where negatives lie; where a query has too few, some come twice."""
        pairs, scored = self.scored.pairs, self.scored
        first = pairs.negatives.offsets[queries]
        counts = pairs.negatives.offsets[queries + 1] - first
        inside = np.arange(counts.max(initial=1)) < counts[:, None]
        places = np.where(inside, first[:, None] + np.arange(inside.shape[1]), first[:, None])
        margins = scored.positive_scores[positives][:, None] - scored.negative_scores[places]
        sizes = bin_sizes(margins, inside, self.margin_bins)
        keys = np.where(inside, rng.exponential(size=inside.shape) * sizes, np.inf)  # the lowest of a bin of few wins
        order = np.argsort(keys, axis=1)
        turns = np.arange(pairs.negatives_per_query)[None, :] % counts[:, None]
        drawn: np.ndarray = first[:, None] + np.take_along_axis(order, turns, axis=1)
        return drawn


def bin_sizes(margins: np.ndarray, inside: np.ndarray, bins: int) -> np.ndarray:
    """How many margins lie in the bin of each margin, row by row; only those `inside` count.

    >>> bin_sizes(np.array([[0.0, 0.1, 0.2, 1.0, 9.0]]), np.array([[True, True, True, True, False]]), 2).tolist()
    [[3, 3, 3, 1, 1]]
    """
    lowest = np.where(inside, margins, np.inf).min(1, keepdims=True)
    highest = np.where(inside, margins, -np.inf).max(1, keepdims=True)
    width = np.where(highest > lowest, (highest - lowest) / bins, 1.0)
    numbers = np.clip((margins - lowest) / width, 0, bins - 1).astype(np.int64)
    counts = np.zeros((len(margins), bins), np.int64)
    np.add.at(counts, (np.nonzero(inside)[0], numbers[inside]), 1)
    return np.take_along_axis(counts, numbers, axis=1)
