"""COIL: the vectors of an encoder's tokens, compared where the tokens are equal; COIL-full and COIL-tok."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.errors import VizslaError
from vizsla.lazy import cached_property
from vizsla.models.components import TokenMatchComponent
from vizsla.models.fields import Fields, field_text
from vizsla.models.learned_sparse import CHECKPOINT_OPTIONS, checked_precision
from vizsla.models.model import MODELS, Model
from vizsla.models.piece_network import PieceNetwork
from vizsla.neural.checkpoints.published import published
from vizsla.neural.checkpoints.with_head import HeadCheckpoint
from vizsla.neural.network import Network
from vizsla.neural.onnx_graph import Precision
from vizsla.spec import Option
from vizsla.text import Analyzer
from vizsla.vectors import MatchTexts

_UNMATCHED = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SHORTEST = 3  # [CLS], a token, [SEP]


@dataclass(frozen=True)
class Coil(PieceNetwork, TokenMatchComponent):
    """A vector for each word piece, compared where the pieces are equal; COIL-full also has one for the whole text.

    A text is read as [CLS] tokens [SEP], a document cut to `length` and a query to `query_length` tokens, 0 for as many
    as the network reads. Special and unknown tokens match nothing. `analyzer`: the word pieces of the network.
    """

    network: Network
    analyzer: Analyzer | str = "wordpiece"
    length: int = 0
    query_length: int = 0
    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "coil"
    name: str = "coil"

    kind: ClassVar[str] = "coil"
    expression_options: ClassVar[tuple[str, ...]] = ("length", "query_length", "fields", "namespace")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network.kind != "coil":
            raise VizslaError(f"coil needs a network with the head coil, and this one has {self.network.kind}")
        for length in (self.length, self.query_length):
            if length and not _SHORTEST <= length <= self.network.length:
                raise VizslaError(f"this network reads {_SHORTEST} to {self.network.length} tokens, not {length}")

    @classmethod
    def open(cls, which: str | Path, precision: Precision = "int8", **options: Any) -> Coil:
        """A COIL as its authors' code saves it: the encoder of transformers, and model.pt with the layers after it.

        A document is cut to 128 tokens and a query to 16, as in the paper.
        """
        checkpoint = HeadCheckpoint.read(which, "coil")
        lengths = {name: min(length, checkpoint.length) for name, length in published()["coil"].settings.items()}
        return cls(network=checkpoint.network(precision), analyzer=checkpoint.analyzer, **{**lengths, **options})

    @property
    def dimensions(self) -> int:
        return self.network.width

    @property
    def cls_dimensions(self) -> int:
        return self.network.cls_width

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, self.network, self.analyzer, self.length, self.fields

    @property
    def expression_name(self) -> str:
        """The folder the model was saved to."""
        return str(self.network.folder.parent)

    @cached_property
    def _unmatched_ids(self) -> np.ndarray:
        numbers = self.pieces.numbers
        return np.array([numbers[token] for token in _UNMATCHED if token in numbers], np.int64)

    def document_embeddings(self, documents: Sequence[Fields]) -> MatchTexts:
        return self._embeddings([field_text(d, self.fields) for d in documents], self.length)

    def query_embeddings(self, texts: Sequence[str]) -> MatchTexts:
        return self._embeddings(texts, self.query_length)

    def _embeddings(self, texts: Sequence[str], length: int) -> MatchTexts:
        """The tokens of texts that can match, their vectors, and the vectors of texts that have such a token."""
        rows = [np.array(row[: (length or self.network.length) - 2], np.int64) for row in self.pieces.ids(texts)]
        kept = [~np.isin(row, self._unmatched_ids) for row in rows]
        chosen = [i for i, some in enumerate(kept) if some.any()]
        terms = [np.zeros(0, np.int64)] * len(texts)
        vectors = [np.zeros((0, self.dimensions), np.float32)] * len(texts)
        whole = np.zeros((len(texts), self.cls_dimensions), np.float32)
        if not chosen:
            return MatchTexts(terms, vectors, whole)
        starts = np.cumsum([0, *(len(rows[i]) for i in chosen)])
        ids, offsets = self.network.framed(np.concatenate([rows[i] for i in chosen]), starts)
        tokens, whole[chosen] = self.network.running.coil_vectors(ids, offsets)
        if not np.isfinite(tokens).all() or not np.isfinite(whole).all():
            raise VizslaError(f"the encoder of {self.name!r} gives values that are not finite")
        for i, (a, z) in zip(chosen, pairwise(offsets.tolist()), strict=True):
            terms[i], vectors[i] = rows[i][kept[i]], tokens[a + 1 : z - 1][kept[i]]
        return MatchTexts(terms, vectors, whole)

    def token_name(self, term: int) -> str:
        return self.pieces.vocabulary[term]


@MODELS.register(
    "coil",
    help="COIL: vectors of word pieces, compared where the pieces are equal. You train it, or fetch its authors'.",
    options=(
        Option("network", "str", "", "the folder of a model of your own"),
        *CHECKPOINT_OPTIONS,
        Option("length", "int", None, "how many tokens of a document are read; by default as in training"),
        Option("query_length", "int", None, "how many tokens of a query are read; by default as in training"),
        Option("fields", "tuple[str, ...]", None, "the fields it reads, separated by /; by default as in training"),
        Option("namespace", "str", "coil", "keeps its vectors apart from those of other parts of a sum"),
    ),
    needs=("onnxruntime|torch",),
)
def coil(network: str = "", checkpoint: str = "", precision: str = "int8", **options: Any) -> Coil:
    if checkpoint:
        return Coil.open(checkpoint, checked_precision(precision), **options)
    if not network:
        raise VizslaError(
            "no COIL comes with Vizsla; train one, as in: vizsla train coil --dataset NAME -o DIR, and name it: "
            '"coil(network=DIR)", or unpack one of its authors\' and name its folder: "coil(checkpoint=FOLDER)"'
        )
    model = Model.load(network)
    if not isinstance(model, Coil):
        raise VizslaError(f"{network}: coil needs a COIL, and this model is something else")
    return replace(model, **options)
