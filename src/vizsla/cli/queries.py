"""vizsla queries: generated queries filtered and described."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console, options
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.datasets import Document, Source
    from vizsla.expansion import JudgedQueries, QueryFacts, QueryScorer

app = typer.Typer(help="Filter generated queries, or describe them.", rich_markup_mode=None)

Expanded = Annotated[Path, typer.Argument(metavar="FILE", help="Documents with queries, as vizsla expand writes them.")]


@app.command("filter")
def filter_generated(
    file: Expanded,
    output: Annotated[Path, options.output("The file to write, .jsonl.")],
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="MODEL", help="Score by a model: bm25, minilm, or a sum of models."),
    ] = None,
    reranker: Annotated[
        str | None, typer.Option("--reranker", metavar="MODEL", help="Score by a cross-encoder: its folder or name.")
    ] = None,
    keep: Annotated[
        float | None, typer.Option("--keep", metavar="SHARE", help="Keep this share of all queries, the best: 0.3.")
    ] = None,
    min_score: Annotated[
        float | None, typer.Option("--min-score", metavar="SCORE", help="Keep queries of this score or more.")
    ] = None,
    queries: Annotated[
        int | None, typer.Option("--queries", metavar="N", help="Use only the first N queries of each document.")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Write the scores, too, as the field query_scores.")] = False,
    precision: options.Precision = None,
    as_json: options.Json = False,
) -> None:
    """Keep the generated queries that fit their documents best (Doc2Query--), or the first ones of each."""
    from vizsla.expansion import QueryFilter, filter_queries

    console.check_output(output, file)
    source = _source(file)
    chosen = QueryFilter(_scorer(by, reranker, precision), keep, min_score, queries)
    with _progress(source) as show:
        report = filter_queries(source.documents, output, chosen, with_scores=scores, progress=show)
    if as_json:
        console.print_json({"file": str(output), **asdict(report)})
        return
    threshold = "" if report.threshold is None else f", of a score of {report.threshold:.4g} or more"
    share = f" ({report.kept / report.queries:.1%})" if report.queries else ""
    empty = f"; {console.count(report.without_queries, 'document')} without any" if report.without_queries else ""
    console.remark(f"{output}: {report.kept:,} of {console.count(report.queries, 'query')}{share}{threshold}{empty}")


@app.command("describe")
def describe_generated(
    file: Expanded,
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", metavar="DATASET", help="Compare with the judged queries of this data set."),
    ] = None,
    split: options.Split = None,
    model: Annotated[str, options.model("What searches for the queries.")] = "bm25",
    sample: Annotated[
        int, typer.Option("--sample", metavar="N", help="How many generated queries are searched for.")
    ] = 2000,
    examples: Annotated[int, typer.Option("--examples", metavar="N", help="How many random queries are shown.")] = 20,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the sample and the examples.")] = 0,
    report: Annotated[list[Path] | None, options.report(".md or .json")] = None,
    as_json: options.Json = False,
    data: options.Data = None,
) -> None:
    """Show what generated queries are like: whether they find their documents, what they repeat and what they add."""
    from vizsla.expansion import describe_queries
    from vizsla.reports.generated_queries import QUERY_FORMATS, query_data

    for path in report or []:
        QUERY_FORMATS.check(path)
        console.check_output(path, file)
    judged = None if dataset is None else _judged(dataset, split, data)
    source = _source(file)
    with _progress(source) as show:
        documents = _shown(source, show)
        facts = describe_queries(documents, model, judged=judged, sample=sample, examples=examples, seed=seed)
    for path in report or []:
        QUERY_FORMATS.write(facts, path)
        console.remark(f"Written: {path}")
    if as_json:
        console.print_json(query_data(facts))
    else:
        _show(facts)


def _source(file: Path) -> Source:
    from vizsla.datasets import Source

    return Source.find(file, "jsonl")


def _scorer(by: str | None, reranker: str | None, precision: str | None) -> QueryScorer | None:
    from vizsla.cli.rerank import PRECISIONS
    from vizsla.expansion import ModelScorer, RerankerScorer
    from vizsla.models import Reranker, parse_model

    if by is not None and reranker is not None:
        raise VizslaError("queries are scored by a model (--by) or by a cross-encoder (--reranker), not by both")
    if precision is not None:
        console.check_name("precision", precision, PRECISIONS)
    if reranker is not None:
        return RerankerScorer(Reranker.open(reranker, precision))  # type: ignore[arg-type]
    return None if by is None else ModelScorer(parse_model(by))


def _judged(dataset: str, split: str | None, data: Path | None) -> JudgedQueries:
    from vizsla.datasets import open_datasets
    from vizsla.expansion import JudgedQueries

    group = open_datasets(dataset, data)
    if len(group.members) > 1:
        raise VizslaError(f"{group.name} is {len(group.members)} collections; name one of them")
    member = group.members[0]
    qrels = member.qrels(group.split(split))
    return JudgedQueries(f"{member.name}, people", member.queries_of(qrels), qrels)


@contextmanager
def _progress(source: Source) -> Iterator[Callable[[str, int], None]]:
    """A context with a progress bar that counts documents, as often as they are read."""
    from vizsla.datasets.files import read_lines

    total = sum(1 for part in source.parts for _ in read_lines(part.file))
    with console.progress("Queries", total, "documents") as advance:
        yield lambda _, done: advance(done, done)


def _shown(source: Source, show: Callable[[str, int], None]) -> Iterator[Document]:
    for number, document in enumerate(source.documents(), 1):
        yield document
        if number % 500 == 0:
            show("reading", number)


def _show(facts: QueryFacts) -> None:
    from vizsla.reports.generated_queries import query_note, query_rows

    columns, rows = query_rows(facts)
    console.show_table(columns, rows, right=columns[1:])
    console.line(query_note(facts))
    for example in facts.examples:
        about = console.safe(example.title or example.text, 80)
        console.line(f"  {console.safe(example.query)}  [{console.safe(example.document, 60)}: {about}]")
