"""vizsla recipes: the named systems, and whether they reach their figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console

if TYPE_CHECKING:
    from vizsla.recipes import Finding, Recipe

FINDING = 1


def recipes(
    context: typer.Context,
    markdown: Annotated[bool, typer.Option("--markdown", help="The table of docs/recipes.md.")] = False,
) -> None:
    if markdown:
        from vizsla.recipes import recipe_table

        console.out.print(recipe_table(), end="", markup=False)
    elif context.invoked_subcommand is None:
        from vizsla.recipes import load_recipe, recipe_names

        listed = [load_recipe(name) for name in recipe_names()]
        rows = [(r.name, r.title, ", ".join(t.dataset for t in r.targets)) for r in listed]
        console.show_table(("recipe", "what it is", "checked on"), rows)


def _checked(recipe: Recipe, data: Path | None, models: Path) -> Iterator[Finding | None]:
    """The findings of a recipe; None, with a message, for one that cannot be checked on this machine."""
    from vizsla.errors import InputError, VizslaError
    from vizsla.recipes import check as run_recipe

    try:
        yield from run_recipe(recipe, data, models)
    except InputError:
        raise
    except VizslaError as e:
        console.remark(f"{recipe.name} cannot be checked: {e}")
        yield None


def check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[RECIPE]...", help="Recipes by name or file; default: all.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="The folder that holds the data sets; else $VIZSLA_DATA."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="DATASET", help="Check on this data set only; may be repeated."),
    ] = None,
    models: Annotated[
        Path,
        typer.Option("--models", metavar="DIR", help="The folder with trained models, for recipes that need them."),
    ] = Path(),
) -> None:
    """Run recipes on their data sets; exit with 1 if one falls short."""
    from dataclasses import replace

    from vizsla.recipes import load_recipe, recipe_names

    rows: list[tuple[str, ...]] = []
    failed = 0
    for name in names or recipe_names():
        recipe = load_recipe(name)
        if only:
            recipe = replace(recipe, targets=tuple(t for t in recipe.targets if t.dataset in only))
        console.remark(f"{name} ...")
        for untrained in recipe.untrained_in(models):
            console.remark(f"there is no {models / untrained}; to make it: vizsla {recipe.trained[untrained]}")
        for f in _checked(recipe, data, models):
            if f is None:
                rows.append((name, "", "", "", "", "cannot be checked"))
                failed += 1
                continue
            if f.measured is None:
                rows.append((f.recipe, f.dataset, "", "", "", "not here"))
                continue
            failed += not f.reached
            verdict = "ok" if f.reached else f"off by {f.measured - f.expected:+.4f}, allowed {f.tolerance:g}"
            rows.append((f.recipe, f.dataset, f.measure, f"{f.expected:.4f}", f"{f.measured:.4f}", verdict))
    columns = ("recipe", "data set", "measure", "expected", "measured", "")
    console.show_table(columns, rows, right=("expected", "measured"))
    if failed:
        console.remark(f"{console.count(failed, 'figure')} not reached or not checked")
        raise typer.Exit(FINDING)
