"""plan.json: what a run was started with, so that it can be resumed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from vizsla.errors import InputError, VizslaError
from vizsla.plain_data import parse_settings
from vizsla.training.recipe import TrainingRecipe
from vizsla.training.schema import keys_of

_FILE = "plan.json"
_FORMAT = 2


def write_plan(folder: Path, recipe: TrainingRecipe) -> None:
    """Write the plan of a run into its folder."""
    (folder / _FILE).write_text(json.dumps({"format": _FORMAT, "recipe": recipe.as_data()}, indent=2) + "\n")


def read_plan(folder: Path) -> TrainingRecipe:
    """The recipe of a run."""
    file = folder / _FILE
    try:
        plan = parse_settings(file.read_text())
    except FileNotFoundError:
        raise VizslaError(f"{folder.parent}: there is no run to resume here") from None
    except ValueError as e:
        raise InputError(f"this is not the plan of a run ({e})", file=str(file)) from None
    if not isinstance(plan, dict) or plan.get("format") != _FORMAT:
        raise InputError(
            "this run was started by another version of Vizsla and cannot be resumed; train into a new folder",
            file=str(file),
        )
    try:
        return TrainingRecipe.from_data(plan.get("recipe"))
    except VizslaError as e:
        raise InputError(f"this is not the plan of a run ({e})", file=str(file)) from None


def resumed_recipe(output: str | Path, changes: Sequence[str] = ()) -> TrainingRecipe:
    """The recipe to resume a run with; only settings that leave it the same run may change, such as its steps."""
    planned = read_plan(Path(output) / "training")
    changed = planned.with_changes(changes)
    before = {key.name: key for key in keys_of(planned.settings)}
    for key in keys_of(changed.settings):
        if key.name not in before or (key.value != before[key.name].value and not key.resumable):
            free = ", ".join(name for name, one in before.items() if one.resumable)
            value = before[key.name].value if key.name in before else "another setting"
            raise VizslaError(
                f"the run began with {key.name} {value}, not {key.value}; a resumed run may change {free}"
            )
    return changed
