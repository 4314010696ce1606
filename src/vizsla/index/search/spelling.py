"""Did you mean: words of a query that the collection does not have, and words one or two edits away that it has.

An edit inserts, leaves out or replaces a letter, swaps two neighbours, or inserts or leaves out a blank between words.
People type words and an index stores terms, so all words one edit away are analysed, and their terms are looked up.
Words two edits away are those of terms that begin with the same letters. What is shown is a word of the documents.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from vizsla import stopping
from vizsla.engine import WordList
from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.search.bound_model import SparsePart
from vizsla.index.search.surface_forms import SurfaceForms, cuts_words, most_frequent
from vizsla.models import ExpandedBM25, Synonyms, bm25_of
from vizsla.runs.query_language import LUCENE, Word, parse_query

SHORTEST, LONGEST = 4, 40
"""Letters of a word; shorter and longer ones are not corrected."""
TWO_EDITS = 8
"""From so many letters on two edits are corrected, if no word is one edit away."""
MAX_CHARACTERS, MAX_WORDS, MAX_CORRECTED = 2000, 64, 8
"""Of a query: a longer one is not corrected; how many words are looked at, and corrected."""
_RARE, _RATIO = 2, 10  # a word in so few documents is corrected if another is in so many times as many
_OTHER_FIRST = 0.3  # a word with another first letter counts as if it were in so many times as many documents
_NOT_SEEN = 0.02  # the same for a word that documents with its term do not have, which may be no word
_LEFT_OUT = 0.5  # a stop word counts as if it were in this share of the documents
_BEGINNING = 2  # letters that a word has in common with one two edits away
_DOCUMENTS = 16  # with a term, in which its words are looked for
_TERMS = 5  # whose words are looked for
_LETTERS = 40  # of an alphabet
_LATIN = "abcdefghijklmnopqrstuvwxyz"
_MAX_CACHED = 4096
_BLOCK = re.compile(r"[^\s\-\u2010-\u2015/,;:!?()\[\]{}\"\u201c\u201d\u201e\u00ab\u00bb|]+")
_EDGES = ".'\u2018\u2019`*+=<>~^&#%$"
_JOINTS = (" ", "-")


class TypedWord(NamedTuple):
    """A word of a query, and where it begins and ends."""

    start: int
    end: int
    text: str

    def is_in(self, place: tuple[int, int]) -> bool:
        """Whether the word has characters between two places."""
        return self.start < place[1] and place[0] < self.end


class _Candidate(NamedTuple):
    """A word that may be meant, and how likely, in documents."""

    weight: float
    text: str


class Speller:
    """Corrects queries by the words of one snapshot; earlier corrections are cached."""

    def __init__(self, snapshot: Snapshot, parts: Sequence[SparsePart]) -> None:
        """`parts`: of the index's own model. Those that count whole words correct."""
        self._snapshot = snapshot
        self._parts = [
            _Part(snapshot, part)
            for part in parts
            if bm25_of(part.component) is not None and not cuts_words(part.component)
        ]
        self._known: dict[str, str | None] = {}

    def corrected(self, query: str, syntax: str | None = None, parts: Sequence[SparsePart] = ()) -> str | None:
        """A query with its misspelt words replaced; None if all are known, or nothing is near to them.

        In a query language plain words alone are looked at: no phrases, fields, prefixes and fuzzy words, and nothing
        that is excluded. `parts`: of the model that searches; words that these have synonyms for stay.
        """
        if not self._parts or not query.strip() or len(query) > MAX_CHARACTERS:
            return None
        with self._snapshot.naming_damage():
            kept = list(_places_with_synonyms(query, parts))
            typed = (word for word in typed_words(query, syntax) if not any(map(word.is_in, kept)))
            words = list(islice(typed, MAX_WORDS))
            replaced = self._replaced(words, query, may_cut=syntax != LUCENE)
        pieces, at = [], 0
        for word, text in replaced:
            pieces += [query[at : word.start], text]
            at = word.end
        return "".join([*pieces, query[at:]]) if replaced else None

    def _replaced(self, words: Sequence[TypedWord], query: str, *, may_cut: bool) -> list[tuple[TypedWord, str]]:
        """The misspelt words and what replaces them.

        `may_cut`: whether two words may become one and one two, for which a query language has signs.
        """
        replaced: list[tuple[TypedWord, str]] = []
        for word, following in pairwise([*words, None]):
            assert word is not None
            stopping.check()
            if len(replaced) == MAX_CORRECTED:
                break
            if replaced and replaced[-1][0].end >= word.end:  # joined to the word before
                continue
            if may_cut and following is not None and query[word.end : following.start] in _JOINTS:
                joined = TypedWord(word.start, following.end, word.text + following.text)
                if self._is_one_word(joined, word, following):
                    replaced.append((joined, joined.text))
                    continue
            if query.isupper() or not _is_identifier(word.text):
                found = self._correction(word.text.lower())
                if found is not None and (may_cut or " " not in found):
                    replaced.append((word, _in_case_of(word.text, found) if may_cut else found))
        return replaced

    def _is_one_word(self, joined: TypedWord, *words: TypedWord) -> bool:
        """Whether the collection has two words as one, and not one of the two."""
        if not SHORTEST <= len(joined.text) <= LONGEST:
            return False
        return any(self._documents_of(word.text) == 0 for word in words) and bool(self._documents_of(joined.text))

    def _documents_of(self, word: str) -> int | None:
        """In how many documents a word is; None for a word that some part cuts into pieces."""
        found = [part.documents_of(word) for part in self._parts]
        return None if None in found else max(n for n in found if n is not None)

    def _correction(self, word: str) -> str | None:
        """The word of the collection that a word in lower case was meant to be."""
        if not SHORTEST <= len(word) <= LONGEST:
            return None
        known = self._known  # other threads may begin a new one
        if word in known:
            return known[word]
        found = self._find(word)
        if len(known) >= _MAX_CACHED:
            self._known = known = {}
        known[word] = found
        return found

    def _find(self, word: str) -> str | None:
        documents = self._documents_of(word)
        if documents is None or documents > _RARE:
            return None
        for find in (_Part.one_edit,) if documents else (_Part.one_edit, _Part.two_words, _Part.two_edits):
            candidates = [found for part in self._parts if (found := find(part, word)) is not None]
            if candidates:
                best = max(candidates)
                return best.text if best.weight >= _RATIO * documents else None
        return None


