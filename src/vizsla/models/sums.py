"""Named sums of BM25 and a learned model: BM51 and BM51e, also as the paper adds them; vizsla-sparse; hybrid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.errors import VizslaError
from vizsla.models.auto_weighted import AutoWeightedSum, auto
from vizsla.models.bm25 import BM25, BM25_OPTIONS, WORD_PIECES
from vizsla.models.components import (
    SearchContext,
    SparseComponent,
    SparseDocumentEncoder,
    SparseDocuments,
    batches_of,
)
from vizsla.models.expressions import parse_model
from vizsla.models.fields import Fields
from vizsla.models.learned_sparse import LEARNED_OPTIONS, NEEDS, NETWORK_OPTION, LearnedSparse, load_learned
from vizsla.models.model import MODELS, Model, Part, Sum
from vizsla.models.statistics import CountedStatistics, load_statistics, save_statistics
from vizsla.numbers import number_text
from vizsla.plain_data import fields_from_data
from vizsla.spec import Option, with_defaults
from vizsla.text import Token
from vizsla.vectors import Quantiser, SparseVectors, Vocabulary

HYBRID_ENCODER = "bge-small"
"""The dense part of `hybrid`, chosen on dev queries (docs/choosing.md)."""
QUERY_SCALE = 256
"""The weight of a word in a BM25 query. The paper gives none; it says that the weights of both are in (0, 256)."""


@dataclass(frozen=True)
class Impacts(SparseComponent):
    """BM25's weights, idf times saturated count, quantised to 1 to 256.

    Statistics and range are those of the documents it was fitted on, and are also used for documents added later.
    """

    bm25: BM25 = field(default_factory=BM25)
    frozen: CountedStatistics | None = None
    quantiser: str = "minmax:8"
    query_scale: int = QUERY_SCALE
    namespace: str = "impacts"
    name: str = "impacts"

    kind: ClassVar[str] = "impacts"

    def __post_init__(self) -> None:
        if not 1 <= self.query_scale <= QUERY_SCALE:
            raise VizslaError(f"query_scale must be 1 to {QUERY_SCALE}, not {self.query_scale}")

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.bm25.fields

    @property
    def needs_corpus_statistics(self) -> bool:
        return self.frozen is None

    def fit(self, documents: Sequence[Fields]) -> Impacts:
        """The model with the statistics and the range of these documents, which must be the whole corpus."""
        frozen = replace(self, frozen=self.bm25.count(documents))
        encoder = self.bm25.document_encoder()
        weights = (frozen.weights(encoder.encode(batch)).values for batch in batches_of(documents))
        ends = [end for values in weights if len(values) for end in (values.min(), values.max())]
        if not ends:
            raise VizslaError("the documents have no words, so impacts cannot be fitted to them")
        return replace(frozen, quantiser=str(Quantiser.parse(self.quantiser).fit(np.array(ends))))

    def weights(self, counted: SparseDocuments) -> SparseVectors:
        """The weights of counted documents before they are quantised."""
        vectors, lengths = counted
        statistics = self._statistics
        codes = np.repeat(self.bm25.length_codes(np.minimum(lengths, statistics.longest)), np.diff(vectors.pointers))
        names = [term for _, term in map(vectors.vocabulary.__getitem__, range(len(vectors.vocabulary)))]
        rarity = self.bm25.term_factors(statistics.document_frequencies(names), statistics.documents)
        values = self.bm25.weighting(statistics).weigh(vectors.values, codes) * rarity[vectors.indices]
        return SparseVectors(Vocabulary(self.namespace, names), vectors.pointers, vectors.indices, values)

    @property
    def _statistics(self) -> CountedStatistics:
        if self.frozen is None:
            raise VizslaError(f"{self.name} needs the statistics of all documents; call fit() with them first")
        return self.frozen

    def count(self, documents: Sequence[Fields]) -> CountedStatistics:
        return self.bm25.count(documents)

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, replace(self.bm25, namespace=""), self.quantiser

    def document_encoder(self) -> SparseDocumentEncoder:
        return _ImpactEncoder(self)

    def tokens(self, text: str) -> list[Token]:
        return self.bm25.tokens(text)

    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> list[dict[str, float]]:  # noqa: ARG002
        return [_scaled(counts, self.query_scale) for counts in self.bm25.query_terms(texts)]

    def options(self, folder: Path) -> dict[str, Any]:
        kept = None if self.frozen is None else save_statistics(self.frozen, folder)
        own = {"quantiser": self.quantiser, "query_scale": self.query_scale}
        own |= {"namespace": self.namespace, "name": self.name}
        return {"bm25": self.bm25.options(folder), "statistics": kept, **own}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Impacts:
        values = fields_from_data(cls, options, ("frozen",), bm25="dict", statistics="list | None")
        bm25, frozen = BM25.from_options(values["bm25"], folder), load_statistics(values.pop("statistics"), folder)
        return cls(**{**values, "bm25": bm25, "frozen": frozen})


def _scaled(counts: Mapping[str, float], scale: int) -> dict[str, float]:
    """Whole numbers from 1 to `scale`, which the most frequent word gets."""
    highest = max(counts.values(), default=1.0)
    return {term: max(1.0, float(np.rint(scale * n / highest))) for term, n in counts.items()}


class _ImpactEncoder(SparseDocumentEncoder):
    def __init__(self, model: Impacts) -> None:
        self._model = model
        self._counting = model.bm25.document_encoder()
        self._quantiser = Quantiser.parse(model.quantiser)

    def encode(self, documents: Sequence[Fields]) -> SparseDocuments:
        real = self._model.weights(self._counting.encode(documents))
        clipped = np.clip(real.values, self._quantiser.minimum, self._quantiser.minimum + self._quantiser.span)
        rows = self._quantiser.quantise_rows(SparseVectors(real.vocabulary, real.pointers, real.indices, clipped))
        return SparseDocuments(rows, np.diff(rows.pointers))


DEFAULT_WEIGHT = 0.85
"""The weight of BM26 in BM51 if there are too few documents to fit it: the mean over the data sets we measured."""
_OPTIONS = (
    Option("weight", "float | None", None, "of the learned model; fitted to the documents if it is not given"),
    NETWORK_OPTION,
    *BM25_OPTIONS,
)


@MODELS.register("bm51", help="BM51: BM25 plus BM26 at equal strength, in one index.", options=_OPTIONS, needs=NEEDS)
def bm51(weight: float | None = None, network: str = "", **options: Any) -> Model:
    learned = load_learned("bm26", network) if network else LearnedSparse.shipped("bm26")
    return with_bm25("bm51", learned, weight, options)


@MODELS.register("bm51e", help="BM51e: BM25 plus a BM26e of your own.", options=_OPTIONS, needs=NEEDS)
def bm51e(weight: float | None = None, network: str = "", **options: Any) -> Model:
    return with_bm25("bm51e", load_learned("bm51e", network), weight, options)


_PAPER_OPTIONS = (
    NETWORK_OPTION,
    Option("query_scale", "int", QUERY_SCALE, "the weight of a word in a BM25 query, 1 to 256"),
    *BM25_OPTIONS,
)


@MODELS.register(
    "bm51-paper",
    help="BM51 as in the paper: both parts in 8 bits, with weights of 1.",
    options=_PAPER_OPTIONS,
    needs=NEEDS,
)
def bm51_paper(network: str = "", query_scale: int = QUERY_SCALE, **options: Any) -> Model:
    learned = load_learned("bm51-paper", network) if network else LearnedSparse.shipped("bm26")
    return _in_whole_numbers("bm51-paper", learned, query_scale, options)


@MODELS.register(
    "bm51e-paper",
    help="BM51e as in the paper: BM25 and a BM26e of your own, both in 8 bits, with weights of 1.",
    options=_PAPER_OPTIONS,
    needs=NEEDS,
)
def bm51e_paper(network: str = "", query_scale: int = QUERY_SCALE, **options: Any) -> Model:
    return _in_whole_numbers("bm51e-paper", load_learned("bm51e-paper", network), query_scale, options)


@MODELS.register(
    "bm25-prime-paper",
    help="BM25' as in the paper: words and word pieces, both in 8 bits.",
    options=BM25_OPTIONS,
)
def bm25_prime_paper(**options: Any) -> Model:
    words = Impacts(BM25(**options), name="bm25")
    pieces = Impacts(BM25(**{**WORD_PIECES, **options}), namespace="pieces", name="bm25-wp")
    return Sum(words.parts + pieces.parts, "bm25-prime-paper")


def _in_whole_numbers(name: str, learned: LearnedSparse, query_scale: int, options: dict[str, Any]) -> Model:
    """BM25 with frozen statistics and a learned model, both with weights quantised to 8 bits."""
    whole = replace(_reading(learned, options), whole=True)
    return Sum(Impacts(BM25(**options), query_scale=query_scale, name="bm25").parts + whole.parts, name)


def _reading(learned: LearnedSparse, options: dict[str, Any]) -> LearnedSparse:
    """The learned model, reading the fields that BM25 reads."""
    return replace(learned, fields=options["fields"]) if "fields" in options else learned


def with_bm25(name: str, learned: LearnedSparse, weight: float | None, options: dict[str, Any]) -> Model:
    """BM25 with these options plus a learned model that reads the same fields.

    `weight`: of the learned model; None fits it to the documents.
    """
    if weight is not None and not 0 < weight < math.inf:
        raise VizslaError(f"the weight of {learned.name} in {name} must be a number above 0, not {number_text(weight)}")
    learned = _reading(learned, options)
    parts = Part(1.0, BM25(**options)), Part(DEFAULT_WEIGHT if weight is None else weight, learned)
    return AutoWeightedSum(parts, name) if weight is None else Sum(parts, name)


_NETWORK = "vizsla-splade"
_LIMITS = {"max_terms": 192, "max_query_terms": 64, "max_added": 1.0}
_WEIGHT = 1.3
"""With `max_added`, chosen by leaving out domains; see docs/choosing.md."""


@MODELS.register(
    _NETWORK,
    help="A SPLADE network trained beside BM25; search with vizsla-sparse, its sum with BM25.",
    options=with_defaults(LEARNED_OPTIONS, namespace=_NETWORK, **_LIMITS),
    needs=NEEDS,
)
def vizsla_splade(**options: Any) -> LearnedSparse:
    """The network alone.

    >>> vizsla_splade().network.kind, vizsla_splade().max_terms
    ('splade', 192)
    """
    return LearnedSparse.shipped(_NETWORK, **{**_LIMITS, **options})


_SUM_OPTIONS = (Option("weight", "float", _WEIGHT, "of the network"), *BM25_OPTIONS)


@MODELS.register(
    "vizsla-sparse",
    help="BM25 plus a SPLADE network that was trained inside this sum: the best sparse model that comes with Vizsla.",
    options=_SUM_OPTIONS,
    needs=NEEDS,
)
def vizsla_sparse(weight: float = _WEIGHT, **options: Any) -> Model:
    """BM25 and the network in one index.

    >>> [part.component.name for part in vizsla_sparse().parts]
    ['bm25', 'vizsla-splade']
    """
    return with_bm25("vizsla-sparse", vizsla_splade(), weight, options)


@MODELS.register(
    "vizsla-sparse-doc",
    help="Like vizsla-sparse, but the network only reads documents; queries are looked up in a table.",
    options=_SUM_OPTIONS,
    needs=NEEDS,
)
def vizsla_sparse_doc(weight: float = _WEIGHT, **options: Any) -> Model:
    """The same index as that of `vizsla-sparse`, and no network at query time.

    >>> [part.component.inference_free for part in vizsla_sparse_doc().parts[1:]]
    [True]
    """
    return with_bm25("vizsla-sparse-doc", vizsla_splade(inference_free=True), weight, options)


@MODELS.register(
    "hybrid",
    help=f"BM25 plus a dense model, with weights fitted to the documents: auto(bm25, {HYBRID_ENCODER}).",
    options=(Option("dense", "str", HYBRID_ENCODER, "the dense model, as an expression"), *BM25_OPTIONS),
    needs=("onnxruntime|torch",),
)
def hybrid(dense: str = HYBRID_ENCODER, **options: Any) -> Model:
    """BM25 with these options, and a dense model."""
    return auto(BM25(**options), parse_model(dense)).with_name("hybrid")
