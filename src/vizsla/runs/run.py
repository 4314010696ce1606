"""Runs: the rankings of many queries, read and written in TREC's format, or packed in a compact file."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.npz import load_npz
from vizsla.plain_data import parse_json
from vizsla.runs.files import check_no_whitespace, numbered_lines

if TYPE_CHECKING:
    from collections.abc import Collection


class Ranking(Sequence[tuple[str, float]]):
    """Documents and their scores, best first; equal scores keep their order. A sequence of (document, score) pairs.

    >>> ranking = Ranking(["a", "b", "c"], [1.0, 3.0, 1.0])
    >>> list(ranking), ranking.documents
    ([('b', 3.0), ('a', 1.0), ('c', 1.0)], ['b', 'a', 'c'])
    """

    __slots__ = ("documents", "scores")

    def __init__(self, documents: list[str], scores: Sequence[float] | np.ndarray) -> None:
        values = _finite(scores)
        if len(values) != len(documents):
            raise ValueError("a ranking needs a score for every document")
        if len(values) > 1 and (values[1:] > values[:-1]).any():
            order = np.argsort(-values, kind="stable")
            documents, values = [documents[i] for i in order.tolist()], values[order]
        self.documents, self.scores = documents, values

    @classmethod
    def of_many(cls, documents: Iterable[list[str]], scores: np.ndarray, bounds: Sequence[int]) -> list[Ranking]:
        """The rankings of several queries, each best first: the i-th has the scores from bounds[i] to bounds[i + 1].

        >>> Ranking.of_many([["a", "b"], ["c"]], np.array([2.0, 1.0, 3.0], np.float32), [0, 2, 3])
        [Ranking([('a', 2.0), ('b', 1.0)]), Ranking([('c', 3.0)])]
        """
        values = _finite(scores)
        rankings = []
        for ids, (a, z) in zip(documents, pairwise(bounds), strict=True):
            ranking = cls.__new__(cls)
            ranking.documents, ranking.scores = ids, values[a:z]
            rankings.append(ranking)
        return rankings

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[str, float]]) -> Ranking:
        """A ranking from pairs; a document that appears twice is refused."""
        if isinstance(pairs, Ranking):
            return pairs
        listed = list(pairs)
        documents = [d for d, _ in listed]
        if len(set(documents)) < len(documents):
            twice = next(d for d in documents if documents.count(d) > 1)
            raise VizslaError(f"a ranking has the document {twice!r} twice")
        return cls(documents, [s for _, s in listed])

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return zip(self.documents, self.scores.tolist(), strict=True)

    @overload
    def __getitem__(self, at: int) -> tuple[str, float]: ...
    @overload
    def __getitem__(self, at: slice) -> Ranking: ...
    def __getitem__(self, at: int | slice) -> tuple[str, float] | Ranking:
        if isinstance(at, slice):
            return Ranking(self.documents[at], self.scores[at])
        return self.documents[at], float(self.scores[at])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Ranking):
            return self.documents == other.documents and np.array_equal(self.scores, other.scores)
        return list(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ranking({list(self)!r})"

    def without(self, document: str) -> Ranking:
        """The ranking without a document."""
        if document not in self.documents:
            return self
        keep = [i for i, d in enumerate(self.documents) if d != document]
        return Ranking([self.documents[i] for i in keep], self.scores[keep])

    def untied(self, *, by_id: bool = True) -> Ranking:
        """The ranking without equal scores: each is lowered a little, in the order of ids or in the given order.

        A run written like this has the same order for every reader, whatever its rule for ties.
        """
        most = float(np.finfo(np.float32).max) / 2  # leaves space below the lowest score
        scores = np.clip(self.scores, -most, most).astype(np.float32)
        if len(scores) < 2 or (scores[1:] < scores[:-1]).all():
            return self
        documents = self.documents
        if by_id:
            documents = [d for _, d in sorted(zip((-scores).tolist(), documents, strict=True))]
        for i in range(1, len(scores)):
            if scores[i] >= scores[i - 1]:
                scores[i] = np.nextafter(scores[i - 1], np.float32(-np.inf))
        return Ranking(documents, scores)


def _finite(scores: Sequence[float] | np.ndarray) -> np.ndarray:
    """Scores as an array; those that are no numbers are refused."""
    values = np.asarray(scores, np.float64)
    if not np.isfinite(values).all():
        raise VizslaError("a ranking has a score that is not a finite number")
    return values


class Run(Mapping[str, Ranking]):
    """For each query its documents with their scores, best first.

    >>> run = Run({"q1": [("d2", 3.0), ("q1", 2.0)]})
    >>> run["q1"].documents, run.without_own_ids()["q1"]
    (['d2', 'q1'], Ranking([('d2', 3.0)]))
    """

    def __init__(self, rankings: Mapping[str, Iterable[tuple[str, float]]], name: str = "") -> None:
        self._rankings = {query: Ranking.of_pairs(pairs) for query, pairs in rankings.items()}
        self.name = name

    def __getitem__(self, query: str) -> Ranking:
        return self._rankings[query]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rankings)

    def __len__(self) -> int:
        return len(self._rankings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self._rankings == other._rankings

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<Run{name}: {len(self):,} queries, {sum(map(len, self.values())):,} documents>"

    def only(self, queries: Collection[str]) -> Run:
        """The rankings of some queries only."""
        return Run({q: ranking for q, ranking in self.items() if q in queries}, self.name)

    def top(self, k: int) -> Run:
        """The best k documents of each query."""
        return Run({q: ranking[:k] for q, ranking in self.items()}, self.name)

    def without_own_ids(self) -> Run:
        """The run without documents that have the id of their query, as with Anserini's -removeQuery."""
        return Run({q: ranking.without(q) for q, ranking in self.items()}, self.name)

    def untied(self, *, by_id: bool = True) -> Run:
        """The run without equal scores: ties go by document id, as Anserini writes its runs, or keep their order."""
        return Run({q: ranking.untied(by_id=by_id) for q, ranking in self.items()}, self.name)

    def write(self, path: str | Path, tag: str = "") -> None:
        """Write TREC's six columns: query, Q0, document, rank, score, tag."""
        label = "_".join((tag or self.name or "vizsla").split())
        for query, ranking in self.items():  # before anything is written
            check_no_whitespace(query)
            check_no_whitespace(*(d for d in ranking.documents if not d or " " in d or not d.isprintable()))
        with Path(path).open("w", encoding="utf-8") as file:
            for query, ranking in self.items():
                for rank, (document, score) in enumerate(ranking, 1):
                    file.write(f"{query} Q0 {document} {rank} {score:.9g} {label}\n")

    @classmethod
    def read(cls, path: str | Path) -> Run:
        """Read TREC's six columns; documents are ranked by score, and equal scores keep the order of the file.

        A document that a query has twice, or a score that is not a finite number, is an error that names the line.
        """
        documents: dict[str, list[str]] = {}
        scores: dict[str, list[float]] = {}
        seen: dict[str, set[str]] = {}
        tag = ""
        for number, line in numbered_lines(Path(path)):
            columns = line.split()
            if len(columns) != 6:
                message = f"expected six columns (query Q0 document rank score tag), not {len(columns)}"
                raise InputError(message, file=str(path), line=number)
            query, _, document, rank, value, tag = columns
            if not _RANK.fullmatch(rank):
                message = f"{rank!r} is not a rank; expected six columns (query Q0 document rank score tag)"
                raise InputError(message, file=str(path), line=number)
            score = _score(value)
            if score is None:
                raise InputError(f"{value!r} is not a score", file=str(path), line=number)
            if query not in documents:
                documents[query], scores[query], seen[query] = [], [], set()
            if document in seen[query]:
                message = f"the document {document!r} appears a second time under the query {query!r}"
                raise InputError(message, file=str(path), line=number)
            seen[query].add(document)
            documents[query].append(document)
            scores[query].append(score)
        if not documents:
            raise InputError("the run is empty", file=str(path))
        return cls({q: Ranking(documents[q], scores[q]) for q in documents}, tag)


