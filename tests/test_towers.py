"""Dense models with two encoders, with token types, with a teacher: how they are trained and written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import Cli
from small import SMALL_TRAINING
from vizsla import BM25, Dense, Document, Model, VizslaError
from vizsla.models import Spar
from vizsla.neural.chunks import packed
from vizsla.neural.heads.dense import Towers, WithFrozenCompanion
from vizsla.text.sentences import sentences_of
from vizsla.training import MinedPairs, TokenCorpus, Trainer, TrainingSettings, load_training_recipe
from vizsla.training.kinds.dense import DenseNetwork, dense_network, network_of
from vizsla.training.kinds.spar import ImitationSource, drawn_queries, imitation_data, read_questions
from vizsla.training.loop.objectives import margin_loss
from vizsla.training.networks import base_encoder
from vizsla.training.sources.token_corpus import with_special_tokens


def small_dense_network(start: Path, **options: Any) -> Any:
    return dense_network(DenseNetwork(str(start), **options))[0]


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
    drawn = list(drawn_queries(those, ImitationSource()))
    counts = [sum(q in d.content["text"] for q in drawn) for d in those]
    assert counts == [5, 2, 2, 1]  # of 6 sentences: 6 / 1.2, 6 / 2.4, 6 / 3.6, 6 / 4.8
    assert drawn == list(drawn_queries(those, ImitationSource())) != list(drawn_queries(those, ImitationSource(seed=1)))
    short = list(drawn_queries(those, ImitationSource(short_queries=1.0)))
    assert all(3 <= len(q.split()) <= 8 for q in short)
    assert any(len(q.split()) < 8 for q in short)


def test_sentences_are_asked_as_questions_are(start: Path, tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text('{"_id": "a", "text": "who was it"}\n{"_id": "b", "text": "when did they come"}\n')
    those = documents()
    settings = ImitationSource(questions=str(file), question_queries=1.0, depth=20)
    questions = read_questions(settings)
    assert list(questions) == ["who was it", "when did they come"]
    drawn = list(drawn_queries(those, settings, questions))
    assert {q.split()[0] for q in drawn} == {"who", "when"}
    assert all(3 <= len(q.split()) <= 3 + 8 + 2 for q in drawn)
    assert 0.3 < np.mean(["Article" in q for q in drawn]) < 0.7
    assert len(drawn) == len(list(drawn_queries(those, ImitationSource())))  # as many as sentences
    mixed = list(
        drawn_queries(those, ImitationSource(questions=str(file), question_queries=0.3, short_queries=0.3), questions)
    )
    assert 0.15 < np.mean([q.startswith(("who", "when")) for q in mixed]) < 0.45

    file.write_text('{"_id": "a", "text": "what is ' + those[0].content["text"].split(".")[0] + '"}\n')
    twice = replace(settings, questions=f"{file},{file}", question_queries=0.0)
    analyzer = base_encoder(str(start)).analyzer
    pairs = imitation_data(those, BM25(), analyzer, twice).pairs
    assert len(pairs.queries) == 2 + len(list(drawn_queries(those, twice)))
    assert len(imitation_data(those, BM25(), analyzer, replace(twice, max_sentences=5)).pairs.queries) == 2 + 5
    assert 0 in pairs.positives[0]
    assert pairs.positives[0].tolist() == pairs.positives[1].tolist()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("nq-train.qa.csv", 'who was it\t[\'him\', "Destiny\'s Child"]\nwhen was it\t"[\'in ""1900""\']"\n'),
        ("nq.tsv", "who was it\t['him']\nwhen was it\t['then', 'later']\n"),
        ("P1.json", '[{"question": "who was it", "answers": ["him"]}, {"question": "when was it", "answers": ["1"]}]'),
        ("train.jsonl", '{"_id": "1", "text": "who was it", "answers": ["him"]}\n{"_id": "2", "text": "when was it"}'),
        ("topics.tsv", "1\twho was it\n2\twhen was it\n"),
    ],
)
def test_questions_to_train_on_are_never_their_answers(start: Path, tmp_path: Path, name: str, content: str) -> None:
    file = tmp_path / name
    file.write_text(content)
    assert list(read_questions(ImitationSource(questions=str(file)))) == ["who was it", "when was it"]
    settings = ImitationSource(dev_questions=str(file), depth=2, top_positives=1, bottom_negatives=1)
    analyzer = base_encoder(str(start)).analyzer
    those = [Document(str(i), {"text": "him then later 1900"}) for i in range(3)]  # the answers, not the questions
    with pytest.raises(VizslaError, match="none of the questions in"):
        imitation_data(those, BM25(), analyzer, settings)


def test_questions_that_cannot_be_asked_are_told(tmp_path: Path) -> None:
    with pytest.raises(VizslaError, match="needs real questions"):
        ImitationSource(question_queries=0.5)
    with pytest.raises(VizslaError, match=r"between 0 and 0.4, not 0.5"):
        ImitationSource(question_queries=0.5, short_queries=0.6, questions="some.jsonl")
    (tmp_path / "none.jsonl").write_text("")
    with pytest.raises(VizslaError, match="no questions in"):
        read_questions(ImitationSource(questions=str(tmp_path / "none.jsonl")))
    with pytest.raises(VizslaError, match=r"missing\.jsonl"):
        read_questions(ImitationSource(questions=str(tmp_path / "missing.jsonl")))


def test_a_pupil_learns_from_the_ranking_of_its_teacher(start: Path) -> None:
    those, settings = documents(), ImitationSource(depth=20, top_positives=4, bottom_negatives=3)
    analyzer = base_encoder(str(start)).analyzer
    pairs = imitation_data(those, BM25(), analyzer, settings).pairs
    bm25 = BM25()
    statistics = bm25.statistics([d.content for d in those])
    queries = list(drawn_queries(those, settings))
    stored = bm25.encode_documents([d.content for d in those], statistics)
    scores = bm25.encode_queries(queries, statistics).dot(stored)
    assert len(pairs.queries) == len(queries)
    for number in range(len(queries)):
        row = scores[number]
        ranked = np.argsort(-row, kind="stable")[:20]
        np.testing.assert_allclose(row[pairs.positives[number]], row[ranked[:4]], rtol=1e-5)
        np.testing.assert_allclose(row[pairs.negatives[number]], row[ranked[-3:]], rtol=1e-5)
    with pytest.raises(VizslaError, match="positives 60"):
        ImitationSource(top_positives=60)
    with pytest.raises(VizslaError, match="for none of the sentences"):
        imitation_data(those[:8], BM25(), analyzer, settings)


def test_a_step_gives_the_same_batch_whenever_it_is_drawn() -> None:
    one = TokenCorpus.pack([[5, 6]] * 40)
    pairs = MinedPairs(one, one, TokenCorpus.of([np.arange(3)] * 40), TokenCorpus.of([np.arange(9)] * 40), 1)
    steps = [(0, 0), (0, 12), (1, 0), (0, 0), (1, 0), (0, 12)]  # of 10 steps an epoch
    drawn = [[part.tolist() for part in pairs.draw(4, seed, step)] for seed, step in steps]
    assert drawn[3:] == [drawn[0], drawn[2], drawn[1]]
    assert len({str(batch[0]) for batch in drawn}) == 3
    epoch = [q for step in range(10) for q in pairs.draw(4, 0, step)[0].tolist()]
    assert sorted(epoch) == list(range(40))


def test_positives_of_a_ranking_are_thrown_for() -> None:
    one = TokenCorpus.pack([[5, 6]] * 400)
    ranked = TokenCorpus.of([np.arange(3)] * 400)
    pairs = MinedPairs(one, one, ranked, TokenCorpus.of([np.array([9])] * 400), 1, positive_decay=0.5)
    rng = np.random.default_rng(0)
    drawn = np.bincount(pairs.draw_positives(np.zeros(7000, np.int64), 0, rng), minlength=3) / 1000
    np.testing.assert_allclose(drawn, [4, 2, 1], atol=0.25)
    with pytest.raises(VizslaError, match="positive_decay"):
        MinedPairs(one, one, ranked, ranked, positive_decay=1.5)


def test_margins_are_those_of_the_paper() -> None:
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(4, 8))
    right = rng.random((4, 8)) < 0.2
    expected = 0.0
    for i in range(4):
        own = {i, *np.flatnonzero(right[i]).tolist()}
        pairs = [(y, j) for y in own for j in range(8) if j not in own]
        expected += sum(max(0.0, 1 - (scores[i, y] - scores[i, j])) for y, j in pairs) / 8 / 4
    assert margin_loss(torch.tensor(scores), torch.tensor(right)).item() == pytest.approx(expected)


def texts(side: int) -> Any:
    corpus = TokenCorpus.pack([[5, 6, 7], [8, 9], [10, 11, 12, 13]])
    return packed(*with_special_tokens(corpus, range(3), "cpu"), 100, side)


def vectors(network: Any, side: int) -> Any:
    batch = texts(side)
    with torch.no_grad():
        return network.vectors([network(c) for c in batch.chunks], batch)


def train_two_steps(network: Any) -> None:
    one = TokenCorpus.pack([[5 + i, 6 + i, 7] for i in range(8)])
    numbers = TokenCorpus.of([np.array([i]) for i in range(8)])
    others = TokenCorpus.of([np.array([(i + 1) % 8]) for i in range(8)])
    settings = TrainingSettings(steps=2, batch_size=8, learning_rate=1e-2)
    Trainer(network, MinedPairs(one, one, numbers, others, 1), settings).run()


def test_each_side_has_its_tower_and_both_are_trained(start: Path) -> None:
    network = small_dense_network(start, tied_encoders=False, normalize=False)
    assert isinstance(network, Towers)
    torch.testing.assert_close(vectors(network, 0), vectors(network, 1))
    before = {n: p.detach().clone() for n, p in network.named_parameters()}
    train_two_steps(network)
    moved = {n.split(".")[0] for n, p in network.named_parameters() if not torch.equal(p, before[n])}
    assert moved == {"queries", "documents"}
    assert not torch.allclose(vectors(network, 0), vectors(network, 1))


def test_documents_have_the_second_token_type(start: Path) -> None:
    network = small_dense_network(start, use_token_types=True, normalize=False)
    embeddings = network.encoder.embeddings.token_type_embeddings.weight
    assert not torch.allclose(vectors(network, 0), vectors(network, 1))
    with torch.no_grad():
        embeddings[1] = embeddings[0]
    torch.testing.assert_close(vectors(network, 0), vectors(network, 1))


def test_a_companion_is_frozen(start: Path) -> None:
    trained = small_dense_network(start)
    frozen = small_dense_network(start, tied_encoders=False, normalize=False)
    both = WithFrozenCompanion(trained, frozen, 0.5)
    queries, width = vectors(both, 0), trained.encoder.hidden
    torch.testing.assert_close(queries[:, :width], vectors(trained, 0))
    torch.testing.assert_close(queries[:, width:], 0.5 * vectors(frozen, 0))
    torch.testing.assert_close(vectors(both, 1)[:, width:], vectors(frozen, 1))
    before = {n: p.detach().clone() for n, p in both.named_parameters()}
    train_two_steps(both)
    moved = {n.split(".")[0] for n, p in both.named_parameters() if not torch.equal(p, before[n])}
    assert moved == {"trained", "weight"}


SMALL = [*SMALL_TRAINING, "data.max_document_length=32"]


def options(changes: list[str]) -> list[str]:
    return [part for change in changes for part in ("--set", change)]


def test_repbert_is_trained_written_and_searched(cli: Cli, start: Path, judged: Path, tmp_path: Path) -> None:
    folder = tmp_path / "repbert"
    told = ["--set", f"network.base_model={start}", "--dataset", str(judged), "--dev", str(judged)]
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


@pytest.mark.slow
def test_lambda_and_models_trained_with_it(cli: Cli, start: Path, judged: Path, tmp_path: Path) -> None:
    taught = ["data.depth=12", "data.top_positives=3", "data.bottom_negatives=2", f"network.base_model={start}"]
    folder = tmp_path / "lambda"
    asked = [*taught, f"data.dev_questions={judged / 'queries.jsonl'}"]
    told = ["--corpus", str(judged / "corpus.jsonl"), *options([*SMALL, *asked])]
    code, _, said = cli("train", "lambda", *told, "-o", str(folder))
    assert code == 0, said
    lines = [json.loads(line) for line in (folder / "training" / "log.jsonl").read_text().splitlines()]
    assert 0 < lines[-1]["queries MRR"] <= 1
    model = Model.load(folder)
    assert isinstance(model, Dense)
    assert model.query_network is not None
    settings = load_training_recipe("lambda").settings.data
    assert (settings.depth, settings.top_positives, settings.bottom_negatives) == (50, 10, 5)
    joint = tmp_path / "joint"
    told = ["--dataset", str(judged), *options([*SMALL, f"network.base_model={start}", f"network.companion={folder}"])]
    assert cli("train", "dpr", *told, "-o", str(joint))[0] == 0
    both = Model.load(joint)
    assert isinstance(both, Spar)
    assert (both.first.name, both.second.name) == ("dpr", "lambda")
    assert 0.9 < both.mu != 1
    again = tmp_path / "again"
    untied = options([*SMALL, f"network.base_model={folder}", "network.tied_encoders=false"])
    assert cli("train", "dpr", *told[:2], *untied, "-o", str(again))[0] == 0
    assert isinstance(Model.load(again), Dense)
    taught += [f"data.teacher=bm25 + 3 * {again}", f"network.companion={again}", "network.companion_weight=20"]
    residual = tmp_path / "residual"
    corpus = ["--corpus", str(judged / "corpus.jsonl")]
    assert cli("train", "lambda", *corpus, *options([*SMALL, *taught]), "-o", str(residual))[0] == 0
    one = Model.load(residual)
    assert isinstance(one, Spar)
    assert (one.first.name, one.second.name) == ("dpr", "lambda")
    assert one.mu == pytest.approx(1 / 20, abs=0.001)
    with pytest.raises(VizslaError, match="does not help"):
        load_training_recipe("dpr").with_changes([f"network.companion={again}"]).make().with_companion(one.second, -0.1)
    for bad, message in (
        (["network.tied_encoders=2"], "is not true or false"),
        (["network.tied_encoders=false", "network.use_token_types=true"], "set network.tied_encoders=true"),
        (["data.depth=3"], "setting of dense recipes 'data.depth'"),
        (["loss.name=binary"], "unknown loss 'binary'; known: contrastive, margin"),
        ([f"network.companion={joint}"], "this is not a dense model"),
        (["network.companion_weight=0"], "network.companion_weight must be more than 0"),
    ):
        code, _, said = cli("train", "dpr", *told, *options(bad), "-o", str(tmp_path / "x"))
        assert code == 2
        assert message in said


def test_what_is_read_besides_judged_queries(cli: Cli, start: Path, judged: Path, tmp_path: Path) -> None:
    assert load_training_recipe("splade").make().reads_corpus  # in its masked-language-model stage
    assert not load_training_recipe("dpr").make().reads_corpus
    told = [
        "--dataset",
        str(judged),
        *options([*SMALL, f"network.base_model={start}"]),
        "--corpus",
        str(judged / "corpus.jsonl"),
    ]
    code, _, said = cli("train", "dpr", *told, "-o", str(tmp_path / "d"))
    assert (code, "--corpus is ignored" in said) == (0, True)
    assert not (tmp_path / "d" / "training" / "corpus").exists()
