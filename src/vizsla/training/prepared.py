"""All that an augmenter is trained from, in a folder: made where the data sets are, read where the GPU is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.errors import InputError
from vizsla.networks import Adder, Augmenter, Batch, packed
from vizsla.training.augmentation import LONGEST, AskedDev, AskedPairs, read_arrays
from vizsla.training.corpus import TokenCorpus
from vizsla.training.dev import framed

_TERMS, _WORDS = "terms.json", "words.npz"
_QUERIES = 200  # that the head begins by
_TOKENS = 1 << 14  # encoded together


@dataclass(frozen=True, eq=False)
class Prepared:
    """The terms that can be added, how they are spelt, and queries to learn and to judge by."""

    terms: Sequence[str]
    words: TokenCorpus | None
    """The pieces of the word each stands for; None where the head is tied to the input embeddings."""
    pairs: Sequence[AskedPairs]
    dev: Sequence[AskedDev]

    def save(self, folder: str | Path) -> None:
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        for old in [path / _WORDS, *path.glob("pairs-*.npz"), *path.glob("dev-*.npz")]:
            old.unlink(missing_ok=True)  # of an attempt before
        (path / _TERMS).write_text(json.dumps(list(self.terms)), "utf-8")
        if self.words is not None:
            np.savez(path / _WORDS, ids=self.words.ids, offsets=self.words.offsets)
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
        words = None
        if (path / _WORDS).exists():
            words = TokenCorpus(*read_arrays(path / _WORDS, "ids", "offsets"))
        files = {name: sorted(path.glob(f"{name}-*.npz"), key=_number) for name in ("pairs", "dev")}
        if not files["pairs"]:
            raise InputError("there are no packed queries here", file=str(folder))
        return cls(terms, words, [*map(AskedPairs.open, files["pairs"])], [*map(AskedDev.open, files["dev"])])

    def network(self, encoder: Any, rank: int = 0, weighs: bool = True, trust: float = 1.0) -> Augmenter:
        """An augmenter to be trained: it begins close to BM25, as some of the queries show.

        A term begins as what the encoder makes of its word alone, so that words like the query are added at first.
        """
        tied = encoder.embeddings.word_embeddings if self.words is None else None
        network = Augmenter(encoder, Adder(len(self.terms), encoder.hidden, rank, tied), weighs, trust)
        if self.words is not None:
            network.add.start_from(network.first_states(_texts(self.words, len(self.words))))
        network.add.calm(network.first_states(_texts(self.pairs[0].queries, _QUERIES)))
        return network


def _texts(corpus: TokenCorpus, most: int) -> Batch:
    return packed(*framed(corpus, range(min(len(corpus), most)), "cpu", longest=LONGEST), _TOKENS)


def _number(file: Path) -> int:
    return int(file.stem.rpartition("-")[2])
