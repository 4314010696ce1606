"""Named systems and the tables of papers: composition, published figures, and what is reached of them here."""

from __future__ import annotations

from vizsla.recipes.needs import Need
from vizsla.recipes.paper_tables import PaperTable, all_tables, load_paper, load_table, paper_names
from vizsla.recipes.recipe import Finding, Recipe, check, find_dataset, load_recipe, recipe_names, recipe_table
from vizsla.recipes.reproduction import Cell, Reproduction
from vizsla.recipes.tiny import Tiny

__all__ = [
    "Cell",
    "Finding",
    "Need",
    "PaperTable",
    "Recipe",
    "Reproduction",
    "Tiny",
    "all_tables",
    "check",
    "find_dataset",
    "load_paper",
    "load_recipe",
    "load_table",
    "paper_names",
    "recipe_names",
    "recipe_table",
]
