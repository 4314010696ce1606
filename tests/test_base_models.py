"""What training starts from: BERT and DistilBERT, by every name and for every kind; all else is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from conftest import Cli
from small import VOCABULARY
from tiny_checkpoints import KINDS, bert_config, made_encoder, save_bert_tokenizer, save_pieces
from vizsla import Analyzer, parse_model
from vizsla.errors import InputError
from vizsla.neural.chunks import packed
from vizsla.training import load_training_recipe, training_recipe_names
from vizsla.training.networks import Base, base_encoder

FROM_DOCUMENTS = ("bm26", "bm26e", "lambda")
OF_EACH_KIND = ("bm25-augmented", "repbert", "cross-encoder", "deepct", "colbert", "coil", *FROM_DOCUMENTS)


def load(recipe: str, base_model: Path, *changes: str) -> Base:
    told = [f"network.base_model={base_model}", *changes]
    return load_training_recipe(recipe).with_changes(told).make().load_base()


def test_each_kind_is_tested() -> None:
    kinds = {load_training_recipe(name).kind for name in training_recipe_names()} - {"generator"}  # starts from others
    assert {load_training_recipe(name).kind for name in OF_EACH_KIND} == kinds


def test_what_is_neither_bert_nor_distilbert_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """As a folder of transformers, and as a saved model over such an encoder."""
    sentences = {}
    for kind in ("t5", "roberta", "electra", "modernbert", "albert", "mpnet", "xlm-roberta"):
        KINDS[kind]().save_pretrained(tmp_path / kind)
        save_bert_tokenizer(tmp_path / kind)
        sentences[tmp_path / kind] = f"{kind}: only BERT and DistilBERT can be trained, and this is {kind}"
    made_encoder(KINDS["roberta"]()).save_pretrained(tmp_path / "r")
    save_pieces(tmp_path / "r")
    parse_model(f"dense(checkpoint={tmp_path / 'r'})").save(tmp_path / "saved")
    sentences[tmp_path / "saved"] = "only BERT and DistilBERT can be trained, and this is another"
    for folder, sentence in sentences.items():
        for recipe in OF_EACH_KIND:
            with pytest.raises(InputError, match=f"{sentence}$"):
                load(recipe, folder)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("hidden_act", "relu", "only plain encoders, with hidden_act gelu, can be trained, and this bert has relu"),
        ("is_decoder", True, "only plain encoders, with is_decoder False, can be trained, and this bert has True"),
        ("layer_norm_eps", 1e-5, "with layer_norm_eps 1e-12, can be trained, and this bert has 1e-05"),
        ("auto_map", {"AutoModel": "own.py"}, "only plain encoders can be trained, and this bert brings its own code"),
        ("hidden_size", 18, "these weights do not fit config.json"),
        ("num_hidden_layers", 3, "these weights do not fit config.json"),
        ("num_attention_heads", 3, r"config.json does not describe a BERT \(The hidden size"),
        ("hidden_size", None, "config.json does not describe a BERT"),
    ],
)
def test_a_bert_that_is_not_plain_is_refused_in_a_sentence(
    name: str, value: Any, sentence: str, tmp_path: Path
) -> None:
    made_encoder(bert_config()).save_pretrained(tmp_path)
    save_bert_tokenizer(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, name: value}))
    with pytest.raises(InputError, match=sentence):
        load("bm26-fresh", tmp_path)


def test_token_types_that_are_not_there_are_refused(tmp_path: Path) -> None:
    made_encoder(bert_config(type_vocab_size=1)).save_pretrained(tmp_path)
    save_bert_tokenizer(tmp_path)
    load("repbert", tmp_path, "network.use_token_types=false")
    with pytest.raises(InputError, match=r"network.use_token_types needs a BERT with two token types$"):
        load("repbert", tmp_path, "network.use_token_types=true")


def save_distilbert(folder: Path) -> Any:
    """A tiny DistilBERT with BERT's own word pieces."""
    torch.manual_seed(1)
    tiny = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 64}
    config = transformers.DistilBertConfig(vocab_size=VOCABULARY, **tiny)
    model = transformers.DistilBertForMaskedLM(config).eval()  # its arrays have a prefix
    for parameter in model.distilbert.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(Analyzer.parse("wordpiece").tokenizer.content)  # type: ignore[attr-defined]
    return model.distilbert


def test_a_distilbert_has_the_states_of_transformers(tmp_path: Path) -> None:
    model = save_distilbert(tmp_path)
    encoder = base_encoder(str(tmp_path)).network
    ids = torch.randint(200, 3000, (3, 20))
    mask = torch.arange(20) < torch.tensor([20, 11, 3])[:, None]
    with torch.no_grad():
        wanted = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        batch = packed(ids, mask, 1000)
        states = torch.cat([encoder(chunk) for chunk in batch.chunks])
    sizes = torch.cat([chunk.starts.diff() for chunk in batch.chunks]).tolist()
    for text, own in zip(batch.order.tolist(), states.split(sizes), strict=True):
        torch.testing.assert_close(own, wanted[text][mask[text]], rtol=1e-4, atol=1e-4)


def test_every_kind_starts_from_a_distilbert(tmp_path: Path) -> None:
    save_distilbert(tmp_path)
    for recipe in OF_EACH_KIND:
        lengths = ("data.max_query_length=12", "data.max_length=40") if recipe == "cross-encoder" else ()
        assert load(recipe, tmp_path, *lengths).network is not None


def test_a_distilbert_without_a_part_of_its_description_is_refused(tmp_path: Path) -> None:
    save_distilbert(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("dim", "n_heads"):
        (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != name}))
        with pytest.raises(InputError, match=rf"does not describe a DistilBERT \(no {name}\)"):
            load("bm26-fresh", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "activation": "relu"}))
    with pytest.raises(InputError, match="with hidden_act gelu, can be trained, and this distilbert has relu"):
        load("bm26-fresh", tmp_path)


@pytest.mark.parametrize("recipe", ["bm25-augmented", "bm26"])
def test_a_distilbert_trains_and_is_searched_with(recipe: str, tmp_path: Path, judged: Path, cli: Cli) -> None:
    """The written network is a BERT, for onnxruntime and for transformers."""
    save_distilbert(tmp_path / "d")
    documents = judged / "corpus.jsonl"
    data = ("--corpus", documents) if recipe in FROM_DOCUMENTS else ("--dataset", judged)
    changes = [f"network.base_model={tmp_path / 'd'}", "training.steps=1", "training.batch_size=4"]
    if recipe == "bm25-augmented":
        changes += ["vocabulary.max_df=1.0", "vocabulary.size=20"]
    told = [part for change in changes for part in ("--set", change)]
    code, _, said = cli("train", recipe, "-o", tmp_path / "o", *data, *told)
    assert code == 0, said
    model = ("--model", tmp_path / "o") if recipe == "bm26" else ()
    assert cli("index", documents, "-o", tmp_path / "i", *model)[0] == 0
    expanded = ("--expand", tmp_path / "o") if recipe == "bm25-augmented" else ()
    code, found, said = cli("search", tmp_path / "i", "a dog barks", *expanded)
    assert (code, bool(found)) == (0, True), said
    if recipe == "bm26":
        assert transformers.AutoModel.from_pretrained(tmp_path / "o").config.model_type == "bert"
