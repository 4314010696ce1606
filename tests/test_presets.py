"""Dense models by name: the vectors are those of transformers run by hand, as each paper says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tiny_checkpoints import (
    DOCUMENTS,
    KINDS,
    SMALL,
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
from vizsla import Dense, VizslaError, parse_model
from vizsla.models import Network
from vizsla.models.dense import PRESETS

pytestmark = pytest.mark.usefixtures("cache")


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
    assert (dense.normalize, dense.separator) == (False, " [SEP] ")
    long = {"title": "Cars", "text": "Taxes on vehicles, " * 30}
    made = dense.dense_documents([dense.text_of(d) for d in (*DOCUMENTS[:2], long)])[0]
    for document, vector in zip((*DOCUMENTS[:2], long), made, strict=True):
        texts = (document["title"], document["text"]) if document["title"] else (document["text"],)
        ids = tokens(*texts, truncation=True, max_length=64)["input_ids"]
        with torch.no_grad():
            expected = towers[0](torch.tensor([ids])).pooler_output[0]
        assert vector == pytest.approx(expected.numpy(), abs=1e-5)
    (vector,) = dense.query_embeddings(["Which dog?"])[0]
    with torch.no_grad():
        expected = towers[1](torch.tensor([tokens("Which dog?")["input_ids"]])).pooler_output[0]
    assert vector == pytest.approx(expected.numpy(), abs=1e-5)


def test_a_projection_of_dpr(tmp_path: Path) -> None:
    config = transformers.DPRConfig(**SMALL, vocab_size=WORDS, max_position_embeddings=64, projection_dim=6)
    tower = transformers.DPRContextEncoder(config).eval()
    tower.save_pretrained(tmp_path / "d")
    tokens = save_bert_tokenizer(tmp_path / "d")
    dense = Dense.open(tmp_path / "d")
    assert dense.dimensions == 6
    with torch.no_grad():
        expected = tower(torch.tensor([tokens("dogs that point")["input_ids"]])).pooler_output[0]
    assert dense.dense_documents(["dogs that point"])[0][0] == pytest.approx(expected.numpy(), abs=1e-5)


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
    assert (dense.dimensions, dense.normalize, dense.length, dense.query_length) == (7, False, 64, 64)
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
    for text, vector in zip(TEXTS, dense.query_embeddings(TEXTS)[0], strict=True):
        ids = ([cls] + [i for t in ("[", "q", "]") for i in plain(t)] + plain(text) + [mask] * 36)[:36]
        assert vector == pytest.approx(states(model, ids)[4:].mean(0), abs=1e-5)
    assert not dense.query_embeddings(["", "\u200b"])[1].any()


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
    (vector,) = dense.query_embeddings(["dogs that point " * 30])[0]
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
    made = dense.query_embeddings(TEXTS)[0], dense.dense_documents(TEXTS)[0]
    for prompt, vectors in zip(prompts, made, strict=True):
        for text, vector in zip(TEXTS, vectors, strict=True):
            found = states(model, tokens(prompt + text, truncation=True, max_length=64)["input_ids"])
            expected = found[0] if first else found.mean(0)
            expected = expected / np.linalg.norm(expected) if unit else expected
            assert vector == pytest.approx(expected, abs=1e-5)
    same = parse_model(f"dense(checkpoint={tmp_path / 'e'}, precision=float32, preset={preset})")
    assert same.parts[0].component.index_signature == dense.index_signature
    other = parse_model(
        f"dense(checkpoint={tmp_path / 'e'}, preset={preset}, similarity=cosine, pooling=max/lasttoken)"
    )
    assert isinstance(other, Dense)
    assert (other.normalize, other.network.pooling, other.dimensions) == (True, ("max", "lasttoken"), 32)


def test_every_preset_names_its_encoders_or_asks_for_them() -> None:
    for name, preset in PRESETS.items():
        assert preset.about
        assert (not preset.documents) == (name in ("rocketqa", "repbert"))
        assert preset.two == (name.split("-")[0] in ("dpr", "spar", "rocketqa") or name == "ance-dpr")
    with pytest.raises(VizslaError, match="unknown preset 'tasb'; did you mean 'tas-b'"):
        parse_model("dense(checkpoint=x, preset=tasb)")
    with pytest.raises(VizslaError, match="unknown similarity 'angle'"):
        parse_model("tas-b(checkpoint=x, similarity=angle)")
