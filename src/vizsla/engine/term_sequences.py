"""The terms of documents in the order of the text, and phrases found in them.

A document is a row of term numbers. Its fields follow one another with a BREAK in between, so the number of breaks
before a term tells its field. A word that the analyzer drops keeps its place as a HOLE: `state of the art` is a phrase
of two terms, three places apart, as in Lucene.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vizsla import stopping
from vizsla.engine.arrays import DamagedSegmentError, freeze
from vizsla.engine.stop_flag import failure, must_stop
from vizsla.kernels import njit
from vizsla.lazy import cached_property

BREAK, HOLE = (1 << 32) - 1, (1 << 32) - 2
ANY_FIELD = -1


@dataclass(frozen=True, eq=False)
class TermSequences:
    """The rows of documents 0 .. n - 1, concatenated."""

    numbers: np.ndarray
    """uint32: term numbers, BREAK between two fields, HOLE for a word without a term."""
    starts: np.ndarray
    """[n + 1] int64: where the row of each document begins."""

    def __post_init__(self) -> None:
        freeze(self)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def nbytes(self) -> int:
        return self.numbers.nbytes + self.starts.nbytes

    def fits(self, documents: int) -> bool:
        """Whether the arrays are consistent, judging only by their shapes and ends."""
        return (
            self.starts.shape == (documents + 1,)
            and self.numbers.ndim == 1
            and int(self.starts[0]) == 0
            and int(self.starts[-1]) == len(self.numbers)
        )

    @classmethod
    def join(cls, numbers: np.ndarray, ends: np.ndarray, fields: int) -> TermSequences:
        """Rows from the terms of texts, `fields` texts a document; a negative number is a HOLE.

        >>> rows = TermSequences.join(np.array([4, -1, 5, 6]), np.array([3, 4, 4, 4]), 2)
        >>> [n if n < HOLE else ("hole", "break")[n == BREAK] for n in rows.numbers.tolist()], rows.starts.tolist()
        ([4, 'hole', 5, 'break', 6, 'break'], [0, 5, 6])
        """
        texts = len(ends)
        documents = texts // fields
        breaks = np.arange(texts) - np.arange(texts) // fields  # before each text
        sizes = np.diff(ends, prepend=0)
        out = np.full(len(numbers) + documents * (fields - 1), BREAK, np.uint32)
        places = np.arange(len(numbers)) + np.repeat(breaks, sizes)
        out[places] = np.where(numbers < 0, HOLE, numbers).astype(np.uint32)
        last = ends[fields - 1 :: fields] + (fields - 1) * np.arange(1, documents + 1)
        return cls(out, np.append(0, last).astype(np.int64))

    def select(self, first: int, last: int, mask: np.ndarray) -> np.ndarray:
        """The rows of some documents from `first` to `last`, end to end."""
        starts = self._bounds(first, last)
        rows: np.ndarray = self.numbers[starts[0] : starts[-1]][np.repeat(mask, np.diff(starts))]
        return rows

    def sizes(self) -> np.ndarray:
        """How long the row of each document is."""
        return np.diff(self._bounds(0, len(self)))

    def _bounds(self, first: int, last: int) -> np.ndarray:
        starts = np.asarray(self.starts[first : last + 1], np.int64)
        if starts[0] < 0 or starts[-1] > len(self.numbers) or (np.diff(starts) < 0).any():
            raise DamagedSegmentError
        return starts


@dataclass(frozen=True, eq=False)
class PhrasePattern:
    """Terms and their places relative to the first, ascending."""

    terms: np.ndarray
    offsets: np.ndarray
    slop: int = 0
    """The slop: by how many positions in total the terms may be moved, as Lucene counts it."""
    field: int = ANY_FIELD

    @cached_property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, int]:
        """As the kernels read it: with the place in the pattern of the equal term before each term, or -1."""
        last: dict[int, int] = {}
        previous = np.full(len(self.terms), -1, np.int64)
        for place, term in enumerate(self.terms.tolist()):
            previous[place] = last.get(term, -1)
            last[term] = place
        return self.terms, self.offsets, previous, self.slop, self.field

    @classmethod
    def of(
        cls, terms: Sequence[int] | np.ndarray, offsets: Sequence[int], slop: int = 0, field: int = ANY_FIELD
    ) -> PhrasePattern:
        return cls(np.array(terms, np.uint32), np.array(offsets, np.int64), slop, field)


def rows_with_phrase(sequences: TermSequences, rows: np.ndarray, pattern: PhrasePattern) -> np.ndarray:
    """Which of some documents have the terms of a pattern in one field, each in its place.

    A document has them with slop s if there are places p of the terms, no place twice, such that p minus the term's
    own place in the pattern differs by at most s between any two terms.

    >>> rows = TermSequences.join(np.array([1, 2, 3, 2, 1]), np.array([3, 5]), 1)
    >>> rows_with_phrase(rows, np.arange(2), PhrasePattern.of([1, 2], [0, 1])).tolist()
    [True, False]
    >>> rows_with_phrase(rows, np.arange(2), PhrasePattern.of([1, 2], [0, 1], slop=2)).tolist()
    [True, True]
    """
    out, places = np.zeros(len(rows), np.bool_), np.empty(len(pattern.terms), np.int64)
    wanted = np.ascontiguousarray(rows, np.int64)
    if not _find_phrases(sequences.numbers, sequences.starts, wanted, *pattern.arrays, places, out, stopping.flag()):
        raise failure()
    return out


@njit
def _follow(numbers, a, z, terms, offsets):
    """Whether the terms stand in their places somewhere in a .. z - 1, all in one field.

    The first two are looked for in one loop without branches, which the processor does for several places at once.
    """
    count = np.uint64(terms.size)
    width = offsets[count - np.uint64(1)]
    if z - width <= a:
        return False
    first, second, gap = terms[0], terms[0], np.uint64(0)
    if count > np.uint64(1):
        second, gap = terms[1], np.uint64(offsets[1])
    hits = False
    for p in range(np.uint64(a), np.uint64(z - width)):  # whole numbers without a sign, or numba adds branches
        hits |= (numbers[p] == first) & (numbers[p + gap] == second)
    if not hits:
        return False
    is_dense = width == terms.size - 1
    for p in range(np.uint64(a), np.uint64(z - width)):
        if numbers[p] != first or numbers[p + gap] != second:
            continue
        j = np.uint64(2)
        while j < count and numbers[p + np.uint64(offsets[j])] == terms[j]:
            j += np.uint64(1)
        if j < count:
            continue
        gaps = np.uint64(0 if is_dense else width)  # where a break could stand
        q = np.uint64(0)
        while q < gaps and numbers[p + q] != BREAK:
            q += np.uint64(1)
        if q == gaps:
            return True
    return False


@njit
def _are_near(numbers, a, z, terms, offsets, previous, slop, found, stop):
    """Whether the terms stand near their places somewhere in a .. z - 1; equal terms take places from left to right.

    Each term gets its first position at or after `base` plus its offset in the pattern. If the last of these positions
    is too far away, the base must be at least that position minus the slop, so base and positions only move to the
    right: the time is linear in the length of the text, per term. `found`: scratch for the position of each term.
    """
    count = terms.size
    base = a - offsets[count - 1]
    for j in range(count):
        found[j] = a
    while not must_stop(stop):
        farthest = base
        for j in range(count):
            p = max(found[j], base + offsets[j])
            if previous[j] >= 0:
                p = max(p, found[previous[j]] + 1)
            while p < z and numbers[p] != terms[j]:
                p += 1
            if p >= z:
                return False
            found[j] = p
            farthest = max(farthest, p - offsets[j])
        if farthest - base <= slop:
            return True
        base = farthest - slop
    return False


@njit
def row_has_phrase(numbers, starts, row, terms, offsets, previous, slop, field, places, stop):
    """1 if a row has a phrase, 0 if it has not, -1 if the arrays are damaged. `places`: memory for each term."""
    if row < 0 or row + 1 >= starts.size:
        return -1
    a, z = starts[row], starts[row + 1]
    if not 0 <= a <= z <= numbers.size:
        return -1
    if field == ANY_FIELD and slop == 0:
        return 1 if _follow(numbers, a, z, terms, offsets) else 0
    number = 0
    while a <= z:
        end = a
        while end < z and numbers[end] != BREAK:
            end += 1
        if field in (ANY_FIELD, number):
            if slop == 0 and _follow(numbers, a, end, terms, offsets):
                return 1
            if slop and _are_near(numbers, a, end, terms, offsets, previous, slop, places, stop):
                return 1
        number += 1
        a = end + 1
    return 0


@njit(
    "const uint32[:], const int64[:], const int64[:], const uint32[:], const int64[:], const int64[:], int64, int64, "
    "int64[:], bool[:], uint8[:]"
)
def _find_phrases(numbers, starts, rows, terms, offsets, previous, slop, field, places, out, stop):
    """Mark the rows that have a phrase; False if the arrays are damaged, or if stopped."""
    for x in range(rows.size):
        found = row_has_phrase(numbers, starts, rows[x], terms, offsets, previous, slop, field, places, stop)
        if found < 0 or must_stop(stop):
            return False
        out[x] = found == 1
    return True
