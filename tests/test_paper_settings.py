"""Recipes and presets named after papers have the settings of these papers, and the settings have an effect."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import Cli
from small import documents_of
from test_training import SMALL, small_network, small_pairs
from vizsla import BeirDataset, Dense, VizslaError, parse_model
from vizsla.expansion import PRESETS
from vizsla.models import MODELS
from vizsla.training import (
    ContrastiveLoss,
    Trainer,
    TrainingInputs,
    TrainingSettings,
    load_training_recipe,
    train,
    training_recipe_names,
)
from vizsla.training.kinds.dense import DenseNetwork, dense_network
from vizsla.training.kinds.spar import ImitationSource, drawn_queries, read_questions
from vizsla.training.loop.objectives import own_negatives_loss
from vizsla.training.loop.trainer import adamw
from vizsla.training.networks import base_encoder
from vizsla.training.settings import keys_of
from vizsla.training.sources.judged import judged_texts

BERT, DISTILBERT = "google-bert/bert-base-uncased", "distilbert/distilbert-base-uncased"


def settings_of(recipe: str) -> dict[str, Any]:
    return {key.name: key.value for key in keys_of(load_training_recipe(recipe).settings)}


def test_deepct_in_beir_has_anserinis_k1_and_b() -> None:
    """Section 4 of the BEIR paper: BM25 with default Anserini parameters."""
    options = {option.name: option.default for option in MODELS["deepct-beir"].options}
    assert (options["k1"], options["b"]) == (0.9, 0.4)
    trained = settings_of("deepct-beir")
    assert (trained["counts.k1"], trained["counts.b"]) == (0.9, 0.4)


def test_doct5query_in_beir_draws_forty_queries() -> None:
    """Section 4 of the BEIR paper; top-k and top-p are of its example."""
    assert (PRESETS["beir"].texts, PRESETS["beir"].top_k, PRESETS["beir"].top_p) == (40, 10, 0.95)


def augmenter(lr: float, negatives: int, epochs: float, cost: float) -> dict[str, Any]:
    """Section 3 of the paper, "Experimental Details", and its equations."""
    return {
        "network.base_model": DISTILBERT, "network.weigh_query_terms": True, "vocabulary.unit": "pieces",
        "vocabulary.scoring": "bm25", "vocabulary.k1_factor": True, "data.negatives_per_query": negatives,
        "loss.name": "contrastive", "loss.temperature": 1.0, "loss.added_cost": cost, "loss.uniform_cost": False,
        "training.learning_rate": lr, "training.batch_size": 144, "training.epochs": epochs,
    }  # fmt: skip


CROPS = {
    "data.source": "crops", "data.window": 256, "data.same_window": True, "data.deletion_rate": 0.1,
    "network.base_model": BERT, "training.steps": 10_000, "training.batch_size": 16_384, "loss.name": "contrastive",
    "loss.temperature": 1.0, "loss.symmetric": False,
}  # fmt: skip
"""Section 4 of the BM26 paper, "Data" and "Models"; the form of crops is Contriever's."""
FLOPS = {"loss.flops_queries": 1e-3, "loss.flops_documents": 1e-3, "loss.flops_warmup_steps": 0}
"""Section 3.4 of the BM26 paper."""
SPLADE = {
    "network.head": "splade", "training.epochs": 3.0, "training.batch_size": 256, "data.negatives_per_query": 7,
    "loss.symmetric": False, **FLOPS,
}  # fmt: skip
"""Section 5 of the BM26 paper, "Model" and "Baselines"."""
ADAM = {"training.beta1": 0.9, "training.beta2": 0.999, "training.epsilon": 1e-8, "training.dropout": 0.1,
        "training.final_learning_rate_ratio": 0.0}  # fmt: skip
