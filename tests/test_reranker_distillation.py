"""Cross-encoders that learn the scores of another."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from small import SMALL_CROSS
from vizsla import BeirDataset, Document, Reranker, VizslaError
from vizsla.models import field_text
from vizsla.neural.heads.cross import joint_ids, joint_pairs
from vizsla.training import (
    CrossEncoderData,
    CrossEncoderPairs,
    Distributed,
    GroupLoss,
    GroupObjective,
    MinedPairs,
    ScoredPairs,
    TokenCorpus,
    Trainer,
    TrainingInputs,
    TrainingSettings,
    load_training_recipe,
)
from vizsla.training.kinds.cross_encoder import cross_encoder_data, cross_encoder_network, group_distillation_loss
from vizsla.training.sources.judged import AnsweredQueries

CPU = torch.device("cpu")


def changes_for(trained: Path, *more: str) -> list[str]:
    taught = [f"data.teacher={trained}", "data.teacher_scale=1", "loss.name=mse", "data.negatives_per_query=2"]
    return [*SMALL_CROSS, f"network.base_model={trained}", *taught, *more]


def prepared(trained: Path, inputs: TrainingInputs, folder: Path, *more: str) -> Any:
    recipe = load_training_recipe("cross-encoder").with_changes(changes_for(trained, *more))
    analyzer = cross_encoder_network(str(trained)).analyzer
    return cross_encoder_data(recipe.settings.data, analyzer, inputs, folder).pairs


@given(
    queries=st.lists(st.lists(st.integers(1000, 1100) | st.just(102), max_size=12), min_size=1, max_size=4),
    documents=st.lists(st.lists(st.integers(1000, 1100) | st.just(102), max_size=30), min_size=1, max_size=4),
    query_length=st.integers(3, 10),
    more=st.integers(2, 20),
)
def test_many_pairs_are_joined_as_one_is(
    queries: list[list[int]], documents: list[list[int]], query_length: int, more: int
) -> None:
    packed = [TokenCorpus.of([np.array(row, np.int64) for row in rows]).narrow() for rows in (queries, documents)]
    numbers = [(q, d) for q in range(len(queries)) for d in range(len(documents))][::-1]
    wanted = [joint_ids(queries[q], documents[d], query_length, query_length + more) for q, d in numbers]
    texts = [(one.ids, one.offsets) for one in packed]
    ids, starts = joint_pairs(*texts, *np.array(numbers).T, query_length, query_length + more)
    assert [ids[a:b].tolist() for a, b in pairwise(starts)] == wanted


def test_losses_are_what_they_say() -> None:
    scores = torch.tensor([[0.5, 1.0, -2.0], [3.0, 0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    wanted = torch.tensor([[4.0, -1.0, 0.5], [2.0, 2.5, -3.0]])
    own, given = scores.detach().numpy(), wanted.numpy().astype(np.float64)
    margins = [rows[:, :1] - rows[:, 1:] for rows in (own, given)]
    shares = [np.exp(rows) / np.exp(rows).sum(1, keepdims=True) for rows in (own, given)]
    expected = {
        "mse": np.mean((own - given) ** 2),
        "margin-mse": np.mean((margins[0] - margins[1]) ** 2),
        "kl": np.mean((shares[1] * np.log(shares[1] / shares[0])).sum(1)),
    }
    for name, value in expected.items():
        assert group_distillation_loss(name, scores, wanted).item() == pytest.approx(value)
        assert torch.autograd.gradcheck(lambda x, name=name: group_distillation_loss(name, x, wanted), scores)


@pytest.mark.parametrize("loss", ["mse", "margin-mse", "kl"])
def test_a_network_comes_to_score_as_its_teacher(start: Path, loss: str) -> None:
    torch.manual_seed(0)
    words, documents = [[1000 + i] for i in range(8)], [[1000 + i, 2000] for i in range(8)]
    right = [np.array([i]) for i in range(8)]
    wrong = [np.array([j for j in range(8) if j != i]) for i in range(8)]
    texts, numbers = map(TokenCorpus.pack, (words, documents)), map(TokenCorpus.of, (right, wrong))
    mined = MinedPairs(*texts, *numbers, negatives_per_query=3)
    scored = ScoredPairs(mined, np.full(8, 2.0, np.float32), np.full(56, -1.0, np.float32))
    pairs = CrossEncoderPairs(scored, max_query_length=8, max_length=16)
    batch = pairs.batch(4, 0, 5, CPU)
    assert (batch.extra.size, batch.extra.wanted.tolist()) == (4, [[2, -1, -1, -1]] * 4)
    chosen = TrainingSettings(
        steps=40, batch_size=8, tokens_per_chunk=4000, kept_chunks=9, learning_rate=3e-3, warmup_steps=5
    )
    network = cross_encoder_network(str(start)).network
    result = Trainer(network, pairs, chosen, objective=GroupObjective(GroupLoss(loss)), distributed=Distributed()).run()
    losses = [line["loss"] for line in result.log]
    assert losses[-1] < 0.3 * losses[0]


def test_half_of_the_layers_with_the_last(trained: Path, tmp_path: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification

    told = BertConfig.from_pretrained(trained, num_hidden_layers=5, num_labels=1)
    BertForSequenceClassification(told).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((trained / "tokenizer.json").read_bytes())
    whole, cut = (cross_encoder_network(str(tmp_path), layers=count).network for count in (0, 2))
    layers = whole.encoder.encoder.layer, cut.encoder.encoder.layer
    assert (len(layers[0]), len(layers[1]), cut.encoder.config.num_hidden_layers) == (5, 2, 2)
    for kept, of in zip(layers[1], (2, 4), strict=True):
        assert torch.equal(kept.output.dense.weight, layers[0][of].output.dense.weight)
    assert torch.equal(cut.classifier.weight, whole.classifier.weight)
    with pytest.raises(VizslaError, match=r"network\.layers is 6, and the base model has 5 layers"):
        cross_encoder_network(str(tmp_path), layers=6)


def test_a_teacher_scores_judged_and_generated_queries(judged: Path, trained: Path, tmp_path: Path) -> None:
    dataset = BeirDataset.open(judged)
    documents = list(dataset.documents())
    corpus = [
        Document(d.id, {**d.content, "queries": [" ".join(d.content["text"].split()[:3])]}) for d in documents[:6]
    ]
    inputs = TrainingInputs(corpus, [dataset])
    more = ["data.max_queries=10", "data.kept_negatives=3"]
    scored = prepared(trained, inputs, tmp_path, *more)
    pairs = scored.pairs
    assert len(pairs.queries) == 16
    assert np.diff(pairs.negatives.offsets).max() == 3
    used = np.union1d(pairs.positives.ids, pairs.negatives.ids)
    assert used.tolist() == list(range(len(pairs.documents))), "no document is kept that no query is read with"
    teacher = Reranker.open(trained)
    texts = [field_text(d.content, ("title", "text")) for d in documents]
    by_number = {
        tuple(row): text for text, row in zip(texts, (teacher.network.analyzer.tokenizer.ids(texts)), strict=True)
    }
    first = by_number[tuple(pairs.documents[int(pairs.positives[12][0])].tolist())]
    asked = corpus[2].content["queries"][0]
    assert first.startswith(asked)
    assert scored.positive_scores[pairs.positives.offsets[12]] == pytest.approx(
        teacher.scores(asked, [first])[0], abs=1e-4
    )
    CrossEncoderData(scored, [], b"{}").save(tmp_path / "saved")
    again = CrossEncoderData.open(tmp_path / "saved", negatives_per_query=2).pairs
    assert isinstance(again, ScoredPairs)
    assert again.negative_scores.tolist() == scored.negative_scores.tolist()
    half = prepared(trained, inputs, tmp_path / "half", *more, "data.teacher_scale=0.5")
    assert half.negative_scores == pytest.approx(scored.negative_scores / 2)


def test_scores_are_computed_once(judged: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = TrainingInputs(datasets=[BeirDataset.open(judged)])
    first = prepared(trained, inputs, tmp_path)
    monkeypatch.setattr("vizsla.models.reranker.BertPairs.numbered_scores", None)  # nothing is scored again
    assert prepared(trained, inputs, tmp_path).negative_scores.tolist() == first.negative_scores.tolist()
    with pytest.raises(TypeError):
        prepared(trained, inputs, tmp_path, "data.max_length=20", "data.max_query_length=10")


def test_negatives_are_drawn_once_and_at_random() -> None:
    documents = [Document(str(i), {"text": str(i)}) for i in range(50)]
    sides = TokenCorpus.of([np.array([3]), np.array([4])]), TokenCorpus.of([np.arange(10, 50), np.array([7])])
    answered = AnsweredQueries(documents, ["a", "b"], *sides)
    thin = answered.thinned(5, np.random.default_rng(0))
    numbers = [[int(thin.documents[i].id) for i in thin.negatives[q]] for q in range(2)]
    assert len(numbers[0]) == 5
    assert set(numbers[0]) < set(range(10, 50))
    assert numbers[1] == [7]
    assert [thin.documents[int(i)].id for i in thin.positives.ids] == ["3", "4"]
    assert len(thin.documents) == 8
    other = answered.thinned(5, np.random.default_rng(1))
    assert [d.id for d in other.documents] != [d.id for d in thin.documents]
    assert len(answered.thinned(0, np.random.default_rng(0)).negatives.ids) == 41


def test_commands(cli: Cli, judged: Path, trained: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (judged / "corpus.jsonl").read_text().splitlines()[:8]]
    expanded = tmp_path / "expanded.jsonl"
    expanded.write_text("".join(json.dumps(row | {"queries": [row["text"][:20]]}) + "\n" for row in rows))
    told = [part for change in changes_for(trained, "network.layers=1") for part in ("--set", change)]
    folder = tmp_path / "student"
    small = ["--set", "training.batch_size=4", "--set", "data.queries_per_document=1"]
    code, _, said = cli("train", "reranker-small", "--corpus", expanded, *told, *small, "-o", folder)
    assert code == 0, said
    assert Reranker.open(folder).name == "reranker-small"
    run = tmp_path / "some.trec"
    run.write_text("q0 Q0 1 1 1 z\n")
    for more, message in (
        (["--set", "loss.name=contrastive"], "set loss.name to mse, margin-mse or kl"),
        (["--set", "data.teacher="], "loss.name=mse learns the scores of data.teacher"),
        (["--set", "network.layers=9"], "network.layers is 9"),
        (["--set", "data.kept_negatives=-1"], "data.kept_negatives must be 0 or more"),
        (["--set", "data.teacher=no-such-model"], "no-such-model"),
        (["--negatives", run], "a run does not have the generated queries"),
    ):
        code, _, said = cli("train", "reranker-small", "--corpus", expanded, *told, *more, "-o", tmp_path / "x")
        assert (code, message in said) == (2, True), said
    code, _, said = cli("train", "reranker-small", *told, "-o", tmp_path / "x")
    assert (code, "judged or generated queries" in said) == (2, True)
