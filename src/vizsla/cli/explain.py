"""vizsla explain: why a document has its score."""

from __future__ import annotations

from typing import Annotated

import typer

from vizsla.cli import console, options
from vizsla.cli.opening import open_retriever, searched_with


def explain(
    index: options.Location,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The query.")],
    doc_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the document.")],
    model: Annotated[str | None, options.model("Other parameters or weights, or a part of the index's model.")] = None,
    filter: options.Filter = None,
    expand: options.Expand = None,
    syntax: options.Syntax = None,
    as_json: options.Json = False,
) -> None:
    """Explain a document's score: what each query term adds.

    Give the --filter of the search: rm3 expands a query from the documents that meet it.
    """
    from vizsla.cli.show import show_explanation

    with open_retriever(index) as opened:
        explanation = searched_with(opened, model=model, expand=expand, syntax=syntax).explain(query, doc_id, filter)
    if as_json:
        console.print_json({"query": query, "id": doc_id, **explanation.as_dict()})
    else:
        show_explanation(explanation, doc_id)
