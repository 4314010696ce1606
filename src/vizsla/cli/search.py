"""vizsla search: one query, a prompt, or a whole file of queries."""

from __future__ import annotations

import sys
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
    k: Annotated[int, typer.Option("-k", help="How many results; for --queries 1000 unless given.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
    queries: Annotated[
        Path | None, typer.Option("--queries", help="A file of queries: JSON lines {_id, text} or id TAB text.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", help="With --queries: the TREC run to write.")] = None,
) -> None:
    """Search an index."""
    from vizsla.index import Index

    if k == 0 and "-k" in sys.argv:
        raise VizslaError("-k, the number of results, must be 1 or more, not 0")
    if (queries is None) != (output is None):
        raise VizslaError("--queries and --output go together: a file of queries in, a TREC run out")
    if queries is not None and query is not None:
        raise VizslaError("give either a query or --queries FILE, not both")
    with Index.open(folder) as index:
        if queries is not None and output is not None:
            _write_run(index, queries, output, k or 1000)
        elif query is None:
            from vizsla.cli.prompt import prompt

            prompt(index, k or 10)
        elif as_json:
            console.print_json(found_as_data(index, query, k or 10))
        else:
            show_results(index, query, k or 10)


def show_results(index: Index, query: str, k: int) -> list[str]:
    """Print the results of a query; gives their ids."""
    from vizsla.cli.show import nothing_found, show_hits

    hits = index.search(query, k)
    if hits:
        show_hits(index, query, hits)
    else:
        console.remark(nothing_found(index, query))
    return [hit.id for hit in hits]


def found_as_data(index: Index, query: str, k: int) -> dict[str, Any]:
    started = time.perf_counter()
    hits = index.search(query, k)
    milliseconds = (time.perf_counter() - started) * 1000
    results = [
        {"rank": hit.rank, "id": hit.id, "score": hit.score, "document": dict(hit.document.content)} for hit in hits
    ]
    return {"query": query, "model": index.model.name, "milliseconds": round(milliseconds, 3), "results": results}


def _write_run(index: Index, queries: Path, output: Path, k: int) -> None:
    from vizsla.datasets import read_queries

    texts = read_queries(queries)
    started = time.perf_counter()
    run = index.run(texts, k)
    seconds = time.perf_counter() - started
    try:
        run.write(output, tag=index.model.name.replace(" ", ""))
    except OSError as e:
        raise VizslaError(f"{output}: cannot be written ({e.strerror})") from e
    empty = sum(not ranking for ranking in run.rankings.values())
    found = f"; {console.count(empty, 'query')} found nothing".replace("querys", "queries") if empty else ""
    console.remark(f"{len(texts):,} queries in {seconds:.1f} s, written to {output}{found}")
