"""Vocabularies: the dimensions of sparse vectors, each a term in a namespace."""

from __future__ import annotations

from collections.abc import Sequence

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
