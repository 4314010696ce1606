"""Terms in arrays: kernels sort them, add up their checksums and write the text of their blocks, without the GIL."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.engine import in_threads, processors
from vizsla.index.storage.stored_ids import StoredIds, StoredTexts, sorted_texts
from vizsla.kernels import njit
from vizsla.lazy import cached_property

BLOCK = 128
"""Terms of a block."""
LONGEST = 1 << 16
"""Characters of a block, after which it ends early."""
_FEWEST = 16  # blocks that a thread compresses
_NUMBER = 13  # bytes of a line beside the term: quotes, up to ten digits, a line break


@dataclass(frozen=True, eq=False)
class PackedTerms:
    """Terms of a namespace and their numbers.

    >>> terms = PackedTerms.of(0, ["dog", "cat", "bark"], 7)
    >>> terms.rows()
    [(0, 'bark', 9), (0, 'cat', 8), (0, 'dog', 7)]
    """

    namespace: int
    texts: StoredTexts
    numbers: np.ndarray
    """[n] in 64 bits."""

    @classmethod
    def of(cls, namespace: int, terms: Sequence[str], first: int) -> PackedTerms:
        """Terms whose numbers count up from `first`."""
        return cls(namespace, StoredTexts.of(terms), np.arange(first, first + len(terms)))

    @classmethod
    def concatenated(cls, parts: Sequence[PackedTerms]) -> PackedTerms:
        """The terms of all parts, which are of one namespace."""
        if len(parts) == 1:
            return parts[0]
        texts = StoredTexts.concatenated([part.texts for part in parts])
        return cls(parts[0].namespace, texts, np.concatenate([part.numbers for part in parts]))

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def order(self) -> np.ndarray:
        """The places of the terms in the order of their bytes, which is that of their characters."""
        return sorted_texts(self.texts)

    def rows(self) -> list[tuple[int, str, int]]:
        """Namespace, term and number of each term, in order."""
        data, at = self.texts.data.tobytes(), 0
        rows = []
        for size, number in zip(self.texts.sizes.tolist(), self.numbers.tolist(), strict=True):
            rows.append((self.namespace, data[at : at + size].decode(), number))
            at += size
        return sorted(rows)

    def checksum(self) -> int:
        """The sum of the first eight bytes of the SHA-256 of each row: namespace, term and number, with 0 between."""
        total, message = np.zeros(1, np.uint64), np.zeros(int(self.texts.sizes.max(initial=0)) + 128, np.uint8)
        words = np.empty(64, np.uint32)
        _add_up(self.texts.data, self.bounds, self.namespace, self.numbers, _ROUNDS, words, message, total)
        return int(total[0])

    @cached_property
    def bounds(self) -> np.ndarray:
        """[n + 1] where each text begins, and where the last ends."""
        return np.append(0, np.cumsum(self.texts.sizes, dtype=np.int64))

    def blocks(self, *, whole: bool = True) -> tuple[list[tuple[int, str, bytes]], int]:
        """Namespace, first term and content of each block, and how many terms are in these blocks.

        Unless `whole`, terms that do not fill the last block are left out.
        """
        escaped = int(np.count_nonzero((self.texts.data < 0x20) | (self.texts.data == 34) | (self.texts.data == 92)))
        out = np.empty(len(self.texts.data) + 5 * escaped + (_NUMBER + 1) * len(self), np.uint8)
        starts = np.zeros((len(self) + 1, 2), np.int64)
        count = _write_blocks(self.texts.data, self.bounds, self.order, self.numbers, whole, out, starts)
        firsts, cuts = starts[: count + 1, 0], starts[: count + 1, 1].tolist()
        names = StoredIds(self.texts).at(self.order[firsts[:-1]].astype(np.int64))
        text = out.data

        def compress(a: int, z: int) -> list[bytes]:
            return [zlib.compress(text[cuts[i] : cuts[i + 1]]) for i in range(a, z)]

        parts = in_threads(compress, count, processors(), _FEWEST) if count else []
        contents = [content for part in parts for content in part]
        return [(self.namespace, *block) for block in zip(names, contents, strict=True)], int(firsts[-1])


@njit
def _put_digits(number, out, at):
    """Write a number of at most 20 digits; returns where it ends."""
    count, rest = 1, number
    while rest >= 10:
        rest //= 10
        count += 1
    for i in range(count):
        out[at + count - 1 - i] = 48 + number % 10
        number //= 10
    return at + count


@njit("const uint8[:], const int64[:], const uint32[:], const int64[:], bool, uint8[:], int64[:,:]")
def _write_blocks(data, bounds, order, numbers, whole, out, starts):
    """Write the text of blocks to `out`; `starts` says which term each begins with, in order, and where its text does.

    Returns how many blocks there are; one more entry of `starts` says where they end.
    """
    blocks, size, at = 0, 0, 0
    for place in range(order.size):
        if place == starts[blocks, 0]:
            out[at] = 10
            at += 1
        term = order[place]
        out[at] = 34
        at += 1
        for x in range(bounds[term], bounds[term + 1]):
            c = data[x]
            size += (c & 0xC0) != 0x80
            if c >= 0x20 and c != 34 and c != 92:
                out[at] = c
                at += 1
                continue
            short = np.int64(0)  # the letter of a short escape: a backslash before a quote, n, t and so on
            if c == 34 or c == 92:
                short = np.int64(c)
            elif c == 8:
                short = np.int64(98)
            elif c == 9:
                short = np.int64(116)
            elif c == 10:
                short = np.int64(110)
            elif c == 12:
                short = np.int64(102)
            elif c == 13:
                short = np.int64(114)
            out[at] = 92
            if short:
                out[at + 1] = short
                at += 2
            else:
                low = np.int64(c & 15)
                out[at + 1], out[at + 2], out[at + 3], out[at + 4] = 117, 48, 48, 48 + (c >> 4)
                out[at + 5] = 48 + low if low < 10 else 87 + low
                at += 6
        out[at] = 34
        at = _put_digits(numbers[term], out, at + 1)
        out[at] = 10
        at += 1
        if place + 1 - starts[blocks, 0] == BLOCK or size > LONGEST or (whole and place + 1 == order.size):
            blocks += 1
            starts[blocks, 0], starts[blocks, 1] = place + 1, at
            size = 0
    return blocks


# SHA-256, one text after the other: Python's own holds the GIL for texts as short as a term.


def _roots() -> np.ndarray:
    """The constants of SHA-256: the first 32 bits behind the point of the cube roots of the first 64 primes."""
    primes = [n for n in range(2, 312) if all(n % d for d in range(2, n))]
    return np.array([_cube_root(p << 96) & 0xFFFFFFFF for p in primes], np.uint32)


def _cube_root(number: int) -> int:
    """The whole part of a cube root."""
    low, high = 0, 1 << 40
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**3 <= number else (low, middle)
    return low


_ROUNDS = _roots()


@njit
def _rotated(x, n):
    return np.uint32(np.uint64(x) >> np.uint64(n) | np.uint64(x) << np.uint64(32 - n))


@njit
def _mix(message, at, rounds, words, state):
    """Mix 64 bytes into the state."""
    for i in range(16):
        x = at + 4 * i
        high = np.uint64(message[x]) << np.uint64(24) | np.uint64(message[x + 1]) << np.uint64(16)
        words[i] = np.uint32(high | np.uint64(message[x + 2]) << np.uint64(8) | np.uint64(message[x + 3]))
    for i in range(16, 64):
        u, v = words[i - 15], words[i - 2]
        one = _rotated(u, 7) ^ _rotated(u, 18) ^ np.uint32(u >> np.uint32(3))
        two = _rotated(v, 17) ^ _rotated(v, 19) ^ np.uint32(v >> np.uint32(10))
        words[i] = np.uint32(words[i - 16] + one + words[i - 7] + two)
    a, b, c, d, e, f, g, h = state
    for i in range(64):
        mixed = _rotated(e, 6) ^ _rotated(e, 11) ^ _rotated(e, 25)
        one = np.uint32(h + mixed + np.uint32((e & f) ^ (~e & g)) + rounds[i] + words[i])
        mixed = _rotated(a, 2) ^ _rotated(a, 13) ^ _rotated(a, 22)
        two = np.uint32(mixed + np.uint32((a & b) ^ (a & c) ^ (b & c)))
        a, b, c, d, e, f, g, h = np.uint32(one + two), a, b, c, np.uint32(d + one), e, f, g
    return (
        np.uint32(state[0] + a), np.uint32(state[1] + b), np.uint32(state[2] + c), np.uint32(state[3] + d),
        np.uint32(state[4] + e), np.uint32(state[5] + f), np.uint32(state[6] + g), np.uint32(state[7] + h),
    )  # fmt: skip


@njit("const uint8[:], const int64[:], int64, const int64[:], const uint32[:], uint32[:], uint8[:], uint64[:]")
def _add_up(data, bounds, namespace, numbers, rounds, words, message, total):
    """Add the first eight bytes of the hash of each row to `total`; `words` and `message` are memory."""
    for i in range(numbers.size):
        at = _put_digits(namespace, message, 0)
        message[at] = 0
        at += 1
        for x in range(bounds[i], bounds[i + 1]):
            message[at] = data[x]
            at += 1
        message[at] = 0
        at = _put_digits(numbers[i], message, at + 1)
        bits = 8 * at
        message[at] = 0x80
        at += 1
        end = (at + 8 + 63) // 64 * 64
        for x in range(at, end):
            message[x] = 0
        for x in range(8):
            message[end - 1 - x] = bits >> (8 * x) & 255
        state = (
            np.uint32(0x6A09E667), np.uint32(0xBB67AE85), np.uint32(0x3C6EF372), np.uint32(0xA54FF53A),
            np.uint32(0x510E527F), np.uint32(0x9B05688C), np.uint32(0x1F83D9AB), np.uint32(0x5BE0CD19),
        )  # fmt: skip
        for block in range(0, end, 64):
            state = _mix(message, block, rounds, words, state)
        little = np.uint64(0)
        for x in range(8):
            byte = np.uint64(state[x // 4]) >> np.uint64(24 - 8 * (x % 4)) & np.uint64(255)
            little |= byte << np.uint64(8 * x)
        total[0] += little
