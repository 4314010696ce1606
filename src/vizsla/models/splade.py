"""SPLADE as others train and save it: a masked-language model weighs the terms of a text and adds others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np

from vizsla.described import fields_from_data
from vizsla.engine import Weighting
from vizsla.errors import UnknownNameError, VizslaError
from vizsla.models.components import (
    SearchContext,
    SparseComponent,
    SparseDocumentEncoder,
    SparseDocuments,
    TypedTerm,
    check_query_norm,
    shortened,
)
from vizsla.models.fields import Fields, field_text
from vizsla.models.learned_sparse import LEVELS, joined, whole_weights
from vizsla.models.model import MODELS
from vizsla.models.statistics import Statistics
from vizsla.models.term_limits import MAX_QUERY_TERMS, MAX_TERMS, check_term_limits, heaviest
from vizsla.neural.checkpoints.checkpoint import alike
from vizsla.neural.checkpoints.splade import SparseCheckpoint
from vizsla.neural.network import ABOUT, Network, runtime, sees_gpu
from vizsla.neural.onnx_graph import Precision
from vizsla.neural.query_tables import TermWeights
from vizsla.neural.text_encoder import TokenizerOptions, known
from vizsla.neural.transformer import MaskedLanguage
from vizsla.plain_data import parse_settings
from vizsla.spec import Option, options_of
from vizsla.text import Analyzer, Token, WordPiece
from vizsla.vectors import SparseVectors, Vocabulary

Tower = Network | MaskedLanguage
"""What weighs terms: a network that runs without torch, or any masked-language model by torch and transformers."""
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Pointers, terms and weights of texts behind one another."""
_MIN_WEIGHT = 1e-30  # a 32-bit float cannot tell less from 0


