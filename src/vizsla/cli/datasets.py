"""vizsla datasets: list well-known data sets, download them, and count their documents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console, options

if TYPE_CHECKING:
    from vizsla.datasets import DatasetEntry, DatasetStatistics


def datasets(context: typer.Context, data: options.Data = None, as_json: options.Json = False) -> None:
    """List the well-known data sets; say which are here."""
    if context.invoked_subcommand is not None:
        context.obj = data
        return
    from vizsla.datasets import data_folder, known_datasets

    root = data_folder(data)
    if as_json:
        console.print_json([_as_data(e, root) for e in known_datasets().values()])
        return
    rows = []
    for entry in known_datasets().values():
        here = "yes" if (root / entry.name).is_dir() else "fetch" if entry.downloads else "on request"
        queries = _number(entry.splits.get(entry.evaluated))
        rows.append((entry.name, entry.task, _number(entry.documents), queries, entry.evaluated, here))
    columns = ("data set", "task", "documents", "queries", "split", "here")
    console.show_table(columns, rows, right=("documents", "queries"))
    others = (
        sorted(p.name for p in root.iterdir() if p.is_dir() and p.name not in known_datasets()) if root.is_dir() else []
    )
    others = [name for name in others if not name.startswith(".")]
    console.remark(f"Looked under {root}" + (f"; there are also {', '.join(others)}" if others else ""))


def _as_data(entry: DatasetEntry, root: Path) -> dict[str, Any]:
    from dataclasses import asdict

    folder = root / entry.name
    return {**asdict(entry), "here": str(folder) if folder.is_dir() else None}


def show(name: Annotated[str, typer.Argument(help="A data set by name.")]) -> None:
    """Show a data set: splits, licence, source, what to know."""
    from vizsla.datasets import dataset_entry

    entry = dataset_entry(name)
    splits = ", ".join(f"{s} {n:,}" if n else s for s, n in entry.splits.items())
    sources = ", ".join(d.url for d in entry.downloads) or entry.how
    facts = {
        "task": f"{entry.task} ({entry.domain})", "splits": splits, "figures on": entry.evaluated,
        "documents": f"{entry.documents:,}" if entry.documents else "", "parts": ", ".join(entry.parts),
        "answers": entry.answers, "licence": entry.licence, "from": sources, "note": entry.note,
    }  # fmt: skip
    console.line(entry.title, "bold")
    for what, value in facts.items():
        if value:
            console.line(f"{what:>11}  {value}")


def fetch(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets by name.")],
    data: options.Data = None,
) -> None:
    """Download data sets.

    A download that was cut off continues; checksums are verified.
    """
    from vizsla.datasets import data_folder, dataset_entry
    from vizsla.datasets.fetch import fetch as download

    chosen = data or context.obj
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
    root = data_folder(chosen)
    for name in names:
        entry = dataset_entry(name)
        with console.progress(f"Fetching {name}", 0, "bytes") as advance:
            folder = download(entry, root, lambda done, total: advance(done, done, total))
        console.remark(f"{name} is in {folder}; licence: {entry.licence}")


def stats(
    context: typer.Context,
    names: options.Datasets,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Count documents, queries and judgements, as BEIR's table 1."""
    from vizsla.datasets import count_dataset, open_datasets

    counted = [count_dataset(d) for name in names for d in open_datasets(name, data or context.obj).members]
    if as_json:
        from dataclasses import asdict

        console.print_json([{**asdict(c), "relevance": c.relevance} for c in counted])
    else:
        _show_statistics(counted)


def _show_statistics(counted: list[DatasetStatistics]) -> None:
    numbers = ("train pairs", "dev", "test", "documents", "D/Q", "query words", "doc. words")
    rows = []
    for c in counted:
        split = "test" if "test" in c.splits else next(iter(c.splits), "")
        title = "yes" if c.with_titles > 0.99 else "no" if c.with_titles < 0.01 else f"{c.with_titles:.0%}"
        cells = [_number(c.pairs.get("train")), _number(c.splits.get("dev")), _number(c.splits.get("test"))]
        means = [f"{c.per_query.get(split, 0):.1f}", f"{c.query_words:.2f}", f"{c.document_words:.2f}"]
        rows.append((c.name, title, c.relevance, *cells, f"{c.documents:,}", *means))
    console.show_table(("data set", "title", "relevance", *numbers), rows, right=numbers)


def _number(value: int | None) -> str:
    return f"{value:,}" if value else "-"
