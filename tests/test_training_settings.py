"""Training recipes and settings: what they may say, and that they need no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Cli
from vizsla import VizslaError
from vizsla.training import TRAINED_KINDS, TrainingSettings, load_training_recipe, training_recipe_names
from vizsla.training.settings import keys_of, with_changes


def test_settings_are_read_from_text() -> None:
    changed = with_changes(TrainingSettings(), ["batch_size=1_024", "learning_rate=5e-5", "compile=true"], "this test")
    assert (changed.batch_size, changed.learning_rate, changed.compile) == (1024, 5e-5, True)
    for text, expected in (
        ("batch_size", "is not a setting"), ("bach_size=1", "did you mean"), ("batch_size=x", "not a whole number"),
        ("learning_rate=-1", "more than 0"), ("compile=maybe", "true or false"), ("precision=float8", "precision"),
        ("training.steps=3", "did you mean steps"),
    ):  # fmt: skip
        with pytest.raises(VizslaError, match=expected):
            with_changes(TrainingSettings(), [text], "this test")
    settings = TrainingSettings(steps=10, warmup_steps=2, learning_rate=1.0, final_learning_rate_ratio=0.1)
    rates = [settings.learning_rate_at(step) for step in range(10)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates == sorted(rates[:2]) + sorted(rates[2:], reverse=True)


def test_every_setting_has_help() -> None:
    for name in training_recipe_names():
        keys = list(keys_of(load_training_recipe(name).settings))
        assert {key.name for key in keys} >= {"network.base_model", "training.steps"}
        assert [key.name for key in keys if not key.help] == []


def test_recipes_and_kinds_are_listed_without_torch(cli: Cli) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from vizsla.training import TRAINED_KINDS, load_training_recipe, training_recipe_names\n"
        "assert {load_training_recipe(n).kind for n in training_recipe_names()} == set(TRAINED_KINDS.names())"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    listed = json.loads(cli("train", "--list", "--json")[1])["recipes"]
    assert [entry["recipe"] for entry in listed] == training_recipe_names()
    code, printed, _ = cli("train", "dpr", "--list", "--set", "data.source=crops")
    assert code == 0
    assert "data.window" in printed
    assert "data.negatives" not in printed
    assert cli("train")[0] == 2


def test_another_section_class_has_keys_of_its_own() -> None:
    recipe = load_training_recipe("bm26")
    judged = recipe.with_changes(["data.source=judged", "data.negatives_per_query=3"])
    assert judged.settings.data.negatives_per_query == 3
    assert judged.make().reads_datasets
    assert not recipe.make().reads_datasets
    with pytest.raises(VizslaError, match=r"setting of learned-sparse recipes 'data\.window'"):
        recipe.with_changes(["data.source=judged", "data.window=3"])


TOY = """
from dataclasses import dataclass, field
from vizsla.training import TRAINED_KINDS, TrainedKind, TrainingSettings
from vizsla.training.settings import setting

@dataclass(frozen=True)
class ToyNetwork:
    width: int = setting(3, "how wide it is")

@dataclass(frozen=True)
class ToySettings:
    network: ToyNetwork = field(default_factory=ToyNetwork)
    training: TrainingSettings = field(default_factory=TrainingSettings)

@TRAINED_KINDS.register("toy", help="A toy.")
class Toy(TrainedKind):
    settings_class = ToySettings
"""


def test_a_kind_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy.py").write_text(TOY)
    (tmp_path / "toy.yaml").write_text("name: a\ntitle: b\nkind: toy\nnetwork: {width: 5}\n")
    monkeypatch.setenv("VIZSLA_PLUGINS", str(tmp_path / "toy.py"))
    recipe = load_training_recipe(str(tmp_path / "toy.yaml"))
    assert recipe.with_changes(["training.steps=2"]).settings.training.steps == 2
    assert recipe.settings.network.width == 5
    with pytest.raises(VizslaError, match=r"did you mean 'network\.width'"):
        recipe.with_changes(["network.widht=2"])
    assert TRAINED_KINDS["toy"].help == "A toy."
    TRAINED_KINDS._entries.pop("toy")