TOWERS = {
    "network.base_model": BERT, "network.tied_encoders": False, "network.pooling": "cls", "network.normalize": False,
    "data.sep_after_title": True, "data.max_query_length": 256, "data.max_document_length": 256,
    "data.negatives_per_query": 1, "loss.temperature": 1.0, "loss.symmetric": False, "training.weight_decay": 0.0,
    "training.max_grad_norm": 2.0, **ADAM,
}  # fmt: skip
"""DPR's conf/train/biencoder_nq.yaml and its encoders; dpr-scale's conf/nq.yaml."""
DPR = TOWERS | {
    "training.learning_rate": 2e-5, "training.batch_size": 128, "training.warmup_steps": 1237,
    "training.epochs": 40.0, "data.answerless_negatives": True,
}  # fmt: skip


def spar(teacher: str, sentences: str, epochs: float) -> dict[str, Any]:
    """Sections 3 and 5.4 of the SPAR paper, and the commands in dpr-scale's spar/README.md: 64 GPUs with 32 queries."""
    return TOWERS | {
        "data.teacher": teacher, "data.depth": 50, "data.top_positives": 10, "data.bottom_negatives": 5,
        "data.positive_decay": 1.0, "data.sentences": sentences, "data.sentence_thinning": 1.2,
        "training.batch_size": 64 * 32, "training.learning_rate": 3e-5, "training.warmup_steps": 10_000,
        "training.epochs": epochs,
    }  # fmt: skip


