"""A collection of documents on disk: write, search, explain."""

from __future__ import annotations

from vizsla.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vizsla.index.ann_recall import Recall, measure_recall
    from vizsla.index.async_collection import AsyncCollection, AsyncCollectionView
    from vizsla.index.async_index import AsyncIndex, AsyncIndexView
    from vizsla.index.backups.backup import Backup, backup, list_backups, restore
    from vizsla.index.collection import Collection, CollectionView
    from vizsla.index.exporting import (
        document_lengths,
        document_vectors,
        encoded_queries,
        exported_documents,
        facts_for_export,
        stored_ids,
        stores_whole_numbers,
        term_lists,
        vector_blocks,
    )
    from vizsla.index.index import Index
    from vizsla.index.inspection import bytes_of, newest_generation, trust_vector_indexes
    from vizsla.index.parts.encoding import EncodingReport, encode_shard
    from vizsla.index.parts.part import Shard
    from vizsla.index.parts.part_set import PartSet, build_from_parts
    from vizsla.index.pooling import Pool, pools, scores_among
    from vizsla.index.search.facets import Facets, FacetValue, FieldFacets, facets_of_hits
    from vizsla.index.search.highlight import Highlighter, Snippet
    from vizsla.index.search.suggestions import Suggestion
    from vizsla.index.search.term_statistics import TermStatistics
    from vizsla.index.searchable import IndexView
    from vizsla.index.storage.folder import replace_index
    from vizsla.index.storage.verify import verify
    from vizsla.index.writing.transaction import Added, Updated
    from vizsla.index.writing.writer import Writer

_HOMES = {
    "Added": "writing.transaction",
    "Updated": "writing.transaction",
    "Backup": "backups.backup",
    "AsyncCollection": "async_collection",
    "AsyncCollectionView": "async_collection",
    "AsyncIndex": "async_index",
    "AsyncIndexView": "async_index",
    "Collection": "collection",
    "CollectionView": "collection",
    "EncodingReport": "parts.encoding",
    "FacetValue": "search.facets",
    "Facets": "search.facets",
    "FieldFacets": "search.facets",
    "Highlighter": "search.highlight",
    "Index": "index",
    "IndexView": "searchable",
    "PartSet": "parts.part_set",
    "Pool": "pooling",
    "Recall": "ann_recall",
    "Shard": "parts.part",
    "Snippet": "search.highlight",
    "Suggestion": "search.suggestions",
    "TermStatistics": "search.term_statistics",
    "Writer": "writing.writer",
    "backup": "backups.backup",
    "build_from_parts": "parts.part_set",
    "bytes_of": "inspection",
    "document_lengths": "exporting",
    "document_vectors": "exporting",
    "encode_shard": "parts.encoding",
    "encoded_queries": "exporting",
    "exported_documents": "exporting",
    "facets_of_hits": "search.facets",
    "facts_for_export": "exporting",
    "list_backups": "backups.backup",
    "measure_recall": "ann_recall",
    "newest_generation": "inspection",
    "pools": "pooling",
    "replace_index": "storage.folder",
    "restore": "backups.backup",
    "scores_among": "pooling",
    "stored_ids": "exporting",
    "stores_whole_numbers": "exporting",
    "term_lists": "exporting",
    "trust_vector_indexes": "inspection",
    "vector_blocks": "exporting",
    "verify": "storage.verify",
}

__all__ = [
    "Added",
    "AsyncCollection",
    "AsyncCollectionView",
    "AsyncIndex",
    "AsyncIndexView",
    "Backup",
    "Collection",
    "CollectionView",
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
    "Updated",
    "Writer",
    "backup",
    "build_from_parts",
    "bytes_of",
    "document_lengths",
    "document_vectors",
    "encode_shard",
    "encoded_queries",
    "exported_documents",
    "facets_of_hits",
    "facts_for_export",
    "list_backups",
    "measure_recall",
    "newest_generation",
    "pools",
    "replace_index",
    "restore",
    "scores_among",
    "stored_ids",
    "stores_whole_numbers",
    "term_lists",
    "trust_vector_indexes",
    "vector_blocks",
    "verify",
]

__getattr__ = lazy_names(__name__, _HOMES)
