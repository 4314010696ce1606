"""All that an augmenter is trained from, in a folder: made where the data sets are, read where the GPU is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.errors import InputError
from vizsla.networks import Adder, Augmenter, packed
from vizsla.training.augmentation import LONGEST, AskedDev, AskedPairs
from vizsla.training.dev import framed

_TERMS, _START = "terms.json", "start.npy"
_QUERIES = 200  # that the head begins by


@dataclass(frozen=True, eq=False)
class Prepared:
    """The terms that can be added, what they begin as, and queries to learn and to judge by."""

    terms: Sequence[str]
    start: np.ndarray | None
    """[terms, hidden] what the head begins with; None where it is tied to the input embeddings."""
    pairs: Sequence[AskedPairs]
    dev: Sequence[AskedDev]

    def save(self, folder: str | Path) -> None:
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        for old in [path / _START, *path.glob("pairs-*.npz"), *path.glob("dev-*.npz")]:
            old.unlink(missing_ok=True)  # of an attempt before
        (path / _TERMS).write_text(json.dumps(list(self.terms), ensure_ascii=False), "utf-8")
        if self.start is not None:
            np.save(path / _START, self.start, allow_pickle=False)
        for number, pairs in enumerate(self.pairs):
            pairs.save(path / f"pairs-{number}.npz")
        for number, dev in enumerate(self.dev):
            dev.save(path / f"dev-{number}.npz")

    @classmethod
    def open(cls, folder: str | Path) -> Prepared:
        path = Path(folder)
        try:
            terms = json.loads((path / _TERMS).read_text("utf-8"))
        except (OSError, ValueError):
            raise InputError(f"there is nothing prepared here (no {_TERMS})", file=str(folder)) from None
        start = np.load(path / _START, allow_pickle=False) if (path / _START).exists() else None
        files = {name: sorted(path.glob(f"{name}-*.npz"), key=_number) for name in ("pairs", "dev")}
        return cls(terms, start, [*map(AskedPairs.open, files["pairs"])], [*map(AskedDev.open, files["dev"])])

    def network(self, encoder: Any, rank: int = 0, weighs: bool = True) -> Augmenter:
        """An augmenter to be trained: it begins close to BM25, as some of the queries show."""
        tied = encoder.embeddings.word_embeddings if self.start is None else None
        add = Adder(len(self.terms), encoder.hidden, rank, tied)
        if self.start is not None:
            add.start_from(self.start)
        network = Augmenter(encoder, add, weighs)
        queries = self.pairs[0].queries
        chosen = range(min(len(queries), _QUERIES))
        network.calm(packed(*framed(queries, chosen, "cpu", longest=LONGEST), 1 << 12).chunks)
        return network


def _number(file: Path) -> int:
    return int(file.stem.rpartition("-")[2])
