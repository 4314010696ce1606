"""The scanning kernels: text as code points in, words out, a few nanoseconds a character.

`find_words` gives the places of the words of one text, for offsets. Words that `lexicon.py` has numbered become
terms here, and terms are counted.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

import numpy as np

from vizsla.kernels import njit, njit_inlined
from vizsla.text.words import Segmenter

for _encoding in ("utf-16-le", "utf-32-le"):  # now: a fork during a later import would hang the child
    codecs.lookup(_encoding)


def code_points(text: str) -> np.ndarray:
    """A text as an array of code points; a lone surrogate stays what it is."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


@njit
def next_word(codes, at, end, classes, transitions, accepting, longest):
    """The first word at or after `at`, as (start, end); (end, end) without a word."""
    while at < end:
        state = transitions[1, classes[codes[at]]]
        match = at
        x = at
        units = 0
        while state != 0:
            units += 2 if codes[x] > 0xFFFF else 1
            if units > longest:
                break
            x += 1
            if accepting[state]:
                match = x
            if x == end:
                break
            state = transitions[state, classes[codes[x]]]
        if match > at:
            return at, match
        at += 1
    return end, end


@njit("const uint32[:], const uint8[:], const uint8[:,:], const bool[:], int64, int64[:,:]")
def _find_words(codes, classes, transitions, accepting, longest, places):
    """Put the places of all words into `places`; returns how many there are."""
    count = 0
    at, end = next_word(codes, 0, codes.size, classes, transitions, accepting, longest)
    while at < end:
        places[count, 0] = at
        places[count, 1] = end
        count += 1
        at, end = next_word(codes, end, codes.size, classes, transitions, accepting, longest)
    return count


def find_words(text: str, segmenter: Segmenter) -> list[list[int]]:
    """The places of the words of a text, as [start, end] in characters.

    >>> from vizsla.text.words import standard
    >>> find_words("Don't panic!", standard())
    [[0, 5], [6, 11]]
    """
    a, codes = segmenter.automaton, code_points(text)
    places = np.empty((codes.size, 2), np.int64)
    count = _find_words(codes, segmenter.classes, a.transitions, a.accepting, segmenter.longest, places)
    return places[:count].tolist()  # type: ignore[no-any-return]


@njit("const int32[:], const int64[:], const int64[:], bool")
def _count_terms(words, numbers, piece_ends, keep_dropped):
    """How many terms the forms of words have; a form without terms counts as one with `keep_dropped`."""
    total = 0
    for x in range(words.size):
        f = np.int64(words[x])
        if f < 0:
            f = np.int64(numbers[-1 - f])
        count = piece_ends[f + 1] - piece_ends[f]
        total += max(count, 1) if keep_dropped else count
    return total


@njit("const int32[:], const int64[:], const int64[:], const int32[:], const int64[:], bool, int32[:], int64[:]")
def _replace_forms(words, numbers, ends, pieces, piece_ends, keep_dropped, out, out_ends):
    n = 0
    at = 0
    for i in range(ends.size):
        while at < ends[i]:
            f = np.int64(words[at])
            if f < 0:
                f = np.int64(numbers[-1 - f])
            if keep_dropped and piece_ends[f] == piece_ends[f + 1]:
                out[n] = -1
                n += 1
            for x in range(piece_ends[f], piece_ends[f + 1]):
                out[n] = pieces[x]
                n += 1
            at += 1
        out_ends[i] = n


@dataclass(frozen=True, eq=False)
class NumberedWords:
    """The words of texts by the numbers of their forms, and the terms of all forms."""

    words: np.ndarray
    """A negative number is the place of a new form in `new_forms`, counted from -1 down."""
    ends: np.ndarray
    """Where the words of each text end."""
    new_forms: np.ndarray
    pieces: np.ndarray
    piece_ends: np.ndarray
    most: int
    """The most terms that a form has."""

    def terms(self, *, keep_dropped: bool) -> tuple[np.ndarray, np.ndarray]:
        """Every form replaced by its terms, which may be 0, 1 or several, and where each text's end.

        With `keep_dropped`, a form without terms becomes -1, so that the positions of the others do not change.
        """
        out_ends = np.empty(self.ends.size, np.int64)
        size = _count_terms(self.words, self.new_forms, self.piece_ends, keep_dropped)
        out = np.empty(size, np.int32)
        _replace_forms(self.words, self.new_forms, self.ends, self.pieces, self.piece_ends, keep_dropped, out, out_ends)
        return out, out_ends

    def counts(self, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How often each term occurs in each text, as `count_numbers` gives it; all terms are below `size`."""
        most = self.words.size
        if self.most > 1:
            most = _count_terms(self.words, self.new_forms, self.piece_ends, False)
        pointers = np.zeros(self.ends.size + 1, np.int64)
        indices, counts = np.empty((2, most), np.int32)
        used = _count_forms(
            self.words, self.new_forms, self.ends, self.pieces, self.piece_ends, np.full(size, -1, np.int32),
            pointers, indices, counts,
        )  # fmt: skip
        return pointers, indices[:used].copy(), counts[:used].copy()


@njit_inlined
def _count_term(n, row, used, place, indices, counts):
    """Count the term n in the row that starts at `row`; returns where the row ends now."""
    p = place[n]
    if p >= row:
        counts[p] += 1
        return used
    place[n] = used
    indices[used] = n
    counts[used] = 1
    return used + 1


@njit(
    "const int32[:], const int64[:], const int64[:], const int32[:], const int64[:], int32[:], int64[:], int32[:], "
    "int32[:]"
)
def _count_forms(words, numbers, ends, pieces, piece_ends, place, pointers, indices, counts):
    """`_replace_forms` and `_count_numbers` in one."""
    used = 0
    at = 0
    for i in range(ends.size):
        row = used
        while at < ends[i]:
            f = np.int64(words[at])
            if f < 0:
                f = np.int64(numbers[-1 - f])
            for x in range(piece_ends[f], piece_ends[f + 1]):
                used = _count_term(pieces[x], row, used, place, indices, counts)
            at += 1
        pointers[i + 1] = used
    return used


@njit("const int32[:], const int64[:], int64[:], int64[:], int32[:], int32[:]")
def _count_numbers(numbers, ends, place, pointers, indices, counts):
    used = 0
    at = 0
    for i in range(ends.size):
        row = used
        while at < ends[i]:
            used = _count_term(numbers[at], row, used, place, indices, counts)
            at += 1
        pointers[i + 1] = used
    return used


def count_numbers(numbers: np.ndarray, ends: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How often each number below `size` occurs in each text: CSR rows in order of first occurrence.

    >>> pointers, indices, counts = count_numbers(np.array([3, 0, 3], np.int32), np.array([2, 3]), 4)
    >>> pointers.tolist(), indices.tolist(), counts.tolist()
    ([0, 2, 3], [3, 0, 3], [1, 1, 1])
    """
    pointers = np.zeros(ends.size + 1, np.int64)
    indices, counts = np.empty((2, numbers.size), np.int32)
    used = _count_numbers(numbers, ends, np.full(size, -1, np.int64), pointers, indices, counts)
    return pointers, indices[:used].copy(), counts[:used].copy()


@njit("uint32[:], int32[:], int64, int64[:]")
def number_in_order(indices, numbers, first, new):
    """Number terms in the order of `indices`, which change in place; puts the new ones into `new`, counts them."""
    count = 0
    for x in range(indices.size):
        term = indices[x]
        number = np.int64(numbers[term])
        if number < 0:
            number = first + count
            numbers[term] = number
            new[count] = term
            count += 1
        indices[x] = number
    return count
