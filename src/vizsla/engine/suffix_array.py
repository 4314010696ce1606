"""Token sequences of documents and their suffix array: where an n-gram occurs, how often, and which tokens follow it.

A document is a row of numbers: `TITLE` before a title, tokens from `FIRST` on, and `BREAK` at the end of each field. So
an n-gram never spans two fields, and a whole title is the n-gram of `TITLE`, its tokens and `BREAK`.

A suffix array lists all places of a collection, sorted by the tokens that follow (Manber and Myers, 1990): the
occurrences of an n-gram are neighbours, which binary search finds. Here places are sorted by at most `LONGEST` tokens,
up to the next break; equal ones stay in the order of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from vizsla import stopping
from vizsla.engine.arrays import DamagedSegmentError, freeze
from vizsla.engine.stop_flag import failure, must_stop
from vizsla.engine.threads import processors
from vizsla.kernels import njit
from vizsla.lazy import cached_property

BREAK, TITLE, FIRST = 0, 1, 2
LONGEST = 64
"""The longest n-gram that can be looked up."""
MAX_TOKENS = (1 << 32) - 1
"""Places are stored in four bytes."""
TOKEN_TYPES = ("uint16", "uint32")
GUIDE_BITS = 8
_BY_PLACE = -1  # in place of a depth: what follows is equal, so the places themselves are compared
_FEW = 12  # so many places are sorted by insertion
_STACK = 3 * 256  # ranges that wait to be sorted: at most two for each halving
_CHUNK = 1 << 18  # places that a thread sorts at once, unless more begin with the same token


class Occurrences(NamedTuple):
    """A range of a suffix array: the places at which an n-gram of `length` tokens occurs."""

    first: int
    end: int
    length: int


@dataclass(frozen=True, eq=False)
class SuffixArray:
    """The tokens of documents 0 .. n - 1, and the order of their places.

    >>> rows = SuffixArray.of([[TITLE, 7, BREAK, 5, 6, 5, 6, BREAK], [5, 6, 9, BREAK]]).built()
    >>> rows.count(rows.find([5, 6])), rows.documents(rows.find([5, 6])).tolist()
    (3, [0, 1])
    >>> rows.count(rows.find([TITLE, 7, BREAK])), rows.count(rows.find([6, 7]))
    (1, 0)
    """

    tokens: np.ndarray
    """uint16, or uint32 for a large vocabulary: the rows of all documents, end to end."""
    starts: np.ndarray
    """[n + 1] int64: where the row of each document begins."""
    suffixes: np.ndarray | None = None
    """uint32: all places, sorted by the tokens that follow; None if they have not been sorted yet."""

    def __post_init__(self) -> None:
        freeze(self)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def of(cls, rows: Sequence[Sequence[int] | np.ndarray], vocabulary: int = 0) -> SuffixArray:
        """From the row of each document; `vocabulary`: how many numbers there may be, by default as many as needed."""
        numbers = np.concatenate([np.zeros(0, np.int64), *(np.asarray(row, np.int64) for row in rows)])
        size = max(vocabulary, int(numbers.max(initial=0)) + 1)
        return cls(numbers.astype(token_type(size)), np.cumsum([0, *map(len, rows)]).astype(np.int64))

    def built(self, threads: int | None = None) -> SuffixArray:
        """The same rows with their suffix array."""
        return replace(self, suffixes=sort_suffixes(self.tokens, threads))

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.tokens, self.starts, self.suffixes) if array is not None)

    def fits(self, documents: int) -> bool:
        """Whether the arrays are consistent, judging only by their shapes and ends."""
        return (
            self.starts.shape == (documents + 1,)
            and self.tokens.ndim == 1
            and int(self.starts[0]) == 0
            and int(self.starts[-1]) == len(self.tokens)
            and (self.suffixes is None or self.suffixes.shape == self.tokens.shape)
        )

    def sizes(self) -> np.ndarray:
        """How long the row of each document is."""
        return np.diff(self._bounds(0, len(self)))

    def select(self, first: int, last: int, mask: np.ndarray) -> np.ndarray:
        """The rows of some documents from `first` to `last`, end to end."""
        starts = self._bounds(first, last)
        rows: np.ndarray = self.tokens[starts[0] : starts[-1]][np.repeat(mask, np.diff(starts))]
        return rows

    def _bounds(self, first: int, last: int) -> np.ndarray:
        starts = np.asarray(self.starts[first : last + 1], np.int64)
        if starts[0] < 0 or starts[-1] > len(self.tokens) or (np.diff(starts) < 0).any():
            raise DamagedSegmentError
        return starts

    @cached_property
    def guides(self) -> np.ndarray:
        """The documents of some places, which `row_of` begins with."""
        places = np.append(np.arange(0, len(self.tokens), 1 << GUIDE_BITS), max(len(self.tokens) - 1, 0))
        guides = np.searchsorted(self._bounds(0, len(self)), places, side="right") - 1
        return guides.astype(np.int64)

    @property
    def order(self) -> np.ndarray:
        """The sorted places."""
        if self.suffixes is None:
            raise DamagedSegmentError
        return self.suffixes

    @property
    def all(self) -> Occurrences:
        """The n-gram of no tokens, which is everywhere."""
        return Occurrences(0, len(self.tokens), 0)

    def find(self, ngram: Sequence[int] | np.ndarray, within: Occurrences | None = None) -> Occurrences:
        """The occurrences of an n-gram, or of one that continues another by these tokens."""
        first, end, length = within or self.all
        if length + len(ngram) > LONGEST:
            raise ValueError(f"an n-gram has at most {LONGEST} tokens")
        bounds = np.array([first, end], np.int64)
        if not _narrow(self.tokens, self.order, np.array(ngram, np.int64), length, bounds):
            raise DamagedSegmentError
        return Occurrences(int(bounds[0]), int(bounds[1]), length + len(ngram))

    def count(self, found: Occurrences, dead: np.ndarray | None = None) -> int:
        """How often an n-gram occurs; `dead`: the ranks of places in deleted documents, which do not count."""
        total = found.end - found.first
        return total if dead is None else total - int(np.diff(np.searchsorted(dead, [found.first, found.end]))[0])

    def mark_next(self, found: Occurrences, allowed: np.ndarray, dead: np.ndarray | None = None) -> None:
        """Mark the tokens that follow an n-gram somewhere, in an array of bools by token."""
        if found.length >= LONGEST:
            return
        gone, stack = _NONE if dead is None else dead, np.empty((_STACK, 2), np.int64)
        if not _mark_next(self.tokens, self.order, gone, *found, allowed, stack):
            raise DamagedSegmentError

    def documents(self, found: Occurrences, alive: np.ndarray | None = None) -> np.ndarray:
        """The documents that have an n-gram, ascending."""
        hits = np.zeros(len(self), np.bool_)
        self.mark_documents(found, hits)
        return np.flatnonzero(hits if alive is None else hits & alive)

    def mark_documents(self, found: Occurrences, hits: np.ndarray) -> None:
        """Mark the documents that have an n-gram."""
        if not _mark_documents(self.starts, self.guides, self.order, found.first, found.end, hits, stopping.flag()):
            raise failure()

    def ranks_of(self, documents: np.ndarray) -> np.ndarray:
        """The ranks in the suffix array of all places of some documents, ascending."""
        sizes = self.sizes()[documents]
        firsts = np.repeat(self.starts[:-1][documents] - np.cumsum(sizes) + sizes, sizes)
        places = (firsts + np.arange(int(sizes.sum()))).astype(np.int64)
        ranks = np.empty(len(places), np.int64)
        if not _find_ranks(self.tokens, self.order, places, ranks, stopping.flag()):
            raise failure()
        return np.sort(ranks)

    def is_sound(self) -> bool:
        """Whether every place is listed once and in its order, and every row ends with a break."""
        places = np.bincount(self.order, minlength=len(self.tokens)) if len(self.tokens) else np.zeros(0, np.int64)
        if len(places) != len(self.tokens) or (places != 1).any() or (np.diff(self.starts) < 0).any():
            return False
        ends = self.starts[1:][np.diff(self.starts) > 0] - 1
        return bool((self.tokens[ends] == BREAK).all() and _is_sorted(self.tokens, self.order))


_NONE = np.zeros(0, np.int64)


def token_type(vocabulary: int) -> np.dtype:
    """The type of tokens with numbers below `vocabulary`."""
    return np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)


def sort_suffixes(tokens: np.ndarray, threads: int | None = None) -> np.ndarray:
    """All places, sorted by the tokens that follow; the last token must be a break.

    Places are counted into buckets by their first token, and each bucket is sorted by three-way quicksort, one token at
    a time (Bentley and Sedgewick, 1997), in place and without other memory.

    >>> sort_suffixes(np.array([3, 2, 3, 0], np.uint16)).tolist()
    [3, 1, 2, 0]
    """
    if len(tokens) > MAX_TOKENS:
        raise ValueError(f"a segment has at most {MAX_TOKENS:,} tokens")
    suffixes = np.empty(len(tokens), np.uint32)
    if not len(tokens):
        return suffixes
    if tokens[-1] != BREAK:
        raise DamagedSegmentError
    ends = np.zeros(int(tokens.max()) + 2, np.int64)
    _count_tokens(tokens, ends)
    bounds = np.cumsum(ends)
    _fill_buckets(tokens, bounds[:-1].copy(), suffixes)
    chunks = list(_chunks(bounds))

    def work(chunk: tuple[int, int]) -> None:
        stack = np.empty((_STACK, 3), np.int64)
        if not _sort_buckets(tokens, suffixes, bounds, *chunk, stack, stopping.flag()):
            raise failure()

    if (threads or processors()) == 1 or len(chunks) == 1:
        for chunk in chunks:
            work(chunk)
    else:
        with ThreadPoolExecutor(threads or processors()) as pool:
            list(pool.map(stopping.carried(work), chunks))
    return suffixes


def _chunks(bounds: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of buckets that hold about so many places each, the largest first."""
    ranges, first = [], BREAK + 1  # what begins with a break is in order
    while first < len(bounds) - 1:
        end = int(np.searchsorted(bounds, bounds[first] + _CHUNK, side="right")) - 1
        end = min(max(end, first + 1), len(bounds) - 1)
        ranges.append((first, end))
        first = end
    return sorted(ranges, key=lambda r: bounds[r[0]] - bounds[r[1]])


