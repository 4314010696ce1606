"""TAS-B's data: clusters of queries, and two teachers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.errors import VizslaError
from vizsla.models import Reranker
from vizsla.text import Analyzer
from vizsla.training.inputs import TrainingInputs
from vizsla.training.prepare.judged import JudgedTexts
from vizsla.training.prepare.sources import SOURCE_HELP, JudgedSource
from vizsla.training.prepare.teacher import MarginSquares, PairScorer, TeacherSettings, open_teacher, teacher_factor
from vizsla.training.schema import setting
from vizsla.training.settings import DenseLoss, require_at_least
from vizsla.vectors import DenseVectors, JoinedVectors, SparseVectors, TokenVectors, Vectors

if TYPE_CHECKING:
    from vizsla.training.arrays.batch import BatchSource
    from vizsla.training.arrays.sparse_rows import SparseRows
    from vizsla.training.arrays.teacher_vectors import TeacherTokens, TeacherVectors

_CLUSTERS, _VECTORS = "clusters.npy", "in_batch"
_QUERIES_PER_CLUSTER = 200


@dataclass(frozen=True)
class TopicSource(JudgedSource):
    """Judged queries in batches of one topic, with balanced margins and perhaps a second teacher, as in TAS-B."""

    source: str = setting("topics", SOURCE_HELP)
    clusters: int = setting(0, f"clusters of queries; 0 for one of {_QUERIES_PER_CLUSTER} queries each")
    margin_bins: int = setting(10, "bins of a query's margins, from each of which negatives are drawn equally often")
    in_batch_teacher: str = setting("", "model whose scores of all documents of a batch are learnt; empty for none")
    in_batch_scale: float = setting(
        0.0, "what its scores are multiplied by; 0: until the margins of mined pairs are about 1"
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
        import torch

        from vizsla.training.arrays.clusters import k_means
        from vizsla.training.arrays.encoding import text_vectors

        queries = self.open_mined(folder).queries
        device, training = torch.device("cuda" if torch.cuda.is_available() else "cpu"), network.training
        network.to(device).eval()
        vectors = torch.cat([*text_vectors(queries, 0, self.max_query_length, network, network.vectors, device)])
        network.cpu().train(training)
        count = self.clusters or max(len(queries) // _QUERIES_PER_CLUSTER, 1)
        np.save(folder / _CLUSTERS, k_means(vectors, count, self.seed), allow_pickle=False)

    def open_pairs(self, folder: Path) -> BatchSource:
        """The queries with their clusters, positives and negatives, and the teachers' scores."""
        from vizsla.training.arrays.scored_pairs import ScoredPairs
        from vizsla.training.arrays.teacher_vectors import TeacherVectors
        from vizsla.training.arrays.topic_pairs import TopicPairs

        scored = super().open_pairs(folder)
        assert isinstance(scored, ScoredPairs)
        in_batch = TeacherVectors.open(folder / _VECTORS) if self.in_batch_teacher else None
        return TopicPairs(scored, np.load(folder / _CLUSTERS, allow_pickle=False), self.margin_bins, in_batch)


def check_in_batch(data: object, loss: DenseLoss) -> None:
    """Refuse a second teacher whose loss has no weight, and a weight without such a teacher."""
    taught = isinstance(data, TopicSource) and bool(data.in_batch_teacher)
    if taught != (loss.in_batch_weight > 0):
        raise VizslaError(
            "loss.in_batch_weight weighs what is learnt of data.in_batch_teacher (data.source=topics), so set both or "
            "neither"
        )


def teacher_vectors(collections: Sequence[JudgedTexts], settings: TeacherSettings) -> TeacherVectors:
    """The vectors of a model for all train queries, and for the documents that are drawn for them."""
    from vizsla.training.arrays.teacher_vectors import TeacherVectors

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
        encoded.append((scorer.query_vectors(scorer.queries), scorer.document_vectors))
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
    """The group of sparse and dense vectors; where there is none, vectors without a number."""
    others = [vectors for vectors in groups if not isinstance(vectors, TokenVectors)]
    return others[0] if others else DenseVectors({"": np.zeros((len(groups[0]), 0), np.float32)})


def _tokens(collections: Sequence[list[_TokenPair]], factor: float, teacher: str) -> TeacherTokens | None:
    """The token vectors of all data sets, in 16 bits as an index stores them."""
    from vizsla.training.arrays.teacher_vectors import TeacherTokens

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
    from vizsla.training.arrays.sparse_rows import SparseRows

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
