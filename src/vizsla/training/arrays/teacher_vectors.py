"""The vectors that a model gives queries and documents, whose products are a teacher's scores of a whole batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vizsla.errors import InputError
from vizsla.training.arrays.sparse_rows import SparseRows

_SIDES = ("queries", "documents")


class TeacherTokens(NamedTuple):
    """Token vectors of queries and documents, each text's behind those of the text before, and where they begin."""

    queries: np.ndarray
    query_starts: np.ndarray
    documents: np.ndarray
    document_starts: np.ndarray
    weight: np.ndarray
    """What scores are multiplied by, one number."""

    def scores(self, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """[queries, documents] the scores of late interaction of some texts, given by their places."""
        asked, sizes = _texts(self.queries, self.query_starts, queries)
        others, lengths = _texts(self.documents, self.document_starts, documents)
        scores = np.zeros((len(queries), len(documents)), np.float32)
        if len(asked) and len(others):
            rows, columns = np.flatnonzero(sizes), np.flatnonzero(lengths)
            best = np.maximum.reduceat(asked @ others.T, _begins(lengths[columns]), axis=1)
            scores[np.ix_(rows, columns)] = np.add.reduceat(best, _begins(sizes[rows]), axis=0)
        weighted: np.ndarray = scores * self.weight
        return weighted


@dataclass(frozen=True, eq=False)
class TeacherVectors:
    """Dense, sparse and token vectors of queries and documents; a model of one kind has none of the others."""

    numbers: np.ndarray
    """The numbers of the documents that have a vector, in order."""
    dense: tuple[np.ndarray, np.ndarray]
    """[queries, dimensions] and [documents, dimensions]."""
    sparse: tuple[SparseRows, SparseRows]
    """Rows of queries and of documents over the same terms."""
    tokens: TeacherTokens | None = None

    def scores(self, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """[queries, documents] the scores of some queries with some documents, given by their numbers."""
        rows = np.searchsorted(self.numbers, documents)
        dense = self.dense[0][queries].astype(np.float32) @ self.dense[1][rows].astype(np.float32).T
        total: np.ndarray = dense + _sparse_scores(*self.sparse, queries, rows)
        return total if self.tokens is None else total + self.tokens.scores(queries, rows)

    def save(self, folder: str | Path) -> None:
        """Write all arrays into a folder."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        np.save(path / "numbers.npy", self.numbers, allow_pickle=False)
        for part, array in () if self.tokens is None else self.tokens._asdict().items():
            np.save(path / f"tokens_{part}.npy", array, allow_pickle=False)
        for name, matrix, rows in zip(_SIDES, self.dense, self.sparse, strict=True):
            np.save(path / f"{name}_dense.npy", matrix, allow_pickle=False)
            for part, array in rows._asdict().items():
                np.save(path / f"{name}_{part}.npy", array, allow_pickle=False)

    @classmethod
    def open(cls, folder: str | Path) -> TeacherVectors:
        """Saved vectors, mapped into memory."""
        path = Path(folder)

        def read(name: str) -> np.ndarray:
            array: np.ndarray = np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            return array

        try:
            dense = tuple(read(f"{name}_dense") for name in _SIDES)
            sparse = tuple(SparseRows(*(read(f"{name}_{part}") for part in SparseRows._fields)) for name in _SIDES)
            has_tokens = (path / "tokens_weight.npy").is_file()
            tokens = TeacherTokens(*(read(f"tokens_{p}") for p in TeacherTokens._fields)) if has_tokens else None
            return cls(read("numbers"), (dense[0], dense[1]), (sparse[0], sparse[1]), tokens)
        except (FileNotFoundError, ValueError) as e:
            raise InputError(f"there are no vectors of a teacher here ({e})", file=str(folder)) from None


def _texts(vectors: np.ndarray, starts: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of some texts in 32 bits, and how many each of them has."""
    rows = [vectors[starts[text] : starts[text + 1]] for text in chosen.tolist()]
    return np.concatenate(rows).astype(np.float32), np.array([len(row) for row in rows])


def _begins(sizes: np.ndarray) -> np.ndarray:
    begins: np.ndarray = np.cumsum(sizes) - sizes
    return begins


def _sparse_scores(
    queries: SparseRows, documents: SparseRows, query_rows: np.ndarray, document_rows: np.ndarray
) -> np.ndarray:
    """The products of some rows of queries with some rows of documents."""
    owners, terms, weights = _rows(queries, query_rows)
    columns, places = np.unique(terms, return_inverse=True)
    left = np.zeros((len(query_rows), len(columns)), np.float32)
    left[owners, places] = weights
    right = np.zeros((len(document_rows), len(columns)), np.float32)
    owners, terms, weights = _rows(documents, document_rows)
    shared = np.isin(terms, columns)
    right[owners[shared], np.searchsorted(columns, terms[shared])] = weights[shared]
    return left @ right.T


def _rows(rows: SparseRows, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of some rows, the row in the choice, the term and the weight of each number."""
    begins = rows.pointers[chosen].astype(np.int64)
    sizes = rows.pointers[chosen + 1].astype(np.int64) - begins
    owners = np.repeat(np.arange(len(chosen)), sizes)
    places = np.arange(sizes.sum()) + np.repeat(begins - np.cumsum(sizes) + sizes, sizes)
    return owners, rows.terms[places], rows.weights[places]
