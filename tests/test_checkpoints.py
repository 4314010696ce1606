"""Encoders of any kind as others save them: the vectors are those of transformers run by hand, as each paper says."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from vizsla.errors import VizslaError  # noqa: E402
from vizsla.index import Index  # noqa: E402
from vizsla.models import Dense, Model, Network, parse_model  # noqa: E402
from vizsla.models.presets import PRESETS  # noqa: E402
from vizsla.models.transformer import Transformer  # noqa: E402
from vizsla.text import Analyzer  # noqa: E402

TEXTS = ["A dog that points at birds.", "Taxes on vehicles, " * 30, "x", "Dogs and birds in a field"]
WORDS = 3000
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
DOCUMENTS = [
    {"id": "1", "title": "Dogs", "text": "A dog that points and retrieves birds."},
    {"id": "2", "title": "", "text": "Taxes on vehicles that are used for business."},
    {"id": "3", "title": "Puppies", "text": "Young hounds learn to fetch."},
    {"id": "4", "title": "", "text": " "},
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("vizsla.networks.inference.has_fast_bfloat16", lambda _: False)
    torch.manual_seed(7)
    return tmp_path / "cache" / "vizsla"


def save_bert_tokenizer(folder: Path) -> Any:
    """BERT's word pieces, the first of them."""
    words = Analyzer.parse("wordpiece").tokenizer.vocabulary[:WORDS]  # type: ignore[attr-defined]
    made = transformers.BertTokenizerFast(vocab={t: i for i, t in enumerate(words)}, do_lower_case=True)
    made.save_pretrained(folder)
    return made