REPBERT = {
    "network.base_model": BERT, "network.pooling": "mean", "network.normalize": False, "network.use_token_types": True,
    "data.max_query_length": 20 + 2, "data.max_document_length": 256 + 2, "data.negatives_per_query": 1,
    "training.batch_size": 26 // 2, "training.accumulation": 2, "training.steps": 350_000,
    "training.decay_steps": 26_991_900 // 26, "training.learning_rate": 3e-6, "training.warmup_steps": 10_000,
    "training.weight_decay": 0.01, "training.max_grad_norm": 1.0, "loss.name": "margin", **ADAM,
}  # fmt: skip
"""Section 4.3.1 of the RepBERT paper, and its code: 26 rows of a batch are 13 triples, and one epoch has 26,991,900."""
PUBLISHED: dict[str, dict[str, Any]] = {
    "bm25-augmented-nq-paper": augmenter(3e-4, 1, 45.0, 0.1),
    "bm25-augmented-entityquestions-paper": augmenter(3e-4, 1, 10.0, 0.1),
    "bm25-augmented-msmarco-paper": augmenter(3e-5, 4, 2.0, 0.025),
    "bm26-paper": CROPS | {"network.head": "unicoil"},
    "bm26e-paper": CROPS | FLOPS | {"network.head": "splade", "masked_lm.steps": 0},
    "splade-paper": SPLADE | {"network.base_model": BERT},
    "splade-bm26e-paper": SPLADE | {"network.base_model": "bm26e-paper"},
    # uniCOIL/README.md and README.md of the COIL repository
    "unicoil-paper": {
        "network.base_model": BERT, "network.head": "unicoil", "data.max_query_length": 16,
        "data.max_document_length": 192, "data.negatives_per_query": 8 - 1, "training.batch_size": 8,
        "training.warmup_share": 0.1, "training.learning_rate": 5e-6, "training.epochs": 5.0,
    },
    "coil-paper": {
        "network.token_dimensions": 32, "network.cls_dimensions": 768, "data.max_query_length": 16,
        "data.max_document_length": 128, "data.negatives_per_query": 8 - 1, "training.batch_size": 8,
        "training.warmup_share": 0.1, "training.learning_rate": 5e-6, "training.epochs": 5.0,
    },
    "dpr-paper": DPR,
    "dpr-multi-paper": DPR,
    "lambda-wiki-paper": spar("bm25", "sampled", 20.0),
    "lambda-nq-paper": spar("bm25", "none", 20.0),
    "lambda-paq-paper": spar("bm25", "none", 10.0),
    "lambda-msmarco-paper": spar("bm25(k1=0.82, b=0.68)", "all", 20.0),
    "lambda-msmarco-unicoil-paper": spar("unicoil", "all", 20.0),
    "repbert-paper": REPBERT,
    # README.md of the DeepCT repository; its optimiser is that of BERT's run_classifier.py
    "deepct-paper": {
        "network.base_model": BERT, "data.max_length": 128, "training.batch_size": 16, "training.epochs": 3.0,
        "training.learning_rate": 2e-5, "training.warmup_share": 0.1, "training.epsilon": 1e-6, "counts.scale": 100.0,
    },
    # README.md of the docTTTTTquery repository: 131,072 tokens a batch are 256 texts of 512
    "doct5query": {
        "network.base_model": "google-t5/t5-base", "data.max_input_length": 512, "data.max_target_length": 64,
        "training.batch_size": 131_072 // 512, "training.steps": 4000, "training.learning_rate": 1e-3,
        "training.warmup_steps": 0, "training.final_learning_rate_ratio": 1.0,
    },
    # Section 4 of the BEIR paper
    "sparta-paper": {"network.base_model": DISTILBERT, "network.head": "sparta"},
    "colbert-paper": {"network.base_model": BERT, "data.max_document_length": 300, "training.steps": 300_000},
    "genq-paper": {
        "data.queries_per_document": 5, "data.top_k": 25, "data.top_p": 0.95, "data.max_documents": 100_000,
        "network.base_model": "sentence-transformers/msmarco-distilbert-base-tas-b", "training.epochs": 1.0,
    },
    # commands/run_train.sh of the ANCE repository: four GPUs, eight queries each, two batches; 600k steps in BEIR
    "ance-paper": {
        "data.negatives_depth": 200, "data.max_document_length": 512, "training.learning_rate": 1e-6,
        "training.warmup_steps": 5000, "training.batch_size": 4 * 8 * 2, "training.steps": 600_000,
    },
    # the card of the checkpoint distilbert-dot-tas_b-b256-msmarco
    "tas-b-paper": {"network.base_model": DISTILBERT, "network.pooling": "cls", "training.batch_size": 256},
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_paper_recipe_has_what_its_paper_prints(name: str) -> None:
    settings, wanted = settings_of(name), PUBLISHED[name]
    assert {key: settings[key] for key in wanted} == wanted
    assert f"`{name}`" in (Path(__file__).parents[1] / "docs" / "paper-recipes.md").read_text()


def test_every_paper_recipe_is_compared() -> None:
    assert {name for name in training_recipe_names() if name.endswith("-paper")} <= set(PUBLISHED)


@pytest.mark.parametrize(
    "changes",
    [
        ["loss.uniform_cost=true"],
        ["network.weigh_query_terms=false"],
        ["vocabulary.scoring=bag", "vocabulary.k1_factor=false"],
        ["vocabulary.scoring=bag", "vocabulary.k1_factor=false", "loss.uniform_cost=true"],
    ],
)
def test_the_ablations_of_the_augmenter_are_settings(changes: list[str]) -> None:
    changed = settings_of("bm25-augmented-nq-paper") | {
        key.name: key.value
        for key in keys_of(load_training_recipe("bm25-augmented-nq-paper").with_changes(changes).settings)
    }
    usual = settings_of("bm25-augmented-nq-paper")
    assert sorted(key for key in usual if usual[key] != changed[key]) == sorted(c.partition("=")[0] for c in changes)


# The optimizer


def test_adamw_has_the_betas_and_epsilon_of_the_settings() -> None:
    settings = TrainingSettings(beta1=0.8, beta2=0.7, epsilon=1e-3, weight_decay=0.2)
    for group in adamw(small_network(), settings, torch.device("cpu")).param_groups:
        assert (group["betas"], group["eps"]) == ((0.8, 0.7), 1e-3)
    for wrong in ("beta1", "beta2", "dropout"):
        with pytest.raises(VizslaError, match=f"training.{wrong} must be 0 or more and below 1, not 1$"):
            replace(settings, **{wrong: 1.0})


def test_the_learning_rate_can_fall_beyond_the_last_step() -> None:
    settings = TrainingSettings(
        steps=100, decay_steps=210, warmup_steps=10, learning_rate=1.0, final_learning_rate_ratio=0.0
    )
    assert settings.learning_rate_at(110) == pytest.approx(0.5)
    assert replace(settings, decay_steps=0).learning_rate_at(100) == 0
    assert replace(settings, decay_steps=50).learning_rate_at(55) == pytest.approx(0.5)


def test_gradients_of_several_batches_are_averaged() -> None:
    """One step over two batches moves the parameters as their mean gradient does."""

    def gradients(accumulation: int, steps: int) -> list[torch.Tensor]:
        network, found = small_network(), []
        settings = replace(SMALL, accumulation=accumulation, steps=steps, learning_rate=1e-30, max_grad_norm=1e30)
        trainer = Trainer(network, small_pairs(), settings)
        keep = trainer.optimizer.step
        trainer.optimizer.step = lambda: (  # type: ignore[method-assign, assignment]
            found.append(torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])),
            keep(),
        )[1]
        trainer.run()
        return found

    first, second = gradients(1, 2)
    (both,) = gradients(2, 1)
    assert torch.allclose(both, (first + second) / 2, rtol=1e-6, atol=1e-12)
    assert not torch.allclose(both, first, rtol=1e-3)
    settings = TrainingSettings(epochs=3, batch_size=5, accumulation=2)
    assert settings.in_steps(43).steps == 12


