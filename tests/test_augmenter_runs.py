"""Training runs of augmenters: what they write, how they resume, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from vizsla import BeirDataset, VizslaError
from vizsla.models import Augmenter
from vizsla.neural.weights import read_weights
from vizsla.training import TrainingInputs, load_training_recipe, resumed_recipe, train
from vizsla.training.loop.trainer import CHECKPOINT

SETTINGS = ("training.batch_size=8", "training.steps=4", "training.warmup_steps=1", "training.precision=float32",
            "training.eval_steps=2", "training.save_steps=2", "data.negatives_per_query=2", "vocabulary.size=10",
            "vocabulary.max_df=1.0")  # fmt: skip


@pytest.mark.parametrize("unit", ["words", "pieces"])
def test_train_makes_an_augmenter(cli: Cli, judged: Path, start: Path, tmp_path: Path, unit: str) -> None:
    changes = (f"network.base_model={start}", *SETTINGS, f"vocabulary.unit={unit}", "network.head=narrow",
               "network.rank=4", "network.trust=0.5")  # fmt: skip
    options = [part for change in changes for part in ("--set", change)]
    made = tmp_path / "a"
    code, _, said = cli("train", "bm25-augmented", "--dataset", judged, "--dev", judged, "-o", made, *options)
    assert code == 0, said
    assert "Best at step" in said
    assert "vizsla search INDEX --expand" in said
    from safetensors.torch import load_file

    log = [json.loads(line) for line in (made / "training" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [1, 2, 3, 4]
    learnt = load_file(made / "training" / CHECKPOINT)["best.weigh.bias"].numpy()
    written = read_weights(Augmenter.load(made).network.folder)["weigh.bias"]
    assert written == pytest.approx(0.5 * learnt + 0.5)  # half way
    model = "bm25" if unit == "words" else "bm25-wp"
    assert cli("index", judged / "corpus.jsonl", "-o", tmp_path / "i", "--model", model)[0] == 0
    code, out, said = cli("search", tmp_path / "i", "dog bark night", "--expand", made, "--json")
    assert code == 0, said
    assert json.loads(out)["results"]
    code, _, said = cli("train", "bm25-augmented", "--dataset", judged, "-o", made, *options)
    assert (code, "there is a model here already" in said) == (2, True)


def test_a_stopped_run_goes_on_to_the_same_augmenter(judged: Path, start: Path, tmp_path: Path) -> None:
    recipe = load_training_recipe("bm25-augmented").with_changes([f"network.base_model={start}", *SETTINGS])
    dataset = BeirDataset.open(judged)
    inputs = TrainingInputs(datasets=[dataset], dev=[dataset])

    def stop(line: dict[str, Any]) -> None:
        if line["step"] == 3:
            raise KeyboardInterrupt

    whole, _ = train(recipe, tmp_path / "whole", inputs)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "stopped", inputs, report=stop)
    for change in ("vocabulary.unit=pieces", "network.trust=0.5", "loss.added_cost=3", "data.negatives_per_query=9"):
        with pytest.raises(VizslaError, match=r"the run began with .* a resumed run may change training\.steps"):
            resumed_recipe(tmp_path / "stopped", [change])
    assert resumed_recipe(tmp_path / "stopped", ["training.save_steps=3"]).settings.training.save_steps == 3
    assert resumed_recipe(tmp_path / "stopped") == recipe
    again, _ = train(resumed_recipe(tmp_path / "stopped"), tmp_path / "stopped", resume=True)
    assert isinstance(whole, Augmenter)
    assert again == whole


def test_an_augmenter_in_wrong_hands(cli: Cli, judged: Path, tmp_path: Path) -> None:
    code, _, said = cli("train", "bm25-augmented", "--corpus", judged / "corpus.jsonl", "-o", tmp_path / "a")
    assert (code, "name a data set with --dataset" in said) == (2, True)
    for change, problem in (
        ("vocabulary.unit=letters", "unknown vocabulary.unit 'letters'"),
        ("vocabulary.nothing=1", "setting of augmenter recipes"),
        ("vocabulary.size=many", "not a whole number"),
        ("network.head=tied", "only word pieces can be tied"),
        ("network.max_added_terms=-1", "network.max_added_terms must be 0 or more"),
    ):
        code, _, said = cli("train", "bm25-augmented", "--dataset", judged, "-o", tmp_path / "a", "--set", change)
        assert (code, problem in said) == (2, True), said
    (judged.parent / "bare" / "qrels").mkdir(parents=True, exist_ok=True)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        (judged.parent / "bare" / name).write_text((judged / name).read_text())
    code, _, said = cli("train", "bm25-augmented", "--dataset", judged.parent / "bare", "-o", tmp_path / "b")
    assert (code, "unknown split 'train'" in said) == (2, True), said


def test_a_run_of_another_version_is_not_resumed(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    file = tmp_path / "training" / "plan.json"
    for text, problem in (
        ('{"recipe": {"name": "bm26"}, "dev": [], "datasets": []}', "started by another version of Vizsla and cannot"),
        ('{"format": 3, "recipe": {"name": "bm26"}}', "not the plan of a run (title is missing)"),
        ("{", "not the plan of a run"),
    ):
        file.write_text(text)
        code, _, said = cli("train", "bm26", "-o", tmp_path, "--resume")
        assert (code, problem in said, said.count("\n")) == (2, True, 1), said
