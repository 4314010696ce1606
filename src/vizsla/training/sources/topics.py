"""TAS-B: batches of queries of one topic, found by k-means, with balanced margins and a second teacher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.lazy import cached_property
from vizsla.models import Reranker
from vizsla.neural.device import torch_device
from vizsla.neural.lazy_torch import F, no_grad, torch
from vizsla.text import Analyzer
from vizsla.training.kind import TrainingInputs
from vizsla.training.loop.objectives import ContrastiveLoss, Step, contrast
from vizsla.training.loop.products import SparseRows
from vizsla.training.settings import require_at_least, setting
from vizsla.training.sources.dev_set import text_vectors
from vizsla.training.sources.judged import DenseJudgedSource, JudgedTexts
from vizsla.training.sources.pairs import BatchSource, ScoredPairs, TrainingBatch
from vizsla.training.sources.source import SOURCE_HELP
from vizsla.training.sources.teacher import MarginSquares, PairScorer, TeacherSettings, open_teacher, teacher_factor
from vizsla.vectors import DenseVectors, JoinedVectors, SparseVectors, TokenVectors, Vectors

if TYPE_CHECKING:
    from torch import Tensor


_CLUSTERS, _VECTORS = "clusters.npy", "in_batch"
_QUERIES_PER_CLUSTER = 200


@dataclass(frozen=True)
class TopicSource(DenseJudgedSource):
    """Judged queries in batches of one topic, with balanced margins and perhaps a second teacher, as in TAS-B."""

    source: str = setting("topics", SOURCE_HELP)
    clusters: int = setting(0, f"clusters of queries; 0 for one of {_QUERIES_PER_CLUSTER} queries each")
    margin_bins: int = setting(10, "bins of a query's margins, from each of which negatives are drawn equally often")
    in_batch_teacher: str = setting("", "model whose scores of all documents of a batch are learnt; empty for none")
    in_batch_scale: float = setting(
        0.0, "factor of its scores; 0 chooses it so that the margins of mined pairs are about 1"
    )
    seed: int = setting(0, "seed of the clusters")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, "data", 0, "clusters", "in_batch_scale")
        require_at_least(self, "data", 1, "margin_bins")
        if not self.teacher:
            raise VizslaError("data.source=topics balances the margins of a teacher; set data.teacher")

    def prepare(self, inputs: TrainingInputs, analyzer: Analyzer, folder: Path) -> None:
        """Find positives and hard negatives, and the scores of both teachers, and pack all texts."""
        texts = list(self.read(inputs, analyzer))
        self.save(texts, folder)
        if self.in_batch_teacher:
            teacher = TeacherSettings(self.in_batch_teacher, self.in_batch_scale)
            teacher_vectors(texts, teacher).save(folder / _VECTORS)

    def prepare_clusters(self, network: Any, folder: Path) -> None:
        """Group the queries by the vectors that the network to train gives them."""
        queries = self.open_mined(folder).queries
        device, training = torch_device(), network.training
        network.to(device).eval()
        vectors = torch.cat([*text_vectors(queries, 0, self.max_query_length, network, network.vectors, device)])
        network.cpu().train(training)
        count = self.clusters or max(len(queries) // _QUERIES_PER_CLUSTER, 1)
        np.save(folder / _CLUSTERS, k_means(vectors, count, self.seed), allow_pickle=False)

    def open_pairs(self, folder: Path) -> BatchSource:
        """The queries with their clusters, positives and negatives, and the teachers' scores."""
        scored = super().open_pairs(folder)
        assert isinstance(scored, ScoredPairs)
        in_batch = TeacherVectors.open(folder / _VECTORS) if self.in_batch_teacher else None
        return TopicPairs(scored, np.load(folder / _CLUSTERS, allow_pickle=False), self.margin_bins, in_batch)


@dataclass(frozen=True)
class DenseLoss(ContrastiveLoss):
    """A contrastive loss, or a distillation loss with one or two teachers.

    The second is TAS-B's in-batch teacher: margin-mse between a query's document and all other documents of the batch.
    """

    in_batch_weight: float = setting(0.0, "weight of the loss of data.in_batch_teacher, which is added")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, "loss", 0, "in_batch_weight")


def check_in_batch(data: object, loss: DenseLoss) -> None:
    """Refuse a second teacher whose loss has no weight, and a weight without such a teacher."""
    taught = isinstance(data, TopicSource) and bool(data.in_batch_teacher)
    if taught != (loss.in_batch_weight > 0):
        raise VizslaError(
            "loss.in_batch_weight is the weight of data.in_batch_teacher (data.source=topics), so set both or neither"
        )


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


