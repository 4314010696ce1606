"""BM25 in its variants, on any analyzer and any fields; and BM25 with query expansion.

k1 = 0.9 and b = 0.4 are the defaults: what Anserini and Pyserini use, and what the published BEIR and MS MARCO
figures were made with. Lucene itself, tantivy and Elasticsearch have 1.2 and 0.75.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from vizsla.engine import TermSequences, Weighting
from vizsla.errors import UnknownNameError, VizslaError, kind_of
from vizsla.models.components import (
    SearchContext,
    SparseComponent,
    SparseDocumentEncoder,
    SparseDocuments,
    WordEncoder,
    check_query_norm,
    shortened,
)
from vizsla.models.fields import Fields, as_text, check_fields, field_text
from vizsla.models.model import MODELS, Component, Model, Part, Sum, component_from
from vizsla.models.statistics import Statistics, average_length, check_scheme, decoded_lengths, encode_lengths
from vizsla.plain_data import fields_from_data
from vizsla.runs.outline import DOCUMENT_TEXT
from vizsla.spec import Registry, options_of, with_defaults
from vizsla.text import Analyzer, CountedTexts, Lexicon, Token
from vizsla.vectors import SparseVectors, Vocabulary

_MANY = 4  # for so many texts kernels count faster than Python


class Variant(NamedTuple):
    """A member of the BM25 family: idf(N, df), and how a count saturates (see `Weighting`; n excludes k1)."""

    idf: Callable[[int, np.ndarray], np.ndarray]
    saturation: Callable[[float, float], Weighting]
    delta: float


# The formulas as Kamphuis and others set them side by side ("Which BM25 do you mean?", ECIR 2020).
VARIANTS = {
    "lucene": Variant(lambda n, df: np.log1p((n - df + 0.5) / (df + 0.5)), lambda k1, _: Weighting(slope=k1), 0.0),
    "robertson": Variant(lambda n, df: np.log((n - df + 0.5) / (df + 0.5)), lambda k1, _: Weighting(slope=k1), 0.0),
    "atire": Variant(lambda n, df: np.log(n / df), lambda k1, _: Weighting(scale=k1 + 1, slope=k1), 0.0),
    "bm25l": Variant(
        lambda n, df: np.log((n + 1) / (df + 0.5)),
        lambda k1, delta: Weighting(scale=k1 + 1, shift=delta, slope=k1 + delta),
        0.5,
    ),
    "bm25+": Variant(
        lambda n, df: np.log((n + 1) / df),
        lambda k1, delta: Weighting(scale=k1 + 1, slope=k1, floor=delta),
        1.0,
    ),
    "bag": Variant(lambda _, df: np.ones(len(df)), lambda *_: Weighting(slope=0.0), 0.0),
}


@dataclass(frozen=True)
class BM25(SparseComponent):
    """BM25 over some fields of the documents, joined by line breaks.

    `variant`: lucene, robertson, atire, bm25l or bm25+ (these two add their delta only where a term occurs), or bag:
    every term that occurs counts 1, a baseline.
    `lengths`: `lucene` keeps a document's length in one byte, as Lucene does, so that scores equal Lucene's;
    `exact` keeps it whole.
    `query_norm`: a query's weights are divided by the number of its terms to this power, for sums with dense models.

    >>> bm25 = BM25()
    >>> documents = ["a dog barks", "cats and dogs", "fish"]
    >>> statistics = bm25.statistics(documents)
    >>> scores = bm25.encode_queries(["dog"], statistics).dot(bm25.encode_documents(documents))
    >>> scores.round(4).tolist()
    [[0.2383, 0.2383, 0.0]]
    """

    k1: float = 0.9
    b: float = 0.4
    variant: str = "lucene"
    delta: float | None = None
    lengths: str = "lucene"
    analyzer: Analyzer | str = "lucene-english"
    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "words"
    name: str = "bm25"
    query_norm: float = 0.0

    kind: ClassVar[str] = "bm25"
    reads_every_document: ClassVar[bool] = True
    """Whether every document has its terms in the namespace, rather than those of one language."""
    expression_options: ClassVar[tuple[str, ...]] = (
        "k1", "b", "delta", "variant", "lengths", "query_norm", "analyzer", "fields", "namespace",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if isinstance(self.analyzer, str):
            object.__setattr__(self, "analyzer", Analyzer.parse(self.analyzer))
        if self.variant not in VARIANTS:
            raise UnknownNameError("BM25 variant", self.variant, tuple(VARIANTS))
        check_scheme(self.lengths)
        check_fields(self.fields)
        check_query_norm(self.query_norm)
        for option, value in (("k1", self.k1), ("b", self.b), ("delta", self.delta or 0.0)):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise VizslaError(f"{option} must be a number, not {kind_of(value)}")
        if not self.k1 >= 0 or not 0 <= self.b <= 1 or not np.isfinite(self.k1):
            raise VizslaError(f"k1 must be 0 or more and b between 0 and 1, not k1={self.k1} and b={self.b}")
        if self.delta is not None and not VARIANTS[self.variant].delta:
            raise VizslaError(f"the variant {self.variant!r} has no delta; only bm25l and bm25+ do")
        if self.delta is not None and not 0 <= self.delta < np.inf:
            raise VizslaError(f"delta must be 0 or more, not {self.delta}")

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, self.analyzer, self.fields, self.lengths

    @property
    def counts_words(self) -> bool:
        return self.text_analyzer.cuts is not None

    @property
    def expression_name(self) -> str:
        if self.reads_documents:
            return "bm25-document"
        return "bm25-wp" if str(self.analyzer).startswith("wordpiece") else "bm25"

    def document_encoder(self) -> SparseDocumentEncoder:
        return _WordCountingEncoder(self) if self.counts_words else DocumentCounter(self)

    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> Sequence[dict[str, float]]:  # noqa: ARG002
        analyzer = self.analyzer
        assert isinstance(analyzer, Analyzer)
        if len(texts) >= _MANY and not self.query_norm and analyzer.cuts is not None:
            return CountedTexts.of(analyzer, texts)
        rows = list(map(counted, map(analyzer, texts)))
        return shortened(rows, self.query_norm) if self.query_norm else rows

    def query_factor(self, text: str, statistics: Statistics) -> float:  # noqa: ARG002
        """What all weights of a query are multiplied by; 1 unless languages compete for it."""
        return 1.0

    def length_codes(self, lengths: np.ndarray) -> np.ndarray:
        return encode_lengths(self.lengths, lengths)

    def weighting(self, statistics: Statistics) -> Weighting:
        variant = VARIANTS[self.variant]
        w = variant.saturation(self.k1, variant.delta if self.delta is None else self.delta)
        lengths = decoded_lengths(self.lengths, statistics.longest)
        norms = 1 - self.b + self.b * lengths / average_length(statistics)
        return Weighting(w.scale, w.shift, w.slope, w.floor, norms)

    def term_factors(self, frequencies: np.ndarray, documents: int) -> np.ndarray:
        return VARIANTS[self.variant].idf(documents, frequencies)

    def tokens(self, text: str) -> list[Token]:
        return self.text_analyzer.tokens(text)

    def expand(self, expander: QueryExpander) -> ExpandedBM25:
        """The same BM25 with query expansion; it searches the same index."""
        return ExpandedBM25(expander, self, self.namespace)

    @property
    def text_analyzer(self) -> Analyzer:
        """The analyzer as a value; `analyzer` may be given by name."""
        assert isinstance(self.analyzer, Analyzer)
        return self.analyzer

    def options(self, folder: Path) -> dict[str, Any]:
        return vars(self) | {"analyzer": self.text_analyzer.save(folder)}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> BM25:
        values = fields_from_data(cls, options, analyzer="str", fields="tuple[str, ...]")
        return cls(**{**values, "analyzer": Analyzer.parse(values["analyzer"], folder)})


def counted(terms: Sequence[str]) -> dict[str, float]:
    """How often each term occurs, in the order of first occurrence.

    >>> counted(["dog", "eats", "dog"])
    {'dog': 2.0, 'eats': 1.0}
    """
    counts = dict.fromkeys(terms, 1.0)
    if len(counts) < len(terms):
        counts = dict.fromkeys(terms, 0.0)
        for term in terms:
            counts[term] += 1.0
    return counts


def multiplied(
    rows: Sequence[dict[str, float]], texts: Sequence[str], bm25: BM25, statistics: Statistics
) -> list[dict[str, float]]:
    """The terms of queries, each query times its factor."""
    factors = [bm25.query_factor(text, statistics) for text in texts]
    return [
        row if factor == 1 else {term: weight * factor for term, weight in row.items()}
        for row, factor in zip(rows, factors, strict=True)
    ]


class DocumentCounter(SparseDocumentEncoder):
    """Counts terms; keeps a lexicon of the words it has met."""

    def __init__(self, model: BM25) -> None:
        self.fields = model.fields
        self._namespace = model.namespace
        self._lexicon = model.text_analyzer.lexicon()

    def encode(self, documents: Sequence[Fields]) -> SparseDocuments:
        return self._documents(*self._lexicon.count([field_text(d, self.fields) for d in documents]))

    def _documents(self, pointers: np.ndarray, indices: np.ndarray, counts: np.ndarray) -> SparseDocuments:
        running = np.concatenate([[0], np.cumsum(counts)])
        vocabulary = Vocabulary(self._namespace, self._lexicon.terms)
        return SparseDocuments(SparseVectors(vocabulary, pointers, indices, counts), np.diff(running[pointers]))


class _WordCountingEncoder(DocumentCounter, WordEncoder):
    """Counts terms with an analyzer that treats each word by itself."""

    @property
    def terms(self) -> Sequence[str]:
        return self._lexicon.terms

    def encode_code_points(self, codes: np.ndarray, bounds: np.ndarray) -> SparseDocuments:
        return self._documents(*self._lexicon.count_code_points(codes, bounds))


class QueryExpander(ABC):
    """Turns queries into weighted terms for BM25, before idf is multiplied in.

    A subclass with a `kind` can be stored in a model; one registered in EXPANDERS can be named: `rm3(documents=5)`.
    """

    kind: ClassVar[str]
    needs_texts: ClassVar[bool] = False
    """Whether it reads the texts of documents, so that an index has to keep them."""
    name: str

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        EXPANDER_KINDS.register(cls.kind, help=(cls.__doc__ or "").partition("\n")[0])(cls)

    def problem(self, bm25: BM25) -> str | None:  # noqa: ARG002 (most work with any)
        """Why it cannot expand queries for this BM25, as the end of a sentence; None if it can."""
        return None

    @abstractmethod
    def query_terms(
        self, texts: Sequence[str], bm25: BM25, context: SearchContext | None = None
    ) -> Sequence[dict[str, float]]:
        """The weighted terms of each query."""

    def reasons(self, text: str, bm25: BM25) -> dict[str, str]:  # noqa: ARG002 (networks give none)
        """Why terms are added to a query, as in `synonym of car`, for explanations."""
        return {}

    def vocabulary(self) -> Iterable[str]:
        """The pieces of words that its network reads; none without a network."""
        return ()

    @abstractmethod
    def options(self, folder: Path) -> dict[str, Any]:
        """The options as plain data; files it needs are written to the folder."""

    @classmethod
    @abstractmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Self:
        """The expander with these options; files they name are in the folder."""


EXPANDER_KINDS: Registry[QueryExpander] = Registry("query expander", package="vizsla.models")
"""The kinds of query expanders that a saved model can hold."""


@dataclass(frozen=True)
class ExpandedBM25(SparseComponent):
    """BM25 with query expansion; it searches any index of that BM25."""

    expander: QueryExpander
    bm25: BM25 = field(default_factory=BM25)
    namespace: str = "words"
    name: str = ""

    kind: ClassVar[str] = "asked"
    adds_terms: ClassVar[bool] = True

    def __post_init__(self) -> None:
        problem = self.expander.problem(self.bm25)
        if problem is not None:
            raise VizslaError(f"{self.expander.name} {problem}")
        if not self.name:
            object.__setattr__(self, "name", f"{self.bm25.name} with {self.expander.name}")

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.bm25.fields

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.bm25.index_signature

    @property
    def needs_texts(self) -> bool:
        return self.expander.needs_texts

    @property
    def counts_words(self) -> bool:
        return self.bm25.counts_words

    def document_encoder(self) -> SparseDocumentEncoder:
        return replace(self.bm25, namespace=self.namespace).document_encoder()

    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> Sequence[dict[str, float]]:
        rows = self.expander.query_terms(texts, self.bm25, context)
        if context is None or self.bm25.reads_every_document:
            return rows
        return multiplied(rows, texts, self.bm25, context.statistics_of(self.bm25))

    def query_weights(self, queries: Sequence[Mapping[str, float]], statistics: Statistics) -> list[dict[str, float]]:
        """The final weights of the terms of each query, without those that the expander dropped by a weight of 0."""
        return super().query_weights([{t: w for t, w in terms.items() if w} for terms in queries], statistics)

    def length_codes(self, lengths: np.ndarray) -> np.ndarray:
        return self.bm25.length_codes(lengths)

    def weighting(self, statistics: Statistics) -> Weighting:
        return self.bm25.weighting(statistics)

    def term_factors(self, frequencies: np.ndarray, documents: int) -> np.ndarray:
        return self.bm25.term_factors(frequencies, documents)

    def tokens(self, text: str) -> list[Token]:
        return self.bm25.tokens(text)

    def reasons(self, text: str) -> dict[str, str]:
        return self.expander.reasons(text, self.bm25)

    def vocabulary(self) -> Iterable[str]:
        return self.expander.vocabulary()

    def options(self, folder: Path) -> dict[str, Any]:
        expander = {"kind": self.expander.kind, **self.expander.options(folder)}
        bm25 = self.bm25.options(folder) | ({} if type(self.bm25) is BM25 else {"kind": self.bm25.kind})
        return {"queries": expander, "bm25": bm25, "namespace": self.namespace, "name": self.name}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> ExpandedBM25:
        values = fields_from_data(cls, options, ("expander",), queries="dict", bm25="dict")
        expander_options = dict(values.pop("queries"))
        kind = str(expander_options.pop("kind", None))
        if kind not in EXPANDER_KINDS:
            raise VizslaError(f"this version does not know query expanders of the kind {kind!r}; a newer version may")
        expander = EXPANDER_KINDS[kind].make.from_options(expander_options, folder)  # type: ignore[attr-defined]
        bm25 = component_from({"kind": BM25.kind, **values["bm25"]}, folder)
        if not isinstance(bm25, BM25):
            raise VizslaError(f"only BM25 has its queries expanded, and this is {bm25.name}")
        return cls(**{**values, "expander": expander, "bm25": bm25})


BM25_OPTIONS = options_of(
    BM25,
    k1="term frequency saturation",
    b="length normalisation, from 0 to 1",
    delta="added to each occurring term, in bm25l and bm25+",
    variant=f"one of {', '.join(VARIANTS)}",
    lengths="lucene: lengths in one byte, as Lucene keeps them; exact: whole lengths",
    query_norm="long queries count less in a sum: weights are divided by the number of terms to this power",
    analyzer="how text becomes terms, by name or as a pipeline",
    fields="the fields it reads, separated by /",
    namespace="keeps its terms apart from those of other parts of a sum",
)
WORD_PIECES: dict[str, Any] = {"analyzer": "wordpiece", "namespace": "pieces"}

MODELS.register("bm25", help="BM25 over words, as Lucene computes it.", options=BM25_OPTIONS)(BM25)


@MODELS.register("bm25-wp", help="BM25 over BERT's word pieces.", options=with_defaults(BM25_OPTIONS, **WORD_PIECES))
def bm25_over_word_pieces(**options: Any) -> BM25:
    return BM25(**{"name": "bm25-wp", **WORD_PIECES, **options})


DOCUMENT_PART: dict[str, Any] = {"fields": (DOCUMENT_TEXT,), "namespace": "documents"}


@MODELS.register(
    "bm25-document",
    help="BM25 of the whole document of a passage, for a sum: bm25 + 0.1 * bm25-document.",
    options=with_defaults(BM25_OPTIONS, **DOCUMENT_PART),
)
def bm25_of_documents(**options: Any) -> BM25:
    """A part that adds the score of its document to the score of a passage; the index needs passages.

    >>> bm25_of_documents().reads_documents
    True
    """
    return BM25(**{"name": "bm25-document", **DOCUMENT_PART, **options})


@MODELS.register(
    "bm25-multifield", help="BM25 over title and over text, each with its own statistics, added.", options=BM25_OPTIONS
)
def bm25_by_field(**options: Any) -> Model:
    title, text = (BM25(**{"fields": (f,), "namespace": f, "name": f, **options}) for f in ("title", "text"))
    return Sum(title.parts + text.parts, "bm25-multifield")


@MODELS.register(
    "bm25-prime", help="BM25 over words plus BM25 over word pieces: BM25' of the BM26 paper.", options=BM25_OPTIONS
)
def bm25_prime(**options: Any) -> Model:
    return Sum(BM25(**options).parts + bm25_over_word_pieces(**options).parts, "bm25-prime")


EXPANDERS: Registry[QueryExpander] = Registry("query expander", package="vizsla.models", example="rm3(documents=5)")
"""The query expanders by name."""


def parse_expander(text: str) -> QueryExpander:
    """A query expander by name, as in `rm3(documents=5)`, a file of synonyms, or the folder of an augmenter.

    >>> parse_expander("rm3(documents=5)").documents
    5
    """
    if text.partition("(")[0].strip() in EXPANDERS:
        return EXPANDERS.parse(text)
    if os.path.isfile(text) or text.endswith(".txt"):
        return EXPANDERS["synonyms"].make(file=text)
    return EXPANDERS["augmenter"].make(network=text)


def bm25_of(component: Component) -> BM25 | None:
    """The BM25 of a part of a model, with or without query expansion; None for other parts.

    >>> bm25_of(BM25(k1=2.0)).k1
    2.0
    """
    bm25 = component.bm25 if isinstance(component, ExpandedBM25) else component
    return bm25 if isinstance(bm25, BM25) else None


def with_expansion(model: Model, expander: QueryExpander) -> Model:
    """A model whose BM25 gets expanded queries; the other parts of a sum stay as they are."""
    parts, problems = [], []
    for part in model.parts:
        bm25 = part.component
        if isinstance(bm25, ExpandedBM25):
            bm25 = replace(bm25.bm25, namespace=bm25.namespace)
        if isinstance(bm25, BM25) and not bm25.reads_documents:
            problem = expander.problem(bm25)
            if problem is None:
                parts.append(Part(part.weight, bm25.expand(expander)))
                continue
            problems.append(problem)
        parts.append(part)
    if not any(isinstance(p.component, ExpandedBM25) and p.component.expander is expander for p in parts):
        why = problems[0] if problems else f"expands queries for BM25, and {model.name} has no BM25"
        raise VizslaError(f"{expander.name} {why}")
    if len(parts) == 1 and parts[0].weight == 1.0:
        return parts[0].component
    return Sum(tuple(parts))


class SequenceEncoder:
    """Encodes documents as term sequences; it numbers terms as it meets them, so use one for all documents.

    >>> encoder = SequenceEncoder(BM25())
    >>> encoder.encode([{"title": "Dogs", "text": "Dogs bark"}]).numbers.tolist(), encoder.lexicon.terms
    ([0, 4294967295, 0, 1], ['dog', 'bark'])
    """

    def __init__(self, bm25: BM25) -> None:
        self._fields = bm25.fields
        self.lexicon = Lexicon(bm25.text_analyzer)

    def encode(self, contents: Sequence[Mapping[str, Any]]) -> TermSequences:
        """The sequences of documents, terms by the numbers of the lexicon."""
        texts = [as_text(content.get(field)) for content in contents for field in self._fields]
        return TermSequences.join(*self.lexicon.sequences(texts), len(self._fields))
