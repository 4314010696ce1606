"""Suggestions: words of the collection that complete the typed prefix.

An index stores terms, and a term can be the stem of several words, as `retriev` is of retrieval and retrieves. So the
words of a term are looked up in a sample of the documents that have the term.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vizsla.engine import Segment
from vizsla.errors import VizslaError, kind_of
from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.search.bound_model import SparsePart
from vizsla.models import ExpandedBM25, LanguageBM25, PrecomputedVectors, as_text, is_text
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
        of_words = [part for part in parts if not _cuts_words(part)]
        self._part = next(iter([*of_words, *parts]), None)
        self._others = [Completer(snapshot, [part]) for part in of_words[1:] if _is_of_a_language(part)]
        """Completers of the other languages of an index of several."""
        self._has_pieces = not of_words
        component = None if self._part is None else self._part.component
        self._shows_terms = (
            not snapshot.documents.has_texts
            or isinstance(component, PrecomputedVectors)
            or (component is not None and not component.tokens("dog"))
        )

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
        while start and (_is_of_a_word(word[start - 1]) or word[start - 1] in "_'."):
            start -= 1
        return start

    # Which terms

    def _find(self, part: SparsePart, typed: str, size: int) -> list[Suggestion]:
        prefix = typed.lower()
        if not prefix:
            return []
        if self._shows_terms:
            return _ranked(self._as_they_are(self._terms_from(part, {prefix, typed}), prefix), size)
        stems = self._stems(part, prefix)
        frequencies = self._terms_from(part, {prefix, typed, self._changed(part, typed)} - {""}) | stems
        best = sorted(frequencies, key=lambda term: (-frequencies[term], term))[:_MAX_CANDIDATES]
        found: dict[str, int] = {}
        while best and len(found) < size:
            batch, best = best[: size + 2], best[size + 2 :]
            for text, documents in self._words(part, batch, stems, frequencies, prefix).items():
                found.setdefault(text, documents)
        if not found and len(prefix) > 3:  # a stem that has other letters at its end than its words
            near = self._terms_from(part, {prefix[: max(len(prefix) - 2, 3)]})
            best = sorted(near, key=lambda term: (-near[term], term))[:_MAX_CANDIDATES]
            found = self._words(part, best, {}, near, prefix)
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
        part: SparsePart,
        terms: Sequence[str],
        stems: Mapping[str, int],
        frequencies: Mapping[str, int],
        prefix: str,
    ) -> dict[str, int]:
        """For each term its most frequent word that begins as what is typed, and in how many documents the term is."""
        numbers, _ = part.statistics.terms.lookup(part.space, terms)
        rows: set[int] = set()
        for term, number in zip(terms, numbers.tolist(), strict=True):
            count = _MORE_DOCUMENTS if term in stems and not term.startswith(prefix) else _DOCUMENTS
            rows.update(self._documents_with(number, count))
        blocks = [
            block
            for document in self._snapshot.documents.by_number(rows).values()
            for field in part.component.fields
            if is_text(value := document.get(field))
            for block in _blocks_with(as_text(value), prefix)
        ]
        counts: dict[str, Counter[str]] = {term: Counter() for term in terms}
        for term, word in self._terms_in(part, blocks):
            if term in counts and word.lower().startswith(prefix):
                counts[term][word] += 1
        chosen = {term: _most_frequent(words) for term, words in counts.items() if words}
        in_lower_case = set(self._terms_in(part, [word.lower() for word in chosen.values()]))
        found: dict[str, int] = {}
        for term, word in chosen.items():  # a model may take the same letters in upper case for another word
            shown = word.lower() if (term, word.lower()) in in_lower_case else word
            found[shown] = max(found.get(shown, 0), frequencies[term])
        return found

    def _terms_in(self, part: SparsePart, blocks: Sequence[str]) -> Iterator[tuple[str, str]]:
        """The terms in some texts without blanks, and the words they stand for; of word pieces only whole words."""
        text = f" {' '.join(blocks)} "
        for term, start, end in part.component.tokens(text):
            word = text[start:end].strip()
            start = end - len(word)  # some tokenizers add the blank before a word to it
            if not self._has_pieces or not (_is_of_a_word(text[start - 1]) or _is_of_a_word(text[end])):
                yield term, word

    def _documents_with(self, term: int, count: int) -> list[int]:
        """The insertion numbers of some live documents that have a term, from all over the collection."""
        found: list[int] = []
        for segment, alive in zip(self._snapshot.segments, self._snapshot.alive, strict=True):
            rows = _rows_with(segment, alive, term, count)
            found += segment.numbers[rows].tolist()
        chosen = np.linspace(0, len(found) - 1, min(count, len(found))).astype(int)
        return [found[i] for i in chosen.tolist()]


def _is_of_a_language(part: SparsePart) -> bool:
    """Whether a part has the words of the documents of one language alone."""
    component = part.component.bm25 if isinstance(part.component, ExpandedBM25) else part.component
    return isinstance(component, LanguageBM25)


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


def _blocks_with(text: str, prefix: str) -> Iterator[str]:
    """What stands between blanks in a text and may have a word with a prefix, which is in lower case.

    >>> list(_blocks_with("The (Dogs) bark at hot-dogs, not at underdogs.", "dog"))
    ['(Dogs)', 'hot-dogs,']
    """
    lowered = text.lower()
    if len(lowered) != len(text):  # some letters become two
        yield from (block for block in text.split() if prefix in block.lower())
        return
    at = lowered.find(prefix)
    while at >= 0:
        before = lowered[at - 1] if at else " "
        end = at + len(prefix)
        if not before.isascii() or not before.isalnum():
            start = at
            while start and not text[start - 1].isspace():
                start -= 1
            while end < len(text) and not text[end].isspace():
                end += 1
            yield text[start:end]
        at = lowered.find(prefix, end)


def _cuts_words(part: SparsePart) -> bool:
    """Whether the terms of a part are word pieces: a meaningless string then has several terms."""
    return len(part.component.tokens("qzxvkjwq")) > 1


def _is_of_a_word(character: str) -> bool:
    """Whether a character is a letter, a digit, or a mark such as an accent."""
    return unicodedata.category(character)[0] in "LNM"


def _most_frequent(words: Counter[str]) -> str:
    """The most frequent word, in whatever case; of equal ones the shortest."""
    in_lower_case: Counter[str] = Counter()
    for word, count in words.items():
        in_lower_case[word.lower()] += count
    return min(words, key=lambda w: (-in_lower_case[w.lower()], len(w), w.lower(), -words[w], w))


def _rows_with(segment: Segment, alive: np.ndarray | None, term: int, count: int) -> np.ndarray:
    """Some live rows of a segment that have a term."""
    rows = np.zeros(0, np.int64)
    for lists in (segment.small, segment.large):
        documents, _ = lists.list_of(term, len(segment))
        living = documents if alive is None else documents[alive[documents]]
        chosen = np.linspace(0, len(living) - 1, min(count, len(living))).astype(np.int64)
        rows = np.concatenate([rows, living[chosen].astype(np.int64)])
        if len(rows) >= count:
            break
    return np.sort(rows)


def _ranked(words: Mapping[str, int], size: int) -> list[Suggestion]:
    best = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    return [Suggestion(text, documents) for text, documents in best[:size]]
