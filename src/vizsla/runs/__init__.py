"""Rankings as data: runs, judgements, measures, fusion, hits; and the Retriever, whatever can be searched."""

from __future__ import annotations

from vizsla.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vizsla.runs.documents import Document, FieldNames, Origin, document_id
    from vizsla.runs.explanation import Explanation
    from vizsla.runs.filters import Filter, FilterLike
    from vizsla.runs.fusion import FUSIONS, NORMALISATIONS, Fusion, fuse
    from vizsla.runs.hits import NO_DOCUMENTS, DocumentSource, Hit, Hits, KnownDocuments, PageOptions
    from vizsla.runs.measures import DEFAULT_MEASURES, Measure, parse_measures
    from vizsla.runs.qrels import Qrels
    from vizsla.runs.retriever import Retriever
    from vizsla.runs.run import Ranking, Run, read_run

_HOMES = {
    "DEFAULT_MEASURES": "measures",
    "FUSIONS": "fusion",
    "NORMALISATIONS": "fusion",
    "NO_DOCUMENTS": "hits",
    "Document": "documents",
    "DocumentSource": "hits",
    "Explanation": "explanation",
    "FieldNames": "documents",
    "Filter": "filters",
    "FilterLike": "filters",
    "Fusion": "fusion",
    "Hit": "hits",
    "Hits": "hits",
    "KnownDocuments": "hits",
    "Measure": "measures",
    "Origin": "documents",
    "PageOptions": "hits",
    "Qrels": "qrels",
    "Ranking": "run",
    "Retriever": "retriever",
    "Run": "run",
    "document_id": "documents",
    "fuse": "fusion",
    "parse_measures": "measures",
    "read_run": "run",
}

__all__ = [
    "DEFAULT_MEASURES",
    "FUSIONS",
    "NORMALISATIONS",
    "NO_DOCUMENTS",
    "Document",
    "DocumentSource",
    "Explanation",
    "FieldNames",
    "Filter",
    "FilterLike",
    "Fusion",
    "Hit",
    "Hits",
    "KnownDocuments",
    "Measure",
    "Origin",
    "PageOptions",
    "Qrels",
    "Ranking",
    "Retriever",
    "Run",
    "document_id",
    "fuse",
    "parse_measures",
    "read_run",
]

__getattr__ = lazy_names(__name__, _HOMES)
