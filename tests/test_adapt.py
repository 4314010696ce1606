"""vizsla adapt: generated queries as training pairs, with and without hard negatives and a teacher."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import Cli
from small import documents_of, small_dense
from vizsla import BM25, Analyzer, Dense, Document, LearnedSparse, Reranker, VizslaError, parse_model
from vizsla.errors import InputError
from vizsla.models import generator as generators
from vizsla.training import (
    MinedPairs,
    ScoredPairs,
    TokenCorpus,
    TrainingSettings,
    adaptation_recipe,
    load_training_recipe,
)
from vizsla.training.loop.objectives import contrastive_loss, margin_mse_loss
from vizsla.training.sources import generated
from vizsla.training.sources.generated import GeneratedSource, generated_pairs
from vizsla.training.sources.teacher import open_teacher, teacher_scores

CPU = torch.device("cpu")
UNUSED = Path("/no/such/folder")  # where nothing is generated
SMALL = ("training.batch_size=16", "training.precision=float32", "training.tokens_per_chunk=2000",
         "training.save_steps=2", "training.eval_steps=2")  # fmt: skip


class FirstWords(generators.TextGenerator):
    """Writes stretches of a document, as a generator of queries would."""

    task, name, digest, length = "query", "first words", "0", 1000

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], generators.Sampling]] = []

    def generate(self, texts, sampling=None, keys=None):  # type: ignore[no-untyped-def]
        assert sampling is not None
        self.calls.append((list(keys), sampling))
        return [[" ".join(text.split()[i : i + 3]) for i in range(sampling.texts)] for text in texts]

    def token_counts(self, texts):  # type: ignore[no-untyped-def]
        return np.array([len(text.split()) for text in texts])


def documents(queries: bool = True, count: int = 40) -> list[Document]:
    made = []
    for d in documents_of(count):
        words = d["text"].split()
        more = {"queries": [" ".join(words[i : i + 4]) for i in (2, 8, 8, 14)]} if queries else {}
        made.append(Document(d["id"], {"text": d["text"], **more}))
    return made


@pytest.fixture(scope="module")
def expanded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("expanded") / "documents.jsonl"
    file.write_text("".join(json.dumps({"_id": d.id, **d.content}) + "\n" for d in documents()))
    return file


@pytest.fixture(scope="module")
def dense_start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dense")
    small_dense(folder / "network").save(folder / "model")
    return folder / "model"


def changed(*settings: str) -> list[str]:
    return [part for setting in (*SMALL, *settings) for part in ("--set", setting)]


# Pairs


def test_groups_of_one_have_the_other_documents_of_the_batch_as_negatives() -> None:
    texts = TokenCorpus.pack([[5, 6, 7]] * 6)
    positives = TokenCorpus.of([np.array([0]), np.array([1]), np.array([0]), np.array([], np.int64)])
    none = TokenCorpus.of([np.zeros(0, np.int64)] * 4)
    pairs = MinedPairs(TokenCorpus.pack([[1], [2], [3], [4]]), texts, positives, none, negatives_per_query=0)
    assert len(pairs) == 3
    batch = pairs.batch(3, 0, 0, CPU)
    assert len(batch.texts) == 2
    queries, drawn, negatives = pairs.draw(3, 0, 0)
    assert sorted(queries.tolist()) == [0, 1, 2]
    assert negatives.tolist() == []
    assert batch.false_negatives is not None  # two queries have the same document, which is no negative of either
    assert batch.false_negatives.tolist() == [[i != j and drawn[i] == drawn[j] for j in range(3)] for i in range(3)]
    loss = contrastive_loss(torch.zeros(3, 3), symmetric=False, false_negatives=batch.false_negatives)
    assert loss.item() == pytest.approx((2 * np.log(2) + np.log(3)) / 3)
    with pytest.raises(VizslaError, match="a batch of 4 needs as many queries with positives, and there are 3"):
        pairs.draw(4, 0, 0)
    with pytest.raises(VizslaError, match="negatives_per_query must be 0 or more"):
        MinedPairs(texts, texts, positives, none, negatives_per_query=-1)
    assert len(MinedPairs(texts, texts, positives, none)) == 0


def test_margin_mse_is_that_of_a_hand_computation() -> None:
    rng = np.random.default_rng(3)
    scores, margins = rng.normal(size=(3, 9)), rng.normal(size=(3, 2))
    expected = [(scores[i, i] - scores[i, 3 + 2 * i + j] - margins[i, j]) ** 2 for i in range(3) for j in range(2)]
    loss = margin_mse_loss(torch.from_numpy(scores), torch.from_numpy(margins))
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-12)


def test_a_batch_has_the_margins_of_the_documents_that_were_drawn() -> None:
    texts = TokenCorpus.pack([[9]] * 8)
    positives = TokenCorpus.of([np.array([0, 4]), np.array([1])])
    negatives = TokenCorpus.of([np.array([2, 3, 5]), np.array([6, 7])])
    pairs = MinedPairs(TokenCorpus.pack([[1], [2]]), texts, positives, negatives, negatives_per_query=2)
    by_pair = {
        (0, 0): 10.0,
        (0, 4): 20.0,
        (1, 1): 30.0,
        (0, 2): 1.0,
        (0, 3): 2.0,
        (0, 5): 3.0,
        (1, 6): 4.0,
        (1, 7): 5.0,
    }
    positive = np.array([10.0, 20.0, 30.0])
    scored = ScoredPairs(pairs, positive, np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    for step in range(4):
        queries, own, others = pairs.draw(2, 0, step)
        found = scored.batch(2, 0, step, CPU).extra.pairs
        expected = [[by_pair[q, p] - by_pair[q, n] for n in row] for q, p, row in
                    zip(queries.tolist(), own.tolist(), others.reshape(2, 2).tolist(), strict=True)]  # fmt: skip
        assert found.tolist() == expected
    with pytest.raises(VizslaError, match="do not fit the pairs"):
        ScoredPairs(pairs, positive, positive)


def test_epochs_and_shares_become_steps() -> None:
    settings = TrainingSettings(epochs=2, warmup_share=0.1, batch_size=10)
    assert (settings.in_steps(105).steps, settings.in_steps(105).warmup_steps) == (20, 2)
    assert settings.in_steps(3).steps == 1
    assert TrainingSettings(steps=7).in_steps(1000).steps == 7
    with pytest.raises(VizslaError, match="warmup_share must be at most 1"):
        TrainingSettings(warmup_share=2)


# Generated queries


def test_queries_are_paired_with_their_documents_once_each() -> None:
    pairs = generated_pairs(documents(), Analyzer.parse("wordpiece"), GeneratedSource(queries_per_document=2), UNUSED)
    assert isinstance(pairs, MinedPairs)
    assert len(pairs) == 80  # three different ones of four, and two are taken
    assert all(pairs.positives[2 * i][0] == pairs.positives[2 * i + 1][0] == i for i in range(40))
    same = [Document(str(i), {"text": f"text {i}", "queries": ["what is it", f"text {i}"]}) for i in range(3)]
    pairs = generated_pairs(same, Analyzer.parse("wordpiece"), GeneratedSource(), UNUSED)
    assert isinstance(pairs, MinedPairs)
    assert [pairs.positives[i].tolist() for i in range(6)] == [[0, 1, 2], [0], [1, 0, 2], [1], [2, 0, 1], [2]]
    few = generated_pairs(documents(), Analyzer.parse("wordpiece"), GeneratedSource(max_documents=7), UNUSED)
    assert isinstance(few, MinedPairs)
    assert (len(few), len(few.documents)) == (21, 7)


def test_a_generator_writes_what_documents_lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = FirstWords()
    monkeypatch.setattr(generated, "open_generator", lambda _: generator)
    settings = GeneratedSource(generator="somewhere", seed=3)
    mixed = [*documents(queries=False, count=100)[:90], *documents(count=100)[90:]]
    for _ in range(2):  # what was generated before is not generated again
        pairs = generated_pairs(mixed, Analyzer.parse("wordpiece"), settings, tmp_path)
        assert isinstance(pairs, MinedPairs)
        assert len(pairs) == 90 * 5 + 10 * 3
        assert [keys for keys, _ in generator.calls] == [[str(i) for i in range(64)], [str(i) for i in range(64, 90)]]
    assert generator.calls[0][1] == generators.Sampling(texts=5, top_k=25, top_p=0.95, seed=3)


@pytest.mark.slow
def test_negatives_are_what_a_model_finds_and_no_positives() -> None:
    settings = GeneratedSource(negatives_per_query=1, negatives_depth=6, max_documents=10)
    pairs = generated_pairs(documents(), Analyzer.parse("wordpiece"), settings, UNUSED)
    assert isinstance(pairs, MinedPairs)
    assert len(pairs.documents) == 40
    for query in range(len(pairs.queries)):
        assert not set(pairs.negatives[query].tolist()) & set(pairs.positives[query].tolist())
        assert 5 <= len(pairs.negatives[query]) <= 6


def test_queries_that_do_not_find_their_document_can_be_dropped() -> None:
    wrong = [Document(d.id, {**d.content, "queries": ["zebra stripes", *d.content["queries"]]}) for d in documents()]
    pairs = generated_pairs(
        wrong, Analyzer.parse("wordpiece"), GeneratedSource(max_own_rank=1, queries_per_document=2), UNUSED
    )
    assert isinstance(pairs, MinedPairs)
    zebra = Analyzer.parse("wordpiece").tokenizer.numbers["zebra"]  # type: ignore[attr-defined]
    assert zebra not in pairs.queries.ids
    assert 0 < len(pairs) <= 80
    assert max(np.bincount(pairs.positives.ids)) <= 2
    nothing = [Document(d.id, {**d.content, "queries": ["zebra"]}) for d in documents()]
    with pytest.raises(VizslaError, match="no generated query to learn from"):
        generated_pairs(nothing, Analyzer.parse("wordpiece"), GeneratedSource(max_own_rank=1), UNUSED)


def test_a_model_that_teaches_gives_the_scores_of_its_search(dense_start: Path) -> None:
    some, queries = documents(), ["dog bark night", "quark field", "zebra"]
    teacher = open_teacher(f"bm25 + 0.5 * {dense_start}")
    pairs = np.array([[0, 1], [2, 0], [1, 5], [0, 39], [2, 7]])
    found = teacher_scores(teacher, some, queries, *pairs.T)
    contents = [d.content for d in some]
    statistics = teacher.statistics(contents)  # type: ignore[union-attr]
    lexical, dense = BM25(), parse_model(str(dense_start))
    expected = sum(
        weight * model.encode_queries(queries, statistics).dot(model.encode_documents(contents, statistics))
        for weight, model in ((1.0, lexical), (0.5, dense))
    )
    assert found == pytest.approx(expected[pairs[:, 0], pairs[:, 1]], abs=1e-4)


def test_a_cross_encoder_teaches(trained: Path, tmp_path: Path) -> None:
    teacher = open_teacher(str(trained))
    assert isinstance(teacher, Reranker)
    settings = GeneratedSource(
        negatives_per_query=1, negatives_depth=3, teacher=str(trained), queries_per_document=1, teacher_scale=2.0
    )
    some = documents(count=12)
    pairs = generated_pairs(some, Analyzer.parse("wordpiece"), settings, tmp_path)
    assert isinstance(pairs, ScoredPairs)
    text, query = some[4].content["text"], some[4].content["queries"][0]
    assert pairs.positive_scores[4] == pytest.approx(2 * teacher.scores(query, [text])[0], rel=1e-3)
    free = generated_pairs(
        some, Analyzer.parse("wordpiece"), GeneratedSource(**{**vars(settings), "teacher_scale": 0.0}), tmp_path
    )
    assert isinstance(free, ScoredPairs)
    margins = np.repeat(free.positive_scores, np.diff(free.pairs.negatives.offsets)) - free.negative_scores
    assert np.mean(margins**2) == pytest.approx(1.0, rel=1e-3)


# The verb


def test_adapt_goes_from_documents_to_a_model(
    cli: Cli, expanded: Path, judged: Path, dense_start: Path, tmp_path: Path
) -> None:
    out = tmp_path / "m"
    code, _, said = cli("adapt", expanded, "--model", dense_start, "-o", out, "--dev", judged, *changed())
    assert code == 0, said
    assert "step     7" in said  # one epoch: 40 documents with three queries each, 16 in a batch
    assert "Best at step" in said
    model = parse_model(str(out))
    assert isinstance(model, Dense)
    start = parse_model(str(dense_start))
    assert isinstance(start, Dense)
    assert (model.name, model.normalize, model.length) == ("model-genq", False, start.network.length)
    code, _, said = cli("index", expanded, "-o", tmp_path / "i", "--model", out)
    assert code == 0, said
    assert cli("search", tmp_path / "i", "dog bark")[0] == 0


def test_adapt_knows_sparse_models_and_teachers(cli: Cli, expanded: Path, start: Path, tmp_path: Path) -> None:
    options = changed("training.learning_rate=1e-4")
    code, _, said = cli("adapt", expanded, "--model", start, "-o", tmp_path / "gpl", "--teacher", "bm25", *options)
    assert code == 0, said
    losses = [
        json.loads(line)["loss"] for line in (tmp_path / "gpl" / "training" / "log.jsonl").read_text().splitlines()
    ]
    assert losses[-1] < losses[0]
    model = parse_model(str(tmp_path / "gpl"))
    assert isinstance(model, LearnedSparse)
    assert (model.name, model.network.kind) == ("model-gpl", "unicoil")


@pytest.mark.slow
def test_a_stopped_adaptation_goes_on(
    cli: Cli, expanded: Path, dense_start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vizsla.cli import train as verb

    begun = ("adapt", expanded, "--model", dense_start, *changed("data.negatives_per_query=1"))
    assert cli(*begun, "-o", tmp_path / "whole")[0] == 0

    def stop(line: dict[str, object]) -> None:
        if line["step"] == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(verb, "show_line", stop)
        assert cli(*begun, "-o", tmp_path / "half")[0] == 130
    code, _, said = cli("adapt", "-o", tmp_path / "half", "--resume", "--set", "training.epochs=3")
    assert (code, "the run began with training.epochs 1.0, not 3.0" in said) == (2, True), said
    code, _, said = cli("adapt", "-o", tmp_path / "half", "--resume")
    assert code == 0, said
    networks = [parse_model(str(tmp_path / name)).parts[0].component.network for name in ("whole", "half")]
    assert networks[0] == networks[1]


def test_bad_input_to_adapt_is_one_sentence(
    cli: Cli, expanded: Path, dense_start: Path, judged: Path, tmp_path: Path
) -> None:
    out, model = ("-o", tmp_path / "m"), ("--model", dense_start)
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text('{"_id": "1", "text": "dogs", "queries": "what barks"}\n')
    for arguments, expected in (
        (
            (judged / "corpus.jsonl", *out, *model),
            "vizsla queries generate or name a generator with --generator",
        ),
        ((judged / "corpus.jsonl", *out, *model, "--generator", "/no/such"), "/no/such: this folder does not exist"),
        ((wrong, *out, *model), f"{wrong}:1: the field 'queries' of the document '1' is not a list, but the text"),
        (
            (expanded, *out, "--model", "bm25"),
            "bm25 cannot be adapted; name minilm, bm26, the folder of a saved model",
        ),
        ((expanded, *out, "--model", "/no/such"), "/no/such: this folder does not exist"),
        ((expanded, *model), "name a folder for the model"),
        ((*out, *model), "name the documents to adapt to"),
        ((expanded, *out, *model, "--set", "loss.name=margin-mse"), "set both or neither"),
        ((expanded, *out, *model, "--set", "data.teacher=bm25"), "set data.negatives_per_query=1"),
        ((expanded, *out, *model, "--set", "training.batch_size=999"), "a batch of 999 needs as many queries"),
        ((expanded, *out, *model, "--teacher", "nonsense"), "unknown model 'nonsense'"),
    ):
        code, _, said = cli("adapt", *arguments)
        assert (code, expected in said, "Traceback" in said) == (2, True, False), said


def test_epochs_need_pairs_that_can_be_counted(cli: Cli, start: Path, judged: Path, tmp_path: Path) -> None:
    code, _, said = cli(
        "train", "bm26", "--corpus", judged / "corpus.jsonl", "-o", tmp_path / "m", "--set", "training.epochs=1",
        "--set", f"network.base_model={start}", "--set", "training.batch_size=16",
    )  # fmt: skip
    assert (code, "set training.steps instead" in said) == (2, True), said


def test_an_encoder_is_adapted_with_its_own_pooling(tmp_path: Path) -> None:
    from tiny_checkpoints import bert_config, made_encoder, save_bert_tokenizer, save_modules

    folder = tmp_path / "encoder"
    made_encoder(bert_config()).save_pretrained(folder)
    save_bert_tokenizer(folder)
    save_modules(folder, ("1_Pooling", "Pooling", {"pooling_mode_cls_token": True}))
    network = adaptation_recipe(str(folder)).settings.network
    assert (network.base_model, network.pooling, network.normalize) == (str(folder), "cls", False)
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "query: "}}))
    with pytest.raises(InputError, match="needs a prompt before texts"):
        adaptation_recipe(str(folder))


def test_judged_queries_need_no_mined_negative(judged: Path, tmp_path: Path) -> None:
    from vizsla import BeirDataset
    from vizsla.training import TrainingInputs

    recipe = load_training_recipe("dpr").with_changes(["data.negatives_per_query=0"])
    inputs = TrainingInputs(datasets=[BeirDataset.open(judged)])
    recipe.settings.data.prepare(inputs, Analyzer.parse("wordpiece"), tmp_path)
    assert len(recipe.settings.data.open_pairs(tmp_path).batch(8, 0, 0, CPU).texts) == 2
