"""Encoders as sentence-transformers saves them: pooling, layers, prompts, lengths and routers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_checkpoints import KINDS, TEXTS, made_encoder, save_modules, save_pieces, states, torch
from vizsla import Dense, Model, VizslaError

pytestmark = pytest.mark.usefixtures("cache")


@given(seed=st.integers(0, 1000), tokens=st.integers(1, 6))
def test_what_is_pooled(seed: int, tokens: int) -> None:
    from vizsla.neural.checkpoints.transformer import pool

    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(3, tokens, 4)).astype(np.float32)
    kept = rng.random((3, tokens)) < 0.6
    kept[np.arange(3), rng.integers(0, tokens, 3)] = True
    by_hand: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
        "mean": lambda r, _: r.mean(0),
        "cls": lambda r, _: r[0],
        "lasttoken": lambda r, _: r[-1],
        "max": lambda r, _: r.max(0),
        "weightedmean": lambda r, at: (r * (at + 1)[:, None]).sum(0) / (at + 1).sum(),
        "mean_sqrt_len": lambda r, _: r.sum(0) / np.sqrt(len(r)),
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
    assert (dense.dimensions, dense.normalize, dense.network.length) == (5, True, 20)
    made = {"ask: ": dense.query_embeddings(TEXTS)[0], "read: ": dense.dense_documents(TEXTS)[0]}
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
    with pytest.raises(VizslaError, match="does not fit the layer before it"):
        Dense.open(folder).dense_documents(TEXTS)


def test_prompts_that_are_not_pooled(tmp_path: Path) -> None:
    model = made_encoder(KINDS["roberta"]())
    model.save_pretrained(tmp_path / "e")
    tokens = save_pieces(tmp_path / "e")
    pooling = {"pooling_mode": ["mean", "lasttoken"], "include_prompt": False}
    save_modules(tmp_path / "e", ("1_Pooling", "Pooling", pooling), prompts={"query": "Find birds: "})
    dense = Dense.open(tmp_path / "e")
    (vector,) = dense.query_embeddings(["dogs that point"])[0]
    found = states(model, tokens("Find birds: dogs that point")["input_ids"])
    skipped = len(tokens("Find birds: ")["input_ids"]) - 1
    assert vector == pytest.approx(np.concatenate([found[skipped:].mean(0), found[-1]]), abs=1e-5)
    found = states(model, tokens("dogs that point")["input_ids"])  # documents have no prompt: all is pooled
    (vector,) = dense.dense_documents(["dogs that point"])[0]
    assert vector == pytest.approx(np.concatenate([found.mean(0), found[-1]]), abs=1e-5)


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
    made = {"query": dense.query_embeddings(TEXTS)[0], "document": dense.dense_documents(TEXTS)[0]}
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
    with pytest.raises(VizslaError, match="this router has no route for a query"):
        Dense.open(tmp_path / "s")
