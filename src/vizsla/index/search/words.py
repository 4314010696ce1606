"""The words of an index: the terms that begin or look like a word, and phrases.

Phrases are found in the terms of documents in the order of the text: as an index stores them, or read from the stored
texts.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vizsla.engine import PhrasePattern, WordList, rows_with_all, rows_with_phrase
from vizsla.errors import VizslaError
from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.search.bound_model import BoundModel, SparsePart
from vizsla.index.search.surface_forms import cuts_words
from vizsla.lazy import cached_property
from vizsla.models import BM25, SequenceEncoder, bm25_of

_BATCH = 2000  # documents whose texts are read at once


class PhraseShape(NamedTuple):
    """The shape of a phrase: the positions of its terms relative to the first, the slop, and the field."""

    offsets: Sequence[int] = (0,)
    slop: int = 0
    field: str | None = None


class PhraseFinder:
    """Finds phrases, and words of a field, in the documents of one namespace of a snapshot."""

    def __init__(self, snapshot: Snapshot, space: int, bm25: BM25) -> None:
        self._snapshot = snapshot
        self._space = space
        self._bm25 = bm25
        self._encoder = SequenceEncoder(bm25)
        self._turn = threading.Lock()  # the encoder learns words

    def places(self, text: str) -> tuple[list[str], list[int]]:
        """The terms of a phrase, and their places relative to the first; words that are dropped keep theirs."""
        words = self._bm25.text_analyzer.terms_by_word(text)
        terms = [term for word in words for term in word]
        if len(terms) == len(words) and all(words):  # each word is one term
            return terms, list(range(len(terms)))
        places: list[int] = []
        at = 0
        for word in words:
            places += range(at, at + len(word))
            at += max(len(word), 1)
        return terms, [place - places[0] for place in places]

    def rows(
        self, segment: int, terms: Sequence[str], numbers: np.ndarray, shape: PhraseShape, allowed: np.ndarray | None
    ) -> np.ndarray:
        """The allowed rows of a segment that have terms in their places, ascending.

        `numbers`: the index's numbers of the terms, none of them -1. `allowed`: see `candidates`.
        """
        candidates = self.candidates(segment, numbers, allowed)
        found: np.ndarray = candidates[self.check(segment, candidates, terms, numbers, shape)]
        return found

    def candidates(self, segment: int, numbers: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
        """The allowed rows of a segment that have all terms, wherever, ascending.

        `allowed`: a mask of live rows, since the text of a deleted row is gone; None if all rows live and may match.
        """
        different = np.array(list(dict.fromkeys(numbers.tolist())), np.int64)
        rows = rows_with_all(self._snapshot.segments[segment], different)
        return rows if allowed is None else rows[allowed[rows]]

    def pattern(self, numbers: Sequence[int] | np.ndarray, shape: PhraseShape) -> PhrasePattern:
        """A phrase by the numbers of its terms."""
        field = -1 if shape.field is None else self._bm25.fields.index(shape.field)
        return PhrasePattern.of(numbers, shape.offsets, shape.slop, field)

    def check(
        self, segment: int, rows: np.ndarray, terms: Sequence[str], numbers: np.ndarray, shape: PhraseShape
    ) -> np.ndarray:
        """Which of some live rows of a segment have terms in their places."""
        if not len(rows):
            return np.zeros(0, np.bool_)
        stored = self._snapshot.segments[segment].sequences.get(self._space)
        if stored is not None:
            return rows_with_phrase(stored, rows, self.pattern(numbers, shape))
        if not self._snapshot.documents.has_texts:
            what = "a phrase" if len(terms) > 1 else "a word of one field"
            raise VizslaError(
                f"{self._snapshot.path}: {what} cannot be found, since the index stores neither texts nor positions; "
                "build it again, with texts"
            )
        with self._turn:
            pattern = self.pattern(self._encoder.lexicon.numbers(terms), shape)
            batches = [rows[a : a + _BATCH] for a in range(0, len(rows), _BATCH)]
            return np.concatenate([self._in_texts(segment, batch, pattern) for batch in batches])

    def _in_texts(self, segment: int, rows: np.ndarray, pattern: PhrasePattern) -> np.ndarray:
        numbers = self._snapshot.segments[segment].numbers[rows].tolist()
        contents = self._snapshot.documents.read_by_models(numbers)
        sequences = self._encoder.encode([contents[n] for n in numbers])
        return rows_with_phrase(sequences, np.arange(len(rows)), pattern)


_SHORTEST_PREFIX, _MOST_COMPLETED = 2, 100  # letters of a half-typed word, and terms that it stands for
_NO_END = "q"  # a letter that ends no word; appending it avoids stemming and stop words


class WordPart:
    """A namespace with the words of documents."""

    def __init__(self, snapshot: Snapshot, space: int, bm25: BM25) -> None:
        self._snapshot = snapshot
        self._turn = threading.Lock()
        self.space = space
        self.bm25 = bm25
        self.finder = PhraseFinder(snapshot, space, bm25)

    def numbers(self, terms: Sequence[str]) -> np.ndarray:
        """The numbers of terms; -1 for one that no document has."""
        return self._snapshot.terms.lookup(self.space, terms)[0]

    def beginning_with(self, word: str) -> list[str]:
        """The terms of documents that begin as a word, and the term of the word itself: `retriev` of retrieval."""
        self._refuse_pieces("*")
        prefix = self._prefix(word)
        if not prefix:
            raise VizslaError("* needs a single word before it, of letters or digits")
        terms, frequencies = self._snapshot.terms.beginning_with(self.space, prefix)
        found = [term for term, n in zip(terms, frequencies.tolist(), strict=True) if n]
        return list(dict.fromkeys([*found, *self._living([token.term for token in self.bm25.tokens(word)])]))

    def completing(self, word: str) -> list[str] | None:
        """The terms of a word that may be half typed, and the most frequent ones that begin as it does.

        A word of one letter, or one that is cut into pieces, stands for itself; None for one without a term.
        """
        tokens = self.bm25.tokens(word)
        own = self._living([token.term for token in tokens])
        prefix = "" if self.has_pieces else self._prefix(word)
        if len(prefix) < _SHORTEST_PREFIX:
            return own if tokens else None
        terms, frequencies = self._snapshot.terms.beginning_with(self.space, prefix)
        most = np.argsort(-frequencies, kind="stable")[:_MOST_COMPLETED]
        return list(dict.fromkeys([*own, *(terms[i] for i in most.tolist() if frequencies[i])]))

    def _prefix(self, word: str) -> str:
        """How the terms of words begin that begin with a word; empty if it is none, or several."""
        tokens = self.bm25.tokens(word + _NO_END)
        return tokens[0].term.removesuffix(_NO_END) if len(tokens) == 1 else ""

    def near(self, word: str, edits: int) -> list[str] | None:
        """The terms of documents at most some edits from the term of a word; None for a word without one."""
        self._refuse_pieces("~")
        terms = [token.term for token in self.bm25.tokens(word)]
        if len(terms) > 1:
            raise VizslaError("~ needs a single word before it; put a phrase in quotation marks")
        if not terms:
            return None
        with self._turn:  # one thread reads the words; the others wait for them
            words, letters = self._all_words
        return self._living([words[i] for i in np.flatnonzero(letters.within(terms[0], edits)).tolist()])

    @cached_property
    def _all_words(self) -> tuple[list[str], WordList]:
        words = sorted(term for _, term in self._snapshot.terms.all_of(self.space, 1 << 32))
        return words, WordList.of(words)

    def _living(self, terms: Sequence[str]) -> list[str]:
        """The terms that a live document has."""
        _, frequencies = self._snapshot.terms.lookup(self.space, terms)
        return [term for term, n in zip(terms, frequencies.tolist(), strict=True) if n]

    @cached_property
    def has_pieces(self) -> bool:
        """Whether its terms are pieces of words."""
        return cuts_words(self.bm25)

    def _refuse_pieces(self, sign: str) -> None:
        if self.has_pieces:
            raise VizslaError(f"{sign} is for words, and the terms of this index are pieces of words")


def word_parts(parts: Sequence[WordPart], bound: BoundModel) -> list[WordPart]:
    """The parts with words that a model searches or, where it has none, all of the index; none at all is refused."""
    searched = {part.space for part in bound.sparse}
    chosen = [part for part in parts if part.space in searched] or list(parts)
    if not chosen:
        raise VizslaError("the query language needs a model with words, such as bm25, in the index; this one has none")
    return chosen


def parts_with_words(snapshot: Snapshot, sparse: Sequence[SparsePart]) -> list[WordPart]:
    """The namespaces of an index that hold words."""
    found = ((part.space, bm25_of(part.component)) for part in sparse)
    return [WordPart(snapshot, space, bm25) for space, bm25 in found if bm25 is not None]
