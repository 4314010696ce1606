"""Learned sparse models: a network gives the weights of terms. BM26 (uniCOIL), BM26e and SPLADE, SPLADE-doc, SPARTA.

There is one class. A document encoder is a network; a query encoder is the same network, another one or a table; stored
weights have 8 bits or 32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np

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
from vizsla.models.fields import QUERIES as QUERIES_FIELD
from vizsla.models.fields import Fields, field_text
from vizsla.models.model import MODELS, Model
from vizsla.models.statistics import Statistics
from vizsla.neural.checkpoints.transformer import MaskedLanguage, TokenizerOptions
from vizsla.neural.chunks import END, SPECIAL_TOKENS
from vizsla.neural.heads import HEADS
from vizsla.neural.network import ABOUT, Network
from vizsla.neural.onnx_graph import Precision
from vizsla.neural.query_tables import PieceVectors, TermWeights
from vizsla.plain_data import fields_from_data, parse_settings
from vizsla.spec import Option, options_of, with_defaults
from vizsla.text import Analyzer, Token, WordPiece
from vizsla.vectors import SparseVectors, Vocabulary

LEVELS = 255
"""The highest weight that 8 bits store; weights of queries stay as they are."""
QUERIES = "queries"
"""The folder of a table for queries, beside the network that came with it."""
SHIPPED = Path(__file__).parent / "data"
"""The networks that come with the package, by name."""
TEXT_PIECES, ADDED_PIECES = 400, 100
"""How many word pieces of a text are read, and of the queries that are added to it."""
SPARTA_TERMS, SPARTA_LENGTH = 2000, 500
"""How many terms of a document SPARTA keeps, and how many tokens it reads: those of BEIR's example."""
UNICOIL = "castorini/unicoil-msmarco-passage"
_HEADS = ("unicoil", "splade", "sparta")  # others are looked up: plugins have heads, too
_MIN_WEIGHT = 1e-30  # a 32-bit float cannot tell less from 0