_TOKENS = [f"const {kind}[:]" for kind in TOKEN_TYPES]


@njit(*(f"{tokens}, int64[:]" for tokens in _TOKENS))
def _count_tokens(tokens, ends):
    """Count how often each token occurs, one place to the right of its number."""
    for x in range(tokens.size):
        ends[np.int64(tokens[x]) + 1] += 1


@njit(*(f"{tokens}, int64[:], uint32[:]" for tokens in _TOKENS))
def _fill_buckets(tokens, free, suffixes):
    """Put each place into the bucket of its token, in the order of the text."""
    for x in range(tokens.size):
        suffixes[free[tokens[x]]] = x
        free[tokens[x]] += 1


@njit
def _key(tokens, place, depth):
    """What places are compared by: the token at a depth, or the place itself."""
    return np.int64(place) if depth == _BY_PLACE else np.int64(tokens[np.int64(place) + depth])


@njit
def _precedes(tokens, one, other, depth):
    """Whether a place is before another, if the first `depth` tokens are equal."""
    room = tokens.size - max(one, other)
    while depth < min(LONGEST, room) and depth != _BY_PLACE:
        x, y = tokens[one + depth], tokens[other + depth]
        if x != y:
            return x < y
        if x == BREAK:
            break
        depth += 1
    return one < other


