"""What every peer engine offers to the benchmark, and the small things all adapters share.

A peer is a class derived from `Peer`. `serve.py` holds one of them in a process of its own, does the timing, and
talks to the orchestrator. Data is a folder with `documents/` and `queries/`, each a folder of `pointers.npy`
(int64, rows + 1), `terms.npy` (uint32) and, for learned-sparse vectors, `weights.npy` (uint16).
"""

# ruff: noqa: ARG002  # methods that only refuse

from __future__ import annotations

import importlib.metadata
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

K1 = 0.9
B = 0.4

Hits = tuple[Sequence[Any], Sequence[float]]  # ids and scores of one query, best first


class Refused(Exception):
    """The peer cannot do what was asked; the text says why."""


@dataclass
class Rows:
    """Documents or queries: row i has the terms (and weights) from pointers[i] to pointers[i + 1]."""

    pointers: np.ndarray
    terms: np.ndarray
    weights: np.ndarray | None

    @classmethod
    def load(cls, folder: Path, limit: int | None = None) -> Rows:
        pointers = np.load(folder / "pointers.npy")
        if limit is not None:
            pointers = pointers[: limit + 1]
        end = int(pointers[-1])
        terms = np.load(folder / "terms.npy", mmap_mode="r")[:end]
        weights = folder / "weights.npy"
        found = np.load(weights, mmap_mode="r")[:end] if weights.exists() else None
        return cls(pointers, np.ascontiguousarray(terms), None if found is None else np.ascontiguousarray(found))

    def __len__(self) -> int:
        return len(self.pointers) - 1

    def row(self, number: int) -> np.ndarray:
        return self.terms[self.pointers[number] : self.pointers[number + 1]]

    def row_weights(self, number: int) -> np.ndarray:
        if self.weights is None:
            raise Refused("this peer needs learned-sparse vectors, but there is no weights.npy")
        return self.weights[self.pointers[number] : self.pointers[number + 1]]

    def words(self, number: int) -> str:
        """The row as text of plain ASCII tokens, for peers that only read text."""
        return " ".join(f"t{t}" for t in self.row(number).tolist())


class Peer(ABC):
    """One engine. `build*` write an index, `open` loads it, the rest searches it with one thread."""

    name = ""
    package = ""  # the package whose version counts
    kind = "bm25"  # or "sparse"
    notes = ""
    warm = 300  # searches to run, untimed, before a number of results is timed for the first time

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}  # what a command may change with "options"

    def set(self, options: dict[str, Any]) -> None:
        unknown = options.keys() - self.settings.keys()
        if unknown:
            raise Refused(f"{self.name} has no setting {', '.join(sorted(unknown))}; it has {list(self.settings)}")
        self.settings.update(options)

    def version(self) -> str:
        return importlib.metadata.version(self.package)

    def build(self, data: Path, folder: Path, threads: int) -> dict[str, Any]:
        """Index analysed documents. Returns anything worth reporting beside time and size."""
        raise Refused(f"{self.name} does not index analysed documents")

    def build_from_text(self, files: list[Path], folder: Path, threads: int) -> dict[str, Any]:
        """Index raw JSON lines with the peer's own English analysis, storing ids and no text."""
        raise Refused(f"{self.name} does not index text")

    @abstractmethod
    def open(self, folder: Path) -> None:
        """Load an index."""

    @abstractmethod
    def prepare(self, queries: Rows) -> list[Any]:
        """Query objects made from term numbers beforehand, not timed."""

    def batch(self, queries: list[Any], k: int) -> Any:
        """All queries in one go, in the fastest way the peer has with one thread. Timed."""
        return [self.one(query, k) for query in queries]

    def one(self, query: Any, k: int) -> Any:
        """One query. Timed. A peer without it has a `batch` and a `single` of its own."""
        raise Refused(f"{self.name} does not search query by query")

    def single(self, queries: list[Any], k: int) -> tuple[list[float], Any]:
        """Query after query, with the seconds of each."""
        seconds, results = [], []
        for query in queries:
            started = time.perf_counter()
            result = self.one(query, k)
            seconds.append(time.perf_counter() - started)
            results.append(result)
        return seconds, results

    def hits(self, results: Any) -> list[Hits]:
        """What `batch` or `single` returned, as row numbers and scores per query. Not timed."""
        return list(results)

    def ask(self, text: str, k: int) -> Hits:
        """A raw question in, document ids and scores out, as a Python user of the library calls it. Timed."""
        raise Refused(f"{self.name} does not search text")


def read_texts(files: list[Path]) -> Iterator[tuple[str, str]]:
    """Id and text (title and text in one) of every document in files of JSON lines."""
    for file in files:
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                document = json.loads(line)
                title = document.get("title") or ""
                yield document["_id"], f"{title}\n{document['text']}"


def read_questions(file: Path) -> list[str]:
    """Questions from a JSON list of strings or from JSON lines with a "text" field."""
    content = file.read_text(encoding="utf-8")
    if content.lstrip().startswith("["):
        return list(json.loads(content))
    return [json.loads(line)["text"] for line in content.splitlines() if line.strip()]


def counted(row: np.ndarray) -> dict[int, int]:
    """Distinct terms of a row, in the order they come, with how often each occurs."""
    counts: dict[int, int] = {}
    for term in row.tolist():
        counts[term] = counts.get(term, 0) + 1
    return counts


def table(hits: list[Hits], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids and scores of all queries as two arrays with k columns; -1 (or "") and 0 where there are fewer."""
    text = any(len(ids) and isinstance(ids[0], str) for ids, _ in hits)
    ids = np.full((len(hits), k), "" if text else -1, dtype=object if text else np.int64)
    scores = np.zeros((len(hits), k), dtype=np.float32)
    for number, (found, values) in enumerate(hits):
        size = min(len(found), k)
        ids[number, :size] = found[:size]
        scores[number, :size] = values[:size]
    return (ids.astype(str) if text else ids), scores
