"""Which of many words are at most one or two edits from a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vizsla import stopping
from vizsla.engine.stop_flag import must_stop
from vizsla.errors import StoppedError
from vizsla.kernels import njit

_BLOCK = 4096  # words between two looks at the stop flag


@dataclass(frozen=True, eq=False)
class WordList:
    """Many words as code points, end to end.

    >>> words = WordList.of(["dog", "dig", "god", "cat"])
    >>> words.within("dgo", 1).tolist(), words.within("dog", 2).tolist()
    ([True, False, False, False], [True, True, True, False])
    """

    codes: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, words: Sequence[str]) -> WordList:
        sizes = np.fromiter(map(len, words), np.int64, len(words))
        return cls(_code_points("".join(words)), np.append(0, np.cumsum(sizes)))

    def within(self, word: str, edits: int) -> np.ndarray:
        """Which words become the given one by at most `edits` insertions, deletions, substitutions or transpositions of
        neighbouring letters, each letter being edited at most once (optimal string alignment distance).
        """
        out, memory = np.zeros(len(self.starts) - 1, np.bool_), np.zeros((3, len(word) + 1), np.int64)
        if not _find_near(self.codes, self.starts, _code_points(word), edits, memory, out, stopping.flag()):
            raise StoppedError(stopping.current().reason)
        return out


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


@njit("const uint32[:], const int64[:], const uint32[:], int64, int64[:,:], bool[:], uint8[:]")
def _find_near(codes, starts, word, edits, memory, out, stop):
    """Mark the words that are near; False if stopped. `memory`: three rows, each longer by one than the word."""
    n = word.size
    before, above, row = memory[0], memory[1], memory[2]
    for w in range(out.size):
        if w % _BLOCK == 0 and must_stop(stop):
            return False
        a, m = starts[w], starts[w + 1] - starts[w]
        if abs(m - n) > edits:
            continue
        for j in range(n + 1):
            above[j] = j
        for i in range(1, m + 1):
            row[0] = i
            least = row[0]
            for j in range(1, n + 1):
                cost = above[j - 1] + (codes[a + i - 1] != word[j - 1])
                cost = min(cost, above[j] + 1, row[j - 1] + 1)
                if i > 1 and j > 1 and codes[a + i - 1] == word[j - 2] and codes[a + i - 2] == word[j - 1]:
                    cost = min(cost, before[j - 2] + 1)
                row[j] = cost
                least = min(least, cost)
            before, above, row = above, row, before
            if least > edits:
                break
        out[w] = above[n] <= edits
    return True
