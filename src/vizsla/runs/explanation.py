"""Explanations: why a document has its score, as a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Explanation:
    """A part of a score: its name, its value, facts about it, and the parts it is computed from.

    Printed, it is a tree with a line for each part.

    >>> term = Explanation("cosine of minilm", 0.5, {"cosine": 0.5, "dimensions": 384})
    >>> print(Explanation("2 * minilm", 1.0, {}, (term,)))
    1.0000  2 * minilm
        0.5000  cosine of minilm
            cosine 0.5000 of two vectors of 384 numbers
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
        """The weight of a part of a sum, unless it is 1."""
        weight = self.facts.get("weight", 1)
        return f" (weight {weight:g})" if weight != 1 else ""

    @property
    def note(self) -> str:
        """The facts in words; empty if there are none to show."""
        return "; ".join(filter(None, (self._rank_note, self._source_note)))

    @property
    def _rank_note(self) -> str:
        """The rank that one of several retrievers gives the document."""
        if "rank" not in self.facts:
            return ""
        rank = self.facts["rank"]
        return f"rank {rank:,}" if rank is not None else f"not among the first {self.facts['depth']:,}"

    @property
    def _source_note(self) -> str:
        facts = self.facts
        if "term" in facts:
            return _term_note(facts)
        if "query_token" in facts:
            return _token_note(facts)
        if "ngram" in facts:
            return _ngram_note(facts)
        if "ngrams" in facts:
            return f"{_number(facts['ngrams'], 'n-gram')} generated for the query"
        if facts.get("tokens") == 0:
            return "this document has no token vectors, so it is never found"
        if "occurrence" in facts:
            return f"met its occurrence {facts['occurrence']:,} in this document"
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
        if self.facts.keys() & {"term", "query_token", "occurrence", "ngram"}:
            yield f"{head}  {self.note}"
            return
        yield head if top else head + self.weight_note
        if self.note:
            yield f"    {self.note}"
        for part in sorted(self.parts, key=lambda p: -p.score):
            yield from (f"    {line}" for line in part._lines(top=False))


def _term_note(facts: Mapping[str, Any]) -> str:
    is_added = facts.get("added") and "reason" not in facts
    added = "added  " if is_added else f"piece of {', '.join(facts['words'])}  " if "piece" in facts else ""
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
    query_count, count = facts["in_query"], facts["in_document"]
    is_count = "added" not in facts and float(query_count).is_integer()
    how = f"{query_count:g} times in the query" if is_count else f"weighs {query_count:.2f}"
    repeats = "" if query_count == 1 else f", {how}"
    times = "once" if count == 1 else f"{count} times"
    return f"{added}= {query} ({rarity}{repeats}) x {document} ({times} here)"


def _token_note(facts: Mapping[str, Any]) -> str:
    """Which token of the document a token of the query met; without the text of the document its number alone."""
    place = f"token {facts['position']:,} of this document"
    met = facts["document_token"]
    return f"~ {place if met is None else f'{met} ({place})'}"


def _ngram_note(facts: Mapping[str, Any]) -> str:
    """What an n-gram weighs, and which share of it counts if it has tokens of heavier ones."""
    times = "once" if facts["occurrences"] == 1 else f"{facts['occurrences']:,} times"
    share = facts["counted_share"]
    counted = "" if share == 1 else f" x {share:.2f} (tokens of heavier n-grams)"
    return f"= {facts['ngram_weight']:.4f} ({times} in all){counted}"


def _number(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def _count(number: int, facts: Mapping[str, Any]) -> str:
    return _number(number, facts.get("unit", "document"))
