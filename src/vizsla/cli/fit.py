"""vizsla fit: the weights of a sum, fitted to the documents of an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vizsla.cli import console, options

if TYPE_CHECKING:
    from vizsla.models import Model


def fit(index: options.IndexFolder) -> None:
    """Fit the weights of a sum to the documents of an index.

    No queries and no judgements are needed. Nothing is indexed again. auto(bm25, minilm) is fitted to its first
    documents; do it again when there are many others. To choose weights by judged queries, see vizsla tune.
    """
    from vizsla.index import Index

    with Index.open(index) as opened:
        before = _weights(opened.model)
        after = _weights(opened.fit_weights())
    console.remark(f"before: {before}")
    console.remark(f"now:    {after}" if after != before else "the weights are as before")


def _weights(model: Model) -> str:
    """The parts of a sum with their weights, and the norms of queries where there are some."""
    terms = []
    for weight, component in model.parts:
        norm = getattr(component, "query_norm", 0.0)
        terms.append(f"{weight:g} * {component.name}" + (f" (query_norm {norm:g})" if norm else ""))
    return " + ".join(terms)
