"""vizsla judge: what nobody has judged, as a sheet for people; and what their judgements change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console
from vizsla.cli.compare import Convention
from vizsla.cli.datasets import Data
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.datasets import BeirDataset
    from vizsla.runs import Qrels

Runs = Annotated[list[Path], typer.Argument(help="TREC runs.")]
Dataset = Annotated[str, typer.Argument(help="A folder in BEIR's layout, or the name of a data set.")]
Split = Annotated[str | None, typer.Option("--split", help="Which judgements.")]

app = typer.Typer(help="Find documents nobody has judged; evaluate with new judgements.", rich_markup_mode=None)


@app.command("list")
def list_unjudged(
    dataset: Dataset,
    runs: Runs,
    output: Annotated[Path, typer.Option("-o", "--output", help="The sheet to fill in, a .csv file.")],
    k: Annotated[int, typer.Option("-k", help="How deep to look.")] = 10,
    split: Split = None,
    data: Data = None,
) -> None:
    """Write the unjudged documents among the first k of all runs to a sheet, to be judged by people."""
    from vizsla.evaluation.judging import unjudged, write_sheet
    from vizsla.runs import Run

    if k < 1:
        raise VizslaError(f"-k, how deep to look, must be 1 or more, not {k}")
    console.check_output(output, *runs)
    if output != console.STANDARD_OUTPUT and output.exists():
        raise VizslaError(f"{output} is there already and may hold judgements; name another file")
    member, qrels = _judged(dataset, split, data)
    read = [Run(Run.read(path), path.stem) for path in runs]
    if not any(query in qrels.judgements for run in read for query in run):
        raise VizslaError(f"the runs have none of the judged queries of {member.name}")
    rows = unjudged(read, qrels, k)
    wanted = {row.document for row in rows}
    documents = {d.id: d for d in member.documents() if d.id in wanted}
    with console.written(output) as file:
        count = write_sheet(file, rows, member.queries(), documents)
    queries = len({row.query for row in rows})
    console.remark(
        f"{console.count(count, 'document')} to judge for {console.count(queries, 'query')}: "
        f"fill in the column 'score' of {console.place(output)}"
    )


@app.command("evaluate")
def evaluate_with(
    dataset: Dataset,
    sheet: Annotated[Path, typer.Argument(help="A sheet filled in, or judgements in TREC's or BEIR's format.")],
    runs: Runs,
    measures: Annotated[str, typer.Option("--measures", help="In ir_measures' notation.")] = "nDCG@10 Hole@10",
    output: Annotated[
        Path | None, typer.Option("--output", help="Write all judgements here, as .tsv or TREC's.")
    ] = None,
    split: Split = None,
    convention: Convention = "anserini",
    data: Data = None,
) -> None:
    """Evaluate runs without and with new judgements: what not having been judged has cost each."""
    from vizsla.evaluation import evaluate
    from vizsla.evaluation.judging import read_sheet
    from vizsla.runs import Qrels, Run, parse_measures

    _, qrels = _judged(dataset, split, data)
    console.check_apart(output, "--output")
    console.check_output(output, sheet, *runs)
    given, left = read_sheet(sheet) if sheet.suffix == ".csv" else (Qrels.read(sheet), 0)
    new = given.only(qrels.judgements.keys())
    if not new.judgements and given.judgements:
        raise VizslaError(f"{sheet}: none of the queries judged here is one of this data set's")
    _refuse_contradictions(qrels, new, sheet)
    more = qrels.with_more(new)
    parsed = parse_measures(measures)
    columns = [column for m in map(str, parsed) for column in (m, f"{m}, judged")]
    rows = []
    for path in runs:
        run = Run.read(path)
        before, after = (evaluate(run, q, parsed, convention).measures for q in (qrels, more))
        figures = [cell for m in map(str, parsed) for cell in (f"{before[m]:.4f}", f"{after[m]:.4f}")]
        rows.append((path.stem, *figures))
    console.show_table(("run", *columns), rows, right=columns)
    added = sum(map(len, new.judgements.values()))
    empty = f"; {console.count(left, 'row')} of the sheet left empty" if left else ""
    unknown = len(given.judgements) - len(new.judgements)
    others = f"; {unknown} of its queries are not judged in this data set and were left out" if unknown else ""
    console.remark(f"{console.count(added, 'judgement')} added{empty}{others}")
    if output is not None:
        more.write(output)
        console.remark(f"All judgements: {output}")


def _refuse_contradictions(qrels: Qrels, new: Qrels, sheet: Path) -> None:
    for query, judged in new.judgements.items():
        for document, grade in judged.items():
            if qrels.judgements[query].get(document, grade) != grade:
                known = qrels.judgements[query][document]
                message = f"{sheet}: {document!r} is judged {grade} for the query {query!r}, the data set has {known}"
                raise VizslaError(message)


def _judged(name: str, split: str | None, data: Path | None) -> tuple[BeirDataset, Qrels]:
    from vizsla.datasets import open_datasets

    group = open_datasets(name, data)
    if len(group.members) > 1:
        raise VizslaError(f"{group.name} is {len(group.members)} collections; judge for one of them")
    return group.members[0], group.members[0].qrels(group.split(split))
