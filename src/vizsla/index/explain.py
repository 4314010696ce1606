"""Why a document has its score: a tree that adds up to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from vizsla.index.snapshot import Snapshot
from vizsla.models import ExpandedBM25, Model, Part
from vizsla.models.embedding import DenseComponent
from vizsla.runs.explanation import Explanation
from vizsla.runs.filters import Filter


def explain(snapshot: Snapshot, model: Model, text: str, number: int, condition: Filter | None = None) -> Explanation:
    """One branch per component of a sum, one leaf per query term; the leaves add up to the score.

    `condition`: what documents must meet for a query to be expanded from them.
    """
    parts = snapshot.bind(model).parts
    branches = [_explain_part(snapshot, space, part, text, number, condition) for space, part in parts]
    if len(branches) == 1:
        only = branches[0]
        return Explanation(model.name, only.score, only.facts, only.parts)
    total = sum(b.score for b in branches)
    return Explanation(model.name, total, {}, tuple(branches))


def _explain_dense(snapshot: Snapshot, space: int, part: Part, text: str, number: int) -> Explanation:
    """A dense vector has no terms: the score is the product of two vectors, and the cosine says how near they are.

    Where the vectors of several models stand behind one another, there is a leaf for each.
    """
    component = part.component
    assert isinstance(component, DenseComponent)
    (asked,) = component.dense_queries([text])
    place = snapshot.place(number)
    assert place is not None
    stored = snapshot.segments[place[0]].dense[space][place[1]].astype(np.float64)
    known = np.zeros(len(stored)) if asked is None else asked
    leaves = []
    for name, where in component.stretches:
        mine, yours = stored[where], known[where]
        product, lengths = float(mine @ yours), float(np.linalg.norm(mine) * np.linalg.norm(yours))
        facts = {"dimensions": len(mine), "cosine": product / max(lengths, 1e-12)}
        leaves.append(Explanation(name, part.weight * product, facts))
    whole: dict[str, Any] = {"namespace": component.namespace, "weight": part.weight}
    if len(leaves) == 1:
        return Explanation(component.name, leaves[0].score, whole | leaves[0].facts)
    return Explanation(component.name, sum(leaf.score for leaf in leaves), whole, tuple(leaves))


def _explain_part(
    snapshot: Snapshot, space: int, part: Part, text: str, number: int, condition: Filter | None
) -> Explanation:
    component = part.component
    if component.dimensions:
        return _explain_dense(snapshot, space, part, text, number)
    statistics = snapshot.statistics[component.namespace]
    (asked,) = component.query_terms_in([text], snapshot.seen_through(condition))
    own = component.own_terms(text) if isinstance(component, ExpandedBM25) else None
    weights = component.query_weights(asked, statistics)
    terms = list(asked)
    numbers, df = snapshot.terms_of(component.namespace, terms)
    place = snapshot.place(number)
    assert place is not None
    segment, document = snapshot.segments[place[0]], place[1]
    code = segment.lengths[space, document]
    weighting = component.weighting(statistics)
    unit = {} if snapshot.splitter is None else {"unit": "passage"}  # what is counted where it says documents
    leaves = []
    for i, term in enumerate(terms):
        documents, values = segment.list_of(int(numbers[i]))
        found = int(np.searchsorted(documents, document))
        present = found < len(documents) and documents[found] == document
        value = values[found] if present else np.uint8(0)
        document_weight = float(weighting.weigh(np.array([value]), np.array([code]))[0]) if present else 0.0
        query_weight = part.weight * weights.get(term, 0.0)
        facts = {
            "term": term,
            "in_query": asked[term],
            "in_document": value.item(),
            "documents_with_term": int(df[i]),
            "query_weight": query_weight,
            "document_weight": document_weight,
            "counted": weighting.norms is not None,
        }
        if own is not None:
            facts["added"] = term not in own
        facts |= unit
        leaves.append(Explanation(term, query_weight * document_weight, facts))
    facts = {"namespace": component.namespace, "weight": part.weight, "documents": statistics.documents, **unit}
    if weighting.norms is not None:
        facts["average_length"] = statistics.total_length / max(statistics.documents, 1)
        facts["length_norm"] = float(weighting.norms[code])
    return Explanation(component.name, sum(leaf.score for leaf in leaves), facts, tuple(leaves))
