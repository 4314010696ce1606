"""Queries of the query language as trees, made at random and written as text; and what documents they find.

`Definition` is the meaning of a query in its slowest form. It reads the texts of documents word by word with the
analyzer, tries all places of the words of a phrase, and adds up the formula of BM25. It uses nothing of the engine.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from scattered import Scattered
from vizsla import Analyzer
from vizsla.runs.query_language import MUST, MUST_NOT, SHOULD

WORDS = ["dog", "dogs", "dig", "god", "cat", "cats", "big", "bigger", "the", "of", "state", "art", "arts", "retrieve"]
WORDS += ["retrieval", "run", "running", "runs", "old", "a1"]
IN_TWO = "wi-fi"  # a word of two terms
FIELDS = ("title", "text")
LANGUAGES = ("en", "de", "fr")
TAGS = ("a", "b", "c")
YEARS = (1999, 2001)


@dataclass(frozen=True)
class Node:
    """A word, phrase, prefix, fuzzy word, value or group."""

    kind: str
    text: str = ""
    field: str | None = None
    boost: float = 1.0
    steps: int = 0
    parts: tuple[tuple[str, Node], ...] = ()

    def written(self) -> str:
        """The node in the query language."""
        if self.kind == "group":
            signs = {MUST: "+", MUST_NOT: "-", SHOULD: ""}
            inside = f"({' '.join(signs[occur] + part.written() for occur, part in self.parts)})"
        else:
            inside = {
                "word": self.text, "value": self.text, "phrase": f'"{self.text}"', "prefix": f"{self.text}*",
                "fuzzy": f"{self.text}~{self.steps}",
            }[self.kind]  # fmt: skip
            inside += f"~{self.steps}" if self.kind == "phrase" and self.steps else ""
        field = "" if self.field is None else f"{self.field}:"
        return f"{field}{inside}" + ("" if self.boost == 1 else f"^{self.boost:g}")

    def leaves(self) -> list[Node]:
        """All that is not a group, excluded or not."""
        return [leaf for _, part in self.parts for leaf in part.leaves()] if self.kind == "group" else [self]


def random_node(rng: random.Random, depth: int = 2, fields: Sequence[str] = FIELDS) -> Node:
    """A node of any kind; a group may name a field for all that is in it."""
    kinds = ["word", "word", "phrase", "phrase", "prefix", "fuzzy", "value"] + ["group"] * (2 if depth else 0)
    kind = rng.choice(kinds)
    boost = rng.choice((1.0, 1.0, 1.0, 2.0, 0.5, 0.0))
    field = rng.choice((None, None, None, *fields))
    if kind == "group":
        return Node("group", field=field, boost=boost, parts=random_clauses(rng, depth - 1, fields))
    if kind == "value":
        values = {"lang": LANGUAGES, "year": (*YEARS, 1066), "tags": TAGS, "old": ("true", "false")}
        name = rng.choice(list(values))
        return Node("value", str(rng.choice(values[name])), name, boost)
    word = rng.choice(WORDS)
    if kind == "phrase":
        words = [rng.choice((*WORDS, IN_TWO)) for _ in range(rng.choice((1, 2, 2, 2, 3, 4)))]
        return Node(kind, " ".join(words), field, boost, rng.choice((0, 0, 1, 2, 4)))
    if kind == "prefix":
        return Node(kind, word[: rng.randint(1, len(word))], field, boost)
    word = IN_TWO if kind == "word" and rng.random() < 0.05 else word
    return Node(kind, word, field, boost, rng.choice((1, 2)) if kind == "fuzzy" else 0)


def random_clauses(rng: random.Random, depth: int = 2, fields: Sequence[str] = FIELDS) -> tuple[tuple[str, Node], ...]:
    """Clauses of which one at least is not excluded."""
    count = rng.choice((1, 1, 2, 2, 3, 4))
    clauses = [(rng.choice((SHOULD, SHOULD, MUST, MUST_NOT)), random_node(rng, depth, fields)) for _ in range(count)]
    if all(occur == MUST_NOT for occur, _ in clauses):
        clauses[0] = SHOULD, clauses[0][1]
    return tuple(clauses)


def random_query(rng: random.Random, fields: Sequence[str] = FIELDS) -> Node:
    """A whole query: a group whose parentheses are not written."""
    return Node("group", parts=random_clauses(rng, fields=fields))


def query_text(query: Node) -> str:
    """A whole query in the query language."""
    return query.written()[1:-1]


def plain_query(text: str) -> Node:
    """Words, each of which may be met."""
    return Node("group", parts=tuple((SHOULD, Node("word", word)) for word in text.split()))


def random_document(rng: random.Random, doc_id: str) -> dict[str, Any]:
    """A document of a few words; some of its fields may be missing."""
    title, text = (" ".join(rng.choice((*WORDS, IN_TWO)) for _ in range(rng.randint(0, n))) for n in (3, 12))
    document: dict[str, Any] = {
        "id": doc_id,
        "title": title,
        "text": text,
        "n": rng.randrange(7),
        "year": rng.choice(YEARS),
    }
    others = {"lang": rng.choice(LANGUAGES), "old": rng.random() < 0.5, "tags": rng.sample(TAGS, rng.randint(0, 2))}
    return document | {name: value for name, value in others.items() if rng.random() < 0.8}


def random_documents(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Documents of a few words."""
    return [random_document(rng, str(i)) for i in range(count)]


