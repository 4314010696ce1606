"""Queries of the query language as trees: made at random, written as text, and met by documents one at a time.

This is the definition in its slowest form: it reads texts word by word and tries all places of the words of a phrase.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from vizsla.models import BM25
from vizsla.runs.query_language import MUST, MUST_NOT, SHOULD

WORDS = ["dog", "dogs", "dig", "god", "cat", "cats", "big", "bigger", "the", "of", "state", "art", "arts", "retrieve"]
WORDS += ["retrieval", "run", "running", "runs", "old", "a1"]
FIELDS = ("title", "text")
LANGUAGES = ("en", "de", "fr")
_BM25 = BM25()


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


def random_node(rng: random.Random, depth: int = 2) -> Node:
    """A node of any kind."""
    kinds = ["word", "word", "phrase", "phrase", "prefix", "fuzzy", "value"] + ["group"] * (2 if depth else 0)
    kind = rng.choice(kinds)
    boost = rng.choice((1.0, 1.0, 1.0, 2.0, 0.5, 0.0))
    if kind == "group":
        return Node("group", boost=boost, parts=random_clauses(rng, depth - 1))
    if kind == "value":
        field, values = rng.choice((("lang", LANGUAGES), ("year", ("1999", "2001"))))
        return Node("value", rng.choice(values), field, boost)
    field = rng.choice((None, None, None, *FIELDS))
    word = rng.choice(WORDS)
    if kind == "phrase":
        words = [rng.choice(WORDS) for _ in range(rng.choice((1, 2, 2, 2, 3, 4)))]
        return Node(kind, " ".join(words), field, boost, rng.choice((0, 0, 1, 2, 4)))
    if kind == "prefix":
        return Node(kind, word[: rng.randint(1, len(word))], field, boost)
    return Node(kind, word, field, boost, rng.choice((1, 2)) if kind == "fuzzy" else 0)


def random_clauses(rng: random.Random, depth: int = 2) -> tuple[tuple[str, Node], ...]:
    """Clauses of which one at least is not excluded."""
    count = rng.choice((1, 1, 2, 2, 3, 4))
    clauses = [(rng.choice((SHOULD, SHOULD, MUST, MUST_NOT)), random_node(rng, depth)) for _ in range(count)]
    if all(occur == MUST_NOT for occur, _ in clauses):
        clauses[0] = SHOULD, clauses[0][1]
    return tuple(clauses)


def random_query(rng: random.Random) -> Node:
    """A whole query: a group whose parentheses are not written."""
    return Node("group", parts=random_clauses(rng))


def query_text(query: Node) -> str:
    """A whole query in the query language."""
    return query.written()[1:-1]


def random_documents(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Documents of a few words."""
    documents = []
    for i in range(count):
        title, text = (" ".join(rng.choice(WORDS) for _ in range(rng.randint(0, n))) for n in (3, 12))
        document = {"id": str(i), "title": title, "text": text, "year": rng.choice((1999, 2001)), "n": i % 7}
        documents.append(document | ({"lang": rng.choice(LANGUAGES)} if rng.random() < 0.8 else {}))
    return documents


def terms_of(word: str) -> list[str]:
    """The terms of a word: one, or none for a stop word."""
    return _BM25.text_analyzer(word)


