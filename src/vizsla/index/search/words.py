"""The words of an index: the parts of a model that read words, and the terms that begin or look like a word."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from vizsla.engine import WordList
from vizsla.errors import VizslaError
from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.search.bound_model import BoundModel, SparsePart
from vizsla.index.search.sequences import PhraseFinder
from vizsla.models import BM25, ExpandedBM25

_NO_END = "q"  # a letter that ends no word keeps stemmers and stop words away


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
        tokens = self.bm25.tokens(word + _NO_END)
        prefix = tokens[0].term.removesuffix(_NO_END) if tokens else ""
        if len(tokens) > 1 or not prefix:
            raise VizslaError("* needs a single word before it, of letters or digits")
        terms, frequencies = self._snapshot.terms.beginning_with(self.space, prefix)
        found = [term for term, n in zip(terms, frequencies.tolist(), strict=True) if n]
        return list(dict.fromkeys([*found, *self._living([token.term for token in self.bm25.tokens(word)])]))

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
        """The terms that a living document has."""
        _, frequencies = self._snapshot.terms.lookup(self.space, terms)
        return [term for term, n in zip(terms, frequencies.tolist(), strict=True) if n]

    def _refuse_pieces(self, sign: str) -> None:
        if len(self.bm25.tokens("qzxvkjwq")) > 1:  # no word, and yet several terms
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
    parts = []
    for part in sparse:
        component = part.component
        bm25 = component.bm25 if isinstance(component, ExpandedBM25) else component
        if isinstance(bm25, BM25):
            parts.append(WordPart(snapshot, part.space, bm25))
    return parts
