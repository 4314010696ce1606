"""vizsla train: from documents to a saved model, in a few steps of a small network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers

import vizsla
from conftest import Cli
from small import VOCABULARY, documents_of
from vizsla import Index, LearnedSparse, parse_model
from vizsla.index import verify

SETTINGS = ("training.batch_size=16", "training.steps=4", "training.warmup_steps=1", "training.save_steps=2",
            "training.precision=float32", "training.tokens_per_chunk=200", "data.window=40")  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("corpus") / "documents.jsonl"
    lines = [json.dumps({"_id": d["id"], "text": d["text"]}) for d in documents_of(40)]
    file.write_text("\n".join([*lines, json.dumps({"_id": "short", "text": "dog"})]) + "\n")
    return file


def trained(cli: Cli, corpus: Path, start: Path, output: Path, *more: str) -> str:
    changes = [part for setting in (f"network.base_model={start}", *SETTINGS) for part in ("--set", setting)]
    code, _, said = cli("train", "bm26", "--corpus", corpus, "-o", output, *changes, *more)
    assert code == 0, said
    return said


def test_train_makes_a_model_to_index_with(cli: Cli, corpus: Path, start: Path, tmp_path: Path) -> None:
    told = trained(cli, corpus, start, tmp_path / "m")
    assert "step     4" in told
    assert "4 steps in" in told
    assert cli("index", corpus, "-o", tmp_path / "i", "--model", f"bm51(network={tmp_path / 'm'})")[0] == 0
    with Index.open(tmp_path / "i") as index:
        assert index.model.namespaces == ("words", "bm26")
        assert index.search("dog bark")
    code, _, said = cli("train", "bm26", "--corpus", corpus, "-o", tmp_path / "m")
    assert (code, "there is a model here already" in said) == (2, True)


@pytest.mark.parametrize("recipe", ["unicoil", "splade", "splade-doc", "sparta"])
def test_training_on_judged_queries(cli: Cli, judged: Path, start: Path, tmp_path: Path, recipe: str) -> None:
    changes = (f"network.base_model={start}", "training.batch_size=8", "training.steps=2", "training.warmup_steps=1",
               "data.negatives_per_query=2", "training.precision=float32", "masked_lm.active_terms=20",
               "masked_lm.steps=2", "masked_lm.batch_size=16", "masked_lm.precision=float32")  # fmt: skip
    options = [part for c in changes[: -4 if recipe == "unicoil" else None] for part in ("--set", c)]
    code, _, said = cli("train", recipe, "--dataset", judged, "--dev", judged, "-o", tmp_path / "m", *options)
    assert code == 0, said
    assert "Best at step 2" in said
    assert ("masked     2" in said) == (recipe != "unicoil")
    model = parse_model(str(tmp_path / "m"))
    assert isinstance(model, LearnedSparse)
    assert model.inference_free == (recipe in ("splade-doc", "sparta"))
    assert model.network.kind == recipe.removesuffix("-doc")
    with Index.create(tmp_path / "i", model) as index:
        index.add(documents_of(5))
        index.commit()
        assert verify(index.path) == []
    code, _, said = cli("train", recipe, "--corpus", judged / "corpus.jsonl", "-o", tmp_path / "n", *options)
    assert (code, "name a data set with --dataset" in said) == (2, True)


def test_a_query_without_a_network(cli: Cli, judged: Path, start: Path, tmp_path: Path) -> None:
    """The weights of a query are learnt, saved and searched with; no network reads it."""
    import torch

    from vizsla.neural.chunks import packed
    from vizsla.neural.heads.splade import SpladeDoc
    from vizsla.training.networks import base_sparse_network

    network = base_sparse_network(str(start), "splade-doc").network
    assert isinstance(network, SpladeDoc)
    ids = torch.tensor([[101, 3899, 3899, 4937, 102], [101, 4937, 102, 0, 0]])
    batch = packed(ids, ids > 0, 100, side=0)
    rows = network.vectors([network(chunk) for chunk in batch.chunks], batch)
    assert rows.nonzero().tolist() == [[0, 3899], [0, 4937], [1, 4937]]
    assert rows.max() == 1
    rows.sum().backward()  # each piece of a query counts once
    assert network.query_changes.grad[3899] == network.query_changes.grad[4937] / 2 > 0
    changes = (f"network.base_model={start}", "training.batch_size=8", "training.steps=4", "training.warmup_steps=1",
               "data.negatives_per_query=2", "training.precision=float32", "training.learning_rate=0.001",
               "masked_lm.steps=0")  # fmt: skip
    options = [part for change in changes for part in ("--set", change)]
    assert cli("train", "splade-doc", "--dataset", judged, "-o", tmp_path / "m", *options)[0] == 0
    model = parse_model(str(tmp_path / "m"))
    assert isinstance(model, LearnedSparse)
    (terms,) = model.query_terms(["the dog, the dog"])
    assert terms.keys() == {"the", "dog", ","}
    assert len(set(terms.values())) > 1  # learnt
    again = base_sparse_network(str(tmp_path / "m"), "splade-doc")
    assert not again.new_head
    assert again.network.query_weights[3899].item() == pytest.approx(terms["dog"], rel=1e-5)


def test_training_starts_from_an_encoder_of_transformers(tmp_path: Path, corpus: Path, cli: Cli) -> None:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    folder = tmp_path / "encoder"
    transformers.BertModel(config).save_pretrained(folder)
    arguments = ("train", "bm26-fresh", "--corpus", corpus)
    small = [part for s in (f"network.base_model={folder}", *SETTINGS) for part in ("--set", s)]
    code, _, said = cli(*arguments, "-o", tmp_path / "m", *small)
    assert (code, "tokenizer" in said) == (2, True)
    pieces = json.loads((Path(vizsla.__file__).parent / "text" / "data" / "bert-uncased.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(pieces))
    code, _, said = cli(*arguments, "-o", tmp_path / "m", *small)
    assert code == 0, said
    pieces["added_tokens"].append({**pieces["added_tokens"][0], "id": VOCABULARY, "content": "[MORE]"})
    (folder / "tokenizer.json").write_text(json.dumps(pieces))
    code, _, said = cli(*arguments, "-o", tmp_path / "n", *small)
    assert (code, "knows 30,522 word pieces and its tokenizer gives 30,523" in said) == (2, True), said


def test_a_stopped_run_goes_on_with_what_it_was_started_with(
    cli: Cli, judged: Path, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command needs nothing but the folder; the model is that of a run that was never stopped."""
    from vizsla.cli import train as verb

    documents, show = judged / "corpus.jsonl", verb.show_line
    trained(cli, documents, start, tmp_path / "whole", "--dev", str(judged), "--set", "training.eval_steps=1")

    def stop(line: dict[str, object]) -> None:
        if line["step"] == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(verb, "show_line", stop)
    changes = [p for s in (f"network.base_model={start}", *SETTINGS, "training.eval_steps=1") for p in ("--set", s)]
    begun = ("train", "bm26", "--corpus", documents, "-o", tmp_path / "half", *changes, "--dev", judged)
    assert cli(*begun)[0] == 130
    monkeypatch.setattr(verb, "show_line", show)
    code, _, said = cli(*begun)
    assert (code, "a run was stopped here; continue it with --resume" in said) == (2, True), said
    code, _, said = cli("train", "bm26", "-o", tmp_path / "half", "--resume", "--set", "training.learning_rate=1")
    assert (code, "the run began with training.learning_rate 5e-05, not 1.0" in said) == (2, True), said
    code, _, said = cli("train", "bm26", "-o", tmp_path / "half", "--resume")
    assert code == 0, said
    networks = [parse_model(str(tmp_path / name)).parts[0].component.network for name in ("whole", "half")]
    assert networks[0] == networks[1]
    code, _, said = cli("train", "bm26", "-o", tmp_path / "half", "--resume")  # there is nothing left to do
    assert code == 0, said


