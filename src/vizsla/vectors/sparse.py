"""Sparse vectors: rows in CSR form, one for each text, over a vocabulary of terms in namespaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.lazy import cached_property


class Vocabulary:
    """Terms under namespaces, numbered from 0; the lexical "cat" and the word piece "cat" never collide.

    >>> words, pieces = Vocabulary("text", ["cat", "dog"]), Vocabulary("pieces", ["cat"])
    >>> both = words + pieces
    >>> len(both), both.number("pieces", "cat"), both[1]
    (3, 2, ('text', 'dog'))
    """

    def __init__(self, namespace: str, terms: Sequence[str]) -> None:
        self.parts: tuple[tuple[str, Sequence[str]], ...] = ((namespace, terms),)
        self._sizes: tuple[int, ...] = (
            len(terms),
        )  # terms may be a growing list; this vocabulary is what it holds now

    @classmethod
    def _joined(cls, vocabularies: Sequence[Vocabulary]) -> Vocabulary:
        out = cls.__new__(cls)
        out.parts = tuple(part for v in vocabularies for part in v.parts)
        out._sizes = tuple(size for v in vocabularies for size in v._sizes)
        if len(set(out.namespaces)) < len(out.parts):
            raise ValueError(f"namespaces must differ to be joined, not {', '.join(out.namespaces)}")
        return out

    def __add__(self, other: Vocabulary) -> Vocabulary:
        return Vocabulary._joined([self, other])

    @property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.parts)

    def __len__(self) -> int:
        return sum(self._sizes)

    def __getitem__(self, number: int) -> tuple[str, str]:
        for (namespace, terms), size in zip(self.parts, self._sizes, strict=True):
            if number < size:
                return namespace, terms[number]
            number -= size
        raise KeyError(number)

    @cached_property
    def _numbers(self) -> dict[tuple[str, str], int]:
        return {self[i]: i for i in range(len(self))}

    def number(self, namespace: str, term: str) -> int | None:
        """The number of a term, or None."""
        return self._numbers.get((namespace, term))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary) or self.namespaces != other.namespaces:
            return False
        if self._sizes != other._sizes:
            return False
        pairs = zip(self.parts, other.parts, self._sizes, strict=True)
        return all(a is b or list(a[:n]) == list(b[:n]) for (_, a), (_, b), n in pairs)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class SparseVectors:
    """Row i has the weights `values[s]` at the dimensions `indices[s]`, s = slice(pointers[i], pointers[i + 1]).

    `+` concatenates two sets of rows (their dot products add up), `*` scales, `rows[i]` shows a row.

    >>> v = SparseVectors.from_rows([{"cat": 1.0, "dog": 2.0}, {}], "text")
    >>> w = SparseVectors.from_rows([{"cat": 3.0}, {"##s": 1.0}], "pieces")
    >>> (v + 0.5 * w)[0]
    {('text', 'cat'): 1.0, ('text', 'dog'): 2.0, ('pieces', 'cat'): 1.5}
    """

    vocabulary: Vocabulary
    pointers: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, float]], namespace: str) -> SparseVectors:
        """Vectors from mappings of terms to weights; weights of 0 are left out."""
        numbers: dict[str, int] = {}
        pointers, indices, values = [0], [], []
        for row in rows:
            for term, weight in row.items():
                if weight != 0:
                    indices.append(numbers.setdefault(term, len(numbers)))
                    values.append(weight)
            pointers.append(len(indices))
        vocabulary = Vocabulary(namespace, list(numbers))
        return cls(vocabulary, np.array(pointers), np.array(indices, np.int64), np.array(values, np.float64))

    def __len__(self) -> int:
        return len(self.pointers) - 1

    def __getitem__(self, row: int) -> dict[tuple[str, str], float]:
        s = slice(self.pointers[row], self.pointers[row + 1])
        return {self.vocabulary[int(i)]: float(v) for i, v in zip(self.indices[s], self.values[s], strict=True)}

    def __mul__(self, factor: float) -> SparseVectors:
        return SparseVectors(self.vocabulary, self.pointers, self.indices, self.values * factor)

    __rmul__ = __mul__

    def __add__(self, other: SparseVectors) -> SparseVectors:
        if not isinstance(other, SparseVectors):
            return NotImplemented
        if len(self) != len(other):
            raise ValueError(f"vectors to concatenate need equally many rows, not {len(self)} and {len(other)}")
        mine, theirs = np.diff(self.pointers), np.diff(other.pointers)
        pointers = np.concatenate([[0], np.cumsum(mine + theirs)])
        row = np.concatenate([np.repeat(np.arange(len(self)), n) for n in (mine, theirs)])
        order = np.argsort(row, kind="stable")
        indices = np.concatenate([self.indices, other.indices + len(self.vocabulary)])[order]
        values = np.concatenate([self.values, other.values])[order]
        return SparseVectors(self.vocabulary + other.vocabulary, pointers, indices, values)

    def dot(self, other: SparseVectors) -> np.ndarray:
        """All inner products, row by row: an exhaustive reference, dense in memory. Terms are matched by name."""
        mine = np.zeros((len(self), len(self.vocabulary)))
        rows = np.repeat(np.arange(len(self)), np.diff(self.pointers))
        np.add.at(mine, (rows, self.indices), self.values)
        out = np.zeros((len(self), len(other)))
        for j in range(len(other)):
            for (namespace, term), weight in other[j].items():
                number = self.vocabulary.number(namespace, term)
                if number is not None:
                    out[:, j] += mine[:, number] * weight
        return out