@dataclass(frozen=True)
class Splade(SparseComponent):
    """A masked-language model weighs all terms of its vocabulary for a text.

    `analyzer`: the word pieces of a `Network`; None for a model that cuts texts itself. `query_network`: how queries
    are weighed, where it is another way: by another network, or by a table (`TermWeights`), without a network.
    `max_weight`: 0 stores document weights as 32-bit floats; above 0 in 8 bits, and weights above it as this one.
    `length` and `query_length`: how many tokens are read, 0 for as many as the network can. `query_norm`: as for BM25.
    `max_terms` and `max_query_terms`: of a document or query the heaviest are kept, 0 for all.

    `Splade.open(folder)` reads a model as sentence-transformers or transformers save it. What can be set:

    >>> [option.name for option in MODELS["splade"].options if "checkpoint" in option.name]
    ['checkpoint', 'query_checkpoint']
    """

    network: Tower
    analyzer: Analyzer | str | None = "wordpiece"
    query_network: Tower | TermWeights | None = None
    query_prompt: str = ""
    document_prompt: str = ""
    length: int = 0
    query_length: int = 0
    max_weight: float = 0.0
    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "splade"
    name: str = "splade"
    query_norm: float = 0.0
    max_terms: int = 0
    max_query_terms: int = 0

    kind: ClassVar[str] = "splade"
    adds_terms: ClassVar[bool] = True
    expression_options: ClassVar[tuple[str, ...]] = (
        "max_weight", "length", "query_length", "max_terms", "max_query_terms", "query_norm", "fields", "namespace",
    )  # fmt: skip

    def __post_init__(self) -> None:
        towers = [t for t in (self.network, self.query_network) if t is not None and not isinstance(t, TermWeights)]
        pieced = {isinstance(tower, Network) for tower in towers}
        if len(pieced) > 1:
            raise VizslaError("the networks of documents and queries must be run in the same way; open both by name")
        if isinstance(self.analyzer, str) and True in pieced:
            object.__setattr__(self, "analyzer", Analyzer.parse(self.analyzer))
        if True not in pieced:
            object.__setattr__(self, "analyzer", None)
        if True in pieced and not isinstance(self._tokenizer, WordPiece):
            raise VizslaError(f"a network reads word pieces, and the analyzer {self.analyzer} does not make them")
        for tower in towers:
            if tower.kind != "splade":
                raise VizslaError(f"{tower.folder}: splade needs a network with the head splade, not {tower.kind}")
        for tower, length in ((self.network, self.length), (towers[-1], self.query_length)):
            if not 0 <= length <= tower.length or 0 < length < 3:
                raise VizslaError(f"this network reads 3 to {tower.length} tokens of a text, not {length}")
        if not 0 <= self.max_weight < float("inf"):
            raise VizslaError(f"max_weight must be a number of 0 or more, not {self.max_weight}")
        check_query_norm(self.query_norm)
        check_term_limits(max_terms=self.max_terms, max_query_terms=self.max_query_terms)

    @classmethod
    def open(
        cls, which: str | Path, precision: Precision = "int8", *, queries: str | Path = "", **options: Any
    ) -> Splade:
        """A SPLADE as others save it, from a folder or by its name; `queries`: another one for queries.

        Plain BERT and DistilBERT become networks that run without torch; others are run by torch and transformers.
        """
        sides = SparseCheckpoint.read(which)
        if queries:
            sides = [sides[0], SparseCheckpoint.read(queries)[-1]]
        plain = all(side.plain for side in sides) and alike([side.pieces for side in sides])
        if not plain and len({side.tokenizer_steps() for side in sides}) > 1:
            raise VizslaError(f"{which}: queries and documents are cut into other pieces, so they share no terms")
        towers: list[Any] = [
            side.term_weights() if side.settings.is_table
            else side.network(precision) if plain else side.masked_language(precision)
            for side in sides
        ]  # fmt: skip
        told = {
            "network": towers[0],
            "query_network": towers[1] if len(towers) > 1 else None,
            "analyzer": sides[0].analyzer if plain else None,
            "query_prompt": sides[-1].settings.query_prompt,
            "document_prompt": sides[0].settings.document_prompt,
        }
        return cls(**{**told, **options})

    @property
    def batch_size(self) -> int:
        fast = runtime() == "torch" if isinstance(self.network, Network) else sees_gpu()
        return 2000 if fast else 100

    @property
    def index_signature(self) -> tuple[Any, ...]:
        read = self.document_prompt, self.length, self.max_weight, self.fields
        limits = (self.max_terms,) if self.max_terms else ()
        return self.kind, self.network, self.analyzer, *read, *limits

    @property
    def expression_name(self) -> str:
        """The folder the model was saved to."""
        folder = self.network.folder.parent
        return str(folder) if (folder / "model.json").is_file() else super().expression_name

    @property
    def _tokenizer(self) -> Any:
        return self.analyzer.tokenizer if isinstance(self.analyzer, Analyzer) else None

    @property
    def terms(self) -> Sequence[str]:
        """What the terms are called, by number."""
        names: Sequence[str] = (
            self.network.terms if isinstance(self.network, MaskedLanguage) else self._tokenizer.vocabulary
        )
        return names

    def document_encoder(self) -> SparseDocumentEncoder:
        return _TermEncoder(self)

    def weighting(self, statistics: Statistics) -> Weighting:  # noqa: ARG002 (weights need none)
        return Weighting(scale=self.max_weight / LEVELS if self.max_weight else 1.0)

    def tokens(self, text: str) -> list[Token]:
        return self.analyzer.tokens(text) if isinstance(self.analyzer, Analyzer) else []

    def typed_terms(self, text: str) -> dict[str, TypedTerm]:
        if not isinstance(self.network, MaskedLanguage):
            return super().typed_terms(text)
        (ids,) = self._token_ids([text])  # where they are in the text is not known
        return {self.terms[i]: TypedTerm() for i in ids}

    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> list[dict[str, float]]:  # noqa: ARG002
        rows = self._query_rows(texts)
        return shortened(rows, self.query_norm) if self.query_norm else rows

    def _query_rows(self, texts: Sequence[str]) -> list[dict[str, float]]:
        names = self.terms
        network = self.query_network or self.network
        if isinstance(network, TermWeights):
            rows = network.rows(self._token_ids([self.query_prompt + text for text in texts]))
            return [{names[i]: weight for i, weight in row.items()} for row in rows]
        found = self._rows(texts, network, self.query_prompt, self.query_length)
        pointers, indices, weights = heaviest(*found, self.max_query_terms)
        pairs = [(names[i], w) for i, w in zip(indices.tolist(), weights.tolist(), strict=True)]
        return [dict(pairs[a:z]) for a, z in pairwise(pointers.tolist())]

    def document_rows(self, texts: Sequence[str]) -> Rows:
        """The weights of documents, as floats; texts without a known token have none."""
        return self._rows(texts, self.network, self.document_prompt, self.length)

    def _token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The pieces of queries that a table weighs."""
        length = self.query_length or 1 << 20
        if isinstance(self.network, MaskedLanguage):
            return self.network.token_ids(texts, length)
        return [row[:length] for row in self._tokenizer.ids(texts)]

    def _rows(self, texts: Sequence[str], network: Tower, prompt: str, length: int) -> Rows:
        if isinstance(network, MaskedLanguage):
            pointers, terms, weights = network.term_weights(texts, TokenizerOptions(prompt, length or network.length))
        else:
            pointers, terms, weights = self._of_pieces(texts, network, prompt, length)
        if not np.isfinite(weights).all():
            raise VizslaError(f"the network of {self.name!r} gives weights that are not finite")
        return pointers, terms, weights

    def _of_pieces(self, texts: Sequence[str], network: Network, prompt: str, length: int) -> Rows:
        there = known(texts, self._tokenizer.ids, self._tokenizer.numbers.get("[UNK]"))
        read = [prompt + text for text, can in zip(texts, there.tolist(), strict=True) if can]
        if not read:
            return np.zeros(len(texts) + 1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
        framed, offsets = network.framed(*joined(self._tokenizer.ids(read)), length)
        terms, weights, starts = network.running.vectors(framed, offsets)
        sizes = np.zeros(len(texts), np.int64)
        sizes[there] = np.diff(starts)
        return np.concatenate([[0], np.cumsum(sizes)]), terms, weights

    def options(self, folder: Path) -> dict[str, Any]:
        return vars(self) | {
            "analyzer": self.analyzer.save(folder) if isinstance(self.analyzer, Analyzer) else None,
            "network": self.network.save(folder),
            "query_network": None if self.query_network is None else self.query_network.save(folder),
        }

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Splade:
        told = fields_from_data(cls, options, network="str", query_network="str | None", analyzer="str | None")
        queries, pieces = told["query_network"], told["analyzer"]
        opened = {
            "network": _opened(folder / told["network"]),
            "query_network": None if queries is None else _opened(folder / queries),
            "analyzer": None if pieces is None else Analyzer.parse(pieces, folder),
        }
        return cls(**{**told, **opened})


class _TermEncoder(SparseDocumentEncoder):
    """Documents to weights, as floats or in 8 bits."""

    def __init__(self, model: Splade) -> None:
        self._model = model
        self._vocabulary = Vocabulary(model.namespace, list(model.terms))

    def encode(self, documents: Sequence[Fields]) -> SparseDocuments:
        found = self._model.document_rows([field_text(d, self._model.fields) for d in documents])
        pointers, terms, weights = heaviest(*found, self._model.max_terms)
        values = weights.astype(np.float64)
        if self._model.max_weight:
            values = whole_weights(weights, self._model.max_weight)
        kept = values >= _MIN_WEIGHT
        pointers = np.concatenate([[0], np.cumsum(kept)])[pointers]
        rows = SparseVectors(self._vocabulary, pointers, terms[kept], values[kept])
        return SparseDocuments(rows, np.diff(pointers))


def _opened(folder: Path) -> Tower | TermWeights:
    """What was saved in a folder: a model that reads texts, a table of weights, or a network of Vizsla's own."""
    try:
        reads = parse_settings((folder / ABOUT).read_text("utf-8")).get("reads")
    except (OSError, ValueError, AttributeError):
        reads = None  # which Network.open says better
    if reads == "terms":
        return TermWeights.open(folder)
    return MaskedLanguage.open(folder) if reads == "texts" else Network.open(folder)


