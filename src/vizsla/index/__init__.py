"""A collection of documents on disk: write, search, explain."""

from __future__ import annotations

from vizsla.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vizsla.index.exporting import (
        document_lengths,
        document_vectors,
        encoded_queries,
        exported_documents,
        facts_for_export,
        stored_ids,
        stores_whole_numbers,
        term_lists,
    )
    from vizsla.index.index import Index
    from vizsla.index.inspection import (
        bytes_of,
        facet_fields,
        facets,
        generation,
        is_outdated,
        matching_ids,
        measure_recall,
        newest_generation,
        pools,
        scores_among,
        similar,
        similar_query,
        suggest,
        term_statistics,
        trust_vector_indexes,
        vector_blocks,
    )
    from vizsla.index.parts.building import PartSet, build_from_parts
    from vizsla.index.parts.encoding import EncodingReport, encode_shard
    from vizsla.index.parts.settings import Shard
    from vizsla.index.search.ann_recall import Recall
    from vizsla.index.search.facets import Facets, FacetValue, FieldFacets, facets_of_hits
    from vizsla.index.search.highlight import Highlighter, Snippet
    from vizsla.index.search.pooling import Pool
    from vizsla.index.search.statistics import TermStatistics
    from vizsla.index.search.suggestions import Suggestion
    from vizsla.index.storage.folder import replace_index
    from vizsla.index.storage.verify import verify
    from vizsla.index.view import IndexView
    from vizsla.index.writing.transaction import Added
    from vizsla.index.writing.writer import Writer

_HOMES = {
    "Added": "writing.transaction",
    "EncodingReport": "parts.encoding",
    "FacetValue": "search.facets",
    "Facets": "search.facets",
    "FieldFacets": "search.facets",
    "Highlighter": "search.highlight",
    "Index": "index",
    "IndexView": "view",
    "PartSet": "parts.building",
    "Pool": "search.pooling",
    "Recall": "search.ann_recall",
    "Shard": "parts.settings",
    "Snippet": "search.highlight",
    "Suggestion": "search.suggestions",
    "TermStatistics": "search.statistics",
    "Writer": "writing.writer",
    "build_from_parts": "parts.building",
    "bytes_of": "inspection",
    "document_lengths": "exporting",
    "document_vectors": "exporting",
    "encode_shard": "parts.encoding",
    "encoded_queries": "exporting",
    "exported_documents": "exporting",
    "facet_fields": "inspection",
    "facets": "inspection",
    "facets_of_hits": "search.facets",
    "facts_for_export": "exporting",
    "generation": "inspection",
    "is_outdated": "inspection",
    "matching_ids": "inspection",
    "measure_recall": "inspection",
    "newest_generation": "inspection",
    "pools": "inspection",
    "replace_index": "storage.folder",
    "scores_among": "inspection",
    "similar": "inspection",
    "similar_query": "inspection",
    "stored_ids": "exporting",
    "stores_whole_numbers": "exporting",
    "suggest": "inspection",
    "term_lists": "exporting",
    "term_statistics": "inspection",
    "trust_vector_indexes": "inspection",
    "vector_blocks": "inspection",
    "verify": "storage.verify",
}

__all__ = [
    "Added",
    "EncodingReport",
    "FacetValue",
    "Facets",
    "FieldFacets",
    "Highlighter",
    "Index",
    "IndexView",
    "PartSet",
    "Pool",
    "Recall",
    "Shard",
    "Snippet",
    "Suggestion",
    "TermStatistics",
    "Writer",
    "build_from_parts",
    "bytes_of",
    "document_lengths",
    "document_vectors",
    "encode_shard",
    "encoded_queries",
    "exported_documents",
    "facet_fields",
    "facets",
    "facets_of_hits",
    "facts_for_export",
    "generation",
    "is_outdated",
    "matching_ids",
    "measure_recall",
    "newest_generation",
    "pools",
    "replace_index",
    "scores_among",
    "similar",
    "similar_query",
    "stored_ids",
    "stores_whole_numbers",
    "suggest",
    "term_lists",
    "term_statistics",
    "trust_vector_indexes",
    "vector_blocks",
    "verify",
]

__getattr__ = lazy_names(__name__, _HOMES)
