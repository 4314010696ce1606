"""Rankings as data: runs, judgements, measures, fusion, hits; and the Retriever, whatever can be searched."""

from __future__ import annotations

from vizsla.runs.documents import Document, FieldNames, Origin, document_id
from vizsla.runs.explanation import Explanation
from vizsla.runs.filters import Filter, FilterLike
from vizsla.runs.fusion import FUSIONS, NORMALISATIONS, Fusion, fuse
from vizsla.runs.hits import DocumentSource, Hit, Hits, PageOptions, lazy_hits
from vizsla.runs.measures import DEFAULT_MEASURES, Measure, parse_measures
from vizsla.runs.qrels import Qrels
from vizsla.runs.retriever import Retriever
from vizsla.runs.run import Ranking, Run, read_run

__all__ = [
    "DEFAULT_MEASURES",
    "FUSIONS",
    "NORMALISATIONS",
    "Document",
    "DocumentSource",
    "Explanation",
    "FieldNames",
    "Filter",
    "FilterLike",
    "Fusion",
    "Hit",
    "Hits",
    "Measure",
    "Origin",
    "PageOptions",
    "Qrels",
    "Ranking",
    "Retriever",
    "Run",
    "document_id",
    "fuse",
    "lazy_hits",
    "parse_measures",
    "read_run",
]
