"""vizsla recall: what an approximate dense search finds of the exact one, and how fast."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console

MOST = 1000  # queries that are enough


def recall(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the index.")],
    queries: Annotated[
        Path, typer.Option("--queries", help="A file of queries: JSON lines {_id, text} or id TAB text.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--dense", metavar="HOW", help="An effort to measure, as in ef_search=200 or nprobe=64; may come again."
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many of the exact best are looked for.")] = 10,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The dense part of the index's sum, as in minilm.")
    ] = None,
    together: Annotated[int, typer.Option("--together", help="How many queries are asked at a time.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Measure the recall of approximate dense search against the exact one, on the vectors as they are stored."""
    from vizsla.datasets import read_queries
    from vizsla.index import Index

    texts = [text for text in read_queries(queries).values() if text.strip()]
    asked = list(islice(texts, 0, None, max(len(texts) // MOST, 1)))
    with Index.open(folder) as index:
        facts = index.info()["dense"] or {"kind": "exact", "vector_bytes": 0, "structure_bytes": 0}
        found = index.recall(asked, settings or [facts["kind"]], k, model=model, together=together)
    if as_json:
        data = {"k": k, "queries": len(asked), "together": together, "index": facts}
        console.print_json({**data, "settings": [asdict(row) for row in found]})
        return
    right = (f"recall@{k}", "time", "ms a query", "bytes")
    rows = [
        (row.setting, f"{row.recall:.4f}", f"{row.ratio:.2f}", f"{row.milliseconds:.2f}", _bytes(i, facts))
        for i, row in enumerate(found)
    ]
    console.show_table(("dense", *right), rows, right=right)
    console.remark(
        f"{console.count(len(asked), 'query')}, {together} at a time; time is that of the "
        "exact search over the same stored vectors = 1, without the encoding of queries"
    )


def _bytes(place: int, facts: dict[str, int]) -> str:
    """What is read: the vectors, and but for the exact search what was built over them."""
    vectors, structure = console.size(facts["vector_bytes"]), facts["structure_bytes"]
    return f"{vectors} + {console.size(structure)}" if place and structure else vectors
