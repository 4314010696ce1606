"""Networks, encoders and dense models that older versions saved are read under the names of today."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from small import small_dense
from vizsla.errors import VizslaError
from vizsla.models import Dense, Model
from vizsla.neural.checkpoints.cache import digest
from vizsla.neural.checkpoints.former_names import with_current_names, with_former_names
from vizsla.neural.checkpoints.network import ABOUT, Network
from vizsla.neural.checkpoints.transformer import Transformer

NETWORK = {
    "digest": "0" * 64, "kind": "dense", "heads": 4, "length": 64, "most": 2.5, "start": 101, "end": 102,
    "pooling": "first+mean", "width": 32,
}  # fmt: skip


def test_a_network_of_an_older_version(tmp_path: Path) -> None:
    (tmp_path / ABOUT).write_text(json.dumps(NETWORK))
    network = Network.open(tmp_path)
    assert (network.max_weight, network.pooling) == (2.5, "cls+mean")
    assert with_former_names(with_current_names(NETWORK)) == NETWORK
    for wrong in ([], "x", {**NETWORK, "pooling": [1]}, {**NETWORK, "unheard": 1}):
        (tmp_path / ABOUT).write_text(json.dumps(wrong))
        with pytest.raises(VizslaError, match="does not describe a network"):
            Network.open(tmp_path)


def test_a_dense_model_of_an_older_version(tmp_path: Path) -> None:
    model = small_dense(tmp_path / "network", pooling="cls")
    model.save(tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    written = json.loads(file.read_text())

    def former(data: Any) -> Any:
        if isinstance(data, list):
            return [former(one) for one in data]
        return with_former_names({k: former(v) for k, v in data.items()}) if isinstance(data, dict) else data

    old = former(written)
    assert "normalised" in json.dumps(old)
    assert "framed" in json.dumps(old)
    file.write_text(json.dumps(old))
    for about in (tmp_path / "model").rglob(ABOUT):
        about.write_text(json.dumps(former(json.loads(about.read_text()))))
        assert '"most"' in about.read_text()
        assert '"first"' in about.read_text()
    loaded = Model.load(tmp_path / "model")
    assert loaded == model
    assert isinstance(loaded, Dense)
    assert (loaded.normalize, loaded.special_tokens, loaded.token_types) == (False, True, False)


def test_an_encoder_keeps_its_digest(tmp_path: Path) -> None:
    """Indexes know their encoders by it."""
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        (tmp_path / name).write_text("{}")
    encoder = Transformer.of(tmp_path, pooling=("cls", "mean_sqrt_len"), width=8, skip_prompt_tokens=True)
    old = {
        "pooling": ["first", "root"], "layers": [], "length": 512, "width": 8, "base": "", "lowers": False,
        "skips": True, "exact": False,
    }  # fmt: skip
    identity = json.dumps([digest(tmp_path, encoder.files()), old], sort_keys=True)
    assert encoder.digest == hashlib.sha256(identity.encode()).hexdigest()
    (tmp_path / ABOUT).write_text(json.dumps({"reads": "texts", "digest": encoder.digest, **old}))
    assert Transformer.open(tmp_path) == encoder