Tower = Network | MaskedLanguage
"""The network that weighs terms: one that runs without torch, or any masked-language model of transformers."""
Table = TermWeights | PieceVectors
"""What weighs the terms of queries without a network."""
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Texts as sparse rows: where each begins, the numbers of terms, and their weights."""


@dataclass(frozen=True)
class LearnedSparse(SparseComponent):
    """Terms weighted by a network, in documents and in queries.

    `network`: reads documents. `query_network`: reads queries, if it is another one. `query_table`: the weights of
    queries without a network, used with `inference_free`; the index is the same. SPARTA needs no table: each piece of a
    query counts 1. `analyzer`: the word pieces of a `Network`; None for a model that has a tokenizer of its own.
    `length`: how many tokens of a text are read, 0 for as many as the network can; the rest of the text cannot be
    found. `query_length`: the same for queries, 0 for `length`. `max_weight`: document weights are stored in 8 bits up
    to this one; 0 stores 32-bit floats, None takes the network's. `whole`: query weights are rounded to 8 bits like
    document weights, and scores are sums of products of whole numbers up to 255. `query_norm`: as for `BM25`.
    `max_terms` and `max_query_terms`: the heaviest terms of a document or query are kept, 0 for all. `max_added`: the
    terms that a query gets beyond its own pieces weigh together at most this many times what its own weigh, so that
    they do not outrank exact matches; 0 for no limit.
    `sum_query_repeats`: a term that a query repeats has the sum of its weights instead of the highest.
    `add_new_pieces`: of a document's generated queries, in the field `queries` if `fields` has it, the pieces that its
    text lacks are read after [SEP], each once.

    >>> bm26 = LearnedSparse.shipped("bm26", length=64)
    >>> bm26.name, bm26.length, bm26.network.kind
    ('bm26', 64, 'unicoil')
    """

    network: Tower
    analyzer: Analyzer | str | None = "wordpiece"
    query_network: Tower | None = None
    query_table: Table | None = None
    inference_free: bool = False
    query_prompt: str = ""
    document_prompt: str = ""
    length: int = 0
    query_length: int = 0
    max_weight: float | None = None
    whole: bool = False
    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "learned"
    name: str = "learned"
    query_norm: float = 0.0
    max_terms: int = 0
    max_query_terms: int = 0
    max_added: float = 0.0
    sum_query_repeats: bool = False
    add_new_pieces: bool = False

    kind: ClassVar[str] = "learned"
    adds_terms: ClassVar[bool] = True
    expression_options: ClassVar[tuple[str, ...]] = (
        "length", "query_length", "max_weight", "max_terms", "max_query_terms", "max_added", "inference_free",
        "query_norm", "fields", "namespace",
    )  # fmt: skip

    def __post_init__(self) -> None:
        towers = [tower for tower in (self.network, self.query_network) if tower is not None]
        reads_pieces = {isinstance(tower, Network) for tower in towers}
        if len(reads_pieces) > 1:
            raise VizslaError("documents and queries must use the same runtime; open both networks by name")
        if isinstance(self.network, MaskedLanguage):
            object.__setattr__(self, "analyzer", None)
        elif isinstance(self.analyzer, str):
            object.__setattr__(self, "analyzer", Analyzer.parse(self.analyzer))
        if isinstance(self.network, Network) and not isinstance(self._tokenizer, WordPiece):
            raise VizslaError(f"a network reads word pieces, and the analyzer {self.analyzer} does not make them")
        for tower in towers:
            if tower.kind not in _HEADS and (
                tower.kind == "deepct" or _gives(tower.kind) not in ("weights", "vectors")
            ):
                raise VizslaError(f"{tower.folder}: the head {tower.kind} gives no weights of terms to search with")
        if self.network.kind == "sparta":
            object.__setattr__(self, "inference_free", True)
        for tower, length in ((self.network, self.length), (towers[-1], self.query_length)):
            if not 0 <= length <= tower.length or 0 < length < 3:
                raise VizslaError(f"this network reads 3 to {tower.length} tokens of a text, not {length}")
        if self.max_weight is not None and not 0 <= self.max_weight < float("inf"):
            raise VizslaError(f"max_weight must be a number of 0 or more, not {self.max_weight}")
        if self.whole and not self.stored_maximum:
            raise VizslaError(
                "weights of queries are rounded to 8 bits only where those of documents are; set max_weight"
            )
        check_query_norm(self.query_norm)
        if not 0 <= self.max_added < float("inf"):
            raise VizslaError(f"max_added must be a number of 0 or more, not {self.max_added}")
        check_term_limits(max_terms=self.max_terms, max_query_terms=self.max_query_terms)
        if self.inference_free and self.query_table is None and self.network.kind != "sparta":
            raise VizslaError(
                f"{self.name} has no table for queries without a network; train one with --set network.query_table=true"
            )

    @classmethod
    def shipped(cls, which: str, **options: Any) -> LearnedSparse:
        """A model whose network comes with the package."""
        folder = SHIPPED / which
        table = {"query_table": PieceVectors.open(folder / QUERIES)} if (folder / QUERIES).is_dir() else {}
        return cls(**{"network": Network.open(folder), "namespace": which, "name": which, **table, **options})

    @classmethod
    def open(
        cls, which: str | Path, precision: Precision = "int8", *, queries: str | Path = "", **options: Any
    ) -> LearnedSparse:
        """A SPLADE as sentence-transformers or transformers save it, from a folder or by its name.

        `queries`: another checkpoint for queries. Plain BERT and DistilBERT become networks that run without torch;
        others are run by torch and transformers. Document weights are stored as 32-bit floats unless `max_weight` is
        given. What can be set:

        >>> [option.name for option in MODELS["splade"].options if "checkpoint" in option.name]
        ['checkpoint', 'query_checkpoint']
        """
        from vizsla.neural.checkpoints.splade import SparseCheckpoint
        from vizsla.neural.checkpoints.tokenizers import (
            alike,  # a search without a checkpoint does not wait for it
        )

        sides = SparseCheckpoint.read(which)
        if queries:
            sides = [sides[0], SparseCheckpoint.read(queries)[-1]]
        plain = all(side.plain for side in sides) and alike([side.pieces for side in sides])
        if not plain and len({side.tokenizer_steps() for side in sides}) > 1:
            raise VizslaError(f"{which}: queries and documents have different tokenizers, so they share no terms")
        towers: list[Any] = [
            side.term_weights() if side.settings.is_table
            else side.network(precision) if plain else side.masked_language(precision)
            for side in sides
        ]  # fmt: skip
        read: dict[str, Any] = {
            "network": towers[0],
            "analyzer": sides[0].analyzer if plain else None,
            "query_prompt": sides[-1].settings.query_prompt,
            "document_prompt": sides[0].settings.document_prompt,
            "max_weight": 0.0,
            "namespace": "splade",
            "name": "splade",
        }
        if isinstance(towers[-1], TermWeights):
            read |= {"query_table": towers[-1], "inference_free": True}
        elif len(towers) > 1:
            read["query_network"] = towers[1]
        return cls(**{**read, **options})

    @classmethod
    def open_head(cls, kind: str, which: str | Path, precision: Precision = "int8", **options: Any) -> LearnedSparse:
        """A third-party uniCOIL or SPARTA, as `kind` says, from a folder or by its name on the model hub.

        What its files leave open is read from the list of published checkpoints; options override it.
        """
        from vizsla.neural.checkpoints.published import find_published, published  # others do not wait for these
        from vizsla.neural.checkpoints.with_head import HeadCheckpoint

        checkpoint = HeadCheckpoint.read(which, kind)
        usual = {"unicoil": "unicoil-noexp"}.get(kind, kind)
        settings = dict((find_published(str(which), kind) or published()[usual]).settings)
        if "fields" in settings:
            settings["fields"] = tuple(settings["fields"])
        for name in ("length", "query_length"):
            if name in settings:
                settings[name] = min(settings[name], checkpoint.length)
        network = checkpoint.network(precision, settings.get("max_weight", 1.0))
        stored = {"max_weight": 0.0} if kind == "sparta" else {}
        named = {"name": kind, "namespace": kind, "analyzer": checkpoint.analyzer}
        return cls(network, **{**named, **stored, **settings, **options})

    @property
    def batch_size(self) -> int:
        """About a second's work on a CPU, so that progress is visible and Ctrl-C works."""
        return 2000 if self.network.runs_fast else 100

    @property
    def index_signature(self) -> tuple[Any, ...]:
        read = self.document_prompt, self.length, self.stored_maximum, self.fields
        limits = (self.max_terms,) if self.max_terms else ()
        added = ("add_new_pieces",) if self._reads_queries else ()
        return self.kind, self.network, self.analyzer, *read, *limits, *added

    @property
    def _reads_queries(self) -> bool:
        """Whether the pieces of generated queries are added to those of a text."""
        return self.add_new_pieces and QUERIES_FIELD in self.fields

    @property
    def expression_name(self) -> str:
        """The name of a network that comes with the package, or the folder the model was saved to."""
        folder = self.network.folder
        if folder.parent == SHIPPED:
            return folder.name
        saved = (folder.parent / "model.json").is_file()
        return str(folder.parent) if saved or isinstance(self.network, Network) else super().expression_name

    @property
    def stored_maximum(self) -> float:
        """The document weight that becomes 255 in 8 bits; 0 where weights are stored as floats."""
        if self.max_weight is not None:
            return self.max_weight
        return self.network.max_weight if isinstance(self.network, Network) else 0.0

    @property
    def pieces(self) -> WordPiece:
        """The word pieces that the network reads."""
        assert isinstance(self._tokenizer, WordPiece)
        return self._tokenizer

    @property
    def _tokenizer(self) -> Any:
        return self.analyzer.tokenizer if isinstance(self.analyzer, Analyzer) else None

    @property
    def terms(self) -> Sequence[str]:
        """The terms by number."""
        return self.network.terms if isinstance(self.network, MaskedLanguage) else self.pieces.vocabulary

    def vocabulary(self) -> Iterable[str]:
        return self.terms

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what is computed from them is not sent to other processes."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def options(self, folder: Path) -> dict[str, Any]:
        return self.__getstate__() | {
            "analyzer": self.analyzer.save(folder) if isinstance(self.analyzer, Analyzer) else None,
            "network": self.network.save(folder),
            "query_network": None if self.query_network is None else self.query_network.save(folder),
            "query_table": None if self.query_table is None else self.query_table.save(folder),
        }

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> LearnedSparse:
        names = {"network": "str", "query_network": "str | None", "query_table": "str | None", "analyzer": "str | None"}
        values = fields_from_data(cls, {**dict.fromkeys(names), **options}, **names)
        for name in ("network", "query_network", "query_table"):
            if values[name] is not None:
                values[name] = _opened(folder / values[name])
        if values["analyzer"] is not None:
            values["analyzer"] = Analyzer.parse(values["analyzer"], folder)
        return cls(**values)

    def document_encoder(self) -> SparseDocumentEncoder:
        return _DocumentEncoder(self)

    def weighting(self, statistics: Statistics) -> Weighting:  # noqa: ARG002 (weights need none)
        return Weighting(scale=1.0 if self.whole or not self.stored_maximum else self.stored_maximum / LEVELS)

    def tokens(self, text: str) -> list[Token]:
        return self.analyzer.tokens(text) if isinstance(self.analyzer, Analyzer) else []

    def typed_terms(self, text: str) -> dict[str, TypedTerm]:
        if not isinstance(self.network, MaskedLanguage):
            return super().typed_terms(text)
        (ids,) = self._table_ids([text])  # where they are in the text is not known
        return {self.terms[i]: TypedTerm() for i in ids}

    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> list[dict[str, float]]:  # noqa: ARG002
        pointers, indices, weights = heaviest(*self._query_rows(texts), self.max_query_terms)
        if self.max_added:
            weights = self._limited(texts, pointers, indices, weights)
        if self.whole:
            weights = whole_weights(weights, self.stored_maximum)
        names = self.terms
        terms = [(names[i], weight) for i, weight in zip(indices.tolist(), weights.tolist(), strict=True)]
        queries = [{term: weight for term, weight in terms[a:z] if weight} for a, z in pairwise(pointers.tolist())]
        return shortened(queries, self.query_norm) if self.query_norm else queries

    def _limited(
        self, texts: Sequence[str], pointers: np.ndarray, indices: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        """The weights of queries, with those of added terms lowered to `max_added`."""
        own = [
            np.isin(indices[a:z], row) for row, (a, z) in zip(self._table_ids(texts), pairwise(pointers), strict=True)
        ]
        is_own = np.concatenate([*own, np.zeros(0, np.bool_)])
        queries = np.repeat(np.arange(len(texts)), np.diff(pointers))
        typed, added = (np.bincount(queries, weights * side, len(texts)) for side in (is_own, ~is_own))
        factors = np.minimum(self.max_added * typed / np.maximum(added, np.finfo(np.float32).tiny), 1.0)
        return np.where(is_own, weights, weights * factors[queries]).astype(weights.dtype)

    def _query_rows(self, texts: Sequence[str]) -> Rows:
        if not self.inference_free:
            network, length = self.query_network or self.network, self.query_length or self.length
            return self._rows(texts, network, self.query_prompt, length, add_repeats=self.sum_query_repeats)
        ids = self._table_ids([self.query_prompt + text for text in texts])
        if self.query_table is None:
            ignored = {*SPECIAL_TOKENS, self.pieces.numbers.get("[UNK]")}
            rows = [{i: 1.0 for i in row if i not in ignored} for row in ids]
        else:
            rows = self.query_table.rows(ids)
        pointers = np.cumsum([0, *map(len, rows)])
        indices = np.fromiter(chain.from_iterable(rows), np.int64, int(pointers[-1]))
        weights = np.fromiter(chain.from_iterable(row.values() for row in rows), np.float32, int(pointers[-1]))
        return pointers, indices, weights

    def _table_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The pieces of queries that a table weighs; all of them, unless a length is set."""
        length = self.query_length or self.length
        limit = length - 2 if length else 1 << 20
        if isinstance(self.network, MaskedLanguage):
            return self.network.token_ids(texts, limit)
        return [row[:limit] for row in self.pieces.ids(texts)]

    def document_rows(self, texts: Sequence[str]) -> Rows:
        """The weights of documents, as floats; texts without a known token have none."""
        return self._rows(texts, self.network, self.document_prompt, self.length)

    def _rows(
        self, texts: Sequence[str], network: Tower, prompt: str, length: int, *, add_repeats: bool = False
    ) -> Rows:
        if isinstance(network, MaskedLanguage):
            rows = network.term_weights(texts, TokenizerOptions(prompt, length or network.length))
            return self._checked(rows)
        ids = self.pieces.ids(texts)
        unknown = self.pieces.numbers.get("[UNK]")
        has_token = np.array([any(i != unknown for i in row) for row in ids], np.bool_)
        read = self.pieces.ids([prompt + text for text in texts]) if prompt else ids
        return self.piece_rows(*joined(read), has_token, network, length, add_repeats=add_repeats)

    def piece_rows(
        self,
        ids: np.ndarray,
        starts: np.ndarray,
        has_token: np.ndarray,
        network: Network,
        length: int,
        *,
        add_repeats: bool = False,
    ) -> Rows:
        """The weights of texts given as concatenated word pieces; `has_token`: which texts have a known piece.

        Where the network weighs tokens, a repeated piece has its highest weight, or the sum with `add_repeats`.
        """
        sizes = np.diff(starts)
        read = sizes[has_token]
        offsets = np.concatenate([[0], np.cumsum(read)])
        framed, bounds = network.framed(ids[np.repeat(has_token, sizes)], offsets, length)
        if not len(read):
            pointers, terms, weights = np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
        elif _gives(network.kind) == "vectors":
            terms, weights, pointers = network.running.vectors(framed, bounds)
        else:
            texts = np.repeat(np.arange(len(read)), np.diff(bounds))
            token_weights = network.running.weights(framed, bounds)
            merge = np.add if add_repeats else np.maximum
            pointers, terms, weights = _merged(texts, framed, token_weights, len(read), merge)
        counts = np.zeros(len(sizes), np.int64)
        counts[has_token] = np.diff(pointers)
        return self._checked((np.concatenate([[0], np.cumsum(counts)]), terms, weights))

    def _checked(self, rows: Rows) -> Rows:
        if not np.isfinite(rows[2]).all():
            raise VizslaError(f"the network of {self.name!r} gives weights that are not finite")
        return rows


class _DocumentEncoder(SparseDocumentEncoder):
    """Documents to stored weights, in 8 bits or as floats; remembers the words it has met."""

    def __init__(self, model: LearnedSparse) -> None:
        self._model = model
        self._lexicon = model.analyzer.lexicon() if isinstance(model.analyzer, Analyzer) else None
        self._ids = np.zeros(0, np.int64)
        self._vocabulary = Vocabulary(model.namespace, list(model.terms))

    def encode(self, documents: Sequence[Fields]) -> SparseDocuments:
        model = self._model
        read = [name for name in model.fields if not (name == QUERIES_FIELD and model.add_new_pieces)]
        texts = [field_text(document, read) for document in documents]
        added = (
            [field_text(document, [QUERIES_FIELD]) for document in documents] if len(read) < len(model.fields) else []
        )
        rows = self._rows(texts, added)
        pointers, terms, weights = heaviest(*rows, model.max_terms)
        maximum = model.stored_maximum
        values = whole_weights(weights, maximum) if maximum else weights.astype(np.float64)
        kept = values >= _MIN_WEIGHT
        pointers = np.concatenate([[0], np.cumsum(kept)])[pointers]
        vectors = SparseVectors(self._vocabulary, pointers, terms[kept], values[kept])
        return SparseDocuments(vectors, np.diff(pointers))

    def _rows(self, texts: list[str], added: list[str]) -> Rows:
        model = self._model
        if isinstance(model.network, MaskedLanguage):
            return model.document_rows(texts)
        ids, starts = self._pieces(texts)
        unknown = ids == model.pieces.numbers.get("[UNK]", -1)
        has_token = np.diff(np.concatenate([[0], np.cumsum(~unknown)])[starts]) > 0
        if model.document_prompt:
            ids, starts = self._pieces([model.document_prompt + text for text in texts])
        if added:
            ids, starts = with_new_pieces(ids, starts, *self._pieces(added))
        return model.piece_rows(ids, starts, has_token, model.network, model.length)

    def _pieces(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        assert self._lexicon is not None
        numbers, ends = self._lexicon.encode(texts)
        new = self._lexicon.terms[len(self._ids) :]
        self._ids = np.concatenate([self._ids, np.array([self._model.pieces.numbers[t] for t in new], np.int64)])
        return self._ids[numbers], np.concatenate([[0], ends])


def with_new_pieces(
    ids: np.ndarray, starts: np.ndarray, added: np.ndarray, added_starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Concatenated texts, each with [SEP] and the pieces of an added text that it lacks, each once.

    Of a text 400 pieces are read, and of what is added 100, as for the uniCOIL of Pyserini. A text to which nothing is
    added stays as it is.

    >>> rows = with_new_pieces(np.array([7, 8, 9]), np.array([0, 2, 3]), np.array([8, 5, 6, 5]), np.array([0, 4, 4]))
    >>> [array.tolist() for array in rows]
    [[7, 8, 102, 5, 6, 9], [0, 5, 6]]
    """
    rows = []
    for (a, z), (first, last) in zip(pairwise(starts.tolist()), pairwise(added_starts.tolist()), strict=True):
        text, more = ids[a:z].tolist(), added[first : min(last, first + ADDED_PIECES)].tolist()
        if more:
            text = text[:TEXT_PIECES]
            own = set(text)
            new = [piece for piece in dict.fromkeys(more) if piece not in own]
            text = [*text, END, *new]
        rows.append(text)
    return joined(rows)


def _gives(head: str) -> str:
    return HEADS[head].make().gives


def check_term_limits(**limits: object) -> None:
    """Refuse a limit that is not a whole number of 0 or more."""
    for name, value in limits.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise VizslaError(f"{name} must be a whole number of 0 or more, not {value!r}")


def heaviest(pointers: np.ndarray, terms: np.ndarray, weights: np.ndarray, most: int) -> Rows:
    """Rows with at most so many terms each, in the order they had; 0 keeps all.

    Of equal weights the first are kept.

    >>> rows = heaviest(np.array([0, 3, 4]), np.array([7, 8, 9, 5]), np.array([0.2, 0.5, 0.3, 0.1]), 2)
    >>> [array.tolist() for array in rows]
    [[0, 2, 3], [8, 9, 5], [0.5, 0.3, 0.1]]
    """
    sizes = np.diff(pointers)
    if not most or not len(sizes) or sizes.max() <= most:
        return pointers, terms, weights
    rows = np.repeat(np.arange(len(sizes)), sizes)
    by_weight = np.lexsort((-weights, rows))
    ranks = np.arange(len(terms)) - pointers[rows]
    kept = np.sort(by_weight[ranks < most])
    return np.concatenate([[0], np.cumsum(np.minimum(sizes, most))]), terms[kept], weights[kept]


def whole_weights(weights: np.ndarray, most: float) -> np.ndarray:
    """Weights in 8 bits."""
    return np.minimum(np.rint(weights * (LEVELS / most)), LEVELS).astype(np.int64)


def joined(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Concatenated ids, and where each text begins and the last ends."""
    starts = np.cumsum([0, *map(len, rows)])
    return np.fromiter(chain.from_iterable(rows), np.int64, int(starts[-1])), starts


def _merged(rows: np.ndarray, ids: np.ndarray, weights: np.ndarray, count: int, merge: np.ufunc) -> Rows:
    """The weight of each id in each row, from those of its repeats: the highest with np.maximum, or np.add."""
    kept = weights > 0
    keys, values = (rows[kept] << 32) | ids[kept], weights[kept]
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.zeros(0, np.int64)
    merged = merge.reduceat(values, first) if len(first) else values
    pointers = np.searchsorted(keys[first] >> 32, np.arange(count + 1))
    return pointers, keys[first] & 0xFFFFFFFF, merged


def _opened(folder: Path) -> Tower | Table:
    """What was saved in a folder: a model that reads texts, a table, or a network of Vizsla's own."""
    try:
        reads = parse_settings((folder / ABOUT).read_text("utf-8")).get("reads")
    except (OSError, ValueError, AttributeError):
        reads = None  # Network.open raises a better error
    kinds: dict[Any, Any] = {"terms": TermWeights, "pieces": PieceVectors, "texts": MaskedLanguage}
    opened: Tower | Table = kinds.get(reads, Network).open(folder)
    return opened


_NORM = "long queries count less in a sum: weights are divided by the number of terms to this power"
_OPTIONS = {
    "max_terms": "terms of a document that are kept, the heaviest; 0 for all",
    "max_query_terms": "terms of a query that are kept, the heaviest; 0 for all",
    "max_added": "terms added to a query weigh together at most this many times what its own weigh; 0 for no limit",
    "query_norm": _NORM,
    "fields": "the fields it reads, separated by /",
    "namespace": "keeps its terms apart from those of other parts of a sum",
}
LEARNED_OPTIONS = options_of(
    LearnedSparse,
    analyzer="the word pieces the network was trained with",
    length="how many tokens of a text are read; 0 for as many as the network can",
    query_length="how many tokens of a query are read; 0 for length",
    inference_free="look queries up in a table instead of running the network",
    **_OPTIONS,
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
    "learned",
    help="Any learned sparse model that you trained.",
    options=(NETWORK_OPTION, *LEARNED_OPTIONS),
    needs=NEEDS,
)
def learned(network: str = "", **options: Any) -> LearnedSparse:
    return replace(load_learned("learned", network), **options)


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


@MODELS.register(
    "splade",
    help="Any SPLADE as sentence-transformers or transformers save it.",
    options=(
        Option("checkpoint", "str", "", "a folder or a name on the model hub"),
        Option("query_checkpoint", "str", "", "another model for queries"),
        Option("precision", "str", "int8", f"of the network's weights: {', '.join(get_args(Precision))}"),
        *with_defaults(
            options_of(
                LearnedSparse,
                max_weight="stores document weights in 8 bits, up to this one; 0 for 32-bit floats",
                length="how many tokens of a text are read; 0 for as many as the network can",
                query_length="how many tokens of a query are read; 0 for length",
                **_OPTIONS,
            ),
            max_weight=0.0,
            namespace="splade",
        ),
    ),
    needs=NEEDS,
)
def splade(checkpoint: str = "", query_checkpoint: str = "", precision: str = "int8", **options: Any) -> LearnedSparse:
    """A SPLADE by its folder or name."""
    if not checkpoint:
        raise VizslaError("name a SPLADE, as in splade(checkpoint=FOLDER)")
    return LearnedSparse.open(checkpoint, checked_precision(precision), queries=query_checkpoint, **options)


CHECKPOINT_OPTIONS = (
    Option("checkpoint", "str", "", "a published one: a folder or a name on the model hub"),
    Option("precision", "str", "int8", f"of a checkpoint's weights: {', '.join(get_args(Precision))}"),
)


@MODELS.register(
    "unicoil",
    help="uniCOIL as castorini published it, or another with a layer tok_proj.",
    options=(
        *CHECKPOINT_OPTIONS,
        *with_defaults(
            options_of(
                LearnedSparse,
                max_weight="stores document weights in 8 bits, up to this one; 0 for 32-bit floats",
                length="how many tokens of a text are read; 0 for as many as the network can",
                query_length="how many tokens of a query are read; 0 for length",
                **_OPTIONS,
            ),
            max_weight=5.0,
            query_length=128,
            namespace="unicoil",
        ),
    ),
    needs=NEEDS,
)
def unicoil(checkpoint: str = "", precision: str = "int8", **options: Any) -> LearnedSparse:
    """A uniCOIL by its folder or name; without one, castorini's, which was trained on documents with queries."""
    return LearnedSparse.open_head("unicoil", checkpoint or UNICOIL, checked_precision(precision), **options)


@MODELS.register(
    "sparta",
    help="SPARTA: a network gives documents terms, queries need none. BEIR's by name, or your own.",
    options=(
        NETWORK_OPTION,
        *CHECKPOINT_OPTIONS,
        *with_defaults(
            options_of(
                LearnedSparse,
                max_terms=_OPTIONS["max_terms"],
                length="how many tokens of a document are read; 0 for as many as the network can",
                fields=_OPTIONS["fields"],
                namespace=_OPTIONS["namespace"],
            ),
            max_terms=SPARTA_TERMS,
            namespace="sparta",
        ),
    ),
    needs=NEEDS,
)
def sparta(network: str = "", checkpoint: str = "", precision: str = "int8", **options: Any) -> LearnedSparse:
    """A SPARTA from the folder it was saved to, or a published one."""
    if checkpoint:
        return LearnedSparse.open_head("sparta", checkpoint, checked_precision(precision), **options)
    if not network:
        raise VizslaError(
            "no SPARTA comes with Vizsla; train one, as in: vizsla train sparta --dataset DIR -o DIR, and name it: "
            '"sparta(network=DIR)", or fetch BEIR\'s: "sparta(checkpoint=BeIR/sparta-msmarco-distilbert-base-v1)"'
        )
    model = Model.load(network)
    if not isinstance(model, LearnedSparse) or model.network.kind != "sparta":
        raise VizslaError(f"{network}: sparta needs a SPARTA, and this model is something else")
    return replace(model, **options)


def checked_precision(text: str) -> Precision:
    """The precision of this name."""
    for name in get_args(Precision):
        if text == name:
            return name  # type: ignore[no-any-return]
    raise UnknownNameError("precision", text, get_args(Precision))
