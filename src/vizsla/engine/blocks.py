"""Blocks of posting lists: what one term has in one document range.

A document range has 16,384 documents, so a posting needs 14 bits to name its document inside a range. In *small*
lists the other two bits hold the value, 1 to 4: nearly all counts of words are that small. *Large* lists hold any
value in an array beside the postings.

A block of a small list with 2,048 postings or more is a *bitmap*: two bits for each document of the range, in 2,048
words of 16 bits. The bits of a document are in the word (offset % 2048), from the bit 2 * (offset // 2048) on: 0 where
there is no posting, else the value, and 3 for both 3 and 4. After the words come the offsets of the documents with the
value 4, ascending. The bounds of eight or more documents are added at a time, and a single document is found without a
search. A bitmap has 2,048 words or more and other blocks have fewer, so the size of a block tells which kind it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from vizsla.kernels import data_of, intrinsic, njit

RANGE_BITS = 14
RANGE_SIZE = 1 << RANGE_BITS
OFFSET_MASK = RANGE_SIZE - 1
MAX_SMALL = 4
"""The largest value of a small list: it fits into the two bits that an offset leaves free."""
MANY = 2048
"""A block of a small list is a bitmap if it has at least this many postings."""
WORDS = RANGE_SIZE // 8
"""Words of a bitmap."""
LOOKUP = 40
"""How many postings can be read in order in the time that one binary search takes."""
_PLANES = 8  # documents of a word


VALUE_TYPES = ("uint8", "uint16", "uint32", "float32")
"""The types of the values of large lists."""


class Blocks(NamedTuple):
    """Blocks of lists of one kind: those that a query's terms have, with all postings."""

    ranges: np.ndarray
    """[r] uint16: the range of each block."""
    starts: np.ndarray
    """[r + 1] uint32: where each block's postings start; that of the next block is where they end."""
    postings: np.ndarray
    values: np.ndarray
    """The values of large lists as bytes, so that kernels are compiled once and not for each type; see `number_at`."""
    kind: int
    """Which of `VALUE_TYPES` they have."""


BLOCKS = "Blocks(const uint16[:], const uint32[:], const uint16[:], const uint8[:], int64)"
"""Its type for kernels."""


def _number_at() -> Callable[..., Any]:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types

    byte, word, wide = ir.IntType(8), ir.IntType(64), ir.DoubleType()
    kinds = [byte, ir.IntType(16), ir.IntType(32), ir.FloatType()]

    def number_at(typing_context, values, kind, at):  # noqa: ARG001 (numba requires these)
        def generate(context, builder, signature, arguments):
            data = data_of(context, builder, signature, arguments, 0)
            after = builder.append_basic_block("number")
            cases = [builder.append_basic_block(f"number_{x}") for x in range(len(kinds))]
            choice = builder.switch(arguments[1], cases[0])
            for x, case in enumerate(cases[1:], 1):
                choice.add_case(word(x), case)
            found = []
            for kind, case in zip(kinds, cases, strict=True):
                builder.position_at_end(case)
                number = builder.load(builder.gep(builder.bitcast(data, kind.as_pointer()), [arguments[2]]))
                real = kind is kinds[-1]
                found.append(builder.fpext(number, wide) if real else builder.uitofp(number, wide))
                builder.branch(after)
            builder.position_at_end(after)
            result = builder.phi(wide)
            for number, case in zip(found, cases, strict=True):
                result.add_incoming(number, case)
            return result

        return types.float64(values, types.int64, types.int64), generate

    return number_at


number_at: Any = intrinsic(_number_at)
"""`number_at(values, kind, x)`: the x-th number of an array that is given as bytes; `kind`: its place in
`VALUE_TYPES`."""


def _choosing() -> Callable[..., Any]:
    from numba import types

    def either(typing_context, condition, one, other):  # noqa: ARG001 (numba requires these)
        def generate(context, builder, signature, arguments):  # noqa: ARG001
            chosen = builder.select(*arguments)
            chosen.set_metadata("unpredictable", builder.module.add_metadata([]))
            return chosen

        return types.uint64(types.boolean, types.uint64, types.uint64), generate

    return either


_either: Any = intrinsic(_choosing, lambda condition, one, other: one if condition else other)
"""`_either(condition, one, other)`: `one` if the condition holds, else `other`. LLVM is told that the condition cannot
be predicted, so that it chooses without a branch."""


@njit
def is_bitmap(lists, a, z):
    """Whether the block postings[a:z] is a bitmap."""
    return z - a >= WORDS and lists.values.size == 0


@njit
def block_bounds(lists, r):
    """Where a block's postings start and end; the end comes before the start if it is damaged."""
    a, z = np.int64(lists.starts[r]), np.int64(lists.starts[r + 1])
    return (a, z) if a <= z <= lists.postings.size else (np.int64(0), np.int64(-1))