@njit
def _insert(tokens, suffixes, a, z, depth):
    """Sort a few places by insertion."""
    for x in range(a + 1, z):
        place = np.int64(suffixes[x])
        y = x
        while y > a and _precedes(tokens, place, np.int64(suffixes[y - 1]), depth):
            suffixes[y] = suffixes[y - 1]
            y -= 1
        suffixes[y] = place


@njit
def _sort(tokens, suffixes, first, end, stack, stop):
    """Sort places with the same first token; False if stopped.

    Of the three parts of a range the smallest is sorted next, so few ranges wait.
    """
    stack[0, 0], stack[0, 1], stack[0, 2] = first, end, 1
    waiting = 1
    random = np.uint64(first + 1)
    while waiting > 0:
        if must_stop(stop):
            return False
        waiting -= 1
        a, z, depth = stack[waiting, 0], stack[waiting, 1], stack[waiting, 2]
        if z - a <= _FEW:
            _insert(tokens, suffixes, a, z, depth)
            continue
        random = random * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        size = np.uint64(z - a)
        one = _key(tokens, suffixes[a + np.int64((random >> np.uint64(33)) % size)], depth)
        two = _key(tokens, suffixes[a + np.int64((random >> np.uint64(20)) % size)], depth)
        three = _key(tokens, suffixes[a + np.int64((random >> np.uint64(11)) % size)], depth)
        pivot = max(min(one, two), min(max(one, two), three))
        low, high, x = a, z, a
        while x < high:  # three parts: less than the pivot, equal, greater
            key = _key(tokens, suffixes[x], depth)
            if key < pivot:
                suffixes[low], suffixes[x] = suffixes[x], suffixes[low]
                low += 1
                x += 1
            elif key > pivot:
                high -= 1
                suffixes[high], suffixes[x] = suffixes[x], suffixes[high]
            else:
                x += 1
        deeper = depth
        if depth != _BY_PLACE:
            deeper = _BY_PLACE if pivot == BREAK or depth + 1 == LONGEST else depth + 1
        parts = ((a, low, depth), (low, high, deeper), (high, z, depth))
        sizes = (low - a, high - low, z - high)
        largest = 0 if sizes[0] >= sizes[1] and sizes[0] >= sizes[2] else 1 if sizes[1] >= sizes[2] else 2
        smallest = 2 if sizes[2] <= sizes[1] and sizes[2] <= sizes[0] else 1 if sizes[1] <= sizes[0] else 0
        if smallest == largest:  # all are equal
            smallest = (largest + 1) % 3
        for which in (largest, 3 - largest - smallest, smallest):
            part = parts[which]
            if part[1] - part[0] > 1:
                stack[waiting, 0], stack[waiting, 1], stack[waiting, 2] = part
                waiting += 1
    return True


