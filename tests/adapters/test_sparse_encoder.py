"""Vectors beside those of sentence-transformers' SparseEncoder on the same checkpoints."""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sentence_transformers")
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

from small import small_model
from tiny_checkpoints import (
    KINDS,
    OLD,
    TEXTS,
    WORDS,
    dense_rows,
    masked_language,
    save_masked_language,
    save_pieces,
    save_splade,
    torch,
)
from vizsla import LearnedSparse, parse_model
from vizsla.models.saving import save_model

pytestmark = pytest.mark.usefixtures("cache")


def theirs(encoder: Any, texts: list[str] = TEXTS, side: str = "document") -> np.ndarray:
    encode = getattr(encoder, f"encode_{side}")
    return np.asarray(encode(texts, convert_to_sparse_tensor=False, show_progress_bar=False))


def ours(splade: Any, texts: list[str] = TEXTS, side: str = "document") -> np.ndarray:
    if side == "document":
        return dense_rows(splade.document_rows(texts), len(splade.terms))
    rows = splade.query_terms(texts)
    return np.array([[row.get(term, 0.0) for term in splade.terms] for row in rows])


@pytest.mark.parametrize(("how", "activation"), product(("max", "sum"), ("relu", "log1p_relu")))
def test_what_they_save_and_we_open(how: str, activation: str, tmp_path: Path) -> None:
    save_masked_language(tmp_path / "base", masked_language())
    network = Transformer(str(tmp_path / "base"), transformer_task="fill-mask")
    encoder = SparseEncoder(modules=[network, SpladePooling(how, activation)])
    encoder.save_pretrained(str(tmp_path / "saved"))
    splade = LearnedSparse.open(tmp_path / "saved", "float32")
    for side in ("document", "query"):
        assert ours(splade, side=side) == pytest.approx(theirs(encoder, side=side), abs=2e-4)


def test_the_older_layout(tmp_path: Path) -> None:
    save_masked_language(tmp_path / "m", masked_language())
    save_splade(tmp_path / "m", "sum", "log1p_relu", OLD)
    encoder = SparseEncoder(str(tmp_path / "m"))
    assert ours(LearnedSparse.open(tmp_path / "m", "float32")) == pytest.approx(theirs(encoder), abs=2e-4)


def test_transformers_own_layout(tmp_path: Path) -> None:
    save_masked_language(tmp_path / "m", masked_language())
    encoder = SparseEncoder(str(tmp_path / "m"))
    assert ours(LearnedSparse.open(tmp_path / "m", "float32")) == pytest.approx(theirs(encoder), abs=2e-4)


def test_a_router_whose_queries_need_no_network(tmp_path: Path) -> None:
    tokenizer = save_masked_language(tmp_path / "base", masked_language())
    table = SparseStaticEmbedding(tokenizer, torch.rand(WORDS), frozen=True)
    documents = [Transformer(str(tmp_path / "base"), transformer_task="fill-mask"), SpladePooling()]
    encoder = SparseEncoder(modules=[Router.for_query_document([table], documents)])
    encoder.save_pretrained(str(tmp_path / "saved"))
    splade = LearnedSparse.open(tmp_path / "saved", "float32")
    for side in ("document", "query"):
        assert ours(splade, side=side) == pytest.approx(theirs(encoder, side=side), abs=2e-4)
    save_model(splade, tmp_path / "again")
    again = SparseEncoder(str(tmp_path / "again"))
    for side in ("document", "query"):
        assert theirs(again, side=side) == pytest.approx(theirs(encoder, side=side), abs=1e-6)


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "modernbert", "relu-bert"])
def test_other_architectures(kind: str, tmp_path: Path) -> None:
    masked_language(KINDS[kind]()).save_pretrained(tmp_path / "m")
    save_pieces(tmp_path / "m")
    save_splade(tmp_path / "m", "max", "log1p_relu")
    encoder = SparseEncoder(str(tmp_path / "m"))
    assert ours(LearnedSparse.open(tmp_path / "m", "float32")) == pytest.approx(theirs(encoder), abs=2e-4)


@pytest.mark.parametrize("how", ["max", "sum"])
def test_what_we_save_and_they_open(how: str, tmp_path: Path) -> None:
    save_masked_language(tmp_path / "m", masked_language())
    save_splade(tmp_path / "m", how, "log1p_relu")
    splade = LearnedSparse.open(tmp_path / "m", "float32")
    assert save_model(splade, tmp_path / "saved")
    assert theirs(SparseEncoder(str(tmp_path / "saved"))) == pytest.approx(ours(splade), abs=2e-4)


def test_unicoil_needs_trusted_code(tmp_path: Path) -> None:
    model = small_model(tmp_path / "network")
    assert model.network.kind == "unicoil"
    assert save_model(model, tmp_path / "saved")
    modules = json.loads((tmp_path / "saved" / "modules.json").read_text())
    assert modules[1]["type"] == "unicoil_module.UniCoil"
    encoder = SparseEncoder(str(tmp_path / "saved"), trust_remote_code=True)
    terms = model.pieces.vocabulary
    for text, vector in zip(TEXTS, theirs(encoder), strict=True):
        (weights,) = model.query_terms([text])
        named = {terms[i]: vector[i] for i in np.flatnonzero(vector)}
        assert named == pytest.approx(weights, abs=0.1)  # the network that runs here has 8 bits
    with pytest.raises((ImportError, ValueError)):
        SparseEncoder(str(tmp_path / "saved"))
    encoder.save_pretrained(str(tmp_path / "again"))
    shutil.copyfile(tmp_path / "saved" / "unicoil_module.py", tmp_path / "again" / "unicoil_module.py")
    again = SparseEncoder(str(tmp_path / "again"), trust_remote_code=True)
    assert theirs(again) == pytest.approx(theirs(encoder), abs=1e-6)


def test_our_bm26_opens_there(tmp_path: Path) -> None:
    bm26 = parse_model("bm26")
    save_model(bm26, tmp_path / "bm26")
    encoder = SparseEncoder(str(tmp_path / "bm26"), trust_remote_code=True)
    for text, vector in zip(TEXTS[:1], theirs(encoder, TEXTS[:1]), strict=True):
        (weights,) = bm26.query_terms([text])  # type: ignore[attr-defined]
        terms = bm26.pieces.vocabulary  # type: ignore[attr-defined]
        assert {terms[i]: vector[i] for i in np.flatnonzero(vector)} == pytest.approx(weights, abs=0.1)
