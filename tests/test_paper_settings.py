"""Recipes and presets that are named after papers have the settings of these papers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vizsla import VizslaError
from vizsla.expansion import PRESETS
from vizsla.models import MODELS
from vizsla.training import load_training_recipe
from vizsla.training.settings import keys_of


def settings_of(recipe: str) -> dict[str, object]:
    return {key.name: key.value for key in keys_of(load_training_recipe(recipe).settings)}


def test_deepct_in_beir_has_anserinis_k1_and_b() -> None:
    """Section 4 of the BEIR paper: BM25 with default Anserini parameters."""
    options = {option.name: option.default for option in MODELS["deepct-beir"].options}
    assert (options["k1"], options["b"]) == (0.9, 0.4)
    trained = settings_of("deepct-beir")
    assert (trained["counts.k1"], trained["counts.b"]) == (0.9, 0.4)


def test_doct5query_in_beir_draws_forty_queries() -> None:
    """Section 4 of the BEIR paper; top-k and top-p are of its example."""
    assert (PRESETS["beir"].texts, PRESETS["beir"].top_k, PRESETS["beir"].top_p) == (40, 10, 0.95)


def test_repbert_as_in_its_paper() -> None:
    """Section 4.2: 20 and 256 tokens, two batches of 26, 350k steps, 3e-6 after 10,000 steps, dropout of 0.1."""
    wanted = {
        "data.max_query_length": 20 + 2, "data.max_document_length": 256 + 2, "data.negatives_per_query": 0,
        "network.dropout": 0.1, "network.base_model": "google-bert/bert-base-uncased", "network.pooling": "mean",
        "training.batch_size": 2 * 26, "training.steps": 350_000, "training.learning_rate": 3e-6,
        "training.warmup_steps": 10_000, "training.weight_decay": 0.01, "loss.name": "margin",
    }  # fmt: skip
    told = settings_of("repbert-paper")
    assert {name: told[name] for name in wanted} == wanted


def test_dropout_changes_training_alone(start: Path) -> None:
    from vizsla.neural.chunks import packed
    from vizsla.training.kinds.dense import DenseNetwork, dense_network

    ids = torch.arange(2000, 2012).view(2, 6)
    chunk = packed(ids, torch.ones_like(ids, dtype=torch.bool), 100).chunks[0]

    def vectors(dropout: float, *, training: bool, tied: bool = True) -> torch.Tensor:
        network, _ = dense_network(DenseNetwork(str(start), dropout=dropout, tied_encoders=tied))
        torch.manual_seed(0)
        with torch.no_grad():
            return network.train(training)(chunk)

    for tied in (True, False):
        usual = vectors(0.0, training=True, tied=tied)
        assert torch.equal(vectors(0.1, training=False, tied=tied), vectors(0.0, training=False, tied=tied))
        assert not torch.allclose(vectors(0.1, training=True, tied=tied), usual)
    with pytest.raises(VizslaError, match=r"network.dropout must be 0 or more and below 1, not 1$"):
        DenseNetwork(dropout=1.0)