# Dropout


def test_dropout_reaches_hidden_states_and_attention(start: Path) -> None:
    from vizsla.neural.chunks import packed

    ids = torch.arange(2000, 2012).view(2, 6)
    chunk = packed(ids, torch.ones_like(ids, dtype=torch.bool), 100).chunks[0]

    def vectors(network: Any, *, training: bool) -> torch.Tensor:
        torch.manual_seed(0)
        with torch.no_grad():
            made: torch.Tensor = network.train(training)(chunk)
            return made

    for tied in (True, False):
        network, _ = dense_network(DenseNetwork(str(start), tied_encoders=tied))
        plain = vectors(network, training=True)
        settings = replace(SMALL, dropout=0.1, compile=False)
        Trainer(network, small_pairs(), settings)
        assert {m.p for m in network.modules() if isinstance(m, torch.nn.Dropout)} == {0.1}
        assert torch.equal(vectors(network, training=False), plain)
        assert not torch.allclose(vectors(network, training=True), plain)
        for name, module in network.named_modules():  # attention alone
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.5 if name.endswith("attention.self.dropout") else 0.0
        assert not torch.allclose(vectors(network, training=True), plain)
        assert torch.equal(vectors(network, training=False), plain)


def test_a_frozen_companion_has_no_dropout(start: Path) -> None:
    network, _ = dense_network(DenseNetwork(str(start)))
    from vizsla.neural.heads.dense import WithFrozenCompanion

    companion = dense_network(DenseNetwork(str(start)))[0]
    both = WithFrozenCompanion(network, companion)  # type: ignore[arg-type]
    both.train()
    assert (both.trained.training, both.frozen.training) == (True, False)


# Negatives


def test_the_loss_over_own_negatives_is_that_of_each_group() -> None:
    scores = torch.from_numpy(np.random.default_rng(2).normal(size=(3, 9)))
    groups = [[scores[i, i], *scores[i, 3 + 2 * i : 5 + 2 * i]] for i in range(3)]
    wanted = torch.stack([torch.logsumexp(torch.stack(g), 0) - g[0] for g in groups]).mean()
    assert own_negatives_loss(scores).item() == pytest.approx(wanted.item())
    with pytest.raises(VizslaError, match=r"set data.negatives_per_query to 1"):
        own_negatives_loss(scores[:, :3])
    with pytest.raises(VizslaError, match=r"needs loss.name=contrastive and loss.symmetric=false"):
        ContrastiveLoss(in_batch_negatives=False)
    with pytest.raises(VizslaError, match=r"loss.mask_other_answers stays true"):
        ContrastiveLoss(name="margin", symmetric=False, mask_other_answers=False)


