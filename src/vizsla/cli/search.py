"""vizsla search: one query, a prompt, or a whole file of queries."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.index import Index


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
) -> None:
    """Search an index."""
    from vizsla.cli.show import show_results
    from vizsla.index import Index

    if (queries is None) != (output is None):
        raise VizslaError("--queries and --output go together: a file of queries in, a TREC run out")
    if queries is not None and query is not None:
        raise VizslaError("give either a query or --queries FILE, not both")
    with Index.open(folder) as index:
        if queries is not None and output is not None:
            _write_run(index, queries, output, 1000 if k is None else k, filter)
        elif query is None:
            from vizsla.cli.prompt import prompt

            prompt(index, 10 if k is None else k, filter)
        elif as_json:
            console.print_json(found_as_data(index, query, 10 if k is None else k, filter))
        else:
            show_results(index, query, 10 if k is None else k, filter)


def found_as_data(index: Index, query: str, k: int, filter: str | None = None) -> dict[str, Any]:
    started = time.perf_counter()
    hits = index.search(query, k, filter)
    milliseconds = (time.perf_counter() - started) * 1000
    results = [
        {"rank": hit.rank, "id": hit.id, "score": hit.score, "document": dict(hit.document.content)} for hit in hits
    ]
    return {"query": query, "model": index.model.name, "milliseconds": round(milliseconds, 3), "results": results}


def _write_run(index: Index, queries: Path, output: Path, k: int, filter: str | None) -> None:
    from vizsla.datasets import read_queries

    texts = read_queries(queries)
    started = time.perf_counter()
    run = index.run(texts, k, filter)
    seconds = time.perf_counter() - started
    run.write(output, tag=index.model.name.replace(" ", ""))
    empty = sum(not ranking for ranking in run.rankings.values())
    found = f"; {console.count(empty, 'query')} found nothing".replace("querys", "queries") if empty else ""
    console.remark(f"{len(texts):,} queries in {seconds:.1f} s, written to {output}{found}")
