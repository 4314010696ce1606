"""Token vectors as they are stored: a vector for each token of each document, the documents one after another.

For each centroid there may be a list of the documents that have a token near it, where a search of token vectors looks
first. Vectors may be stored in residual codes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from vizsla.engine.arrays import DamagedSegmentError, read_only
from vizsla.engine.centroids import learn_centroids, sample_places
from vizsla.engine.residual_rows import ResidualCodec, ResidualRows, narrow, number_dtype
from vizsla.engine.stored_rows import StoredRows, stored_rows
from vizsla.engine.vector_rows import VectorRows, convert_rows, wide_rows
from vizsla.kernels import njit
from vizsla.lazy import cached_property


@dataclass(frozen=True, eq=False)
class TokenLists:
    """Inverted lists of documents by centroid."""

    centroids: np.ndarray
    """[centroids, width] 16- or 32-bit floats."""
    assigned: np.ndarray
    """[tokens] the number of each token's centroid."""
    starts: np.ndarray
    """[centroids + 1] where the list of each centroid begins."""
    documents: np.ndarray
    """The documents of all lists, ascending in each."""

    @classmethod
    def build(cls, centroids: np.ndarray, assigned: np.ndarray, token_starts: np.ndarray) -> TokenLists:
        """The lists of documents whose tokens begin at `token_starts`."""
        if len(assigned) and int(assigned.max()) >= len(centroids):
            raise DamagedSegmentError
        begins, memory = read_only(np.asarray(token_starts, np.int64)), np.empty(len(centroids), np.int64)
        starts, own = np.zeros(len(centroids) + 1, np.int64), read_only(assigned)
        documents = np.empty(_count(own, begins, memory, starts), np.uint32)
        _invert(own, begins, memory, starts[:-1].copy(), documents)
        return cls(centroids, assigned, starts, documents)

    @property
    def nbytes(self) -> int:
        """What the lists and centroids take; the centroids of tokens may belong to the vectors."""
        return self.starts.nbytes + self.documents.nbytes + self.centroids.nbytes

    def fits(self, tokens: int, width: int) -> bool:
        """Whether the arrays are consistent, judging only by their shapes and ends."""
        return (
            self.centroids.ndim == 2
            and self.centroids.shape[1] == width
            and len(self.assigned) == tokens
            and self.starts.shape == (len(self.centroids) + 1,)
            and int(self.starts[0]) == 0
            and int(self.starts[-1]) == len(self.documents)
        )

    @cached_property
    def wide_centroids(self) -> np.ndarray:
        """The centroids in 32 bits; damaged lists are refused once, here."""
        if (np.diff(self.starts) < 0).any():
            raise DamagedSegmentError
        return self.centroids.astype(np.float32)

    def are_those_of(self, token_starts: np.ndarray) -> bool:
        """Whether the lists belong to documents whose tokens begin at `token_starts`; builds them again to compare."""
        try:
            again = TokenLists.build(self.centroids, self.assigned, token_starts)
        except DamagedSegmentError:
            return False
        return np.array_equal(again.starts, self.starts) and np.array_equal(again.documents, self.documents)


@njit("const uint16[:], const int64[:], int64[:], int64[:]")
def _count(assigned, token_starts, last, starts):
    """Put into zeros where each list begins, and return how long all are; `last`: memory for each centroid.

    A document that has several tokens near a centroid is in its list once.
    """
    last[:] = -1
    for d in range(token_starts.size - 1):
        for t in range(token_starts[d], token_starts[d + 1]):
            c = assigned[t]
            if last[c] != d:
                last[c] = d
                starts[c + 1] += 1
    for c in range(last.size):
        starts[c + 1] += starts[c]
    return starts[last.size]


@njit("const uint16[:], const int64[:], int64[:], int64[:], uint32[:]")
def _invert(assigned, token_starts, last, free, documents):
    """Fill the lists by a counting sort; `free`: where each goes on, `last`: memory for each centroid."""
    last[:] = -1
    for d in range(token_starts.size - 1):
        for t in range(token_starts[d], token_starts[d + 1]):
            c = assigned[t]
            if last[c] != d:
                last[c] = d
                documents[free[c]] = d
                free[c] += 1


