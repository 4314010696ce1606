"""Dense models with two encoders, with segments, taught by another model: how they are trained and written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from conftest import Cli  # noqa: E402
from vizsla.datasets import Document  # noqa: E402
from vizsla.errors import VizslaError  # noqa: E402
from vizsla.models import BM25, Dense, Model, Spar  # noqa: E402
from vizsla.networks import Beside, Towers, packed  # noqa: E402
from vizsla.recipes.dense import _together, dense_network, network_of  # noqa: E402
from vizsla.recipes.teaching import Teaching, drawn_queries, read_asked, taught_pairs  # noqa: E402
from vizsla.recipes.training import TrainingRecipe, load_training_recipe  # noqa: E402
from vizsla.text.sentences import sentences_of  # noqa: E402
from vizsla.training import MinedPairs, Settings, TokenCorpus, Trainer, margins  # noqa: E402
from vizsla.training.dev import framed  # noqa: E402


def recipe_of(start: Path, **more: Any) -> TrainingRecipe:
    return TrainingRecipe("small", "A small one", "dense", str(start), **more)


def test_sentences_end_where_a_reader_ends_them() -> None:
    text = 'He met Dr. A. B. Smith of the U.S. Army at 5 p.m. on Oct. 3. "Why?" she asked. '
    text += "Nobody (not one!) knew. 42 left."
    assert sentences_of(text) == [
        "He met Dr. A. B. Smith of the U.S. Army at 5 p.m. on Oct. 3.",
        '"Why?" she asked.',
        "Nobody (not one!) knew.",
        "42 left.",
    ]
    assert sentences_of("") == [] == sentences_of("  \n ")
    assert sentences_of("no end") == ["no end"]


def documents(count: int = 60) -> list[Document]:
    rng = np.random.default_rng(0)
    words = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(80)]
    made = []
    for i in range(count):
        text = " ".join(" ".join(rng.choice(words, 8)).capitalize() + "." for _ in range(6))
        made.append(Document(str(i), {"title": f"Article {i // 4}", "text": text}))
    return made


def test_fewer_sentences_are_drawn_of_passages_further_down() -> None:
    those = documents(4)
    drawn = list(drawn_queries(those, Teaching()))
    counts = [sum(q in d.content["text"] for q in drawn) for d in those]
    assert counts == [5, 2, 2, 1]  # of 6 sentences: 6 / 1.2, 6 / 2.4, 6 / 3.6, 6 / 4.8
    assert drawn == list(drawn_queries(those, Teaching())) != list(drawn_queries(those, Teaching(seed=1)))
    short = list(drawn_queries(those, Teaching(short=1.0)))
    assert all(3 <= len(q.split()) <= 8 for q in short)
    assert any(len(q.split()) < 8 for q in short)


def test_sentences_are_asked_as_questions_are(start: Path, tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text('{"_id": "a", "text": "who was it"}\n{"_id": "b", "text": "when did they come"}\n')
    those, plan = documents(), Teaching(questions=str(file), asked=1.0, depth=20)
    asked = read_asked(plan)
    assert asked == ["who was it", "when did they come"]
    drawn = list(drawn_queries(those, plan, asked))
    assert {q.split()[0] for q in drawn} == {"who", "when"}
    assert all(3 <= len(q.split()) <= 3 + 8 + 2 for q in drawn)
    assert 0.3 < np.mean(["Article" in q for q in drawn]) < 0.7
    assert len(drawn) == len(list(drawn_queries(those, Teaching())))  # as many as sentences
    mixed = list(drawn_queries(those, Teaching(questions=str(file), asked=0.3, short=0.3), asked))
    assert 0.15 < np.mean([q.startswith(("who", "when")) for q in mixed]) < 0.45

    file.write_text('{"_id": "a", "text": "what is ' + those[0].content["text"].split(".")[0] + '"}\n')
    twice = replace(plan, questions=f"{file},{file}", asked=0.0)
    _, analyzer = dense_network(recipe_of(start))
    pairs = taught_pairs(those, BM25(), analyzer, twice)
    assert len(pairs.queries) == 2 + len(list(drawn_queries(those, twice)))
    assert len(taught_pairs(those, BM25(), analyzer, replace(twice, queries=5)).queries) == 2 + 5
    assert 0 in pairs.positives[0]
    assert pairs.positives[0].tolist() == pairs.positives[1].tolist()


def test_questions_that_cannot_be_asked_are_told(tmp_path: Path) -> None:
    with pytest.raises(VizslaError, match="some are needed"):
        Teaching(asked=0.5)
    with pytest.raises(VizslaError, match=r"goes from 0 to 0.4, not 0.5"):
        Teaching(asked=0.5, short=0.6, questions="some.jsonl")
    (tmp_path / "none.jsonl").write_text("")
    with pytest.raises(VizslaError, match="no questions in"):
        read_asked(Teaching(questions=str(tmp_path / "none.jsonl")))
    with pytest.raises(VizslaError, match=r"missing\.jsonl"):
        read_asked(Teaching(questions=str(tmp_path / "missing.jsonl")))


def test_a_pupil_learns_from_the_ranking_of_its_teacher(start: Path) -> None:
    those, plan = documents(), Teaching(depth=20, positives=4, negatives=3)
    _, analyzer = dense_network(recipe_of(start))
    pairs = taught_pairs(those, BM25(), analyzer, plan)
    bm25 = BM25()
    statistics = bm25.statistics([d.content for d in those])
    queries = list(drawn_queries(those, plan))
    stored = bm25.encode_documents([d.content for d in those], statistics)
    scores = bm25.encode_queries(queries, statistics).dot(stored)
    assert len(pairs.queries) == len(queries)
    for number in range(len(queries)):
        row = scores[number]
        ranked = np.argsort(-row, kind="stable")[:20]
        np.testing.assert_allclose(row[pairs.positives[number]], row[ranked[:4]], rtol=1e-5)
        np.testing.assert_allclose(row[pairs.negatives[number]], row[ranked[-3:]], rtol=1e-5)
    with pytest.raises(VizslaError, match="60 cannot be right"):
        Teaching(positives=60)
    with pytest.raises(VizslaError, match="for none of the sentences"):
        taught_pairs(those[:8], BM25(), analyzer, plan)


def test_a_step_gives_the_same_batch_whenever_it_is_drawn() -> None:
    one = TokenCorpus.pack([[5, 6]] * 40)
    pairs = MinedPairs(one, one, TokenCorpus.of([np.arange(3)] * 40), TokenCorpus.of([np.arange(9)] * 40), group=2)
    steps = [(0, 0), (0, 12), (1, 0), (0, 0), (1, 0), (0, 12)]  # of 10 steps an epoch
    drawn = [[part.tolist() for part in pairs.drawn(4, seed, step)] for seed, step in steps]
    assert drawn[3:] == [drawn[0], drawn[2], drawn[1]]
    assert len({str(batch[0]) for batch in drawn}) == 3
    epoch = [q for step in range(10) for q in pairs.drawn(4, 0, step)[0].tolist()]
    assert sorted(epoch) == list(range(40))


def test_positives_of_a_ranking_are_thrown_for() -> None:
    one = TokenCorpus.pack([[5, 6]] * 400)
    ranked = TokenCorpus.of([np.arange(3)] * 400)
    pairs = MinedPairs(one, one, ranked, TokenCorpus.of([np.array([9])] * 400), group=2, persistence=0.5)
    dice = np.random.default_rng(0)
    drawn = np.bincount(pairs._right(np.zeros(7000, np.int64), 0, dice), minlength=3) / 1000
    np.testing.assert_allclose(drawn, [4, 2, 1], atol=0.25)
    with pytest.raises(VizslaError, match="persistence"):
        MinedPairs(one, one, ranked, ranked, persistence=1.5)


def test_margins_are_those_of_the_paper() -> None:
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(4, 8))
    right = rng.random((4, 8)) < 0.2
    expected = 0.0
    for i in range(4):
        own = {i, *np.flatnonzero(right[i]).tolist()}
        pairs = [(y, j) for y in own for j in range(8) if j not in own]
        expected += sum(max(0.0, 1 - (scores[i, y] - scores[i, j])) for y, j in pairs) / 8 / 4
    assert margins(torch.tensor(scores), torch.tensor(right)).item() == pytest.approx(expected)


def texts(side: int) -> Any:
    corpus = TokenCorpus.pack([[5, 6, 7], [8, 9], [10, 11, 12, 13]])
    return packed(*framed(corpus, range(3), "cpu"), 100, side)


def vectors(network: Any, side: int) -> Any:
    batch = texts(side)
    with torch.no_grad():
        return network.vectors([network(c) for c in batch.chunks], batch)


def train_two_steps(network: Any) -> None:
    one = TokenCorpus.pack([[5 + i, 6 + i, 7] for i in range(8)])
    numbers = TokenCorpus.of([np.array([i]) for i in range(8)])
    others = TokenCorpus.of([np.array([(i + 1) % 8]) for i in range(8)])
    Trainer(network, MinedPairs(one, one, numbers, others, group=2), Settings(steps=2, batch=8, rate=1e-2)).run()


def test_each_side_has_its_tower_and_both_are_trained(start: Path) -> None:
    network, _ = dense_network(recipe_of(start, towers=2, normalised=False))
    assert isinstance(network, Towers)
    torch.testing.assert_close(vectors(network, 0), vectors(network, 1))
    before = {n: p.detach().clone() for n, p in network.named_parameters()}
    train_two_steps(network)
    moved = {n.split(".")[0] for n, p in network.named_parameters() if not torch.equal(p, before[n])}
    assert moved == {"queries", "documents"}
    assert not torch.allclose(vectors(network, 0), vectors(network, 1))


def test_documents_are_of_the_second_segment(start: Path) -> None:
    network, _ = dense_network(recipe_of(start, segments=True, normalised=False))
    embeddings = network.encoder.embeddings.token_type_embeddings.weight
    assert not torch.allclose(vectors(network, 0), vectors(network, 1))
    with torch.no_grad():
        embeddings[1] = embeddings[0]
    torch.testing.assert_close(vectors(network, 0), vectors(network, 1))


def test_beside_another_model_only_one_learns(start: Path) -> None:
    own, _ = dense_network(recipe_of(start))
    other, _ = dense_network(recipe_of(start, towers=2, normalised=False))
    both = Beside(own, other, 0.5)
    queries, width = vectors(both, 0), own.encoder.hidden
    torch.testing.assert_close(queries[:, :width], vectors(own, 0))
    torch.testing.assert_close(queries[:, width:], 0.5 * vectors(other, 0))
    torch.testing.assert_close(vectors(both, 1)[:, width:], vectors(other, 1))
    before = {n: p.detach().clone() for n, p in both.named_parameters()}
    train_two_steps(both)
    moved = {n.split(".")[0] for n, p in both.named_parameters() if not torch.equal(p, before[n])}
    assert moved == {"own", "weight"}


SMALL = ["steps=2", "batch=8", "evaluate=2", "chunk=2000", "keep=2", "query_length=16", "document_length=32"]


def options(changes: list[str]) -> list[str]:
    return [part for change in changes for part in ("--set", change)]


def test_repbert_is_trained_written_and_searched(cli: Cli, start: Path, judged: Path, tmp_path: Path) -> None:
    folder = tmp_path / "repbert"
    told = ["--set", f"start={start}", "--dataset", str(judged), "--dev", str(judged)]
    assert cli("train", "repbert", *told, *options(SMALL), "-o", str(folder))[0] == 0
    model = Model.load(folder)
    assert isinstance(model, Dense)
    assert model.query_network is not None
    assert (model.query_length, model.length, model.normalize) == (16, 32, False)
    queries, documents = (network_of(model).tower(i).encoder.embeddings for i in (0, 1))
    assert not torch.equal(queries.token_type_embeddings.weight[0], documents.token_type_embeddings.weight[0])
    torch.testing.assert_close(
        queries.token_type_embeddings.weight[1], documents.token_type_embeddings.weight[0], atol=0.02, rtol=0.1
    )
    for name in ("query", "document"):
        assert json.loads((folder / name / "modules.json").read_text())
    assert cli("index", str(judged / "corpus.jsonl"), "-o", str(tmp_path / "ix"), "--model", str(folder))[0] == 0
    assert cli("search", str(tmp_path / "ix"), "some words")[0] == 0


def test_lambda_and_what_learns_beside_it(cli: Cli, start: Path, judged: Path, tmp_path: Path) -> None:
    taught = ["teaching.depth=12", "teaching.positives=3", "teaching.negatives=2", f"start={start}"]
    folder = tmp_path / "lambda"
    assert (
        cli(
            "train", "lambda", "--corpus", str(judged / "corpus.jsonl"), *options([*SMALL, *taught]), "-o", str(folder)
        )[0]
        == 0
    )
    model = Model.load(folder)
    assert isinstance(model, Dense)
    assert model.query_network is not None
    assert load_training_recipe("lambda").teaching == {"depth": 50, "positives": 10, "negatives": 5}
    joint = tmp_path / "joint"
    told = ["--dataset", str(judged), *options([*SMALL, f"start={start}", f"beside={folder}"])]
    assert cli("train", "dpr", *told, "-o", str(joint))[0] == 0
    both = Model.load(joint)
    assert isinstance(both, Spar)
    assert (both.first.name, both.second.name) == ("dpr", "lambda")
    assert 0.9 < both.mu != 1
    again = tmp_path / "again"
    assert cli("train", "dpr", *told[:2], *options([*SMALL, f"start={folder}", "towers=2"]), "-o", str(again))[0] == 0
    assert isinstance(Model.load(again), Dense)
    taught += [f"teacher=bm25 + 3 * {again}", f"beside={again}", "beside_weight=20"]
    residual = tmp_path / "residual"
    corpus = ["--corpus", str(judged / "corpus.jsonl")]
    assert cli("train", "lambda", *corpus, *options([*SMALL, *taught]), "-o", str(residual))[0] == 0
    one = Model.load(residual)
    assert isinstance(one, Spar)
    assert (one.first.name, one.second.name) == ("dpr", "lambda")
    assert one.mu == pytest.approx(1 / 20, abs=0.001)
    with pytest.raises(VizslaError, match="does not help"):
        _together(one.second, -0.1, load_training_recipe("dpr").changed([f"beside={again}"]))
    for bad, message in (
        (["towers=3"], "1 encoder or 2"),
        (["towers=2", "segments=yes"], "set towers=1"),
        (["teaching.depht=3"], "option of teaching"),
        (["loss=hinge"], "loss"),
        ([f"beside={joint}"], "this is no dense model"),
        (["beside_weight=0"], "beside_weight must be more than 0"),
    ):
        code, _, said = cli("train", "dpr", *told, *options(bad), "-o", str(tmp_path / "x"))
        assert code == 2
        assert message in said


def test_what_is_read_besides_judged_queries(cli: Cli, start: Path, judged: Path, tmp_path: Path) -> None:
    assert load_training_recipe("splade").reads_corpus  # its masked stage learns from --corpus
    assert not load_training_recipe("dpr").reads_corpus
    told = ["--dataset", str(judged), *options([*SMALL, f"start={start}"]), "--corpus", str(judged / "corpus.jsonl")]
    code, _, said = cli("train", "dpr", *told, "-o", str(tmp_path / "d"))
    assert (code, "--corpus is not read" in said) == (0, True)
    assert not (tmp_path / "d" / "training" / "corpus").exists()
