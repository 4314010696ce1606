"""Dense models in an index: alone and in sums, through updates, deletions and filters; encoders of others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from conftest import Cli
from vizsla.index import document_vectors, verify

pytestmark = pytest.mark.usefixtures("in_floats")

DOCUMENTS: list[dict[str, Any]] = [
    {"id": "1", "title": "Dogs", "text": "A dog that points and retrieves birds.", "year": 1920},
    {"id": "2", "title": "Cars", "text": "Taxes on vehicles that are used for business.", "year": 1990},
    {"id": "3", "title": "Puppies", "text": "Young hounds learn to fetch.", "year": 1950},
    {"id": "4", "title": "", "text": " ", "year": 1960},
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A small dense model over BERT's word pieces, its weights at random."""
    import torch

    from vizsla import Dense
    from vizsla.models import Network

    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=64
    )
    model = transformers.BertModel(config, add_pooling_layer=False)
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    folder = tmp_path_factory.mktemp("encoder")
    network = Network.write(
        folder / "n", weights, kind="dense", heads=2, max_weight=1.0, length=64, precision="float32", pooling="mean"
    )
    return Dense(network)


def test_an_index_of_dense_vectors(encoder: Any, tmp_path: Path) -> None:
    from vizsla import BM25, Index

    def best(model: Any, contents: list[dict[str, Any]], query: str) -> list[tuple[str, float]]:
        statistics = model.statistics(contents)
        (scores,) = model.encode_queries([query], statistics).dot(model.encode_documents(contents, statistics))
        rows = [(d["id"], float(s)) for d, s in zip(contents, scores.tolist(), strict=True) if d["text"].strip()]
        return sorted(rows, key=lambda row: -row[1])

    for model in (encoder, BM25() + 0.5 * encoder, 2.0 * encoder):
        folder = tmp_path / model.name.replace(" ", "")
        with Index.create(folder, model) as index:
            added = index.add(DOCUMENTS)
            assert [d.id for d in added.empty] == ["4"]
            index.commit()
            index.add([{"id": "5", "title": "Hunting", "text": "Dogs and birds in a field.", "year": 2000}])
            index.delete(["3"])
            index.commit()
            living = [d for d in DOCUMENTS if d["id"] not in ("3", "4")]
            living.append({"id": "5", "title": "Hunting", "text": "Dogs and birds in a field."})
            for _ in range(2):
                hits = index.search("dogs that fetch birds", 10)
                expected = best(model, living, "dogs that fetch birds")
                assert [h.id for h in hits] == [d for d, _ in expected]
                assert [h.score for h in hits] == pytest.approx([s for _, s in expected], rel=1e-5)
                explained = index.explain("dogs that fetch birds", hits[0].id)
                assert explained.score == pytest.approx(hits[0].score, rel=1e-5)
                assert [h.id for h in index.search("birds", 10, "year > 1980")] == [
                    h.id for h in index.search("birds", 10) if h.id in ("2", "5")
                ]
                assert verify(index.path) == []
                index.compact()
        with Index.open(folder) as index:
            assert [h.id for h in index.search("dogs that fetch birds", 10)] == [d for d, _ in expected]


