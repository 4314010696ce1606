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
    from vizsla.models.bm25 import (
        BM25,
        EXPANDERS,
        ExpandedBM25,
        QueryExpander,
        SequenceEncoder,
        parse_expander,
        with_expansion,
    )
    from vizsla.models.coil import Coil
    from vizsla.models.colbert import ColBERT
    from vizsla.models.components import (
        DenseComponent,
        DenseDocuments,
        MatchDocuments,
        SearchContext,
        SparseComponent,
        SparseDocumentEncoder,
        SparseDocuments,
        TermWeightEncoder,
        TokenComponent,
        TokenDocuments,
        TokenMatchComponent,
        count_statistics,
    )
    from vizsla.models.counts import BM25OverCounts, DeepCT, TermCounts
    from vizsla.models.dense import Dense
    from vizsla.models.expressions import check_model, expression, parse_model
    from vizsla.models.fields import QUERIES, Fields, as_text, field_text, is_text, text_problem
    from vizsla.models.gar import GAR
    from vizsla.models.languages import (
        LANGUAGE_SAMPLE,
        LanguageBM25,
        detect_model,
        has_network,
        language_model,
        languages_named,
        mismatch,
        multilingual,
        warn_of_language,
    )
    from vizsla.models.learned_sparse import LearnedSparse
    from vizsla.models.model import MODELS, CollectionStatistics, Component, Model, Part, Sum
    from vizsla.models.precomputed import PrecomputedVectors
    from vizsla.models.reranker import Reranker
    from vizsla.models.rm3 import RM3
    from vizsla.models.sketch import Sketch
    from vizsla.models.spar import Spar
    from vizsla.models.statistics import CountedStatistics, Statistics, average_length
    from vizsla.models.synonyms import Synonyms
    from vizsla.neural.network import Network

_HOMES = {
    "BM25": "bm25",
    "EXPANDERS": "bm25",
    "GAR": "gar",
    "LANGUAGE_SAMPLE": "languages",
    "MODELS": "model",
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
    "DeepCT": "counts",
    "Dense": "dense",
    "DenseComponent": "components",
    "DenseDocuments": "components",
    "ExpandedBM25": "bm25",
    "Fields": "fields",
    "LanguageBM25": "languages",
    "LearnedSparse": "learned_sparse",
    "MatchDocuments": "components",
    "Model": "model",
    "Network": "vizsla.neural.network",
    "Part": "model",
    "PrecomputedVectors": "precomputed",
    "QueryExpander": "bm25",
    "Reranker": "reranker",
    "SearchContext": "components",
    "SequenceEncoder": "bm25",
    "Sketch": "sketch",
    "Spar": "spar",
    "SparseComponent": "components",
    "SparseDocumentEncoder": "components",
    "SparseDocuments": "components",
    "Statistics": "statistics",
    "Sum": "model",
    "Synonyms": "synonyms",
    "TermCounts": "counts",
    "TermWeightEncoder": "components",
    "TokenComponent": "components",
    "TokenDocuments": "components",
    "TokenMatchComponent": "components",
    "as_text": "fields",
    "auto": "auto_weighted",
    "average_length": "statistics",
    "check_model": "expressions",
    "count_statistics": "components",
    "detect_model": "languages",
    "expression": "expressions",
    "field_text": "fields",
    "fitted_again": "auto_weighted",
    "fitted_description": "auto_weighted",
    "has_network": "languages",
    "is_text": "fields",
    "language_model": "languages",
    "languages_named": "languages",
    "mismatch": "languages",
    "multilingual": "languages",
    "parse_expander": "bm25",
    "parse_model": "expressions",
    "text_problem": "fields",
    "warn_of_language": "languages",
    "with_expansion": "bm25",
    "with_norm_of": "auto_weighted",
}

__all__ = [
    "BM25",
    "EXPANDERS",
    "GAR",
    "LANGUAGE_SAMPLE",
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
    "LanguageBM25",
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
    "Statistics",
    "Sum",
    "Synonyms",
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
    "detect_model",
    "expression",
    "field_text",
    "fitted_again",
    "fitted_description",
    "has_network",
    "is_text",
    "language_model",
    "languages_named",
    "mismatch",
    "multilingual",
    "parse_expander",
    "parse_model",
    "text_problem",
    "warn_of_language",
    "with_expansion",
    "with_norm_of",
]

__getattr__ = lazy_names(__name__, _HOMES)
