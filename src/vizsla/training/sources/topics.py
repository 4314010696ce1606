"""TAS-B's batches: queries of one topic, found by k-means, with balanced margins and a teacher's vectors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vizsla.errors import InputError
from vizsla.lazy import cached_property
from vizsla.neural.lazy_torch import no_grad, torch
from vizsla.training.loop.products import SparseRows
from vizsla.training.sources.pairs import ScoredPairs, TrainingBatch

if TYPE_CHECKING:
    from torch import Tensor

_ROWS = 16_384  # vectors compared with all centroids at once


@no_grad
def k_means(vectors: Tensor, count: int, seed: int = 0, iterations: int = 25) -> np.ndarray:
    """[vectors] the cluster of each vector, by Lloyd's algorithm from random vectors; the same seed gives the same.

    A cluster that loses all of its vectors starts again from the vector that is farthest from its centroid.

    >>> k_means(torch.tensor([[0.0], [0.1], [9.0], [9.1], [9.2]]), 2).tolist() in ([0, 0, 1, 1, 1], [1, 1, 0, 0, 0])
    True
    """
    count = min(count, len(vectors))
    vectors = vectors.float()
    first = np.random.default_rng(seed).permutation(len(vectors))[:count]
    centroids = vectors[torch.from_numpy(np.sort(first)).to(vectors.device)].clone()
    labels, distances = _nearest(vectors, centroids)
    for _ in range(iterations):
        sizes = torch.bincount(labels, minlength=count)
        sums = torch.zeros_like(centroids).index_add_(0, labels, vectors)
        centroids = sums / sizes.clamp(min=1)[:, None]
        empty = torch.nonzero(sizes == 0).squeeze(1)
        centroids[empty] = vectors[distances.topk(len(empty)).indices]
        before = labels
        labels, distances = _nearest(vectors, centroids)
        if torch.equal(before, labels) and not len(empty):
            break
    return labels.cpu().numpy()


def _nearest(vectors: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """[vectors] the nearest centroid of each, and its squared distance."""
    sizes = (centroids**2).sum(1)
    labels, distances = [], []
    for first in range(0, len(vectors), _ROWS):
        block = vectors[first : first + _ROWS]
        nearest = (sizes - 2 * block @ centroids.T).min(1)
        labels.append(nearest.indices)
        distances.append((nearest.values + (block**2).sum(1)).clamp(min=0))
    return torch.cat(labels), torch.cat(distances)


_SIDES = ("queries", "documents")


class TeacherTokens(NamedTuple):
    """Token vectors of queries and documents, those of all texts concatenated, and where each text's begin."""

    queries: np.ndarray
    query_starts: np.ndarray
    documents: np.ndarray
    document_starts: np.ndarray
    weight: np.ndarray
    """The factor of scores, one number."""

    def scores(self, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """[queries, documents] the scores of late interaction of some texts, given by their places."""
        asked, sizes = _texts(self.queries, self.query_starts, queries)
        others, lengths = _texts(self.documents, self.document_starts, documents)
        scores = np.zeros((len(queries), len(documents)), np.float32)
        if len(asked) and len(others):
            rows, columns = np.flatnonzero(sizes), np.flatnonzero(lengths)
            best = np.maximum.reduceat(asked @ others.T, _begins(lengths[columns]), axis=1)
            scores[np.ix_(rows, columns)] = np.add.reduceat(best, _begins(sizes[rows]), axis=0)
        weighted: np.ndarray = scores * self.weight
        return weighted


@dataclass(frozen=True, eq=False)
class TeacherVectors:
    """Dense, sparse and token vectors of queries and documents; a model of one kind has none of the others."""

    numbers: np.ndarray
    """The numbers of the documents that have a vector, in order."""
    dense: tuple[np.ndarray, np.ndarray]
    """[queries, dimensions] and [documents, dimensions]."""
    sparse: tuple[SparseRows, SparseRows]
    """Rows of queries and of documents over the same terms."""
    tokens: TeacherTokens | None = None

    def scores(self, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """[queries, documents] the scores of some queries with some documents, given by their numbers."""
        rows = np.searchsorted(self.numbers, documents)
        dense = self.dense[0][queries].astype(np.float32) @ self.dense[1][rows].astype(np.float32).T
        total: np.ndarray = dense + _sparse_scores(*self.sparse, queries, rows)
        return total if self.tokens is None else total + self.tokens.scores(queries, rows)

    def save(self, folder: str | Path) -> None:
        """Write all arrays into a folder."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        np.save(path / "numbers.npy", self.numbers, allow_pickle=False)
        for part, array in () if self.tokens is None else self.tokens._asdict().items():
            np.save(path / f"tokens_{part}.npy", array, allow_pickle=False)
        for name, matrix, rows in zip(_SIDES, self.dense, self.sparse, strict=True):
            np.save(path / f"{name}_dense.npy", matrix, allow_pickle=False)
            for part, array in rows._asdict().items():
                np.save(path / f"{name}_{part}.npy", array, allow_pickle=False)

    @classmethod
    def open(cls, folder: str | Path) -> TeacherVectors:
        """Saved vectors, mapped into memory."""
        path = Path(folder)

        def read(name: str) -> np.ndarray:
            array: np.ndarray = np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            return array

        try:
            dense = tuple(read(f"{name}_dense") for name in _SIDES)
            sparse = tuple(SparseRows(*(read(f"{name}_{part}") for part in SparseRows._fields)) for name in _SIDES)
            has_tokens = (path / "tokens_weight.npy").is_file()
            tokens = TeacherTokens(*(read(f"tokens_{p}") for p in TeacherTokens._fields)) if has_tokens else None
            return cls(read("numbers"), (dense[0], dense[1]), (sparse[0], sparse[1]), tokens)
        except (FileNotFoundError, ValueError) as e:
            raise InputError(f"there are no vectors of a teacher here ({e})", file=str(folder)) from None


def _texts(vectors: np.ndarray, starts: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of some texts in 32 bits, and how many each of them has."""
    rows = [vectors[starts[text] : starts[text + 1]] for text in chosen.tolist()]
    return np.concatenate(rows).astype(np.float32), np.array([len(row) for row in rows])


def _begins(sizes: np.ndarray) -> np.ndarray:
    begins: np.ndarray = np.cumsum(sizes) - sizes
    return begins


def _sparse_scores(
    queries: SparseRows, documents: SparseRows, query_rows: np.ndarray, document_rows: np.ndarray
) -> np.ndarray:
    """The products of some rows of queries with some rows of documents."""
    owners, terms, weights = _rows(queries, query_rows)
    columns, places = np.unique(terms, return_inverse=True)
    left = np.zeros((len(query_rows), len(columns)), np.float32)
    left[owners, places] = weights
    right = np.zeros((len(document_rows), len(columns)), np.float32)
    owners, terms, weights = _rows(documents, document_rows)
    shared = np.isin(terms, columns)
    right[owners[shared], np.searchsorted(columns, terms[shared])] = weights[shared]
    return left @ right.T


def _rows(rows: SparseRows, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The entries of some rows: the index among the chosen rows, the term and the weight of each."""
    begins = rows.pointers[chosen].astype(np.int64)
    sizes = rows.pointers[chosen + 1].astype(np.int64) - begins
    owners = np.repeat(np.arange(len(chosen)), sizes)
    places = np.arange(sizes.sum()) + np.repeat(begins - np.cumsum(sizes) + sizes, sizes)
    return owners, rows.terms[places], rows.weights[places]


@dataclass(frozen=True, eq=False)
class TopicPairs:
    """Scored pairs in batches of queries from one cluster, with negatives of small and large margins alike.

    Every epoch goes through all queries: each cluster is split into full batches, and the remaining queries of all
    clusters fill the last batches. The range of a query's margins is divided into `margin_bins` equal bins; first a
    non-empty bin is drawn, then one of its negatives.
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
        """Like `ScoredPairs.batch`; with an in-batch teacher also its margins with all documents of the batch."""
        places = self.draw_places(size, seed, step)
        batch = self.scored.batch_of(places, device)
        if self.in_batch is None:
            return batch
        queries, positives, negatives = self.scored.pairs.numbers_at(*places)
        scores = self.in_batch.scores(queries, np.concatenate([positives, negatives]))
        margins = np.diagonal(scores)[:, None] - scores
        return batch._replace(extra=batch.extra._replace(in_batch=torch.from_numpy(margins).to(device)))

    def draw_places(self, size: int, seed: int, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of drawn queries, and the positions of their documents in `positives.ids` and `negatives.ids`."""
        pairs = self.scored.pairs
        pairs.check_size(size)
        epoch, place = divmod(step, len(pairs) // size)
        if (size, seed, epoch) not in self._orders:  # only the order of one epoch is cached
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
        """[batches, size] the queries of an epoch, each batch of one cluster where possible."""
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
        """[queries, negatives_per_query] positions of negatives; if a query has too few, some are repeated."""
        pairs, scored = self.scored.pairs, self.scored
        first = pairs.negatives.offsets[queries]
        counts = pairs.negatives.offsets[queries + 1] - first
        inside = np.arange(counts.max(initial=1)) < counts[:, None]
        places = np.where(inside, first[:, None] + np.arange(inside.shape[1]), first[:, None])
        margins = scored.positive_scores[positives][:, None] - scored.negative_scores[places]
        sizes = bin_sizes(margins, inside, self.margin_bins)
        keys = np.where(inside, rng.exponential(size=inside.shape) * sizes, np.inf)  # small bins get small keys
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
