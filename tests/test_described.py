"""Saved models and recipes that say something else than they should: a sentence, whatever was changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla import BM25, Model, VizslaError, parse_model
from vizsla.models import Augmenter, Network
from vizsla.models.learned_sparse import SHIPPED
from vizsla.training import TrainingRecipe, load_training_recipe, training_recipe_names

OTHERS = (None, True, -1, 7, 1e300, 10**30, "", "x", "../x", [], ["x"], [1], {}, {"kind": "bm25"}, {"x": 1})
DOCUMENTS = ["a dog barks at birds", "cats and dogs", "fish"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Any]:
    """Models of all kinds that need no torch, in their folders."""
    rm3 = parse_model("0.5 * bm25-rm3 + vectors")
    models = [BM25(fields=("a",)), rm3, parse_model("bm51"), parse_model("bm25-augmented")]
    models += [parse_model(name).fit(DOCUMENTS) for name in ("bm51-paper", "sketch(width=64)")]
    models += [parse_model("spar(dense=sketch(width=64), lexical=sketch(width=128), mu=2)").fit(DOCUMENTS)]
    found = {}
    for i, model in enumerate(models):
        folder = tmp_path_factory.mktemp(f"model{i}")
        model.save(folder)
        assert Model.load(folder) == model
        found[folder] = json.loads((folder / "model.json").read_text())
    return found


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all values of plain data."""
    yield path
    if isinstance(data, dict | list):
        for key in data if isinstance(data, dict) else range(len(data)):
            yield from places(data[key], (*path, key))


def changed(data: Any, path: tuple[Any, ...], draw: st.DataObject) -> Any:
    """The data with one value another, gone, or beside one more."""
    if not path:
        return draw.draw(st.sampled_from(OTHERS))
    made = copy.deepcopy(data)
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    how = draw.draw(st.sampled_from(("other", "gone", "more")))
    if how == "gone":
        del holder[path[-1]]
    elif how == "more" and isinstance(holder, dict):
        holder["unheard"] = 1
    else:
        holder[path[-1]] = draw.draw(st.sampled_from(OTHERS))
    return made


def said_by(make: Callable[[], object]) -> str:
    """What it says; nothing where all is well."""
    try:
        make()
    except VizslaError as told:
        return str(told)
    return ""


@given(data=st.data())
def test_a_changed_model_is_told_in_a_sentence(saved: dict[Path, Any], data: st.DataObject) -> None:
    folder = data.draw(st.sampled_from(sorted(saved)))
    description = saved[folder]
    other = changed(description, data.draw(st.sampled_from(list(places(description)))), data)
    assert "\n" not in said_by(lambda: Model.from_description(other, folder))


@given(data=st.data())
def test_a_changed_network_is_told_in_a_sentence(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("network")
    opened = {"network.json": (SHIPPED / "bm26", Network.open), "augmenter.json": (SHIPPED / "general", Augmenter.load)}
    name = data.draw(st.sampled_from(sorted(opened)))
    source, load = opened[name]
    about = json.loads((source / name).read_text())
    other = changed(about, data.draw(st.sampled_from(list(places(about)))), data)
    (folder / name).write_text(json.dumps(other))
    assert "\n" not in said_by(lambda: load(folder))


def test_a_mistake_in_a_model_is_not_taken_for_a_wrong_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    BM25().save(tmp_path)

    def broken(self: BM25) -> None:
        raise TypeError(f"a mistake in {self.kind}")

    monkeypatch.setattr(BM25, "__post_init__", broken)
    with pytest.raises(TypeError, match="a mistake in bm25"):
        Model.load(tmp_path)


def test_recipes_are_told_in_a_sentence(tmp_path: Path) -> None:
    for name in training_recipe_names():
        recipe = load_training_recipe(name)
        assert recipe == recipe.with_changes([]) == TrainingRecipe.from_data(recipe.as_data())
    file = tmp_path / "own.yaml"
    plain = "name: a\ntitle: b\nkind: dense\n"
    for text, message in (
        ("- 1", "expected name, title, kind"),
        ("name: 1", "title is missing"),
        (plain + "data: {negatives_per_query: many}", "data.negatives_per_query is 'many', and not a whole number"),
        (plain + "data: 7", "data is 7, not keys with values"),
        (plain + "data: {source: crops, negatives: bm25}", "setting of dense recipes 'data.negatives'"),
        (plain + "data: {source: cats}", "data.source 'cats'; known: judged, crops"),
        (plain + "training: {learning_rat: 1}", "did you mean 'training.learning_rate'"),
        (plain + "training: {learning_rate: fast}", "training.learning_rate is 'fast', and not a number"),
        (plain.replace("dense", "dens"), "did you mean 'dense'"),
        (plain + "unheard: 1", "setting of dense recipes 'unheard'"),
        ("[" * 5000, "this is not YAML"),
    ):
        file.write_text(text)
        with pytest.raises(VizslaError, match=message):
            load_training_recipe(str(file))
