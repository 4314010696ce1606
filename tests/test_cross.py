"""Cross-encoders: what they give for a pair, and how they are trained."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from small import SMALL_CROSS
from vizsla import BeirDataset, Index, Reranker, VizslaError, evaluate
from vizsla.neural.chunks import packed
from vizsla.neural.heads.cross import (
    cross_encoder,
    joint_ids,
    token_types_of,
)
from vizsla.retrievers import rerank
from vizsla.training import (
    CrossEncoderData,
    CrossEncoderDev,
    CrossEncoderPairs,
    Distributed,
    GroupLoss,
    GroupObjective,
    MinedPairs,
    TokenCorpus,
    Trainer,
    TrainingInputs,
    TrainingSettings,
    load_training_recipe,
)
from vizsla.training.kinds.cross_encoder import cross_encoder_data, cross_encoder_dev, cross_encoder_network, group_loss


def options(changes: list[str]) -> list[str]:
    return [part for change in changes for part in ("--set", change)]


def by_hand(folder: Path, pairs: list[list[int]]) -> Any:
    """Scores as transformers gives them, one text after another."""
    from transformers import BertForSequenceClassification

    model = BertForSequenceClassification.from_pretrained(folder).eval()
    found = []
    for ids in pairs:
        behind = ids.index(102) + 1
        segments = [0] * behind + [1] * (len(ids) - behind)
        with torch.no_grad():
            found.append(model(torch.tensor([ids]), token_type_ids=torch.tensor([segments])).logits[0].tolist())
    return np.array(found)


TEXTS = (([7, 8, 9], [10, 11]), ([2000], list(range(3000, 3060))), ([], [5]), ([6], []))
PAIRS = [joint_ids(query, document, 16, 48) for query, document in TEXTS]


def torch_scores(network: Any, rows: list[list[int]], tokens: int = 60) -> np.ndarray:
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    mask = torch.arange(ids.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
    ids[mask] = torch.tensor([i for row in rows for i in row])
    batch = packed(ids, mask, tokens)
    with torch.no_grad():
        return network.vectors([network(chunk) for chunk in batch.chunks], batch).squeeze(1).numpy()


def test_scores_are_those_of_transformers(trained: Path) -> None:
    expected = by_hand(trained, PAIRS)[:, 0]
    assert np.ptp(expected) > 1e-3
    np.testing.assert_allclose(torch_scores(cross_encoder(trained).eval(), PAIRS), expected, atol=1e-5)
    reranker = Reranker.open(trained, "float32")
    offsets = np.cumsum([0, *map(len, PAIRS)])
    flat = np.array([i for row in PAIRS for i in row])
    np.testing.assert_allclose(reranker.network.network.running.scores(flat, offsets), expected, atol=1e-5)


def test_two_labels_score_by_the_second_less_the_first(trained: Path, tmp_path: Path) -> None:
    from transformers import BertForSequenceClassification

    model = BertForSequenceClassification.from_pretrained(trained, num_labels=2, ignore_mismatched_sizes=True)
    with torch.no_grad():
        model.classifier.weight.normal_()
        model.classifier.bias.normal_()
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((trained / "tokenizer.json").read_bytes())
    first, second = by_hand(tmp_path, PAIRS).T
    reranker = Reranker.open(tmp_path, "float32")
    assert (reranker.query_length, reranker.length) == (64, 64)  # as many as the network has places for
    offsets = np.cumsum([0, *map(len, PAIRS)])
    made = reranker.network.network.running.scores(np.array([i for row in PAIRS for i in row]), offsets)
    np.testing.assert_allclose(made, second - first, atol=1e-5)
    np.testing.assert_allclose(torch_scores(cross_encoder(tmp_path).eval(), PAIRS), second - first, atol=1e-5)


@given(
    query=st.lists(st.integers(1000, 1100) | st.just(102), max_size=30),
    document=st.lists(st.integers(1000, 1100) | st.just(102), max_size=60),
    query_length=st.integers(3, 20),
    more=st.integers(2, 30),
)
def test_pairs_are_cut_where_they_are_too_long(
    query: list[int], document: list[int], query_length: int, more: int
) -> None:
    length = query_length + more
    ids = joint_ids(query, document, query_length, length)
    behind = ids.index(102)
    plain = [i for i in query if i != 102]
    assert ids[0] == 101
    assert ids[-1] == 102
    assert ids[1:behind] == plain[: query_length - 2]
    assert len(ids) <= length
    assert ids[behind + 1 : -1] == document[: length - behind - 2]


def test_segments_begin_behind_the_first_separator_of_each_text() -> None:
    rows = [[101, 102, 102], [101, 5, 102, 6, 102, 7, 102], [101, 5, 6, 102, 7, 102]]
    corpus = TokenCorpus.of([np.array(row) for row in rows])
    ids = torch.tensor([[*row, *[0] * (7 - len(row))] for row in rows])
    batch = packed(ids, torch.arange(7) < torch.tensor(np.diff(corpus.offsets))[:, None], 10)
    found = [token_types_of(chunk).tolist() for chunk in batch.chunks]
    assert found == [[0, 0, 1, 0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1, 1]]


def small_pairs(negatives_per_query: int = 2) -> CrossEncoderPairs:
    """Queries of one word, whose documents have it, among documents that have it not."""
    words = [[1000 + i] for i in range(12)]
    documents = [[1000 + i, 2000, 2001] for i in range(12)]
    right = [np.array([i]) for i in range(12)]
    wrong = [np.array([j for j in range(12) if j != i]) for i in range(12)]
    texts, numbers = map(TokenCorpus.pack, (words, documents)), map(TokenCorpus.of, (right, wrong))
    return CrossEncoderPairs(MinedPairs(*texts, *numbers, negatives_per_query), max_query_length=8, max_length=16)


def test_a_group_is_a_document_and_its_negatives() -> None:
    pairs = small_pairs()
    (texts,), _, group = pairs.batch(4, 0, 5, torch.device("cpu"))
    ids, mask = texts
    assert group == (3, None)
    assert ids.shape == mask.shape == (12, 7)
    same = (ids[:, 1] == ids[:, 3]).view(4, 3)
    assert same.tolist() == [[True, False, False]] * 4
    again = pairs.batch(4, 0, 5, torch.device("cpu")).texts[0][0]
    assert torch.equal(ids, again)
    with pytest.raises(VizslaError, match="max_query_length 30"):
        CrossEncoderPairs(pairs.mined, max_query_length=30, max_length=16)


@pytest.mark.parametrize("loss", ["contrastive", "margin", "binary"])
def test_losses_are_what_they_say(loss: str) -> None:
    scores = torch.tensor([[0.5, 1.0, -2.0], [3.0, 0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    rows = scores.detach().numpy()
    expected = {
        "contrastive": np.mean([-np.log(np.exp(row[0]) / np.exp(row).sum()) for row in rows]),
        "margin": np.mean([[max(0.0, 1 - row[0] + other) for other in row[1:]] for row in rows]),
        "binary": np.mean([[np.log1p(np.exp(-row[0])), *np.log1p(np.exp(row[1:]))] for row in rows]),
    }[loss]
    assert group_loss(scores, loss).item() == pytest.approx(expected)
    assert torch.autograd.gradcheck(lambda x: group_loss(x, loss), scores)


@pytest.mark.parametrize("kept_chunks", [0, 9])
def test_gradients_of_chunks_are_those_of_the_whole(start: Path, kept_chunks: int) -> None:
    network = cross_encoder_network(str(start)).network
    network = network.double()
    with torch.no_grad():
        network.classifier.weight.normal_()
    pairs = small_pairs()
    chosen = TrainingSettings(
        steps=1, batch_size=4, tokens_per_chunk=30, kept_chunks=kept_chunks, max_grad_norm=1e9, precision="float32"
    )
    trainer = Trainer(network, pairs, chosen, objective=GroupObjective(), distributed=Distributed())
    grown: dict[str, Any] = {}
    trainer.optimizer.step = lambda *_: grown.update({n: p.grad.clone() for n, p in network.named_parameters()})  # type: ignore[method-assign]
    line = trainer.step()
    drawn = pairs.batch(4, 0, 0, torch.device("cpu"))
    network.zero_grad()
    whole = packed(*drawn.texts[0], 10_000)
    loss = group_loss(network.vectors([network(whole.chunks[0])], whole).view(-1, 3))
    loss.backward()
    assert line["loss"] == pytest.approx(loss.item())
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(grown[name], parameter.grad, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["contrastive", "binary"])
def test_training_learns_what_an_answer_is(start: Path, loss: str) -> None:
    torch.manual_seed(0)
    network = cross_encoder_network(str(start)).network
    pairs = small_pairs()
    candidates = TokenCorpus.of([np.roll(np.arange(12), -i - 1) for i in range(12)])  # the right one is last
    judgements = np.array([[i, i, 1] for i in range(12)])
    dev = CrossEncoderDev.of(
        "small", pairs.mined.queries, pairs.mined.documents, candidates, judgements, max_query_length=8, max_length=16
    )
    assert dev.evaluate()["small MRR@10"] == 0
    chosen = TrainingSettings(
        steps=50, batch_size=12, tokens_per_chunk=4000, kept_chunks=9, learning_rate=3e-3, warmup_steps=5, eval_steps=25
    )
    objective = GroupObjective(GroupLoss(loss))
    result = Trainer(network, pairs, chosen, objective=objective, dev=[dev], distributed=Distributed()).run()
    losses = [line["loss"] for line in result.log]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])
    assert result.figures["small MRR@10"] > 0.5


def test_dev_figures_are_those_of_an_evaluation(judged: Path, trained: Path, tmp_path: Path) -> None:
    dataset = BeirDataset.open(judged)
    recipe = load_training_recipe("cross-encoder").with_changes([*SMALL_CROSS, f"network.base_model={trained}"])
    network, analyzer, *_ = cross_encoder_network(str(trained))
    dev = cross_encoder_dev(dataset, analyzer, recipe.settings.data)
    dev.save(tmp_path / "dev-0")
    dev = CrossEncoderDev.open(tmp_path / "dev-0")
    with Index.create(tmp_path / "ix", "bm25") as index:
        index.add(dataset.documents())
        index.commit()
        queries = dataset.queries_of(dataset.qrels("dev"))
        run = index.run(queries, 8)
        reranker = Reranker.open(trained, "float32")
        found = rerank(index, run, queries, reranker, 8)
    network.eval()
    figures = dev.figures(network, network.vectors, torch.device("cpu"))
    for ranking, made in ((run, dev.evaluate()), (found, figures)):
        expected = evaluate(ranking, dataset.qrels("dev"), "nDCG@10 RR@10").measures
        assert list(made.values()) == pytest.approx(list(expected.values()))


def test_negatives_come_from_another_first_stage(cli: Cli, start: Path, judged: Path, tmp_path: Path) -> None:
    dataset = BeirDataset.open(judged)
    recipe = load_training_recipe("cross-encoder").with_changes([*SMALL_CROSS, f"network.base_model={start}"])
    analyzer = cross_encoder_network(str(start)).analyzer
    lines = [f"q{q} Q0 {(q + j) % 40} {j} {9 - j} mine" for q in range(40) for j in range(6)]
    run = tmp_path / "mine.trec"
    run.write_text("\n".join(lines) + "\n")

    def prepared(*changes: str, dev: bool = False) -> CrossEncoderData:
        inputs = TrainingInputs(datasets=[dataset], dev=[dataset] if dev else [])
        return cross_encoder_data(recipe.with_changes(changes).settings.data, analyzer, inputs, tmp_path)

    data = prepared(f"data.negatives={run}", "data.negatives_depth=4", "data.candidates_depth=5", dev=True)
    data.save(tmp_path / "data")
    data = CrossEncoderData.open(tmp_path / "data", negatives_per_query=1)
    numbers = [data.pairs.negatives[q].tolist() for q in range(30)]
    assert numbers == [[q + 1, q + 2, q + 3] for q in range(30)]
    assert [len(data.dev[0].candidates[q]) for q in range(5)] == [5] * 5
    assert data.dev[0].evaluate() == {"set nDCG@10": 1, "set MRR@10": 1}
    by_model, plain = prepared("data.negatives=bm25(k1=2)"), prepared()
    assert by_model.pairs.negatives.ids.tolist() != plain.pairs.negatives.ids.tolist()
    told = ["--dataset", str(judged), *options([*SMALL_CROSS, f"network.base_model={start}"])]
    folder = tmp_path / "trained"
    assert cli("train", "cross-encoder", *told, "--negatives", run, "--dev", judged, "-o", folder)[0] == 0
    other = tmp_path / "other.trec"
    other.write_text("x Q0 y 1 1 z\n")
    for more, message in (
        (["--negatives", other], "none of the queries"),
        (["--negatives", "nonsense"], "nonsense"),
        (["--negatives", run, "--dataset", judged], "belongs to one data set"),
        (["--set", "data.max_length=10"], "do not fit"),
        (["--set", "data.max_length=65"], "reads 64 tokens at most"),
    ):
        code, _, said = cli("train", "cross-encoder", *told, *more, "-o", tmp_path / "x")
        assert code == 2
        assert message in said
    code, _, said = cli("train", "cross-encoder", *told, "-o", folder)
    assert (code, "already" in said) == (2, True)
    code, _, said = cli("train", "cross-encoder", "--resume", "--set", "training.steps=3", "-o", folder)
    assert (code, "step     3" in said, "step     2" in said) == (0, True, False)
    code, _, said = cli("train", "cross-encoder", "--resume", "--negatives", "bm25", "-o", folder)
    assert (code, "the run began with data.negatives" in said) == (2, True)
    for name, more in (("bm26", ["--negatives", run]), ("dpr", ["--candidates", run])):
        code, _, said = cli("train", name, "--dataset", judged, *more, "-o", tmp_path / "x")
        assert (code, f"recipes 'data.{more[0][2:]}'" in said) == (2, True)
    plain = ["--corpus", judged / "corpus.jsonl", *told[2:]]
    code, _, said = cli("train", "cross-encoder", *plain, "-o", tmp_path / "x")
    assert (code, "--dataset" in said) == (2, True)


def test_training_needs_torch_and_numpy_alone() -> None:
    others = ["llvmlite", "numba", "onnx", "onnxruntime", "orjson", "pydantic", "tokenizers", "typer", "yaml"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({others})); from vizsla.neural.heads.cross import cross_encoder"
    )
    code += "; from vizsla.training import CrossEncoderData, CrossEncoderPairs, GroupObjective, Trainer"
    code += "; from vizsla.neural.checkpoints.writing import save_reranker"
    subprocess.run([sys.executable, "-c", code], check=True)
