"""BM25 over counts: those that documents bring, or those that a network gives their words (DeepCT)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.engine import Weighting
from vizsla.errors import UnknownNameError, VizslaError, kind_of
from vizsla.models.bm25 import BM25
from vizsla.models.components import (
    SearchContext,
    SparseComponent,
    SparseDocumentEncoder,
    SparseDocuments,
    TermWeightEncoder,
)
from vizsla.models.fields import Fields, check_fields, field_text, text_problem
from vizsla.models.learned_sparse import CHECKPOINT_OPTIONS, NETWORK_OPTION, checked_precision
from vizsla.models.model import MODELS, Model
from vizsla.models.statistics import Statistics
from vizsla.neural.network import Network
from vizsla.neural.onnx_graph import Precision
from vizsla.plain_data import fields_from_data
from vizsla.spec import options_of, with_defaults
from vizsla.text import Analyzer, Token, WordPiece

MAX_LENGTH = (1 << 31) - 1
"""The highest sum of a document's counts: what fits in the byte that a length is stored in."""
MERGES = ("sum", "max")


@dataclass(frozen=True)
class BM25OverCounts(SparseComponent):
    """Base of models that supply their own counts: BM25 over these counts, whose sum is the length of a document.

    Queries are those of BM25, and so is idf, which comes from the live documents. Lengths are stored in one byte, as in
    Lucene. `merge`: how the counts of words with the same term are combined, by their sum or their maximum.
    """

    k1: float = 0.9
    b: float = 0.4
    merge: str = "sum"
    analyzer: Analyzer | str = "lucene-english"
    fields: tuple[str, ...] = ("counts",)
    namespace: str = "counts"
    name: str = "counts"

    expression_options: ClassVar[tuple[str, ...]] = ("k1", "b", "merge", "analyzer", "fields", "namespace")

    def __post_init__(self) -> None:
        if isinstance(self.analyzer, str):
            object.__setattr__(self, "analyzer", Analyzer.parse(self.analyzer))
        if self.merge not in MERGES:
            raise UnknownNameError("way to merge counts", self.merge, MERGES)
        check_fields(self.fields)
        _ = self._bm25  # checks k1 and b

    @property
    def _bm25(self) -> BM25:
        return BM25(self.k1, self.b, analyzer=self.analyzer, fields=self.fields, namespace=self.namespace)

    @property
    def text_analyzer(self) -> Analyzer:
        """The analyzer as a value; `analyzer` may be given by name."""
        assert isinstance(self.analyzer, Analyzer)
        return self.analyzer

    @property
    @abstractmethod
    def index_signature(self) -> tuple[Any, ...]: ...

    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> Sequence[dict[str, float]]:
        return self._bm25.query_terms(texts, context)

    def length_codes(self, lengths: np.ndarray) -> np.ndarray:
        return self._bm25.length_codes(lengths)

    def weighting(self, statistics: Statistics) -> Weighting:
        return self._bm25.weighting(statistics)

    def term_factors(self, frequencies: np.ndarray, documents: int) -> np.ndarray:
        return self._bm25.term_factors(frequencies, documents)

    def tokens(self, text: str) -> list[Token]:
        return self.text_analyzer.tokens(text)

    def merged(self, counts: Iterable[tuple[str, int]]) -> dict[str, int]:
        """The counts of terms, given those of words that became these terms; counts of 0 are left out."""
        merged: dict[str, int] = {}
        for term, count in counts:
            if count > 0:
                before = merged.get(term, 0)
                merged[term] = before + count if self.merge == "sum" else max(before, count)
        return merged

    def options(self, folder: Path) -> dict[str, Any]:
        return vars(self) | {"analyzer": self.text_analyzer.save(folder)}


class CountEncoder(TermWeightEncoder):
    """Encodes documents with a function that returns the counts of their terms; their sum is a document's length."""

    def encode(self, documents: Sequence[Fields]) -> SparseDocuments:
        vectors, _ = super().encode(documents)
        running = np.concatenate([[0], np.cumsum(vectors.values)])
        return SparseDocuments(vectors, np.diff(running[vectors.pointers]))