def teacher_vectors(collections: Sequence[JudgedTexts], settings: TeacherSettings) -> TeacherVectors:
    """The vectors of a model for all train queries, and for the documents that are drawn for them."""
    teacher = open_teacher(settings.teacher)
    if isinstance(teacher, Reranker):
        raise VizslaError(
            f"data.in_batch_teacher {settings.teacher} is a cross-encoder, which would have to read all pairs of every "
            "batch; name a model"
        )
    numbers, first, sizes = [], 0, []
    encoded: list[tuple[list[Vectors], list[Vectors]]] = []
    for documents, queries, pairs in collections:
        used = np.unique(np.concatenate([pairs.positives.ids, pairs.negatives.ids]))
        scorer = PairScorer(teacher, documents, list(queries.values()), used)
        encoded.append((scorer.query_vectors(scorer.queries), scorer.document_vectors()))
        numbers.append(used + first)
        first += len(documents)
        scores = [
            scorer.scores(np.repeat(np.arange(len(queries)), np.diff(side.offsets)), side.ids)
            for side in (pairs.positives, pairs.negatives)
        ]
        sizes.append(MarginSquares.of(pairs.positives, pairs.negatives, scores[0], scores[1]))
    factor = teacher_factor(settings, sizes)
    tokens = _tokens([_with_tokens(both) for both in encoded], factor, settings.teacher)
    queries_of, documents_of = ([_without_tokens(both[side]) for both in encoded] for side in (0, 1))
    columns: dict[tuple[str, str], int] = {}
    sparse = _sparse_rows([factor * one for one in queries_of], columns, add=True), _sparse_rows(documents_of, columns)
    dense = _dense_rows([factor * one for one in queries_of]), _dense_rows(documents_of)
    return TeacherVectors(np.concatenate(numbers), dense, sparse, tokens)


_TokenPair = tuple[TokenVectors, TokenVectors]


def _with_tokens(both: tuple[list[Vectors], list[Vectors]]) -> list[_TokenPair]:
    """The groups of queries and documents that have token vectors."""
    pairs = zip(*both, strict=True)
    return [(q, d) for q, d in pairs if isinstance(q, TokenVectors) and isinstance(d, TokenVectors)]


def _without_tokens(groups: list[Vectors]) -> Vectors:
    """The group of sparse and dense vectors; empty vectors if there is none."""
    others = [vectors for vectors in groups if not isinstance(vectors, TokenVectors)]
    return others[0] if others else DenseVectors({"": np.zeros((len(groups[0]), 0), np.float32)})


def _tokens(collections: Sequence[list[_TokenPair]], factor: float, teacher: str) -> TeacherTokens | None:
    """The token vectors of all data sets, in 16 bits as an index stores them."""
    if not collections[0]:
        return None
    if len(collections[0]) > 1:
        raise VizslaError(f"data.in_batch_teacher {teacher} has several parts with token vectors; name one with one")
    arrays: list[np.ndarray] = []
    for side in (0, 1):
        several = [groups[0][side] for groups in collections]
        sizes = np.concatenate([np.diff(vectors.starts) for vectors in several])
        arrays.append(np.concatenate([vectors.rows for vectors in several]).astype(np.float16))
        arrays.append(np.append(0, np.cumsum(sizes)))
    first = collections[0][0]
    weight = np.array(factor * first[0].weight * first[1].weight, np.float32)
    return TeacherTokens(arrays[0], arrays[1], arrays[2], arrays[3], weight)


def _dense_rows(several: Sequence[Vectors]) -> np.ndarray:
    """The dense parts of vectors, side by side."""
    rows = []
    for vectors in several:
        dense = vectors.dense if isinstance(vectors, JoinedVectors) else vectors
        parts = list(dense.parts.values()) if isinstance(dense, DenseVectors) else [np.zeros((len(vectors), 0))]
        rows.append(np.concatenate(parts, 1).astype(np.float32))
    return np.concatenate(rows)


def _sparse_rows(several: Sequence[Vectors], columns: dict[tuple[str, str], int], *, add: bool = False) -> SparseRows:
    """The sparse parts of vectors over the terms that have a column; with `add`, all terms get one."""
    pointers, terms, weights = [np.zeros(1, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
    for vectors in several:
        sparse = vectors.sparse if isinstance(vectors, JoinedVectors) else vectors
        if not isinstance(sparse, SparseVectors):
            pointers.append(np.full(len(vectors), pointers[-1][-1]))
            continue
        names = (sparse.vocabulary[i] for i in range(len(sparse.vocabulary)))
        known = np.array([columns.setdefault(n, len(columns)) if add else columns.get(n, -1) for n in names], np.int64)
        kept = known[sparse.indices] >= 0
        ends = np.concatenate([[0], np.cumsum(kept)])[sparse.pointers[1:]]
        pointers.append(ends + pointers[-1][-1])
        terms.append(known[sparse.indices][kept])
        weights.append(sparse.values[kept].astype(np.float32))
    return SparseRows(np.concatenate(pointers), np.concatenate(terms), np.concatenate(weights))


def in_batch_margin_mse_loss(scores: Tensor, margins: Tensor) -> Tensor:
    """The mean squared difference of a network's and a teacher's margins over all other documents of the batch.

    `scores` and `margins`: [queries, documents]. Document i belongs to query i.
    """
    own = scores.diagonal()[:, None] - scores
    others = torch.ones_like(own, dtype=torch.bool).fill_diagonal_(False)
    return F.mse_loss(own[others], margins.to(scores.dtype)[others])


@dataclass(frozen=True)
class DualObjective:
    """Like `ContrastiveObjective`, plus the loss of a second teacher, which scores all documents of the batch."""

    loss: DenseLoss = field(default_factory=DenseLoss)

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step; also logs both parts of it."""
        pairs = contrast(self.loss, step, metrics)
        in_batch = in_batch_margin_mse_loss(pairs.scores, step.batch.extra.in_batch)
        metrics["pair_loss"], metrics["in_batch_loss"] = pairs.loss.detach(), in_batch.detach()
        return pairs.loss + self.loss.in_batch_weight * in_batch
