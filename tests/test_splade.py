"""SPLADE as others save it: the weights are those of transformers and the formula, by every runtime, in an index."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_checkpoints import (
    DOCUMENTS,
    KINDS,
    NEW,
    OLD,
    TABLE,
    TEXTS,
    WORDS,
    bert_config,
    dense_rows,
    expected,
    masked_language,
    save_bert_tokenizer,
    save_masked_language,
    save_pieces,
    save_splade,
    transformers,
)
from vizsla import Dense, Index, LearnedSparse, Model, VizslaError, parse_model
from vizsla.errors import InputError
from vizsla.index import verify
from vizsla.models import Network, expression
from vizsla.models.saving import save_model
from vizsla.neural.checkpoints.transformer import MaskedLanguage
from vizsla.neural.query_tables import TermWeights
from vizsla.neural.weights import write_arrays

pytestmark = pytest.mark.usefixtures("cache")
VARIANTS = list(product(("max", "sum"), ("relu", "log1p_relu")))


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Any, Any]:
    """A BERT with a masked-language head in transformers' own layout: its folder, the model, its tokenizer."""
    model = masked_language()
    return tmp_path / "splade", model, save_masked_language(tmp_path / "splade", model)


def with_table(folder: Path, weights: np.ndarray) -> None:
    """A router: documents through the network, queries through a table."""
    network = folder / "document_0_Transformer"
    network.mkdir()
    for file in [f for f in folder.iterdir() if f.is_file()]:
        file.rename(network / file.name)
    save_splade(folder)
    table = folder / "query_0_SparseStaticEmbedding"
    save_bert_tokenizer(table)
    (table / "config.json").write_text('{"frozen": false}')
    write_arrays(table / "model.safetensors", {"weight": weights.astype(np.float32)})
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Router"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    types = {network.name: NEW, "1_SpladePooling": "x.SpladePooling", table.name: TABLE}
    structure = {"query": [table.name], "document": [network.name, "1_SpladePooling"]}
    (folder / "router_config.json").write_text(json.dumps({"types": types, "structure": structure}))


@pytest.mark.parametrize("layout", [OLD, NEW, ""])
def test_every_layout_pooling_and_activation(made: tuple[Path, Any, Any], layout: str) -> None:
    folder, model, tokenizer = made
    for how, activation in VARIANTS if layout == NEW else VARIANTS[:1]:
        if layout:
            save_splade(folder, how, activation, layout)
        splade = LearnedSparse.open(folder, "float32")
        assert isinstance(splade.network, Network)
        vectors = dense_rows(splade.document_rows([*TEXTS, "", " \n"]), WORDS)
        assert not vectors[4:].any()
        for text, vector in zip(TEXTS, vectors, strict=False):
            assert vector == pytest.approx(expected(model, tokenizer, text, how, activation), abs=1e-4)
        by_name = dict(zip(splade.terms, vectors[0], strict=True))
        assert splade.query_terms(TEXTS[:1])[0] == pytest.approx({t: w for t, w in by_name.items() if w})
        assert splade.query_terms(["", "?" * 3])[0] == {}