@dataclass(frozen=True)
class TermCounts(BM25OverCounts):
    """Documents have the counts of their words in the field `counts`: {"word": count, ...}.

    Words go through the analyzer as those of queries do: stop words are dropped, and words with one stem are one term.
    With `merge="sum"`, counts of the words of a text give the scores of BM25 over that text.

    >>> model = TermCounts()
    >>> documents = [{"counts": {"the": 9, "dog": 2, "dogs": 1}}, {"counts": {"cat": 3}}]
    >>> queries = model.encode_queries(["dog"], model.statistics(documents))
    >>> queries.dot(model.encode_documents(documents)).round(4).tolist()
    [[0.5332, 0.0]]
    >>> model.merged([("dog", 2), ("dog", 1)])
    {'dog': 3}
    """

    kind: ClassVar[str] = "counts"
    expression_name: ClassVar[str] = "counts"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.fields) != 1:
            raise VizslaError(f"counts are read from one field, not from {len(self.fields)}")

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, self.analyzer, self.fields, self.merge

    def field_problem(self, content: Mapping[str, Any]) -> str | None:
        counts = content.get(self.fields[0])
        if counts is None:
            return None
        if not isinstance(counts, Mapping):
            return f"has a field {self.fields[0]!r} that is not an object of words and counts, but {kind_of(counts)}"
        total = 0
        for word, count in counts.items():
            if isinstance(count, bool) or not isinstance(count, int | float):
                return f"has a count for {word!r} that is not a number, but {kind_of(count)}"
            if not 0 <= count <= MAX_LENGTH or count != int(count):
                return f"has a count for {word!r} that is not a whole number of 0 or more, but {count}"
            total += len(self.text_analyzer(word)) * int(count)
        if total > MAX_LENGTH:
            return f"has counts that add up to {total:,}, and {MAX_LENGTH:,} is the most there can be"
        return None

    def document_encoder(self) -> SparseDocumentEncoder:
        return CountEncoder(self.namespace, self._counts)

    def _counts(self, document: Fields) -> dict[str, int]:
        counts = {} if isinstance(document, str) else document.get(self.fields[0]) or {}
        analyzer = self.text_analyzer
        return self.merged((term, int(count)) for word, count in counts.items() for term in analyzer(word))

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> TermCounts:
        values = fields_from_data(cls, options, analyzer="str", fields="tuple[str, ...]")
        return cls(**{**values, "analyzer": Analyzer.parse(values["analyzer"], folder)})


COUNTS_OPTIONS = options_of(
    TermCounts,
    k1="saturation of counts",
    b="length normalisation, from 0 to 1",
    merge=f"how the counts of words with the same term are combined, one of {', '.join(MERGES)}",
    analyzer="how words and queries become terms, by name or as a pipeline",
    fields="the field with the counts",
    namespace="keeps its terms apart from those of other parts of a sum",
)

MODELS.register("counts", help="BM25 over counts in a field of the documents.", options=COUNTS_OPTIONS)(TermCounts)


SMOOTHINGS = ("none", "sqrt")
BEIR: dict[str, Any] = {"k1": 0.9, "b": 0.4, "smoothing": "sqrt", "keep_all": True, "length": 350}
"""The settings of BEIR, with another network: counts as in its example, Anserini's k1 and b as in its paper."""


