"""vizsla explain: why a document has its score."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console
from vizsla.cli.search import Augment, ask_in_other_words


def explain(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the index.")],
    query: Annotated[str, typer.Argument(help="The query.")],
    doc_id: Annotated[str, typer.Argument(metavar="ID", help="The document's id.")],
    filter: Annotated[
        str | None, typer.Option("--filter", help="That of the search; a query is expanded from what meets it.")
    ] = None,
    augment: Augment = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a tree.")] = False,
) -> None:
    """Explain a document's score: each term's part, adding up to the score."""
    from vizsla.cli.show import show_explanation
    from vizsla.index import Index

    with Index.open(folder) as index:
        ask_in_other_words(index, augment)
        explanation = index.explain(query, doc_id, filter)
    if as_json:
        console.print_json({"query": query, "id": doc_id, **explanation.as_dict()})
    else:
        show_explanation(explanation, doc_id)
