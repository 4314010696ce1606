"""Vizsla: first-stage text retrieval that starts where BM25 stops.

    import vizsla

    with vizsla.Index.create("my.index") as index:
        index.add([{"id": "1", "text": "Dogs bark."}, {"id": "2", "text": "Cats do not."}])
        index.commit()
        for hit in index.search("barking dogs"):
            print(hit.score, hit.id, hit["text"])

Importing the package is cheap: what a name needs is loaded when the name is first used.
"""

from __future__ import annotations

from vizsla.lazy import lazy_names

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing typing for it would be slow, and Ctrl-C shows a traceback during imports
if TYPE_CHECKING:
    from vizsla.datasets import BeirDataset, Splitter, read_documents
    from vizsla.engine import VectorIndex
    from vizsla.errors import VizslaError
    from vizsla.evaluation import evaluate, evaluate_retriever
    from vizsla.evaluation.systems import compare
    from vizsla.index import AsyncCollection, AsyncIndex, Collection, Index, Writer
    from vizsla.models import BM25, Dense, DenseComponent, LearnedSparse, Model, Reranker, SparseComponent, parse_model
    from vizsla.neural.device import use_device
    from vizsla.retrievers import FusedRetriever, RerankedRetriever, open
    from vizsla.retrievers.remote import AsyncRemoteIndex, RemoteIndex
    from vizsla.runs import Document, Explanation, Filter, Hit, Measure, Qrels, Retriever, Run, fuse
    from vizsla.text import Analyzer, count_tokens
    from vizsla.vectors import Quantiser

_HOMES = {
    "Analyzer": "text",
    "AsyncCollection": "index",
    "AsyncIndex": "index",
    "AsyncRemoteIndex": "retrievers.remote",
    "BM25": "models",
    "BeirDataset": "datasets",
    "Collection": "index",
    "Dense": "models",
    "DenseComponent": "models",
    "Document": "runs",
    "Explanation": "runs",
    "Filter": "runs",
    "FusedRetriever": "retrievers",
    "Hit": "runs",
    "Index": "index",
    "LearnedSparse": "models",
    "Measure": "runs",
    "Model": "models",
    "Qrels": "runs",
    "Quantiser": "vectors",
    "RemoteIndex": "retrievers.remote",
    "RerankedRetriever": "retrievers",
    "Reranker": "models",
    "Retriever": "runs",
    "Run": "runs",
    "SparseComponent": "models",
    "Splitter": "datasets",
    "VectorIndex": "engine",
    "VizslaError": "errors",
    "Writer": "index",
    "compare": "evaluation",
    "count_tokens": "text",
    "evaluate": "evaluation",
    "evaluate_retriever": "evaluation",
    "fuse": "runs",
    "open": "retrievers",
    "parse_model": "models",
    "read_documents": "datasets",
    "use_device": "neural.device",
}

__all__ = [  # noqa: RUF022 (as in _HOMES)
    "Analyzer",
    "AsyncCollection",
    "AsyncIndex",
    "AsyncRemoteIndex",
    "BM25",
    "BeirDataset",
    "Collection",
    "Dense",
    "DenseComponent",
    "Document",
    "Explanation",
    "Filter",
    "FusedRetriever",
    "Hit",
    "Index",
    "LearnedSparse",
    "Measure",
    "Model",
    "Qrels",
    "Quantiser",
    "RemoteIndex",
    "RerankedRetriever",
    "Reranker",
    "Retriever",
    "Run",
    "SparseComponent",
    "Splitter",
    "VectorIndex",
    "VizslaError",
    "Writer",
    "compare",
    "count_tokens",
    "evaluate",
    "evaluate_retriever",
    "fuse",
    "open",
    "parse_model",
    "read_documents",
    "use_device",
]


__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