@dataclass(frozen=True, eq=False)
class TokenRows:
    """The token vectors of documents 0 .. n - 1; `rows.of(d)` are those of a document.

    >>> rows = TokenRows(np.eye(3, dtype=np.float16), np.array([0, 2, 2, 3]))
    >>> len(rows), rows.of(0).shape, rows.of(1).shape
    (3, (2, 3), (0, 3))
    """

    vectors: VectorRows
    """[tokens, dimensions]"""
    starts: np.ndarray
    """[n + 1] where the tokens of each document begin; a document may have none."""
    lists: TokenLists | None = None
    """Where to look for candidates."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def stored(self) -> StoredRows:
        """The arrays as the kernels read them."""
        return stored_rows(self.vectors, self.starts)

    @property
    def width(self) -> int:
        return self.vectors.shape[1]

    @property
    def nbytes(self) -> int:
        vectors = self.vectors.nbytes + self.starts.nbytes
        if self.lists is None:
            return vectors
        own = 0 if isinstance(self.vectors, ResidualRows) else self.lists.assigned.nbytes
        return vectors + self.lists.nbytes + own

    def of(self, document: int) -> np.ndarray:
        """[tokens, dimensions] the numbers that a document's stored vectors stand for."""
        a, z = self.bounds(document, document + 1)[[0, -1]].tolist()
        return self.vectors[a:z]

    def fits(self, documents: int) -> bool:
        """Whether the arrays are consistent, judging only by their shapes and ends."""
        return (
            self.vectors.ndim == 2
            and self.starts.shape == (documents + 1,)
            and int(self.starts[0]) == 0
            and int(self.starts[-1]) == len(self.vectors)
            and (self.lists is None or self.lists.fits(len(self.vectors), self.width))
        )

    def bounds(self, first: int, last: int) -> np.ndarray:
        """Where the tokens of the documents from `first` to `last` begin and end; damaged numbers are refused."""
        starts = np.asarray(self.starts[first : last + 1], np.int64)
        if starts[0] < 0 or starts[-1] > len(self.vectors) or (np.diff(starts) < 0).any():
            raise DamagedSegmentError
        return starts

    def blocks(self, first: int, last: int, tokens: int) -> Iterator[tuple[int, int]]:
        """The documents from `first` to `last` in blocks of at most so many tokens, or of one document."""
        starts = self.bounds(first, last)
        a = 0
        while a < last - first:
            z = int(np.searchsorted(starts, starts[a] + tokens, side="right")) - 1
            z = min(max(z, a + 1), last - first)
            yield first + a, first + z
            a = z


def token_store(store: str) -> str:
    """The type token vectors are stored in, given that of dense ones: 8 bits where asked for, else 16-bit floats.

    Token vectors are many and have unit length, so 32 bits would not change any result.
    """
    return "sq8" if store == "sq8" else "float16"


def convert_token_rows(rows: TokenRows, store: str) -> TokenRows:
    """The same token vectors, stored as an index does that stores dense vectors in a type."""
    return TokenRows(convert_rows(rows.vectors, token_store(store)), rows.starts)


_BLOCK = 1 << 18  # vectors that get their centroids together


def learn_codec(rows: Sequence[TokenRows], centroids: int, bits: int) -> ResidualCodec:
    """Centroids and buckets for token vectors, learnt from a sample of them; without bits, centroids alone."""
    sizes = [len(some.vectors) for some in rows]
    ends, places = np.cumsum([0, *sizes]), sample_places(sum(sizes), centroids)
    own = [places[(places >= a) & (places < z)] - a for a, z in pairwise(ends.tolist())]
    sample = np.concatenate([_rows_at(some, at) for some, at in zip(rows, own, strict=True)])
    learnt = learn_centroids(sample, centroids)
    if not bits:
        return ResidualCodec(narrow(learnt), np.zeros(0, np.float32))
    return ResidualCodec.learn(learnt, sample[:: max(len(sample) // (1 << 15), 1)], bits)


def _rows_at(rows: TokenRows, places: np.ndarray) -> np.ndarray:
    """Some vectors in 32 bits."""
    chosen: np.ndarray = rows.vectors[places].astype(np.float32)
    return chosen


def build_token_index(rows: TokenRows, codec: ResidualCodec) -> TokenRows:
    """Token vectors with centroid lists, encoded if the codec has codes; vectors it has encoded before are kept."""
    vectors, starts = rows.vectors, rows.bounds(0, len(rows))
    if isinstance(vectors, ResidualRows) or len(codec.means):
        if not isinstance(vectors, ResidualRows) or not vectors.codec.same_as(codec):
            vectors = codec.encode_blocks(lambda a, z: _wide(rows, a, z), len(vectors))
        lists = TokenLists.build(vectors.codec.centroids, vectors.assigned, starts)
        return TokenRows(vectors, rows.starts, lists)
    assigned = np.empty(len(vectors), np.int64)
    for a in range(0, len(vectors), _BLOCK):
        z = min(a + _BLOCK, len(vectors))
        assigned[a:z] = codec.nearest(_wide(rows, a, z))
    numbers = assigned.astype(number_dtype(len(codec.centroids)))
    return TokenRows(vectors, rows.starts, TokenLists.build(codec.centroids, numbers, starts))


def _wide(rows: TokenRows, a: int, z: int) -> np.ndarray:
    """The vectors from a to z in 32 bits, scaled."""
    return rows.vectors[a:z] if not isinstance(rows.vectors, np.ndarray) else wide_rows(rows.vectors, a, z)
