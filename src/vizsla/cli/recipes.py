"""vizsla recipes: the named systems, and whether they reach their figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console

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


@app.command("check")
def check_recipes(
    names: Annotated[list[str] | None, typer.Argument(help="Recipes, by name or file; all unless named.")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="The folder that holds the data sets; else $VIZSLA_DATA.")
    ] = None,
) -> None:
    """Run recipes on their data sets; exit with 1 if a figure is not reached."""
    from rich.table import Table

    from vizsla.recipes import check, load_recipe, recipe_names

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("recipe", "data set", "measure", "expected", "measured", ""):
        table.add_column(column)
    failed = 0
    for name in names or recipe_names():
        recipe = load_recipe(name)
        console.remark(f"{name} ...")
        for f in check(recipe, data):
            failed += not f.reached
            verdict = "ok" if f.reached else f"off by {f.measured - f.expected:+.4f}, allowed {f.tolerance:g}"
            table.add_row(f.recipe, f.dataset, f.measure, f"{f.expected:.4f}", f"{f.measured:.4f}", verdict)
    console.out.print(table)
    if failed:
        console.remark(f"{console.count(failed, 'figure')} not reached")
        raise typer.Exit(FINDING)
