"""Suggestions: words of the collection that complete the typed prefix.

An index stores terms, so the words of a term are looked up in documents (`surface_forms.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vizsla.errors import VizslaError, kind_of
from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.search.bound_model import SparsePart
from vizsla.index.search.surface_forms import SurfaceForms, cuts_words, is_of_a_word, most_frequent
from vizsla.models import LanguageBM25, bm25_of
from vizsla.runs.retriever import check_count

MAX_WORD = 64
"""Longer words are not completed."""
_MAX_CACHED = 4096
_DOCUMENTS = 8  # with a term, that are looked at
_MORE_DOCUMENTS = 32  # where only some of a term's words begin as what is typed
_MAX_CANDIDATES = 40  # terms that are looked at
_MAX_STEMS = 4
_NO_END = "q"
_INSIDE_A_WORD = "##"  # a word piece that does not begin a word
_BEGINS_A_WORD = ("", "\u2581", "\u0120")  # how tokenizers of word pieces mark that


class Suggestion(NamedTuple):
    """A word, and how many documents (or passages) have it or another word with the same stem."""

    text: str
    documents: int


class Completer:
    """Completes words from the terms of one snapshot; earlier results are cached."""

    def __init__(self, snapshot: Snapshot, parts: Sequence[SparsePart]) -> None:
        self._snapshot = snapshot
        self._known: dict[tuple[str, int], list[Suggestion]] = {}
        of_words = [part for part in parts if not cuts_words(part.component)]
        self._part = next(iter([*of_words, *parts]), None)
        self._others = [Completer(snapshot, [part]) for part in of_words[1:] if _is_of_a_language(part)]
        """Completers of the other languages of an index of several."""
        self._has_pieces = not of_words
        self._words_of = None if self._part is None else SurfaceForms(snapshot, self._part)

    def suggest(self, typed: object, size: int) -> list[Suggestion]:
        """Completions of the last word of what is typed, those in most documents first."""
        if not isinstance(typed, str):
            raise VizslaError(f"what is typed is a text, not {kind_of(typed)}")
        size = check_count(size, "the number of suggestions")
        found = dict(self._suggested(typed, size))
        for other in self._others:  # a document is in one language
            for text, documents in other._suggested(typed, size):
                found[text] = found.get(text, 0) + documents
        return _ranked(found, size)

    def _suggested(self, typed: str, size: int) -> list[Suggestion]:
        word = _last_word(typed)
        if self._part is None or not word:
            return []
        start = self._start(word)
        found = self._known.get((word[start:], size))
        if found is None:
            with self._snapshot.naming_damage():
                found = self._find(self._part, word[start:], size)
            if len(self._known) >= _MAX_CACHED:
                self._known = {}
            self._known[word[start:], size] = found
        return [Suggestion(word[:start] + text, documents) for text, documents in found]

    def _start(self, word: str) -> int:
        """The start of the part of a word that becomes a separate term: `th` in `state-of-th`."""
        assert self._part is not None
        last = [] if self._has_pieces else self._part.component.tokens(word)[-1:]
        if last and last[0].end == len(word):
            return last[0].start
        start = len(word)
        while start and (is_of_a_word(word[start - 1]) or word[start - 1] in "_'."):
            start -= 1
        return start

    # Which terms

    def _find(self, part: SparsePart, typed: str, size: int) -> list[Suggestion]:
        prefix = typed.lower()
        if not prefix:
            return []
        words_of = self._words_of
        assert words_of is not None
        if not words_of.knows_words:
            return _ranked(self._as_they_are(self._terms_from(part, {prefix, typed}), prefix), size)
        stems = self._stems(part, prefix)
        frequencies = self._terms_from(part, {prefix, typed, self._changed(part, typed)} - {""}) | stems
        best = sorted(frequencies, key=lambda term: (-frequencies[term], term))[:_MAX_CANDIDATES]
        found: dict[str, int] = {}
        while best and len(found) < size:
            batch, best = best[: size + 2], best[size + 2 :]
            for text, documents in self._words(words_of, batch, stems, frequencies, prefix).items():
                found.setdefault(text, documents)
        if not found and len(prefix) > 3:  # a stem that has other letters at its end than its words
            near = self._terms_from(part, {prefix[: max(len(prefix) - 2, 3)]})
            best = sorted(near, key=lambda term: (-near[term], term))[:_MAX_CANDIDATES]
            found = self._words(words_of, best, {}, near, prefix)
        return _ranked(found, size)

    def _terms_from(self, part: SparsePart, beginnings: Iterable[str]) -> dict[str, int]:
        """The most frequent terms with one of some prefixes, and their document frequencies."""
        if self._has_pieces:
            beginnings = [mark + beginning for beginning in beginnings for mark in _BEGINS_A_WORD]
        frequencies: dict[str, int] = {}
        for beginning in beginnings:
            terms, counts = self._snapshot.terms.beginning_with(part.space, beginning)
            most = np.argsort(-counts, kind="stable")[: 4 * _MAX_CANDIDATES]
            frequencies |= {terms[i]: int(counts[i]) for i in most.tolist() if counts[i]}
        return frequencies

    def _changed(self, part: SparsePart, typed: str) -> str:
        """The prefix of the terms of words with the typed prefix: `zu` for `zü` if the model removes accents.

        A letter that ends no word is appended, so that neither stemming nor stop words apply.
        """
        tokens = part.component.tokens(typed + _NO_END)[-1:]
        return tokens[0].term.removesuffix(_NO_END) if tokens and not self._has_pieces else ""

    def _stems(self, part: SparsePart, prefix: str) -> dict[str, int]:
        """Stems of words that may have the typed prefix: the prefix's own stem, and the longest term it begins with."""
        own = [token.term for token in part.component.tokens(prefix)][-1:]
        shorter = [prefix[:n] for n in range(len(prefix) - 1, max(1, len(prefix) // 3 - 1), -1)]
        terms = [] if self._has_pieces else list(dict.fromkeys([*own, *shorter]))
        _, frequencies = part.statistics.terms.lookup(part.space, terms)
        pairs = zip(terms, frequencies.tolist(), strict=True)
        return dict([(term, n) for term, n in pairs if n][:_MAX_STEMS])

    def _as_they_are(self, frequencies: Mapping[str, int], prefix: str) -> dict[str, int]:
        """Terms themselves, where there are no texts to find words in."""
        marks = "".join(_BEGINS_A_WORD)
        shown = {term.lstrip(marks): n for term, n in frequencies.items() if not term.startswith(_INSIDE_A_WORD)}
        return {term: n for term, n in shown.items() if term.lower().startswith(prefix)}

    # Which words

    def _words(
        self,
        words_of: SurfaceForms,
        terms: Sequence[str],
        stems: Mapping[str, int],
        frequencies: Mapping[str, int],
        prefix: str,
    ) -> dict[str, int]:
        """For each term its most frequent word that begins as what is typed, and in how many documents the term is."""
        counts = {
            term: _MORE_DOCUMENTS if term in stems and not term.startswith(prefix) else _DOCUMENTS for term in terms
        }
        of_terms = words_of.find(counts, prefix)
        chosen = {term: most_frequent(words) for term, words in of_terms.items() if words}
        found: dict[str, int] = {}
        for term, word in words_of.shown(chosen).items():
            found[word] = max(found.get(word, 0), frequencies[term])
        return found


def _is_of_a_language(part: SparsePart) -> bool:
    """Whether a part has the words of the documents of one language alone."""
    return isinstance(bm25_of(part.component), LanguageBM25)


def _last_word(typed: str) -> str:
    """What stands after the last blank; empty if nothing does, or something that is no word."""
    if not typed or typed[-1].isspace():
        return ""
    word = typed[-MAX_WORD - 1 :].split()[-1]
    try:
        word.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return ""
    return word if len(word) <= MAX_WORD else ""


def _ranked(words: Mapping[str, int], size: int) -> list[Suggestion]:
    best = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    return [Suggestion(text, documents) for text, documents in best[:size]]