@njit(*(f"{tokens}, uint32[:], const int64[:], int64, int64, int64[:,:], uint8[:]" for tokens in _TOKENS))
def _sort_buckets(tokens, suffixes, bounds, first, end, stack, stop):
    """Sort some of the buckets; False if stopped."""
    for bucket in range(first, end):
        if bounds[bucket + 1] - bounds[bucket] > 1 and not _sort(
            tokens, suffixes, bounds[bucket], bounds[bucket + 1], stack, stop
        ):
            return False
    return True


@njit
def _token_at(tokens, suffixes, rank, depth):
    """The token at a depth after the place with a rank; -1 if it is outside of the text."""
    at = np.int64(suffixes[rank]) + depth
    return np.int64(tokens[at]) if at < tokens.size else np.int64(-1)


@njit(*(f"{tokens}, const uint32[:], const int64[:], int64, int64[:]" for tokens in _TOKENS))
def _narrow(tokens, suffixes, ngram, depth, bounds):
    """Narrow a range of ranks to those followed by some tokens from a depth on; False for damage."""
    if not 0 <= bounds[0] <= bounds[1] <= suffixes.size:
        return False
    for i in range(ngram.size):
        wanted = ngram[i]
        for side in range(2):
            a, z = bounds[0], bounds[1]
            while a < z:
                middle = (a + z) >> 1
                token = _token_at(tokens, suffixes, middle, depth + i)
                if token < 0:
                    return False
                if token < wanted or (side == 1 and token == wanted):
                    a = middle + 1
                else:
                    z = middle
            bounds[side] = a
        if wanted == BREAK and i + 1 < ngram.size:  # nothing follows a break
            bounds[1] = bounds[0]
        if bounds[0] == bounds[1]:
            return True
    return True


