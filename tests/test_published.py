"""Published checkpoints by name: small random files of the published layouts, and what torch computes by hand."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tiny_checkpoints import (
    KINDS,
    TEXTS,
    WORDS,
    bert_config,
    made_encoder,
    save_bert_tokenizer,
    save_pieces,
    states,
    torch,
    transformers,
)
from vizsla import Analyzer, Dense, LearnedSparse, VizslaError, parse_model
from vizsla.models import ColBERT, Network, expression
from vizsla.models.coil import Coil
from vizsla.models.counts import DeepCT
from vizsla.models.generator import open_generator
from vizsla.neural.checkpoints.published import find_published, published
from vizsla.recipes import Reproduction, Tiny, load_table

pytestmark = pytest.mark.usefixtures("cache")

UNCASED = 30522
QUERY, DOCUMENT = "dogs that point at dogs", {"title": "Dogs", "text": "A dog that points and retrieves birds, dogs!"}
TEXT = "Dogs\nA dog that points and retrieves birds, dogs!"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that plays the model hub."""
    library = pytest.importorskip("huggingface_hub")
    root = tmp_path / "hub"

    def snapshot(name: str, allow_patterns: list[str]) -> str:
        if not (root / name).is_dir():
            raise OSError("404 Client Error")
        files = [p.relative_to(root / name).as_posix() for p in (root / name).rglob("*") if p.is_file()]
        for file in library.utils.filter_repo_objects(files, allow_patterns=allow_patterns):
            (root / "fetched" / name / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name / file, root / "fetched" / name / file)
        return str(root / "fetched" / name)

    monkeypatch.setattr(library, "snapshot_download", snapshot)
    return root


def tiny_bert(seed: int = 0, **options: Any) -> Any:
    torch.manual_seed(seed)
    return transformers.BertModel(bert_config(initializer_range=0.2, **options)).eval()


def linear(outputs: int, inputs: int = 16, seed: int = 1) -> Any:
    torch.manual_seed(seed)
    layer = torch.nn.Linear(inputs, outputs)
    torch.nn.init.normal_(layer.weight)
    return layer


def save_torch(folder: Path, model: Any, arrays: dict[str, Any], name: str = "pytorch_model.bin") -> Any:
    """A configuration, BERT's tokenizer and arrays in torch's own format, as most of these were published."""
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    torch.save(arrays, folder / name)
    return save_bert_tokenizer(folder)


def prefixed(prefix: str, module: Any) -> dict[str, Any]:
    return {prefix + name: array for name, array in module.state_dict().items()}


def save_unicoil(folder: Path) -> tuple[Any, Any, Any]:
    model, head = tiny_bert(), linear(1)
    arrays = prefixed("coil_encoder.bert.", model) | prefixed("coil_encoder.tok_proj.", head)
    return save_torch(folder, model, arrays), model, head


def unicoil_by_hand(tokens: Any, model: Any, head: Any, text: str, length: int, *, add: bool) -> dict[str, float]:
    """What Pyserini computes: ReLU of a linear layer, repeats summed in queries, their maximum in documents."""
    ids = tokens(text, truncation=True, max_length=length)["input_ids"]
    with torch.no_grad():
        weights = torch.relu(head(torch.tensor(states(model, ids)))).squeeze(1).tolist()
    found: dict[str, float] = {}
    for token, weight in zip(tokens.convert_ids_to_tokens(ids), weights, strict=True):
        if token not in ("[CLS]", "[SEP]") and weight > 0:
            found[token] = found.get(token, 0.0) + weight if add else max(found.get(token, 0.0), weight)
    return found


