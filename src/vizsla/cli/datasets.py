"""vizsla datasets: list well-known data sets, download or prepare them, and count their documents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console, options

if TYPE_CHECKING:
    from vizsla.datasets import DatasetEntry, DatasetStatistics, Prepared


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
        here = "yes" if (root / entry.name).is_dir() else _way(entry)
        queries = _number(entry.splits.get(entry.evaluated))
        rows.append(
            (entry.name, entry.task, _number(entry.documents), queries, entry.evaluated if queries != "-" else "", here)
        )
    columns = ("data set", "task", "documents", "queries", "split", "here")
    console.show_table(columns, rows, right=("documents", "queries"))
    others = (
        sorted(p.name for p in root.iterdir() if p.is_dir() and p.name not in known_datasets()) if root.is_dir() else []
    )
    others = [name for name in others if not name.startswith(".")]
    console.remark(f"Looked under {root}" + (f"; there are also {', '.join(others)}" if others else ""))


def _as_data(entry: DatasetEntry, root: Path) -> dict[str, Any]:
    from dataclasses import asdict

    from vizsla.datasets import preparation_of

    folder = root / entry.name
    files = preparation_of(entry.name)
    return {
        **asdict(entry),
        "here": str(folder) if folder.is_dir() else None,
        "way": _way(entry),
        "files": [asdict(file) for file in files.files] if files else [],
    }


def _way(entry: DatasetEntry) -> str:
    """How a data set comes here: `fetch` it, `prepare` it from files that others give out, or `on request`."""
    from vizsla.datasets import preparation_of

    preparation = preparation_of(entry.name)
    if entry.downloads or (preparation and preparation.downloads):
        return "fetch"
    return "prepare" if preparation else "on request"


def show(name: Annotated[str, typer.Argument(help="A data set by name.")]) -> None:
    """Show a data set: splits, licence, files, what to know."""
    from vizsla.datasets import dataset_entry, preparation_of

    entry = dataset_entry(name)
    splits = ", ".join(f"{s} {n:,}" if n else s for s, n in entry.splits.items())
    sources = ", ".join(d.url for d in entry.downloads) or entry.how
    facts = {
        "task": f"{entry.task} ({entry.domain})", "splits": splits, "figures on": entry.evaluated if splits else "",
        "documents": f"{entry.documents:,}" if entry.documents else "", "parts": ", ".join(entry.parts),
        "answers": entry.answers, "licence": entry.licence, "from": sources, "note": entry.note,
    }  # fmt: skip
    console.line(entry.title, "bold")
    for what, value in facts.items():
        if value:
            console.line(f"{what:>11}  {value}")
    prepared = preparation_of(name)
    if prepared is None:
        return
    console.line()
    files = "" if prepared.downloads else " FILE_OR_FOLDER..."
    console.line(f"{'prepare':>11}  vizsla datasets prepare {name}{files}: {prepared.help}")
    for file in prepared.files:
        records = f"; {file.records:,} records" if file.records else ""
        needed = "" if file.required else " (optional)"
        console.line(f"{'file':>11}  {file.name}{needed}, also compressed{records}")
        if file.source:
            console.line(f"{'':>11}    from {file.source}")


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
        if not entry.downloads and _way(entry) == "fetch":
            if not (root / name).exists():
                _prepare(name, [], root, overwrite=False)
            console.remark(f"{name} is in {root / name}; licence: {entry.licence}")
            continue
        with console.progress(f"Fetching {name}", 0, "bytes") as advance:
            folder = download(entry, root, lambda done, total: advance(done, done, total))
        console.remark(f"{name} is in {folder}; licence: {entry.licence}")


def prepare(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A data set by name.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE_OR_FOLDER...", help="Its published files, folders or archives with them."),
    ] = None,
    data: options.Data = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a folder of this name.")] = False,
    as_json: options.Json = False,
) -> None:
    """Make a data set from the files that its owners publish.

    As in: vizsla datasets prepare wiki-dpr psgs_w100.tsv.gz

    Without files, those that can be downloaded freely are. 'vizsla datasets show NAME' lists the files. The folder of
    that name has BEIR's layout, and its prepared.json says whether the files are those that are published.
    """
    from vizsla.datasets import data_folder

    chosen = data or context.obj
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
    prepared = _prepare(name, files or [], data_folder(chosen), overwrite=overwrite)
    if as_json:
        from dataclasses import asdict

        console.print_json({**asdict(prepared), "folder": str(prepared.folder), "state": prepared.state})
        return
    judged = ", ".join(f"{split} {count:,}" for split, count in prepared.judgements.items())
    facts = [console.count(prepared.documents, "document"), console.count(prepared.queries, "query")]
    facts += [f"judgements: {judged}"] if judged else []
    console.line(f"{name} is in {prepared.folder}: {', '.join(facts)}; {prepared.state}")


def _prepare(name: str, files: list[Path], root: Path, *, overwrite: bool) -> Prepared:
    """Prepare a data set with a progress bar; say what differs from what is published."""
    from vizsla.datasets import prepare

    with console.progress(f"Preparing {name}", 0, "bytes") as advance:
        prepared = prepare(
            name, files, root, overwrite=overwrite, progress=lambda _, done, total: advance(done, done, total)
        )
    for remark in (*prepared.differences, *prepared.remarks):
        console.remark(f"{name}: {remark}")
    return prepared


def mine(
    context: typer.Context,
    questions: Annotated[str, typer.Argument(metavar="QUESTIONS", help="A data set of questions with answers.")],
    index: Annotated[str, options.index_option("The index of the passages; its model ranks them.")],
    output: Annotated[Path, options.output("The folder of the new data set.")],
    splits: Annotated[
        list[str] | None, typer.Option("--split", metavar="SPLIT", help="Its splits; default: train and dev.")
    ] = None,
    depth: Annotated[
        int, typer.Option("--depth", metavar="N", help="Passages of a question that are looked at.")
    ] = 100,
    negatives: Annotated[int, typer.Option("--negatives", metavar="N", help="Hard negatives of a question.")] = 50,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Find passages for questions with answers, to train on.

    As in: vizsla datasets mine entityquestions --index wiki.index -o ~/data/dpr-entityquestions

    The best passage with an answer is judged relevant, the best without one are hard negatives, as in DPR. Questions
    without such a passage are left out.
    """
    from dataclasses import asdict

    from vizsla.cli.options import open_retriever
    from vizsla.evaluation import QuestionSet, mine_passages

    console.check_apart(output, "--output")
    chosen = splits or ["train", "dev"]
    question_sets = {split: QuestionSet.with_answers(questions, data or context.obj, split) for split in chosen}
    total = sum(len(one.texts) for one in question_sets.values())
    with open_retriever(index) as retriever, console.progress("Mining", total, "questions") as advance:
        mined = mine_passages(
            retriever,
            question_sets,
            output,
            depth=depth,
            negatives=negatives,
            progress=lambda done: advance(done, done),
        )
    if as_json:
        console.print_json({"folder": str(output), **asdict(mined)})
        return
    found = ", ".join(f"{split} {count:,} ({mined.without[split]:,} without)" for split, count in mined.found.items())
    console.line(f"{output}: {console.count(mined.passages, 'passage')}, questions: {found}")


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