@MODELS.register(
    "splade",
    help="Any SPLADE as sentence-transformers or transformers save it.",
    options=(
        Option("checkpoint", "str", "", "a folder or a name on the model hub"),
        Option("query_checkpoint", "str", "", "another model for queries"),
        Option("precision", "str", "int8", f"of the network's weights: {', '.join(get_args(Precision))}"),
        *options_of(
            Splade,
            max_weight="stores document weights in 8 bits, up to this one; 0 for 32-bit floats",
            length="how many tokens of a document are read; 0 for as many as the network can",
            query_length="how many tokens of a query are read; 0 for as many as the network can",
            max_terms=MAX_TERMS,
            max_query_terms=MAX_QUERY_TERMS,
            query_norm="long queries count less in a sum: weights are divided by the number of terms to this power",
            fields="the fields it reads, separated by /",
            namespace="keeps its terms apart from those of other parts of a sum",
        ),
    ),
    needs=("onnxruntime|torch",),
)
def splade(checkpoint: str = "", query_checkpoint: str = "", precision: str = "int8", **options: Any) -> Splade:
    """A SPLADE by its folder or name."""
    if not checkpoint:
        raise VizslaError("name a SPLADE, as in splade(checkpoint=FOLDER)")
    if precision not in get_args(Precision):
        raise UnknownNameError("precision", precision, get_args(Precision))
    return Splade.open(checkpoint, precision, queries=query_checkpoint, **options)  # type: ignore[arg-type]
