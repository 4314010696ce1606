"""Recipes: named systems as YAML, with the figures they must reach. They drive the run, the check and the docs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from vizsla.datasets import BeirDataset
from vizsla.errors import InputError, UnknownNameError
from vizsla.evaluation import evaluate_model
from vizsla.models import Model, parse_model

DATA_VARIABLE = "VIZSLA_DATA"


@dataclass(frozen=True)
class Target:
    """The figures to reach on a data set, each within the tolerance."""

    dataset: str
    split: str
    figures: dict[str, float]
    tolerance: float
    source: str


@dataclass(frozen=True)
class Recipe:
    """A system by name: the model it is, and what it must reach where.

    >>> recipe = load_recipe("bm25")
    >>> recipe.model, recipe.targets[0].dataset, recipe.targets[0].figures["nDCG@10"]
    ('bm25', 'nfcorpus', 0.3218)
    """

    name: str
    title: str
    model: str
    targets: tuple[Target, ...]


@dataclass(frozen=True)
class Finding:
    """A figure that was to be reached and what was measured."""

    recipe: str
    dataset: str
    measure: str
    expected: float
    measured: float | None
    """None where the data set is not here."""
    tolerance: float

    @property
    def reached(self) -> bool:
        return self.measured is not None and abs(self.measured - self.expected) <= self.tolerance


def recipe_names() -> list[str]:
    """The recipes that come with Vizsla."""
    folder = resources.files("vizsla.recipes").joinpath("data")
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))


def load_recipe(name: str) -> Recipe:
    """A recipe by its name, or from a file of one's own."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise InputError("there is no such recipe file", file=name)
        return _parse(path.read_text("utf-8", "replace"), name)
    if name not in recipe_names():
        raise UnknownNameError("recipe", name, recipe_names())
    source = resources.files("vizsla.recipes").joinpath(f"data/{name}.yaml")
    return _parse(source.read_text("utf-8"), f"{name}.yaml")


def _parse(text: str, file: str) -> Recipe:
    try:
        data = yaml.safe_load(text)
        targets = tuple(_target(dataset, entry) for dataset, entry in data["expected"].items())
        return Recipe(data["name"], data["title"], data["model"], targets)
    except yaml.YAMLError as e:
        raise InputError(f"this is not YAML ({' '.join(str(e).split())})", file=file) from None
    except (KeyError, TypeError, AttributeError, ValueError):
        message = "this is no recipe; expected name, title, model, and under expected a data set with figures"
        raise InputError(f"{message}, tolerance and source", file=file) from None


def _target(dataset: str, entry: dict[str, Any]) -> Target:
    figures = {str(measure): float(value) for measure, value in entry["figures"].items()}
    return Target(dataset, entry.get("split", "test"), figures, float(entry["tolerance"]), entry["source"])


def find_dataset(name: str, data: str | Path | None) -> BeirDataset | None:
    """A data set by name under the folder given, or under $VIZSLA_DATA; None if it is not there."""
    root = data or os.environ.get(DATA_VARIABLE)
    if not root:
        raise InputError(f"where is {name}? give the folder that holds the data sets, or set ${DATA_VARIABLE}")
    if not Path(root).is_dir():
        raise InputError("there is no such folder", file=str(root))
    return BeirDataset.open(Path(root) / name) if (Path(root) / name).is_dir() else None


def check(recipe: Recipe, data: str | Path | None) -> Iterator[Finding]:
    """Run a recipe on its data sets and hold the figures against those expected."""
    model: Model | None = None
    for target in recipe.targets:
        dataset = find_dataset(target.dataset, data)
        if dataset is None:
            yield Finding(recipe.name, target.dataset, "", 0.0, None, 0.0)
            continue
        model = model or parse_model(recipe.model)
        measured = evaluate_model(model, dataset, target.split, list(target.figures)).evaluation.measures
        for measure, expected in target.figures.items():
            yield Finding(recipe.name, target.dataset, measure, expected, measured[measure], target.tolerance)
