"""Why a document has its score: one branch per part of a model, one leaf per query term.

Documents are accessed through `ExplainedDocument`, so that documents of other backends are explained in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from vizsla.engine import (
    DamagedSegmentError,
    MatchQuery,
    NgramQuery,
    Weighting,
    exact_matches,
    exact_max_sims,
    ngram_shares,
)
from vizsla.errors import VizslaError
from vizsla.index.search.bound_model import BoundModel, DensePart, MatchPart, NgramPart, SparsePart, TokenPart
from vizsla.index.search.searcher import Searcher
from vizsla.index.search.word_query import PartWeights, WordQuery
from vizsla.models import SearchContext, TokenComponent
from vizsla.models.components import TypedTerm
from vizsla.runs import Explanation, Filter


class MatchedTokens(NamedTuple):
    """For each query token its highest product, and the position of the matching document token; -1 for none."""

    products: np.ndarray
    places: np.ndarray


class ExplainedDocument(ABC):
    """A document or passage as it is stored."""

    unit: str | None = None
    """What is counted instead of documents; None for documents."""

    @abstractmethod
    def length_code(self, part: SparsePart) -> int:
        """How long it is, as the collection stores it."""

    @abstractmethod
    def value(self, part: SparsePart, number: int) -> float | int | None:
        """The stored value of a term by its number: a count or a weight; None if the document does not have it."""

    @abstractmethod
    def weighting(self, part: SparsePart) -> Weighting:
        """How stored values become weights."""

    @abstractmethod
    def average_length(self, part: SparsePart) -> float:
        """The average document length that the weights are computed with."""

    @abstractmethod
    def vector(self, part: DensePart | MatchPart) -> np.ndarray:
        """Its dense vector."""

    @abstractmethod
    def max_sims(self, part: TokenPart, vectors: np.ndarray) -> tuple[MatchedTokens, int]:
        """The match of each query vector, and how many token vectors the document has."""

    @abstractmethod
    def matches(self, part: MatchPart, query: MatchQuery) -> MatchedTokens:
        """The best match of each query token among equal tokens of the document."""

    @abstractmethod
    def ngram_shares(self, part: NgramPart, query: NgramQuery) -> np.ndarray:
        """What each n-gram of a query adds to its score, without the weight of the part."""

    @abstractmethod
    def token_names(self, component: TokenComponent) -> list[str]:
        """The names of its token vectors; an empty list where they are not known."""


def explain(
    searcher: Searcher, bound: BoundModel, text: str, doc_id: str, condition: Filter | None, syntax: str | None = None
) -> Explanation:
    """The score of a document, as a tree whose leaves add up to it; for a split document the score of its best passage.

    `condition`: the filter of the search, for queries that are expanded from documents.
    """
    numbers = searcher.snapshot.documents.numbers_of(doc_id)
    if not numbers:
        raise VizslaError(f"there is no document with the id {doc_id!r}")
    if condition is not None and not any(searcher.passes(n, condition) for n in numbers):
        raise VizslaError(f"the document {doc_id!r} does not pass the filter")
    context, weights, first = searcher.context(condition), None, numbers[0]
    if syntax is not None:
        words = WordQuery(searcher, bound, text, condition, syntax)
        numbers = [n for n in numbers if words.meets(n)]
        if not numbers:
            raise VizslaError(f"the document {doc_id!r} does not match the query")
        text, weights = words.plain_text, words.weights
    documents = [_SegmentDocument(searcher, n) for n in numbers]
    whole = None if bound.documents is None else _SegmentDocument(searcher, first, is_whole=True)
    try:
        scored = (explain_document(d, bound, text, context, weights, whole) for d in documents)
        return max(scored, key=lambda e: e.score)
    except DamagedSegmentError:
        raise searcher.snapshot.damage() from None


def explain_document(
    document: ExplainedDocument,
    bound: BoundModel,
    text: str,
    context: SearchContext,
    weights: Mapping[int, PartWeights] | None = None,
    whole: ExplainedDocument | None = None,
) -> Explanation:
    """The score of one document or passage.

    `weights`: the query's weights in each sparse part, by the position of its namespace, if not encoded from the text.
    `whole`: the document of a passage, for the parts that read whole documents.
    """
    branches = _branches(document, bound, text, context, weights)
    if bound.documents is not None and whole is not None:
        branches += _branches(whole, bound.documents, text, context, None)
    name = bound.model.name
    if len(branches) == 1:
        only = branches[0]
        return Explanation(name, only.score, only.facts, only.parts)
    return Explanation(name, sum(b.score for b in branches), {}, tuple(branches))


def _branches(
    document: ExplainedDocument,
    bound: BoundModel,
    text: str,
    context: SearchContext,
    weights: Mapping[int, PartWeights] | None,
) -> list[Explanation]:
    """What each part of a model adds to the score of a document."""
    branches = []
    for part in bound.parts:
        if isinstance(part, DensePart):
            query, _ = part.component.query_embeddings([text])
            branches.append(_explain_dense(document, part, query[0]))
        elif isinstance(part, MatchPart):
            branches.append(_explain_matches(document, part, text))
        elif isinstance(part, NgramPart):
            branches.append(_explain_ngrams(document, part, text, context))
        elif isinstance(part, TokenPart):
            (vectors,) = part.component.query_embeddings([text])
            branches.append(_explain_tokens(document, part, text, vectors))
        else:
            if weights is None:
                (terms,) = part.component.query_terms([text], context)
                own = PartWeights(terms, part.query_weights([terms])[0])
            else:
                own = weights[part.space]
            branches.append(_explain_sparse(document, part, text, own))
    return branches


def _explain_dense(document: ExplainedDocument, part: DensePart, vector: np.ndarray) -> Explanation:
    """A dense vector has no terms: the score is the product of two vectors, and the cosine says how close they are.

    If the vectors of several models are concatenated, each has a leaf.
    """
    component = part.component
    stored, query = document.vector(part).astype(np.float64), vector.astype(np.float64)
    leaves = []
    for name, columns in component.vector_parts:
        own, other = stored[columns], query[columns]
        product, norms = float(own @ other), float(np.linalg.norm(own) * np.linalg.norm(other))
        facts = {"dimensions": len(own), "cosine": product / max(norms, 1e-12)}
        leaves.append(Explanation(name, part.weight * product, facts))
    facts_of_part: dict[str, Any] = {"namespace": component.namespace, "weight": part.weight}
    if len(leaves) == 1:
        return Explanation(component.name, leaves[0].score, facts_of_part | leaves[0].facts)
    return Explanation(component.name, sum(leaf.score for leaf in leaves), facts_of_part, tuple(leaves))


def _explain_tokens(document: ExplainedDocument, part: TokenPart, text: str, vectors: np.ndarray) -> Explanation:
    """A leaf for each query token: the document token it met, and the product of their vectors.

    The branch names all tokens of the document, so that a page can show them in their places.
    """
    component = part.component
    met, count = document.max_sims(part, vectors)
    names, queries = document.token_names(component), component.query_tokens(text)
    leaves = []
    for i, (product, place) in enumerate(zip(met.products.tolist(), met.places.tolist(), strict=True)):
        if place < 0:
            continue
        name = queries[i] if i < len(queries) else f"query token {i + 1}"
        other = names[place] if place < len(names) else None
        facts = {"query_token": name, "document_token": other, "position": place + 1, "similarity": product}
        leaves.append(Explanation(name, part.weight * product, facts))
    facts = {"namespace": component.namespace, "weight": part.weight, "tokens": count}
    if len(names) == count:
        facts["document_tokens"] = names
    return Explanation(component.name, sum(leaf.score for leaf in leaves), facts, tuple(leaves))


def _explain_matches(document: ExplainedDocument, part: MatchPart, text: str) -> Explanation:
    """A leaf for each query token that the document has, and one for the vectors of both texts where there are some."""
    component = part.component
    leaves, (encoded,) = [], part.encode([text])
    if encoded is not None:
        query, whole = encoded
        if whole is not None:
            stored = document.vector(part).astype(np.float64)
            product, norms = float(stored @ whole), float(np.linalg.norm(stored) * np.linalg.norm(whole))
            cosine = np.sign(part.weight) * product / max(norms, 1e-12)
            leaves.append(Explanation("[CLS]", product, {"dimensions": len(whole), "cosine": float(cosine)}))
        met = document.matches(part, query)
        for term, product, place in zip(query.terms.tolist(), met.products.tolist(), met.places.tolist(), strict=True):
            if place >= 0:
                name = component.token_name(term)
                facts = {"token": name, "occurrence": place + 1, "product": product}
                leaves.append(Explanation(name, part.weight * product, facts))
    facts = {"namespace": component.namespace, "weight": part.weight}
    return Explanation(component.name, sum(leaf.score for leaf in leaves), facts, tuple(leaves))


def _explain_ngrams(document: ExplainedDocument, part: NgramPart, text: str, context: SearchContext) -> Explanation:
    """A leaf for each n-gram of the query that counts for the document, and how many n-grams the query has."""
    component, leaves = part.component, []
    (query,) = part.encode([text], context)
    if query is not None:
        ngrams = context.ngrams_of(component)
        for i, share in enumerate(document.ngram_shares(part, query).tolist()):
            if share:
                ngram, weight = query.ngram(i).tolist(), float(query.weights[i])
                facts = {
                    "ngram": component.ngram_text(ngram),
                    "occurrences": ngrams.count(ngrams.find(ngram)),
                    "ngram_weight": weight,
                    "counted_share": share / weight,
                }
                leaves.append(Explanation(repr(facts["ngram"]), part.weight * share, facts))
    facts = {"namespace": component.namespace, "weight": part.weight, "ngrams": 0 if query is None else len(query)}
    return Explanation(component.name, sum(leaf.score for leaf in leaves), facts, tuple(leaves))


def _explain_sparse(document: ExplainedDocument, part: SparsePart, text: str, own: PartWeights) -> Explanation:
    component, statistics = part.component, part.statistics
    query, weights = own.terms, own.weights
    numbers, frequencies = statistics.terms.lookup(part.space, list(query))
    code, weighting = document.length_code(part), document.weighting(part)
    unit = {} if document.unit is None else {"unit": document.unit}
    typed, reasons = component.typed_terms(text), component.reasons(text)
    leaves = []
    for i, (term, query_count) in enumerate(query.items()):
        value = document.value(part, int(numbers[i]))
        document_weight = 0.0 if value is None else float(weighting.weigh(np.array([value]), np.array([code]))[0])
        query_weight = weights.get(term, 0.0)
        facts = {
            "term": term,
            "in_query": query_count,
            "in_document": 0 if value is None else value,
            "documents_with_term": int(frequencies[i]),
            "query_weight": query_weight,
            "document_weight": document_weight,
            "counted": weighting.norms is not None,
            **_origin(typed.get(term), component.adds_terms),
            **unit,
        }
        name = term
        if facts.get("added") and term in reasons:
            facts["reason"] = reasons[term]
            name = f"{term} ({reasons[term]})"
        leaves.append(Explanation(name, query_weight * document_weight, facts))
    facts = {"namespace": component.namespace, "weight": part.weight, "documents": statistics.documents, **unit}
    if weighting.norms is not None:
        facts["average_length"] = document.average_length(part)
        facts["length_norm"] = float(weighting.norms[code])
    return Explanation(component.name, sum(leaf.score for leaf in leaves), facts, tuple(leaves))


def _origin(typed: TypedTerm | None, may_be_added: bool) -> dict[str, Any]:
    """Where a term of a query comes from: words that were typed, a piece of one, or the model, which added it."""
    facts: dict[str, Any] = {"added": typed is None} if may_be_added else {}
    if typed is not None and typed.words:
        facts["words"] = list(typed.words)
    if typed is not None and typed.is_piece:
        facts["piece"] = True
    return facts


class _SegmentDocument(ExplainedDocument):
    """A document or passage in a segment of an index."""

    def __init__(self, searcher: Searcher, number: int, *, is_whole: bool = False) -> None:
        """`is_whole`: the number is that of a first passage, and stands for its whole document."""
        self._snapshot = searcher.snapshot
        self._number = number
        self.unit = None if is_whole or self._snapshot.splitter is None else "passage"
        segment, self._row = self._snapshot.position(number)
        self._segment = self._snapshot.segments[segment]

    def length_code(self, part: SparsePart) -> int:
        with self._snapshot.naming_damage():
            code = int(self._segment.lengths[part.space, self._row])
            norms = self.weighting(part).norms
            if norms is not None and code >= len(norms):
                raise DamagedSegmentError
            return code

    def value(self, part: SparsePart, number: int) -> float | int | None:  # noqa: ARG002 (numbers of terms are disjoint)
        with self._snapshot.naming_damage():
            documents, values = self._segment.list_of(number)
        at = int(np.searchsorted(documents, self._row))
        if at == len(documents) or documents[at] != self._row:
            return None
        value: float | int = values[at].item()
        return value

    def weighting(self, part: SparsePart) -> Weighting:
        return part.component.weighting(part.statistics)

    def average_length(self, part: SparsePart) -> float:
        return part.statistics.total_length / max(part.statistics.documents, 1)

    def vector(self, part: DensePart | MatchPart) -> np.ndarray:
        with self._snapshot.naming_damage():
            return np.asarray(self._segment.dense[part.space][self._row])

    def max_sims(self, part: TokenPart, vectors: np.ndarray) -> tuple[MatchedTokens, int]:
        with self._snapshot.naming_damage():
            rows = self._segment.tokens[part.space]
            norm = self._segment.max_norms[part.space]
            _, (products,), (places,) = exact_max_sims(rows, np.array([self._row]), vectors, norm)
            return MatchedTokens(products, places), len(rows.of(self._row))

    def matches(self, part: MatchPart, query: MatchQuery) -> MatchedTokens:
        with self._snapshot.naming_damage():
            rows = self._segment.matches[part.space]
            _, (products,), (places,) = exact_matches(rows, np.array([self._row]), query)
            return MatchedTokens(products, places)

    def ngram_shares(self, part: NgramPart, query: NgramQuery) -> np.ndarray:
        with self._snapshot.naming_damage():
            return ngram_shares(self._segment.ngrams[part.space], self._row, query)

    def token_names(self, component: TokenComponent) -> list[str]:
        documents = self._snapshot.documents
        if not documents.has_texts:
            return []
        return component.document_tokens(documents.read_by_models([self._number])[self._number])