@pytest.mark.parametrize("runtime", ["onnx", "torch"])
def test_unicoil(runtime: str, hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIZSLA_RUNTIME", runtime)
    tokens, model, head = save_unicoil(hub / "castorini" / "unicoil-msmarco-passage")
    opened = parse_model("hf:castorini/unicoil-msmarco-passage")
    assert isinstance(opened, LearnedSparse)
    assert (opened.stored_maximum, opened.query_length, opened.sum_query_repeats) == (5.0, 64, True)
    exact = parse_model("unicoil(precision=float32, max_weight=0)")
    assert isinstance(exact, LearnedSparse)
    (query,) = exact.query_terms([QUERY])
    assert query == pytest.approx(unicoil_by_hand(tokens, model, head, QUERY, 64, add=True), abs=1e-4)
    encoded = exact.document_encoder().encode([DOCUMENT])
    rows = {term: weight for (_, term), weight in encoded.vectors[0].items()}
    assert rows == pytest.approx(unicoil_by_hand(tokens, model, head, TEXT, 64, add=False), abs=1e-4)
    assert len(query) > 1
    assert len(rows) > 3


def test_unicoil_adds_what_generated_queries_have_and_the_text_lacks(hub: Path) -> None:
    """The text, [SEP], the new pieces of the field queries, [SEP]; without that field the text alone."""
    tokens, model, head = save_unicoil(hub / "castorini" / "unicoil-msmarco-passage")
    save_unicoil(hub / "castorini" / "unicoil-noexp-msmarco-passage")
    document = {"text": "A dog retrieves birds", "queries": ["which dog retrieves", "do dogs point at birds"]}
    opened = parse_model("unicoil(precision=float32, max_weight=0)")
    noexp = parse_model("unicoil(precision=float32, max_weight=0, checkpoint=castorini/unicoil-noexp-msmarco-passage)")
    assert isinstance(opened, LearnedSparse)
    assert isinstance(noexp, LearnedSparse)
    assert (opened.fields, noexp.fields) == (("title", "text", "queries"), ("title", "text"))
    text = tokens(document["text"], add_special_tokens=False)["input_ids"]
    asked_first = tokens(" ".join(document["queries"]), add_special_tokens=False)["input_ids"]
    new = sorted(set(asked_first) - set(text), key=asked_first.index)
    assert 0 < len(new) < len(asked_first)
    ids = [101, *text, 102, *new, 102]
    with torch.no_grad():
        weights = torch.relu(head(torch.tensor(states(model, ids)))).squeeze(1).tolist()
    expected: dict[str, float] = {}
    for token, weight in zip(tokens.convert_ids_to_tokens(ids), weights, strict=True):
        if weight > 0 and token not in ("[CLS]", "[SEP]"):
            expected[token] = max(weight, expected.get(token, 0.0))
    alone = unicoil_by_hand(tokens, model, head, "A dog retrieves birds", 64, add=False)
    for unicoil, asked, rows in (
        (opened, document, expected), (opened, {"text": document["text"]}, alone), (noexp, document, alone),
    ):  # fmt: skip
        encoded = unicoil.document_encoder().encode([asked]).vectors[0]
        assert {term: w for (_, term), w in encoded.items()} == pytest.approx(rows, abs=1e-4)
    assert len({opened.index_signature, noexp.index_signature}) == 2


def test_the_kind_of_a_folder_follows_from_its_arrays(tmp_path: Path) -> None:
    _, model, _ = save_unicoil(tmp_path / "copied")
    opened = parse_model(str(tmp_path / "copied"))
    assert isinstance(opened, LearnedSparse)
    assert (opened.name, opened.network.kind) == ("unicoil", "unicoil")
    save_unicoil(tmp_path / "wide")
    torch.save(prefixed("bert.", model) | prefixed("tok_proj.", linear(3)), tmp_path / "wide" / "pytorch_model.bin")
    with pytest.raises(VizslaError, match=r"a uniCOIL has a layer tok_proj with one output .*; this one has 3 outputs"):
        parse_model(f"unicoil(checkpoint={tmp_path / 'wide'})")
    torch.save(prefixed("bert.", model), tmp_path / "wide" / "pytorch_model.bin")
    with pytest.raises(VizslaError, match="this checkpoint has none that fits"):
        parse_model(f"unicoil(checkpoint={tmp_path / 'wide'})")


@pytest.mark.parametrize("runtime", ["onnx", "torch"])
def test_sparta(runtime: str, hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Input embeddings by states, the best of each, log(1 + ReLU); a query is its word pieces."""
    monkeypatch.setenv("VIZSLA_RUNTIME", runtime)
    config = transformers.DistilBertConfig(
        dim=16, n_layers=2, n_heads=2, hidden_dim=24, vocab_size=WORDS, max_position_embeddings=64,
        initializer_range=0.2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.DistilBertModel(config).eval()
    folder = hub / "BeIR" / "sparta-msmarco-distilbert-base-v1"
    tokens = save_torch(folder, model, model.state_dict())
    opened = parse_model("hf:BeIR/sparta-msmarco-distilbert-base-v1")
    assert isinstance(opened, LearnedSparse)
    assert (opened.max_terms, opened.length) == (2000, 64)
    exact = parse_model(f"sparta(checkpoint={folder}, precision=float32, max_terms=40)")
    assert isinstance(exact, LearnedSparse)
    with torch.no_grad():
        ids = tokens(TEXT, truncation=True, max_length=64)["input_ids"]
        scores = model.embeddings.word_embeddings.weight @ torch.tensor(states(model, ids)).T
        weights = torch.log1p(torch.relu(scores.amax(1)))
    weights[tokens.all_special_ids] = 0
    best = weights.topk(40)
    expected = dict(zip(tokens.convert_ids_to_tokens(best.indices.tolist()), best.values.tolist(), strict=True))
    rows = {term: w for (_, term), w in exact.document_encoder().encode([DOCUMENT]).vectors[0].items()}
    assert rows == pytest.approx(expected, abs=1e-4)
    pieces = dict.fromkeys(tokens.tokenize("Which dogs?"), 1.0)
    assert exact.query_terms(["Which ⁂ dogs?"]) == [pieces]


def test_deepct(hub: Path) -> None:
    config = bert_config(num_labels=1, initializer_range=0.2, max_position_embeddings=512)
    torch.manual_seed(0)
    model = transformers.BertForTokenClassification(config).eval()
    model.save_pretrained(hub / "macavaney" / "deepct")
    tokens = save_bert_tokenizer(hub / "macavaney" / "deepct")
    opened = parse_model("hf:macavaney/deepct")
    assert isinstance(opened, DeepCT)
    exact = parse_model("deepct(checkpoint=macavaney/deepct, precision=float32, scale=50)")
    assert isinstance(exact, DeepCT)
    text = "a dog that points at birds"
    with torch.no_grad():
        logits = model(torch.tensor([tokens(text)["input_ids"]])).logits[0, 1:-1, 0].numpy()
    firsts = [x for piece, x in zip(tokens.tokenize(text), logits, strict=True) if not piece.startswith("##")]
    stems = {"dog": "dog", "points": "point", "birds": "bird"}  # the others are stop words
    words = zip(text.split(), firsts, strict=True)
    expected = {stems[w]: max(1, round(50 * max(0.0, float(x)))) for w, x in words if w in stems}
    assert exact.counts([text]) == [expected]
    beir = parse_model("deepct-beir(checkpoint=macavaney/deepct)")
    assert isinstance(beir, DeepCT)
    assert (beir.smoothing, beir.k1) == ("sqrt", 0.9)


class ModelArguments:
    """What COIL's code saves of its options; it lies in a module that is not there when the file is read."""


def save_coil(folder: Path, monkeypatch: pytest.MonkeyPatch, head: Any, **arguments: Any) -> tuple[Any, Any]:
    model = tiny_bert()
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    tokens = save_bert_tokenizer(folder)
    torch.save(head.state_dict(), folder / "model.pt")
    module = ModuleType("arguments")
    monkeypatch.setattr(ModelArguments, "__module__", "arguments")
    module.ModelArguments = ModelArguments  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "arguments", module)
    options = ModelArguments()
    options.__dict__.update({"token_dim": 3, "relu": False, "no_sep": True, **arguments})
    torch.save([{"q_max_len": 16}, options], folder / "args.pt")
    monkeypatch.delitem(sys.modules, "arguments")
    return tokens, model


def test_coil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder, model.pt with the layers after it, and args.pt, whose classes are not loaded."""
    head = torch.nn.ModuleDict({"tok_proj": linear(3), "cls_proj": linear(5, seed=2)})
    tokens, model = save_coil(tmp_path / "coil", monkeypatch, head)
    opened = parse_model(f"coil(checkpoint={tmp_path / 'coil'}, precision=float32)")
    assert isinstance(opened, Coil)
    assert (opened.dimensions, opened.cls_dimensions, opened.length, opened.query_length) == (3, 5, 64, 16)
    assert parse_model(str(tmp_path / "coil")).network.kind == "coil"  # type: ignore[attr-defined]
    long = "dogs that point at birds " * 6
    made = opened.query_embeddings([long])
    ids = tokens(long, truncation=True, max_length=16)["input_ids"]
    with torch.no_grad():
        found = torch.tensor(states(model, ids))
        expected, cls = head["tok_proj"](found)[1:-1], head["cls_proj"](found[0])
    assert made.terms[0].tolist() == ids[1:-1]
    assert made.vectors[0] == pytest.approx(expected.numpy(), abs=1e-4)
    assert made.texts[0] == pytest.approx(cls.numpy(), abs=1e-4)
    save_coil(tmp_path / "relu", monkeypatch, head, relu=True)
    with pytest.raises(VizslaError, match=r"args\.pt: a COIL that was trained with relu cannot be read"):
        parse_model(f"coil(checkpoint={tmp_path / 'relu'})")
    normed = torch.nn.ModuleDict({**head, "ln_tok": torch.nn.LayerNorm(3)})
    save_coil(tmp_path / "normed", monkeypatch, normed)
    with pytest.raises(VizslaError, match=r"layer normalisation \(ln_tok.weight\) cannot be read"):
        parse_model(f"coil(checkpoint={tmp_path / 'normed'})")


def dense_by_hand(model: Any, tokens: Any, *texts: str, length: int = 64) -> np.ndarray:
    return states(model, tokens(*texts, truncation=True, max_length=length)["input_ids"])[0]


def test_either_name_opens_both_encoders(hub: Path) -> None:
    """SPAR's model of uniCOIL: [CLS] of two BERTs, title [SEP] text, inner products."""
    towers = tiny_bert(0), tiny_bert(1)
    for tower, side in zip(towers, ("context", "query"), strict=True):
        folder = hub / "facebook" / f"spar-marco-unicoil-lexmodel-{side}-encoder"
        tower.save_pretrained(folder)
        tokens = save_bert_tokenizer(folder)
    names = [f"hf:facebook/spar-marco-unicoil-lexmodel-{side}-encoder" for side in ("context", "query")]
    opened = [parse_model(name) for name in (*names, "spar-marco-unicoil")]
    opened.append(parse_model("dense(checkpoint=facebook/spar-marco-unicoil-lexmodel-query-encoder)"))
    for dense in opened:
        assert isinstance(dense, Dense)
        assert (dense.normalize, dense.separator, dense.length) == (False, " [SEP] ", 64)
        assert (dense.network, dense.query_network) == (opened[0].network, opened[0].query_network)  # type: ignore[attr-defined]
    assert expression(opened[2]) == "spar-marco-unicoil"
    exact = parse_model("spar-marco-unicoil(precision=float32)")
    assert isinstance(exact, Dense)
    (vector,) = exact.document_embeddings([DOCUMENT])[0]
    assert vector == pytest.approx(dense_by_hand(towers[0], tokens, DOCUMENT["title"], DOCUMENT["text"]), abs=1e-4)
    (vector,) = exact.query_embeddings([QUERY])[0]
    assert vector == pytest.approx(dense_by_hand(towers[1], tokens, QUERY), abs=1e-4)


def test_a_dense_encoder_by_its_name_is_pooled_as_published(hub: Path) -> None:
    model = tiny_bert()
    for name in ("facebook/contriever", "Luyu/co-condenser-marco-retriever"):
        model.save_pretrained(hub / name)
        tokens = save_bert_tokenizer(hub / name)
    ids = tokens(QUERY)["input_ids"]
    for asked, expected in (
        ("hf:facebook/contriever", states(model, ids).mean(0)),
        ("dense(checkpoint=Luyu/co-condenser-marco-retriever)", states(model, ids)[0]),
        ("dense(checkpoint=Luyu/co-condenser-marco-retriever, pooling=mean)", states(model, ids).mean(0)),
    ):
        dense = parse_model(asked)
        assert isinstance(dense, Dense)
        assert not dense.normalize
        assert dense.query_embeddings([QUERY])[0][0] == pytest.approx(expected, abs=0.1)  # in 8 bits


def test_ance_by_its_name(hub: Path) -> None:
    folder = hub / "castorini" / "ance-msmarco-passage"
    model, head, norm = made_encoder(KINDS["roberta"]()), linear(7), torch.nn.LayerNorm(7)
    model.config.save_pretrained(folder)
    tokens = save_pieces(folder)
    arrays = prefixed("ance_encoder.roberta.", model) | prefixed("ance_encoder.embeddingHead.", head)
    torch.save(arrays | prefixed("ance_encoder.norm.", norm), folder / "pytorch_model.bin")
    dense = parse_model("hf:castorini/ance-msmarco-passage")
    assert isinstance(dense, Dense)
    first = states(model, tokens(TEXTS[0])["input_ids"])[0]
    with torch.no_grad():
        expected = norm(head(torch.tensor(first))).numpy()
    assert dense.query_embeddings(TEXTS[:1])[0][0] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("runtime", ["onnx", "torch"])
def test_repbert(runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One encoder without tokenizer and model type; the mean of all tokens, those of documents of type 1."""
    monkeypatch.setenv("VIZSLA_RUNTIME", runtime)
    model = tiny_bert(vocab_size=UNCASED)
    folder = tmp_path / "ckpt-350000"
    model.config.save_pretrained(folder)
    content = json.loads((folder / "config.json").read_text())
    del content["model_type"]
    (folder / "config.json").write_text(json.dumps(content))
    torch.save(prefixed("bert.", model), folder / "pytorch_model.bin")
    dense = parse_model(f"repbert(checkpoint={folder}, precision=float32)")
    assert isinstance(dense, Dense)
    assert (dense.normalize, dense.query_length) == (False, 22)
    pieces = Analyzer.parse("wordpiece").tokenizer
    ids = [101, *pieces.ids([TEXT.replace("\n", " ")])[0], 102]  # type: ignore[attr-defined]
    (vector,) = dense.document_embeddings([DOCUMENT])[0]
    kinds = torch.ones(1, len(ids), dtype=torch.long)
    assert vector == pytest.approx(states(model, ids, token_type_ids=kinds).mean(0), abs=1e-4)
    ids = [101, *pieces.ids(["dogs " * 40])[0][:20], 102]  # type: ignore[attr-defined]
    (vector,) = dense.query_embeddings(["dogs " * 40])[0]
    assert vector == pytest.approx(states(model, ids).mean(0), abs=1e-4)
    with pytest.raises(VizslaError, match=r"name an encoder, as in repbert\(checkpoint=FOLDER\)"):
        parse_model("repbert")


class Settings:
    """Stands for the classes of omegaconf and of PyTorch Lightning."""


def save_with_settings(file: Path, content: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """Save a file with an object whose class is gone when the file is read."""
    monkeypatch.setattr(Settings, "__module__", "omegaconf.dictconfig")
    for name in ("omegaconf", "omegaconf.dictconfig"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["omegaconf.dictconfig"].Settings = Settings  # type: ignore[attr-defined]
    made = Settings()
    made.__dict__.update({"model_path": "bert-base-uncased", "types": [dict, Any]})
    torch.save(content | {"hyper_parameters": {"model": made}, "epoch": 3}, file, **options)
    for name in ("omegaconf", "omegaconf.dictconfig"):
        monkeypatch.delitem(sys.modules, name)


WHOLE = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": UNCASED}


@pytest.mark.parametrize("layout", ["dpr-scale", "dpr"])
def test_a_file_of_weights_has_two_encoders(layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The .ckpt of PyTorch Lightning that SPAR has, and DPR's .cp: no configuration, no tokenizer."""
    documents, queries = (tiny_bert(seed, **WHOLE) for seed in (0, 1))
    if layout == "dpr-scale":
        file, asked = tmp_path / "marco_lambda_unicoil_bert_base.ckpt", "dense(checkpoint={}, precision=float32)"
        arrays = prefixed("query_encoder.transformer.", queries) | prefixed("context_encoder.transformer.", documents)
        save_with_settings(file, {"state_dict": arrays}, monkeypatch)
    else:
        file, asked = tmp_path / "hf_bert_base.cp", "dpr(checkpoint={}, precision=float32)"
        arrays = prefixed("question_model.", queries) | prefixed("ctx_model.", documents)
        content = {"model_dict": arrays, "optimizer_dict": {}, "epoch": 39, "encoder_params": {"do_lower_case": True}}
        torch.save(content, file, _use_new_zipfile_serialization=False)
    dense = parse_model(asked.format(file))
    assert isinstance(dense, Dense)
    assert isinstance(dense.network, Network)
    assert (dense.separator, dense.normalize, dense.network.heads) == (" [SEP] ", False, 2)
    pieces = Analyzer.parse("wordpiece").tokenizer
    for model, text, made in (
        (documents, "Dogs [SEP] " + DOCUMENT["text"], dense.document_embeddings([DOCUMENT])),
        (queries, QUERY, dense.query_embeddings([QUERY])),
    ):
        ids = [101, *pieces.ids([text])[0], 102]  # type: ignore[attr-defined]
        assert made[0][0] == pytest.approx(states(model, ids)[0], abs=1e-4)


def test_colbert_in_a_file(tmp_path: Path) -> None:
    """BEIR's ColBERT: .dnn, with the projection beside the encoder."""
    model, projection = tiny_bert(**WHOLE), linear(4, 128)
    arrays = prefixed("bert.", model) | {"linear.weight": projection.weight.detach()}
    torch.save({"epoch": 0, "batch": 300000, "model_state_dict": arrays}, tmp_path / "colbert-300000.dnn")
    colbert = parse_model(f"colbert(checkpoint={tmp_path / 'colbert-300000.dnn'})")
    assert isinstance(colbert, ColBERT)
    assert colbert.dimensions == 4
    (vectors,) = colbert.query_embeddings(["dogs that point " * 20])
    pieces = Analyzer.parse("wordpiece").tokenizer
    ids = [101, 1, *pieces.ids(["dogs that point " * 20])[0][:29], 102]  # type: ignore[attr-defined]
    with torch.no_grad():
        expected = torch.nn.functional.normalize(torch.tensor(states(model, ids)) @ projection.weight.T, dim=1)
    assert vectors == pytest.approx(expected.numpy(), abs=1e-4)


def test_a_paper_row_runs_a_published_file(tmp_path: Path) -> None:
    """A cell says where the file must lie, and is measured when it lies there."""
    tiny, row = Tiny(tmp_path / "tiny"), "ColBERT, BEIR's checkpoint"
    table = load_table("beir/table-4")
    tiny.make(table)
    only = (row, "nDCG@10 with holes")
    run = Reproduction(table, tiny.data, tmp_path / "models", tmp_path / "o", only)
    (cell,) = run.as_data()["rows"][0]["cells"]
    assert f"into {tmp_path}/models/colbert-of-beir" in cell["reason"]
    assert "colbert-300000.dnn" in cell["reason"]
    small = replace(run, scale=tiny)  # no training makes it, so a tiny run says the same
    assert small.as_data()["rows"][0]["cells"][0]["reason"] == cell["reason"]
    assert [need.how for need in small.needs()] == [cell["reason"].removeprefix("not here: ")]
    place = tmp_path / "models" / "colbert-of-beir"
    place.mkdir(parents=True)
    model, projection = tiny_bert(**WHOLE), linear(4, 128)
    arrays = prefixed("bert.", model) | {"linear.weight": projection.weight.detach()}
    torch.save({"model_state_dict": arrays}, place / "colbert-300000.dnn")
    run.run()
    (cell,) = run.as_data()["rows"][0]["cells"]
    assert 0 <= cell["ours"] <= 1
    assert not cell["reason"]


def test_files_of_weights_that_cannot_be_read(tmp_path: Path) -> None:
    one, small = tiny_bert(**WHOLE), tiny_bert()
    three = {**prefixed("a.", one), **prefixed("b.", one)}
    for name, arrays, problem in (
        ("strange.pt", three, r"one encoder, or one for queries and one for documents; found: a\., b\."),
        ("nothing.pt", {"x": torch.ones(2)}, "one encoder, or one for queries and one for documents; found: none"),
        ("small.pt", prefixed("bert.", small), "states of 16 numbers has is not known; put its config.json beside it"),
        (
            "cased.pt",
            prefixed("bert.", tiny_bert(**{**WHOLE, "vocab_size": 500})),
            "has 500 word pieces, unlike bert-base-uncased; put its tokenizer.json beside it",
        ),
        (
            "more.pt",
            {
                **prefixed("question_model.", one),
                **prefixed("ctx_model.", one),
                "ctx_model.encode_proj.weight": torch.ones(2),
            },
            r"has a layer that cannot be read \(encode_proj.weight\)",
        ),
    ):
        torch.save(arrays, tmp_path / name)
        with pytest.raises(VizslaError, match=problem) as told:
            parse_model(f"dense(checkpoint={tmp_path / name})")
        assert "\n" not in str(told.value)
    torch.save(prefixed("bert.", one), tmp_path / "one.pt")
    with pytest.raises(VizslaError, match="dpr has two encoders; name both"):
        parse_model(f"dpr(checkpoint={tmp_path / 'one.pt'})")


class Malicious:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("archive", [True, False])
def test_nothing_in_a_file_is_run(archive: bool, tmp_path: Path) -> None:
    content = {"state_dict": prefixed("bert.", tiny_bert()), "hyper_parameters": Malicious(tmp_path / "made")}
    torch.save(content, tmp_path / "bad.ckpt", _use_new_zipfile_serialization=archive)
    with pytest.raises(VizslaError, match="not a weight file, or it is damaged") as told:
        parse_model(f"dense(checkpoint={tmp_path / 'bad.ckpt'})")
    assert not archive or "it names posix.mkdir, and nothing in a file is run" in str(told.value)
    assert not (tmp_path / "made").exists()


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def message(*fields: tuple[int, Any]) -> bytes:
    """A message in Protocol Buffers."""
    made = b""
    for number, value in fields:
        if isinstance(value, float):
            made += varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, int):
            made += varint(number << 3) + varint(value)
        else:
            data = value if isinstance(value, bytes) else value.encode()
            made += varint(number << 3 | 2) + varint(len(data)) + data
    return made


PIECES = [("<pad>", 0.0, 3), ("</s>", 0.0, 3), ("<unk>", 0.0, 2), ("▁dog", -2.0, 1), ("▁d", -3.0, 1), ("og", -3.5, 1)]
PIECES += [
    ("s", -2.5, 1),
    ("▁", -3.0, 1),
    ("▁point", -2.5, 1),
    ("▁points", -6.0, 1),
    ("▁birds", -3.0, 1),
    ("b", -7.0, 1),
]


def save_spiece(folder: Path) -> None:
    pieces = [(1, message((1, name), (2, score), (3, kind))) for name, score, kind in PIECES]
    (folder / "spiece.model").write_bytes(message(*pieces, (2, message((3, 1))), (3, message((1, "identity"), (3, 1)))))


def likeliest(text: str) -> list[str]:
    """The pieces of the highest sum of scores, by hand."""
    scores = {name: score for name, score, kind in PIECES if kind == 1}
    best: list[tuple[float, list[str]]] = [(0.0, [])] + [(-math.inf, [])] * len(text)
    for end in range(1, len(text) + 1):
        ways = [
            (best[a][0] + scores[text[a:end]], [*best[a][1], text[a:end]]) for a in range(end) if text[a:end] in scores
        ]
        best[end] = max(ways, default=best[end])
    return best[-1][1]


def test_t5_with_its_own_tokenizer_file(hub: Path) -> None:
    """docT5query has spiece.model and no tokenizer.json; the settings come from the list."""
    torch.manual_seed(0)
    config = transformers.T5Config(
        d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, vocab_size=112, decoder_start_token_id=0, eos_token_id=1
    )
    folder = hub / "castorini" / "doc2query-t5-base-msmarco"
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    save_spiece(folder)
    generator = open_generator("castorini/doc2query-t5-base-msmarco")
    assert (generator.task, generator.length, generator.name) == ("query", 512, "doct5query")
    checkpoint = generator.checkpoint  # type: ignore[attr-defined]
    names = [name for name, _, _ in PIECES]
    (ids,) = checkpoint.inputs(["dogs  points birds "])
    expected = [piece for word in ("▁dogs", "▁points", "▁birds") for piece in likeliest(word)]
    assert expected == ["▁dog", "s", "▁point", "s", "▁birds"]
    assert [names[i] for i in ids] == [*expected, "</s>"]
    assert checkpoint.texts([ids]) == ["dogs points birds"]
    assert checkpoint.tokenizer.token_to_id("<extra_id_0>") == len(PIECES) + 99
    assert len(generator.generate(["dogs"])[0]) == 40
    (folder / "spiece.model").write_bytes(b"nothing of the kind")
    shutil.rmtree(hub / "fetched")
    with pytest.raises(VizslaError, match="not a model of SentencePiece, or it is damaged"):
        open_generator("castorini/doc2query-t5-base-msmarco")


def test_a_name_that_does_not_search_says_what_does() -> None:
    with pytest.raises(VizslaError, match="which does not search; name it as in vizsla search --reranker hf:cross-enc"):
        parse_model("hf:cross-encoder/ms-marco-MiniLM-L-6-v2")
    with pytest.raises(VizslaError, match=r"docT5query.*which does not search; name it as in vizsla queries generate"):
        parse_model("hf:castorini/doc2query-t5-base-msmarco")


def test_the_list() -> None:
    names = [name for entry in published().values() for name in (entry.documents, entry.queries, *entry.also) if name]
    assert len(names) == len(set(names))
    kinds = {"dense", "unicoil", "coil", "sparta", "deepct", "splade", "colbert", "generator", "reranker"}
    for name, entry in published().items():
        assert entry.kind in kinds
        assert entry.about
        assert entry.licence
        assert entry.source.startswith("https://")
        assert entry.documents or entry.files or entry.two_encoders, name
        assert entry.bytes
    assert find_published("/somewhere/wiki_lambda_bm25_bert_base.ckpt") == published()["spar-wiki"]
    assert find_published("hf_bert_base.cp") is None  # several have a file of this name
    assert find_published("hf:castorini/ance-msmarco-passage", "generator") is None


def test_the_page_has_every_checkpoint() -> None:
    page = (Path(__file__).parent.parent / "docs" / "checkpoints.md").read_text("utf-8")
    for name, entry in published().items():
        assert f"`{name}`" in page, name
        for part in (entry.documents, entry.queries, *entry.also):
            assert part in page, part
        assert entry.licence in page, name
