"""The data layout of the engine: a segment is a handful of immutable arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from vizsla.kernels import kernel


class DamagedSegmentError(Exception):
    """A segment's arrays contradict each other; whoever knows its name should say so."""


@dataclass(frozen=True, eq=False)
class Segment:
    """Documents 0 .. n - 1 and their inverted lists.

    One inverted index serves all namespaces of a model: a term number belongs to one namespace, so a sum of
    models is searched in one pass.
    """

    numbers: np.ndarray
    """[n] the documents' insertion numbers, which decide ties and lead to what is stored of them."""
    lengths: np.ndarray
    """[s, n] each document's length code in each namespace."""
    sizes: np.ndarray
    """[s, n] each document's length in each namespace, exactly: what statistics are counted from."""
    terms: np.ndarray
    """[t] the term numbers that occur, ascending."""
    pointers: np.ndarray
    """[t + 1] where each term's list starts."""
    documents: np.ndarray
    """[p] the documents of all lists, ascending within a list."""
    values: np.ndarray
    """[p] what the model stores of a term in a document: how often it occurs, or a quantised weight."""

    def __post_init__(self) -> None:
        for field in fields(self):  # one kind of array for numba: plain, C order, read-only
            array = np.asarray(getattr(self, field.name)).view()
            array.flags.writeable = False
            object.__setattr__(self, field.name, array)

    def __len__(self) -> int:
        return len(self.numbers)

    def places(self, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where these terms stand in `terms`, and whether they are there at all."""
        if len(self.terms) == 0:
            return np.zeros(len(terms), np.int64), np.zeros(len(terms), np.bool_)
        wanted = terms.astype(self.terms.dtype)  # searchsorted would copy `terms` to the wider type; -1 is no term
        at = np.minimum(np.searchsorted(self.terms, wanted), len(self.terms) - 1)
        return at, self.terms[at] == terms

    def lists(self, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the lists of these terms start and end; an absent term's list is empty."""
        at, found = self.places(terms)
        starts = np.where(found, self.pointers[at], 0)
        ends = np.where(found, self.pointers[np.minimum(at + 1, len(self.pointers) - 1)], 0)
        if (starts < 0).any() or (ends < starts).any() or (ends > len(self.documents)).any():
            raise DamagedSegmentError
        return starts, ends


def smallest_type(array: np.ndarray) -> np.ndarray:
    """The same whole numbers in one byte where they fit, else in two or four; real numbers in four."""
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    if array.size and int(array.min()) < 0:
        raise ValueError("what is stored must not be negative")
    most = int(array.max()) if array.size else 0
    kind = np.uint8 if most < 1 << 8 else np.uint16 if most < 1 << 16 else np.uint32
    return array.astype(kind, copy=False)


@kernel
def _invert(pointers, indices, values, size, documents_count):
    """Rows to lists by a counting sort; documents come out ascending because rows are read in order."""
    starts = np.zeros(size + 1, np.int64)
    for term in indices:
        starts[term + 1] += 1
    for term in range(size):
        starts[term + 1] += starts[term]
    free = starts[:-1].copy()
    documents = np.empty(indices.size, np.uint32)
    out = np.empty(indices.size, values.dtype)
    for row in range(pointers.size - 1):
        for x in range(pointers[row], pointers[row + 1]):
            at = free[indices[x]]
            free[indices[x]] += 1
            documents[at] = row % documents_count
            out[at] = values[x]
    return starts, documents, out


def check_pointers(segment: Segment) -> None:
    """Refuse a segment whose lists do not lie end to end."""
    p = segment.pointers
    if len(p) != len(segment.terms) + 1 or p[0] != 0 or p[-1] != len(segment.documents) or (np.diff(p) < 0).any():
        raise DamagedSegmentError


def by_document(segment: Segment) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of the documents again, in CSR form: pointers, places in `terms`, values."""
    check_pointers(segment)
    if len(segment.documents) and int(segment.documents.max()) >= len(segment):
        raise DamagedSegmentError
    return _invert(  # type: ignore[no-any-return]
        segment.pointers, segment.documents, segment.values, len(segment), max(len(segment.terms), 1)
    )


def build_segment(
    numbers: np.ndarray,
    lengths: np.ndarray,
    sizes: np.ndarray,
    pointers: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
) -> Segment:
    """A segment from the documents' rows in CSR form; `indices` are term numbers, no term twice in a row.

    Several namespaces: all rows of the first, then all rows of the second, and so on.

    >>> lengths = np.array([[2, 3]])
    >>> rows = np.array([0, 2, 3]), np.array([7, 5, 7]), np.array([1, 1, 3])
    >>> s = build_segment(np.array([0, 1]), lengths, lengths, *rows)
    >>> s.terms.tolist(), s.pointers.tolist(), s.documents.tolist(), s.values.tolist()
    ([5, 7], [0, 1, 3], [0, 0, 1], [1, 1, 3])
    """
    size = int(indices.max()) + 1 if indices.size else 0
    starts, documents, out = _invert(
        pointers.astype(np.int64, copy=False),
        indices.astype(np.uint32, copy=False),
        smallest_type(values),
        size,
        max(len(numbers), 1),
    )
    present = np.flatnonzero(np.diff(starts))
    ends = np.append(starts[present], indices.size)
    return Segment(
        numbers=np.asarray(numbers, np.int64),
        lengths=np.ascontiguousarray(smallest_type(lengths)),
        sizes=np.ascontiguousarray(sizes, np.uint32),
        terms=present.astype(np.uint32),
        pointers=ends,
        documents=documents,
        values=out,
    )
