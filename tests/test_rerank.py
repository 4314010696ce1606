"""Cross-encoders: how they are trained, what they give, and runs that they rank anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from conftest import Cli  # noqa: E402
from vizsla.datasets import BeirDataset  # noqa: E402
from vizsla.errors import VizslaError  # noqa: E402
from vizsla.models import Reranker  # noqa: E402
from vizsla.networks import Cross, cross_encoder, packed  # noqa: E402
from vizsla.networks.joint import joint_ids  # noqa: E402
from vizsla.recipes.cross import cross_material, cross_network  # noqa: E402
from vizsla.recipes.training import load_training_recipe  # noqa: E402
from vizsla.training import (  # noqa: E402
    CrossDev,
    CrossMaterial,
    CrossPairs,
    MinedPairs,
    Settings,
    TokenCorpus,
    Trainer,
    answered_first,
    group_loss,
)

SMALL = ["steps=2", "batch=8", "evaluate=2", "chunk=2000", "keep=2", "query_length=16", "document_length=48", "depth=8"]


def options(changes: list[str]) -> list[str]:
    return [part for change in changes for part in ("--set", change)]


@pytest.fixture(scope="module")
def trained(start: Path, judged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder that two steps have made of a small network."""
    from vizsla.recipes.training import train

    folder = tmp_path_factory.mktemp("trained") / "cross"
    recipe = load_training_recipe("cross-encoder").changed([*SMALL, f"start={start}"])
    dataset = BeirDataset.open(judged)
    made, outcome = train(recipe, [], folder, datasets=[dataset], dev=[dataset])
    assert isinstance(made, Reranker)
    assert set(outcome.figures) == {"set nDCG@10", "set MRR@10"}
    return folder


def by_hand(folder: Path, pairs: list[list[int]]) -> Any:
    """Scores as transformers gives them, one text after another."""
    from transformers import BertForSequenceClassification

    model = BertForSequenceClassification.from_pretrained(folder).eval()
    found = []
    for ids in pairs:
        behind = ids.index(102) + 1
        segments = [0] * behind + [1] * (len(ids) - behind)
        with torch.no_grad():
            found.append(model(torch.tensor([ids]), token_type_ids=torch.tensor([segments])).logits[0].tolist())
    return np.array(found)


PAIRS = [joint_ids(q, d, 16, 48) for q, d in (([7, 8, 9], [10, 11]), ([2000], list(range(3000, 3060))), ([], [5]), ([6], []))]


def torch_scores(network: Any, rows: list[list[int]], tokens: int = 60) -> np.ndarray:
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    mask = torch.arange(ids.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
    ids[mask] = torch.tensor([i for row in rows for i in row])
    batch = packed(ids, mask, tokens)
    with torch.no_grad():
        return network.vectors([network(chunk) for chunk in batch.chunks], batch).squeeze(1).numpy()


def test_scores_are_those_of_transformers(trained: Path) -> None:
    expected = by_hand(trained, PAIRS)[:, 0]
    assert np.ptp(expected) > 1e-3
    np.testing.assert_allclose(torch_scores(cross_encoder(trained).eval(), PAIRS), expected, atol=1e-5)
    reranker = Reranker.open(trained, "float32")
    offsets = np.cumsum([0, *map(len, PAIRS)])
    flat = np.array([i for row in PAIRS for i in row])
    np.testing.assert_allclose(reranker.network.running.scores(flat, offsets), expected, atol=1e-5)
