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
    from vizsla.index import Hit, Index
    from vizsla.models import Reranker
    from vizsla.runs import Run

Augment = Annotated[
    str | None,
    typer.Option(
        "--augment", metavar="NAME", help="Ask BM25 in other words: general, the folder of an augmenter, or rm3."
    ),
]
Combine = Annotated[
    str | None,
    typer.Option("--combine", metavar="RULE", help="The parts of a sum by: sum (exact), union, rrf, linear, ..."),
]
AskedDense = Annotated[
    str | None,
    typer.Option("--dense", metavar="HOW", help="Dense vectors: exact, or with another effort, as in ef=200."),
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
    output: Annotated[
        Path | None, typer.Option("--output", help="With --queries: the TREC run to write; - is standard output.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Ask with other weights, or only some parts, of its model.")
    ] = None,
    augment: Augment = None,
    reranker: Annotated[
        str | None, typer.Option("--rerank", metavar="DIR", help="Rank what is found anew with a cross-encoder.")
    ] = None,
    depth: Annotated[int, typer.Option("--depth", help="With --rerank: how many documents of a query.")] = 100,
    combine: Combine = None,
    dense: AskedDense = None,
    threads: Annotated[
        int | None, typer.Option("--threads", help="With --queries: how many threads, else all.")
    ] = None,
    approximate: Annotated[
        float | None,
        typer.Option("--approximate", help="With --queries: faster, not exact; 0 to 1, where it is exact."),
    ] = None,
) -> None:
    """Search an index."""
    started = time.perf_counter()
    from vizsla.cli.show import show_hits, show_results
    from vizsla.index import Index
    from vizsla.models import Reranker

    if (queries is None) != (output is None):
        raise VizslaError("--queries and --output go together: a file of queries in, a TREC run out")
    if queries is not None and query is not None:
        raise VizslaError("give either a query or --queries FILE, not both")
    if queries is None and (threads is not None or approximate is not None):
        raise VizslaError("--threads and --approximate are for many queries: give them with --queries FILE")
    if reranker is not None and query is None and queries is None:
        raise VizslaError("the prompt knows no --rerank; give a query, or --queries FILE")
    if depth < 1:
        raise VizslaError(f"--depth, how many documents are ranked anew, must be 1 or more, not {depth}")
    console.check_output(output, *([queries] if queries else []))
    second = Reranker.open(reranker) if reranker is not None else None
    with Index.open(folder) as index:
        if model is not None:
            index.ask_with(model)
        ask_in_other_words(index, augment, combine, dense)
        if queries is not None and output is not None:
            run_options = {"threads": threads, "approximate": approximate}
            _write_run(index, queries, output, 1000 if k is None else k, filter, run_options, second, depth)
        elif query is None:
            from vizsla.cli.prompt import prompt

            prompt(index, 10 if k is None else k, filter)
        elif as_json:
            index.search(query, 1, filter)  # the first search of a process loads, or compiles, what others find there
            loading = time.perf_counter() - started
            console.print_json(found_as_data(index, query, 10 if k is None else k, filter, second, depth, loading))
        elif second is not None and (hits := _hits(index, query, 10 if k is None else k, filter, second, depth)):
            show_hits(index, query, hits, filter)
        else:
            show_results(index, query, 10 if k is None else k, filter)


def ask_in_other_words(index: Index, augment: str | None, combine: str | None = None, dense: str | None = None) -> None:
    """Have an index asked through an augmenter, if there is one, its parts combined and vectors searched in a way."""
    from vizsla.models import parse_expander, with_expansion

    model = index.asked if augment is None else with_expansion(index.asked, parse_expander(augment))
    if augment is not None or combine is not None or dense is not None:
        index.ask_with(model, combine=combine, dense=dense)


def _hits(index: Index, query: str, k: int, filter: str | None, second: Reranker | None, depth: int) -> list[Hit]:
    """The hits of a query, the first `depth` ranked anew where there is a reranker; others are not shown then."""
    from vizsla.retrievers import rerank_hits

    if second is None:
        return index.search(query, k, filter)
    return rerank_hits(index.search(query, depth, filter), query, second)[:k]


def found_as_data(
    index: Index, query: str, k: int, filter: str | None, second: Reranker | None, depth: int, loading: float
) -> dict[str, Any]:
    """What a query finds: `milliseconds` are of the search alone, `loading_milliseconds` of all that went before."""
    started = time.perf_counter()
    hits = _hits(index, query, k, filter, second, depth)
    milliseconds = (time.perf_counter() - started) * 1000
    times = {"milliseconds": round(milliseconds, 3), "loading_milliseconds": round(loading * 1000, 3)}
    return {"query": query, "model": index.asked.name, **times, "results": [_as_data(hit) for hit in hits]}


def _as_data(hit: Hit) -> dict[str, Any]:
    passage = {} if hit.passage is None else {"passage": hit.passage}
    return {"rank": hit.rank, "id": hit.id, "score": hit.score, **passage, "document": dict(hit.document.content)}


def _write_run(
    index: Index, queries: Path, output: Path, k: int, filter: str | None, options: dict[str, Any],
    second: Reranker | None, depth: int,
) -> None:  # fmt: skip
    from vizsla.datasets import read_queries
    from vizsla.retrievers import rerank

    texts = read_queries(queries)
    started = time.perf_counter()
    run = index.run(texts, k, filter, **options).untied()
    if second is not None:
        with console.progress("Reranking", len(texts), "pairs") as advance:
            run = rerank(index, run, texts, second, depth, advance).untied(by_id=False)
    seconds = time.perf_counter() - started
    with console.written(output) as file:
        run.write(file, tag=index.asked.name.replace(" ", ""))
    empty = sum(not ranking for ranking in run.values())
    found = f"; {console.count(empty, 'query')} found nothing" if empty else ""
    console.remark(f"{len(texts):,} queries in {seconds:.1f} s, written to {console.place(output)}{found}")
    if options["approximate"] is not None:  # of the search, which a reranker does not change
        sample = dict(islice(texts.items(), 0, None, max(len(texts) // RECALL_SAMPLE, 1)))
        recall = recall_of(run, index.run(sample, k, filter))
        console.remark(f"Approximate: {recall:.1%} of the exact top {k}, measured on {len(sample):,} of the queries")


def recall_of(run: Run, exact: Run) -> float:
    """The share of exact rankings' documents that others have, on average over the queries that find any."""
    found = {q: set(run[q].documents) for q in exact}
    shares = [sum(d in found[q] for d, _ in ranking) / len(ranking) for q, ranking in exact.items() if ranking]
    return sum(shares) / len(shares) if shares else 1.0
