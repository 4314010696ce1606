"""Vectors to the top k: kernels over posting lists. Knows numbers only, never text."""

from __future__ import annotations

from vizsla.engine.search import search  # here and not later: the module has the same name
from vizsla.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vizsla.engine.ann import AnnIndex, build_ann_index, check_gpu, faiss_for
    from vizsla.engine.arrays import DamagedSegmentError, give_back_memory, in_own_pages
    from vizsla.engine.collection_ngrams import CollectionNgrams
    from vizsla.engine.deletions import live_frequencies, live_frequencies_without
    from vizsla.engine.edit_distance import WordList
    from vizsla.engine.list_directory import BlockTable, ListDirectory
    from vizsla.engine.match_lists import exact_matches
    from vizsla.engine.max_sim import exact_max_sims
    from vizsla.engine.merge import Merge, MergedPostingLists
    from vizsla.engine.ngram_scores import NgramQuery, ngram_shares
    from vizsla.engine.phrase_search import search_phrase
    from vizsla.engine.posting_lists import PostingLists
    from vizsla.engine.posting_vectors import MatchQuery, VectorPostings
    from vizsla.engine.query import Queries, Query, TokenQuery
    from vizsla.engine.residual_rows import ResidualCodec, ResidualRows, code_bytes, number_dtype
    from vizsla.engine.row_search import rows_with_a_score, rows_with_all, rows_with_any, search_rows
    from vizsla.engine.search import TopDocuments, TopLists, search_among, search_many
    from vizsla.engine.segment import (
        PostingRows,
        Segment,
        build_segment,
        build_segment_of,
        by_document,
        common_type,
        fits_a_segment,
        smallest_type,
    )
    from vizsla.engine.segment_list import SegmentList
    from vizsla.engine.suffix_array import SuffixArray, token_type
    from vizsla.engine.term_sequences import BREAK, HOLE, PhrasePattern, TermSequences, rows_with_phrase
    from vizsla.engine.threads import (
        finish_all,
        in_order,
        in_threads,
        in_threads_by_size,
        in_turns,
        pool,
        processors,
        submit,
    )
    from vizsla.engine.token_rows import (
        TokenLists,
        TokenRows,
        build_token_index,
        convert_token_rows,
        learn_codec,
        token_store,
    )
    from vizsla.engine.vector_indexes import (
        STORES,
        VECTOR_INDEXES,
        Approximate,
        Exact,
        Plaid,
        VectorIndex,
    )
    from vizsla.engine.vector_rows import ScaledRows, VectorRows, convert_rows, storage_of
    from vizsla.engine.weighting import Weighting, Weightings

_HOMES = {
    "give_back_memory": "arrays",
    "in_own_pages": "arrays",
    "BREAK": "term_sequences",
    "HOLE": "term_sequences",
    "STORES": "vector_indexes",
    "VECTOR_INDEXES": "vector_indexes",
    "AnnIndex": "ann",
    "Approximate": "vector_indexes",
    "BlockTable": "list_directory",
    "CollectionNgrams": "collection_ngrams",
    "DamagedSegmentError": "arrays",
    "Exact": "vector_indexes",
    "ListDirectory": "list_directory",
    "MatchQuery": "posting_vectors",
    "Merge": "merge",
    "MergedPostingLists": "merge",
    "NgramQuery": "ngram_scores",
    "PhrasePattern": "term_sequences",
    "Plaid": "vector_indexes",
    "PostingLists": "posting_lists",
    "Queries": "query",
    "Query": "query",
    "ResidualCodec": "residual_rows",
    "ResidualRows": "residual_rows",
    "ScaledRows": "vector_rows",
    "PostingRows": "segment",
    "Segment": "segment",
    "SegmentList": "segment_list",
    "SuffixArray": "suffix_array",
    "TermSequences": "term_sequences",
    "TokenLists": "token_rows",
    "TokenQuery": "query",
    "TokenRows": "token_rows",
    "TopDocuments": "search",
    "TopLists": "search",
    "VectorIndex": "vector_indexes",
    "VectorPostings": "posting_vectors",
    "VectorRows": "vector_rows",
    "Weighting": "weighting",
    "Weightings": "weighting",
    "WordList": "edit_distance",
    "build_ann_index": "ann",
    "build_segment": "segment",
    "build_segment_of": "segment",
    "build_token_index": "token_rows",
    "by_document": "segment",
    "check_gpu": "ann",
    "code_bytes": "residual_rows",
    "convert_rows": "vector_rows",
    "convert_token_rows": "token_rows",
    "exact_matches": "match_lists",
    "exact_max_sims": "max_sim",
    "faiss_for": "ann",
    "common_type": "segment",
    "fits_a_segment": "segment",
    "smallest_type": "segment",
    "live_frequencies_without": "deletions",
    "learn_codec": "token_rows",
    "live_frequencies": "deletions",
    "ngram_shares": "ngram_scores",
    "number_dtype": "residual_rows",
    "finish_all": "threads",
    "in_order": "threads",
    "in_threads": "threads",
    "in_threads_by_size": "threads",
    "in_turns": "threads",
    "pool": "threads",
    "processors": "threads",
    "rows_with_a_score": "row_search",
    "rows_with_all": "row_search",
    "rows_with_any": "row_search",
    "rows_with_phrase": "term_sequences",
    "search_among": "search",
    "search_many": "search",
    "search_phrase": "phrase_search",
    "search_rows": "row_search",
    "storage_of": "vector_rows",
    "submit": "threads",
    "token_store": "token_rows",
    "token_type": "suffix_array",
}

__all__ = [
    "BREAK",
    "HOLE",
    "STORES",
    "VECTOR_INDEXES",
    "AnnIndex",
    "Approximate",
    "BlockTable",
    "CollectionNgrams",
    "DamagedSegmentError",
    "Exact",
    "ListDirectory",
    "MatchQuery",
    "Merge",
    "MergedPostingLists",
    "NgramQuery",
    "PhrasePattern",
    "Plaid",
    "PostingLists",
    "PostingRows",
    "Queries",
    "Query",
    "ResidualCodec",
    "ResidualRows",
    "ScaledRows",
    "Segment",
    "SegmentList",
    "SuffixArray",
    "TermSequences",
    "TokenLists",
    "TokenQuery",
    "TokenRows",
    "TopDocuments",
    "TopLists",
    "VectorIndex",
    "VectorPostings",
    "VectorRows",
    "Weighting",
    "Weightings",
    "WordList",
    "build_ann_index",
    "build_segment",
    "build_segment_of",
    "build_token_index",
    "by_document",
    "check_gpu",
    "code_bytes",
    "common_type",
    "convert_rows",
    "convert_token_rows",
    "exact_matches",
    "exact_max_sims",
    "faiss_for",
    "finish_all",
    "fits_a_segment",
    "give_back_memory",
    "in_order",
    "in_own_pages",
    "in_threads",
    "in_threads_by_size",
    "in_turns",
    "learn_codec",
    "live_frequencies",
    "live_frequencies_without",
    "ngram_shares",
    "number_dtype",
    "pool",
    "processors",
    "rows_with_a_score",
    "rows_with_all",
    "rows_with_any",
    "rows_with_phrase",
    "search",
    "search_among",
    "search_many",
    "search_phrase",
    "search_rows",
    "smallest_type",
    "storage_of",
    "submit",
    "token_store",
    "token_type",
]

__getattr__ = lazy_names(__name__, _HOMES)
