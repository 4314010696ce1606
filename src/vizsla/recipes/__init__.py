"""Named systems: composition, expected figures, and the check that they are reached."""

from __future__ import annotations

from vizsla.recipes.recipe import Finding, Recipe, check, find_dataset, load_recipe, recipe_names, recipe_table

__all__ = [
    "Finding",
    "Recipe",
    "check",
    "find_dataset",
    "load_recipe",
    "recipe_names",
    "recipe_table",
]