@njit
def _first_at_least(sorted_numbers, number):
    a, z = np.int64(0), np.int64(sorted_numbers.size)
    while a < z:
        middle = (a + z) >> 1
        if sorted_numbers[middle] < number:
            a = middle + 1
        else:
            z = middle
    return a


@njit(*(f"{tokens}, const uint32[:], const int64[:], int64, int64, int64, bool[:], int64[:,:]" for tokens in _TOKENS))
def _mark_next(tokens, suffixes, dead, first, end, depth, allowed, stack):
    """Mark the tokens at a depth in a range of ranks, apart from dead ones; False for damage.

    The tokens ascend in the range, so a part that begins and ends with the same token has no other.
    """
    if not 0 <= first <= end <= suffixes.size:
        return False
    waiting = 0
    if first < end:
        stack[0, 0], stack[0, 1] = first, end
        waiting = 1
    while waiting > 0:
        waiting -= 1
        a, z = stack[waiting, 0], stack[waiting, 1]
        low, high = _token_at(tokens, suffixes, a, depth), _token_at(tokens, suffixes, z - 1, depth)
        if low < 0 or high >= allowed.size or low > high:
            return False
        if low != high:
            middle = (a + z) >> 1
            if waiting + 2 > stack.shape[0]:
                return False
            stack[waiting, 0], stack[waiting, 1] = middle, z
            stack[waiting + 1, 0], stack[waiting + 1, 1] = a, middle
            waiting += 2
        elif not allowed[low]:
            gone = _first_at_least(dead, z) - _first_at_least(dead, a) if dead.size else 0
            allowed[low] = gone < z - a
    return True


@njit
def row_of(starts, guides, place):
    """The document that a place belongs to; -1 if none does.

    `guides`: the document of each place that is a multiple of `1 << GUIDE_BITS`, and of the last one.
    """
    x = place >> GUIDE_BITS
    if x + 1 >= guides.size:
        return np.int64(-1)
    a, z = guides[x], guides[x + 1] + 1
    while a + 1 < z:
        middle = (a + z) >> 1
        if starts[middle] <= place:
            a = middle
        else:
            z = middle
    return a


@njit("const int64[:], const int64[:], const uint32[:], int64, int64, bool[:], uint8[:]")
def _mark_documents(starts, guides, suffixes, first, end, hits, stop):
    """Mark the documents of a range of ranks; False for damage, or if stopped."""
    if not 0 <= first <= end <= suffixes.size or hits.size != starts.size - 1:
        return False
    for rank in range(first, end):
        if (rank & 0xFFFF) == 0 and must_stop(stop):
            return False
        row = row_of(starts, guides, np.int64(suffixes[rank]))
        if not 0 <= row < hits.size:
            return False
        hits[row] = True
    return not must_stop(stop)


@njit(*(f"{tokens}, const uint32[:], const int64[:], int64[:], uint8[:]" for tokens in _TOKENS))
def _find_ranks(tokens, suffixes, places, ranks, stop):
    """The rank of each place; False for damage, or if stopped."""
    last = tokens.size - 1
    for x in range(places.size):
        if (x & 0xFF) == 0 and must_stop(stop):
            return False
        a, z = np.int64(0), np.int64(suffixes.size)
        while a < z:
            middle = (a + z) >> 1
            if suffixes[middle] > last:
                return False
            if _precedes(tokens, np.int64(suffixes[middle]), places[x], 0):
                a = middle + 1
            else:
                z = middle
        if a == suffixes.size or suffixes[a] != places[x]:
            return False
        ranks[x] = a
    return True


@njit(*(f"{tokens}, const uint32[:]" for tokens in _TOKENS))
def _is_sorted(tokens, suffixes):
    """Whether places are in order; all are in the text, and its last token is a break."""
    for rank in range(1, suffixes.size):
        if not _precedes(tokens, np.int64(suffixes[rank - 1]), np.int64(suffixes[rank]), 0):
            return False
    return True
