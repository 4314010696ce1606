"""The data layout of the engine: a segment is a handful of immutable arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from vizsla.engine.arrays import DamagedSegmentError, distinct, freeze, in_own_pages
from vizsla.engine.blocks import BLOCKS, RANGE_BITS, RANGE_SIZE, VALUE_TYPES, Blocks
from vizsla.engine.list_directory import open_lists
from vizsla.engine.packed_arrays import pack_arrays
from vizsla.engine.posting_lists import PostingLists, pack
from vizsla.engine.posting_vectors import VectorPostings
from vizsla.engine.residual_rows import ResidualRows
from vizsla.engine.suffix_array import SuffixArray
from vizsla.engine.term_sequences import TermSequences
from vizsla.engine.threads import in_threads, in_threads_by_size, processors
from vizsla.engine.token_rows import TokenRows
from vizsla.engine.vector_indexes import AnnIndex
from vizsla.engine.vector_rows import VectorRows, storage_of, wide_rows
from vizsla.kernels import njit
from vizsla.lazy import cached_property

_ALL = np.zeros(0, np.bool_)
MAX_POSTINGS = (1 << 32) - 1  # their places are counted in 32 bits
MAX_DOCUMENTS = 1 << (16 + RANGE_BITS)  # their ranges in 16


def fits_a_segment(postings: int, documents: int) -> bool:
    """Whether one segment can hold this many postings and documents."""
    return postings <= MAX_POSTINGS and documents <= MAX_DOCUMENTS


class SegmentArrays(NamedTuple):
    """A segment for the kernels, with the blocks of a query's terms and a mask of the documents that may be found.

    An empty mask allows all.
    """

    small: Blocks
    large: Blocks
    lengths: np.ndarray
    allowed: np.ndarray
    documents: int
    first: int
    """The place of the first document among those of all segments."""


LENGTH_TYPES = ("uint8", "uint32")
"""The types of length codes: Lucene's codes are bytes, exact lengths are larger. Kernels are compiled for each."""
SEGMENTS = [
    f"SegmentArrays({BLOCKS}, {BLOCKS}, const {codes}[:,:], const bool[:], int64, int64)" for codes in LENGTH_TYPES
]
"""Its types for kernels."""