def save_pieces(folder: Path, start: str = "<s>", end: str = "</s>", length: int = 64) -> Any:
    """A tokenizer of its own over bytes, each text between two special tokens, or before one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    made.train_from_iterator(TEXTS + [d["text"] for d in DOCUMENTS], trainer)
    frame = f"{start} $A {end}".strip()
    numbers = [(t, made.token_to_id(t)) for t in (start, end) if t]
    made.post_processor = processors.TemplateProcessing(single=frame, special_tokens=numbers)
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>", "eos_token": end, "sep_token": end}
    names |= {"cls_token": start, "bos_token": start} if start else {}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=length, **names)
    fast.save_pretrained(folder)
    return fast


def save_modules(folder: Path, *modules: tuple[str, str, dict[str, Any]], **about: Any) -> None:
    """What sentence-transformers writes beside an encoder."""
    kinds = [("", "Transformer"), *((path, kind) for path, kind, _ in modules)]
    told = [
        {"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{k}"}
        for i, (p, k) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(told))
    for path, _, config in modules:
        (folder / path).mkdir(exist_ok=True)
        (folder / path / "config.json").write_text(json.dumps(config))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(about))


def states(model: Any, ids: list[int], **more: Any) -> np.ndarray:
    with torch.no_grad():
        found = model(input_ids=torch.tensor([ids]), **more).last_hidden_state[0]
    return np.asarray(found)


KINDS: dict[str, Callable[[], Any]] = {
    "roberta": lambda: transformers.RobertaConfig(
        **SMALL, vocab_size=400, max_position_embeddings=70, pad_token_id=0, type_vocab_size=1
    ),
    "xlm-roberta": lambda: transformers.XLMRobertaConfig(
        **SMALL, vocab_size=400, max_position_embeddings=70, pad_token_id=0
    ),
    "distilbert": lambda: transformers.DistilBertConfig(
        dim=16, n_layers=2, n_heads=2, hidden_dim=24, vocab_size=400, max_position_embeddings=64
    ),
    "mpnet": lambda: transformers.MPNetConfig(**SMALL, vocab_size=400, max_position_embeddings=70, pad_token_id=0),
    "electra": lambda: transformers.ElectraConfig(
        **SMALL, embedding_size=8, vocab_size=400, max_position_embeddings=64
    ),
    "albert": lambda: transformers.AlbertConfig(
        **SMALL, embedding_size=8, vocab_size=400, max_position_embeddings=64
    ),
    "modernbert": lambda: transformers.ModernBertConfig(
        **SMALL, vocab_size=400, max_position_embeddings=64, pad_token_id=0, bos_token_id=2, eos_token_id=3,
        cls_token_id=2, sep_token_id=3,
    ),
    "t5": lambda: transformers.T5Config(d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, vocab_size=400),
    "relu-bert": lambda: transformers.BertConfig(
        **SMALL, hidden_act="relu", vocab_size=400, max_position_embeddings=64
    ),
}  # fmt: skip


def made_encoder(config: Any) -> Any:
    if config.model_type == "t5":
        return transformers.T5EncoderModel(config).eval()
    return transformers.AutoModel.from_config(config).eval()


@pytest.mark.parametrize("kind", KINDS)
def test_any_architecture(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / kind
    model = made_encoder(KINDS[kind]())
    model.save_pretrained(folder)
    tokens = save_pieces(folder)
    dense = Dense.open(folder)
    assert isinstance(dense.network, Transformer)
    assert (dense.dimensions, dense.network.length, dense.normalised) == (16, 64, False)
    vectors, there = dense.dense_documents([*TEXTS, "", " \n"])
    assert there.tolist() == [True] * 4 + [False] * 2
    assert not vectors[4:].any()
    for text, vector in zip(TEXTS, vectors, strict=False):
        ids = tokens(text, truncation=True, max_length=64)["input_ids"]
        assert vector == pytest.approx(states(model, ids).mean(0), abs=1e-5)
    assert dense.dense_queries([""]) == [None]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), tokens=st.integers(1, 6))
def test_what_is_pooled(seed: int, tokens: int) -> None:
    from vizsla.networks.texts import pool

    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(3, tokens, 4)).astype(np.float32)
    kept = rng.random((3, tokens)) < 0.6
    kept[np.arange(3), rng.integers(0, tokens, 3)] = True
    by_hand: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
        "mean": lambda r, _: r.mean(0),
        "first": lambda r, _: r[0],
        "last": lambda r, _: r[-1],
        "max": lambda r, _: r.max(0),
        "weighted": lambda r, at: (r * (at + 1)[:, None]).sum(0) / (at + 1).sum(),
        "root": lambda r, _: r.sum(0) / np.sqrt(len(r)),
    }
    for how, expected in by_hand.items():
        found = pool(torch.tensor(rows), torch.tensor(kept), how).numpy()
        for row, mask, vector in zip(rows, kept, found, strict=True):
            assert vector == pytest.approx(expected(row[mask], np.flatnonzero(mask)), abs=1e-5)


def test_layers_prompts_and_lengths_of_sentence_transformers(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    folder = tmp_path / "e"
    model = made_encoder(KINDS["distilbert"]())
    model.save_pretrained(folder)
    tokens = save_pieces(folder)
    save_modules(
        folder,
        ("1_Pooling", "Pooling", {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}),
        ("2_Dense", "Dense", {"in_features": 32, "out_features": 5, "bias": True,
                              "activation_function": "torch.nn.modules.activation.Tanh"}),
        ("3_LayerNorm", "LayerNorm", {"dimension": 5}),
        ("4_Normalize", "Normalize", {}),
        prompts={"query": "ask: ", "passage": "read: "}, similarity_fn_name="cosine",
    )  # fmt: skip
    (folder / "sentence_distilbert_config.json").write_text('{"max_seq_length": 20, "do_lower_case": true}')
    linear, norm = torch.nn.Linear(32, 5), torch.nn.LayerNorm(5)
    torch.nn.init.normal_(norm.weight)
    save_file({f"linear.{n}": p.detach() for n, p in linear.named_parameters()}, folder / "2_Dense/model.safetensors")
    torch.save({f"norm.{n}": p.detach() for n, p in norm.named_parameters()}, folder / "3_LayerNorm/pytorch_model.bin")
    dense = Dense.open(folder)
    assert (dense.dimensions, dense.normalised, dense.network.length) == (5, True, 20)
    made = {"ask: ": dense.dense_queries(TEXTS), "read: ": dense.dense_documents(TEXTS)[0]}
    for prompt, vectors in made.items():
        for text, vector in zip(TEXTS, vectors, strict=True):
            found = states(model, tokens((prompt + text).lower(), truncation=True, max_length=20)["input_ids"])
            pooled = torch.tensor(np.concatenate([found[0], found.max(0)]))
            with torch.no_grad():
                expected = norm(torch.tanh(linear(pooled)))
            assert vector == pytest.approx((expected / expected.norm()).numpy(), abs=1e-5)
    told = json.loads((folder / "1_Pooling/config.json").read_text())
    told |= {"pooling_mode_cls_token": False, "pooling_mode_max_tokens": False, "pooling_mode_lasttoken": True}
    (folder / "1_Pooling/config.json").write_text(json.dumps(told))
    with pytest.raises(VizslaError, match="does not fit what comes before"):
        Dense.open(folder).dense_documents(TEXTS)


def test_prompts_that_are_not_pooled(tmp_path: Path) -> None:
    model = made_encoder(KINDS["roberta"]())
    model.save_pretrained(tmp_path / "e")
    tokens = save_pieces(tmp_path / "e")
    pooling = {"pooling_mode": ["mean", "lasttoken"], "include_prompt": False}
    save_modules(tmp_path / "e", ("1_Pooling", "Pooling", pooling), prompts={"query": "Find birds: "})
    dense = Dense.open(tmp_path / "e")
    (vector,) = dense.dense_queries(["dogs that point"])
    found = states(model, tokens("Find birds: dogs that point")["input_ids"])
    skipped = len(tokens("Find birds: ")["input_ids"]) - 1
    assert vector == pytest.approx(np.concatenate([found[skipped:].mean(0), found[-1]]), abs=1e-5)
    found = states(model, tokens("dogs that point")["input_ids"])  # documents have no prompt: all is pooled
    (vector,) = dense.dense_documents(["dogs that point"])[0]
    assert vector == pytest.approx(np.concatenate([found.mean(0), found[-1]]), abs=1e-5)


def bert_config(**options: Any) -> Any:
    return transformers.BertConfig(**{**SMALL, "vocab_size": WORDS, "max_position_embeddings": 64, **options})


@pytest.mark.parametrize("runtime", ["onnx", "torch"])
def test_dpr(runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Title [SEP] text, the first token, inner products; the arrays lie under question_encoder and ctx_encoder."""
    monkeypatch.setenv("VIZSLA_RUNTIME", runtime)
    config = transformers.DPRConfig(**SMALL, vocab_size=WORDS, max_position_embeddings=64)
    towers = transformers.DPRContextEncoder(config).eval(), transformers.DPRQuestionEncoder(config).eval()
    for tower, name in zip(towers, ("d", "q"), strict=True):
        tower.save_pretrained(tmp_path / name)
        tokens = save_bert_tokenizer(tmp_path / name)
    torch.save(towers[1].state_dict(), tmp_path / "q" / "pytorch_model.bin")  # as they were first published
    (tmp_path / "q" / "model.safetensors").unlink()
    (tmp_path / "q" / "tokenizer.json").unlink()
    (tmp_path / "q" / "vocab.txt").write_text("\n".join(sorted(tokens.vocab, key=tokens.vocab.get)) + "\n")
    dense = parse_model(f"dpr(checkpoint={tmp_path / 'd'}, query_checkpoint={tmp_path / 'q'}, precision=float32)")
    assert isinstance(dense, Dense)
    assert isinstance(dense.network, Network)
    assert isinstance(dense.query_network, Network)
    assert (dense.normalised, dense.separator) == (False, " [SEP] ")
    long = {"title": "Cars", "text": "Taxes on vehicles, " * 30}
    made = dense.dense_documents([dense.text_of(d) for d in (*DOCUMENTS[:2], long)])[0]
    for document, vector in zip((*DOCUMENTS[:2], long), made, strict=True):
        texts = (document["title"], document["text"]) if document["title"] else (document["text"],)
        ids = tokens(*texts, truncation=True, max_length=64)["input_ids"]
        with torch.no_grad():
            expected = towers[0](torch.tensor([ids])).pooler_output[0]
        assert vector == pytest.approx(expected.numpy(), abs=1e-5)
    (vector,) = dense.dense_queries(["Which dog?"])
    with torch.no_grad():
        expected = towers[1](torch.tensor([tokens("Which dog?")["input_ids"]])).pooler_output[0]
    assert vector == pytest.approx(expected.numpy(), abs=1e-5)