class _Part:
    """A namespace that holds whole words."""

    def __init__(self, snapshot: Snapshot, part: SparsePart) -> None:
        self._snapshot = snapshot
        self._part = part
        self._words = SurfaceForms(snapshot, part)
        self._letters: Counter[str] | None = None

    def documents_of(self, word: str) -> int | None:
        """In how many documents a word is, all for a stop word; None for a word that has several terms."""
        terms = [token.term for token in self._part.component.tokens(word)]
        if not terms:
            return self._part.statistics.documents
        return int(self._part.statistics.document_frequencies(terms)[0]) if len(terms) == 1 else None

    # One edit

    def one_edit(self, word: str) -> _Candidate | None:
        """The best word one edit away."""
        by_term: dict[str, list[str]] = {}
        words = [near for near in one_edit_away(word, self._alphabet(word)) if len(near) >= SHORTEST - 1]
        for near, term in zip(words, self._terms_of(words), strict=True):
            if term is not None:
                by_term.setdefault(term, []).append(near)
        frequencies = self._snapshot.terms.frequencies(self._part.space, list(by_term))
        weights = {term: _likeness(word, by_term[term]) * n for term, n in zip(by_term, frequencies, strict=True) if n}
        if "" in by_term:
            weights[""] = _likeness(word, by_term[""]) * _LEFT_OUT * self._part.statistics.documents
        best: _Candidate | None = None
        for term in sorted(weights, key=lambda term: (-weights[term], term))[:_TERMS]:
            if best is not None and weights[term] <= best.weight:
                break
            seen = self._seen(term, by_term[term])
            weight = weights[term] if seen or not term or not self._words.knows_words else _NOT_SEEN * weights[term]
            if best is None or weight > best.weight:
                shown = self._shown(word, term, by_term[term], seen)
                best = best if shown is None else _Candidate(weight, shown)
        return best

    def _alphabet(self, word: str) -> str:
        """The letters of the collection's terms, of the scripts that a word is in."""
        if self._letters is None:
            letters = Counter("".join(self._snapshot.terms.sample(self._part.space)))
            self._letters = Counter({letter: n for letter, n in letters.items() if _is_letter(letter)})
        scripts = {_script(letter) for letter in word}
        own = [letter for letter, _ in self._letters.most_common() if _script(letter) in scripts][:_LETTERS]
        return "".join(dict.fromkeys([*own, *(_LATIN if "LATIN" in scripts else "")]))

    def _terms_of(self, words: Sequence[str]) -> list[str | None]:
        """The term of each word, empty for a stop word; None for a word that has several."""
        bounds = np.cumsum([0, *(len(word) + 1 for word in words)])
        tokens = self._part.component.tokens(" ".join(words))
        rows = np.searchsorted(bounds, [token.start for token in tokens], side="right") - 1
        found: list[str | None] = [""] * len(words)
        for row, token in zip(rows.tolist(), tokens, strict=True):
            found[row] = token.term if found[row] == "" and token.end < bounds[row + 1] else None
        return found

    def _seen(self, term: str, words: Sequence[str]) -> Counter[str]:
        """Which words are in some documents that have their term, and how often."""
        if not term or not self._words.knows_words:
            return Counter()
        pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)")
        return Counter(word for text in self._words.texts({term: _DOCUMENTS}) for word in pattern.findall(text.lower()))

    def _shown(self, typed: str, term: str, words: Sequence[str], seen: Counter[str]) -> str | None:
        """The word of a term that is shown: one of the documents; None if none was found.

        One that they do not have is shown where theirs are not near, if it alone has this term: it ends as was typed.
        """
        if seen:
            return most_frequent(seen)
        plausible = min(words, key=lambda word: (-_likeness(typed, [word]), abs(len(word) - len(typed)), word))
        if not term or not self._words.knows_words:
            return plausible
        of_term = _lowered(self._words.find({term: _DOCUMENTS}, plausible[:_BEGINNING])[term])
        near = _within(typed, of_term, 2)
        if near or len(words) > 1:
            return most_frequent(near or of_term) if of_term else None
        return plausible

    # Two words, two edits

    def two_words(self, word: str) -> _Candidate | None:
        """The best two words with a blank between them, as documents have them."""
        cuts = [(word[:i], word[i:]) for i in range(2, len(word) - 1)] if self._words.knows_words else []
        best: _Candidate | None = None
        terms = self._terms_of([part for cut in cuts for part in cut])
        pairs = list(zip(terms[::2], terms[1::2], strict=True))
        known = dict.fromkeys(term for pair in pairs for term in pair if term)
        counts = dict(zip(known, self._snapshot.terms.frequencies(self._part.space, list(known)), strict=True))
        for (first, second), (a, b) in zip(cuts, pairs, strict=True):
            if a and b and counts[a] and counts[b]:
                pattern = re.compile(rf"(?<!\w){re.escape(first)}[\s-]{re.escape(second)}(?!\w)")
                texts = self._words.texts_with_both(a, b, _DOCUMENTS)
                weight = sum(pattern.search(text.lower()) is not None for text in texts)
                if weight and (best is None or weight > best.weight):
                    best = _Candidate(weight, f"{first} {second}")
        return best

    def two_edits(self, word: str) -> _Candidate | None:
        """The best word two edits away."""
        (term,) = self._terms_of([word])
        if not term or len(word) < TWO_EDITS or not self._words.knows_words:
            return None
        terms, frequencies = self._snapshot.terms.beginning_with(self._part.space, term[:_BEGINNING])
        near = np.flatnonzero(WordList.of(terms).within(term, 2) & (frequencies > 0))
        best = near[np.argsort(-frequencies[near], kind="stable")[:_TERMS]]
        for i in best.tolist():
            words = _lowered(self._words.find({terms[i]: _DOCUMENTS}, word[:_BEGINNING])[terms[i]])
            if found := _within(word, words, 2):
                return _Candidate(float(frequencies[i]), most_frequent(found))
        return None


