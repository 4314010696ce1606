"""vizsla reproduce: the tables of the five papers, measured here beside the published figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console, options
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.recipes import Need, Reproduction

FINDING = 1


def reproduce(
    table: Annotated[
        str | None,
        typer.Argument(metavar="[TABLE]", help="A table, as in bm26/table-2, or a paper for its main table."),
    ] = None,
    data: options.Data = None,
    models: Annotated[Path, typer.Option("--models", metavar="DIR", help="The folder with trained models.")] = Path(
        "models"
    ),
    output: Annotated[
        Path | None, options.output("The folder of pages and finished cells; default: reproduced.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Only this row or column; may be repeated.")
    ] = None,
    list_tables: Annotated[bool, typer.Option("--list", help="List the tables.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what the table needs; measure nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Fetch missing data sets without asking.")] = False,
    train: Annotated[bool, typer.Option("--train", help="Train missing models by the recipes of the paper.")] = False,
    scale: Annotated[
        str, typer.Option("--scale", metavar="SCALE", help="full, or tiny: a generated collection, tiny networks.")
    ] = "full",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table in Markdown.")] = False,
    as_json: options.Json = False,
) -> None:
    """Measure a table of a paper beside its published figures.

    As in: vizsla reproduce bm26/table-2 --data ~/data

    Cells that can be measured on this machine are measured; all others say why not. Finished cells are kept, so a run
    that was stopped goes on where it was. The folder gets a page in HTML, Markdown and JSON for each table.
    """
    if table is None or list_tables:
        _list(data, models, as_json)
        return
    console.check_name("scale", scale, ("full", "tiny"))
    console.check_apart(output, "--output")
    run = _reproduction(table, data, models, output, only or [], scale)
    if dry_run:
        _show_needs(run, as_json)
        return
    with run.locked():
        if scale == "full":
            _get_needs(run, yes)
        try:
            if train:
                run.train()
            run.run()
        except KeyboardInterrupt:
            console.remark("Stopped. The same command goes on from here")
            raise
        result = run.as_data()
        page = _write_pages(run)
    if as_json:
        console.print_json(result)
    elif markdown:
        from vizsla.reports import reproduced_markdown

        console.out.print(reproduced_markdown(result), end="", markup=False)
    else:
        _show(result)
    console.remark(f"The page is {page}")
    if run.has_failed:
        raise typer.Exit(FINDING)


def _reproduction(
    name: str, data: Path | None, models: Path, output: Path | None, only: list[str], scale: str
) -> Reproduction:
    from vizsla.datasets import data_folder
    from vizsla.recipes import Reproduction, Tiny, load_table

    table = load_table(name)
    folder = output or Path("reproduced" if scale == "full" else "reproduced-tiny")
    if folder.exists() and not folder.is_dir():
        raise VizslaError(f"{folder}: this is a file; --output is a folder")
    if scale == "full":
        return Reproduction(
            table, data_folder(data), models, folder, only, report=console.remark, documents=options.dataset_documents
        )
    tiny = Tiny(folder / "tiny")
    tiny.make(table)
    return Reproduction(table, tiny.data, tiny.folder / "models", folder, only, tiny, console.remark)


def _list(data: Path | None, models: Path, as_json: bool) -> None:
    """All tables: what they show, how many cells can be measured, the data they need, GPU hours of training."""
    from vizsla.datasets import data_folder
    from vizsla.recipes import Reproduction, all_tables

    root = data_folder(data)
    listed: list[dict[str, Any]] = []
    for table in all_tables():
        run = Reproduction(table, root, models, Path("reproduced"))
        needs = run.needs()
        sets = [need for need in needs if need.kind == "data"]
        hours = sum(need.gpu_hours for need in needs if not need.here)
        cells = [run.blocked(row, column) for row, column in run.fillable()]
        listed.append({
            "table": table.full_name, "title": table.title, "rows": len(table.rows), "measured_by": table.measured_by,
            "cells": len(cells), "can_run": sum(not reason for reason in cells),
            "data": [need.name for need in sets], "missing": [need.name for need in sets if not need.here],
            "gpu_hours": hours,
        })  # fmt: skip
    if as_json:
        console.print_json(listed)
        return
    rows = []
    for one in listed:
        here = len(one["data"]) - len(one["missing"])
        runnable = f"{one['can_run']} of {one['cells']}" if one["cells"] else f"python {one['measured_by']}"
        shown = ", ".join(one["missing"][:3]) + (", ..." if len(one["missing"]) > 3 else "")
        state = f"{here} of {len(one['data'])}" + (f"; missing {shown}" if shown else "") if one["data"] else ""
        rows.append(
            (one["table"], one["title"], runnable, state, f"{one['gpu_hours']:,.0f}" if one["gpu_hours"] else "")
        )
    columns = ("table", "what it shows", "cells that can run", "data sets here", "GPU hours of training")
    console.show_table(columns, rows, right=("cells that can run", "GPU hours of training"))
    console.remark(f"Looked for data under {root}. Say what a table needs: vizsla reproduce TABLE --dry-run")


def _show_needs(run: Reproduction, as_json: bool) -> None:
    from vizsla.reports.reproduced import need_line

    needs = run.needs()
    cells = [(row, column, run.blocked(row, column)) for row, column in run.fillable()]
    if as_json:
        every = [(row, column, run.blocked(row, column)) for row in run.rows for column in run.columns]
        blocked = [{"row": r.name, "column": c.name, "reason": reason} for r, c, reason in every if reason]
        console.print_json({"table": run.table.full_name, "needs": [vars(n) for n in needs], "blocked": blocked})
        return
    console.line(f"{run.table.full_name}: {run.table.title}", "bold")
    for need in needs:
        console.line(f"  {need_line(vars(need))}")
    ready = [(row, column) for row, column, reason in cells if not reason]
    fetched = sum(run.fetches(row, column) for row, column in ready)
    later = f", {fetched} of them with models from the model hub" if fetched else ""
    table = run.table
    closed = sum(
        bool(table.figure(row, column) and table.never(row, column)) for row in run.rows for column in run.columns
    )
    rest = f" {console.count(closed, 'more cell')} can only show the paper's figure." if closed else ""
    console.line(f"{len(ready)} of {console.count(len(cells), 'cell')} can be measured now{later}.{rest}")
    if table.measured_by:
        console.line(f"Measure its other columns with: python {table.measured_by} (in a clone)")


def _get_needs(run: Reproduction, yes: bool) -> None:
    """Fetch missing data sets if the user agrees, and say what is still missing, before the work begins."""
    from vizsla.reports.reproduced import need_line

    for need in run.needs():
        _fetch(need, run.data, yes)
    for need in run.needs():
        if not need.here:
            console.remark(need_line(vars(need)))


def _fetch(need: Need, root: Path, yes: bool) -> None:
    """Fetch a data set that is missing and can be downloaded, if the user agrees."""
    from vizsla.datasets import known_datasets, prepare
    from vizsla.datasets.fetch import fetch
    from vizsla.recipes.table_data import can_be_fetched

    if need.here or need.kind == "model" or not can_be_fetched(need.name):
        return
    entry = known_datasets()[need.name]
    size = f", about {console.size(need.bytes)}" if need.bytes else ""
    interactive = not yes and sys.stdin.isatty() and sys.stderr.isatty()
    if not yes and not (interactive and typer.confirm(f"Fetch {need.name}{size}?", err=True)):
        return
    try:
        with console.progress(f"Fetching {need.name}", 0, "bytes") as advance:
            if entry.downloads:
                fetch(entry, root, lambda done, total: advance(done, done, total))
            else:
                prepare(need.name, [], root, progress=lambda _, done, total: advance(done, done, total))
    except VizslaError as e:
        console.remark(f"{need.name} was not fetched: {e}")


def _write_pages(run: Reproduction) -> Path:
    """Write the page of the whole table as HTML, Markdown and JSON."""
    from vizsla.recipes.rankings import write_whole
    from vizsla.reports import reproduced_html, reproduced_markdown

    result, page = run.as_data(whole=True), run.output / f"{run.table.paper}-{run.table.name}.html"
    write_whole(page, reproduced_html(result))
    write_whole(page.with_suffix(".md"), reproduced_markdown(result))
    write_whole(page.with_suffix(".json"), json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return page


def _show(result: dict[str, Any]) -> None:
    """The cells, a line each where there is a figure of ours; and how many there are not."""
    from vizsla.reports.reproduced import shown_difference, shown_figure

    rows, without = [], 0
    for row in result["rows"]:
        for cell, column in zip(row["cells"], result["columns"], strict=True):
            if cell["ours"] is None:
                without += 1
                continue
            digits = column["digits"]
            difference = shown_difference(cell["difference"], digits)
            figures = (
                shown_figure(cell["ours"], digits) + cell["mark"],
                shown_figure(cell["paper"], digits) + cell["paper_mark"],
            )
            rows.append((row["name"], column["name"], *figures, difference))
    if rows:
        columns = ("row", "column", "ours", "paper", "difference")
        console.show_table(columns, rows, right=("ours", "paper", "difference"))
    if result["scale"] == "tiny":
        console.remark("Tiny: a small generated collection and tiny networks; do not compare with the paper.")
    if without:
        console.remark(f"{console.count(without, 'cell')} without a figure of ours; the page says why for each")
