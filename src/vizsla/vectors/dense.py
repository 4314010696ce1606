"""Dense vectors: rows of numbers under namespaces, alone or beside sparse ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vizsla.vectors.sparse import SparseVectors
from vizsla.vectors.token import TokenMatchVectors, TokenVectors


@dataclass(frozen=True, eq=False)
class DenseVectors:
    """A matrix for each namespace, all of the same length; `+` concatenates, `*` scales, `vectors[i]` shows a row.

    >>> a, b = (DenseVectors.of(np.eye(2), name) for name in ("a", "b"))
    >>> (a + 0.5 * b).dot(a + b).tolist()
    [[1.5, 0.0], [0.0, 1.5]]
    """

    parts: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, matrix: np.ndarray, namespace: str) -> DenseVectors:
        """[rows, dimensions] vectors of one namespace."""
        return cls({namespace: np.asarray(matrix)})

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))

    def __getitem__(self, row: int) -> dict[str, np.ndarray]:
        return {name: matrix[row] for name, matrix in self.parts.items()}

    def __mul__(self, factor: float) -> DenseVectors:
        return DenseVectors({name: matrix * factor for name, matrix in self.parts.items()})

    __rmul__ = __mul__

    def __add__(self, other: DenseVectors | SparseVectors | JoinedVectors) -> DenseVectors | JoinedVectors:
        if isinstance(other, JoinedVectors):
            return JoinedVectors(other.sparse, _joined(self, other.dense))
        if isinstance(other, SparseVectors):
            return JoinedVectors(other, self)
        return _joined(self, other) if isinstance(other, DenseVectors) else NotImplemented

    def __radd__(self, other: SparseVectors) -> JoinedVectors:
        return JoinedVectors(other, self)

    def dot(self, other: DenseVectors) -> np.ndarray:
        """All inner products, row by row; vectors are matched by namespace."""
        total = np.zeros((len(self), len(other)))
        for name, matrix in self.parts.items():
            if name in other.parts:
                total += matrix.astype(np.float64) @ other.parts[name].astype(np.float64).T
        return total


def _joined(one: DenseVectors, other: DenseVectors) -> DenseVectors:
    if len(one) != len(other):
        raise ValueError(f"vectors to concatenate need equally many rows, not {len(one)} and {len(other)}")
    if both := set(one.parts) & set(other.parts):
        raise ValueError(f"namespaces must differ to be joined, and {both.pop()!r} is in both")
    return DenseVectors({**one.parts, **other.parts})


@dataclass(frozen=True, eq=False)
class JoinedVectors:
    """Sparse and dense vectors of the same texts: what a sum of both kinds of models makes."""

    sparse: SparseVectors
    dense: DenseVectors

    def __post_init__(self) -> None:
        if len(self.sparse) != len(self.dense):
            raise ValueError(
                f"vectors to concatenate need equally many rows, not {len(self.sparse)} and {len(self.dense)}"
            )

    def __len__(self) -> int:
        return len(self.sparse)

    def __mul__(self, factor: float) -> JoinedVectors:
        return JoinedVectors(self.sparse * factor, self.dense * factor)

    __rmul__ = __mul__

    def __add__(self, other: DenseVectors | SparseVectors | JoinedVectors) -> JoinedVectors:
        if isinstance(other, SparseVectors):
            return JoinedVectors(self.sparse + other, self.dense)
        if isinstance(other, DenseVectors):
            return JoinedVectors(self.sparse, _joined(self.dense, other))
        if not isinstance(other, JoinedVectors):
            return NotImplemented
        return JoinedVectors(self.sparse + other.sparse, _joined(self.dense, other.dense))

    def __radd__(self, other: SparseVectors) -> JoinedVectors:
        return JoinedVectors(other + self.sparse, self.dense)

    def dot(self, other: JoinedVectors) -> np.ndarray:
        """All inner products, row by row."""
        total: np.ndarray = self.sparse.dot(other.sparse) + self.dense.dot(other.dense)
        return total


Vectors = SparseVectors | DenseVectors | JoinedVectors | TokenVectors | TokenMatchVectors
"""What models make of texts."""
