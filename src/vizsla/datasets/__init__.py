"""Readers of documents, queries and data sets in common formats, compressed or not; the registry of known data sets."""

from __future__ import annotations

from vizsla.lazy import lazy_names
from vizsla.runs.documents import Document, FieldNames, Origin, document_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vizsla.datasets.beir import BeirDataset, DatasetStatistics, TrainingDocuments, count_dataset
    from vizsla.datasets.formats.csv import parse_types
    from vizsla.datasets.passages import Splitter, article_of, document_of, passage_of
    from vizsla.datasets.preparing import (
        PREPARATIONS,
        DatasetWriter,
        GivenFile,
        GivenFiles,
        Preparation,
        Prepared,
        PublishedFile,
        new_dataset,
        preparation,
        preparation_of,
        prepare,
    )
    from vizsla.datasets.questions import Questions, question_texts, read_answers, read_queries, read_questions
    from vizsla.datasets.raw_lines import RawLines
    from vizsla.datasets.records import changed_fields, changes_by_id, documents_from
    from vizsla.datasets.registry import (
        DATA_VARIABLE,
        DatasetEntry,
        DatasetGroup,
        data_folder,
        dataset_entry,
        known_datasets,
        open_datasets,
    )
    from vizsla.datasets.skipped import Skipped
    from vizsla.datasets.source_format import SOURCES, DocumentFormat, Extracted, Limits, SourceFormat, TextBuilder
    from vizsla.datasets.sources import Source, read_documents
    from vizsla.runs.outline import Heading, Outline, Place

_HOMES = {
    "BeirDataset": "beir",
    "DATA_VARIABLE": "registry",
    "DatasetEntry": "registry",
    "DatasetGroup": "registry",
    "DatasetStatistics": "beir",
    "DatasetWriter": "preparing",
    "GivenFile": "preparing",
    "GivenFiles": "preparing",
    "PREPARATIONS": "preparing",
    "Preparation": "preparing",
    "Prepared": "preparing",
    "PublishedFile": "preparing",
    "Questions": "questions",
    "RawLines": "raw_lines",
    "SOURCES": "source_format",
    "DocumentFormat": "source_format",
    "Extracted": "source_format",
    "Limits": "source_format",
    "Heading": "vizsla.runs.outline",
    "Outline": "vizsla.runs.outline",
    "Place": "vizsla.runs.outline",
    "Skipped": "skipped",
    "Source": "sources",
    "SourceFormat": "source_format",
    "TextBuilder": "source_format",
    "Splitter": "passages",
    "TrainingDocuments": "beir",
    "article_of": "passages",
    "count_dataset": "beir",
    "data_folder": "registry",
    "dataset_entry": "registry",
    "document_of": "passages",
    "changed_fields": "records",
    "changes_by_id": "records",
    "documents_from": "records",
    "known_datasets": "registry",
    "new_dataset": "preparing",
    "open_datasets": "registry",
    "parse_types": "formats.csv",
    "passage_of": "passages",
    "preparation": "preparing",
    "preparation_of": "preparing",
    "prepare": "preparing",
    "read_answers": "questions",
    "question_texts": "questions",
    "read_documents": "sources",
    "read_queries": "questions",
    "read_questions": "questions",
}

__all__ = [
    "DATA_VARIABLE",
    "PREPARATIONS",
    "SOURCES",
    "BeirDataset",
    "DatasetEntry",
    "DatasetGroup",
    "DatasetStatistics",
    "DatasetWriter",
    "Document",
    "DocumentFormat",
    "Extracted",
    "FieldNames",
    "GivenFile",
    "GivenFiles",
    "Heading",
    "Limits",
    "Origin",
    "Outline",
    "Place",
    "Preparation",
    "Prepared",
    "PublishedFile",
    "Questions",
    "RawLines",
    "Skipped",
    "Source",
    "SourceFormat",
    "Splitter",
    "TextBuilder",
    "TrainingDocuments",
    "article_of",
    "changed_fields",
    "changes_by_id",
    "count_dataset",
    "data_folder",
    "dataset_entry",
    "document_id",
    "document_of",
    "documents_from",
    "known_datasets",
    "new_dataset",
    "open_datasets",
    "parse_types",
    "passage_of",
    "preparation",
    "preparation_of",
    "prepare",
    "question_texts",
    "read_answers",
    "read_documents",
    "read_queries",
    "read_questions",
]

__getattr__ = lazy_names(__name__, _HOMES)
