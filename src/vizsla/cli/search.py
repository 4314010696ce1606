"""vizsla search: one query, a prompt, or a whole file of queries."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.index import Index
    from vizsla.runs import Run

Augment = Annotated[
    str | None,
    typer.Option(
        "--augment", metavar="NAME", help="Ask BM25 in other words: general, the folder of an augmenter, or rm3."
    ),
]
RECALL_SAMPLE = 100  # queries the recall of an approximate search is measured on


def search(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the index.")],
    query: Annotated[str | None, typer.Argument(help="What to look for; without it, a prompt.")] = None,
    k: Annotated[int | None, typer.Option("-k", help="How many results: 10, or 1000 for --queries.")] = None,
    filter: Annotated[
        str | None, typer.Option("--filter", help='A condition on the documents: year >= 1999 and lang = "en".')
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
    queries: Annotated[
        Path | None, typer.Option("--queries", help="A file of queries: JSON lines {_id, text} or id TAB text.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", help="With --queries: the TREC run to write.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Ask with other weights, or only some parts, of its model.")
    ] = None,
    augment: Augment = None,
    threads: Annotated[
        int | None, typer.Option("--threads", help="With --queries: how many threads, else all.")
    ] = None,
    approximate: Annotated[
        float | None,
        typer.Option("--approximate", help="With --queries: faster, not exact; 0 to 1, where it is exact."),
    ] = None,
) -> None:
    """Search an index."""
    from vizsla.cli.show import show_results
    from vizsla.index import Index

    if (queries is None) != (output is None):
        raise VizslaError("--queries and --output go together: a file of queries in, a TREC run out")
    if queries is not None and query is not None:
        raise VizslaError("give either a query or --queries FILE, not both")
    if queries is None and (threads is not None or approximate is not None):
        raise VizslaError("--threads and --approximate are for many queries: give them with --queries FILE")
    with Index.open(folder) as index:
        if model is not None:
            index.ask_with(model)
        ask_in_other_words(index, augment)
        if queries is not None and output is not None:
            run_options = {"threads": threads, "approximate": approximate}
            _write_run(index, queries, output, 1000 if k is None else k, filter, run_options)
        elif query is None:
            from vizsla.cli.prompt import prompt

            prompt(index, 10 if k is None else k, filter)
        elif as_json:
            console.print_json(found_as_data(index, query, 10 if k is None else k, filter))
        else:
            show_results(index, query, 10 if k is None else k, filter)


def ask_in_other_words(index: Index, augment: str | None) -> None:
    """Have an index asked through an augmenter, if there is one."""
    from vizsla.models import asked_with, parse_queries

    if augment is not None:
        index.ask_with(asked_with(index.asked, parse_queries(augment)))


def found_as_data(index: Index, query: str, k: int, filter: str | None = None) -> dict[str, Any]:
    started = time.perf_counter()
    hits = index.search(query, k, filter)
    milliseconds = (time.perf_counter() - started) * 1000
    results = [
        {"rank": hit.rank, "id": hit.id, "score": hit.score, "document": dict(hit.document.content)} for hit in hits
    ]
    return {"query": query, "model": index.asked.name, "milliseconds": round(milliseconds, 3), "results": results}


def _write_run(index: Index, queries: Path, output: Path, k: int, filter: str | None, options: dict[str, Any]) -> None:
    from vizsla.datasets import read_queries

    texts = read_queries(queries)
    started = time.perf_counter()
    run = index.run(texts, k, filter, **options).untied()
    seconds = time.perf_counter() - started
    run.write(output, tag=index.asked.name.replace(" ", ""))
    empty = sum(not ranking for ranking in run.values())
    found = f"; {console.count(empty, 'query')} found nothing".replace("querys", "queries") if empty else ""
    console.remark(f"{len(texts):,} queries in {seconds:.1f} s, written to {output}{found}")
    if options["approximate"] is not None:
        sample = dict(islice(texts.items(), 0, None, max(len(texts) // RECALL_SAMPLE, 1)))
        recall = recall_of(run, index.run(sample, k, filter))
        console.remark(f"Approximate: {recall:.1%} of the exact top {k}, measured on {len(sample):,} of the queries")


def recall_of(run: Run, exact: Run) -> float:
    """The share of exact rankings' documents that others have, on average over the queries that find any."""
    found = {q: set(run[q].documents) for q in exact}
    shares = [sum(d in found[q] for d, _ in ranking) / len(ranking) for q, ranking in exact.items() if ranking]
    return sum(shares) / len(shares) if shares else 1.0
