"""Text to vectors: BM25 and its variants, learned sparse and dense models, query expansion, and sums of models."""

from __future__ import annotations

from vizsla.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vizsla.models.augmenter import Augmenter
    from vizsla.models.auto_weighted import (
        SAMPLE,
        AutoWeightedSum,
        auto,
        fitted_again,
        fitted_description,
        with_norm_of,
    )
    from vizsla.models.bm25 import BM25, ExpandedBM25, QueryExpander
    from vizsla.models.coil import Coil
    from vizsla.models.colbert import ColBERT
    from vizsla.models.context import SearchContext
    from vizsla.models.counts import BM25OverCounts, TermCounts
    from vizsla.models.deepct import DeepCT
    from vizsla.models.dense import Dense
    from vizsla.models.dense_component import DenseComponent, DenseDocuments
    from vizsla.models.expansion import EXPANDERS, parse_expander, with_expansion
    from vizsla.models.expressions import check_model, expression, parse_model
    from vizsla.models.fields import QUERIES, Fields, as_text, field_text, is_text, text_problem
    from vizsla.models.gar import GAR
    from vizsla.models.learned_sparse import LearnedSparse
    from vizsla.models.match_component import MatchDocuments, TokenMatchComponent
    from vizsla.models.model import CollectionStatistics, Component, Model, Part, Sum
    from vizsla.models.precomputed import PrecomputedVectors
    from vizsla.models.registry import MODELS
    from vizsla.models.reranker import Reranker
    from vizsla.models.rm3 import RM3
    from vizsla.models.sequences import SequenceEncoder
    from vizsla.models.sketch import Sketch
    from vizsla.models.spar import Spar
    from vizsla.models.sparse_component import (
        SparseComponent,
        SparseDocumentEncoder,
        SparseDocuments,
        TermWeightEncoder,
        count_statistics,
    )
    from vizsla.models.sparta import Sparta
    from vizsla.models.splade import Splade
    from vizsla.models.statistics import CountedStatistics, Statistics, average_length
    from vizsla.models.token_component import TokenComponent, TokenDocuments
    from vizsla.neural.network import Network

_HOMES = {
    "BM25": "bm25",
    "EXPANDERS": "expansion",
    "GAR": "gar",
    "MODELS": "registry",
    "QUERIES": "fields",
    "RM3": "rm3",
    "SAMPLE": "auto_weighted",
    "Augmenter": "augmenter",
    "AutoWeightedSum": "auto_weighted",
    "BM25OverCounts": "counts",
    "Coil": "coil",
    "ColBERT": "colbert",
    "CollectionStatistics": "model",
    "Component": "model",
    "CountedStatistics": "statistics",
    "DeepCT": "deepct",
    "Dense": "dense",
    "DenseComponent": "dense_component",
    "DenseDocuments": "dense_component",
    "ExpandedBM25": "bm25",
    "Fields": "fields",
    "LearnedSparse": "learned_sparse",
    "MatchDocuments": "match_component",
    "Model": "model",
    "Network": "vizsla.neural.network",
    "Part": "model",
    "PrecomputedVectors": "precomputed",
    "QueryExpander": "bm25",
    "Reranker": "reranker",
    "SearchContext": "context",
    "SequenceEncoder": "sequences",
    "Sketch": "sketch",
    "Spar": "spar",
    "SparseComponent": "sparse_component",
    "SparseDocumentEncoder": "sparse_component",
    "SparseDocuments": "sparse_component",
    "Sparta": "sparta",
    "Splade": "splade",
    "Statistics": "statistics",
    "Sum": "model",
    "TermCounts": "counts",
    "TermWeightEncoder": "sparse_component",
    "TokenComponent": "token_component",
    "TokenDocuments": "token_component",
    "TokenMatchComponent": "match_component",
    "as_text": "fields",
    "auto": "auto_weighted",
    "average_length": "statistics",
    "check_model": "expressions",
    "count_statistics": "sparse_component",
    "expression": "expressions",
    "field_text": "fields",
    "fitted_again": "auto_weighted",
    "fitted_description": "auto_weighted",
    "is_text": "fields",
    "parse_expander": "expansion",
    "parse_model": "expressions",
    "text_problem": "fields",
    "with_expansion": "expansion",
    "with_norm_of": "auto_weighted",
}

__all__ = [
    "BM25",
    "EXPANDERS",
    "GAR",
    "MODELS",
    "QUERIES",
    "RM3",
    "SAMPLE",
    "Augmenter",
    "AutoWeightedSum",
    "BM25OverCounts",
    "Coil",
    "ColBERT",
    "CollectionStatistics",
    "Component",
    "CountedStatistics",
    "DeepCT",
    "Dense",
    "DenseComponent",
    "DenseDocuments",
    "ExpandedBM25",
    "Fields",
    "LearnedSparse",
    "MatchDocuments",
    "Model",
    "Network",
    "Part",
    "PrecomputedVectors",
    "QueryExpander",
    "Reranker",
    "SearchContext",
    "SequenceEncoder",
    "Sketch",
    "Spar",
    "SparseComponent",
    "SparseDocumentEncoder",
    "SparseDocuments",
    "Sparta",
    "Splade",
    "Statistics",
    "Sum",
    "TermCounts",
    "TermWeightEncoder",
    "TokenComponent",
    "TokenDocuments",
    "TokenMatchComponent",
    "as_text",
    "auto",
    "average_length",
    "check_model",
    "count_statistics",
    "expression",
    "field_text",
    "fitted_again",
    "fitted_description",
    "is_text",
    "parse_expander",
    "parse_model",
    "text_problem",
    "with_expansion",
    "with_norm_of",
]

__getattr__ = lazy_names(__name__, _HOMES)