def test_a_query_of_no_known_token_says_so(cli: Cli, encoder: Any, tmp_path: Path) -> None:
    from vizsla import BM25, Index

    for name, model in (("dense", encoder), ("both", BM25() + 0.5 * encoder)):
        with Index.create(tmp_path / name, model) as index:
            assert [d.id for d in index.add([*DOCUMENTS, {"id": "5", "text": "⁂"}]).empty] == ["4", "5"]
            index.commit()
        code, out, said = cli("search", tmp_path / name, "⁂⁂")
        assert (code, out) == (0, "")
        assert f"nothing found: {model.name} does not know any word of the query" in said
        assert "⁂ dog" in cli("search", tmp_path / name, "⁂ dog", "--json")[1]
    said = cli("search", tmp_path / "dense", "dogs", "--filter", "year > 3000")[2]
    assert "nothing found: no document matches the filter" in said
    with Index.create(tmp_path / "empty", encoder) as index:
        index.commit()
    assert "the index has no documents" in cli("search", tmp_path / "empty", "dogs")[2]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder as sentence-transformers saves one."""
    from vizsla import Analyzer

    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("checkpoint")
    config = transformers.BertConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=48, max_position_embeddings=64
    )
    transformers.BertModel(config).save_pretrained(folder)
    vocabulary = Analyzer.parse("wordpiece").tokenizer.vocabulary  # type: ignore[attr-defined]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", "utf-8")
    tokens = transformers.BertTokenizerFast(vocab={t: i for i, t in enumerate(vocabulary)}, do_lower_case=True)
    tokens.save_pretrained(folder)
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 24, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 32, "do_lower_case": false}')
    prompts = {"prompts": {"query": "query: ", "document": "passage: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("pooling", ["mean", "cls", "cls+mean"])
@pytest.mark.parametrize("runtime", ["onnx", "torch"])
def test_an_encoder_of_others_gives_what_it_gives_there(
    checkpoint: Path, cache: Path, tmp_path: Path, pooling: str, runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vizsla import Dense

    folder = tmp_path / "encoder"
    shutil.copytree(checkpoint, folder)
    modes = {"pooling_mode_cls_token": "cls" in pooling, "pooling_mode_mean_tokens": "mean" in pooling}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 24, **modes}))
    monkeypatch.setenv("VIZSLA_RUNTIME", runtime)
    model = Dense.open(folder, "float32")
    width = 24 * len(pooling.split("+"))
    assert (model.dimensions, model.network.length, model.normalize) == (width, 32, True)
    assert (model.query_prompt, model.document_prompt) == ("query: ", "passage: ")
    texts = ["A dog that points.", "Taxes on vehicles, " * 20, "", "x", "☃☃"]
    encoder = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for prompt, made in (("passage: ", model.dense_documents(texts)[0]), ("query: ", model.query_embeddings(texts)[0])):
        for text, vector in zip(texts, made, strict=True):
            if not text.isascii() or not text:  # no token, or none that is known
                assert vector is None or not vector.any()
                continue
            ids = tokenizer(prompt + text, truncation=True, max_length=32, return_tensors="pt")
            with torch.no_grad():
                states = encoder(**ids).last_hidden_state[0]
            both = {"cls": states[0], "mean": states.mean(0)}
            expected = np.concatenate([both[part] for part in pooling.split("+")])
            assert vector == pytest.approx(expected / np.linalg.norm(expected), abs=1e-5)
    assert len(list((cache / "vizsla" / "networks").iterdir())) == 1
    assert Dense.open(folder, "float32") == model  # written once


@pytest.mark.usefixtures("cache")
def test_encoders_that_cannot_be_read(checkpoint: Path, tmp_path: Path) -> None:
    from vizsla import Dense, VizslaError, parse_model

    def broken(name: str, file: str, content: str | None) -> Path:
        folder = tmp_path / name
        shutil.copytree(checkpoint, folder)
        if content is None:
            (folder / file).unlink()
        else:
            (folder / file).write_text(content)
        return folder

    for folder, problem in (
        (broken("config", "config.json", None), "there is no encoder here"),
        (broken("kind", "config.json", '{"model_type": "t5"}'), "does not say how wide"),
        (broken("weights", "model.safetensors", None), "there are no weights here"),
        (broken("damaged", "model.safetensors", "nothing"), "not a weight file, or it is damaged"),
        (broken("pooled", "1_Pooling/config.json", '{"pooling_mode": "median"}'), "cannot be pooled by median"),
        (tmp_path / "nowhere", "this folder does not exist"),
    ):
        with pytest.raises(VizslaError, match=problem):
            Dense.open(folder)
    lost = broken("tokens", "tokenizer.json", None)
    (lost / "vocab.txt").unlink()
    with pytest.raises(VizslaError, match="tokenizer"):
        Dense.open(lost)
    with pytest.raises(VizslaError, match="name an encoder"):
        parse_model("dense")
    with pytest.raises(VizslaError, match="unknown precision 'int4'"):
        parse_model(f"dense(checkpoint={checkpoint}, precision=int4)")


def test_what_a_person_sees_of_a_hybrid(cli: Cli, encoder: Any, tmp_path: Path) -> None:
    from vizsla import BM25, Index

    for name, model in (("dense", encoder), ("both", BM25() + 0.5 * encoder)):
        with Index.create(tmp_path / name, model) as index:
            index.add(DOCUMENTS)
            index.commit()
        code, out, said = cli("explain", tmp_path / name, "dogs that fetch", "1")
        assert (code, "of two vectors of 16 numbers" in out) == (0, True), said
        assert ("dog" in out.replace("dogs", "")) == (name == "both")
        code, out, _ = cli("explain", tmp_path / name, "the", "1")  # no word for BM25
        assert (code, "cosine" in out) == (0, True)
        code, out, _ = cli("info", tmp_path / name)
        assert (code, "16 dimensions" in out) == (0, True)
        code, out, _ = cli("search", tmp_path / name, "dogs that fetch", "--json", "--filter", "year < 1955")
        assert {hit["id"] for hit in json.loads(out)["results"]} == {"1", "3"}


def test_two_encoders_for_one_model(encoder: Any, checkpoint: Path, cache: Path, tmp_path: Path) -> None:  # noqa: ARG001
    from vizsla import Dense, Index, Model, VizslaError

    other = Dense.open(checkpoint, "float32")
    with pytest.raises(VizslaError, match="vectors of different sizes"):
        Dense(encoder.network, query_network=other.network)
    two = Dense(other.network, query_network=Dense.open(checkpoint, "int8").network, normalize=False)
    two.save(tmp_path / "m")
    again = Model.load(tmp_path / "m")
    assert again == two
    assert not np.array_equal(two.query_embeddings(["dogs"])[0][0], two.dense_documents(["dogs"])[0][0])
    with Index.create(tmp_path / "i", two) as index:
        index.add(DOCUMENTS)
        index.commit()
        assert len(index.search("dogs", 10)) == 3
        with pytest.raises(VizslaError, match="does not have what"):
            index.search("dogs", model=encoder)
        with pytest.raises(VizslaError, match="have no terms to list"):
            list(document_vectors(index))


def test_train_makes_a_dense_model(cli: Cli, judged: Path, start: Path, cache: Path, tmp_path: Path) -> None:  # noqa: ARG001
    from vizsla import Dense, Model

    settings = ("training.batch_size=8", "training.steps=4", "training.warmup_steps=1", "training.precision=float32",
                "training.eval_steps=2", "training.save_steps=2", "data.negatives_per_query=2")  # fmt: skip

    def train(output: Path, *changes: str) -> tuple[int, str]:
        asked = [part for change in (*settings, *changes) for part in ("--set", change)]
        where = ("--dataset", judged, "--dev", judged, "--corpus", judged / "corpus.jsonl", "-o", output)
        code, _, said = cli("train", "dpr", *where, *asked)
        return code, said

    made = tmp_path / "m"
    for way, output in (((), made), (("network.pooling=cls", "network.normalize=false"), tmp_path / "first")):
        code, said = train(output, f"network.base_model={start}", *way)
        assert code == 0, said
        model = Model.load(output)
        assert isinstance(model, Dense)
        assert (model.network.pooling, model.normalize) == (("cls", False) if way else ("mean", True))
        reread = Dense.open(output, "int8")  # by the files that sentence-transformers reads
        one, two = (m.dense_documents(["dog bark night", "a theory of summer"])[0] for m in (model, reread))
        lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
        assert (one * two).sum(1) / lengths == pytest.approx(1, abs=0.02)
    assert cli("index", judged / "corpus.jsonl", "-o", tmp_path / "i", "--model", made)[0] == 0
    code, out, said = cli("search", tmp_path / "i", "dog bark night", "--json")
    assert (code, bool(json.loads(out)["results"])) == (0, True), said
    assert train(tmp_path / "n", f"network.base_model={made}")[0] == 0
    code, said = train(tmp_path / "o", f"network.base_model={start}", "network.pooling=last")
    assert (code, "unknown pooling 'last'" in said) == (2, True), said
