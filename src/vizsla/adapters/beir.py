"""The beir package: any model or Retriever as a `BaseSearch`, evaluated by `EvaluateRetrieval`."""

from __future__ import annotations

from typing import Any

from vizsla.adapters.common import CollectionSearch, Searched, needed
from vizsla.errors import VizslaError
from vizsla.models import Model

with needed("beir", "beir"):
    from beir.retrieval.search.base import BaseSearch


class VizslaSearch(BaseSearch):
    """Indexes the corpus that beir brings with a model, and searches it; or searches a retriever that has it already.

    `model`: a Model or its name, as in `bm25 + 20 * minilm`. `retriever`: a Retriever, or a location that `vizsla.open`
    opens.

        EvaluateRetrieval(VizslaSearch("bm25")).retrieve(corpus, queries)
    """

    def __init__(self, model: Model | str = "bm25", retriever: Searched | None = None) -> None:
        self._search = CollectionSearch(model, retriever)

    def search(
        self, corpus: dict[str, dict[str, str]], queries: dict[str, str], top_k: int, *_: Any, **__: Any
    ) -> dict[str, dict[str, float]]:
        """Scores by query and document. beir's name of a score function is not read: a model has its own."""
        self._search.index({**content, "_id": document} for document, content in corpus.items())
        return self._search.search(queries, top_k)

    def encode(self, *_: Any, **__: Any) -> None:
        """Refused: what Vizsla writes is an index."""
        raise VizslaError("vectors are written by: vizsla encode; searching needs no files of vectors, call search()")

    def search_from_files(self, *_: Any, **__: Any) -> dict[str, dict[str, float]]:
        """Refused: what Vizsla reads is an index."""
        raise VizslaError("an index is searched by VizslaSearch(retriever=LOCATION); files of vectors are not read")
