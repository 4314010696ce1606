"""MTEB: any model or Retriever as a `SearchProtocol`, evaluated by `mteb.evaluate`."""

from __future__ import annotations

import re
from typing import Any

from vizsla import __version__
from vizsla.adapters.common import CollectionSearch, Searched, needed
from vizsla.models import Model

with needed("MTEB", "mteb"):
    from mteb.models.model_meta import ModelMeta


class VizslaSearch:
    """Indexes the corpus of a task with a model and searches it, or searches a retriever that already has it.

    `model`: a Model or its name, as in `bm25 + 20 * minilm`. `retriever`: a Retriever, or a location that `vizsla.open`
    opens. `name`: what the results are filed under, as in `me/bm25`.

        mteb.evaluate(VizslaSearch("bm25"), tasks=mteb.get_tasks(["SciFact"]))
    """

    def __init__(self, model: Model | str = "bm25", retriever: Searched | None = None, name: str = "") -> None:
        self._search = CollectionSearch(model, retriever)
        self._name = name or "vizsla/" + re.sub(r"[^\w.+-]+", "_", self._search.name)

    def index(self, corpus: Any, **_: Any) -> None:
        """Index the documents of a task: rows with `id`, `text` and perhaps `title`."""
        self._search.index({"_id": row["id"], "title": row.get("title") or "", "text": row["text"]} for row in corpus)

    def search(
        self, queries: Any, *, top_k: int, top_ranked: dict[str, list[str]] | None = None, **_: Any
    ) -> dict[str, dict[str, float]]:
        """Scores by query and document. `top_ranked`: the documents to rank, in tasks that rerank."""
        texts = {row["id"]: row["text"] for row in queries}
        return self._search.search(texts, top_k, top_ranked)

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """The metadata under which MTEB files results."""
        about: dict[str, Any] = {"name": self._name, "revision": __version__, "reference": None, "framework": []}
        return ModelMeta.create_empty(about)