@dataclass(frozen=True, eq=False)
class Segment:
    """Documents 0 .. n - 1 and their posting lists.

    One inverted index serves all namespaces of a model: a term number belongs to one namespace, so a sum of
    models is searched in one pass.
    """

    numbers: np.ndarray
    """[n] the documents' insertion numbers, ascending: they break ties and are the keys of the stored documents."""
    lengths: np.ndarray
    """[s, whole ranges] each document's length code in each namespace, padded with 0."""
    sizes: np.ndarray
    """[s, n] each document's length in each namespace, exactly: what statistics are counted from."""
    small: PostingLists
    """Posting lists of the values 1 to 4: most counts."""
    large: PostingLists
    """Posting lists of any values: higher counts, learned weights."""
    dense: Mapping[int, VectorRows] = field(default_factory=dict)
    """[n, dimensions] the documents' vectors, by the places of the namespaces that have dense ones."""
    ann: Mapping[int, AnnIndex] = field(default_factory=dict)
    """The ANN index of each dense namespace that has one."""
    tokens: Mapping[int, TokenRows] = field(default_factory=dict)
    """The documents' token vectors, by the places of the namespaces that have them."""
    matches: Mapping[int, VectorPostings] = field(default_factory=dict)
    """The posting lists that carry vectors, by the places of the namespaces that have them."""
    sequences: Mapping[int, TermSequences] = field(default_factory=dict)
    """The terms of documents in the order of the text, by the places of the namespaces that store them."""
    ngrams: Mapping[int, SuffixArray] = field(default_factory=dict)
    """The tokens of documents with their suffix array, by the places of the namespaces that have them."""

    def __post_init__(self) -> None:
        freeze(self)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def postings(self) -> int:
        return len(self.small) + len(self.large)

    @property
    def terms(self) -> np.ndarray:
        """The numbers of the terms that occur, ascending."""
        return distinct(np.concatenate([self.small.terms, self.large.terms]))

    def fits(self) -> bool:
        """Whether the arrays are consistent, judging only by their shapes and last entries."""
        spaces, n = self.sizes.shape
        range_count = -(-n // RANGE_SIZE)
        return (
            n == len(self)
            and n > 0
            and self.lengths.shape == (spaces, range_count * RANGE_SIZE)
            and self.small.fit()
            and self.large.fit()
            and len(self.small.values) == 0
            and len(self.large.values) == len(self.large)
            and len(self.large.maxima) == len(self.large.directory)
            and all(0 <= s < spaces and rows.ndim == 2 and len(rows) == n for s, rows in self.dense.items())
            and all(0 <= s < spaces and s not in self.dense and rows.fits(n) for s, rows in self.tokens.items())
            and all(0 <= s < spaces and s not in self.tokens and m.fits() for s, m in self.matches.items())
            and all(0 <= s < spaces and r.fits(n) for of in (self.sequences, self.ngrams) for s, r in of.items())
        )

    @cached_property
    def max_norms(self) -> dict[int, float]:
        """The length of the longest vector of each namespace with dense or token vectors."""
        vectors = {**self.dense, **{s: rows.vectors for s, rows in self.tokens.items()}}
        return {s: _max_norm(rows) for s, rows in vectors.items()}

    @cached_property
    def has_vector(self) -> dict[int, np.ndarray | None]:
        """Which documents have a vector in each namespace with dense or token vectors; None where all have."""
        masks = {s: self.sizes[s] > 0 for s in (*self.dense, *self.tokens)}
        return {s: None if mask.all() else mask for s, mask in masks.items()}

    @cached_property
    def lists_table(self) -> np.ndarray:
        """The arrays of the posting lists as a table for kernels.

        The entry of the values of large lists has their type in place of the number of columns; see `Blocks`.
        """
        small, large = self.small, self.large
        values, kind = large.value_bytes
        table = pack_arrays(
            small.directory.groups, small.directory.records, small.postings,
            large.directory.groups, large.directory.records, large.postings, large.maxima, values,
        )  # fmt: skip
        table[-1, 2] = kind
        return table

    @property
    def range_count(self) -> int:
        """How many document ranges there are."""
        return int(self.lengths.shape[1]) >> RANGE_BITS

    def open(self, terms: np.ndarray, allowed: np.ndarray | None = None, first: int = 0) -> OpenTerms:
        """The segment with the blocks of some terms, given by their numbers, as the kernels take them."""
        blocks, maxima = np.empty((len(terms), 4), np.int64), np.empty(len(terms))
        small = self.small.open(terms, self.range_count, blocks, maxima)
        large = self.large.open(terms, self.range_count, blocks, maxima, 2)
        mask = read_only_mask(allowed)
        return OpenTerms(SegmentArrays(small, large, self.lengths, mask, len(self.numbers), first), blocks)

    def frequencies(self, terms: np.ndarray, living: np.ndarray | None = None) -> np.ndarray:
        """In how many documents each of these terms occurs; in how many live ones, given `live_frequencies`."""
        if living is None:
            df: np.ndarray = self.small.frequencies(terms) + self.large.frequencies(terms)
            if (df > len(self)).any():
                raise DamagedSegmentError
            return df
        if len(living) != len(self.small.directory) + len(self.large.directory):
            raise DamagedSegmentError
        total = np.zeros(len(terms), np.int64)
        for lists, first in ((self.small, 0), (self.large, len(self.small.directory))):
            places, _ = lists.directory.find(terms)
            has_list = places >= 0
            total[has_list] += living[first + places[has_list]]
        if (total > len(self)).any():
            raise DamagedSegmentError
        return total

    def bytes_of(self, terms: np.ndarray) -> int:
        """How many bytes a namespace with these terms takes: its lists, lengths and the documents' numbers."""
        rows = (self.lengths.nbytes + self.sizes.nbytes) // len(self.sizes)
        return self.small.bytes_of(terms) + self.large.bytes_of(terms) + rows + self.numbers.nbytes

    def vector_bytes(self, space: int) -> int:
        """How many bytes the vectors of a namespace take with their ANN index, or its n-grams."""
        kinds: tuple[Mapping[int, VectorRows | TokenRows | VectorPostings | SuffixArray], ...]
        kinds = self.dense, self.tokens, self.matches, self.ngrams
        vectors = sum(kind[space].nbytes for kind in kinds if space in kind)
        return vectors + (self.ann[space].bytes if space in self.ann else 0)

    def list_of(self, term: int) -> tuple[np.ndarray, np.ndarray]:
        """The documents a term occurs in, ascending, and its values there."""
        both = [lists.list_of(term, len(self)) for lists in (self.small, self.large)]
        documents, values = (np.concatenate([arrays[i] for arrays in both]) for i in range(2))
        order = np.argsort(documents, kind="stable")
        return documents[order], values[order]


def _max_norm(rows: VectorRows) -> float:
    """The length of the longest of some vectors."""
    if isinstance(rows, ResidualRows):
        return rows.max_norm
    longest = 0.0
    for a in range(0, len(rows), RANGE_SIZE):
        z = min(a + RANGE_SIZE, len(rows))
        if storage_of(rows) == "float16":  # whose squares 32 bits can hold
            chunk = wide_rows(rows, a, z)
            squares = np.einsum("ij,ij->i", chunk, chunk).astype(np.float64) * (1 + 1e-6 * rows.shape[1])
        else:
            wide = rows[a:z].astype(np.float64)
            squares = np.einsum("ij,ij->i", wide, wide)
        longest = max(longest, float(np.sqrt(squares.max())))
    return longest


class OpenTerms(NamedTuple):
    """A segment for the kernels, and where in it the blocks of some terms are."""

    arrays: SegmentArrays
    blocks: np.ndarray
    """[n, 4] where the small blocks of each term start and end, and the large ones."""


def read_only_mask(allowed: np.ndarray | None) -> np.ndarray:
    """A mask of documents as one kind of array, so that kernels are compiled once; an empty one for None."""
    mask = _ALL if allowed is None else np.asarray(allowed).view()
    mask.flags.writeable = False
    return mask


@njit
def open_in_both(small, large, terms, range_count, small_blocks, large_blocks, places, blocks, maxima):
    """Put the blocks of terms into arrays, where they start and end into `blocks`, largest values into `maxima`.

    `small`, `large`: the directories; `places`: memory for so many terms. False for damage.
    """
    if not open_lists(
        small.groups, small.records, terms, small_blocks.postings.size, range_count, small_blocks.ranges,
        small_blocks.starts, places, blocks, 0,
    ) or not open_lists(
        large.groups, large.records, terms, large_blocks.postings.size, range_count, large_blocks.ranges,
        large_blocks.starts, places, blocks, 2,
    ):  # fmt: skip
        return False
    for i in range(terms.size):
        if places[i] >= 0:
            maxima[i] = large.maxima[places[i]]
    return True


def smallest_numbers(numbers: np.ndarray) -> np.ndarray:
    """Ascending insertion numbers in four bytes as long as they fit."""
    wide = len(numbers) > 0 and int(numbers[-1]) >= 1 << 32
    return numbers.astype(np.int64 if wide else np.uint32, copy=False)


def smallest_type(array: np.ndarray) -> np.ndarray:
    """The same whole numbers in one byte where they fit, else in two or four; real numbers in four."""
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    if array.size and int(array.min()) < 0:
        raise ValueError("what is stored must not be negative")
    largest = int(array.max()) if array.size else 0
    kind = np.uint8 if largest < 1 << 8 else np.uint16 if largest < 1 << 16 else np.uint32
    return array.astype(kind, copy=False)


def common_type(types: Iterable[np.dtype]) -> np.dtype:
    """The smallest type that values of these types, as `smallest_type` gives them, can be stored in.

    >>> common_type([np.dtype(np.uint8), np.dtype(np.uint16)]), common_type([np.dtype(np.uint8), np.dtype("f4")])
    (dtype('uint16'), dtype('float32'))
    """
    return max(types, key=lambda kind: (kind.kind == "f", kind.itemsize), default=np.dtype(np.uint8))


class PostingRows(NamedTuple):
    """The terms of some documents in CSR form, no term twice in a row."""

    first: int
    """The row of the first document in the segment."""
    pointers: np.ndarray
    indices: np.ndarray
    values: np.ndarray


@njit(
    *(
        f"const int64[:], const uint32[:], const {values}[:], int64, int64, int64, int64[:], uint32[:], {values}[:]"
        for values in VALUE_TYPES
    )
)
def _sort_by_term(pointers, indices, values, first_document, first, end, free, documents, out):
    """Put the postings of the terms from `first` to `end` where their lists are; `free`: where each list goes on."""
    for row in range(pointers.size - 1):
        for x in range(pointers[row], pointers[row + 1]):
            term = np.int64(indices[x])
            if first <= term < end:
                at = free[term]
                free[term] = at + 1
                documents[at] = first_document + row
                out[at] = values[x]


@njit("const uint32[:], int64, int64, int64[:]")
def _count_terms(indices, first, end, counts):
    """Count the postings of each term from `first` to `end`."""
    for x in range(indices.size):
        if first <= indices[x] < end:
            counts[indices[x]] += 1


_LEAST = 1 << 18  # postings that a thread sorts


def _invert(rows: list[PostingRows]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows to lists by a counting sort; documents come out ascending because rows are read in order.

    Each thread reads all rows and sorts the postings of its own terms. The list is empty afterwards, so that nobody
    keeps the rows any longer.
    """
    total, size, kinds = 0, 0, set()
    for part in rows:
        total += part.indices.size
        size = max(size, int(part.indices.max()) + 1) if part.indices.size else size
        kinds.add(part.values.dtype)
    kind = kinds.pop() if len(kinds) == 1 else common_type(kinds)
    if kinds:
        rows[:] = [part._replace(values=part.values.astype(kind, copy=False)) for part in rows]
    starts = np.zeros(size + 1, np.int64)
    empty = np.empty if total < 2 * _LEAST else in_own_pages
    documents, out = empty(total, np.uint32), empty(total, kind)

    def count(a: int, z: int) -> None:
        for part in rows:
            _count_terms(part.indices, a, z, starts[1:])

    def sort(a: int, z: int) -> None:
        for part in rows:
            _sort_by_term(part.pointers, part.indices, part.values, part.first, a, z, free, documents, out)

    if total < 2 * _LEAST:
        count(0, size)
    else:
        in_threads(count, size, processors(), 1)
    np.cumsum(starts, out=starts)
    free = starts[:-1].copy()
    if total < 2 * _LEAST:
        sort(0, size)
    else:
        in_threads_by_size(sort, starts, _LEAST)
    rows.clear()
    return starts, documents, out


def by_document(segment: Segment) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The inverse of an inverted index: the documents of each range as CSR rows of pointers, term numbers, values."""
    kinds = [(lists, lists.table()) for lists in (segment.small, segment.large)]
    for first in range(0, len(segment), RANGE_SIZE):
        both = [lists.within(first // RANGE_SIZE, table) for lists, table in kinds]
        terms, places, values = (np.concatenate([arrays[i] for arrays in both]) for i in range(3))
        size = min(len(segment) - first, RANGE_SIZE)
        counts = np.bincount(places, minlength=size)
        if len(counts) > size:
            raise DamagedSegmentError
        order = np.argsort(places, kind="stable")
        yield np.append(0, np.cumsum(counts)), terms[order], values[order]


def pad_lengths(lengths: np.ndarray) -> np.ndarray:
    """Length codes padded to whole ranges, so that kernels need no check at the end of the last range."""
    missing = -lengths.shape[1] % RANGE_SIZE
    codes = lengths.astype(np.uint8 if lengths.dtype == np.uint8 else np.uint32, copy=False)
    return np.ascontiguousarray(np.pad(codes, ((0, 0), (0, missing))))


def build_segment(
    numbers: np.ndarray,
    lengths: np.ndarray,
    sizes: np.ndarray,
    pointers: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    dense: Mapping[int, VectorRows] | None = None,
    tokens: Mapping[int, TokenRows] | None = None,
    matches: Mapping[int, VectorPostings] | None = None,
    ngrams: Mapping[int, SuffixArray] | None = None,
) -> Segment:
    """A segment from the documents' rows in CSR form; `indices` are term numbers, no term twice in a row.

    Several namespaces: all rows of the first, then all rows of the second, and so on.

    >>> lengths = np.array([[2, 3]])
    >>> rows = np.array([0, 2, 3]), np.array([7, 5, 7]), np.array([1, 1, 30])
    >>> s = build_segment(np.array([0, 1]), lengths, lengths, *rows)
    >>> s.terms.tolist(), [x.tolist() for x in s.list_of(7)]
    ([5, 7], [[0, 1], [1, 30]])
    """
    pointers, indices = pointers.astype(np.int64, copy=False), indices.astype(np.uint32, copy=False)
    values, count = smallest_type(values), max(len(numbers), 1)
    rows = []
    for first in range(0, len(pointers) - 1, count):
        own = pointers[first : first + count + 1]
        part = slice(own[0], own[-1])
        rows.append(PostingRows(0, own - own[0], indices[part], values[part]))
    return build_segment_of(numbers, lengths, sizes, rows, dense, tokens, matches, ngrams)


def build_segment_of(
    numbers: np.ndarray,
    lengths: np.ndarray,
    sizes: np.ndarray,
    rows: list[PostingRows],
    dense: Mapping[int, VectorRows] | None = None,
    tokens: Mapping[int, TokenRows] | None = None,
    matches: Mapping[int, VectorPostings] | None = None,
    ngrams: Mapping[int, SuffixArray] | None = None,
) -> Segment:
    """As `build_segment`, from the rows of all namespaces in parts; the list is emptied as soon as they are sorted."""
    starts, documents, out = _invert(rows)
    present = np.flatnonzero(np.diff(starts))
    small, large = pack(present, np.append(starts[present], len(documents)), documents, out)
    return Segment(
        numbers=smallest_numbers(numbers),
        lengths=pad_lengths(smallest_type(lengths)),
        sizes=np.ascontiguousarray(smallest_type(sizes)),
        small=small,
        large=large,
        dense=dense or {},
        tokens=tokens or {},
        matches=matches or {},
        ngrams=ngrams or {},
    )
