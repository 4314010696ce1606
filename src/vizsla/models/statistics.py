"""Statistics of a collection, which BM25 needs before a query means anything; and length codes of documents."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vizsla.errors import InputError, UnknownNameError
from vizsla.npz import load_npz
from vizsla.plain_data import DescriptionError, check_type


class Statistics(Protocol):
    """The statistics of one namespace over the documents that are alive."""

    @property
    def documents(self) -> int:
        """How many documents have at least one term here."""

    @property
    def total_length(self) -> int:
        """How many terms, repeats counted, all documents have here."""

    @property
    def longest(self) -> int:
        """How many terms the longest document has here."""

    def document_frequencies(self, terms: Sequence[str]) -> np.ndarray:
        """In how many documents each term occurs; 0 for unknown terms."""


def average_length(statistics: Statistics) -> float:
    """The mean length of the documents that have any term; 1 where there are none."""
    return statistics.total_length / statistics.documents if statistics.documents else 1.0


@dataclass(frozen=True)
class CountedStatistics:
    """Statistics counted in memory.

    >>> s = CountedStatistics(documents=2, total_length=5, longest=3, frequencies={"dog": 2})
    >>> average_length(s), s.document_frequencies(["dog", "cat"]).tolist()
    (2.5, [2, 0])
    """

    documents: int
    total_length: int
    longest: int
    frequencies: Mapping[str, int] = field(repr=False)

    def document_frequencies(self, terms: Sequence[str]) -> np.ndarray:
        return np.array([self.frequencies.get(t, 0) for t in terms], np.int64)


def save_statistics(statistics: CountedStatistics, folder: Path) -> list[Any]:
    """Write counts to a file named by their hash; returns the description that `load_statistics` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    terms = "".join(statistics.frequencies).encode("utf-8", "surrogatepass")
    lengths = np.fromiter(map(len, statistics.frequencies), np.int64, len(statistics.frequencies))
    counts = np.fromiter(statistics.frequencies.values(), np.int64, len(statistics.frequencies))
    name = hashlib.sha256(terms + lengths.tobytes() + counts.tobytes()).hexdigest()[:12]
    with (folder / f"{name}.npz").open("wb") as file:
        np.savez(file, terms=np.frombuffer(terms, np.uint8), lengths=lengths, counts=counts)
        file.flush()
        os.fsync(file.fileno())
    return [name, statistics.documents, statistics.total_length, statistics.longest]


def load_statistics(description: Sequence[Any] | None, folder: Path) -> CountedStatistics | None:
    """The counts that `save_statistics` wrote to a folder, by the description it returned; None for None."""
    if description is None:
        return None
    if len(description) != 4:
        raise DescriptionError("statistics are a name and three numbers")
    name, documents, total, longest = description
    check_type("the name of statistics", name, "str")
    for number in (documents, total, longest):
        check_type("a number of statistics", number, "int")
    file = folder / f"{name}.npz"
    try:
        kept = load_npz(file)
        text = kept["terms"].tobytes().decode("utf-8", "surrogatepass")
        ends = np.cumsum(kept["lengths"]).tolist()
        terms = [text[a:z] for a, z in pairwise([0, *ends])]
        frequencies = dict(zip(terms, kept["counts"].tolist(), strict=True))
    except (OSError, ValueError, KeyError) as e:
        raise InputError(f"these are not frozen statistics ({e})", file=str(file)) from None
    return CountedStatistics(documents, total, longest, frequencies)


_EXACT_BELOW = 24  # codes below this are the length itself; above, four significant bits are kept


def lucene_codes(lengths: np.ndarray) -> np.ndarray:
    """Lengths in one byte, as Lucene codes them: exact below 40, four significant bits above.

    >>> lucene_codes(np.array([0, 39, 40, 41, 42, 1000])).tolist()
    [0, 39, 40, 40, 41, 87]
    """
    rest = np.maximum(lengths.astype(np.int64) - _EXACT_BELOW, 0)
    bits = np.frexp(rest.astype(np.float64))[1]  # the number of binary digits; 0 for 0
    shift = np.maximum(bits - 4, 0)
    packed = np.where(bits < 4, rest, ((rest >> shift) & 7) | ((shift + 1) << 3))
    return np.where(lengths < _EXACT_BELOW, lengths, _EXACT_BELOW + packed).astype(np.uint8)


def lucene_lengths() -> np.ndarray:
    """The length each of the 256 codes stands for."""
    codes = np.arange(256)
    packed = np.maximum(codes - _EXACT_BELOW, 0)
    shift = (packed >> 3) - 1
    long = ((packed & 7) | 8) << np.maximum(shift, 0)
    return np.where(codes < _EXACT_BELOW, codes, _EXACT_BELOW + np.where(shift < 0, packed, long))


def encode_lengths(scheme: str, lengths: np.ndarray) -> np.ndarray:
    """Length codes by the scheme `lucene` (one byte) or `exact`."""
    return lucene_codes(lengths) if scheme == "lucene" else lengths.astype(np.uint32)


def decoded_lengths(scheme: str, longest: int) -> np.ndarray:
    """The length every code stands for; `exact` codes go up to the longest document's."""
    return lucene_lengths() if scheme == "lucene" else np.arange(longest + 1)


def check_scheme(scheme: str) -> None:
    if scheme not in ("lucene", "exact"):
        raise UnknownNameError("length coding", scheme, ("lucene", "exact"))