def test_a_projection_of_dpr_and_bert_inside_of_something_else(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("prefix", ["", "ance_encoder."])
def test_ance(prefix: str, tmp_path: Path) -> None:
    """The first token of RoBERTa, a linear layer and a normalisation, all in one file."""
    model = made_encoder(KINDS["roberta"]())
    model.config.save_pretrained(tmp_path / "a")
    tokens = save_pieces(tmp_path / "a")
    head, norm = torch.nn.Linear(16, 7), torch.nn.LayerNorm(7)
    torch.nn.init.normal_(norm.bias)
    arrays = {f"roberta.{n}": p for n, p in model.state_dict().items()}
    arrays |= {f"embeddingHead.{n}": p for n, p in head.state_dict().items()}
    arrays |= {f"norm.{n}": p for n, p in norm.state_dict().items()}
    arrays |= {f"classifier.dense.{n}": p for n, p in head.state_dict().items()}
    torch.save({prefix + n: p for n, p in arrays.items()}, tmp_path / "a" / "pytorch_model.bin")
    dense = parse_model(f"ance(checkpoint={tmp_path / 'a'})")
    assert isinstance(dense, Dense)
    assert (dense.dimensions, dense.normalised, dense.length, dense.query_length) == (7, False, 64, 64)
    for text, vector in zip(TEXTS, dense.dense_documents(TEXTS)[0], strict=True):
        first = states(model, tokens(text, truncation=True, max_length=64)["input_ids"])[0]
        with torch.no_grad():
            assert vector == pytest.approx(norm(head(torch.tensor(first))).numpy(), abs=1e-5)


def test_tct_colbert(tmp_path: Path) -> None:
    """[Q] and [D] are cut into three pieces; the mean is of what follows them, and queries are filled with masks."""
    model = transformers.BertModel(bert_config()).eval()
    model.save_pretrained(tmp_path / "t")
    tokens = save_bert_tokenizer(tmp_path / "t")
    dense = parse_model(f"tct-colbert(checkpoint={tmp_path / 't'})")
    assert isinstance(dense, Dense)
    cls, sep, mask = tokens.convert_tokens_to_ids(["[CLS]", "[SEP]", "[MASK]"])

    def plain(text: str) -> list[int]:
        return tokens(text, add_special_tokens=False)["input_ids"]  # type: ignore[no-any-return]

    for text, vector in zip(TEXTS, dense.dense_documents(TEXTS)[0], strict=True):
        ids = ([cls] + [i for t in ("[", "d", "]") for i in plain(t)] + plain(text))[:64]
        assert sep not in ids
        assert vector == pytest.approx(states(model, ids)[4:].mean(0), abs=1e-5)
    for text, vector in zip(TEXTS, dense.dense_queries(TEXTS), strict=True):
        ids = ([cls] + [i for t in ("[", "q", "]") for i in plain(t)] + plain(text) + [mask] * 36)[:36]
        assert vector == pytest.approx(states(model, ids)[4:].mean(0), abs=1e-5)
    assert dense.dense_queries(["", "\u200b"]) == [None, None]


def test_rocketqa(tmp_path: Path) -> None:
    """Title and text are a pair with segments of their own; a document without a title is a pair, too."""
    towers = [transformers.BertModel(bert_config(hidden_act="relu")).eval() for _ in range(2)]
    for tower, name in zip(towers, ("d", "q"), strict=True):
        tower.save_pretrained(tmp_path / name)
        tokens = save_bert_tokenizer(tmp_path / name)
    with pytest.raises(VizslaError, match="rocketqa has two encoders; name both"):
        parse_model(f"rocketqa(checkpoint={tmp_path / 'd'})")
    dense = parse_model(f"rocketqa(checkpoint={tmp_path / 'd'}, query_checkpoint={tmp_path / 'q'})")
    assert isinstance(dense, Dense)
    documents = [*DOCUMENTS[:3], {"title": "Cars", "text": "Taxes on vehicles, " * 30}]
    rows, _ = dense.dense_documents([dense.text_of(d) for d in documents])
    for document, vector in zip(documents, rows, strict=True):
        told = tokens(document["title"], document["text"], truncation="only_second", max_length=64)
        kinds = torch.tensor([told["token_type_ids"]])
        assert sorted(set(told["token_type_ids"])) == [0, 1]
        expected = states(towers[0], told["input_ids"], token_type_ids=kinds)[0]
        assert vector == pytest.approx(expected, abs=1e-5)
    (vector,) = dense.dense_queries(["dogs that point " * 30])
    ids = tokens("dogs that point " * 30, truncation=True, max_length=32)["input_ids"]
    assert vector == pytest.approx(states(towers[1], ids)[0], abs=1e-5)


def test_gtr(tmp_path: Path) -> None:
    model = made_encoder(KINDS["t5"]())
    model.save_pretrained(tmp_path / "g")
    tokens = save_pieces(tmp_path / "g", start="")
    about = {"in_features": 16, "out_features": 6, "bias": False}
    save_modules(
        tmp_path / "g",
        ("1_Pooling", "Pooling", {"pooling_mode_mean_tokens": True}),
        ("2_Dense", "Dense", {**about, "activation_function": "torch.nn.modules.linear.Identity"}),
        ("3_Normalize", "Normalize", {}),
    )
    weight = torch.randn(6, 16)
    torch.save({"linear.weight": weight}, tmp_path / "g" / "2_Dense" / "pytorch_model.bin")
    dense = parse_model(f"gtr(checkpoint={tmp_path / 'g'})")
    assert isinstance(dense, Dense)
    for text, vector in zip(TEXTS, dense.dense_documents(TEXTS)[0], strict=True):
        found = states(model, tokens(text, truncation=True, max_length=64)["input_ids"]).mean(0)
        expected = weight.numpy() @ found
        assert vector == pytest.approx(expected / np.linalg.norm(expected), abs=1e-5)


@pytest.mark.parametrize(
    ("preset", "kind", "first", "unit", "prompts"),
    [
        ("tas-b", "distilbert", True, False, ("", "")),
        ("contriever", "bert", False, False, ("", "")),
        ("contriever-msmarco", "bert", False, False, ("", "")),
        ("e5", "bert", False, True, ("query: ", "passage: ")),
        ("bge", "bert", True, True, ("Represent this sentence for searching relevant passages: ", "")),
    ],
)
def test_presets_of_one_encoder(
    preset: str, kind: str, first: bool, unit: bool, prompts: tuple[str, str], tmp_path: Path
) -> None:
    model = made_encoder(bert_config() if kind == "bert" else transformers.DistilBertConfig(dim=16, n_layers=1,
        n_heads=2, hidden_dim=24, max_position_embeddings=64))  # fmt: skip
    model.save_pretrained(tmp_path / "e")
    tokens = save_bert_tokenizer(tmp_path / "e")
    dense = parse_model(f"{preset}(checkpoint={tmp_path / 'e'}, precision=float32)")
    assert isinstance(dense, Dense)
    assert dense.namespace == preset
    made = dense.dense_queries(TEXTS), dense.dense_documents(TEXTS)[0]
    for prompt, vectors in zip(prompts, made, strict=True):
        for text, vector in zip(TEXTS, vectors, strict=True):
            found = states(model, tokens(prompt + text, truncation=True, max_length=64)["input_ids"])
            expected = found[0] if first else found.mean(0)
            expected = expected / np.linalg.norm(expected) if unit else expected
            assert vector == pytest.approx(expected, abs=1e-5)
    same = parse_model(f"dense(checkpoint={tmp_path / 'e'}, precision=float32, preset={preset})")
    assert same.parts[0].component.storage == dense.storage
    other = parse_model(f"dense(checkpoint={tmp_path / 'e'}, preset={preset}, similarity=cosine, pooling=max/last)")
    assert isinstance(other, Dense)
    assert (other.normalised, other.network.pooling, other.dimensions) == (True, ("max", "last"), 32)


def test_every_preset_names_its_encoders_or_asks_for_them() -> None:
    for name, preset in PRESETS.items():
        assert preset.about
        assert (not preset.documents) == (name == "rocketqa")
        assert preset.two == (name.split("-")[0] in ("dpr", "spar", "rocketqa"))
    with pytest.raises(VizslaError, match="no preset called 'tasb'; did you mean 'tas-b'"):
        parse_model("dense(checkpoint=x, preset=tasb)")
    with pytest.raises(VizslaError, match="no similarity called 'angle'"):
        parse_model("tas-b(checkpoint=x, similarity=angle)")


def test_two_ways_through_a_router(tmp_path: Path) -> None:
    names = {"query": "query_0_Transformer", "document": "document_0_Transformer"}
    models = {}
    for side, name in names.items():
        models[side] = made_encoder(KINDS["distilbert"]())
        models[side].save_pretrained(tmp_path / "r" / name)
        tokens = save_pieces(tmp_path / "r" / name)
    save_modules(tmp_path / "r", ("1_Pooling", "Pooling", {"pooling_mode": "cls"}))
    modules = json.loads((tmp_path / "r" / "modules.json").read_text())
    modules[0]["type"] = "sentence_transformers.base.modules.router.Router"
    (tmp_path / "r" / "modules.json").write_text(json.dumps(modules))
    types = dict.fromkeys(names.values(), "sentence_transformers.models.Transformer")
    told: dict[str, Any] = {"types": types, "structure": {side: [name] for side, name in names.items()}}
    (tmp_path / "r" / "router_config.json").write_text(json.dumps(told | {"parameters": {}}))
    dense = Dense.open(tmp_path / "r")
    made = {"query": dense.dense_queries(TEXTS), "document": dense.dense_documents(TEXTS)[0]}
    for side, vectors in made.items():
        for text, vector in zip(TEXTS, vectors, strict=True):
            ids = tokens(text, truncation=True, max_length=64)["input_ids"]
            assert vector == pytest.approx(states(models[side], ids)[0], abs=1e-5)
    dense.save(tmp_path / "m")
    shutil.rmtree(tmp_path / "r")
    again = Model.load(tmp_path / "m")
    assert isinstance(again, Dense)
    assert again == dense
    assert np.array_equal(again.dense_documents(TEXTS)[0], made["document"])
    del told["structure"]["query"]
    shutil.copytree(tmp_path / "m" / dense.network.digest[:12], tmp_path / "s")
    (tmp_path / "s" / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "s" / "router_config.json").write_text(json.dumps(told))
    with pytest.raises(VizslaError, match="no way for a query through this router"):
        Dense.open(tmp_path / "s")


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
        assert index.verify() == []
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
        (tmp_path / "nowhere", "there is no such folder"),
        (bare, "there is no tokenizer here"),
        (light, "there are no weights here"),
        (broken, "no tokenizer here that can be read"),
        (damaged, "no file of weights, or a damaged one"),
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
    with pytest.raises(VizslaError, match="no pooling called 'middle'"):
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
    with pytest.raises(VizslaError, match="makes numbers that are none"):
        dense.dense_documents(["dogs"])


def test_without_torch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.util import find_spec

    absent = {"torch", "transformers"}
    monkeypatch.setattr("vizsla.models.transformer.find_spec", lambda name: None if name in absent else find_spec(name))
    with pytest.raises(VizslaError, match=r"kind distilbert is run by torch .* pip install torch transformers$"):
        Dense.open(folder)


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
