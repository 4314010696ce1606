"""Why a document has its score: one branch per part of a model, one leaf per query term."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vizsla.engine import exact_matches, exact_max_sims
from vizsla.errors import VizslaError
from vizsla.index.search.bound_model import DensePart, MatchPart, SparsePart, TokenPart
from vizsla.index.search.searcher import Searcher
from vizsla.models import ExpandedBM25, Model
from vizsla.runs import Explanation, Filter


def explain(searcher: Searcher, model: Model, text: str, doc_id: str, condition: Filter | None) -> Explanation:
    """The score of a document, as a tree whose leaves add up to it; of a document in passages that of the best one.

    `condition`: the filter of the search, for queries that are expanded from documents.
    """
    numbers = searcher.snapshot.documents.numbers_of(doc_id)
    if not numbers:
        raise VizslaError(f"there is no document with the id {doc_id!r}")
    if condition is not None and not any(searcher.passes(n, condition) for n in numbers):
        raise VizslaError(f"the document {doc_id!r} does not pass the filter")
    return max((_explain_row(searcher, model, text, n, condition) for n in numbers), key=lambda e: e.score)


def _explain_row(searcher: Searcher, model: Model, text: str, number: int, condition: Filter | None) -> Explanation:
    """The score of the document or passage with an insertion number."""
    branches = []
    for part in searcher.bind(model).parts:
        if isinstance(part, DensePart):
            query, _ = part.component.query_embeddings([text])
            with searcher.snapshot.naming_damage():
                branches.append(_explain_dense(searcher, part, query[0], number))
        elif isinstance(part, MatchPart):
            with searcher.snapshot.naming_damage():
                branches.append(_explain_matches(searcher, part, text, number))
        elif isinstance(part, TokenPart):
            (vectors,) = part.component.query_embeddings([text])
            with searcher.snapshot.naming_damage():
                branches.append(_explain_tokens(searcher, part, text, vectors, number))
        else:
            (terms,) = part.component.query_terms([text], searcher.context(condition))
            with searcher.snapshot.naming_damage():
                branches.append(_explain_sparse(searcher, part, text, terms, number))
    if len(branches) == 1:
        only = branches[0]
        return Explanation(model.name, only.score, only.facts, only.parts)
    return Explanation(model.name, sum(b.score for b in branches), {}, tuple(branches))


def _explain_dense(searcher: Searcher, part: DensePart, vector: np.ndarray, number: int) -> Explanation:
    """A dense vector has no terms: the score is the product of two vectors, and the cosine says how close they are.

    If the vectors of several models are concatenated, each has a leaf.
    """
    snapshot, component = searcher.snapshot, part.component
    position = snapshot.position(number)
    assert position is not None
    document = snapshot.segments[position[0]].dense[part.space][position[1]].astype(np.float64)
    query = vector.astype(np.float64)
    leaves = []
    for name, columns in component.vector_parts:
        own, other = document[columns], query[columns]
        product, norms = float(own @ other), float(np.linalg.norm(own) * np.linalg.norm(other))
        facts = {"dimensions": len(own), "cosine": product / max(norms, 1e-12)}
        leaves.append(Explanation(name, part.weight * product, facts))
    facts_of_part: dict[str, Any] = {"namespace": component.namespace, "weight": part.weight}
    if len(leaves) == 1:
        return Explanation(component.name, leaves[0].score, facts_of_part | leaves[0].facts)
    return Explanation(component.name, sum(leaf.score for leaf in leaves), facts_of_part, tuple(leaves))


def _explain_tokens(searcher: Searcher, part: TokenPart, text: str, vectors: np.ndarray, number: int) -> Explanation:
    """A leaf for each query token: the document token it met, and the product of their vectors.

    The branch names all tokens of the document, so that a page can show them in their places.
    """
    snapshot, component = searcher.snapshot, part.component
    position = snapshot.position(number)
    assert position is not None
    segment = snapshot.segments[position[0]]
    rows, row = segment.tokens[part.space], np.array([position[1]])
    _, (products,), (places,) = exact_max_sims(rows, row, vectors, segment.max_norms[part.space])
    document = snapshot.documents.by_number([number])[number]
    names = component.document_tokens(document.content) if snapshot.documents.has_texts else []
    queries = component.query_tokens(text)
    leaves = []
    for i, (product, place) in enumerate(zip(products.tolist(), places.tolist(), strict=True)):
        if place < 0:
            continue
        name = queries[i] if i < len(queries) else f"query token {i + 1}"
        met = names[place] if place < len(names) else None
        facts = {"query_token": name, "document_token": met, "position": place + 1, "similarity": product}
        leaves.append(Explanation(name, part.weight * product, facts))
    tokens = len(rows.of(position[1]))
    facts = {"namespace": component.namespace, "weight": part.weight, "tokens": tokens}
    if len(names) == tokens:
        facts["document_tokens"] = names
    return Explanation(component.name, sum(leaf.score for leaf in leaves), facts, tuple(leaves))


def _explain_matches(searcher: Searcher, part: MatchPart, text: str, number: int) -> Explanation:
    """A leaf for each query token that the document has, and one for the vectors of both texts where there are some."""
    snapshot, component = searcher.snapshot, part.component
    position = snapshot.position(number)
    assert position is not None
    segment, row = snapshot.segments[position[0]], position[1]
    leaves, (encoded,) = [], part.encode([text])
    if encoded is not None:
        query, whole = encoded
        if whole is not None:
            document = segment.dense[part.space][row].astype(np.float64)
            product, norms = float(document @ whole), float(np.linalg.norm(document) * np.linalg.norm(whole))
            cosine = np.sign(part.weight) * product / max(norms, 1e-12)
            leaves.append(Explanation("[CLS]", product, {"dimensions": len(whole), "cosine": float(cosine)}))
        _, (products,), (places,) = exact_matches(segment.matches[part.space], np.array([row]), query)
        for term, product, place in zip(query.terms.tolist(), products.tolist(), places.tolist(), strict=True):
            if place >= 0:
                name = component.token_name(term)
                facts = {"token": name, "occurrence": place + 1, "product": product}
                leaves.append(Explanation(name, part.weight * product, facts))
    facts = {"namespace": component.namespace, "weight": part.weight}
    return Explanation(component.name, sum(leaf.score for leaf in leaves), facts, tuple(leaves))


def _explain_sparse(
    searcher: Searcher, part: SparsePart, text: str, query: Mapping[str, float], number: int
) -> Explanation:
    snapshot, component, statistics = searcher.snapshot, part.component, part.statistics
    (weights,) = part.query_weights([query])
    numbers, frequencies = statistics.terms.lookup(part.space, list(query))
    position = snapshot.position(number)
    assert position is not None
    segment, row = snapshot.segments[position[0]], position[1]
    code, weighting = segment.lengths[part.space, row], component.weighting(statistics)
    unit = {} if snapshot.splitter is None else {"unit": "passage"}  # what is counted instead of documents
    expanded = {}
    if isinstance(component, ExpandedBM25):
        own = component.bm25.query_terms([text])[0]
        expanded = {term: {"added": term not in own} for term in query}
    leaves = []
    for i, (term, query_count) in enumerate(query.items()):
        documents, values = segment.list_of(int(numbers[i]))
        at = int(np.searchsorted(documents, row))
        is_present = at < len(documents) and documents[at] == row
        value = values[at] if is_present else np.uint8(0)
        document_weight = float(weighting.weigh(np.array([value]), np.array([code]))[0]) if is_present else 0.0
        query_weight = weights.get(term, 0.0)
        facts = {
            "term": term,
            "in_query": query_count,
            "in_document": value.item(),
            "documents_with_term": int(frequencies[i]),
            "query_weight": query_weight,
            "document_weight": document_weight,
            "counted": weighting.norms is not None,
            **expanded.get(term, {}),
            **unit,
        }
        leaves.append(Explanation(term, query_weight * document_weight, facts))
    facts = {"namespace": component.namespace, "weight": part.weight, "documents": statistics.documents, **unit}
    if weighting.norms is not None:
        facts["average_length"] = statistics.total_length / max(statistics.documents, 1)
        facts["length_norm"] = float(weighting.norms[code])
    return Explanation(component.name, sum(leaf.score for leaf in leaves), facts, tuple(leaves))
