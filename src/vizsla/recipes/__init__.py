"""Named systems: composition, expected figures, and the check that they are reached."""

from __future__ import annotations

from vizsla.recipes.recipe import Finding, Recipe, check, find_dataset, load_recipe, recipe_names
from vizsla.recipes.run import Outcome, evaluate_index, evaluate_model

__all__ = [
    "Finding",
    "Outcome",
    "Recipe",
    "check",
    "evaluate_index",
    "evaluate_model",
    "find_dataset",
    "load_recipe",
    "recipe_names",
]
