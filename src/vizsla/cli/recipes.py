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

app = typer.Typer(help="List the named systems; check that they reach their figures.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def recipes(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        from rich.table import Table

        from vizsla.recipes import load_recipe, recipe_names

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("recipe", "what it is", "checked on"):
            table.add_column(column)
        for name in recipe_names():
            recipe = load_recipe(name)
            table.add_row(name, recipe.title, ", ".join(t.dataset for t in recipe.targets))
        console.out.print(table)


def _checked(recipe: Recipe, data: Path | None) -> Iterator[Finding | None]:
    """The findings of a recipe; one that cannot be made here says why and is None, and the others go on."""
    from vizsla.errors import InputError, VizslaError
    from vizsla.recipes import check

    try:
        yield from check(recipe, data)
    except InputError:
        raise
    except VizslaError as e:
        console.remark(f"{recipe.name} cannot be checked: {e}")
        yield None


@app.command("check")
def check_recipes(
    names: Annotated[list[str] | None, typer.Argument(help="Recipes, by name or file; all unless named.")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="The folder that holds the data sets; else $VIZSLA_DATA.")
    ] = None,
) -> None:
    """Run recipes on their data sets; exit with 1 if a figure is not reached."""
    from rich.table import Table

    from vizsla.recipes import load_recipe, recipe_names

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("recipe", "data set", "measure", "expected", "measured", ""):
        table.add_column(column)
    failed = 0
    for name in names or recipe_names():
        recipe = load_recipe(name)
        console.remark(f"{name} ...")
        for f in _checked(recipe, data):
            if f is None:
                table.add_row(name, "", "", "", "", "cannot be checked")
                failed += 1
                continue
            if f.measured is None:
                table.add_row(f.recipe, f.dataset, "", "", "", "not here")
                continue
            failed += not f.reached
            verdict = "ok" if f.reached else f"off by {f.measured - f.expected:+.4f}, allowed {f.tolerance:g}"
            table.add_row(f.recipe, f.dataset, f.measure, f"{f.expected:.4f}", f"{f.measured:.4f}", verdict)
    console.out.print(table)
    if failed:
        console.remark(f"{console.count(failed, 'figure')} not reached or not checked")
        raise typer.Exit(FINDING)
