"""Why a document has its score: a tree that adds up to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vizsla.index.filters import Filter
from vizsla.index.snapshot import Snapshot
from vizsla.models import ExpandedBM25, Model, Part
from vizsla.models.embedding import DenseComponent


@dataclass(frozen=True)
class Explanation:
    """A part of a score: what it is called, what it is worth, what it was made from, what it is the sum of.

    Printed, it is a tree with a line for each part.
    """

    name: str
    score: float
    facts: dict[str, Any]
    parts: tuple[Explanation, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The tree as plain data."""
        out: dict[str, Any] = {"name": self.name, "score": self.score, **self.facts}
        if self.parts:
            out["parts"] = [p.as_dict() for p in self.parts]
        return out

    @property
    def weight_note(self) -> str:
        """The weight of a part of a sum, where it is not 1."""
        weight = self.facts.get("weight", 1)
        return f" (weight {weight:g})" if weight != 1 else ""

    @property
    def note(self) -> str:
        """What a part was made from, in words; empty if there is nothing to say."""
        facts = self.facts
        if "term" in facts:
            return _term_note(facts)
        if "length_norm" in facts:
            norm = f"length norm {facts['length_norm']:.3f}, average length {facts['average_length']:.1f}"
            return f"{norm}, {_count(facts['documents'], facts)}"
        if "cosine" in facts:
            return f"cosine {facts['cosine']:.4f} of two vectors of {facts['dimensions']} numbers"
        return ""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self, top: bool = True) -> Iterator[str]:
        head = f"{self.score:.4f}  {self.name}"
        if "term" in self.facts:
            yield f"{head}  {self.note}"
            return
        yield head if top else head + self.weight_note
        if self.note:
            yield f"    {self.note}"
        for part in sorted(self.parts, key=lambda p: -p.score):
            yield from (f"    {line}" for line in part._lines(top=False))


def _term_note(facts: Mapping[str, Any]) -> str:
    added = "added  " if facts.get("added") else ""
    if not facts["in_query"]:
        return f"{added}dropped from the query"
    if not facts["documents_with_term"]:
        return f"{added}in no {facts.get('unit', 'document')}"
    if not facts["in_document"]:
        return f"{added}not in this document"
    rarity = f"in {_count(facts['documents_with_term'], facts)}"
    query, document = f"{facts['query_weight']:.4f}", f"{facts['document_weight']:.4f}"
    if not facts["counted"]:
        return f"{added}= {query} ({rarity}) x {document}"
    asked, here = facts["in_query"], facts["in_document"]
    repeats = "" if asked == 1 else f", weighs {asked:.2f}" if "added" in facts else f", {asked:g} times in the query"
    times = "once" if here == 1 else f"{here} times"
    return f"{added}= {query} ({rarity}{repeats}) x {document} ({times} here)"


def _count(number: int, facts: Mapping[str, Any]) -> str:
    return f"{number:,} {facts.get('unit', 'document')}{'' if number == 1 else 's'}"


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