def edit_distance(a: str, b: str) -> int:
    """By how many edits words differ, neighbours swapped counting as one."""
    rows = {(i, 0): i for i in range(len(a) + 1)} | {(0, j): j for j in range(len(b) + 1)}
    for i, j in product(range(1, len(a) + 1), range(1, len(b) + 1)):
        rows[i, j] = min(rows[i - 1, j] + 1, rows[i, j - 1] + 1, rows[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
        if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
            rows[i, j] = min(rows[i, j], rows[i - 2, j - 2] + 1)
    return rows[len(a), len(b)]


_distance = cache(edit_distance)


def has_phrase(row: Sequence[str | None], pattern: Sequence[tuple[int, str]], slop: int) -> bool:
    """Whether places of all terms can be chosen, none twice, that differ from those in the pattern by at most slop."""
    places = [[p for p, found in enumerate(row) if found == term] for _, term in pattern]
    for chosen in product(*places):
        shifts = [p - place for p, (place, _) in zip(chosen, pattern, strict=True)]
        if len(set(chosen)) == len(chosen) and max(shifts) - min(shifts) <= slop:
            return True
    return False


@cache
def _analyzer(name: str) -> Analyzer:
    return Analyzer.parse(name)


@cache
def places_of(analyzer: str, text: str) -> list[str | None]:
    """The terms of a text by their places; a word that the analyzer drops keeps its place."""
    places: list[str | None] = []
    for word in re.findall(r"\w+", text):
        places += _analyzer(analyzer)(word) or [None]
    return places


def terms_of(analyzer: str, text: str) -> list[str]:
    """The terms of a text."""
    return [term for term in places_of(analyzer, text) if term is not None]


def lucene_length(length: int) -> int:
    """A length as Lucene keeps it in a byte: whole below 40, above that 24 and a number of four binary digits."""
    if length < 40:
        return length
    shift = (length - 24).bit_length() - 4
    return 24 + ((length - 24 >> shift) << shift)


@dataclass(frozen=True)
class Part:
    """One BM25 of a sum."""

    fields: tuple[str, ...] = FIELDS
    weight: float = 1.0
    plus: bool = False
    """Whether it is the variant bm25+ with whole lengths, not Lucene's."""
    analyzer: str = "lucene-english"
    k1: float = 0.9
    b: float = 0.4


class _Counts:
    """The terms of all rows for one part, and what they weigh."""

    def __init__(self, part: Part, rows: Sequence[Mapping[str, Any]]) -> None:
        self.part = part
        self.places = [{field: places_of(part.analyzer, row.get(field) or "") for field in part.fields} for row in rows]
        self.counts = [Counter(term for own in row.values() for term in own if term is not None) for row in self.places]
        self.lengths = [counts.total() for counts in self.counts]
        self.documents = sum(length > 0 for length in self.lengths)
        self.mean = sum(self.lengths) / max(self.documents, 1)
        self.frequencies = Counter(term for counts in self.counts for term in counts)
        self._expanded: dict[tuple[str, str, int], list[str]] = {}

    def idf(self, term: str) -> float:
        n, df = self.documents, self.frequencies[term]
        if not df:
            return 0.0
        return math.log((n + 1) / df) if self.part.plus else math.log(1 + (n - df + 0.5) / (df + 0.5))

    def weight(self, i: int, term: str) -> float:
        """What a term weighs in a row, without idf."""
        part, count, length = self.part, self.counts[i][term], self.lengths[i]
        if not count:
            return 0.0
        norm = 1 - part.b + part.b * (length if part.plus else lucene_length(length)) / self.mean
        saturated = count / (count + part.k1 * norm)
        return (part.k1 + 1) * saturated + 1 if part.plus else saturated

    def expanded(self, node: Node) -> list[str]:
        """The terms of rows that a prefix or a fuzzy word stands for."""
        known = self._expanded.get((node.kind, node.text, node.steps))
        if known is None:
            own = terms_of(self.part.analyzer, node.text)
            if node.kind == "prefix":
                known = [term for term in self.frequencies if term.startswith(node.text) or term in own]
            else:
                known = [term for term in self.frequencies if any(_distance(term, o) <= node.steps for o in own)]
            self._expanded[node.kind, node.text, node.steps] = known
        return known


class Definition:
    """Which documents of a collection meet queries, and their scores.

    `rows`: documents in the order of insertion, or passages with the ids of their documents. `vectors`: what the model
    `Scattered` weighs in the sum.
    """

    def __init__(
        self, rows: Sequence[Mapping[str, Any]], parts: Sequence[Part] = (Part(),), vectors: float = 0.0
    ) -> None:
        self.rows = list(rows)
        self.parts = [_Counts(part, rows) for part in parts]
        self._fields = {field for part in parts for field in part.fields}
        self._vectors = vectors
        self._embedded = Scattered().document_embeddings(self.rows)[0] if vectors and rows else np.zeros((0, 1))

    def found(self, query: Node, *, plain: bool = False) -> dict[str, float]:
        """The score of each document that meets a query, by its id; in the order of insertion.

        `plain`: the query is a text of words, not one of the query language. Vectors find documents there, too.
        """
        weights = [self.query_weights(query, counts) for counts in self.parts]
        text = " ".join(self._words(query))
        embedded = Scattered().query_embeddings([text])[0][0] if self._vectors and text else None
        pairs = list(zip(self.parts, weights, strict=True))
        best: dict[str, float] = {}
        for i, row in enumerate(self.rows):
            has_vector = embedded is not None and any(row.get(field) for field in FIELDS)
            has_term = any(counts.counts[i][term] for counts, own in pairs for term in own)
            is_scored = has_term or has_vector
            if is_scored if plain else self._meets(query, i) and (embedded is None or is_scored):
                score = sum(
                    counts.part.weight * weight * counts.weight(i, term)
                    for counts, own in pairs
                    for term, weight in own.items()
                )
                if has_vector:
                    score += self._vectors * float(embedded @ self._embedded[i])
                best[row["id"]] = max(best.get(row["id"], -math.inf), score)
        return best

    def _words(self, node: Node) -> list[str]:
        """What a model of vectors reads: the words that are not excluded, without signs."""
        if node.kind == "group":
            return [word for occur, part in node.parts if occur != MUST_NOT for word in self._words(part)]
        return [] if node.kind == "value" else [node.text]

    def _meets(self, node: Node, i: int, field: str | None = None) -> bool | None:
        """Whether a row meets a node; None if the node has no term, and so counts as not written."""
        field = node.field or field
        if node.kind != "group":
            return self._meets_leaf(node, i, field)
        results = [(occur, self._meets(part, i, field)) for occur, part in node.parts]
        written = [(occur, met) for occur, met in results if met is not None]
        if not written:
            return None
        if any(occur == MUST_NOT and met for occur, met in written):
            return False
        required = [met for occur, met in written if occur == MUST]
        return all(required) if required else any(met for occur, met in written if occur == SHOULD)

    def _meets_leaf(self, node: Node, i: int, field: str | None) -> bool | None:
        if field is not None and field not in self._fields:
            return node.text in _written(self.rows[i].get(field))
        results = [self._meets_in(counts, node, i, field) for counts in self._read(field)]
        written = [met for met in results if met is not None]
        return any(written) if written else None

    def _read(self, field: str | None) -> list[_Counts]:
        return [counts for counts in self.parts if field is None or field in counts.part.fields]

    def _meets_in(self, counts: _Counts, node: Node, i: int, field: str | None) -> bool | None:
        rows = [own for name, own in counts.places[i].items() if field in (None, name)]
        places = places_of(counts.part.analyzer, node.text)
        pattern = [(place, term) for place, term in enumerate(places) if term is not None]
        if node.kind == "prefix":
            wanted = counts.expanded(node)
        elif not pattern:
            return None
        elif node.kind == "phrase":
            return any(has_phrase(row, pattern, node.steps) for row in rows)
        else:
            wanted = counts.expanded(node) if node.kind == "fuzzy" else [term for _, term in pattern]
        return any(term in wanted for row in rows for term in row)

    def query_weights(
        self, node: Node, counts: _Counts, boost: float = 1.0, field: str | None = None
    ) -> dict[str, float]:
        """What each term of a query weighs in a part, idf included; all that count, those that weigh 0, too."""
        weights: dict[str, float] = {}
        boost, field = boost * node.boost, node.field or field
        if node.kind == "group":
            shares = [self.query_weights(part, counts, boost, field) for occur, part in node.parts if occur != MUST_NOT]
        elif field is not None and field not in counts.part.fields:
            shares = []
        elif node.kind in ("word", "phrase"):
            terms = [term for term in terms_of(counts.part.analyzer, node.text) if term in counts.frequencies]
            shares = [{term: boost * counts.idf(term)} for term in terms]
        else:
            expanded = counts.expanded(node)
            least = min(map(counts.idf, expanded), default=0.0)
            shares = [dict.fromkeys(expanded, boost * least)]
        for share in shares:
            for term, weight in share.items():
                weights[term] = weights.get(term, 0.0) + weight
        return weights


def _written(value: Any) -> list[str]:
    """The values of a field as a query writes them."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    return [str(one).lower() if isinstance(one, bool) else str(one) for one in values]
