"""vizsla vectors: the recall of approximate vector search, and indexes of other machines that faiss may open."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import Annotated, Any

import typer

from vizsla.cli import console, options

MOST_QUERIES = 1000  # enough for a stable figure


def recall(
    index: options.IndexFolder,
    queries: options.Queries,
    search_params: Annotated[
        list[str] | None,
        typer.Option(
            "--search-params",
            metavar="PARAMS",
            help="Parameters to measure, as in nprobe=64. Repeat it.",
        ),
    ] = None,
    k: Annotated[int, options.top_k("The number of results whose recall is measured.")] = 10,
    model: Annotated[str | None, options.model("The dense model to measure, if the index has a sum of models.")] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="N", help="How many queries are searched at a time.")
    ] = 1,
    as_json: options.Json = False,
) -> None:
    """Measure recall and speed of approximate vector search.

    Recall is the share of the exact top k that is found. The exact search uses the same stored vectors.
    """
    from vizsla.datasets import read_queries
    from vizsla.index import Index, measure_recall
    from vizsla.models import parse_model

    texts = [text for text in read_queries(queries).values() if text.strip()]
    sample = list(islice(texts, 0, None, max(len(texts) // MOST_QUERIES, 1)))
    chosen = None if model is None else parse_model(model)
    with Index.open(index) as opened:
        known = opened.info()
        tokens, nothing = known["token_vectors"], {"kind": "exact", "vector_bytes": 0, "structure_bytes": 0}
        facts: dict[str, Any] = tokens if tokens and tokens["kind"] != "exact" else known["dense"] or nothing
        measured = measure_recall(
            opened, sample, search_params or [facts["kind"]], k, model=chosen, batch_size=batch_size
        )
    if as_json:
        data = {"k": k, "queries": len(sample), "batch_size": batch_size, "index": facts}
        console.print_json({**data, "settings": [asdict(row) for row in measured]})
        return
    right = (f"recall@{k}", "time", "ms per query", "bytes")
    rows = [
        (row.search_params, f"{row.recall:.4f}", f"{row.ratio:.2f}", f"{row.milliseconds:.2f}", _bytes(place, facts))
        for place, row in enumerate(measured)
    ]
    console.show_table(("search", *right), rows, right=right)
    console.remark(
        f"{console.count(len(sample), 'query')}, {batch_size} at a time; time: relative to the exact search, without "
        "encoding the queries"
    )


def _bytes(place: int, facts: dict[str, int]) -> str:
    """The bytes a search reads: the vectors and, except for the exact search in the first row, the vector index."""
    vectors, structure = console.size(facts["vector_bytes"]), facts["structure_bytes"]
    return f"{vectors} + {console.size(structure)}" if place and structure else vectors


def trust(index: options.IndexFolder) -> None:
    """Allow faiss to open an index that another machine has built.

    faiss does not check what it reads. Trust an index only if you know who has built it.
    """
    from vizsla.index import Index, trust_vector_indexes

    with Index.open(index) as opened:
        count = trust_vector_indexes(opened)
    if count:
        console.remark(f"{console.count(count, 'structure')} for approximate search may be opened from now on")
    else:
        console.remark("this index has no structures for approximate search; there is nothing to trust")
