"""The world's formats: streaming readers, compressed or not; the data sets the field knows."""

from __future__ import annotations

from vizsla.datasets.beir import BeirDataset, Confusion, read_answers, read_queries
from vizsla.datasets.columns import parse_types
from vizsla.datasets.passages import Splitter, document_of, passage_of
from vizsla.datasets.questions import Questions, read_questions
from vizsla.datasets.registry import DATA_VARIABLE, DatasetGroup, Entry, data_folder, find_entry, known, open_datasets
from vizsla.datasets.sources import RawLines, Source, documents_from, read_documents
from vizsla.datasets.statistics import DatasetStatistics, count_dataset
from vizsla.runs.documents import Document, FieldNames, Origin, document_id

__all__ = [
    "DATA_VARIABLE",
    "BeirDataset",
    "Confusion",
    "DatasetGroup",
    "DatasetStatistics",
    "Document",
    "Entry",
    "FieldNames",
    "Origin",
    "Questions",
    "RawLines",
    "Source",
    "Splitter",
    "count_dataset",
    "data_folder",
    "document_id",
    "document_of",
    "documents_from",
    "find_entry",
    "known",
    "open_datasets",
    "parse_types",
    "passage_of",
    "read_answers",
    "read_documents",
    "read_queries",
    "read_questions",
]
