"""The beir package: any model or Retriever as a `BaseSearch`, evaluated by `EvaluateRetrieval`."""

from __future__ import annotations

from typing import Any

from vizsla.adapters.common import CollectionSearch, Searched, needed
from vizsla.errors import VizslaError
from vizsla.models import Model

with needed("beir", "beir"):
    from beir.retrieval.search.base import BaseSearch


class VizslaSearch(BaseSearch):
    """Indexes the corpus from beir with a model and searches it, or searches a retriever that already has it.

    `model`: a Model or its name, as in `bm25 + 20 * minilm`. `retriever`: a Retriever, or a location that `vizsla.open`
    opens.

        EvaluateRetrieval(VizslaSearch("bm25")).retrieve(corpus, queries)
    """

    def __init__(self, model: Model | str = "bm25", retriever: Searched | None = None) -> None:
        self._search = CollectionSearch(model, retriever)

    def search(
        self, corpus: dict[str, dict[str, str]], queries: dict[str, str], top_k: int, *_: Any, **__: Any
    ) -> dict[str, dict[str, float]]:
        """Scores by query and document. beir's `score_function` is ignored: a model has its own."""
        self._search.index({**content, "_id": document} for document, content in corpus.items())
        return self._search.search(queries, top_k)

    def encode(self, *_: Any, **__: Any) -> None:
        """Not supported: Vizsla writes an index instead."""
        raise VizslaError("searching needs no vector files, so call search(); to write vectors, use: vizsla encode")

    def search_from_files(self, *_: Any, **__: Any) -> dict[str, dict[str, float]]:
        """Not supported: Vizsla reads an index instead."""
        raise VizslaError("vector files are not supported; to search an index, use VizslaSearch(retriever=LOCATION)")