@dataclass(frozen=True, kw_only=True)
class DeepCT(BM25OverCounts):
    """BM25 over word counts that a network assigns to documents; queries are those of BM25 and need no network.

    The network reads word pieces and weighs each. A word has the weight of its first piece. Its count is this weight
    times `scale`, rounded (with `smoothing="sqrt"` the square root of the weight is taken first). Words with counts
    below 1 count 1. With `keep_all=False` they are dropped; most weights are close to 0, so a small error of the
    network then decides which words can be found. Of repeats of a term the highest count is taken, or the sum with
    `merge="sum"`.
    `pieces`: the word pieces the network was trained with. `length`: how many tokens of a document are read, 0 for as
    many as the network can; words after them cannot be found.
    """

    network: Network
    k1: float = 10.0
    pieces: Analyzer | str = "wordpiece"
    scale: float = 100.0
    smoothing: str = "none"
    keep_all: bool = True
    length: int = 0
    merge: str = "max"
    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "deepct"
    name: str = "deepct"

    kind: ClassVar[str] = "deepct"
    expression_options: ClassVar[tuple[str, ...]] = (
        "k1", "b", "merge", "scale", "smoothing", "keep_all", "length", "fields", "namespace",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.pieces, str):
            object.__setattr__(self, "pieces", Analyzer.parse(self.pieces))
        if not isinstance(self._pieces.tokenizer, WordPiece):
            raise VizslaError(f"a network reads word pieces, and {self.pieces} does not make them")
        if self.network.kind != "deepct":
            raise VizslaError(f"deepct needs a network with the head deepct, and this one has {self.network.kind}")
        if self.smoothing not in SMOOTHINGS:
            raise UnknownNameError("smoothing of DeepCT's counts", self.smoothing, SMOOTHINGS)
        if not 0 < self.scale <= 1_000_000:
            raise VizslaError(f"scale must be above 0 and at most 1,000,000, not {self.scale:g}")
        if not 0 <= self.length <= self.network.length or 0 < self.length < 3:
            raise VizslaError(f"this network reads 3 to {self.network.length} tokens of a text, not {self.length}")

    @property
    def batch_size(self) -> int:
        """About a second's work on a CPU, so that progress is visible and Ctrl-C works."""
        return 2000 if self.network.runs_fast else 100

    @property
    def index_signature(self) -> tuple[Any, ...]:
        counting = self.merge, self.scale, self.smoothing, self.keep_all
        return self.kind, self.network, self.pieces, self.analyzer, self.length, self.fields, counting

    @property
    def expression_name(self) -> str:
        return str(self.network.folder.parent)

    def vocabulary(self) -> Iterable[str]:
        assert isinstance(self._pieces.tokenizer, WordPiece)
        return self._pieces.tokenizer.vocabulary

    @property
    def _pieces(self) -> Analyzer:
        assert isinstance(self.pieces, Analyzer)
        return self.pieces

    def field_problem(self, content: Mapping[str, Any]) -> str | None:
        return text_problem(content, self.fields)

    def document_encoder(self) -> SparseDocumentEncoder:
        return _DeepCTEncoder(self)

    def counts(self, texts: Sequence[str]) -> list[dict[str, int]]:
        """How much each term of each text counts."""
        numbers = self._pieces.tokenizer.numbers  # type: ignore[attr-defined]
        read = [(self._pieces.tokens(text), self.text_analyzer.tokens(text)) for text in texts]
        ids = np.array([numbers[piece.term] for pieces, _ in read for piece in pieces], np.int64)
        starts = np.cumsum([0, *(len(pieces) for pieces, _ in read)])
        framed, offsets = self.network.framed(ids, starts, self.length)
        weights = self.network.running.weights(framed, offsets)
        rows = (weights[begin + 1 : end - 1] for begin, end in pairwise(offsets.tolist()))
        return [self._merged(pieces, words, row) for (pieces, words), row in zip(read, rows, strict=True)]

    def _merged(self, pieces: Sequence[Token], words: Sequence[Token], weights: np.ndarray) -> dict[str, int]:
        known = [(word.term, place) for word, place in zip(words, first_pieces(words, pieces), strict=True)]
        known = [(term, place) for term, place in known if 0 <= place < len(weights)]
        counts = word_counts(weights[[place for _, place in known]], self.scale, self.smoothing, self.keep_all)
        return self.merged(zip((term for term, _ in known), counts.tolist(), strict=True))

    def options(self, folder: Path) -> dict[str, Any]:
        return super().options(folder) | {"pieces": self._pieces.save(folder), "network": self.network.save(folder)}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> DeepCT:
        values = fields_from_data(cls, options, network="str", analyzer="str", pieces="str", fields="tuple[str, ...]")
        analyzers = {name: Analyzer.parse(values[name], folder) for name in ("analyzer", "pieces")}
        return cls(**{**values, **analyzers, "network": Network.open(folder / values["network"])})