_RANK = re.compile(r"-?[0-9]{1,18}")


def _score(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text and text.isascii() else None


def read_run(source: str | Path | Mapping[str, Mapping[str, float] | Iterable[tuple[str, float]]]) -> Run:
    """A run from a file in TREC's format, or from the dictionaries of other tools: {query: {document: score}}.

    >>> read_run({"q1": {"d1": 1.0, "d2": 3.0}})["q1"].documents
    ['d2', 'd1']
    """
    if isinstance(source, Run):
        return source
    if isinstance(source, Mapping):
        rows = {str(q): pairs.items() if isinstance(pairs, Mapping) else pairs for q, pairs in source.items()}
        return Run(rows)
    return Run.read(source)


# Packed


def write_packed(run: Run, path: Path) -> None:
    """Write a run to a compact file, atomically: numbers in arrays, ids as text, nothing that could run code."""
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(d, len(numbers)) for ranking in run.values() for d in ranking.documents]
    arrays = {
        "queries": _as_array(list(run)),
        "documents": _as_array(list(numbers)),
        "sizes": np.array([len(ranking) for ranking in run.values()], np.uint32),
        "codes": np.array(codes, np.uint32),
        "scores": np.concatenate([*(ranking.scores for ranking in run.values()), np.zeros(0)]),
        "name": _as_array([run.name]),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def read_packed(path: Path) -> Run:
    """Read what `write_packed` wrote."""
    try:
        arrays = load_npz(path)
        queries, documents, (name,) = (_ids_in(arrays[key]) for key in ("queries", "documents", "name"))
        ends = np.cumsum(arrays["sizes"], dtype=np.int64)
        codes, scores = arrays["codes"].tolist(), arrays["scores"]
        ranked = [documents[code] for code in codes]
        starts = [0, *ends.tolist()]
        rows = zip(queries, starts[:-1], starts[1:], strict=True)
        return Run({q: Ranking(ranked[a:z], scores[a:z]) for q, a, z in rows}, name)
    except (ValueError, KeyError, IndexError, TypeError, VizslaError) as e:
        raise InputError(f"this is not a packed run ({e})", file=str(path)) from None


def _as_array(ids: list[str]) -> np.ndarray:
    return np.frombuffer(json.dumps(ids).encode(), np.uint8)


def _ids_in(text: np.ndarray) -> list[str]:
    return [str(one) for one in parse_json(text.tobytes())]
