"""Many short texts in one array of bytes, such as the ids of documents: any thousand of them are read at once.

Each text has its size; where every 64th begins is stored, so that any text is found without reading all sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.kernels import njit

STEP_BITS = 6
STEP = 1 << STEP_BITS
"""Of how many texts one has its place stored."""
SIZE_TYPES = ("uint8", "uint16", "uint32")
"""Of the array of sizes; kernels are compiled for each of them."""
_END = 10  # a line break stands between texts that are read together


class DamagedTextsError(Exception):
    """The arrays of stored texts contradict each other; the caller, who knows their files, reports it."""


@dataclass(frozen=True, eq=False)
class StoredTexts:
    """Texts 0 .. n - 1.

    >>> texts = StoredTexts.of(["dog", "", "caf\u00e9"])
    >>> len(texts), texts.at(np.array([2, 0, 2, 1]))
    (3, ['caf\u00e9', 'dog', 'caf\u00e9', ''])
    """

    data: np.ndarray
    """uint8: the texts in UTF-8, end to end."""
    sizes: np.ndarray
    """[n] uint8, uint16 or uint32: how many bytes each text has."""
    starts: np.ndarray
    """[n / 64, rounded up] int64: where the texts 0, 64, 128 and so on begin."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> StoredTexts:
        """Texts as arrays; half a surrogate pair cannot be stored."""
        return cls.join([[text.encode() for text in texts]])

    @classmethod
    def join(cls, batches: Iterable[Sequence[bytes]]) -> StoredTexts:
        """Texts in UTF-8 as arrays, given batch by batch."""
        data, sizes = [], [np.zeros(0, np.int64)]
        for batch in batches:
            data.append(np.frombuffer(b"".join(batch), np.uint8))
            sizes.append(np.fromiter(map(len, batch), np.int64, len(batch)))
        return cls.packed(np.concatenate([*data, np.zeros(0, np.uint8)]), np.concatenate(sizes))

    @classmethod
    def packed(cls, data: np.ndarray, sizes: np.ndarray) -> StoredTexts:
        """Texts that lie end to end, given their sizes in 64 bits."""
        largest = int(sizes.max(initial=0))
        kind = np.uint8 if largest < 1 << 8 else np.uint16 if largest < 1 << 16 else np.uint32
        starts = (np.cumsum(sizes) - sizes)[::STEP]
        return cls(data, sizes.astype(kind), starts.astype(np.int64))

    @classmethod
    def concatenated(cls, parts: Sequence[StoredTexts]) -> StoredTexts:
        """The texts of all parts, one part after the other."""
        data = np.concatenate([np.zeros(0, np.uint8), *(part.data for part in parts)])
        return cls.packed(
            data, np.concatenate([np.zeros(0, np.int64), *(part.sizes for part in parts)], dtype=np.int64)
        )

    def __post_init__(self) -> None:
        for name in ("data", "sizes", "starts"):  # one kind of array, so that kernels are compiled once
            array = np.asarray(getattr(self, name)).view()
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.sizes)

    def fit(self) -> bool:
        """Whether the arrays can belong together, by their shapes and last entries alone."""
        if len(self.starts) != -(-len(self) // STEP):
            return False
        last = len(self) - len(self) % STEP if len(self) % STEP else max(len(self) - STEP, 0)
        end = int(self.starts[-1]) + int(self.sizes[last:].sum(dtype=np.int64)) if len(self) else 0
        return end == len(self.data)

    def at(self, rows: np.ndarray) -> list[str]:
        """The texts of some rows, in their order."""
        begins, ends = np.empty((2, len(rows)), np.int64)
        size = _measure(self.data, self.sizes, self.starts, rows.astype(np.int64, copy=False), begins, ends)
        if size < 0:
            raise DamagedTextsError
        joined = np.empty(size, np.uint8)
        return self.cut(joined, ends, _gather(self.data, begins, ends, joined))

    @staticmethod
    def cut(joined: np.ndarray, ends: np.ndarray, breaks: int) -> list[str]:
        """Texts that lie end to end with a line break between any two; `breaks`: the line breaks inside of texts."""
        if len(ends) == 0:
            return []
        try:
            if breaks == 0:
                return str(joined.data, "utf-8").split("\n")
            data, last = joined.tobytes(), ends.tolist()
            return [data[a:b].decode() for a, b in zip([0, *(z + 1 for z in last)], last, strict=False)]
        except UnicodeDecodeError:
            raise DamagedTextsError from None

    def take(self, rows: np.ndarray) -> StoredTexts:
        """The texts of some rows as arrays of their own."""
        begins = np.cumsum(self.sizes, dtype=np.int64) - self.sizes
        sizes, begins = self.sizes[rows].astype(np.int64), begins[rows]
        data = np.empty(int(sizes.sum()), np.uint8)
        if not _copy(self.data, begins, sizes, data):
            raise DamagedTextsError
        return StoredTexts.packed(data, sizes)


@njit
def text_begin(data, sizes, starts, row):
    """Where the text of a row begins; -1 if the row is not there, or there is damage."""
    if row < 0 or row >= sizes.size or row >> STEP_BITS >= starts.size:
        return -1
    begin = np.int64(starts[row >> STEP_BITS])
    for other in range(row >> STEP_BITS << STEP_BITS, row):
        begin += np.int64(sizes[other])
    return begin if 0 <= begin <= data.size - np.int64(sizes[row]) else -1


@njit("const uint8[:], const int64[:], const int64[:], uint8[:]")
def _copy(data, begins, sizes, out):
    """Copy texts end to end; returns False if one of them is not there."""
    at = np.int64(0)
    for x in range(begins.size):
        if begins[x] < 0 or begins[x] + sizes[x] > data.size:
            return False
        for i in range(sizes[x]):
            out[at + i] = data[begins[x] + i]
        at += sizes[x]
    return True


@njit(
    *(f"const uint8[:], const {sizes}[:], const int64[:], const int64[:], int64[:], int64[:]" for sizes in SIZE_TYPES)
)
def _measure(data, sizes, starts, rows, begins, ends):
    """Put into `begins` and `ends` where the texts of some rows begin, and where each ends in what is read of them.

    Returns how many bytes they have, with a line break between any two; -1 if a row is not there, or there is damage.
    """
    total = 0
    for x in range(rows.size):
        row = rows[x]
        begin = text_begin(data, sizes, starts, row)
        if begin < 0:
            return -1
        begins[x] = begin
        ends[x] = total + np.int64(sizes[row])
        total = ends[x] + 1
    return total - 1 if total else 0


@njit("const uint8[:], const int64[:], const int64[:], uint8[:]")
def _gather(data, begins, ends, out):
    """Put the measured texts into `out`, with a line break between any two; returns the line breaks inside of texts."""
    breaks, at = 0, 0
    for x in range(begins.size):
        for place in range(begins[x], begins[x] + ends[x] - at):
            out[at] = data[place]
            breaks += data[place] == _END
            at += 1
        if x + 1 < begins.size:
            out[at] = _END
        at += 1
    return breaks