def first_pieces(words: Sequence[Token], pieces: Sequence[Token]) -> list[int]:
    """The number of the first piece of each word, both in the order of the text; -1 for a word without a piece.

    >>> first_pieces([Token("run", 4, 11)], [Token("the", 0, 3), Token("run", 4, 7), Token("##ning", 7, 11)])
    [1]
    """
    places, at = [], 0
    for word in words:
        while at < len(pieces) and pieces[at].end <= word.start:
            at += 1
        places.append(at if at < len(pieces) and pieces[at].start < word.end else -1)
    return places


def word_counts(weights: np.ndarray, scale: float, smoothing: str, keep_all: bool) -> np.ndarray:
    """The counts of words that have these weights; 0 for words to drop.

    >>> word_counts(np.array([0.25, 0.004, -0.1]), 100, "none", False).tolist()
    [25, 0, 0]
    >>> word_counts(np.array([0.25, 0.004, -0.1]), 100, "sqrt", True).tolist()
    [50, 6, 1]
    """
    cut = np.maximum(np.asarray(weights, np.float64), 0)
    counts = np.rint(scale * (np.sqrt(cut) if smoothing == "sqrt" else cut)).astype(np.int64)
    return np.maximum(counts, 1) if keep_all else counts


class _DeepCTEncoder(CountEncoder):
    """Encodes batches of documents by the network."""

    def __init__(self, model: DeepCT) -> None:
        super().__init__(model.namespace, lambda counts: {} if isinstance(counts, str) else counts)
        self._model = model

    def encode(self, documents: Sequence[Fields]) -> SparseDocuments:
        return super().encode(self._model.counts([field_text(d, self._model.fields) for d in documents]))


DEEPCT_OPTIONS = (
    NETWORK_OPTION,
    *CHECKPOINT_OPTIONS,
    *options_of(
        DeepCT,
        k1="saturation of counts",
        b="length normalisation, from 0 to 1",
        merge="how the counts of a term's repeats are combined, max or sum",
        scale="counts are this many times the network's weights",
        smoothing=f"of the weights before that, one of {', '.join(SMOOTHINGS)}",
        keep_all="words with a count below 1 count 1, instead of being dropped",
        length="how many tokens of a document are read; 0 for as many as the network can",
        fields="the fields it reads, separated by /",
        namespace="keeps its terms apart from those of other parts of a sum",
    ),
)


@MODELS.register(
    "deepct",
    help="DeepCT: BM25 over counts that a network gives. You train it, or fetch a published one.",
    options=DEEPCT_OPTIONS,
)
def deepct(network: str = "", checkpoint: str = "", precision: str = "int8", **options: Any) -> DeepCT:
    return replace(load_deepct("deepct", network, checkpoint, precision), **options)


@MODELS.register(
    "deepct-beir",
    help="DeepCT with the settings of BEIR. You train it, or fetch a published one.",
    options=with_defaults(DEEPCT_OPTIONS, **BEIR),
)
def deepct_beir(network: str = "", checkpoint: str = "", precision: str = "int8", **options: Any) -> DeepCT:
    return replace(load_deepct("deepct-beir", network, checkpoint, precision), **{**BEIR, **options})


def open_deepct(which: str | Path, precision: Precision = "int8") -> DeepCT:
    """A third-party DeepCT, a BERT for token classification with one label, from a folder or by its name."""
    from vizsla.neural.checkpoints.with_head import HeadCheckpoint  # a search without a checkpoint does not wait

    checkpoint = HeadCheckpoint.read(which, "deepct")
    return DeepCT(network=checkpoint.network(precision), pieces=checkpoint.analyzer)


def load_deepct(name: str, folder: str, checkpoint: str = "", precision: str = "int8") -> DeepCT:
    """A DeepCT from the folder it was saved to, or a published one, for the model `name`."""
    if checkpoint:
        return open_deepct(checkpoint, checked_precision(precision))
    if not folder:
        raise VizslaError(
            f"no DeepCT comes with Vizsla; train one, as in: vizsla train {name} --dataset DIR -o DIR, and name it: "
            f'"{name}(network=DIR)", or fetch a published one: "{name}(checkpoint=macavaney/deepct)"'
        )
    model = Model.load(folder)
    if not isinstance(model, DeepCT):
        raise VizslaError(f"{folder}: {name} needs a DeepCT, and this model is something else")
    return model
