"""A training run: from documents and data sets to a saved model; plan.json says how to resume it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence, Sized
from pathlib import Path
from typing import NamedTuple

from vizsla.errors import InputError, VizslaError
from vizsla.plain_data import parse_settings
from vizsla.training.kind import TRAINED_KINDS, TrainedModel, TrainingInputs
from vizsla.training.loop.distributed import Distributed
from vizsla.training.loop.trainer import (
    CHECKPOINT,
    LOG,
    START,
    Report,
    Trainer,
    TrainingResult,
    has_checkpoint,
    load_start,
    save_start,
)
from vizsla.training.recipe import TrainingRecipe
from vizsla.training.settings import Key, TrainingSettings, keys_of
from vizsla.training.sources.pairs import BatchSource
from vizsla.training.sources.refresh import NEGATIVES

_FILE = "plan.json"
_FORMAT = 3


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
    return _changed(output, changes, "a resumed run", lambda key: key.resumable)


def prepared_recipe(prepared: str | Path, changes: Sequence[str] = ()) -> TrainingRecipe:
    """The recipe of a run, for another run with its prepared data and its initial network, such as one more seed.

    Only settings of the training loop and of the loss may change.
    """
    return _changed(prepared, changes, "a run with its data", lambda key: key.name.startswith(("training.", "loss.")))


def _changed(folder: str | Path, changes: Sequence[str], what: str, may: Callable[[Key], bool]) -> TrainingRecipe:
    """The recipe of a run with changes, if all of them are settings that may change."""
    planned = read_plan(Path(folder) / "training")
    changed = planned.with_changes(changes)
    before = {key.name: key for key in keys_of(planned.settings)}
    for key in keys_of(changed.settings):
        if key.name not in before or (key.value != before[key.name].value and not may(key)):
            free = ", ".join(name for name, one in before.items() if may(one))
            value = before[key.name].value if key.name in before else "another setting"
            raise VizslaError(f"the run began with {key.name} {value}, not {key.value}; {what} may change {free}")
    return changed


_MODEL_FILES = ("model.json", "augmenter.json", "reranker.json", "generator.json")


class Trained(NamedTuple):
    """A trained model, and how its run ended."""

    model: TrainedModel
    result: TrainingResult


def train(
    recipe: TrainingRecipe,
    output: str | Path,
    inputs: TrainingInputs | None = None,
    *,
    resume: bool = False,
    prepared: str | Path | None = None,
    distributed: Distributed | None = None,
    report: Report | None = None,
) -> Trained:
    """Train a model and save it in a folder; checkpoints and the log go to `training` inside it.

    Inputs are tokenized once. With `resume` the run reads the prepared arrays and needs no inputs. `prepared`: the
    folder of another run whose prepared arrays and initial network are copied instead, with a recipe as
    `prepared_recipe` gives it. `report` is called with the log line of each step.
    """
    if missing := TRAINED_KINDS[recipe.kind].missing:  # some are needed at the end only, when the model is written
        raise VizslaError(f"training needs packages that are missing: {', '.join(missing)}; install vizsla[train]")

    kind, inputs = recipe.make(), inputs or TrainingInputs()
    folder, run_folder = Path(output), Path(output) / "training"
    distributed = distributed or Distributed.start()
    begins = distributed.is_main and not resume
    if not resume and prepared is None:
        kind.check_inputs(inputs)
    if begins:
        check_output(folder)
    base = kind.load_base()
    if begins:
        if prepared is None:
            kind.prepare(inputs, base, run_folder)
        else:
            _copy_prepared(Path(prepared) / "training", run_folder)
        write_plan(run_folder, recipe)
    distributed.barrier()
    data, network = kind.open_data(run_folder), kind.build_network(base, run_folder)
    if prepared is not None:
        load_start(run_folder, network)
    elif not resume:
        kind.pretrain(network, base, run_folder, distributed, report)
        if distributed.is_main:
            save_start(run_folder, network)
    trainer = Trainer(
        network,
        data.pairs,
        _counted(recipe.settings.training, data.pairs),
        objective=kind.objective(),
        refresh=data.refresh,
        dev=data.dev,
        folder=run_folder,
        distributed=distributed,
        report=report,
    )
    result = trainer.run(resume=resume)
    if distributed.is_main:
        kind.write(trainer.network, base, run_folder, folder)
    distributed.barrier()
    return Trained(kind.open_model(folder), result)


def _copy_prepared(given: Path, folder: Path) -> None:
    """Copy what a run began with: its arrays and its initial network."""
    if not (given / START).is_file():
        raise VizslaError(f"{given.parent}: this run has no initial network yet; wait for its first step")
    if folder.exists():
        raise VizslaError(f"{folder.parent}: there is a run here already; name another folder")
    later = shutil.ignore_patterns(f"{CHECKPOINT}*", LOG, _FILE, f"{NEGATIVES}-*")
    try:
        shutil.copytree(given, folder, ignore=later)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _counted(settings: TrainingSettings, pairs: BatchSource) -> TrainingSettings:
    """The settings of the loop, in steps where they are given in epochs."""
    if settings.epochs and not isinstance(pairs, Sized):
        raise VizslaError(
            "training.epochs needs a fixed number of training queries, and these pairs are drawn on the fly; set "
            "training.steps instead"
        )
    return settings.in_steps(len(pairs) if isinstance(pairs, Sized) else 0)


def check_output(folder: Path) -> None:
    """Refuse to write over a model, or over a run that was stopped."""
    if any((folder / name).exists() for name in _MODEL_FILES):
        raise VizslaError(f"{folder}: there is a model here already; name another folder")
    if has_checkpoint(folder / "training"):
        raise VizslaError(f"{folder}: a run was stopped here; continue it with --resume, or name another folder")
