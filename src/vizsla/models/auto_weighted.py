"""Auto-weighted sums: weights are fitted to the documents. BM51 is one, and so is the hybrid of words and vectors."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from vizsla.errors import VizslaError
from vizsla.models.components import SparseComponent, count_statistics
from vizsla.models.fields import Fields, field_text
from vizsla.models.model import MODELS, Component, Model, Part, Sum
from vizsla.models.statistics import Statistics
from vizsla.vectors import Vectors

AUTO = "auto"
SAMPLE = 400
"""How many documents a weight is fitted on."""
MIN_QUERIES = 50
DENSE_STRENGTH = 1.4
"""How much more dense and token vectors count than terms; chosen on dev queries of NFCorpus, FeedbackQA and MedQuAD."""
DEFAULT_DENSE_WEIGHT = 30.0
_QUERIES = 200
_WORDS = (4, 12)  # in a pseudo-query
_SHORTEST, _LONGEST = 3, 300  # words in a pseudo-query that measures how scores grow with its length
_NOISE = 1e-5  # relative to the highest score: less variation than this is rounding
_BEST_SHARE = 8  # one in this many documents is among the best of a query


@dataclass(frozen=True)
class AutoWeightedSum(Sum):
    """A sum whose weights are fitted to the documents. No query of a user or of a test set is used.

    If all parts are lexical, they get equal influence. Pseudo-queries are passages of four to twelve words from the
    documents. Each part scores the document a passage came from above the mean of all documents; the weights make
    these margins equal on average.

    If a part has dense or token vectors, the weights make the scores of the best documents vary equally. These are the
    best eighth of the documents, without the pseudo-query's own. The scores of terms grow with the number of terms,
    those of vectors hardly do. Therefore pseudo-queries of many lengths are drawn, and lexical parts get a
    `query_norm` as well. Vectors are then weighted `DENSE_STRENGTH` times as much as terms.

    Weights and norms sit on the query side, so they can be fitted after documents are indexed.
    """

    kind: ClassVar[str] = "balanced"

    @property
    def needs_fit(self) -> bool:
        return True

    def fit(self, documents: Sequence[Fields]) -> Model:
        """The sum with its weights fitted. With too few documents it is returned unfitted, to be fitted later."""
        lexical = all(isinstance(part.component, SparseComponent) for part in self.parts)
        queries, sources = _passages(documents, self.fields, _WORDS if lexical else (_SHORTEST, _LONGEST))
        if len(queries) < MIN_QUERIES:
            return self
        parts = (_equal_margins if lexical else _equal_spreads)(self.parts, documents, queries, sources)
        return Sum(parts, self.name)

    def describe(self, folder: Any) -> dict[str, Any]:
        return {**super().describe(folder), self.kind: True}


@MODELS.register(AUTO, help="Models added up with weights fitted to the documents, as in auto(bm25, minilm).")
def auto(*models: Model) -> Model:
    """The sum of some models with weights that are fitted to the documents of an index.

    >>> from vizsla.models import BM25
    >>> auto(BM25(), BM25(fields=("title",), namespace="title", name="titles")).name
    'auto(bm25, titles)'
    """
    parts = [part for model in models for part in model.parts]
    if len(parts) < 2:
        raise VizslaError("auto weighs several models against each other; name two or more, as in auto(bm25, minilm)")
    first = _first_guess(parts[0].component)
    unweighted = tuple(Part(_first_guess(part.component) / first, part.component) for part in parts)
    return AutoWeightedSum(unweighted, f"auto({', '.join(model.name for model in models)})")


def _first_guess(component: Component) -> float:
    """The weight until there are documents to fit it to: cosines are much smaller than the scores of terms."""
    return 1.0 if isinstance(component, SparseComponent) else DEFAULT_DENSE_WEIGHT


def fitted_again(model: Model, documents: Sequence[Fields]) -> Model:
    """A sum with its weights fitted to documents, replacing its present weights."""
    if len(model.parts) < 2:
        raise VizslaError(f"the model {model.name} is not a sum, so there are no weights to fit")
    fitted = AutoWeightedSum(model.parts, model.name).fit(documents)
    if fitted.needs_fit:
        raise VizslaError(f"fitting weights needs at least {MIN_QUERIES} documents with twelve words; there are fewer")
    return fitted


def fitted_description(description: Mapping[str, Any], fitted: Model) -> dict[str, Any]:
    """The description of an auto-weighted sum with the weights and norms of the fitted one."""
    pairs = zip(description["parts"], fitted.parts, strict=True)
    entries = [{**entry, "weight": part.weight, **_norm_of(part.component)} for entry, part in pairs]
    return {**{k: v for k, v in description.items() if k != AutoWeightedSum.kind}, "parts": entries}


def with_norm_of(component: Component, fitted: Component) -> Component:
    """A component with the `query_norm` of a fitted one, if it has one."""
    return replace(component, **_norm_of(fitted)) if _norm_of(component) else component  # type: ignore[type-var]


def _norm_of(component: Component) -> dict[str, float]:
    norm = getattr(component, "query_norm", None)
    return {} if norm is None else {"query_norm": norm}


def _passages(
    documents: Sequence[Fields], fields: Sequence[str], sizes: tuple[int, int]
) -> tuple[list[str], list[int]]:
    """Passages of documents, and the number of the document each is from; always the same for the same documents.

    Lengths up to twelve words are drawn equally often; in a larger range short ones more often.
    """
    rng = random.Random(0)
    shortest, longest = sizes
    least = min(longest, _WORDS[1])
    texts = [(i, words) for i, d in enumerate(documents) if len(words := field_text(d, fields).split()) >= least]
    chosen = rng.sample(texts, min(_QUERIES, len(texts)))
    queries = []
    for _, words in chosen:
        if longest == least:
            size = rng.randint(shortest, longest)
        else:
            size = round(shortest * (min(longest, len(words)) / shortest) ** rng.random())
        start = rng.randint(0, len(words) - size)
        queries.append(" ".join(words[start : start + size]))
    return queries, [i for i, _ in chosen]


def _equal_margins(
    parts: Sequence[Part], documents: Sequence[Fields], queries: list[str], sources: list[int]
) -> tuple[Part, ...]:
    first, *others = parts
    target = _margin(first.component, documents, queries, sources) * first.weight
    fitted = [first]
    for part in others:
        margin = _margin(part.component, documents, queries, sources)
        weight = _rounded(target / margin) if margin > 0 < target else part.weight
        fitted.append(Part(weight, part.component))
    return tuple(fitted)


def _margin(component: Component, documents: Sequence[Fields], queries: list[str], sources: list[int]) -> float:
    """By how much the document that a query was taken from scores above the mean of all documents."""
    scores = _scores(component, documents, queries)
    return float(np.mean(scores[np.arange(len(queries)), sources] - scores.mean(1)))


class _Spread(NamedTuple):
    """How much the scores of the best documents vary: `scale` times the number of a query's terms to `power`."""

    scale: float
    power: float


