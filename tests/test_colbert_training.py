"""ColBERT is trained on judged queries: MaxSim with gradients, dev figures, and folders that everybody opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from test_distillation import inputs_of, losses, recipe_of, trainer_of, whole_and_resumed
from vizsla import BeirDataset, Index, Model, VizslaError, evaluate, parse_model
from vizsla.models import ColBERT
from vizsla.neural.chunks import packed
from vizsla.neural.heads.colbert import TokenTexts
from vizsla.training import TokenCorpus, TrainingInputs, train
from vizsla.training.loop import products
from vizsla.training.sources.judged import judged_texts
from vizsla.training.sources.refresh import mined_negatives
from vizsla.training.sources.teacher import TeacherSettings, open_teacher, teacher_scores
from vizsla.training.sources.token_corpus import with_special_tokens
from vizsla.training.sources.topics import TeacherVectors, teacher_vectors

CPU = torch.device("cpu")
SMALL = ["network.dimensions=24", "data.max_query_length=12", "data.max_document_length=40"]
QUERIES = ["dog bark", "", "quark field theory river stone bridge summer winter music paint cat"]
DOCUMENTS = [{"text": "dog, bark! night."}, {"text": ""}, {"text": "river stone bridge " * 4000}]


def some_texts(rng: np.random.Generator, count: int, length: int) -> TokenTexts:
    compared = torch.from_numpy(rng.random((count, length)) < 0.7)
    compared[-1] = False  # one without a token
    return TokenTexts(torch.from_numpy(rng.normal(size=(count, length, 3))).requires_grad_(), compared)


@pytest.mark.parametrize("at_once", [1 << 26, 7, 60])
def test_scores_and_gradients_are_those_of_the_definition(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_PRODUCTS", at_once)
    rng = np.random.default_rng(2)
    queries, documents = some_texts(rng, 4, 3), some_texts(rng, 5, 6)
    weights = torch.from_numpy(rng.normal(size=(4, 5)))

    def by_definition() -> Any:
        rows = []
        for q in range(4):
            own = queries.vectors[q][queries.compared[q]]
            for d in range(5):
                others = documents.vectors[d][documents.compared[d]]
                best = (own @ others.T).amax(1).sum() if len(others) else own.sum() * 0
                rows.append(best)
        return torch.stack(rows).view(4, 5)

    made = []
    for scores in (by_definition(), products.max_sims(queries, documents)):
        gradients = torch.autograd.grad((scores * weights).sum(), [queries.vectors, documents.vectors])
        made.append([scores.detach(), *gradients])
    for expected, given in zip(*made, strict=True):
        torch.testing.assert_close(given, expected)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("changes", [[], ["network.attend_to_mask=true"], ["network.expand_queries=false"]])
def test_a_network_in_training_gives_what_the_written_model_gives(
    judged: Path, start: Path, tmp_path: Path, changes: list[str]
) -> None:
    recipe = recipe_of("colbert", start, *SMALL, *changes, "training.steps=1")
    kind = recipe.make()
    base = kind.load_base()
    kind.prepare(inputs_of(judged), base, tmp_path / "run")
    network = base.network.eval()
    tokens = base.analyzer.tokenizer.ids
    texts = [d["text"] for d in DOCUMENTS]
    made = []
    for side, some in enumerate((QUERIES, texts)):
        corpus = TokenCorpus.of([np.array(row, np.int64) for row in tokens(some)])
        batch = packed(*with_special_tokens(corpus, range(3), CPU), 20, side)
        with torch.no_grad():
            rows = network.vectors([network(chunk) for chunk in batch.chunks], batch)
        made.append([v[c].numpy() for v, c in zip(rows.vectors, rows.compared, strict=True)])
    kind.write(network, base, tmp_path / "run", tmp_path / "model")
    for model in (Model.load(tmp_path / "model"), parse_model(f"colbert(checkpoint={tmp_path / 'model'})")):
        assert isinstance(model, ColBERT)
        assert (model.query_length, model.length, model.dimensions) == (12, 40, 24)
        given = [model.query_embeddings(QUERIES), model.document_embeddings(DOCUMENTS)]
        for expected, vectors in zip(made, given, strict=True):
            for one, other in zip(expected, vectors, strict=True):
                assert other == pytest.approx(one, abs=2e-4)
    assert len(made[0][1]) == len(made[1][1]) == 0
    about = json.loads((tmp_path / "model" / "config_sentence_transformers.json").read_text())
    assert (about["query_prefix"], about["query_length"], about["document_length"]) == ("[unused0]", 12, 40)


def test_it_learns_and_its_dev_figures_are_those_of_a_search(judged: Path, start: Path, tmp_path: Path) -> None:
    changes = ("training.steps=24", "training.eval_steps=24", "training.learning_rate=5e-3")
    recipe, dataset = recipe_of("colbert", start, *SMALL, *changes), BeirDataset.open(judged)
    made, result = train(recipe, tmp_path / "model", TrainingInputs(datasets=[dataset], dev=[dataset]))
    lost = [line["loss"] for line in result.log]
    assert np.mean(lost[-3:]) < 0.7 * np.mean(lost[:3])
    assert isinstance(made, ColBERT)
    with Index.create(tmp_path / "i", made) as index:
        index.add({"id": d.id, **d.content} for d in dataset.documents())
        index.commit()
        qrels = dataset.qrels("dev")
        run = index.run(dataset.queries_of(qrels), 10)
    assert evaluate(run, qrels, "nDCG@10").measures["nDCG@10"] == pytest.approx(result.figures["set nDCG@10"], abs=1e-3)
    again = recipe_of("colbert", tmp_path / "model", *SMALL)
    base = again.make().load_base()
    assert not base.new_head
    assert base.network.projection.linear.weight.shape == (24, 32)
    with pytest.raises(VizslaError, match=r"set network\.dimensions=24"):
        again.with_changes(["network.dimensions=8"]).make().load_base()


@pytest.mark.slow
@pytest.mark.parametrize("taught", [[], ["data.teacher=bm25", "loss.name=kl"], ["data.refresh_steps=2"]])
def test_a_stopped_run_goes_on_as_if_it_was_not(judged: Path, start: Path, tmp_path: Path, taught: list[str]) -> None:
    whole, resumed = whole_and_resumed(recipe_of("colbert", start, *SMALL, *taught), inputs_of(judged), tmp_path)
    assert len(whole) == 4
    assert whole == resumed


def test_a_colbert_learns_the_margins_of_another(judged: Path, start: Path, tmp_path: Path) -> None:
    recipe = recipe_of("colbert", start, *SMALL, "training.steps=1")
    train(recipe, tmp_path / "teacher", inputs_of(judged))
    changes = [f"data.teacher={tmp_path / 'teacher'}", "loss.name=margin-mse", "data.teacher_scale=1"]
    taught = recipe_of("colbert", tmp_path / "teacher", *SMALL, *changes)
    kind = taught.make()
    kind.prepare(inputs_of(judged), kind.load_base(), tmp_path / "run")
    assert losses(trainer_of(taught, tmp_path / "run"))[0] < 1e-3, "it begins as its own teacher"


@pytest.mark.parametrize("name", ["{}", "bm25 + 0.5 * {}"])
def test_a_colbert_scores_all_documents_of_a_batch(judged: Path, start: Path, tmp_path: Path, name: str) -> None:
    recipe = recipe_of("colbert", start, *SMALL, "training.steps=1")
    train(recipe, tmp_path / "teacher", inputs_of(judged))
    teacher, dataset = name.format(tmp_path / "teacher"), BeirDataset.open(judged)
    texts = list(judged_texts([dataset], recipe.make().load_base().analyzer))
    teacher_vectors(texts, TeacherSettings(teacher, 2.0)).save(tmp_path / "vectors")
    queries, documents = np.array([3, 0]), np.unique(texts[0].pairs.negatives.ids)[[5, 0, 7]].astype(np.int64)
    pairs = np.repeat(queries, 3), np.tile(documents, 2)
    asked = list(texts[0].queries.values())
    expected = 2 * teacher_scores(open_teacher(teacher), texts[0].documents, asked, *pairs).reshape(2, 3)
    given = TeacherVectors.open(tmp_path / "vectors").scores(queries, documents)
    assert given == pytest.approx(expected, rel=2e-3)


def test_new_negatives_are_those_a_search_finds(judged: Path, start: Path, tmp_path: Path) -> None:
    recipe = recipe_of("colbert", start, *SMALL, "data.refresh_steps=2", "data.negatives_depth=5")
    kind = recipe.make()
    base = kind.load_base()
    kind.prepare(inputs_of(judged), base, tmp_path / "run")
    refresh, network = kind.open_data(tmp_path / "run").refresh, base.network.eval()
    assert refresh is not None
    found = mined_negatives(refresh, network, network.vectors, CPU)
    kind.write(network, base, tmp_path / "run", tmp_path / "model")
    dataset = BeirDataset.open(judged)
    with Index.create(tmp_path / "i", Model.load(tmp_path / "model")) as index:
        index.add({"id": d.id, **d.content} for d in dataset.documents())
        index.commit()
        for number, (query, text) in enumerate(dataset.queries_of(dataset.qrels("train")).items()):
            hits = [int(hit.id) for hit in index.search(text, 6) if hit.id != query.removeprefix("q")]
            assert len(set(found[number].tolist()) & set(hits[:5])) >= 4  # 16 bits may change the last