@njit
def find_block(ranges, first, last, doc_range):
    """The first of the blocks first .. last - 1 that is not before a range, or `last`."""
    if doc_range < last - first and ranges[first + doc_range] == doc_range:  # a list with a block in every range
        return first + doc_range
    while first < last:
        middle = (first + last) >> 1
        if ranges[middle] < doc_range:
            first = middle + 1
        else:
            last = middle
    return first


@njit
def find_posting(postings, a, z, offset):
    """The last posting of the plain block postings[a:z] at or before `offset`, by binary search; the first if none is.

    No branch depends on the postings, so that several searches overlap in the processor.
    """
    at, size = np.uint64(a), np.uint64(z - a)
    while size > np.uint64(1):
        half = size >> np.uint64(1)
        at = _either((postings[at + half] & np.uint16(OFFSET_MASK)) <= offset, at + half, at)
        size -= half
    return at


@njit
def find_four(postings, a, z, o, p, q, r):
    """`find_posting` for four offsets at once: while the processor waits for one posting, it reads the others."""
    at_o = at_p = at_q = at_r = np.uint64(a)
    size, mask = np.uint64(z - a), np.uint16(OFFSET_MASK)
    while size > np.uint64(1):
        half = size >> np.uint64(1)
        at_o = _either((postings[at_o + half] & mask) <= o, at_o + half, at_o)
        at_p = _either((postings[at_p + half] & mask) <= p, at_p + half, at_p)
        at_q = _either((postings[at_q + half] & mask) <= q, at_q + half, at_q)
        at_r = _either((postings[at_r + half] & mask) <= r, at_r + half, at_r)
        size -= half
    return at_o, at_p, at_q, at_r


@njit
def bits_at(postings, a, offset):
    """The two bits of a document in the bitmap that starts at a: 0 without a posting, 3 for the values 3 and 4."""
    word = np.uint64(postings[np.uint64(a) + (np.uint64(offset) & np.uint64(WORDS - 1))])
    return (word >> ((np.uint64(offset) // np.uint64(WORDS)) << np.uint64(1))) & np.uint64(3)


@njit
def value_in_bitmap(postings, a, z, offset):
    """The value of a document in a bitmap, a .. z - 1; 0 if it has no posting."""
    value = np.int64(bits_at(postings, a, offset))
    if value == MAX_SMALL - 1 and z - a > WORDS:
        x = find_posting(postings, a + WORDS, z, offset)
        value += postings[x] == offset
    return value


@njit
def unpack_bitmap(postings, a, z, out):
    """Put the postings of a bitmap into `out`, as they are in a plain block; returns how many they are."""
    count, four = 0, a + WORDS
    for offset in range(RANGE_SIZE):
        value = np.int64(bits_at(postings, a, offset))
        if value:
            if four < z and postings[four] == offset:
                value, four = np.int64(MAX_SMALL), four + 1
            out[count] = offset | ((value - 1) << RANGE_BITS)
            count += 1
    return count


@njit
def places_of(count, fours):
    """The size of a block of a small list with `count` postings, `fours` of them with the value 4."""
    return count if count < MANY else WORDS + fours


@njit("const int64[:], const uint16[:], int64[:]")
def _measure(starts, postings, places):
    """Write the size that each block has after those with many postings become bitmaps into `places`."""
    for r in range(starts.size - 1):
        fours = 0
        for x in range(starts[r], starts[r + 1]):
            fours += (postings[x] >> np.uint16(RANGE_BITS)) == MAX_SMALL - 1
        places[r] = places_of(np.int64(starts[r + 1]) - np.int64(starts[r]), fours)


@njit("const int64[:], const uint16[:], const int64[:], uint16[:]")
def _write(starts, postings, places, out):
    """Write blocks end to end, those with many postings as bitmaps; `out` is all zero."""
    at = 0
    for r in range(starts.size - 1):
        a, z, four = starts[r], starts[r + 1], at + WORDS
        for x in range(a, z):
            posting = np.int64(postings[x])
            offset, value = posting & OFFSET_MASK, (posting >> RANGE_BITS) + 1
            if places[r] < WORDS:
                out[at + x - a] = posting
            else:
                bits = value - (value == MAX_SMALL)
                out[at + offset % WORDS] |= np.uint16(bits << 2 * (offset // WORDS))
                if value == MAX_SMALL:
                    out[four] = offset
                    four += 1
        at += places[r]


def with_bitmaps(starts: np.ndarray, postings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Plain blocks of small lists as they are stored: where each starts, with the end of the last, and the postings.

    >>> starts, postings = with_bitmaps(np.array([0, 2, 3002]), np.append([3, 9], np.arange(3000)).astype(np.uint16))
    >>> starts.tolist(), postings[:2].tolist(), postings[[2, 2049]].tolist()
    ([0, 2, 2050], [3, 9], [5, 1])
    """
    starts = starts.astype(np.int64)
    if len(starts) < 2 or int(np.diff(starts).max()) < MANY:
        return starts, postings
    places = np.empty(len(starts) - 1, np.int64)
    _measure(starts, postings, places)
    out = np.zeros(int(places.sum()), np.uint16)
    _write(starts, postings, places, out)
    return np.append(0, np.cumsum(places)), out
