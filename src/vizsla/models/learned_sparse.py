"""Models whose term weights a network has learnt: BM26 (uniCOIL) and BM26e (SPLADE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.described import described
from vizsla.encoders.network import Network, runtime
from vizsla.engine import Weighting
from vizsla.errors import VizslaError
from vizsla.models.model import COMPONENTS, Component, Fields, Reader, Stored, counted, field_text, text_problem
from vizsla.models.statistics import Statistics
from vizsla.text import Analyzer, Token, WordPiece
from vizsla.vectors import SparseVectors, Vocabulary

LEVELS = 255
"""Weights of documents are stored in 8 bits; those of queries stay as they are."""
SHIPPED = Path(__file__).parent / "data"
"""The networks that come with the package, by name."""


@dataclass(frozen=True)
class LearnedSparse(Component):
    """Word pieces weighed by a network, in documents and in queries alike.

    `analyzer`: the word pieces the network was trained with. `length`: how many of a text's are read, 0 for as many as
    the network can; what is beyond is not found. `whole`: weights of queries are rounded as those of documents are, and
    scores are products of whole numbers up to 255.
    """

    network: Network
    analyzer: Analyzer | str = "wordpiece"
    length: int = 0
    whole: bool = False
    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "learned"
    name: str = "learned"

    kind: ClassVar[str] = "learned"

    def __post_init__(self) -> None:
        if isinstance(self.analyzer, str):
            object.__setattr__(self, "analyzer", Analyzer.parse(self.analyzer))
        if not isinstance(self.pieces, WordPiece):
            raise VizslaError(f"a network reads word pieces, and {self.analyzer} gives none")
        if not 0 <= self.length <= self.network.length or 0 < self.length < 3:
            raise VizslaError(f"this network reads 3 to {self.network.length} tokens of a text, not {self.length}")

    @classmethod
    def shipped(cls, which: str, **options: Any) -> LearnedSparse:
        """A model whose network comes with the package."""
        return cls(**{"network": Network.open(SHIPPED / which), "namespace": which, "name": which, **options})

    @property
    def batch_size(self) -> int:
        """On a processor a second's work, so that progress is seen and Ctrl-C is heard."""
        return 2000 if runtime() == "torch" else 100

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, self.network, self.analyzer, self.length, self.fields

    @property
    def pieces(self) -> Any:
        assert isinstance(self.analyzer, Analyzer)
        return self.analyzer.tokenizer

    def field_problem(self, content: Mapping[str, Any]) -> str | None:
        return text_problem(content, self.fields)

    def reader(self) -> Reader:
        return _WeighingReader(self)

    def length_codes(self, lengths: np.ndarray) -> np.ndarray:
        return np.zeros(len(lengths), np.uint8)

    def weighting(self, statistics: Statistics) -> Weighting:  # noqa: ARG002 (weights need none)
        return Weighting(scale=1.0 if self.whole else self.network.max_weight / LEVELS)

    def tokens(self, text: str) -> list[Token]:
        assert isinstance(self.analyzer, Analyzer)
        return self.analyzer.tokens(text)

    def query_terms(self, text: str) -> dict[str, float]:
        return self.query_terms_of([text])[0]

    def query_terms_of(self, texts: Sequence[str]) -> list[dict[str, float]]:
        pointers, indices, weights = self.rows(*_joined(self.pieces.ids(texts)))
        if self.whole:
            weights = whole_weights(weights, self.network.max_weight)
        names = self.pieces.vocabulary
        pairs = zip(indices.tolist(), weights.tolist(), strict=True)
        terms = [(names[i], w) for i, w in pairs]
        return [{t: w for t, w in terms[a:z] if w} for a, z in pairwise(pointers.tolist())]

    def rows(self, ids: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pointers, pieces and weights of texts given as token ids behind one another; weights of 0 are left out."""
        framed, offsets = self._framed(ids, starts)
        if self.network.kind == "splade":
            words, weights, pointers = self.network.running.vectors(framed, offsets)
            return pointers, words, weights
        texts = np.repeat(np.arange(len(starts) - 1), np.diff(offsets))
        return _highest(texts, framed, self.network.running.weights(framed, offsets), len(starts) - 1)

    def _framed(self, ids: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Each text between the special tokens, cut to what is read of it."""
        sizes = np.minimum(np.diff(starts), (self.length or self.network.length) - 2)
        offsets = np.concatenate([[0], np.cumsum(sizes + 2)])
        framed = np.empty(offsets[-1], np.int64)
        framed[offsets[:-1]], framed[offsets[1:] - 1] = self.network.start, self.network.end
        inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        framed[np.repeat(offsets[:-1] + 1, sizes) + inside] = ids[np.repeat(starts[:-1], sizes) + inside]
        return framed, offsets

    def term_factors(self, frequencies: np.ndarray, documents: int) -> np.ndarray:  # noqa: ARG002 (all are worth 1)
        return np.ones(len(frequencies))

    def count(self, documents: Sequence[Fields]) -> Statistics:
        return counted(self.reader().read(documents))

    def options(self, folder: Path) -> dict[str, Any]:
        assert isinstance(self.analyzer, Analyzer)
        return vars(self) | {"analyzer": self.analyzer.save(folder), "network": self.network.save(folder)}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> LearnedSparse:
        told = described(cls, options, network="str", analyzer="str")
        network, analyzer = Network.open(folder / told["network"]), Analyzer.parse(told["analyzer"], folder)
        return cls(**{**told, "network": network, "analyzer": analyzer})


COMPONENTS[LearnedSparse.kind] = LearnedSparse


def whole_weights(weights: np.ndarray, most: float) -> np.ndarray:
    """Weights in 8 bits."""
    return np.minimum(np.rint(weights * (LEVELS / most)), LEVELS).astype(np.int64)


def _joined(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Ids behind one another, and where each text begins and the last ends."""
    starts = np.cumsum([0, *map(len, rows)])
    return np.fromiter(chain.from_iterable(rows), np.int64, int(starts[-1])), starts


def _highest(
    rows: np.ndarray, ids: np.ndarray, weights: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The highest weight of each id in each row, in CSR form."""
    kept = weights > 0
    keys, values = (rows[kept] << 32) | ids[kept], weights[kept]
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.zeros(0, np.int64)
    highest = np.maximum.reduceat(values, first) if len(first) else values
    pointers = np.searchsorted(keys[first] >> 32, np.arange(count + 1))
    return pointers, keys[first] & 0xFFFFFFFF, highest


class _WeighingReader(Reader):
    """Weighs texts and keeps 8 bits of each weight; remembers the words it has met."""

    def __init__(self, model: LearnedSparse) -> None:
        assert isinstance(model.analyzer, Analyzer)
        self._model = model
        self._lexicon = model.analyzer.lexicon()
        self._ids = np.zeros(0, np.int64)
        self._vocabulary = Vocabulary(model.namespace, model.pieces.vocabulary)

    def read(self, documents: Sequence[Fields]) -> Stored:
        found, ends = self._lexicon.encode([field_text(d, self._model.fields) for d in documents])
        new = self._lexicon.terms[len(self._ids) :]
        self._ids = np.concatenate([self._ids, np.array([self._model.pieces.numbers[t] for t in new], np.int64)])
        pointers, indices, weights = self._model.rows(self._ids[found], np.concatenate([[0], ends]))
        whole = whole_weights(weights, self._model.network.max_weight)
        kept = whole > 0
        pointers = np.concatenate([[0], np.cumsum(kept)])[pointers]
        rows = SparseVectors(self._vocabulary, pointers, indices[kept], whole[kept])
        return Stored(rows, np.diff(pointers))
