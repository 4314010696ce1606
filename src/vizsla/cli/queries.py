"""vizsla queries: queries generated for documents (docT5query), filtered, or drawn from the documents themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console, options
from vizsla.cli.options import check_outside, report_skipped
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.datasets import Document, Source
    from vizsla.expansion import ExpansionReport, QueryScorer
    from vizsla.models.generator import Sampling

ENDINGS = (".jsonl", ".ndjson")
_QUIET = 60.0  # seconds between two lines of progress without a terminal


@options.spread
def generate(
    *,
    sources: options.Sources,
    output: Annotated[Path, options.output("The file to write, .jsonl; an interrupted run continues.")],
    model: Annotated[str, options.model("A generator of queries: its folder or its name.")] = "doc2query-small",
    preset: Annotated[
        str, typer.Option("--preset", metavar="NAME", help="Sampling as in doct5query, doc2query, beir or genq.")
    ] = "doct5query",
    queries: Annotated[
        int | None, typer.Option("--queries", metavar="N", help="Queries for each document; default: 40.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", metavar="N", help="Draw from the N likeliest tokens; 0: all; default: 10.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option("--top-p", metavar="P", help="Draw from the likeliest tokens that sum to P.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", metavar="T", help="Above 1: more varied; 0: the likeliest token.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="The longest query in tokens; default: 64.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random numbers.")] = 0,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", help="How many documents are processed and written at once.")
    ] = 64,
    fields: Annotated[
        str, typer.Option("--fields", metavar="NAME/...", help="The fields that the generator reads.")
    ] = "title/text",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file, even an unfinished one.")] = False,
    reading: options.SourceOptions,
    as_json: options.Json = False,
) -> None:
    """Generate queries for documents and write both.

    This is docT5query: vizsla index reads the field queries. The same command continues an interrupted run.
    """
    from vizsla.expansion import count_documents
    from vizsla.expansion import expand as run
    from vizsla.models.generator import open_generator

    read = tuple(fields.split("/"))
    given = {"texts": queries, "top_k": top_k, "top_p": top_p, "temperature": temperature, "max_tokens": max_tokens}
    sampling = _sampling(preset, {**given, "seed": seed})
    _check_output(output)
    found = reading.find(sources, read)
    check_outside(output, found)
    generator = open_generator(model)
    total = count_documents(_documents(found), read)
    started = time.perf_counter()
    with _expansion_progress(total) as show:
        report = run(
            _documents(found), output, generator, sampling, fields=read, block=batch,
            overwrite=overwrite, progress=show,
        )  # fmt: skip
    report_skipped(found)
    _report_expansion(report, output, generator.name, time.perf_counter() - started, as_json)


def _sampling(preset: str, given: dict[str, float | None]) -> Sampling:
    """The sampling of a preset, overridden by the given options."""
    from vizsla.expansion import PRESETS

    console.check_name("preset", preset, PRESETS)
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return replace(PRESETS[preset], **changes)


def _check_output(output: Path) -> None:
    """Refuse an output that could not be continued or read again."""
    if output == console.STANDARD_OUTPUT:
        raise VizslaError("- is standard output, but an interrupted run can only continue a file; name one")
    if output.suffix not in ENDINGS:
        raise VizslaError(f"{output}: JSON lines are written; name a file that ends in {' or '.join(ENDINGS)}")
    console.check_output(output)


def _documents(sources: list[Source]) -> Iterator[Document]:
    for source in sources:
        yield from source.documents()


@contextmanager
def _expansion_progress(total: int) -> Iterator[Callable[[ExpansionReport], None]]:
    """A context with a function that shows progress: a bar in a terminal, elsewhere a line each minute.

    The rate is that of this run; documents that were in the file before do not count.
    """
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("Expanding"), BarColumn(), TextColumn("{task.fields[state]}", markup=False))
    began = printed = time.monotonic()
    has_said = False
    with Progress(*columns, console=console.err, transient=True, disable=not console.err.is_terminal) as bar:
        task = bar.add_task("", total=total or None, state="")

        def show(report: ExpansionReport) -> None:
            nonlocal began, printed, has_said
            now = time.monotonic()
            done = report.documents - report.resumed
            if not done:
                began = printed = now
            elif report.resumed and not has_said:
                console.remark(f"continuing after {console.count(report.resumed, 'document')}")
                has_said = True
            state = _state(report.documents, total, done / max(now - began, 1e-6) if done else 0.0)
            bar.update(task, completed=report.documents, state=state)
            if not console.err.is_terminal and now - printed >= _QUIET:
                console.remark(state)
                printed = now

        yield show


def _state(done: int, total: int, rate: float) -> str:
    """The progress in words: '1,280 of 10,000 documents, 3.1/s, 0:46:52 left'."""
    state = f"{done:,} of {console.count(total, 'document')}"
    if not rate:
        return state
    left = timedelta(seconds=round((total - done) / rate))
    return f"{state}, {rate:,.0f}/s, {left} left" if rate >= 10 else f"{state}, {rate:.2g}/s, {left} left"


def _report_expansion(report: ExpansionReport, output: Path, generator: str, seconds: float, as_json: bool) -> None:
    done = report.documents - report.resumed
    if as_json:
        rate = done / seconds if seconds else 0.0
        facts = {"file": str(output), "generator": generator, **asdict(report)}
        console.print_json({**facts, "seconds": round(seconds, 3), "documents_per_second": round(rate, 3)})
        return
    if report.cut:
        console.remark(
            f"{console.count(report.cut, 'document')} of more than {report.length:,} tokens: {generator} has read the "
            f"first {report.length:,} of each"
        )
    if report.without_text:
        console.remark(f"{console.count(report.without_text, 'document')} without text, and so without queries")
    written = f"{console.count(report.documents, 'document')} with {console.count(report.queries, 'query')}"
    if not done:
        console.remark(f"{output} is finished: {written}")
    else:
        took = f"{console.count(done, 'document')} in {timedelta(seconds=round(seconds))} ({done / seconds:,.1f}/s)"
        console.remark(f"{output}: {written}; {took}")
    console.remark(f"Index it with: vizsla index {output} -o INDEX --model doct5query")


Expanded = Annotated[Path, typer.Argument(metavar="FILE", help="Documents with queries, as generate writes them.")]


def filter(
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
    scores: Annotated[bool, typer.Option("--scores", help="Also write the scores as the field query_scores.")] = False,
    precision: options.Precision = None,
    as_json: options.Json = False,
) -> None:
    """Keep the queries that fit their documents best (Doc2Query--).

    Or the first ones of each document.
    """
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


@contextmanager
def _progress(source: Source) -> Iterator[Callable[[str, int], None]]:
    """A context with a progress bar that counts documents, as often as they are read."""
    from vizsla.datasets.files import read_lines

    total = sum(1 for part in source.parts for _ in read_lines(part.file))
    with console.progress("Queries", total, "documents") as advance:
        yield lambda _, done: advance(done, done)


@options.spread
def draw(
    *,
    sources: options.Sources,
    output: Annotated[Path, options.output("The folder of the new data set.")],
    styles: Annotated[
        str, typer.Option("--styles", metavar="NAME,...", help="What becomes a query: see above.")
    ] = "sentences,keywords,titles,next",
    per_document: Annotated[
        int, typer.Option("--per-document", metavar="N", help="Queries of a document in each style.")
    ] = 1,
    max_queries: Annotated[
        int, typer.Option("--max-queries", metavar="N", help="Queries of each style, at random; 0 for all.")
    ] = 0,
    left_out: Annotated[
        float, typer.Option("--left-out", metavar="SHARE", help="Share of its words that a sentence loses, at most.")
    ] = 0.6,
    remove: Annotated[
        float, typer.Option("--remove", metavar="SHARE", help="Share of sentences and titles removed from documents.")
    ] = 0.9,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random numbers.")] = 0,
    reading: options.SourceOptions,
    splitting: options.PassageOptions,
    as_json: options.Json = False,
) -> None:
    """Draw training queries from documents, without judgements.

    As in: vizsla queries draw documents.jsonl -o drawn; vizsla train unicoil --dataset drawn -o my-model

    Styles: sentences (with words left out), keywords (two to six rare words), titles, next (the beginning of a passage
    looks for the next one), generated (what vizsla queries generate wrote). The folder has BEIR's layout.
    """
    from vizsla.expansion import DrawingSettings, draw_queries

    console.check_apart(output, "--output")
    settings = DrawingSettings(per_document, max_queries, left_out, remove, seed)
    names = [name.strip() for name in styles.split(",")]
    splitter = splitting.splitter
    documents = _documents(reading.find(sources, ("title", "text", "queries")))
    if splitter is not None:
        documents = (passage for document in documents for passage in splitter.passages(document))
    with console.progress("Drawing", 0, "documents") as advance:
        drawn = draw_queries(
            documents, output, names, settings, progress=lambda done, total: advance(done, done, total)
        )
    if as_json:
        console.print_json({"folder": str(output), **asdict(drawn)})
        return
    queries = ", ".join(f"{style} {count:,}" for style, count in drawn.queries.items())
    documents_written = console.count(drawn.documents, "document")
    console.line(f"{output}: {documents_written} ({drawn.shortened:,} shortened), queries: {queries}")
    console.remark(f"Train with: vizsla train RECIPE --dataset {output} -o MODEL")
