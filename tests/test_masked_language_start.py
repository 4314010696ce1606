"""SPLADE from a BERT or a DistilBERT that predicts masked words: it begins with its head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from conftest import Cli
from small import VOCABULARY
from vizsla import Analyzer
from vizsla.errors import InputError
from vizsla.neural.checkpoints.checkpoint import find_checkpoint
from vizsla.neural.chunks import packed
from vizsla.training.networks import base_sparse_network

SIZES = {
    "hidden_size": 16,
    "max_position_embeddings": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
DISTILBERT = {"n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 64}


def save(folder: Path, model: Any) -> Any:
    """A model with random weights, biases included, and BERT's word pieces."""
    torch.manual_seed(3)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.eval().save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(Analyzer.parse("wordpiece").tokenizer.content)  # type: ignore[attr-defined]
    return model


def bert(kind: str = "BertForMaskedLM", **options: Any) -> Any:
    config = transformers.BertConfig(vocab_size=VOCABULARY, **SIZES, **options)
    return getattr(transformers, kind)(config)


def distilbert(**options: Any) -> Any:
    config = transformers.DistilBertConfig(vocab_size=VOCABULARY, dim=16, **DISTILBERT, **options)
    return transformers.DistilBertForMaskedLM(config)


LAYOUTS = {
    "bert": bert,
    "pretraining": lambda: bert("BertForPreTraining"),
    "distilbert": distilbert,
    "untied": lambda: bert(tie_word_embeddings=False),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("head", ["splade", "splade-doc"])
def test_the_logits_are_those_of_transformers(layout: str, head: str, tmp_path: Path) -> None:
    model = save(tmp_path, LAYOUTS[layout]())
    base = base_sparse_network(str(tmp_path), head)
    assert (base.new_head, base.masked_language) == (False, True)
    decoder = base.network.head.decoder.weight
    assert (decoder is base.network.encoder.embeddings.word_embeddings.weight) == (layout != "untied")
    ids = torch.randint(200, 3000, (3, 20), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(20) < torch.tensor([20, 11, 3])[:, None]
    batch = packed(ids, mask, 1000)
    with torch.no_grad():
        told = model(input_ids=ids, attention_mask=mask.long())
        wanted = told.prediction_logits if layout == "pretraining" else told.logits
        network = base.network.eval()
        logits = torch.cat([network.head(network.encoder(chunk)) for chunk in batch.chunks])
    sizes = torch.cat([chunk.starts.diff() for chunk in batch.chunks]).tolist()
    for text, own in zip(batch.order.tolist(), logits.split(sizes), strict=True):
        torch.testing.assert_close(own, wanted[text][mask[text]], rtol=1e-3, atol=1e-3)


def test_an_encoder_without_a_head_gets_a_new_one(tmp_path: Path) -> None:
    save(tmp_path, bert("BertModel"))
    for head in ("splade", "splade-doc", "sparta", "unicoil"):
        base = base_sparse_network(str(tmp_path), head)
        assert (base.new_head, base.masked_language) == (True, False)


def test_a_head_of_another_size_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save(tmp_path, bert())
    file = find_checkpoint(tmp_path) / "model.safetensors"
    arrays = load_file(file)
    arrays["cls.predictions.transform.dense.weight"] = torch.zeros(8, 16)
    save_file(arrays, file, {"format": "pt"})
    with pytest.raises(InputError, match=r"the masked-language head does not fit config.json \(its dense.weight\)"):
        base_sparse_network(str(tmp_path), "splade")


def test_a_run_says_where_its_head_comes_from(cli: Cli, tmp_path: Path) -> None:
    """BERT's own head is not trained on masked words, but its logits get a level, so few terms are active."""
    save(tmp_path / "with", distilbert())
    save(tmp_path / "without", bert("BertModel"))
    corpus = tmp_path / "corpus.jsonl"
    texts = ["a dog that points at birds in a field of grass " * 3, "taxes on vehicles that are used for business " * 3]
    lines = [json.dumps({"_id": str(i), "text": f"{texts[i % 2]} {i}"}) for i in range(16)]
    corpus.write_text("\n".join(lines))
    small = ("training.steps=1", "training.batch_size=4", "masked_lm.batch_size=4", "masked_lm.active_terms=20")
    said = {}
    for name, steps in (("with", 2), ("without", 2), ("without", 0)):
        settings = (f"network.base_model={tmp_path / name}", f"masked_lm.steps={steps}", *small)
        told = [option for setting in settings for option in ("--set", setting)]
        code, _, err = cli("train", "bm26e", "--corpus", corpus, "-o", tmp_path / f"{name}{steps}-out", *told)
        assert code == 0, err
        said[name, steps] = err
    assert "its masked-language head is kept, so the stage masked_lm trains none" in said["with", 2]
    assert "masked     1" not in said["with", 2]
    assert "there is no masked-language head, so a new one is trained on masked words first" in said["without", 2]
    assert "masked     2" in said["without", 2]
    assert "a new one starts untrained, since masked_lm.steps is 0" in said["without", 0]
    log = json.loads((tmp_path / "with2-out" / "training" / "log.jsonl").read_text().splitlines()[0])
    assert log["document_terms"] < 100  # of thousands that a head at random would leave above 0
