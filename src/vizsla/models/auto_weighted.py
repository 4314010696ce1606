"""Auto-weighted sums: weights are fitted to the documents. BM51 is one, and so is the hybrid of words and vectors."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from vizsla.errors import VizslaError
from vizsla.models.components import SparseComponent, count_statistics
from vizsla.models.fields import Fields, as_text, field_text
from vizsla.models.model import MODELS, Component, Model, Part, Sum
from vizsla.models.statistics import Statistics
from vizsla.vectors import SparseVectors, Vectors

AUTO = "auto"
SAMPLE = 400
"""How many documents a weight is fitted on."""
MIN_QUERIES = 50
DEFAULT_DENSE_WEIGHT = 30.0
_LEAST_WORDS = 12  # of a document that a pseudo-query is drawn from
_QUERIES, _WORDS = 200, (4, 12)  # pseudo-queries between lexical parts, and how many words they have
_PASSAGE = (6, 60)  # words of the passage that a pseudo-query comes from, beside vectors
_KEPT = (0.3, 1.0)  # share of the passage's words in the pseudo-query
_NORM, _MAX_NORM = 0.5, 1.5  # the first guess of `query_norm`, and its limit
_PULL, _SCALE_PULL = 0.5, 0.01  # towards the first guess: of ratios of weights and the norm; of their common factor
_ROUNDS = 40
_NOISE = 1e-5  # relative to the highest score: less variation than this is rounding


@dataclass(frozen=True)
class AutoWeightedSum(Sum):
    """A sum whose weights are fitted to the documents. No query of a user or of a test set is used.

    If all parts are lexical, they get equal influence. Pseudo-queries are passages of four to twelve words from the
    documents. Each part scores the document a passage came from above the mean of all documents; the weights make
    these margins equal on average.

    If a part has dense or token vectors, the weights are those with which pseudo-queries are most likely to find the
    documents they come from. A pseudo-query is some of the words of a passage. From every second document this passage
    is taken out, which shows how well a part finds what is said in other words. In the other documents it stays, which
    shows how well a part finds their own words. So vectors count little where passages are too long or too special
    for them. The scores of terms grow with the number of terms, those of vectors hardly do. Therefore passages have
    many lengths, and lexical parts get a `query_norm` as well. Pseudo-queries are not the queries of users, so weights
    leave equal spreads of scores only where pseudo-queries show it clearly.

    Weights and norms sit on the query side, so they can be fitted after documents are indexed.
    """

    kind: ClassVar[str] = "balanced"

    @property
    def needs_fit(self) -> bool:
        return True

    def fit(self, documents: Sequence[Fields]) -> Model:
        """The sum with its weights fitted. With too few documents it is returned unfitted, to be fitted later.

        The score of a whole document keeps its weight beside the first part of the sum.
        """
        own = [part for part in self.parts if not part.component.reads_documents]
        lexical = all(isinstance(part.component, SparseComponent) for part in own)
        fields = tuple(dict.fromkeys(name for part in own for name in part.component.fields))
        drawn = (_passages if lexical else _pseudo_queries)(documents, fields)
        if len(drawn.queries) < MIN_QUERIES:
            return self
        fitted = (_equal_margins if lexical else _likeliest)(own, drawn)
        scale, normed = fitted[0].weight / own[0].weight, next((c for _, c in fitted if _norm_of(c)), None)
        others = [p for p in self.parts if p.component.reads_documents]
        kept = [Part(w * scale, c if normed is None else with_norm_of(c, normed)) for w, c in others]
        found = {part.component.namespace: part for part in (*fitted, *kept)}
        return Sum(tuple(found[name] for name in self.namespaces), self.name)

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
    if sum(not part.component.reads_documents for part in model.parts) < 2:
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


class _Drawn(NamedTuple):
    """Pseudo-queries, and the number of the document each comes from."""

    queries: list[str]
    sources: list[int]
    documents: Sequence[Fields]


def _passages(documents: Sequence[Fields], fields: Sequence[str]) -> _Drawn:
    """Passages of some documents; always the same for the same documents."""
    rng = random.Random(0)
    texts = [(i, words) for i, d in enumerate(documents) if len(words := field_text(d, fields).split()) >= _LEAST_WORDS]
    chosen = rng.sample(texts, min(_QUERIES, len(texts)))
    queries = []
    for _, words in chosen:
        size = rng.randint(*_WORDS)
        start = rng.randint(0, len(words) - size)
        queries.append(" ".join(words[start : start + size]))
    return _Drawn(queries, [i for i, _ in chosen], documents)


def _pseudo_queries(documents: Sequence[Fields], fields: Sequence[str]) -> _Drawn:
    """Some words of a passage of each document; every second document loses its passage.

    Short passages are drawn more often than long ones, and none is more than half of its document. Of equal documents
    one is enough.
    """
    rng = random.Random(0)
    distinct = {field_text(document, fields): document for document in documents}
    drawn = _Drawn([], [], list(distinct.values()))
    for i, document in enumerate(distinct.values()):
        content = {"text": document} if isinstance(document, str) else document
        field = max(fields, key=lambda name: len(field_text(content, (name,)).split()))
        words = as_text(content.get(field)).split()
        if len(words) < _LEAST_WORDS:
            continue
        shortest, longest = _PASSAGE[0], min(_PASSAGE[1], len(words) // 2)
        size = round(shortest * (longest / shortest) ** rng.random())
        start = rng.randint(0, len(words) - size)
        passage, share = words[start : start + size], rng.uniform(*_KEPT)
        drawn.queries.append(" ".join([w for w in passage if rng.random() < share] or passage))
        drawn.sources.append(i)
        if len(drawn.queries) % 2:
            drawn.documents[i] = {**content, field: " ".join(words[:start] + words[start + size :])}  # type: ignore[index]
    return drawn


def _equal_margins(parts: Sequence[Part], drawn: _Drawn) -> tuple[Part, ...]:
    first, *others = parts
    target = _margin(first.component, drawn) * first.weight
    fitted = [first]
    for part in others:
        margin = _margin(part.component, drawn)
        weight = _rounded(target / margin) if margin > 0 < target else part.weight
        fitted.append(Part(weight, part.component))
    return tuple(fitted)


def _margin(component: Component, drawn: _Drawn) -> float:
    """By how much the document that a query was taken from scores above the mean of all documents."""
    scores = _scores(component, drawn).scores
    return float(np.mean(scores[np.arange(len(scores)), drawn.sources] - scores.mean(1)))


def _likeliest(parts: Sequence[Part], drawn: _Drawn) -> tuple[Part, ...]:
    """The parts with the weights and the norm with which the documents of pseudo-queries are most likely to be found.

    The probability of a document is the softmax of the sum's scores. Its logarithm is concave in the weights, so the
    Gauss-Newton steps of Levenberg and Marquardt need few rounds.
    """
    plain = [replace(c, query_norm=0.0) if _norm_of(c) else c for _, c in parts]  # type: ignore[type-var]
    scored = [_scores(component, drawn) for component in plain]
    if any(np.ptp(s.scores, axis=1).max() <= _NOISE * np.abs(s.scores).max() for s in scored):
        return tuple(parts)  # a part gives all documents the same score
    normed = [bool(_norm_of(component)) for component in plain]
    fit = _Likelihood(scored, normed, drawn.sources)
    point, damping = fit.start, 1e-3
    value = fit.value(point)
    for _ in range(_ROUNDS):
        gradient, curvature = fit.slopes(point)
        while True:
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), gradient)
            nearer = fit.inside(point - np.clip(step, -1, 1))
            if (gained := value - fit.value(nearer)) >= 0 or damping > 1e6:
                break
            damping *= 8
        if gained <= 1e-6:
            break
        point, value, damping = nearer, value - gained, max(damping / 8, 1e-6)
    weights, norm = np.exp(point[:-1] - point[0]), _rounded(float(point[-1]))
    return tuple(
        Part(
            _rounded(parts[0].weight * float(weight)),
            replace(component, query_norm=norm) if _norm_of(component) else component,  # type: ignore[type-var]
        )
        for weight, (_, component) in zip(weights, parts, strict=True)
    )


class _Scores(NamedTuple):
    """[queries, documents] what a component scores, and [queries] how many terms it has for each query."""

    scores: np.ndarray
    terms: np.ndarray


class _Likelihood:
    """The negative mean log-probability of the pseudo-queries' documents.

    A point is the logarithm of the weight of each part, and the norm.
    """

    def __init__(self, scored: Sequence[_Scores], normed: Sequence[bool], sources: Sequence[int]) -> None:
        scores = np.stack([s.scores for s in scored]).astype(np.float64)
        self._scores = scores - scores.mean(2, keepdims=True)
        self._terms = np.stack([np.log(s.terms) * n for s, n in zip(scored, normed, strict=True)])  # [parts, queries]
        self._sources = np.arange(len(sources)), np.asarray(sources)
        typical = np.exp(-_NORM * self._terms) * self._scores.std(2)
        self.start = np.r_[-np.log(np.maximum(typical.mean(1), 1e-12)), _NORM]
        self._pull = _pull(len(scores))

    @staticmethod
    def inside(point: np.ndarray) -> np.ndarray:
        """The nearest point with a norm that is allowed."""
        allowed = point.copy()
        allowed[-1] = min(max(point[-1], 0.0), _MAX_NORM)
        return allowed

    def value(self, point: np.ndarray) -> float:
        sums = self._weighted(point).sum(0)
        highest = sums.max(1, keepdims=True)
        losses = highest[:, 0] + np.log(np.exp(sums - highest).sum(1)) - sums[self._sources]
        moved = point - self.start
        return float(losses.mean() + 0.5 * moved @ self._pull @ moved)

    def slopes(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The gradient at a point, and the Gauss-Newton matrix."""
        weighted = self._weighted(point)
        sums = weighted.sum(0)
        shares = np.exp(sums - sums.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        by_norm = -(self._terms[:, :, None] * weighted).sum(0)
        slopes = np.concatenate([weighted, by_norm[None]])
        means = (slopes * shares).sum(2)
        centred = (slopes - means[:, :, None]) * np.sqrt(shares)
        flat = centred.reshape(len(slopes), -1)
        gradient = (means - slopes[:, *self._sources]).mean(1) + self._pull @ (point - self.start)
        return gradient, flat @ flat.T / shares.shape[0] + self._pull

    def _weighted(self, point: np.ndarray) -> np.ndarray:
        factors = np.exp(point[:-1, None] - point[-1] * self._terms)
        weighted: np.ndarray = factors[:, :, None] * self._scores
        return weighted


def _pull(parts: int) -> np.ndarray:
    """What it costs to leave the first guess, as a quadratic form of the logarithms of the weights and the norm.

    Pseudo-queries are not the queries of users, so their likelihood alone would move weights too far. A ratio of
    weights or a norm changes only where they show it clearly. The common factor of the weights changes no ranking.
    """
    pull = _PULL * np.eye(parts + 1)
    pull[:-1, :-1] -= (_PULL - _SCALE_PULL) / parts
    return pull


def _scores(component: Component, drawn: _Drawn) -> _Scores:
    """What a component scores, with the statistics of these documents."""
    statistics: Statistics
    rows: Vectors
    queries: Vectors
    if isinstance(component, SparseComponent):
        encoded = component.document_encoder().encode(drawn.documents)  # once: a network is slow
        statistics = count_statistics(encoded)
        rows = component.weigh(encoded, statistics)
        terms = component.query_terms(drawn.queries)
        queries = SparseVectors.from_rows(component.query_weights(terms, statistics), component.namespace)
        counts = np.array([max(len(query), 1) for query in terms], np.float64)
    else:
        statistics = component.count(drawn.documents)
        rows = component.document_vectors(drawn.documents, statistics)
        queries = component.query_vectors(drawn.queries, statistics)
        counts = np.ones(len(drawn.queries))
    return _Scores(queries.dot(rows), counts)  # type: ignore[arg-type]


def _rounded(weight: float) -> float:
    return float(f"{weight:.4g}")
