"""Recipes: named systems as YAML, with the figures they must reach. They drive the run, the check and the docs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from vizsla.datasets import BeirDataset, data_folder
from vizsla.errors import InputError, UnknownNameError
from vizsla.evaluation import answer_accuracy, evaluate, evaluate_model, fit_to_dataset, retrieve
from vizsla.index import Index
from vizsla.models import Model, Reranker, parse_model
from vizsla.plain_data import parse_yaml
from vizsla.retrievers import RerankedRetriever, rerank
from vizsla.retrievers.reranking import DEPTH
from vizsla.runs import Retriever


@dataclass(frozen=True)
class Target:
    """The figures to reach on a data set, each within the tolerance."""

    dataset: str
    split: str
    figures: dict[str, float]
    tolerance: float
    source: str
    answers: dict[str, dict[str, float]] = field(default_factory=dict)
    """Answer accuracies of the questions whose ids begin with a name."""

    @property
    def all_figures(self) -> dict[str, float]:
        """All figures by what a table calls them."""
        return {**self.figures, **{f"{name} {m}": v for name, those in self.answers.items() for m, v in those.items()}}


@dataclass(frozen=True)
class Recipe:
    """A named system: its model, and the figures it must reach on each data set.

    >>> recipe = load_recipe("bm25")
    >>> recipe.model, recipe.targets[0].dataset, recipe.targets[0].figures["nDCG@10"]
    ('bm25', 'nfcorpus', 0.3218)
    """

    name: str
    title: str
    model: str
    targets: tuple[Target, ...]
    trained: dict[str, str] = field(default_factory=dict)
    """The parts of `model` that do not come with Vizsla, and the command that trains each."""
    reranker: str = ""
    """The cross-encoder that reranks what the model finds, if any."""
    depth: int = DEPTH
    """How many documents of a query are reranked."""

    def model_in(self, folder: str | Path) -> str:
        """The model, with the paths of its trained parts in this folder."""
        expression = self.model
        for name in self.trained:
            expression = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", lambda m: str(Path(folder, m[0])), expression)
        return expression

    def untrained_in(self, folder: str | Path) -> list[str]:
        """The trained parts that are missing in this folder."""
        return [name for name in self.trained if not Path(folder, name).is_dir()]


@dataclass(frozen=True)
class Finding:
    """An expected figure and the measured one."""

    recipe: str
    dataset: str
    measure: str
    expected: float
    measured: float | None
    """None if the data set or a trained model is missing."""
    tolerance: float

    @property
    def reached(self) -> bool:
        return self.measured is not None and abs(self.measured - self.expected) <= self.tolerance


def recipe_names() -> list[str]:
    """The recipes that come with Vizsla."""
    folder = resources.files("vizsla.recipes").joinpath("data")
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))


def load_recipe(name: str) -> Recipe:
    """A recipe by its name, or from a user's file."""
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
    data = parse_yaml(text, file)
    try:
        targets = tuple(_target(dataset, entry) for dataset, entry in data["expected"].items())
        trained, depth = _trained(data.get("trained") or {}), int(data.get("depth", DEPTH))
        return Recipe(
            data["name"], data["title"], data["model"], targets, trained, str(data.get("reranker") or ""), depth
        )
    except (KeyError, TypeError, AttributeError, ValueError):
        message = "this is no recipe; expected name, title, model, and under expected a data set with figures"
        raise InputError(f"{message}, tolerance and source", file=file) from None


def _trained(data: dict[str, str] | list[str]) -> dict[str, str]:
    """Models to train and the commands; models that are only listed have recipes of their own with the command."""
    if isinstance(data, list):
        return {name: load_recipe(name).trained[name] for name in data}
    return {str(name): str(command) for name, command in data.items()}


def _target(dataset: str, entry: dict[str, Any]) -> Target:
    figures = _figures(entry.get("figures") or {})
    answers = {str(name): _figures(those) for name, those in (entry.get("answers") or {}).items()}
    if not figures and not answers:
        raise KeyError("figures")
    return Target(dataset, entry.get("split", "test"), figures, float(entry["tolerance"]), entry["source"], answers)


def _figures(data: dict[str, Any]) -> dict[str, float]:
    return {str(measure): float(value) for measure, value in data.items()}


