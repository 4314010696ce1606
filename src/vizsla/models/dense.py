"""Dense models: a text becomes one vector, and what is near the query's is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.engine import Weighting
from vizsla.errors import InputError, VizslaError
from vizsla.models.checkpoint import PACKAGED, Checkpoint
from vizsla.models.model import (
    COMPONENTS,
    Component,
    Fields,
    Reader,
    Stored,
    field_text,
    text_problem,
)
from vizsla.models.network import Network, runtime
from vizsla.models.statistics import CountedStatistics, Statistics
from vizsla.networks.graph import Precision
from vizsla.text import Analyzer, Token, WordPiece
from vizsla.vectors import DenseVectors, SparseVectors, Vocabulary


@dataclass(frozen=True)
class Dense(Component):
    """Texts as vectors of an encoder; scores are inner products, cosines where vectors are `normalised`.

    `query_network`: another encoder for queries, where there are two towers. `length`: how many tokens are read, 0 for
    as many as the network can, and `query_length` of a query. The prompts stand before texts.
    """

    network: Network
    analyzer: Analyzer | str = "wordpiece"
    normalised: bool = True
    query_network: Network | None = None
    query_prompt: str = ""
    document_prompt: str = ""
    length: int = 0
    query_length: int = 0
    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "dense"
    name: str = "dense"

    kind: ClassVar[str] = "dense"

    def __post_init__(self) -> None:
        if isinstance(self.analyzer, str):
            object.__setattr__(self, "analyzer", Analyzer.parse(self.analyzer))
        if not isinstance(self.pieces, WordPiece):
            raise VizslaError(f"a network reads word pieces, and {self.analyzer} gives none")
        towers = [n for n in (self.network, self.query_network) if n is not None]
        for network in towers:
            if network.kind != "dense":
                raise VizslaError(
                    f"{network.folder}: this is a network of the kind {network.kind}, which makes no vectors"
                )
        if len({network.width for network in towers}) > 1:
            raise VizslaError("the two encoders make vectors of other sizes, which cannot be multiplied")
        for length, network in ((self.length, self.network), (self.query_length, towers[-1])):
            if not 0 <= length <= network.length or 0 < length < 3:
                raise VizslaError(f"this network reads 3 to {network.length} tokens of a text, not {length}")

    @classmethod
    def open(cls, which: str | Path = PACKAGED, precision: Precision = "int8", **options: Any) -> Dense:
        """An encoder as others save it, from a folder or by its name."""
        checkpoint = Checkpoint.read(which)
        told = {
            "network": checkpoint.network(precision),
            "analyzer": Analyzer.parse(f"wordpiece:{checkpoint.folder}"),
            "normalised": checkpoint.normalised,
            "query_prompt": checkpoint.query_prompt,
            "document_prompt": checkpoint.document_prompt,
        }
        return cls(**{**told, **options})

    @property
    def together(self) -> int:
        return 2000 if runtime() == "torch" else 100

    @property
    def dimensions(self) -> int:
        return self.network.width

    @property
    def storage(self) -> tuple[Any, ...]:
        return self.kind, self.network, self.analyzer, self.normalised, self.document_prompt, self.length, self.fields

    @property
    def pieces(self) -> Any:
        assert isinstance(self.analyzer, Analyzer)
        return self.analyzer.tokenizer

    def field_problem(self, content: Mapping[str, Any]) -> str | None:
        return text_problem(content, self.fields)

    def reader(self) -> Reader:
        return _DenseReader(self)

    def length_codes(self, lengths: np.ndarray) -> np.ndarray:
        return np.zeros(len(lengths), np.uint8)

    def weighting(self, statistics: Statistics) -> Weighting:  # noqa: ARG002 (there are no terms to weigh)
        return Weighting()

    def tokens(self, text: str) -> list[Token]:  # noqa: ARG002 (no word is what a document was found by)
        return []

    def query_terms(self, text: str) -> dict[str, float]:  # noqa: ARG002
        return {}

    def term_factors(self, frequencies: np.ndarray, documents: int) -> np.ndarray:  # noqa: ARG002
        return np.ones(len(frequencies))

    def count(self, documents: Sequence[Fields]) -> Statistics:
        sizes = [len(field_text(d, self.fields).split()) for d in documents]
        return CountedStatistics(sum(n > 0 for n in sizes), sum(sizes), max(sizes, default=0), {})

    def dense_queries(self, texts: Sequence[str]) -> list[np.ndarray | None]:
        """The vectors of queries, None for one without a token."""
        vectors, there = self._encoded_queries(texts)
        return [row if known else None for row, known in zip(vectors.astype(np.float64), there.tolist(), strict=True)]

    def dense_documents(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """[texts, dimensions] and [texts] whether a text has a token; the vector of one without is 0."""
        return self._encoded(texts, self.document_prompt, self.network, self.length)

    def _encoded_queries(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        length = self.query_length or self.length
        return self._encoded(texts, self.query_prompt, self.query_network or self.network, length)

    def _encoded(
        self, texts: Sequence[str], prompt: str, network: Network, length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        ids = self.pieces.ids([prompt + text if text.strip() else "" for text in texts])
        there = np.array([len(row) > 0 for row in ids], bool)
        most = (length or network.length) - 2
        rows = [[network.start, *row[:most], network.end] for row in ids if row]
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        if rows:
            offsets = np.cumsum([0, *map(len, rows)])
            made = network.running.embeddings(np.array([i for row in rows for i in row], np.int64), offsets)
            if not np.isfinite(made).all():
                raise InputError("this network makes numbers that are none", file=str(network.folder))
            if self.normalised:
                made = made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-12)
            vectors[there] = made
        return vectors, there

    def document_vectors(self, documents: Sequence[Fields], statistics: Statistics) -> DenseVectors:  # noqa: ARG002
        return DenseVectors.of(self.dense_documents([field_text(d, self.fields) for d in documents])[0], self.namespace)

    def query_vectors(self, texts: Sequence[str], statistics: Statistics) -> DenseVectors:  # noqa: ARG002
        rows, _ = self._encoded_queries(texts)
        return DenseVectors.of(rows, self.namespace)

    def options(self, folder: Path) -> dict[str, Any]:
        assert isinstance(self.analyzer, Analyzer)
        queries = None if self.query_network is None else self.query_network.save(folder)
        return vars(self) | {
            "analyzer": self.analyzer.save(folder),
            "network": self.network.save(folder),
            "query_network": queries,
        }

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Dense:
        queries = options["query_network"]
        read = {
            "network": Network.open(folder / options["network"]),
            "query_network": None if queries is None else Network.open(folder / queries),
            "analyzer": Analyzer.parse(options["analyzer"], folder),
            "fields": tuple(options["fields"]),
        }
        return cls(**{**options, **read})


COMPONENTS[Dense.kind] = Dense


class _DenseReader(Reader):
    def __init__(self, model: Dense) -> None:
        self._model = model
        self._nothing = Vocabulary(model.namespace, [])

    def read(self, documents: Sequence[Fields]) -> Stored:
        texts = [field_text(d, self._model.fields) for d in documents]
        vectors, there = self._model.dense_documents(texts)
        none = np.zeros(len(texts) + 1, np.int64)
        empty = SparseVectors(self._nothing, none, none[:0], np.zeros(0, np.uint32))
        sizes = np.array([max(len(t.split()), 1) for t in texts], np.int64) * there
        return Stored(empty, sizes, vectors)