def edit_distance(a: str, b: str) -> int:
    """By how many edits words differ, neighbours swapped counting as one."""
    rows = {(i, 0): i for i in range(len(a) + 1)} | {(0, j): j for j in range(len(b) + 1)}
    for i, j in product(range(1, len(a) + 1), range(1, len(b) + 1)):
        rows[i, j] = min(rows[i - 1, j] + 1, rows[i, j - 1] + 1, rows[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
        if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
            rows[i, j] = min(rows[i, j], rows[i - 2, j - 2] + 1)
    return rows[len(a), len(b)]


class Definition:
    """Which documents of a collection meet queries, and their scores."""

    def __init__(self, documents: Sequence[Mapping[str, Any]]) -> None:
        self.documents = list(documents)
        self._terms = {
            (i, field): [(terms_of(word) or [None])[0] for word in document[field].split()]
            for i, document in enumerate(self.documents)
            for field in FIELDS
        }
        self._vocabulary = {term for row in self._terms.values() for term in row if term is not None}
        texts = [{field: document[field] for field in FIELDS} for document in self.documents]
        self._statistics = _BM25.count(texts)
        vectors = _BM25.document_vectors(texts, self._statistics)
        names = [term for _, term in map(vectors.vocabulary.__getitem__, range(len(vectors.vocabulary)))]
        self._weights = [
            {names[n]: w for n, w in zip(vectors.indices[a:z].tolist(), vectors.values[a:z].tolist(), strict=True)}
            for a, z in zip(vectors.pointers, vectors.pointers[1:], strict=False)
        ]

    def found(self, query: Node) -> dict[str, float]:
        """The score of each document that meets a query, by its id."""
        weights = self._query_weights(query)
        return {
            document["id"]: sum(w * self._weights[i].get(term, 0.0) for term, w in weights.items())
            for i, document in enumerate(self.documents)
            if self._meets(query, i)
        }

    def _meets(self, node: Node, i: int) -> bool | None:
        """Whether a document meets a node; None if the node has no term, and so counts as not written."""
        if node.kind != "group":
            return self._meets_leaf(node, i)
        results = [(occur, self._meets(part, i)) for occur, part in node.parts]
        written = [(occur, met) for occur, met in results if met is not None]
        if not written:
            return None
        if any(occur == MUST_NOT and met for occur, met in written):
            return False
        required = [met for occur, met in written if occur == MUST]
        return all(required) if required else any(met for occur, met in written if occur == SHOULD)

    def _meets_leaf(self, node: Node, i: int) -> bool | None:
        if node.kind == "value":
            return str(self.documents[i].get(node.field)) == node.text
        fields = FIELDS if node.field is None else (node.field,)
        rows = [self._terms[i, field] for field in fields]
        if node.kind == "phrase":
            pattern = [(place, terms[0]) for place, w in enumerate(node.text.split()) if (terms := terms_of(w))]
            return any(_has_phrase(row, pattern, node.steps) for row in rows) if pattern else None
        if node.kind in ("word", "fuzzy") and not terms_of(node.text):
            return None
        wanted = self._expanded(node)
        return any(term in wanted for row in rows for term in row)

    def _expanded(self, node: Node) -> set[str]:
        """The terms that a word, a prefix or a fuzzy word stands for."""
        own = set(terms_of(node.text))
        if node.kind == "word":
            return own
        if node.kind == "prefix":
            return {term for term in self._vocabulary if term.startswith(node.text)} | (own & self._vocabulary)
        return {term for term in self._vocabulary if any(edit_distance(term, o) <= node.steps for o in own)}

    def _query_weights(self, node: Node, boost: float = 1.0) -> dict[str, float]:
        weights: dict[str, float] = {}
        boost *= node.boost
        if node.kind == "group":
            shares = [self._query_weights(part, boost) for occur, part in node.parts if occur != MUST_NOT]
        elif node.kind in ("word", "phrase"):
            terms = [term for word in node.text.split() for term in terms_of(word)]
            shares = [{term: boost * self._rarity(term)} for term in terms]
        elif node.kind == "value":
            shares = []
        else:
            expanded = self._expanded(node)
            least = min((self._rarity(term) for term in expanded), default=0.0)
            shares = [dict.fromkeys(expanded, boost * least)]
        for share in shares:
            for term, weight in share.items():
                weights[term] = weights.get(term, 0.0) + weight
        return weights

    def _rarity(self, term: str) -> float:
        return _BM25.query_weights([{term: 1.0}], self._statistics)[0].get(term, 0.0)


def _has_phrase(row: Sequence[str | None], pattern: Sequence[tuple[int, str]], slop: int) -> bool:
    """Whether places of all terms can be chosen, none twice, that differ from those in the pattern by at most slop."""
    places = [[p for p, found in enumerate(row) if found == term] for _, term in pattern]
    for chosen in product(*places):
        shifts = [p - place for p, (place, _) in zip(chosen, pattern, strict=True)]
        if len(set(chosen)) == len(chosen) and max(shifts) - min(shifts) <= slop:
            return True
    return False