def find_dataset(name: str, data: str | Path | None) -> BeirDataset | None:
    """A data set by name under the data folder; None if it is not there."""
    folder = data_folder(data) / name
    return BeirDataset.open(folder) if folder.is_dir() else None


def check(recipe: Recipe, data: str | Path | None, models: str | Path = ".") -> Iterator[Finding]:
    """Run a recipe on its data sets and compare the figures with the expected ones.

    `models`: the folder with models that were trained, for recipes that need some.
    """
    model: Model | None = None
    reranker: Reranker | None = None
    untrained = recipe.untrained_in(models)
    for target in recipe.targets:
        dataset = find_dataset(target.dataset, data)
        if dataset is None or untrained:
            yield Finding(recipe.name, target.dataset, "", 0.0, None, 0.0)
            continue
        model = model or parse_model(recipe.model_in(models))
        if recipe.reranker:
            reranker = reranker or Reranker.open(recipe.reranker)
            measured = _reranked(model, reranker, recipe.depth, dataset, target)
        else:
            measured = _measured(model, dataset, target)
        for measure, expected in target.all_figures.items():
            yield Finding(recipe.name, target.dataset, measure, expected, measured[measure], target.tolerance)


def _measured(model: Model, dataset: BeirDataset, target: Target) -> dict[str, float]:
    found: dict[str, float] = {}
    if target.figures:
        found |= evaluate_model(model, dataset, target.split, list(target.figures)).evaluation.measures
    if target.answers:
        found |= _answered(model, dataset, target)
    return found


def _reranked(model: Model, reranker: Reranker, depth: int, dataset: BeirDataset, target: Target) -> dict[str, float]:
    """The figures of a model whose first documents are reranked; those after them do not count."""
    found: dict[str, float] = {}
    with _indexed(model, dataset) as index:
        if target.figures:
            qrels = dataset.qrels(target.split)
            queries = dataset.queries_of(qrels)
            run = rerank(index, retrieve(index, queries, depth), queries, reranker, depth).untied(by_id=False)
            found |= evaluate(run, qrels, list(target.figures)).measures
        return found | _accuracies(RerankedRetriever(index, reranker, depth), dataset, target)


def _answered(model: Model, dataset: BeirDataset, target: Target) -> dict[str, float]:
    """Answer accuracies, from one index of the data set."""
    with _indexed(model, dataset) as index:
        return _accuracies(index, dataset, target)


def _accuracies(retriever: Retriever, dataset: BeirDataset, target: Target) -> dict[str, float]:
    found: dict[str, float] = {}
    if not target.answers:
        return found
    texts, answers = dataset.queries(), dataset.answers()
    for name, figures in target.answers.items():
        questions = {q: text for q, text in texts.items() if q.startswith(name) and q in answers}
        depths = [int(measure.removeprefix("Acc@")) for measure in figures]
        reached = answer_accuracy(retriever, questions, answers, depths)
        found |= {f"{name} {measure}": value for measure, value in reached.items()}
    return found


@contextmanager
def _indexed(model: Model, dataset: BeirDataset) -> Iterator[Index]:
    """An index of the data set in a temporary folder."""
    model = fit_to_dataset(model, dataset) if model.needs_corpus_statistics else model
    with tempfile.TemporaryDirectory(prefix="vizsla-") as folder, Index.create(Path(folder) / "index", model) as index:
        index.add(dataset.documents())
        index.commit()
        yield index


def recipe_table() -> str:
    """All recipes and the figures they must reach, as a Markdown table: what docs/recipes.md shows."""
    lines = ["| recipe | data set | figures | within | source |", "|---|---|---|---|---|"]
    for name in recipe_names():
        recipe = load_recipe(name)
        for i, t in enumerate(recipe.targets):
            figures = ", ".join(f"{m} {v:g}" for m, v in t.all_figures.items())
            label = f"`{name}`: {recipe.title}" if i == 0 else ""
            where = t.dataset if t.split == "test" else f"{t.dataset} {t.split}"
            lines.append(f"| {label} | {where} | {figures} | {t.tolerance:g} | {t.source} |")
    return "\n".join(lines) + "\n"
