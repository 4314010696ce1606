"""A retriever that scores with a model which can be swapped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from vizsla.models.model import Model
from vizsla.runs import Document, Explanation, FilterLike, Hit, Hits, Retriever, Run


class ModelRetriever(Protocol):
    """A `Retriever` that scores with a model and can search the same documents with another one.

    `Index` is one, and so is the result of `Index.with_model`.
    """

    @property
    def name(self) -> str:
        """What it is called in tables and messages."""

    @property
    def model(self) -> Model:
        """The model that scores."""

    def with_model(self, model: str | Model) -> Retriever:
        """A retriever over the same documents with another model; an error if the index does not fit that model."""

    def search_many(self, queries: Sequence[str], k: int = 10, filter: FilterLike = None) -> Sequence[Sequence[Hit]]:
        """The k best documents for each query, best first."""

    def search(self, query: str, k: int = 10, filter: FilterLike = None) -> Hits:
        """The k best documents for a query, best first."""

    def run(self, queries: Mapping[str, str], k: int = 1000, filter: FilterLike = None) -> Run:
        """The rankings of many queries, by query id."""

    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        """Documents by id; ids of unknown documents are left out."""

    def get(self, doc_id: str | int) -> Document | None:
        """The document with an id, or None."""

    def explain(self, query: str, doc_id: str | int, filter: FilterLike = None) -> Explanation:
        """Why a document has its score for a query."""

    def __len__(self) -> int:
        """How many documents can be found."""
