"""Learned sparse models: a network gives the weights of terms. BM26 (uniCOIL) and BM26e (SPLADE)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vizsla.engine import Weighting
from vizsla.errors import VizslaError
from vizsla.models.components import (
    SearchContext,
    SparseComponent,
    SparseDocumentEncoder,
    SparseDocuments,
    check_query_norm,
    shortened,
)
from vizsla.models.fields import Fields, field_text
from vizsla.models.model import MODELS, Model
from vizsla.models.piece_network import PieceNetwork
from vizsla.models.statistics import Statistics
from vizsla.models.term_limits import MAX_QUERY_TERMS, MAX_TERMS, check_term_limits, heaviest
from vizsla.neural.heads import HEADS
from vizsla.neural.network import Network
from vizsla.neural.query_tables import PieceVectors
from vizsla.spec import Option, options_of, with_defaults
from vizsla.text import Analyzer, Token
from vizsla.vectors import SparseVectors, Vocabulary

LEVELS = 255
"""Weights of documents are stored in 8 bits; those of queries stay as they are."""
QUERIES = "queries"
"""The folder of a table for queries, beside the network that came with it."""
SHIPPED = Path(__file__).parent / "data"
"""The networks that come with the package, by name."""


@dataclass(frozen=True)
class LearnedSparse(PieceNetwork, SparseComponent):
    """Word pieces weighted by a network, in documents and in queries alike.

    `analyzer`: the word pieces the network was trained with. `length`: how many tokens of a text are read, 0 for as
    many as the network can; the rest of the text cannot be found. `whole`: query weights are rounded to 8 bits like
    document weights, and scores are sums of products of whole numbers up to 255. `query_norm`: as for `BM25`.
    `max_terms` and `max_query_terms`: of a document or query the heaviest are kept, 0 for all. `query_table`: what the
    network makes of each word piece by itself, where it was trained for that; with `inference_free`, queries are read
    from this table, without the network. The index is the same.

    >>> bm26 = LearnedSparse.shipped("bm26", length=64)
    >>> bm26.name, bm26.length, bm26.network.kind
    ('bm26', 64, 'unicoil')
    """

    network: Network
    analyzer: Analyzer | str = "wordpiece"
    length: int = 0
    whole: bool = False
    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "learned"
    name: str = "learned"
    query_norm: float = 0.0
    max_terms: int = 0
    max_query_terms: int = 0
    query_table: PieceVectors | None = None
    inference_free: bool = False

    kind: ClassVar[str] = "learned"
    adds_terms: ClassVar[bool] = True
    expression_options: ClassVar[tuple[str, ...]] = (
        "length", "max_terms", "max_query_terms", "inference_free", "query_norm", "fields", "namespace",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        check_query_norm(self.query_norm)
        check_term_limits(max_terms=self.max_terms, max_query_terms=self.max_query_terms)
        if not 0 <= self.length <= self.network.length or 0 < self.length < 3:
            raise VizslaError(f"this network reads 3 to {self.network.length} tokens of a text, not {self.length}")
        if self.inference_free and self.query_table is None:
            raise VizslaError(
                f"{self.name} has no table for queries without a network; train one with --set network.query_table=true"
            )

    @classmethod
    def shipped(cls, which: str, **options: Any) -> LearnedSparse:
        """A model whose network comes with the package."""
        table = SHIPPED / which / QUERIES
        told = {"query_table": PieceVectors.open(table)} if table.is_dir() else {}
        return cls(**{"network": Network.open(SHIPPED / which), "namespace": which, "name": which, **told, **options})

    def options(self, folder: Path) -> dict[str, Any]:
        table = self.query_table
        return super().options(folder) | {"query_table": None if table is None else table.save(folder)}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Self:
        table = options.get("query_table")
        model = super().from_options({**options, "query_table": None, "inference_free": False}, folder)
        if table is None:
            return model
        return replace(
            model,
            query_table=PieceVectors.open(folder / str(table)),
            inference_free=bool(options.get("inference_free")),
        )

    @property
    def index_signature(self) -> tuple[Any, ...]:
        limits = (self.max_terms,) if self.max_terms else ()
        return self.kind, self.network, self.analyzer, self.length, self.fields, *limits

    @property
    def expression_name(self) -> str:
        folder = self.network.folder
        return folder.name if folder.parent == SHIPPED else str(folder.parent)

    def document_encoder(self) -> SparseDocumentEncoder:
        return _WeightEncoder(self)

    def weighting(self, statistics: Statistics) -> Weighting:  # noqa: ARG002 (weights need none)
        return Weighting(scale=1.0 if self.whole else self.network.max_weight / LEVELS)

    def tokens(self, text: str) -> list[Token]:
        assert isinstance(self.analyzer, Analyzer)
        return self.analyzer.tokens(text)

    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> list[dict[str, float]]:  # noqa: ARG002
        ids = self.pieces.ids(texts)
        rows = self._table_rows(ids) if self.inference_free else self.rows(*joined(ids))
        pointers, indices, weights = heaviest(*rows, self.max_query_terms)
        if self.whole:
            weights = whole_weights(weights, self.network.max_weight)
        names = self.pieces.vocabulary
        pairs = zip(indices.tolist(), weights.tolist(), strict=True)
        terms = [(names[i], w) for i, w in pairs]
        queries = [{t: w for t, w in terms[a:z] if w} for a, z in pairwise(pointers.tolist())]
        return shortened(queries, self.query_norm) if self.query_norm else queries

    def _table_rows(self, ids: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pointers, pieces and weights of queries that are read from the table."""
        assert self.query_table is not None
        limit = self.length or self.network.length
        rows = self.query_table.rows([row[: limit - 2] for row in ids])
        pointers = np.cumsum([0, *map(len, rows)])
        indices = np.fromiter(chain.from_iterable(rows), np.int64, int(pointers[-1]))
        weights = np.fromiter(chain.from_iterable(row.values() for row in rows), np.float32, int(pointers[-1]))
        return pointers, indices, weights

    def rows(self, ids: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pointers, pieces and weights of texts given as token ids behind one another; weights of 0 are left out."""
        framed, offsets = self.network.framed(ids, starts, self.length)
        if HEADS[self.network.kind].make().gives == "vectors":
            words, weights, pointers = self.network.running.vectors(framed, offsets)
            return pointers, words, weights
        texts = np.repeat(np.arange(len(starts) - 1), np.diff(offsets))
        return _highest(texts, framed, self.network.running.weights(framed, offsets), len(starts) - 1)


def whole_weights(weights: np.ndarray, most: float) -> np.ndarray:
    """Weights in 8 bits."""
    return np.minimum(np.rint(weights * (LEVELS / most)), LEVELS).astype(np.int64)


def joined(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
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


class _WeightEncoder(SparseDocumentEncoder):
    """Keeps 8 bits of each weight; remembers the words it has met."""

    def __init__(self, model: LearnedSparse) -> None:
        assert isinstance(model.analyzer, Analyzer)
        self._model = model
        self._lexicon = model.analyzer.lexicon()
        self._ids = np.zeros(0, np.int64)
        self._vocabulary = Vocabulary(model.namespace, model.pieces.vocabulary)

    def encode(self, documents: Sequence[Fields]) -> SparseDocuments:
        numbers, ends = self._lexicon.encode([field_text(d, self._model.fields) for d in documents])
        new = self._lexicon.terms[len(self._ids) :]
        self._ids = np.concatenate([self._ids, np.array([self._model.pieces.numbers[t] for t in new], np.int64)])
        rows = self._model.rows(self._ids[numbers], np.concatenate([[0], ends]))
        pointers, indices, weights = heaviest(*rows, self._model.max_terms)
        whole = whole_weights(weights, self._model.network.max_weight)
        kept = whole > 0
        pointers = np.concatenate([[0], np.cumsum(kept)])[pointers]
        vectors = SparseVectors(self._vocabulary, pointers, indices[kept], whole[kept])
        return SparseDocuments(vectors, np.diff(pointers))


LEARNED_OPTIONS = options_of(
    LearnedSparse,
    analyzer="the word pieces the network was trained with",
    length="how many tokens of a text are read; 0 for as many as the network can",
    max_terms=MAX_TERMS,
    max_query_terms=MAX_QUERY_TERMS,
    inference_free="queries are read from a table, without the network",
    query_norm="long queries count less in a sum: weights are divided by the number of terms to this power",
    fields="the fields it reads, separated by /",
    namespace="keeps its terms apart from those of other parts of a sum",
)
NETWORK_OPTION = Option("network", "str", "", "the folder of a model of your own")
NEEDS = ("onnxruntime|torch",)


@MODELS.register(
    "bm26",
    help="BM26: a uniCOIL network weights the words of a text.",
    options=with_defaults(LEARNED_OPTIONS, namespace="bm26"),
    needs=NEEDS,
)
def bm26(**options: Any) -> LearnedSparse:
    return LearnedSparse.shipped("bm26", **options)


@MODELS.register(
    "bm26e",
    help="BM26e: a SPLADE network weights words and adds others. You train it.",
    options=(NETWORK_OPTION, *with_defaults(LEARNED_OPTIONS, namespace="bm26e")),
    needs=NEEDS,
)
def bm26e(network: str = "", **options: Any) -> LearnedSparse:
    return replace(load_learned("bm26e", network), **options)


def load_learned(name: str, folder: str) -> LearnedSparse:
    """A learned sparse model from the folder it was saved to, for the model `name`."""
    if not folder:
        raise VizslaError(
            f"no BM26e comes with Vizsla; train one, as in: vizsla train bm26e --corpus FILE -o DIR, and name it: "
            f'"{name}(network=DIR)"'
        )
    model = Model.load(folder)
    if not isinstance(model, LearnedSparse):
        raise VizslaError(f"{folder}: {name} needs a single network, and this model is something else")
    return model
