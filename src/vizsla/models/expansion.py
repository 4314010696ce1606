"""Query expansion by name: which expanders there are, and how a model gets one."""

from __future__ import annotations

from dataclasses import replace

from vizsla.errors import VizslaError
from vizsla.models.bm25 import BM25, ExpandedBM25, QueryExpander
from vizsla.models.model import Model, Part, Sum
from vizsla.spec import Registry

EXPANDERS: Registry[QueryExpander] = Registry("query expander", package="vizsla.models", example="rm3(documents=5)")
"""The query expanders by name."""


def parse_expander(text: str) -> QueryExpander:
    """A query expander by name, as in `rm3(documents=5)`, or an augmenter by its folder.

    >>> parse_expander("rm3(documents=5)").documents
    5
    """
    if text.partition("(")[0].strip() in EXPANDERS:
        return EXPANDERS.parse(text)
    return EXPANDERS["augmenter"].make(network=text)


def with_expansion(model: Model, expander: QueryExpander) -> Model:
    """A model whose BM25 gets expanded queries; the other parts of a sum stay as they are."""
    parts, problems = [], []
    for part in model.parts:
        bm25 = part.component
        if isinstance(bm25, ExpandedBM25):
            bm25 = replace(bm25.bm25, namespace=bm25.namespace)
        if isinstance(bm25, BM25):
            problem = expander.problem(bm25)
            if problem is None:
                parts.append(Part(part.weight, bm25.expand(expander)))
                continue
            problems.append(problem)
        parts.append(part)
    if not any(isinstance(p.component, ExpandedBM25) and p.component.expander is expander for p in parts):
        why = problems[0] if problems else f"expands queries for BM25, and {model.name} has no BM25"
        raise VizslaError(f"{expander.name} {why}")
    if len(parts) == 1 and parts[0].weight == 1.0:
        return parts[0].component
    return Sum(tuple(parts))