@pytest.mark.parametrize(("how", "activation"), [("max", "log1p_relu"), ("sum", "relu")])
def test_torch_gives_the_same(
    made: tuple[Path, Any, Any], how: str, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, model, tokenizer = made
    save_splade(folder, how, activation)
    monkeypatch.setenv("VIZSLA_RUNTIME", "torch")
    vectors = dense_rows(LearnedSparse.open(folder, "float32").document_rows(TEXTS), WORDS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        assert vector == pytest.approx(expected(model, tokenizer, text, how, activation), abs=1e-4)


def test_eight_bits_are_near(made: tuple[Path, Any, Any]) -> None:
    folder, *_ = made
    exact, small = (dense_rows(LearnedSparse.open(folder, p).document_rows(TEXTS), WORDS) for p in ("float32", "int8"))
    assert np.corrcoef(exact.ravel(), small.ravel())[0, 1] > 0.999


def untied() -> Any:
    return masked_language(bert_config(tie_word_embeddings=False))


def distilbert() -> Any:
    return masked_language(
        transformers.DistilBertConfig(
            dim=16, n_layers=2, n_heads=2, hidden_dim=24, vocab_size=WORDS, max_position_embeddings=64
        )
    )


@pytest.mark.parametrize("make", [untied, distilbert])
def test_others_that_run_without_torch(
    make: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    tokenizer = save_masked_language(tmp_path / "m", model)
    for runtime in ("onnx", "torch"):
        monkeypatch.setenv("VIZSLA_RUNTIME", runtime)
        splade = LearnedSparse.open(tmp_path / "m", "float32")
        assert isinstance(splade.network, Network)
        for text, vector in zip(TEXTS, dense_rows(splade.document_rows(TEXTS), WORDS), strict=True):
            assert vector == pytest.approx(expected(model, tokenizer, text), abs=1e-4)


@pytest.mark.parametrize("kind", ["roberta", "relu-bert"])
def test_any_other_architecture_runs_by_torch(kind: str, tmp_path: Path) -> None:
    model = masked_language(KINDS[kind]())
    model.save_pretrained(tmp_path / "m")
    tokenizer = save_pieces(tmp_path / "m")
    splade = LearnedSparse.open(tmp_path / "m", "float32")
    assert isinstance(splade.network, MaskedLanguage)
    vectors = dense_rows(splade.document_rows([*TEXTS, ""]), 400)
    assert not vectors[-1].any()
    for text, vector in zip(TEXTS, vectors, strict=False):
        assert vector == pytest.approx(expected(model, tokenizer, text), abs=1e-4)
    assert len(splade.terms) == 400
    own = {splade.terms[i] for i in tokenizer("dogs and birds", add_special_tokens=False)["input_ids"]}
    assert set(splade.typed_terms("dogs and birds")) == own
    with Index.create(tmp_path / "i", splade) as index:
        index.add(DOCUMENTS)
        index.commit()
        before = [(hit.id, hit.score) for hit in index.search("dogs and birds")]
    with Index.open(tmp_path / "i") as index:  # from the copy in the index
        assert [(hit.id, hit.score) for hit in index.search("dogs and birds")] == before
        assert len(before) == 3


def test_queries_without_a_network(made: tuple[Path, Any, Any], tmp_path: Path) -> None:
    folder, model, tokenizer = made
    weights = np.random.default_rng(0).uniform(0, 3, WORDS)
    weights[tokenizer.convert_tokens_to_ids("a")] = 0
    with_table(folder, weights)
    splade = LearnedSparse.open(folder, "float32")
    assert isinstance(splade.query_table, TermWeights)
    (terms,) = splade.query_terms(["a dog, a field and the dog"])
    ids = tokenizer("a dog, a field and the dog", add_special_tokens=False)["input_ids"]
    names = {tokenizer.convert_ids_to_tokens(i): weights[i] for i in ids if weights[i]}
    assert terms == pytest.approx(names)
    assert splade.query_terms([""]) == [{}]
    vectors = dense_rows(splade.document_rows(TEXTS), WORDS)
    assert vectors[0] == pytest.approx(expected(model, tokenizer, TEXTS[0]), abs=1e-4)
    with Index.create(tmp_path / "i", splade) as index:
        index.add(DOCUMENTS)
        index.commit()
        shutil.rmtree(folder)
        hits = index.search("a dog in the field")
        query = splade.query_terms(["a dog in the field"])[0]
        texts = [f"{d['title']}\n{d['text']}".strip() for d in DOCUMENTS]
        documents = dense_rows(splade.document_rows(texts), WORDS)
        scores = documents @ np.array([query.get(term, 0.0) for term in splade.terms])
        order = sorted((i for i in range(4) if scores[i] > 0), key=lambda i: -scores[i])
        assert [hit.id for hit in hits] == [DOCUMENTS[i]["id"] for i in order]
        assert [hit.score for hit in hits] == pytest.approx([scores[i] for i in order], rel=1e-5)
        assert index.explain("a dog in the field", hits[0].id).score == pytest.approx(hits[0].score)
    assert verify(tmp_path / "i") == []


@given(
    st.lists(st.floats(0, 100, width=32), min_size=1, max_size=20),
    st.lists(st.lists(st.integers(0, 30), max_size=9), max_size=4),
)
def test_a_table_is_a_set_of_pieces(values: list[float], texts: list[list[int]]) -> None:
    known = [[i for i in text if i < len(values)] for text in texts]
    table = TermWeights(Path(), "", len(values))
    object.__setattr__(table, "arrays", {"weight": np.array(values, np.float32)})
    brute = [{i: values[i] for i in set(text) if values[i] > 0} for text in known]
    assert table.rows(known) == brute


def test_tables_that_are_none(tmp_path: Path) -> None:
    for wrong in (np.array([-1.0]), np.array([np.nan]), np.zeros((2, 2)), np.zeros(0)):
        with pytest.raises(InputError, match="weight"):
            TermWeights.write(tmp_path / "t", wrong)
    table = TermWeights.write(tmp_path / "t", np.arange(4))
    assert TermWeights.open(tmp_path / "t") == table
    (tmp_path / "t" / "network.json").write_text('{"reads": "terms"}')
    with pytest.raises(InputError, match="this does not describe a table of weights"):
        TermWeights.open(tmp_path / "t")
    write_arrays(tmp_path / "t" / "weights.safetensors", {"weight": np.zeros(3, np.float32)})
    with pytest.raises(InputError, match="there is no table of 4 weights here"):
        _ = TermWeights(tmp_path / "t", "x", 4).values


def test_two_networks(made: tuple[Path, Any, Any], tmp_path: Path) -> None:
    folder, *_ = made
    model = masked_language(bert_config(num_hidden_layers=1))
    tokenizer = save_masked_language(tmp_path / "queries", model)
    splade = parse_model(f"splade(checkpoint={folder}, query_checkpoint={tmp_path}/queries, precision=float32)")
    assert isinstance(splade, LearnedSparse)
    weights = expected(model, tokenizer, TEXTS[0])
    assert splade.query_terms(TEXTS[:1])[0] == pytest.approx(
        {t: w for t, w in zip(splade.terms, weights, strict=True) if w}, abs=1e-4
    )
    splade.save(tmp_path / "saved")
    assert Model.load(tmp_path / "saved") == splade
    assert expression(parse_model(str(tmp_path / "saved"))) == str(tmp_path / "saved")
    words = [*tokenizer.get_vocab()]
    other = transformers.BertTokenizerFast(vocab={t: i for i, t in enumerate(words)}, do_lower_case=False)
    other.save_pretrained(tmp_path / "queries")
    with pytest.raises(VizslaError, match="queries and documents have different tokenizers"):
        LearnedSparse.open(folder, queries=tmp_path / "queries")


def test_in_an_index_and_in_a_sum(made: tuple[Path, Any, Any], tmp_path: Path) -> None:
    folder, *_ = made
    splade = LearnedSparse.open(folder, "float32")
    packed = replace(splade, max_weight=6.0)
    scores = {}
    for name, model in (("floats", splade), ("bytes", packed), ("sum", parse_model("bm25") + 0.5 * splade)):
        with Index.create(tmp_path / name, model) as index:
            index.add(DOCUMENTS)
            index.commit()
            scores[name] = {hit.id: hit.score for hit in index.search("dogs point at birds")}
    assert scores["bytes"] == pytest.approx(scores["floats"], rel=0.02)
    assert scores["bytes"] != scores["floats"]
    assert scores["sum"]["1"] > 0.5 * scores["floats"]["1"]


def test_without_torch(made: tuple[Path, Any, Any], tmp_path: Path) -> None:
    """Opened, indexed and searched by onnxruntime alone; the network was written by onnx."""
    folder, *_ = made
    save_splade(folder, "sum", "log1p_relu", NEW)
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'safetensors', 'sentence_transformers'): sys.modules[name] = None\n"
        "from vizsla import Index, parse_model\n"
        f"with Index.create({str(tmp_path / 'i')!r}, parse_model({str(folder)!r})) as index:\n"
        "    index.add([{'id': '1', 'text': 'Dogs bark.'}]); index.commit(); print(index.search('dog')[0].id)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"


def test_what_cannot_be_read(made: tuple[Path, Any, Any]) -> None:
    folder, *_ = made
    with pytest.raises(VizslaError, match=r"name a SPLADE, as in splade\(checkpoint=FOLDER\)"):
        parse_model("splade")
    with pytest.raises(VizslaError, match="unknown precision 'int4'"):
        parse_model(f"splade(checkpoint={folder}, precision=int4)")
    splade = LearnedSparse.open(folder, "float32")
    for options, message in (
        ({"length": 2}, "reads 3 to 64 tokens"),
        ({"query_length": 65}, "reads 3 to 64 tokens"),
        ({"max_weight": -1.0}, "max_weight must be a number of 0 or more"),
        ({"analyzer": "lucene-english"}, "a network reads word pieces"),
        ({"network": replace(splade.network, kind="dense")}, "the head dense gives no weights of terms"),
    ):
        with pytest.raises(VizslaError, match=message):
            replace(splade, **options)
    for how, activation in (("mean", "relu"), ("max", "gelu")):
        save_splade(folder, how, activation)
        with pytest.raises(VizslaError, match=f"weights cannot be pooled by {how} after {activation}"):
            LearnedSparse.open(folder)
    save_splade(folder, kind="sentence_transformers.models.BoW")
    with pytest.raises(VizslaError, match="a SPLADE is a masked-language model and a SpladePooling"):
        LearnedSparse.open(folder)
    (folder / "modules.json").unlink()
    transformers.BertModel(bert_config()).save_pretrained(folder)
    with pytest.raises(VizslaError, match=r"there is no masked-language head here \(dense.weight is missing\)"):
        LearnedSparse.open(folder)


def test_a_folder_of_anybody_is_a_model(made: tuple[Path, Any, Any], tmp_path: Path) -> None:
    folder, *_ = made
    assert isinstance(parse_model(str(folder)), LearnedSparse)
    save_splade(folder)
    assert isinstance(parse_model(f"bm25 + {folder}").parts[1].component, LearnedSparse)
    transformers.BertModel(bert_config()).save_pretrained(tmp_path / "dense")
    save_bert_tokenizer(tmp_path / "dense")
    assert isinstance(parse_model(str(tmp_path / "dense")), Dense)
    (tmp_path / "dense" / "modules.json").write_text('[{"type": "pylate.models.Dense.Dense"}]')
    with pytest.raises(VizslaError, match=r"this is a ColBERT; name it as in colbert\(checkpoint="):
        parse_model(str(tmp_path / "dense"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(VizslaError, match=r"there is no saved model here \(no model.json\)"):
        parse_model(str(tmp_path / "empty"))
    with pytest.raises(VizslaError, match="takes no options"):
        parse_model(f"{folder}(length=3)")


def test_saved_for_others_and_opened_again(made: tuple[Path, Any, Any], tmp_path: Path) -> None:
    """What is written for SparseEncoder reads back as the same weights; tests/adapters asks that library itself."""
    folder, *_ = made
    for how, activation in (("max", "relu"), ("sum", "log1p_relu")):
        save_splade(folder, how, activation)
        splade = LearnedSparse.open(folder, "float32")
        out = tmp_path / f"{how}-{activation}"
        assert save_model(splade, out)
        assert Model.load(out) == splade
        (out / "model.json").unlink()
        again = parse_model(f"splade(checkpoint={out}, precision=float32)")
        assert isinstance(again, LearnedSparse)
        assert dense_rows(again.document_rows(TEXTS), WORDS) == pytest.approx(
            dense_rows(splade.document_rows(TEXTS), WORDS), abs=1e-6
        )
    table = TermWeights.write(tmp_path / "t", np.arange(WORDS))
    assert save_model(replace(splade, query_table=table, inference_free=True), tmp_path / "router")
    (tmp_path / "router" / "model.json").unlink()
    routed = parse_model(str(tmp_path / "router"))
    assert isinstance(routed, LearnedSparse)
    assert routed.query_table == table
    assert not save_model(parse_model("bm25"), tmp_path / "bm25")
