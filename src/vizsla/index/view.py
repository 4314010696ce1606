"""An index searched with another model, or in another way, than its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vizsla.models import Model
from vizsla.runs import Document, Explanation, FilterLike, Hit, Retriever, Run

if TYPE_CHECKING:
    from vizsla.index.collection import Index


@dataclass(frozen=True)
class IndexView(Retriever):
    """What `Index.with_model` gives: the same documents, searched with a model and in a way of its own."""

    index: Index
    model: Model
    combine: str | None = None
    search_params: str | None = None
    approximate: float | None = None
    threads: int | None = None

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.model.name

    def search_many(
        self, queries: Sequence[str], k: int = 10, filter: FilterLike = None, *, documents: bool = True
    ) -> list[list[Hit]]:
        """The k best documents for each query, best first; without `documents` hits have ids and scores only."""
        return self.index.search_many(
            queries, k, filter, model=self.model, threads=self.threads, documents=documents,
            approximate=self.approximate, combine=self.combine, dense=self.search_params,
        )  # fmt: skip

    def run(self, queries: Mapping[str, str], k: int = 1000, filter: FilterLike = None) -> Run:
        """The rankings of many queries, by query id."""
        run = self.index.run(
            queries, k, filter, model=self.model, threads=self.threads, approximate=self.approximate,
            combine=self.combine, dense=self.search_params,
        )  # fmt: skip
        return Run(run, self.name)

    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        """Documents by id, without those that are not there."""
        return self.index.get_many(ids)

    def __len__(self) -> int:
        return len(self.index)

    def explain(self, query: str, doc_id: str | int, filter: FilterLike = None) -> Explanation:
        """Why a document has its score for a query."""
        return self.index.explain(query, doc_id, filter, model=self.model)

    def with_model(self, model: Model | str) -> IndexView:
        """The same view of the index with another model."""
        return replace(self, model=self.index.with_model(model).model)
