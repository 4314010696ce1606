"""A query of the query language, bound to an index: which rows meet it, and what its words weigh.

The words alone decide which documents match, as in Lucene's boolean queries. The model decides their ranking: each word
that is not excluded counts as in a plain query, times its boost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from vizsla import stopping
from vizsla.engine import Query, TopDocuments, rows_with_a_score, rows_with_all, rows_with_any
from vizsla.errors import StoppedError, VizslaError
from vizsla.index.search.bound_model import BoundModel, SparsePart
from vizsla.index.search.searcher import Searcher
from vizsla.index.search.words import PhraseShape, WordPart, word_parts
from vizsla.lazy import cached_property
from vizsla.models import BM25, ExpandedBM25, Synonyms, bm25_of
from vizsla.runs import Filter
from vizsla.runs.filters import field_name, number, reads_as_number
from vizsla.runs.query_language import (
    MAX_PHRASE,
    MUST,
    MUST_NOT,
    SHOULD,
    Fuzzy,
    Group,
    HalfTyped,
    Leaf,
    Phrase,
    Prefix,
    QuerySyntaxError,
    parse_query,
)

_NONE = np.zeros(0, np.int64)
_MAX_PHRASES = 64  # that one phrase stands for with synonyms
_PLACE = re.compile(r" \(character \d+ of the filter\)")


class _Terms(NamedTuple):
    """Terms in one namespace that a leaf may be met by: any of them, or all as a phrase."""

    part: WordPart
    terms: list[str]
    numbers: np.ndarray
    """-1 for a term that no document has."""
    shape: PhraseShape

    @property
    def is_phrase(self) -> bool:
        return len(self.shape.offsets) > 1


@dataclass(frozen=True, eq=False)
class PartWeights:
    """The weights of a query in one part of a model."""

    terms: Mapping[str, float]
    """The query-side weight of each term before idf."""
    weights: Mapping[str, float]
    """The final weight of each term; terms that no document has are left out."""


class WordQuery:
    """A query bound to a model and the documents that may be found."""

    def __init__(self, searcher: Searcher, bound: BoundModel, text: str, condition: Filter | None, syntax: str) -> None:
        self._searcher = searcher
        self._bound = bound
        self._condition = condition
        self._text = text
        self._group = parse_query(text, syntax)
        self._parts = word_parts(searcher.words, bound)
        self._synonyms = {part.space: found for part in bound.sparse if (found := _synonyms_of(part)) is not None}
        self._fields = frozenset(field for part in self._parts for field in part.bm25.fields)
        self._known: dict[int, list[_Terms]] = {}  # by the id of a leaf, which takes long to hash
        self._values: dict[Leaf, list[np.ndarray]] = {}
        self._check_values(self._group)

    def _check_values(self, group: Group) -> None:
        """Refuse values that no document can have, whether or not there are documents to look at."""
        for clause in group.clauses:
            if isinstance(clause.node, Group):
                self._check_values(clause.node)
            elif self._is_value(clause.node):
                self._value_masks(clause.node)

    # Which rows

    @cached_property
    def rows(self) -> list[np.ndarray]:
        """For each segment the live rows that meet the query and the filter, ascending."""
        return self._living_rows(frozenset())

    def _living_rows(self, unchecked: frozenset[Leaf]) -> list[np.ndarray]:
        """The same as `rows`, but rows need only contain the words of the unchecked phrases, in any order."""
        found = []
        with self._searcher.snapshot.naming_damage():
            for s, mask in enumerate(self._allowed):
                rows = self._rows(self._group, s, unchecked)
                rows = _NONE if rows is None else rows
                found.append(rows if mask is None else rows[mask[rows]])
        return found

    @cached_property
    def _allowed(self) -> Sequence[np.ndarray | None]:
        """For each segment a mask of the live rows that pass the filter; None if all do."""
        return self._searcher.snapshot.alive if self._condition is None else self._searcher.masks(self._condition)

    def top_k(self, k: int) -> TopDocuments:
        """The best k rows that meet the query, for a query without vectors.

        Phrases that must be met are looked for in the best rows first, until there are enough. A query that is one
        phrase is searched by one kernel, a query that asks for any of its terms as a plain one.
        """
        found = self._top_k_of_phrase(k)
        if found is not None:
            return found
        if self._finds_any_term():
            return self._searcher.top_k([self.query], self._bound, k, self._condition)[0]
        phrases = self._required_phrases()
        rows = self._living_rows(phrases) if phrases else self.rows
        check = self._phrase_check(phrases) if phrases else None
        return self._searcher.top_k_of_rows(self.query, self._bound, rows, k, check)

    def _top_k_of_phrase(self, k: int) -> TopDocuments | None:
        """The best k rows with a phrase that is the whole query; None for another query, or to find them otherwise."""
        clauses = self._group.clauses
        leaf = clauses[0].node
        if len(clauses) > 1 or not isinstance(leaf, Phrase) or self._is_value(leaf):
            return None
        found = self._terms_of(leaf)
        if len(found) != 1 or not found[0].is_phrase or -1 in found[0].numbers.tolist():
            return None
        part, _, numbers, shape = found[0]
        pattern = part.finder.pattern(numbers, shape)
        return self._searcher.top_k_of_phrase(self.query, self._bound, pattern, part.space, k, self._condition)

    def _finds_any_term(self) -> bool:
        """Whether a row meets the query if it has any of the terms that count, wherever."""
        clauses, parts = self._group.clauses, self._bound.sparse
        alone = len(clauses) == 1 and clauses[0].occur == MUST
        if len(parts) != 1 or not isinstance(parts[0].component, BM25):
            return False
        return all(
            (alone or clause.occur == SHOULD) and isinstance(clause.node, Leaf) and self._is_any_term(clause.node)
            for clause in clauses
        )

    def _is_any_term(self, leaf: Leaf) -> bool:
        """Whether a leaf asks for any of its terms in any field."""
        return leaf.field is None and not any(found.is_phrase for found in self._terms_of(leaf))

    def _required_phrases(self) -> frozenset[Leaf]:
        """The phrases that each row must have, except those inside groups."""
        clauses = self._group.clauses
        alone = len(clauses) == 1
        required = [c.node for c in clauses if c.occur == MUST or (alone and c.occur == SHOULD)]
        phrases = [node for node in required if isinstance(node, Phrase) and not self._is_value(node)]
        return frozenset(p for p in phrases if any(found.is_phrase for found in self._terms_of(p)))

    def _phrase_check(self, phrases: frozenset[Leaf]) -> Callable[[int, np.ndarray], np.ndarray]:
        """A function that says which rows of a segment have all phrases."""

        def check(s: int, rows: np.ndarray) -> np.ndarray:
            keep: np.ndarray | None = None
            for leaf in phrases:
                found: np.ndarray | None = None
                for alternative in self._terms_of(leaf):
                    part, terms, known, shape = alternative
                    if not alternative.is_phrase:
                        with_any = self._rows_with(alternative, s, unchecked=False)
                        own = _mask(with_any, len(self._searcher.snapshot.segments[s]))[rows]
                    elif (known >= 0).all():
                        own = part.finder.check(s, rows, terms, known, shape)
                    else:
                        continue
                    found = own if found is None else found | own
                if found is None:
                    return np.zeros(len(rows), np.bool_)
                keep = found if keep is None else keep & found
            assert keep is not None
            return keep

        return check

    @cached_property
    def masks(self) -> list[np.ndarray]:
        """The same as a mask for each segment."""
        pairs = zip(self._searcher.snapshot.segments, self.rows, strict=True)
        return [_mask(rows, len(segment)) for segment, rows in pairs]

    @cached_property
    def found(self) -> list[np.ndarray]:
        """The same without the rows that a search with vectors does not find: rows with neither a vector nor a term."""
        if self.query.is_plain:
            return self.masks
        snapshot = self._searcher.snapshot
        with snapshot.naming_damage():
            pairs = zip(snapshot.segments, self.masks, strict=True)
            return [mask & rows_with_a_score(segment, self.query) for segment, mask in pairs]

    def meets(self, insertion_number: int) -> bool:
        """Whether a search for the query can find a document."""
        segment, row = self._searcher.snapshot.position(insertion_number)
        return bool(self.found[segment][row])

    def _rows(self, node: Leaf | Group, s: int, unchecked: frozenset[Leaf]) -> np.ndarray | None:
        """Which rows of a segment match a node; None for a node without terms, which is ignored."""
        stopping.check()
        if isinstance(node, Leaf):
            return self._leaf_rows(node, s, node in unchecked)
        found: dict[str, list[np.ndarray]] = {MUST: [], SHOULD: [], MUST_NOT: []}
        for clause in node.clauses:
            rows = self._rows(clause.node, s, unchecked)
            if rows is not None:
                found[clause.occur].append(rows)
        if not any(found.values()):
            return None
        size = len(self._searcher.snapshot.segments[s])
        if found[MUST]:
            met = min(found[MUST], key=len)
            for rows in found[MUST]:
                met = met if rows is met else met[_mask(rows, size)[met]]
        else:
            met = _union(found[SHOULD], size)
        for rows in found[MUST_NOT]:
            met = met[~_mask(rows, size)[met]]
        return met

    def _leaf_rows(self, leaf: Leaf, s: int, unchecked: bool) -> np.ndarray | None:
        if self._is_value(leaf):
            return np.flatnonzero(self._value_masks(leaf)[s])
        found = self._terms_of(leaf)
        if not found:
            return None
        size = len(self._searcher.snapshot.segments[s])
        return _union([self._rows_with(terms, s, unchecked) for terms in found], size)

    def _rows_with(self, found: _Terms, s: int, unchecked: bool) -> np.ndarray:
        """The rows of a segment that have the terms of a leaf in one namespace; deleted ones may be among them."""
        segment, (part, terms, numbers, shape) = self._searcher.snapshot.segments[s], found
        finder, allowed = part.finder, self._allowed[s]
        if found.is_phrase:
            if (numbers < 0).any():
                return _NONE
            if unchecked:
                return finder.candidates(s, numbers, allowed)
            return finder.rows(s, terms, numbers, shape, allowed)
        if shape.field is None or len(part.bm25.fields) == 1:
            known = numbers[numbers >= 0]
            one = len(known) == 1  # whose rows are its list
            return rows_with_all(segment, known) if one else np.flatnonzero(rows_with_any(segment, known))
        single = [slice(i, i + 1) for i in np.flatnonzero(numbers >= 0).tolist()]
        return _union([finder.rows(s, terms[i], numbers[i], shape, allowed) for i in single], len(segment))

    # Which terms

    def _is_value(self, leaf: Leaf) -> bool:
        """Whether a leaf names a field whose words are not indexed, so that it stands for a value."""
        return leaf.field is not None and leaf.field not in self._fields

    def _value_masks(self, leaf: Leaf) -> list[np.ndarray]:
        """For each segment the rows with a value in a field; an error shows the place in the query."""
        masks = self._values.get(leaf)
        if masks is None:
            assert leaf.field is not None
            if isinstance(leaf, Prefix | Fuzzy):
                read = ", ".join(sorted(self._fields))
                problem = f"only whole values of {leaf.field!r} are found; * and ~ are for the fields {read}"
                raise QuerySyntaxError(problem, self._text, leaf.position)
            try:
                masks = self._values[leaf] = list(self._searcher.masks(_filter(leaf.field, leaf.text)))
            except StoppedError:
                raise
            except VizslaError as e:
                said = _PLACE.sub("", str(e))
                raise QuerySyntaxError(f"{said}; write \\: for a plain colon", self._text, leaf.position) from None
        return masks

    def _terms_of(self, leaf: Leaf) -> list[_Terms]:
        """What a leaf is met by in each namespace whose model reads its field; without those where it has no term.

        In a namespace with synonyms there may be several.
        """
        known = self._known.get(id(leaf))
        if known is None:
            parts = [p for p in self._parts if leaf.field is None or leaf.field in p.bm25.fields]
            known = self._known[id(leaf)] = [found for part in parts for found in self._found(leaf, part)]
        return known

    def _found(self, leaf: Leaf, part: WordPart) -> list[_Terms]:
        if isinstance(leaf, Prefix | Fuzzy):
            terms = self._looking_like(leaf, part)
            return [] if terms is None else [_any_of(part, terms, leaf.field)]
        terms, offsets = part.finder.places(leaf.text)
        if not terms:
            return []
        if isinstance(leaf, Phrase) and len(terms) > MAX_PHRASE:
            problem = f"a phrase has at most {MAX_PHRASE} words, and this one has {len(terms):,}"
            raise QuerySyntaxError(problem, self._text, leaf.position)
        is_phrase, synonyms = isinstance(leaf, Phrase) and len(terms) > 1, self._synonyms.get(part.space)
        if synonyms is None:
            return [_phrase(part, terms, offsets, leaf) if is_phrase else _any_of(part, terms, leaf.field)]
        if is_phrase:
            phrases = list(islice(synonyms.phrases(terms, offsets, part.bm25.text_analyzer), _MAX_PHRASES + 1))
        else:
            phrases = synonyms.words(terms, part.bm25.text_analyzer)
        if len(phrases) > _MAX_PHRASES or any(len(phrase.terms) > MAX_PHRASE for phrase in phrases):
            problem = f"with its synonyms this is more than {_MAX_PHRASES} phrases; leave some words out"
            raise QuerySyntaxError(problem, self._text, leaf.position)
        single = [phrase.terms[0] for phrase in phrases if len(phrase.terms) == 1]
        found = [_any_of(part, single, leaf.field)] if single else []
        return found + [_phrase(part, *phrase, leaf) for phrase in phrases if len(phrase.terms) > 1]

    def _looking_like(self, leaf: Prefix | Fuzzy, part: WordPart) -> list[str] | None:
        """The terms of documents that a prefix or a fuzzy word stands for; None for a word without a term."""
        try:
            if isinstance(leaf, Fuzzy):
                return part.near(leaf.text, leaf.edits)
            return part.completing(leaf.text) if isinstance(leaf, HalfTyped) else part.beginning_with(leaf.text)
        except StoppedError:
            raise
        except VizslaError as e:
            raise QuerySyntaxError(str(e), self._text, leaf.position) from None

    # What they weigh

    @cached_property
    def plain_text(self) -> str:
        """The words that count, without signs, for models that read a query as a text."""
        return " ".join(leaf.text for leaf in self._group.leaves() if not self._is_value(leaf))

    @cached_property
    def weights(self) -> dict[int, PartWeights]:
        """What each sparse part makes of the query, by its namespace's place."""
        return {part.space: self._weights_in(part) for part in self._bound.sparse}

    def _weights_in(self, part: SparsePart) -> PartWeights:
        if not isinstance(part.component, BM25) and part.space not in self._synonyms:
            plain = self.plain_text
            context = self._searcher.context(self._condition)
            terms = part.component.query_terms([plain], context)[0] if plain.strip() else {}
            return PartWeights(terms, part.query_weights([terms])[0])
        counts, expanded = self._counts_in(part)
        weights = dict(part.query_weights([counts])[0])
        for leaf, own in expanded:
            shared = _shared_weight(part, own)
            for term in own:
                counts[term] = counts.get(term, 0.0) + leaf.boost
                weights[term] = weights.get(term, 0.0) + leaf.boost * shared
        return PartWeights(counts, weights)

    def _counts_in(self, part: SparsePart) -> tuple[dict[str, float], list[tuple[Leaf, list[str]]]]:
        """How often each term counts, synonyms included, and the leaves that stand for others, with these."""
        bm25 = bm25_of(part.component)
        assert bm25 is not None
        factor = bm25.query_factor(self.plain_text, part.statistics)
        typed: list[tuple[list[str], float]] = []
        expanded: list[tuple[Leaf, list[str]]] = []
        for leaf in self._group.leaves():
            if self._is_value(leaf):
                continue
            own = [found for found in self._terms_of(leaf) if found.part.space == part.space]
            if isinstance(leaf, Prefix | Fuzzy):
                expanded += [(leaf.scaled(factor), found.terms) for found in own]
            elif own:
                typed.append((own[0].part.finder.places(leaf.text)[0], leaf.boost * factor))
        if (synonyms := self._synonyms.get(part.space)) is not None:
            return synonyms.weights(typed, bm25, part.statistics), expanded
        counts: dict[str, float] = {}
        for terms, boost in typed:
            for term in terms:
                counts[term] = counts.get(term, 0.0) + boost
        return counts, expanded

    @cached_property
    def query(self) -> Query:
        """The query as numbers for the engine."""
        parts = self._bound.parts
        if len(parts) == 1 and isinstance(parts[0], SparsePart) and isinstance(parts[0].component, BM25):
            counts, expanded = self._counts_in(parts[0])
            if not expanded:  # a shortcut with the same result as below
                return parts[0].encode([counts])[0]
        weights = {s: own.weights for s, own in self.weights.items()}
        return self._bound.encode_weighted(self.plain_text, weights, self._searcher.context(self._condition))

    @property
    def weights_by_namespace(self) -> dict[str, Mapping[str, float]]:
        """What terms weigh in each namespace, for highlighting."""
        return {part.component.namespace: self.weights[part.space].weights for part in self._bound.sparse}


