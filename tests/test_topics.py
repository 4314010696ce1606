"""TAS-B: clusters of queries, batches of one topic, balanced margins, two teachers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from test_distillation import inputs_of, recipe_of, whole_and_resumed
from vizsla import Analyzer, BeirDataset, VizslaError
from vizsla.training import MinedPairs, ScoredPairs, TokenCorpus, TopicPairs, load_training_recipe
from vizsla.training.sources.judged import judged_texts
from vizsla.training.sources.teacher import TeacherSettings, open_teacher, teacher_scores
from vizsla.training.sources.topics import bin_sizes, in_batch_margin_mse_loss, k_means, teacher_vectors

CPU = torch.device("cpu")


def scored(queries: int, negatives: int, seed: int = 0) -> ScoredPairs:
    """Queries with one positive each, and negatives most of which have about the same margin."""
    rng = np.random.default_rng(seed)
    texts = TokenCorpus.pack([[5]] * (queries + negatives))
    positives = TokenCorpus.of([np.array([i]) for i in range(queries)])
    others = TokenCorpus.of([queries + np.arange(negatives)] * queries)
    pairs = MinedPairs(TokenCorpus.pack([[7]] * queries), texts, positives, others, negatives_per_query=1)
    scores = np.tile(np.where(np.arange(negatives) < negatives - 2, 0.0, 9.0), queries)
    return ScoredPairs(pairs, np.full(queries, 10.0), scores + rng.random(len(scores)) * 0.01)


def test_k_means_finds_groups_and_leaves_no_cluster_empty() -> None:
    rng = np.random.default_rng(1)
    centers = rng.normal(0, 20, (5, 8))
    truth = rng.integers(5, size=300)
    vectors = torch.from_numpy(centers[truth] + rng.normal(0, 0.1, (300, 8)))
    labels = k_means(vectors, 5, seed=3)
    assert np.array_equal(labels, k_means(vectors, 5, seed=3))
    means = np.stack([vectors.numpy()[labels == i].mean(0) for i in range(5)])
    nearest = ((vectors.numpy()[:, None] - means) ** 2).sum(2).argmin(1)
    assert np.array_equal(nearest, labels), "every vector is in the cluster with the nearest mean"
    assert len(np.unique(labels)) == 5
    assert sorted(np.unique(k_means(torch.zeros(3, 2), 7)).tolist()) == [0]


def test_batches_are_of_one_cluster_and_an_epoch_has_each_query_once() -> None:
    clusters = np.repeat([0, 1, 2], [11, 9, 4])
    pairs = TopicPairs(scored(24, 5), clusters)
    batches = [pairs.draw_places(4, 0, step)[0] for step in range(12)]
    for epoch in (batches[:6], batches[6:]):
        assert sorted(np.concatenate(epoch).tolist()) == list(range(24))
        assert sum(len(set(clusters[batch].tolist())) == 1 for batch in epoch) >= 5, "11 // 4 + 9 // 4 + 4 // 4"
    assert [b.tolist() for b in batches[:6]] != [b.tolist() for b in batches[6:]]
    again = TopicPairs(scored(24, 5), clusters)
    assert again.draw_places(4, 0, 7)[0].tolist() == batches[7].tolist(), "a batch depends on seed and step alone"
    with pytest.raises(VizslaError, match="a batch of 25 needs as many queries"):
        pairs.draw_places(25, 0, 0)


def test_negatives_of_all_margins_are_drawn_equally_often() -> None:
    pairs = TopicPairs(scored(50, 42), np.zeros(50, np.int64))  # 40 negatives have a margin of 10, and two of 1
    drawn = np.concatenate([pairs.draw_places(50, 0, step)[2] for step in range(40)])
    rare = pairs.scored.negative_scores[drawn] > 5
    assert 0.45 < rare.mean() < 0.55, "two bins are not empty"
    margins, inside = np.array([[0.0, 1.0, 2.0, 3.9, 4.0], [5.0, 5.0, 5.0, 5.0, 0.0]]), np.ones((2, 5), bool)
    inside[1, 4] = False
    assert bin_sizes(margins, inside, 4)[:, :4].tolist() == [[1, 1, 1, 2], [4, 4, 4, 4]]


def test_the_in_batch_loss_is_that_of_a_direct_computation() -> None:
    rng = np.random.default_rng(3)
    scores, teacher = rng.normal(size=(3, 6)), rng.normal(size=(3, 6))
    expected = [
        (scores[i, i] - scores[i, j] - teacher[i, i] + teacher[i, j]) ** 2 for i in range(3) for j in range(6) if i != j
    ]
    margins = torch.from_numpy(np.diagonal(teacher)[:, None] - teacher)
    loss = in_batch_margin_mse_loss(torch.from_numpy(scores), margins)
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-12)


def test_the_in_batch_teacher_scores_all_documents_of_a_batch(judged: Path, start: Path, tmp_path: Path) -> None:
    recipe = recipe_of(
        "tas-b", start, "data.teacher=bm25", f"data.in_batch_teacher=bm25 + 0.5 * {start}", "data.clusters=3",
        "data.in_batch_scale=1",
    )  # fmt: skip
    kind = recipe.make()
    base = kind.load_base()
    kind.prepare(inputs_of(judged), base, tmp_path)
    pairs = kind.open_data(tmp_path).pairs
    assert isinstance(pairs, TopicPairs)
    assert len(np.unique(pairs.clusters)) == 3
    batch = pairs.batch(8, 0, 2, CPU)
    queries, positives, negatives = pairs.scored.pairs.numbers_at(*pairs.draw_places(8, 0, 2))
    documents = np.concatenate([positives, negatives])
    dataset = BeirDataset.open(judged)
    texts = list(dataset.queries_of(dataset.qrels("train")).values())
    teacher = open_teacher(f"bm25 + 0.5 * {start}")
    numbers = np.repeat(queries, len(documents)), np.tile(documents, len(queries))
    expected = teacher_scores(teacher, list(dataset.documents()), texts, *numbers).reshape(8, -1)
    margins = np.diagonal(expected)[:, None] - expected
    assert batch.extra.in_batch.numpy() == pytest.approx(margins, abs=1e-4)
    assert batch.extra.pairs.shape == (8, 2)
    one = list(judged_texts([dataset], base.analyzer))
    factor = teacher_vectors(one, TeacherSettings("bm25")).scores(queries, documents)
    whole = teacher_vectors(one, TeacherSettings("bm25", 1.0)).scores(queries, documents)
    assert np.nanstd(whole[factor > 0] / factor[factor > 0]) < 1e-5, "scaled by one number"


@pytest.mark.slow
def test_a_stopped_run_of_tas_b_goes_on_identically(judged: Path, start: Path, tmp_path: Path) -> None:
    recipe = recipe_of("tas-b", start, "data.teacher=bm25", "data.in_batch_teacher=bm25-wp", "data.clusters=3")
    whole, resumed = whole_and_resumed(recipe, inputs_of(judged), tmp_path)
    assert whole == resumed
    assert len(whole) == 4


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (["data.teacher="], "data.source=topics balances the margins of a teacher; set data.teacher"),
        (["data.in_batch_teacher="], "loss.in_batch_weight is the weight of data.in_batch_teacher"),
        (["loss.in_batch_weight=0"], "so set both or neither"),
        (["loss.in_batch_weight=-1"], "loss.in_batch_weight must be 0 or more, not -1"),
        (["data.margin_bins=0"], "data.margin_bins must be 1 or more, not 0"),
        (["loss.name=contrastive"], "set loss.name to margin-mse or kl"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: list[str], problem: str) -> None:
    with pytest.raises(VizslaError) as caught:
        load_training_recipe("tas-b").with_changes(changes)
    assert problem in str(caught.value)


def test_a_cross_encoder_cannot_score_whole_batches(judged: Path, trained: Path) -> None:
    texts = list(judged_texts([BeirDataset.open(judged)], Analyzer.parse("wordpiece")))
    with pytest.raises(VizslaError, match="is a cross-encoder, which would have to read all pairs of every batch"):
        teacher_vectors(texts, TeacherSettings(str(trained)))
