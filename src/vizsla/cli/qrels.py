"""vizsla qrels: write unjudged documents to a sheet for people to judge, and evaluate with their judgements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console, options
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.datasets import BeirDataset
    from vizsla.runs import Qrels


def pool(
    dataset: options.Dataset,
    runs: options.Runs,
    output: Annotated[Path, options.output("The sheet to fill in, a .csv file; - is standard output.")],
    k: Annotated[int, options.top_k("The depth of the pool: the top k of each run are judged.")] = 10,
    split: options.Split = None,
    data: options.Data = None,
) -> None:
    """Write the unjudged documents of runs to a sheet to fill in."""
    from vizsla.evaluation.judging import unjudged, write_sheet
    from vizsla.runs import Run

    if k < 1:
        raise VizslaError(f"-k, the depth of the pool, must be 1 or more, not {k}")
    console.check_output(output, *runs)
    if output != console.STANDARD_OUTPUT and output.exists():
        raise VizslaError(f"{output} exists already and may hold judgements; name another file")
    member, qrels = _open(dataset, split, data)
    read = [Run(Run.read(path), path.stem) for path in runs]
    if not any(query in qrels.judgements for run in read for query in run):
        raise VizslaError(f"the runs have none of the judged queries of {member.name}")
    rows = unjudged(read, qrels, k)
    pooled = {row.document for row in rows}
    documents = {d.id: d for d in member.documents() if d.id in pooled}
    with console.output_file(output) as file:
        count = write_sheet(file, rows, member.queries(), documents)
    queries = len({row.query for row in rows})
    console.remark(
        f"{console.count(count, 'document')} to judge for {console.count(queries, 'query')}: "
        f"fill in the column 'score' of {console.output_name(output)}"
    )


def evaluate_with(
    dataset: options.Dataset,
    sheet: Annotated[
        Path, typer.Argument(metavar="SHEET", help="The sheet, filled in; or judgements in TREC's or BEIR's format.")
    ],
    runs: options.Runs,
    measures: Annotated[str, options.measures()] = "nDCG@10 Hole@10",
    output: Annotated[
        Path | None, options.output("Also write all judgements: .tsv as in BEIR, else as in TREC.")
    ] = None,
    split: options.Split = None,
    convention: options.Convention = "anserini",
    data: options.Data = None,
) -> None:
    """Evaluate runs before and after adding new judgements."""
    from vizsla.evaluation import evaluate
    from vizsla.evaluation.judging import read_sheet
    from vizsla.runs import Qrels, Run, parse_measures

    _, qrels = _open(dataset, split, data)
    console.check_apart(output, "--output")
    console.check_output(output, sheet, *runs)
    given, unfilled = read_sheet(sheet) if sheet.suffix == ".csv" else (Qrels.read(sheet), 0)
    new = given.only(qrels.judgements.keys())
    if not new.judgements and given.judgements:
        raise VizslaError(f"{sheet}: no query judged here is in this data set")
    _refuse_contradictions(qrels, new, sheet)
    extended = qrels.with_more(new)
    parsed = parse_measures(measures)
    columns = [column for m in map(str, parsed) for column in (m, f"{m}, judged")]
    rows = []
    for path in runs:
        run = Run.read(path)
        before, after = (evaluate(run, q, parsed, convention).measures for q in (qrels, extended))
        figures = [cell for m in map(str, parsed) for cell in (f"{before[m]:.4f}", f"{after[m]:.4f}")]
        rows.append((path.stem, *figures))
    console.show_table(("run", *columns), rows, right=columns)
    added = sum(map(len, new.judgements.values()))
    empty = f"; {console.count(unfilled, 'row')} of the sheet left empty" if unfilled else ""
    unknown = len(given.judgements) - len(new.judgements)
    others = f"; {unknown} of its queries are not judged in this data set and were left out" if unknown else ""
    console.remark(f"{console.count(added, 'judgement')} added{empty}{others}")
    if output is not None:
        extended.write(output)
        console.remark(f"Written: {output}")


def _refuse_contradictions(qrels: Qrels, new: Qrels, sheet: Path) -> None:
    for query, judged in new.judgements.items():
        for document, grade in judged.items():
            if qrels.judgements[query].get(document, grade) != grade:
                known = qrels.judgements[query][document]
                message = f"{sheet}: {document!r} is judged {grade} for the query {query!r}, the data set has {known}"
                raise VizslaError(message)


def _open(name: str, split: str | None, data: Path | None) -> tuple[BeirDataset, Qrels]:
    from vizsla.datasets import open_datasets

    group = open_datasets(name, data)
    if len(group.members) > 1:
        raise VizslaError(f"{group.name} is {len(group.members)} collections; judge for one of them")
    return group.members[0], group.members[0].qrels(group.split(split))