def _any_of(part: WordPart, terms: list[str], field: str | None) -> _Terms:
    return _Terms(part, terms, part.numbers(terms), PhraseShape(field=field))


def _phrase(part: WordPart, terms: list[str], offsets: list[int], leaf: Leaf) -> _Terms:
    slop = leaf.slop if isinstance(leaf, Phrase) else 0
    return _Terms(part, terms, part.numbers(terms), PhraseShape(offsets, slop, leaf.field))


def _synonyms_of(part: SparsePart) -> Synonyms | None:
    """The synonyms that a part of a model adds to queries."""
    expander = part.component.expander if isinstance(part.component, ExpandedBM25) else None
    return expander if isinstance(expander, Synonyms) else None


def _mask(rows: np.ndarray, size: int) -> np.ndarray:
    mask = np.zeros(size, np.bool_)
    mask[rows] = True
    return mask


def _union(rows: Sequence[np.ndarray], size: int) -> np.ndarray:
    """The rows that are in any of some arrays, ascending."""
    if len(rows) < 2:
        return rows[0] if rows else _NONE
    mask = np.zeros(size, np.bool_)
    for some in rows:
        mask[some] = True
    return np.flatnonzero(mask)


def _shared_weight(part: SparsePart, terms: list[str]) -> float:
    """The weight of each term of a prefix or a fuzzy word: that of the most frequent of them.

    With its own idf a rare misspelling would weigh most.
    """
    if not terms:
        return 0.0
    frequencies = part.statistics.document_frequencies(terms)
    most = terms[int(np.argmax(frequencies))]
    return part.query_weights([{most: 1.0}])[0][most]


def _filter(field: str, text: str) -> Filter:
    """A filter for the documents with a value in a field: the text, or the number or boolean that it spells."""
    values: list[str | float | bool] = [text]
    if reads_as_number(text):
        values.append(number(text))
    if text in ("true", "false"):
        values.append(text == "true")
    condition = Filter.of({field_name(tuple(field.split("."))): values})
    assert condition is not None
    return condition