def _places_with_synonyms(query: str, parts: Sequence[SparsePart]) -> Iterator[tuple[int, int]]:
    """Where words begin and end that a model has synonyms for."""
    for component in (part.component for part in parts):
        if isinstance(component, ExpandedBM25) and isinstance(component.expander, Synonyms):
            yield from component.expander.places(query, component.bm25)


def _likeness(typed: str, words: Sequence[str]) -> float:
    """How likely it is that one of some words was meant, apart from how frequent it is."""
    return 1.0 if any(word[0] == typed[0] for word in words) else _OTHER_FIRST


def _lowered(words: Counter[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for word, n in words.items():
        if all(map(_may_stand_in_a_word, word)):
            found[word.lower()] += n
    return found


def _within(typed: str, words: Counter[str], edits: int) -> Counter[str]:
    """The words that are at most some edits away."""
    listed = list(words)
    return Counter({listed[i]: words[listed[i]] for i in np.flatnonzero(WordList.of(listed).within(typed, edits))})


def one_edit_away(word: str, alphabet: str) -> list[str]:
    """All words that a word becomes by one edit with the letters of an alphabet.

    >>> one_edit_away("ab", "c")
    ['b', 'ba', 'cb', 'a', 'ac', 'cab', 'acb', 'abc']
    """
    cuts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    found = []
    for before, after in cuts[:-1]:
        found.append(before + after[1:])
        if len(after) > 1:
            found.append(before + after[1] + after[0] + after[2:])
        found += [before + letter + after[1:] for letter in alphabet]
    found += [before + letter + after for before, after in cuts for letter in alphabet]
    return [near for near in dict.fromkeys(found) if near != word]


def typed_words(query: str, syntax: str | None = None) -> Iterator[TypedWord]:
    """The words of a query that may be corrected, from left to right.

    >>> [word.text for word in typed_words("state-of-the-art (dgos), 12 IL6 a_b x.org")]
    ['state', 'of', 'the', 'art', 'dgos']
    >>> [word.text for word in typed_words('+dgos "viszla pupy" title:dgo ctas^2 -cow retr*', "lucene")]
    ['dgos', 'ctas']
    """
    if syntax is None:
        yield from _words_in(query, 0)
        return
    for leaf in parse_query(query, syntax).leaves():
        if type(leaf) is Word and leaf.field is None and query.startswith(leaf.text, leaf.position):
            yield from _words_in(leaf.text, leaf.position)


def _words_in(text: str, start: int) -> Iterator[TypedWord]:
    for found in _BLOCK.finditer(text):
        block = found[0].rstrip(_EDGES)
        word = block.lstrip(_EDGES)
        if word and all(map(_may_stand_in_a_word, word)):
            end = start + found.start() + len(block)
            yield TypedWord(end - len(word), end, word)


def _is_letter(character: str) -> bool:
    """Whether a character is a letter, or a mark that belongs to one."""
    return unicodedata.category(character)[0] in "LM"


def _may_stand_in_a_word(character: str) -> bool:
    return _is_letter(character) or character in "'\u2019"


def _script(letter: str) -> str:
    """The script of a letter, as its name tells: LATIN, CYRILLIC."""
    return unicodedata.name(letter, "").partition(" ")[0]


def _is_identifier(word: str) -> bool:
    """Whether letters after the first are in upper case, as in DNA and fetchData."""
    return word[1:] != word[1:].lower()


def _in_case_of(typed: str, word: str) -> str:
    """A word in lower case, in upper case as it was typed."""
    if len(typed) > 1 and typed.isupper():
        return word.upper()
    return word[0].upper() + word[1:] if typed[0].isupper() else word
