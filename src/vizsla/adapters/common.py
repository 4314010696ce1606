"""Shared by all adapters: opening retrievers, and errors that say what to install."""

from __future__ import annotations

import asyncio
import shutil
import weakref
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from os import PathLike
from tempfile import mkdtemp
from typing import Any, ParamSpec, TypeVar

from vizsla.errors import MissingPackageError, VizslaError
from vizsla.evaluation.retrieval import retrieve
from vizsla.index import Index
from vizsla.models import Model, check_model, parse_model
from vizsla.retrievers import open
from vizsla.runs import Document, Hit, Retriever
from vizsla.runs.retriever import check_retriever

P = ParamSpec("P")
T = TypeVar("T")
Searched = Retriever | str | PathLike[str]
"""A retriever, or the location of one."""


@contextmanager
def needed(framework: str, extra: str) -> Iterator[None]:
    """A context for the imports of a framework; if it is missing, the error says how to install it.

    >>> with needed("Unheard-of", "unheard"):
    ...     import unheard_of
    Traceback (most recent call last):
    ...
    vizsla.errors.MissingPackageError: the adapter for Unheard-of needs a package that is not installed (No module \
named 'unheard_of'); install it with: pip install "vizsla[unheard]"
    """
    try:
        yield
    except ImportError as e:
        raise MissingPackageError(
            f"the adapter for {framework} needs a package that is not installed ({e}); "
            f'install it with: pip install "vizsla[{extra}]"'
        ) from None


def opened(retriever: Searched) -> Retriever:
    """The given retriever, or the one at a location."""
    if isinstance(retriever, str | PathLike):
        return open(retriever)
    check_retriever(retriever)
    return retriever


def text_and_fields(document: Document, text_field: str) -> tuple[str, dict[str, Any]]:
    """The text of a document, and its other fields. In an index that stores no texts the text is empty."""
    fields = dict(document.content)
    text = fields.pop(text_field, "")
    return text if isinstance(text, str) else str(text), fields


def text_and_metadata(hit: Hit, text_field: str) -> tuple[str, dict[str, Any]]:
    """The text of a hit, and its other fields with its id, rank and score."""
    text, fields = text_and_fields(hit.document, text_field)
    found = {"id": hit.id, "score": hit.score, "rank": hit.rank}
    passage = {} if hit.passage is None else {"passage": hit.passage}
    return text, {**fields, **found, **passage}


def in_thread(method: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """A method as a coroutine: it runs in a thread, and the event loop goes on meanwhile."""

    @wraps(method)
    async def coroutine(*arguments: P.args, **options: P.kwargs) -> T:
        return await asyncio.to_thread(method, *arguments, **options)

    return coroutine


class CollectionSearch:
    """Search for frameworks that supply the documents: a model indexes them in a temporary folder.

    With a `retriever` that already has the documents, those of the framework are ignored.

    >>> search = CollectionSearch("bm25")
    >>> search.index([{"_id": "1", "text": "Dogs bark."}, {"_id": "2", "text": "Cats purr."}])
    >>> list(search.search({"q": "a barking dog"}, k=10)["q"])
    ['1']
    """

    def __init__(self, model: Model | str = "bm25", retriever: Searched | None = None) -> None:
        self._model = parse_model(model) if isinstance(model, str) else check_model(model)
        self._given = None if retriever is None else opened(retriever)
        self._index: Index | None = None
        self._remove: Callable[[], object] = lambda: None

    @property
    def name(self) -> str:
        """The name of the retriever or the model."""
        return self._model.name if self._given is None else self._given.name

    def index(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Index documents, replacing earlier ones, unless a retriever was given."""
        if self._given is not None:
            return
        self._remove()
        model = self._model
        if model.needs_corpus_statistics:
            documents = list(documents)
            model = model.fit(documents)
        folder = mkdtemp(prefix="vizsla-")
        self._index = Index.create(f"{folder}/index", model, store=model.needs_texts)
        self._remove = weakref.finalize(self, _remove, self._index, folder)
        self._index.add(documents)
        self._index.commit()

    def search(
        self, queries: Mapping[str, str], k: int, among: Mapping[str, Collection[str]] | None = None
    ) -> dict[str, dict[str, float]]:
        """Scores by query and document, at most k per query. Ties are broken by lowering each score slightly.

        `among`: only these documents of a query are ranked.
        """
        retriever = self._index if self._given is None else self._given
        if retriever is None:
            raise VizslaError("there is nothing to search yet; index documents first, or give a retriever")
        run = retrieve(retriever, queries, k if among is None else max(len(retriever), 1), own_ids=True)
        results = {}
        for query in queries:
            ranking = zip(run[query].documents, map(float, run[query].scores), strict=True)
            allowed = None if among is None else set(among.get(query, ()))
            kept = [(document, score) for document, score in ranking if allowed is None or document in allowed]
            results[query] = dict(kept[:k])
        return results


def _remove(index: Index, folder: str) -> None:
    index.close()
    shutil.rmtree(folder, ignore_errors=True)