def data_set(folder: Path, answers: dict[str, list[str]] | None) -> BeirDataset:
    """Six documents about one word, of which some hold a colour."""
    (folder / "qrels").mkdir(parents=True)
    texts = ["a dog is red", "a dog is blue", "a dog is Red", "a dog is green", "a dog redder", "a dog"]
    lines = [json.dumps({"_id": str(i), "title": "red", "text": text}) for i, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    query: dict[str, Any] = {"_id": "q", "text": "dog", "metadata": {}}
    if answers is not None:
        query["metadata"]["answers"] = answers["q"]
    (folder / "queries.jsonl").write_text(json.dumps(query))
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq\t0\t1\n")
    return BeirDataset.open(folder)


def test_negatives_hold_no_answer(start: Path, tmp_path: Path) -> None:
    analyzer = base_encoder(str(start)).analyzer
    data = data_set(tmp_path / "some", {"q": ["red"]})
    found = {}
    for answerless in (False, True):
        (texts,) = judged_texts([data], analyzer, answerless=answerless)
        found[answerless] = set(texts.pairs.negatives[0].tolist())
    assert found == {False: {1, 2, 3, 4, 5}, True: {1, 3, 4, 5}}, "titles do not count"
    without = data_set(tmp_path / "none", None)
    with pytest.raises(VizslaError, match=r"data.answerless_negatives needs answers"):
        list(judged_texts([without], analyzer, answerless=True))


# Whole runs

RUN = ["training.batch_size=4", "training.tokens_per_chunk=512", "training.precision=float32",
       "training.warmup_steps=1", "training.eval_steps=2", "training.save_steps=2"]  # fmt: skip


def run_of(name: str, start: Path, *changes: str) -> Any:
    return load_training_recipe(name).with_changes([f"network.base_model={start}", *RUN, *changes])


def test_dpr_reads_what_the_trained_model_reads(start: Path, tmp_path: Path) -> None:
    """[SEP] is one token between title and text, in training and in the written model."""
    analyzer = base_encoder(str(start)).analyzer
    sep = analyzer.tokenizer.numbers["[SEP]"]
    documents = [{"id": d["id"], "title": f"title {i}", "text": d["text"]} for i, d in enumerate(documents_of(12))]
    folder = tmp_path / "set"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("\n".join(json.dumps({**d, "_id": d["id"]}) for d in documents))
    queries = [
        {"_id": f"q{i}", "text": " ".join(d["text"].split()[:4]), "metadata": {"answers": ["zebra"]}}
        for i, d in enumerate(documents)
    ]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    rows = [f"q{i}\t{d['id']}\t1" for i, d in enumerate(documents)]
    for split in ("train", "dev"):
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(rows))
    data = BeirDataset.open(folder)
    recipe = run_of("dpr-paper", start, "training.epochs=1", "data.max_query_length=32", "data.max_document_length=32")
    model, result = train(recipe, tmp_path / "dpr", TrainingInputs(datasets=[data], dev=[data]))
    assert result.step == 12 // 4
    assert isinstance(model, Dense)
    assert model.separator == " [SEP] "
    assert model.text_of(documents[0]).startswith("title 0 [SEP] ")
    kind = recipe.make()
    pairs = kind.open_data(tmp_path / "dpr" / "training").pairs
    read = pairs.documents[0].tolist()  # type: ignore[attr-defined]
    assert read.count(sep) == 1
    assert read == analyzer.tokenizer.ids([model.text_of(documents[0])])[0]
    again = parse_model(str(tmp_path / "dpr"))
    assert again.parts[0].component == model


