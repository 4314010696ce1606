"""A lexicon turns many texts into term numbers, fast: the batch side of an analyzer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from vizsla.text import scan
from vizsla.text.tokenizers import Tokenizer


class TermAnalyzer(Protocol):
    """What a lexicon needs of an analyzer."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def works_word_by_word(self) -> bool: ...

    def __call__(self, text: str) -> list[str]: ...

    def terms_of_words(self, words: Sequence[str]) -> tuple[list[str], list[int]]: ...


class Lexicon:
    """The terms an analyzer has met so far, numbered in order of first sight; it only grows.

    >>> from vizsla.text import Analyzer
    >>> lexicon = Lexicon(Analyzer.parse("lucene-english"))
    >>> numbers, ends = lexicon.encode(["The dogs run", "a running dog"])
    >>> numbers.tolist(), ends.tolist(), lexicon.terms
    ([0, 1, 1, 0], [2, 4], ['dog', 'run'])
    """

    def __init__(self, analyzer: TermAnalyzer) -> None:
        self.analyzer = analyzer
        self.terms: list[str] = []
        self._numbers: dict[str, int] = {}
        self._forms = _Forms(analyzer) if analyzer.works_word_by_word else None

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The term numbers of all texts in one array, and where each text's end in it."""
        if self._forms is not None:
            return self._forms.encode(texts, self)
        rows = [[self.number(term) for term in self.analyzer(text)] for text in texts]
        ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
        return np.array([n for row in rows for n in row], dtype=np.int32), ends

    def count(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How often each term occurs in each text, as CSR rows: pointers, term numbers, counts."""
        numbers, ends = self.encode(texts)
        return scan.count_numbers(numbers, ends, len(self.terms))

    def sequences(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `encode`, with -1 in the place of each word that the analyzer drops, such as a stop word.

        Where an analyzer looks at more than single words, nothing stands in these places.

        >>> from vizsla.text import Analyzer
        >>> Lexicon(Analyzer.parse("lucene-english")).sequences(["state of the art"])[0].tolist()
        [0, -1, -1, 1]
        """
        return self.encode(texts) if self._forms is None else self._forms.encode(texts, self, keep_dropped=True)

    def number(self, term: str) -> int:
        """The number of a term, a new one for a term that was never met."""
        number = self._numbers.setdefault(term, len(self.terms))
        if number == len(self.terms):
            self.terms.append(term)
        return number


class _Forms:
    """The distinct surface forms of words met so far, and the terms each becomes.

    The scanning kernel numbers words by form; only forms that are new go through the analyzer's filters, in
    one batch. English text has about one new form in a hundred words, soon far fewer.
    """

    def __init__(self, analyzer: TermAnalyzer) -> None:
        segmenter = analyzer.tokenizer.segmenter
        assert segmenter is not None
        self._analyzer = analyzer
        self._segmenter = segmenter
        self._slots = np.zeros(1 << 16, np.int32)
        self._hashes = np.zeros(1 << 15, np.uint32)
        self._starts = np.zeros((1 << 15) + 1, np.int64)
        self._arena = np.zeros(1 << 19, np.uint32)
        self._forms = 0
        self._used = 0
        self._pieces = np.zeros(1 << 15, np.int32)
        self._piece_ends = np.zeros((1 << 15) + 1, np.int64)

    def encode(
        self, texts: Sequence[str], lexicon: Lexicon, *, keep_dropped: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """The terms of texts and where each text's end; with `keep_dropped` -1 for each word without a term."""
        codes = scan.code_points("".join(texts))
        bounds = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=bounds[1:])
        words = np.empty(codes.size, np.int32)
        ends = np.empty(len(texts), np.int64)
        state = np.array([0, 0, 0, self._forms, self._used], np.int64)
        first_new = self._forms
        s, a = self._segmenter, self._segmenter.automaton
        while not scan.number_words(
            codes, bounds, s.classes, a.transitions, a.accepting, s.longest,
            self._slots, self._hashes, self._starts, self._arena, state, words, ends,
        ):  # fmt: skip
            self._enlarge(int(state[scan.FORMS]))
        self._forms, self._used = int(state[scan.FORMS]), int(state[scan.USED])
        self._resolve(first_new, lexicon)
        words = words[: int(state[scan.WORDS])]
        return scan.replace_forms(words, ends, self._pieces, self._piece_ends, keep_dropped=keep_dropped)

    def _enlarge(self, forms: int) -> None:
        """Double all arrays; the forms keep their numbers."""
        self._arena = _doubled(self._arena)
        self._hashes = _doubled(self._hashes)
        self._starts = _doubled(self._starts)
        self._slots = np.zeros(2 * self._slots.size, np.int32)
        scan.rehash(self._hashes, forms, self._slots)

    def _resolve(self, first: int, lexicon: Lexicon) -> None:
        """Work out the terms of the forms from `first` on."""
        if first == self._forms:
            return
        start = int(self._starts[first])
        text = self._arena[start : self._used].tobytes().decode("utf-32-le", "surrogatepass")
        cuts = (self._starts[first : self._forms + 1] - start).tolist()
        forms = [text[a:b] for a, b in pairwise(cuts)]
        terms, counts = self._analyzer.terms_of_words(forms)
        numbers = np.fromiter(map(lexicon.number, terms), np.int32, len(terms))
        used = int(self._piece_ends[first])
        while self._pieces.size < used + numbers.size:
            self._pieces = _doubled(self._pieces)
        while self._piece_ends.size < self._forms + 1:
            self._piece_ends = _doubled(self._piece_ends)
        self._pieces[used : used + numbers.size] = numbers
        self._piece_ends[first + 1 : self._forms + 1] = used + np.cumsum(counts)


def _doubled(array: np.ndarray) -> np.ndarray:
    out = np.zeros(2 * array.size, array.dtype)
    out[: array.size] = array
    return out
