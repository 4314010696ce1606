"""A lexicon turns many texts into term numbers, fast: the batch side of an analyzer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from vizsla.text import form_kernels, scan
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

    If the analyzer works word by word, several threads may encode texts at a time.

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
        self._forms = _Forms(analyzer, self) if analyzer.works_word_by_word else None

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The term numbers of all texts in one array, and where each text's end in it."""
        if self._forms is not None:
            return self._forms.number(*_code_points(texts)).terms(keep_dropped=False)
        rows = [[self.number(term) for term in self.analyzer(text)] for text in texts]
        ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
        return np.array([n for row in rows for n in row], dtype=np.int32), ends

    def count(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How often each term occurs in each text, as CSR rows: pointers, term numbers, counts."""
        if self._forms is not None:
            return self.count_code_points(*_code_points(texts))
        numbers, ends = self.encode(texts)
        return scan.count_numbers(numbers, ends, len(self.terms))

    def count_code_points(self, codes: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `count`, of texts as code points: text i is codes[bounds[i]:bounds[i + 1]]. Words must stand alone."""
        assert self._forms is not None
        return self._forms.number(codes, bounds).counts(len(self.terms))

    def sequences(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `encode`, with -1 in the place of each word that the analyzer drops, such as a stop word.

        Where an analyzer looks at more than single words, nothing stands in these places.

        >>> from vizsla.text import Analyzer
        >>> Lexicon(Analyzer.parse("lucene-english")).sequences(["state of the art"])[0].tolist()
        [0, -1, -1, 1]
        """
        if self._forms is None:
            return self.encode(texts)
        return self._forms.number(*_code_points(texts)).terms(keep_dropped=True)

    def number(self, term: str) -> int:
        """The number of a term, a new one for a term that was never met."""
        number = self._numbers.setdefault(term, len(self.terms))
        if number == len(self.terms):
            self.terms.append(term)
        return number


def _code_points(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Texts as code points, end to end, and where each begins and ends."""
    bounds = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=bounds[1:])
    return scan.code_points("".join(texts)), bounds


class _Table(NamedTuple):
    """A hash table of forms, as `form_kernels.number_words` reads it."""

    shorts: np.ndarray
    slots: np.ndarray
    arena: np.ndarray


class _Forms:
    """The distinct surface forms of words met so far, and the terms each becomes.

    The scanning kernel numbers words by form; only forms that are new go through the analyzer's filters, in
    one batch. English text has about one new form in a hundred words, soon far fewer.

    Several threads may number words at a time. They read the table while one of them, which holds the lock, adds forms
    to it. Who does not see a form yet takes it for a new one, and finds out under the lock.
    """

    def __init__(self, analyzer: TermAnalyzer, lexicon: Lexicon) -> None:
        segmenter = analyzer.tokenizer.segmenter
        assert segmenter is not None
        self._analyzer = analyzer
        self._lexicon = lexicon
        self._segmenter = segmenter
        self._lock = threading.Lock()
        self._table = _Table(
            np.zeros((1 << 15, 2), np.uint64), np.zeros(1 << 15, np.uint64), np.zeros(1 << 18, np.uint32)
        )
        self._shorts = 0  # forms with a key
        self._used = 1  # of the arena; no form has the place 0
        self._count = 0
        self._pieces = np.zeros(1 << 15, np.int32)
        self._piece_ends = np.zeros((1 << 15) + 1, np.int64)
        self._most = 0

    def number(self, codes: np.ndarray, bounds: np.ndarray) -> scan.NumberedWords:
        """The words of texts by their forms, whose terms are known then."""
        words, ends = np.empty(codes.size, np.int32), np.empty(bounds.size - 1, np.int64)
        state = np.zeros(4, np.int64)
        slots, tags, places = (
            np.zeros(1 << 12, np.int32),
            np.zeros(1 << 11, np.uint32),
            np.zeros((1 << 11, 2), np.int64),
        )
        s, a, table = self._segmenter, self._segmenter.automaton, self._table
        while not form_kernels.number_words(
            codes, bounds, s.plain, s.classes, a.transitions, a.accepting, s.longest, *table,
            slots, tags, places, state, words, ends,
        ):  # fmt: skip
            tags, places, slots = _doubled(tags), _doubled(places), np.zeros(2 * slots.size, np.int32)
            form_kernels.fill_new_slots(tags, int(state[form_kernels.NEW]), slots)
        count = int(state[form_kernels.NEW])
        with self._lock:
            new = self._added(codes, places[:count], tags[:count])
            pieces, piece_ends, most = self._pieces, self._piece_ends, self._most
        return scan.NumberedWords(words[: int(state[form_kernels.WORDS])], ends, new, pieces, piece_ends, most)

    def _added(self, codes: np.ndarray, places: np.ndarray, tags: np.ndarray) -> np.ndarray:
        """The numbers of forms at some places; those that are not known yet are added with their terms."""
        keys, numbers = np.empty(len(tags), np.uint64), np.empty(len(tags), np.int64)
        form_kernels.find_forms(codes, places, tags, *self._table, keys, numbers)
        chosen = np.flatnonzero(numbers < 0)
        if len(chosen):
            forms = _texts(codes, places[chosen])
            terms, counts = self._analyzer.terms_of_words(forms)
            self._add_pieces(np.fromiter(map(self._lexicon.number, terms), np.int32, len(terms)), counts)
            self._make_room(int(np.count_nonzero(keys[chosen])), len(chosen), sum(map(len, forms)))
            self._used = form_kernels.add_forms(
                codes, places, tags, keys, chosen, self._count, self._used, *self._table
            )
            numbers[chosen] = np.arange(self._count, self._count + len(chosen))
            self._count += len(chosen)
        return numbers

    def _add_pieces(self, numbers: np.ndarray, counts: Sequence[int]) -> None:
        """Store the terms of the next forms."""
        used, end = int(self._piece_ends[self._count]), self._count + len(counts)
        while self._pieces.size < used + numbers.size:
            self._pieces = _doubled(self._pieces)
        while self._piece_ends.size < end + 1:
            self._piece_ends = _doubled(self._piece_ends)
        self._pieces[used : used + numbers.size] = numbers
        self._piece_ends[self._count + 1 : end + 1] = used + np.cumsum(counts)
        self._most = max(self._most, *counts)

    def _make_room(self, short: int, forms: int, characters: int) -> None:
        """Have room for more forms, `short` of them with a key.

        Threads that read the tables go on with those they have. They do not see forms that are added to the new arena,
        since they have the old slots, too.
        """
        shorts, slots, arena = self._table
        self._shorts += short
        if 2 * self._shorts > len(shorts):
            shorts = np.zeros((_size_for(self._shorts), 2), np.uint64)
            form_kernels.fill_shorts(self._table.shorts, shorts)
        others, needed = self._count + forms - self._shorts, self._used + characters + 2 * forms
        if 2 * others > len(slots) or needed > len(arena):
            while needed > len(arena):
                arena = _doubled(arena)
            slots = np.zeros(max(_size_for(others), len(slots)), np.uint64)
            form_kernels.fill_slots(self._table.slots, slots)
        self._table = _Table(shorts, slots, arena)


def _size_for(forms: int) -> int:
    """The size of a hash table for so many forms, or half as many more."""
    return int(1 << (3 * forms).bit_length())


def _texts(codes: np.ndarray, places: np.ndarray) -> list[str]:
    """The texts at some places."""
    sizes = places[:, 1] - places[:, 0]
    ends = np.cumsum(sizes)
    rows = np.arange(ends[-1]) + np.repeat(places[:, 0] - (ends - sizes), sizes)
    text, cuts = codes[rows].tobytes().decode("utf-32-le", "surrogatepass"), [0, *ends.tolist()]
    return [text[a:b] for a, b in pairwise(cuts)]


def _doubled(array: np.ndarray) -> np.ndarray:
    out = np.zeros((2 * len(array), *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out
