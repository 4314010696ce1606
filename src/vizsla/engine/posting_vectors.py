"""Posting lists that carry vectors: for each token that occurs, the documents that have it and its vector in each.

A query token is only compared with equal tokens, so a search only reads the lists of the query's tokens. A document
has a posting for each occurrence of the token. The norm of the longest vector of each list is stored: together with the
norm of the query's vector it bounds what the list can add to a score.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vizsla.engine.arrays import DamagedSegmentError, distinct
from vizsla.engine.vector_rows import ScaledRows, VectorRows, convert_rows, select_rows, wide_rows

_CHUNK = 1 << 16  # vectors whose lengths are worked out together
_UP = 1 + 1e-12  # so that rounding never makes a bound too low


class MatchQuery(NamedTuple):
    """The tokens of a query as [tokens] whole numbers, their vectors, and what their score is multiplied by.

    They are compared with equal tokens only; see `VectorPostings`.
    """

    terms: np.ndarray
    vectors: np.ndarray
    """[tokens, dimensions]"""
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class VectorPostings:
    """The posting lists of one namespace.

    >>> postings = VectorPostings.of(np.eye(3, dtype=np.float16), np.array([9, 4, 9]), np.array([0, 2, 3]))
    >>> postings.terms.tolist(), postings.starts.tolist(), postings.documents.tolist()
    ([4, 9], [0, 1, 3], [0, 0, 1])
    """

    terms: np.ndarray
    """[t] uint32: the tokens that occur, ascending."""
    starts: np.ndarray
    """[t + 1] int64: where the list of each begins."""
    norms: np.ndarray
    """[t] float64: the length of the longest vector of each list, or more."""
    documents: np.ndarray
    """[p] uint32: ascending in a list, equal ones by their places in the text."""
    vectors: VectorRows
    """[p, dimensions]"""

    @classmethod
    def of(cls, vectors: VectorRows, terms: np.ndarray, starts: np.ndarray) -> VectorPostings:
        """From the concatenated token vectors of documents, the token of each vector, and where documents begin."""
        order = np.argsort(terms, kind="stable")
        present, first = np.unique(terms[order], return_index=True)
        documents = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        rows = _take(vectors, order)
        bounds = np.append(first, len(terms)).astype(np.int64)
        return cls(
            present.astype(np.uint32), bounds, _list_norms(rows, bounds), documents[order].astype(np.uint32), rows
        )

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def width(self) -> int:
        return self.vectors.shape[1]

    @property
    def nbytes(self) -> int:
        own = (self.terms, self.starts, self.norms, self.documents)
        return sum(array.nbytes for array in own) + self.vectors.nbytes

    def converted(self, store: str) -> VectorPostings:
        """The same lists with vectors stored in another type."""
        rows = convert_rows(self.vectors, store)
        return VectorPostings(self.terms, self.starts, _list_norms(rows, self.starts), self.documents, rows)

    def fits(self) -> bool:
        """Whether the arrays are consistent, judging only by their shapes and ends."""
        return (
            self.vectors.ndim == 2
            and len(self.vectors) == len(self.documents)
            and self.starts.shape == (len(self.terms) + 1,)
            and self.norms.shape == self.terms.shape
            and int(self.starts[0]) == 0
            and int(self.starts[-1]) == len(self.documents)
        )

    def is_sound(self, documents: int) -> bool:
        """Whether every list has documents below a number, in order, and no vector longer than it says."""
        sizes, terms = np.diff(self.starts), np.diff(self.terms.astype(np.int64))
        if not self.fits() or (sizes <= 0).any() or (terms <= 0).any() or not np.isfinite(self.norms).all():
            return False
        if not len(self):
            return True
        steps = np.diff(self.documents.astype(np.int64))
        steps[self.starts[1:-1] - 1] = 0  # from one list to the next
        longest = _list_norms(self.vectors, self.starts)
        return bool((steps >= 0).all() and int(self.documents.max()) < documents and (longest <= self.norms).all())

    def list_of(self, term: int) -> tuple[int, int, float]:
        """Where the list of a token begins and ends, and its longest vector; an empty one if it does not occur."""
        at = int(np.searchsorted(self.terms, term))
        if at == len(self.terms) or int(self.terms[at]) != term:
            return 0, 0, 0.0
        a, z, norm = int(self.starts[at]), int(self.starts[at + 1]), float(self.norms[at])
        if not 0 <= a < z <= len(self.documents) or not 0 <= norm < np.inf:
            raise DamagedSegmentError
        return a, z, norm


def row_norms(rows: VectorRows) -> np.ndarray:
    """The length of each vector, rounded up."""
    norms = np.zeros(len(rows))
    for a in range(0, len(rows), _CHUNK):
        z = min(a + _CHUNK, len(rows))
        wide = (rows[a:z] if isinstance(rows, ScaledRows) else wide_rows(rows, a, z)).astype(np.float64)
        norms[a:z] = np.sqrt(np.einsum("ij,ij->i", wide, wide)) * _UP
    return norms


def _list_norms(rows: VectorRows, starts: np.ndarray) -> np.ndarray:
    """The length of the longest vector of each list; no list is empty."""
    longest: np.ndarray = np.maximum.reduceat(row_norms(rows), starts[:-1]) if len(rows) else np.zeros(0)
    return longest


def _take(rows: VectorRows, order: np.ndarray) -> VectorRows:
    """Vectors in another order, as they are stored."""
    if isinstance(rows, ScaledRows):
        return ScaledRows(rows.codes[order], rows.scales[order])
    taken: np.ndarray = rows[order]
    return taken


class PostingsPiece(NamedTuple):
    """Some neighbouring postings of merged lists."""

    places: np.ndarray
    """[p] which of the merged lists each is in, ascending."""
    documents: np.ndarray
    vectors: VectorRows


@dataclass(frozen=True, eq=False)
class MergedVectorPostings:
    """The plan of merged lists: the live documents of several segments, renumbered, list by list."""

    old: Sequence[VectorPostings]
    moved: Sequence[np.ndarray]
    """For each segment the new number of each document, negative for a deleted one."""
    terms: np.ndarray
    starts: np.ndarray

    @classmethod
    def plan(cls, old: Sequence[VectorPostings], moved: Sequence[np.ndarray]) -> MergedVectorPostings:
        """Plan to merge the lists of segments whose documents ascend from one to the next."""
        if len({postings.width for postings in old}) > 1 or not all(postings.fits() for postings in old):
            raise DamagedSegmentError
        terms = distinct(np.concatenate([postings.terms for postings in old]))
        counts = np.zeros(len(terms), np.int64)
        for postings, to in zip(old, moved, strict=True):
            if len(postings):
                living = (_moved(postings.documents, to) >= 0).astype(np.int64)
                counts[np.searchsorted(terms, postings.terms)] += np.add.reduceat(living, _firsts(postings))
        present = counts > 0
        return cls(old, moved, terms[present], np.append(0, np.cumsum(counts[present])))

    @property
    def width(self) -> int:
        return self.old[0].width

    def pieces(self, chunk: int) -> Iterator[PostingsPiece]:
        """The merged postings, list after list, about `chunk` numbers of vectors at a time."""
        size, first = max(chunk // max(self.width, 1), 1), 0
        while first < len(self.terms):
            end = int(np.searchsorted(self.starts, self.starts[first] + size, side="right")) - 1
            end = min(max(end, first + 1), len(self.terms))
            parts = (part for number in range(len(self.old)) for part in self._parts(number, first, end, size))
            if end == first + 1:  # one list, perhaps long: its parts are in order already
                yield from parts
            else:
                yield _sorted(list(parts))
            first = end

    def _parts(self, number: int, first: int, end: int, size: int) -> Iterator[PostingsPiece]:
        """The living postings of an old segment that belong to some of the merged lists."""
        postings, to = self.old[number], self.moved[number]
        a, z = np.searchsorted(postings.terms, [self.terms[first], int(self.terms[end - 1]) + 1]).tolist()
        owners = np.repeat(np.arange(a, z), np.diff(postings.starts[a : z + 1]))
        begin = int(postings.starts[a])
        for x in range(0, len(owners), size):
            some = owners[x : x + size]
            documents = _moved(postings.documents[begin + x : begin + x + len(some)], to)
            living = documents >= 0
            rows = select_rows(postings.vectors, begin + x, begin + x + len(some), living)
            places = np.searchsorted(self.terms, postings.terms[some[living]])
            yield PostingsPiece(places, documents[living].astype(np.uint32), rows)


def _sorted(parts: Sequence[PostingsPiece]) -> PostingsPiece:
    """Parts of several segments as one piece, list by list."""
    places = np.concatenate([part.places for part in parts])
    documents = np.concatenate([part.documents for part in parts])
    order = np.argsort(places, kind="stable")
    rows = [part.vectors for part in parts]
    scaled = [some for some in rows if isinstance(some, ScaledRows)]
    joined: VectorRows
    if len(scaled) == len(rows):
        joined = ScaledRows(np.concatenate([r.codes for r in scaled]), np.concatenate([r.scales for r in scaled]))
    else:
        joined = np.concatenate([some[:] for some in rows])
    return PostingsPiece(places[order], documents[order], _take(joined, order))


def _firsts(postings: VectorPostings) -> np.ndarray:
    firsts = postings.starts[:-1]
    if (np.diff(postings.starts) <= 0).any():
        raise DamagedSegmentError
    return firsts


def _moved(documents: np.ndarray, to: np.ndarray) -> np.ndarray:
    if len(documents) and int(documents.max()) >= len(to):
        raise DamagedSegmentError
    moved: np.ndarray = to[documents]
    return moved
