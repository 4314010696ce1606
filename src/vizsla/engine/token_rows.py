"""Token vectors as they are stored: a vector for each token of each document, one document behind the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vizsla.engine.arrays import DamagedSegmentError
from vizsla.engine.residual_rows import ResidualRows
from vizsla.engine.stored_rows import StoredRows, stored_rows
from vizsla.engine.token_lists import TokenLists
from vizsla.engine.vector_rows import VectorRows, convert_rows


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
        """Whether the arrays can belong together, by their shapes and ends alone."""
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

    They are many and of length 1, and 32 bits would show in no result.
    """
    return "sq8" if store == "sq8" else "float16"


def convert_token_rows(rows: TokenRows, store: str) -> TokenRows:
    """The same token vectors, stored as an index does that stores dense vectors in a type."""
    return TokenRows(convert_rows(rows.vectors, token_store(store)), rows.starts)