def test_bad_input_to_training_is_one_sentence(cli: Cli, corpus: Path, start: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"_id": "1", "text": ""}\n')
    documents, out, at = ("--corpus", corpus), ("-o", tmp_path / "m"), ("--set", f"network.base_model={start}")
    for arguments, expected in (
        (("bm26", *documents, *out, *at), "a batch of 2,048 needs as many documents, and the corpus has 40"),
        (("bm26", "-o", tmp_path / "x", *at, "--resume"), "there is no run to resume here"),
        (("bm26", *out, *at, "--resume"), "no checkpoint to resume from"),
        (("bm26", *out), "name the documents"),
        (("bm26", *documents), "name a folder"),
        (("bm26", *documents, *out, "--set", "training.batch_size=x"), "not a whole number"),
        (("bm26", *documents, *out, "--set", "training.bach_size=1"), "did you mean 'training.batch_size'"),
        (
            ("bm26", *documents, *out, "--set", "batch_size=1"),
            "masked_lm.batch_size or training.batch_size?",
        ),
        (("bm26", *documents, *out, "--set", "data.negatives=x"), "setting of learned-sparse recipes"),
        (("bm26", *documents, *out, "--set", "data.source=cats"), "known: crops, judged"),
        (("bm26", *documents, *out, "--set", "training.save_steps=0"), "training.save_steps must be more than 0"),
        (("bm27", *documents, *out), "training recipe"),
        (("bm26", "--corpus", empty, "-o", tmp_path / "n", *at), "no document with 20 tokens"),
        (
            ("bm26", *documents, "-o", tmp_path / "n", "--set", f"network.base_model={tmp_path}"),
            "there is no encoder here",
        ),
    ):
        code, printed, said = cli("train", *arguments)
        assert (code, printed) == (2, ""), arguments
        assert expected in said, said


def test_the_speed_of_training_is_never_zero(capsys: pytest.CaptureFixture[str]) -> None:
    from vizsla.cli.train import show_line, speed_text

    assert [speed_text(tokens) for tokens in (0.42, 312.4, 999.9, 1000, 48_700, 312_000)] == [
        "0.4 tokens/s", "312 tokens/s", "1000 tokens/s", "1.0 k tokens/s", "48.7 k tokens/s", "312 k tokens/s",
    ]  # fmt: skip
    assert speed_text(48_700, 0.34) == "48.7 k tokens/s  0.3 TFLOP/s"
    show_line({"step": 1, "loss": 0.5, "tokens_per_second": 312.4, "tflops": 0.004, "nDCG@10": 0.25})
    assert capsys.readouterr().err.strip() == "step     1  loss 0.500  312 tokens/s  nDCG@10 0.2500"
    show_line({"step": 1, "masked_loss": 0.5, "tokens_per_second": 312.4})
    assert capsys.readouterr().err.strip() == "masked     1  loss 0.500  312 tokens/s"
