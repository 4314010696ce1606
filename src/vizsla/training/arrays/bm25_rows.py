"""Documents as BM25 weighs them, and queries as vectors over the same terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vizsla.neural.heads.augmenter import AugmentedQueries
from vizsla.training.arrays.files import read_arrays
from vizsla.training.arrays.products import SparseMatrix
from vizsla.training.arrays.sparse_rows import SparseRows

MAX_QUERY_LENGTH = 64
"""Tokens of a query that an augmenter reads, special ones included."""
UNREAD = -2
"""The position of a word behind the last token that is read; its weight is 1."""


@dataclass(frozen=True, eq=False)
class BM25Rows:
    """Documents as BM25 weighs them. The first columns are the terms that can be added; the others occur in queries."""

    rows: SparseRows
    idf: np.ndarray
    """[columns] what a query term is multiplied by."""
    document_share: np.ndarray
    """[columns] the share of documents that contain the term."""

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that `read` takes."""
        rows = {f"rows_{name}": array for name, array in self.rows._asdict().items()}
        return {**rows, "idf": self.idf, "document_share": self.document_share}

    @classmethod
    def read(cls, file: str | Path) -> BM25Rows:
        """From a file with these arrays."""
        names = (*(f"rows_{name}" for name in SparseRows._fields), "idf", "document_share")
        *rows, idf, document_share = read_arrays(file, *names)
        return cls(SparseRows(*rows), idf, document_share)

    def only(self, documents: np.ndarray) -> BM25Rows:
        """Some of the documents; idf stays that of all of them."""
        begins = self.rows.pointers[documents].astype(np.int64)
        ends = np.cumsum(self.rows.pointers[documents + 1].astype(np.int64) - begins)
        pointers = np.concatenate([[0], ends])
        places = np.repeat(begins - pointers[:-1], np.diff(pointers)) + np.arange(pointers[-1])
        return replace(self, rows=SparseRows(pointers, self.rows.terms[places], self.rows.weights[places]))

    def matrix(self, device: torch.device) -> SparseMatrix:
        """[documents, columns] the documents as a sparse matrix."""
        pointers, terms, weights = self.rows
        rows = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
        return SparseMatrix.of(rows, terms, weights, (len(pointers) - 1, len(self.idf)), device)


class QueryTerms(NamedTuple):
    """The terms in queries: [queries, most, 2] pairs of a token's position and a term's column, -1 as padding."""

    pairs: np.ndarray

    @classmethod
    def of(cls, pairs: Sequence[Sequence[tuple[int, int]]]) -> QueryTerms:
        """From each query's pairs of a position, special tokens counted, and a column."""
        padded = np.full((len(pairs), max(1, *map(len, pairs), 1), 2), -1, np.int32)
        for row, query_pairs in zip(padded, pairs, strict=True):
            if query_pairs:
                row[: len(query_pairs)] = query_pairs
        return cls(padded)


def query_vectors(augmented: AugmentedQueries, own: Tensor, columns: int) -> Tensor:
    """[queries, columns] the query vectors, not yet multiplied by idf.

    A term of the query itself has w * (1 + a), another term a, where w is the weight of the term's token and a is how
    much the network adds. Of several tokens of a term the highest weight counts.
    """
    added, weights = augmented
    queries = torch.nn.functional.pad(added, (0, columns - added.shape[1])).flatten()
    exists = own[..., 1] >= 0
    row = torch.arange(len(own), device=own.device)[:, None].expand_as(exists)[exists]
    position, column = own[..., 0][exists].long(), own[..., 1][exists].long()
    keys, repeats = torch.unique(row * columns + column, return_inverse=True)
    token_weights = torch.where(position == UNREAD, 1.0, weights[row, position.clamp(min=0)])
    highest = weights.new_zeros(len(keys)).scatter_reduce(0, repeats, token_weights, "amax")
    return queries.index_copy(0, keys, highest * (1 + queries[keys])).view(len(own), columns)


def strongest(added: Tensor, own: Tensor, count: int) -> Tensor:
    """The added weights with all but the `count` highest of each query at 0; the query's own terms are not counted.

    A `count` of 0 keeps all.
    """
    if not 0 < count < added.shape[1]:
        return added
    columns = own[..., 1].long()
    is_own = torch.zeros(len(added), added.shape[1] + 1, dtype=torch.bool, device=added.device)
    is_own.scatter_(1, torch.where((columns >= 0) & (columns < added.shape[1]), columns, added.shape[1]), True)
    is_own = is_own[:, :-1]
    return added * is_own.scatter(1, added.masked_fill(is_own, 0).topk(count, 1).indices, True)
