"""What an analyzer does to words of ASCII characters, by one kernel: most words of most texts, without the GIL.

Each step of an analyzer that a kernel can do for such words is a `PlainStep`. A word with any other character is left
to the analyzer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from vizsla.kernels import njit
from vizsla.text.porter import stem_word

LOWER, POSSESSIVE, STOP, PORTER = range(4)
LEFT, _DROPPED = -1, -2
"""In place of the size of a term: its form is left to the analyzer, or dropped."""


class PlainStep(NamedTuple):
    """A step, one of the kinds above, and for `STOP` the words that it drops."""

    kind: int
    words: Collection[str] = ()


class PlainTerms(NamedTuple):
    """The terms of some forms: the letters of those that the kernel has changed, end to end, and their sizes."""

    letters: np.ndarray
    sizes: np.ndarray
    """[forms] in 64 bits: how many letters the term of each form has; `LEFT` where there is none."""


class PlainSteps:
    """All steps of an analyzer, for kernels.

    >>> steps = PlainSteps([PlainStep(LOWER), PlainStep(STOP, ["the"]), PlainStep(PORTER)])
    >>> codes = np.frombuffer("TheDogséa".encode("utf-32-le"), np.uint32)
    >>> letters, sizes = steps.change(codes, np.array([[0, 3], [3, 7], [7, 9]]))
    >>> letters.tobytes(), sizes.tolist()
    (b'dog', [-2, 3, -1])
    """

    def __init__(self, steps: Sequence[PlainStep]) -> None:
        self._kinds = np.array([step.kind for step in steps], np.int64)
        chosen = [sorted(word.encode() for word in step.words if word.isascii()) for step in steps]
        sizes = [len(word) for words in chosen for word in words]
        self._words = np.frombuffer(b"".join(word for words in chosen for word in words), np.uint8)
        self._bounds = np.append(0, np.cumsum(sizes)).astype(np.int64)
        self._firsts = np.append(0, np.cumsum([len(words) for words in chosen])).astype(np.int64)

    def change(self, codes: np.ndarray, places: np.ndarray) -> PlainTerms:
        """The terms of the forms at some places of code points."""
        sizes = places[:, 1] - places[:, 0]
        out, word = np.empty(int(sizes.sum()), np.uint8), np.empty(int(sizes.max(initial=0)) + 2, np.uint16)
        new_sizes = np.empty(len(places), np.int64)
        used = _change(
            codes, places, self._kinds, self._words, self._bounds, self._firsts, word, out, new_sizes
        )  # fmt: skip
        return PlainTerms(out[:used], new_sizes)


@njit
def _is_stop_word(word, n, words, bounds, first, end):
    for i in range(first, end):
        if bounds[i + 1] - bounds[i] == n:
            at = 0
            while at < n and word[at] == words[bounds[i] + at]:
                at += 1
            if at == n:
                return True
    return False


@njit(
    "const uint32[:], const int64[:,:], const int64[:], const uint8[:], const int64[:], const int64[:], "
    "uint16[:], uint8[:], int64[:]"
)
def _change(codes, places, kinds, words, bounds, firsts, word, out, sizes):
    """Write the terms of forms to `out` and their sizes to `sizes`; returns how many letters they have."""
    used = 0
    for i in range(sizes.size):
        n = places[i, 1] - places[i, 0]
        is_plain = True
        for x in range(n):
            c = codes[places[i, 0] + x]
            word[x] = c
            is_plain &= c < 128
        if not is_plain:
            sizes[i] = LEFT
            continue
        for step in range(kinds.size):
            if kinds[step] == LOWER:
                for x in range(n):
                    if 65 <= word[x] <= 90:
                        word[x] += 32
            elif kinds[step] == POSSESSIVE:
                if n >= 2 and (word[n - 1] == 115 or word[n - 1] == 83) and word[n - 2] == 39:
                    n -= 2
            elif kinds[step] == STOP:
                if _is_stop_word(word, n, words, bounds, firsts[step], firsts[step + 1]):
                    n = np.int64(_DROPPED)
                    break
            else:
                n = np.int64(stem_word(word, n))
        for x in range(n):
            out[used + x] = word[x]
        used += max(n, 0)
        sizes[i] = n
    return used