@pytest.mark.parametrize(
    ("name", "steps", "changes"),
    [
        ("repbert-paper", 2, ["training.steps=2", "training.decay_steps=9"]),
        ("splade-paper", 4, ["training.epochs=0.5", "data.negatives_per_query=2"]),
        ("unicoil-paper", 4, ["training.epochs=0.5", "data.fields=title/text"]),
        ("ance-paper", 2, ["training.steps=2", "data.refresh_steps=1"]),
    ],
)
def test_paper_recipes_train(
    start: Path, judged: Path, tmp_path: Path, name: str, steps: int, changes: list[str]
) -> None:
    """Half an epoch is four batches of 4 of 30 queries."""
    recipe = run_of(name, start, "data.max_query_length=16", "data.max_document_length=32", *changes)
    model, result = train(recipe, tmp_path / name, TrainingInputs(datasets=[BeirDataset.open(judged)]))
    assert model is not None
    assert all(np.isfinite(line["loss"]) for line in result.log)
    assert result.step == steps


def test_augmenters_count_epochs(start: Path, judged: Path, tmp_path: Path) -> None:
    data = BeirDataset.open(judged)
    recipe = run_of("bm25-augmented-msmarco-paper", start, "training.epochs=0.5")
    _, result = train(recipe, tmp_path / "a", TrainingInputs(datasets=[data], dev=[data]))
    assert result.step == round(0.5 * (30 // 4))


# Queries of a Lambda


def test_all_sentences_some_or_none() -> None:
    from test_towers import documents

    those = documents(4)
    sentences = [sentence + "." for d in those for sentence in d.content["text"].rstrip(".").split(". ")]
    assert sorted(drawn_queries(those, ImitationSource(sentences="all"))) == sorted(sentences)
    assert len(list(drawn_queries(those, ImitationSource()))) == 10
    assert list(drawn_queries(those, ImitationSource(sentences="none"))) == []
    with pytest.raises(VizslaError, match=r"unknown data.sentences 'few'"):
        ImitationSource(sentences="few")
    with pytest.raises(VizslaError, match=r"data.sentences=none draws none"):
        ImitationSource(sentences="none", short_queries=0.5)


def test_questions_are_those_of_files_of_data_sets_and_of_splits(judged: Path, tmp_path: Path) -> None:
    file = tmp_path / "paq.jsonl"
    file.write_text('{"question": "who was it", "answer": ["him"]}\n{"question": "when was it", "answer": ["then"]}\n')
    assert list(read_questions(ImitationSource(questions=str(file)))) == ["who was it", "when was it"]
    for name, count in ((str(judged), 40), (f"{judged}:train", 30), (f"{judged}:dev,{file}", 5 + 2)):
        assert len(read_questions(ImitationSource(questions=name))) == count
    assert len(read_questions(ImitationSource(questions=str(judged), max_questions=7))) == 7
    with pytest.raises(VizslaError, match="unknown split 'no'"):
        read_questions(ImitationSource(questions=f"{judged}:no"))


def test_questions_alone_train_a_lambda(start: Path, judged: Path, tmp_path: Path, cli: Cli) -> None:
    code, _, said = cli("train", "lambda-nq-paper", "--corpus", judged / "corpus.jsonl", "-o", tmp_path / "no")
    assert code == 2
    assert "lambda-nq-paper learns from questions; name them, as in --set data.questions=train.jsonl" in said
    assert not (tmp_path / "no").exists()
    small = ["data.depth=5", "data.top_positives=2", "data.bottom_negatives=2", "data.max_query_length=16",
             "data.max_document_length=32", "training.epochs=1", f"data.questions={judged}:train",
             f"data.dev_questions={judged}:dev"]  # fmt: skip
    documents = BeirDataset.open(judged).documents()
    recipe = run_of("lambda-nq-paper", start, *small)
    model, result = train(recipe, tmp_path / "lambda", TrainingInputs(corpus=documents))
    assert isinstance(model, Dense)
    assert "set-dev MRR" in result.figures
    pairs: Any = recipe.make().open_data(tmp_path / "lambda" / "training").pairs
    assert 0 < len(pairs.queries) <= 30, "no sentence of a document"
    assert result.step == len(pairs) // 4