def _equal_spreads(
    parts: Sequence[Part], documents: Sequence[Fields], queries: list[str], sources: list[int]
) -> tuple[Part, ...]:
    counts = np.array([max(len(query.split()), 1) for query in queries], np.float64)
    for part in parts:  # count the terms of a lexical part, if there is one, since its weights are divided by it
        if isinstance(part.component, SparseComponent):
            counts = np.array([max(len(terms), 1) for terms in part.component.query_terms(queries)], np.float64)
            break
    spreads = [_spread(part.component, documents, queries, sources, counts) for part in parts]
    if not all(spread is not None and spread.scale > 0 for spread in spreads):
        return tuple(parts)  # a part gives all documents the same score
    known = [spread for spread in spreads if spread is not None]
    powers = [s.power for s, part in zip(known, parts, strict=True) if not isinstance(part.component, SparseComponent)]
    dense_power = float(np.mean(powers))
    strengths = [
        (1.0 if isinstance(part.component, SparseComponent) else DENSE_STRENGTH) / spread.scale
        for part, spread in zip(parts, known, strict=True)
    ]
    fitted = []
    for part, spread, strength in zip(parts, known, strengths, strict=True):
        component: Component = part.component
        if _norm_of(component):
            norm = min(max(spread.power - dense_power, 0.0), 1.5)
            component = replace(component, query_norm=_rounded(norm))  # type: ignore[type-var]
        fitted.append(Part(_rounded(parts[0].weight * strength / strengths[0]), component))
    return tuple(fitted)


def _spread(
    component: Component, documents: Sequence[Fields], queries: list[str], sources: list[int], counts: np.ndarray
) -> _Spread | None:
    """The spread of a component's best scores by the number of terms; None if no query has one."""
    plain = replace(component, query_norm=0.0) if _norm_of(component) else component  # type: ignore[type-var]
    scores = _scores(plain, documents, queries)
    others = np.ones(scores.shape, bool)
    others[np.arange(len(queries)), sources] = False
    scores = scores[others].reshape(len(queries), -1)
    best = np.sort(scores, axis=1)[:, -max(len(documents) // _BEST_SHARE, 2) :].std(axis=1)
    found = best > _NOISE * np.abs(scores).max(axis=1)
    if not found.any():
        return None
    sizes, spreads = np.log(counts[found]), np.log(best[found])
    slope = float(np.polyfit(sizes, spreads, 1)[0]) if np.ptp(sizes) > 0 else 0.0
    return _Spread(math.exp(float(np.mean(spreads - slope * sizes))), slope)


def _scores(component: Component, documents: Sequence[Fields], queries: list[str]) -> np.ndarray:
    """[queries, documents] what a component scores, with the statistics of these documents."""
    statistics: Statistics
    rows: Vectors
    if isinstance(component, SparseComponent):
        encoded = component.document_encoder().encode(documents)  # once: a network is slow
        statistics = count_statistics(encoded)
        rows = component.weigh(encoded, statistics)
    else:
        statistics = component.count(documents)
        rows = component.document_vectors(documents, statistics)
    scores: np.ndarray = component.query_vectors(queries, statistics).dot(rows)  # type: ignore[arg-type]
    return scores


def _rounded(weight: float) -> float:
    return float(f"{weight:.4g}")
