"""Training recipes: the kind of a model and its settings, by name or from a YAML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from vizsla.errors import InputError, UnknownNameError, VizslaError
from vizsla.plain_data import DescriptionError, fields_from_data, parse_yaml
from vizsla.training.kind import TrainedKind, kind_class
from vizsla.training.settings import read_settings, with_changes


@dataclass(frozen=True)
class TrainingRecipe:
    """How a model is trained: the model's name, one line about it, its kind, and the settings of that kind.

    >>> recipe = load_training_recipe("bm26").with_changes(["training.steps=5"])
    >>> recipe.kind, recipe.settings.network.base_model, recipe.settings.training.steps
    ('learned-sparse', 'bm26', 5)
    """

    name: str
    title: str
    kind: str
    settings: Any
    """An instance of the kind's `settings_class`."""

    def with_changes(self, changes: Sequence[str]) -> TrainingRecipe:
        """The recipe with some settings changed, each given as `section.key=value`."""
        return replace(self, settings=with_changes(self.settings, changes, self._whose))

    def make(self) -> TrainedKind[Any]:
        """What trains the model."""
        return kind_class(self.kind)(self.name, self.settings)

    def as_data(self) -> dict[str, Any]:
        """Plain data that `from_data` takes."""
        about = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "settings"}
        return about | asdict(self.settings)

    @classmethod
    def from_data(cls, data: object) -> TrainingRecipe:
        """A recipe from plain data: name, title and kind, and the sections of the kind's settings."""
        if not isinstance(data, dict):
            raise DescriptionError("expected name, title, kind and the sections of its settings")
        about = {key: value for key, value in data.items() if key in ("name", "title", "kind")}
        about = fields_from_data(cls, about, without=("settings",))
        sections = {key: value for key, value in data.items() if key not in about}
        whose = f"{about['kind']} recipes"
        return cls(**about, settings=read_settings(kind_class(about["kind"]).settings_class, sections, whose))

    @property
    def _whose(self) -> str:
        return f"{self.kind} recipes"


def training_recipe_names() -> list[str]:
    """The training recipes that come with Vizsla.

    >>> "bm26" in training_recipe_names()
    True
    """
    folder = resources.files("vizsla.training").joinpath("data")
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))


def load_training_recipe(name: str) -> TrainingRecipe:
    """A training recipe by its name, or from a YAML file."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise InputError("there is no such recipe file", file=name)
        text = path.read_text("utf-8", "replace")
    elif name in training_recipe_names():
        text = resources.files("vizsla.training").joinpath(f"data/{name}.yaml").read_text("utf-8")
    else:
        raise UnknownNameError("training recipe", name, training_recipe_names())
    data = parse_yaml(text, name)
    try:
        return TrainingRecipe.from_data(data)
    except VizslaError as e:
        raise InputError(f"this is not a training recipe: {e}", file=name) from None
