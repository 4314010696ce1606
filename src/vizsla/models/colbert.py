"""ColBERT: late interaction over the vectors of an encoder's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.lazy import cached_property
from vizsla.models.components import TokenComponent
from vizsla.models.fields import Fields, field_text
from vizsla.models.model import MODELS
from vizsla.models.piece_network import PieceNetwork
from vizsla.neural.checkpoints.colbert import ColbertCheckpoint, ColbertSettings
from vizsla.neural.checkpoints.onnx_encoder import OnnxTokens
from vizsla.neural.checkpoints.transformer import known
from vizsla.neural.network import Network, reads_of
from vizsla.neural.onnx_graph import Precision
from vizsla.spec import Option
from vizsla.text import Analyzer

_USUAL = ColbertSettings()
_SHORTEST = 4  # [CLS], the marker, a token, [SEP]


@dataclass(frozen=True)
class ColBERT(PieceNetwork, TokenComponent):
    """A vector of length 1 for each token; the score is the sum of each query token's best cosine.

    A query is read as [CLS] `query_marker` tokens [SEP], padded with [MASK] to `query_length` with `expand_queries`;
    other tokens attend to these masks only with `attend_to_mask`. A document is [CLS] `document_marker` tokens [SEP],
    cut to `length`; tokens in `skipped`, such as punctuation, have no vector. `analyzer`: the network's word pieces.

    `ColBERT.open(folder)` reads a checkpoint of stanford-futuredata's ColBERT or of PyLate, or one exported to ONNX.
    """

    network: Network | OnnxTokens  # type: ignore[assignment]
    analyzer: Analyzer | str = "wordpiece"
    query_marker: str = _USUAL.query_marker
    document_marker: str = _USUAL.document_marker
    query_length: int = _USUAL.query_length
    length: int = _USUAL.length
    expand_queries: bool = _USUAL.expand_queries
    attend_to_mask: bool = _USUAL.attend_to_mask
    skipped: tuple[str, ...] = _USUAL.skipped
    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "colbert"
    name: str = "colbert"

    kind: ClassVar[str] = "colbert"
    expression_options: ClassVar[tuple[str, ...]] = ("length", "query_length", "fields", "namespace")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network.kind != "colbert":
            raise VizslaError(f"colbert needs a network with the head colbert, and this one has {self.network.kind}")
        for marker in (self.query_marker, self.document_marker):
            if marker not in self.pieces.numbers:
                raise VizslaError(f"the word pieces of {self.name} have no marker {marker!r}")
        for length in (self.length, self.query_length):
            if not _SHORTEST <= length <= self.network.length:
                raise VizslaError(f"this network reads {_SHORTEST} to {self.network.length} tokens, not {length}")

    @classmethod
    def open(cls, which: str | Path, precision: Precision = "float32", **options: Any) -> ColBERT:
        """A checkpoint from a folder, or by its name on the model hub; options override the settings in its files."""
        checkpoint = ColbertCheckpoint.read(which)
        values = vars(checkpoint.settings)
        values |= {name: min(values[name], checkpoint.longest) for name in ("length", "query_length")}
        return cls(network=checkpoint.network(precision), analyzer=checkpoint.analyzer, **{**values, **options})

    @classmethod
    def open_network(cls, folder: Path) -> Network | OnnxTokens:
        return OnnxTokens.open(folder) if reads_of(folder) == OnnxTokens.reads else Network.open(folder)

    @property
    def dimensions(self) -> int:
        return self.network.width

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, self.network, self.analyzer, self.document_marker, self.length, self.skipped, self.fields

    @property
    def expression_name(self) -> str:
        """The folder the model was saved to."""
        folder = self.network.folder.parent
        return str(folder) if (folder / "model.json").is_file() else super().expression_name

    @cached_property
    def _skipped_ids(self) -> np.ndarray:
        numbers = self.pieces.numbers
        return np.array([numbers[token] for token in self.skipped if token in numbers], np.int64)

    def document_embeddings(self, documents: Sequence[Fields]) -> list[np.ndarray]:
        return self._embeddings(self._document_ids([field_text(d, self.fields) for d in documents]), documents=True)

    def query_embeddings(self, texts: Sequence[str]) -> list[np.ndarray]:
        return self._embeddings(self._query_ids(texts), documents=False)

    def _document_ids(self, texts: Sequence[str]) -> list[list[int]]:
        return self._ids(texts, self.document_marker, self.length)

    def _query_ids(self, texts: Sequence[str]) -> list[list[int]]:
        return self._ids(texts, self.query_marker, self.query_length)

    def _ids(self, texts: Sequence[str], marker: str, length: int) -> list[list[int]]:
        """The token ids of each text between its special tokens; none for a text without a known token."""
        has_token = known(texts, self.pieces.ids, self.pieces.numbers.get("[UNK]")).tolist()
        rows = self.pieces.ids(texts)
        start, end, number = self.network.start, self.network.end, self.pieces.numbers[marker]
        return [
            [start, number, *row[: length - 3], end] if can else [] for row, can in zip(rows, has_token, strict=True)
        ]

    def _padded(self, row: list[int]) -> list[int]:
        """The token ids of a query, padded with [MASK] if queries are expanded."""
        missing = self.query_length - len(row) if row and self.expand_queries else 0
        return row + [self.pieces.numbers["[MASK]"]] * missing

    def _embeddings(self, rows: list[list[int]], *, documents: bool) -> list[np.ndarray]:
        read = [row for row in rows if row]
        if not read:
            return [np.zeros((0, self.dimensions), np.float32) for _ in rows]
        padded = read if documents else [self._padded(row) for row in read]
        ids, offsets = np.array([i for row in padded for i in row], np.int64), np.cumsum([0, *map(len, padded)])
        attended = None if documents or self.attend_to_mask else np.array([len(row) for row in read], np.int64)
        vectors = self.network.running.token_vectors(ids, offsets, attended)
        if not np.isfinite(vectors).all():
            raise VizslaError(f"the encoder of {self.name!r} gives values that are not finite")
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        kept = ~np.isin(ids, self._skipped_ids) if documents else np.ones(len(ids), np.bool_)
        parts = iter([vectors[a:z][kept[a:z]] for a, z in pairwise(offsets.tolist())])
        return [next(parts) if row else np.zeros((0, self.dimensions), np.float32) for row in rows]

    def document_tokens(self, document: Fields) -> list[str]:
        (row,) = self._document_ids([field_text(document, self.fields)])
        skipped = set(self._skipped_ids.tolist())
        return self._names([i for i in row if i not in skipped])

    def query_tokens(self, text: str) -> list[str]:
        (row,) = self._query_ids([text])
        return self._names(self._padded(row))

    def _names(self, row: Sequence[int]) -> list[str]:
        """The names of tokens in an explanation: those of markers as in the paper, the others as in the vocabulary."""
        markers = {self.pieces.numbers[self.query_marker]: "[Q]", self.pieces.numbers[self.document_marker]: "[D]"}
        return [markers.get(i, self.pieces.vocabulary[i]) for i in row]


@MODELS.register(
    "colbert",
    help="ColBERT: a vector for each token; a folder of ColBERT's authors or of PyLate, or exported to ONNX.",
    options=(
        Option("checkpoint", "str", "", "a folder, an ONNX file or a name on the model hub"),
        Option("precision", "str", "float32", f"of the network's weights: {', '.join(get_args(Precision))}"),
        Option("length", "int", None, "how many tokens of a document are read; by default what the checkpoint says"),
        Option("query_length", "int", None, "how many tokens a query has; by default what the checkpoint says"),
        Option("fields", "tuple[str, ...]", ("title", "text"), "the fields it reads, separated by /"),
        Option("namespace", "str", "colbert", "keeps its vectors apart from those of other parts of a sum"),
    ),
    needs=("onnxruntime|torch",),
)
def colbert(checkpoint: str = "", precision: str = "float32", **options: Any) -> ColBERT:
    if not checkpoint:
        raise VizslaError("name a checkpoint, as in colbert(checkpoint=FOLDER)")
    if precision not in get_args(Precision):
        raise UnknownNameError("precision", precision, get_args(Precision))
    return ColBERT.open(checkpoint, precision, **options)  # type: ignore[arg-type]
