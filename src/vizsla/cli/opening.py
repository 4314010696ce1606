"""What the verbs search: opened from a location, with the model and the parameters the user chose."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from pathlib import Path

    from vizsla.index import Index, IndexView
    from vizsla.index.view import SearchableCollection
    from vizsla.models import Model
    from vizsla.runs import Hits, PageOptions, Retriever


class SearchChoices(TypedDict):
    """How an index is searched; None is its own way."""

    combine: str | None
    search_params: str | None


def open_retriever(location: str | Path) -> Retriever:
    """Whatever can be searched at a location: a folder with an index, or an address with a registered scheme."""
    from vizsla.retrievers import open

    return open(location)


def open_index(location: str | Path) -> Index:
    """The index at a location; any other retriever is refused."""
    retriever = open_retriever(location)
    index = index_of(retriever)
    if index is None:
        raise VizslaError(f"{location}: this needs an index in a folder, and {retriever.name} is something else")
    return index


def index_of(retriever: Retriever) -> Index | None:
    """The index behind a retriever, for what only an index can tell; None for any other retriever."""
    from vizsla.index import Index, IndexView

    searched = retriever.index if isinstance(retriever, IndexView) else retriever
    return searched if isinstance(searched, Index) else None


def open_writable(location: str, memory: int | None = None) -> SearchableCollection:
    """What can be written to at a location: an index in a folder, or a collection in Qdrant.

    `memory`: how many bytes writing to an index in a folder may take.
    """
    from vizsla.index import Index
    from vizsla.index.view import SearchableCollection

    if not location.lower().startswith(("qdrant://", "qdrants://")):
        return Index.open(location) if memory is None else Index.open(location, memory=memory)
    opened = open_retriever(location)
    assert isinstance(opened, SearchableCollection)
    return opened


def searched_here(retriever: Retriever) -> SearchableCollection | IndexView | None:
    """The retriever if it searches with a model in this process, which also finds the words to highlight; else None."""
    from vizsla.index import IndexView
    from vizsla.index.view import SearchableCollection

    return retriever if isinstance(retriever, SearchableCollection | IndexView) else None


def searched_with(
    retriever: Retriever,
    *,
    model: str | None = None,
    expand: str | None = None,
    combine: str | None = None,
    search_params: str | None = None,
    approximate: float | None = None,
    threads: int | None = None,
    syntax: str | None = None,
) -> Retriever:
    """A retriever with another model, query expansion or search parameters; itself where nothing is chosen."""
    from vizsla.index import IndexView

    choices = (model, expand, combine, search_params, approximate, threads, syntax)
    if all(choice is None for choice in choices):
        return retriever
    here = searched_here(retriever)
    if here is None:
        from vizsla.retrievers.remote import RemoteView

        if not isinstance(retriever, RemoteView):
            raise VizslaError(f"{retriever.name} is not an index, so its model and the way it is searched are fixed")
        if approximate is not None or threads is not None:
            raise VizslaError(f"{retriever.address}: a server takes neither --approximate nor --threads")
        return retriever.with_model(model, expand=expand, combine=combine, search_params=search_params, syntax=syntax)
    index = here.index if isinstance(here, IndexView) else here
    return index.with_model(
        _expanded(index.with_model(model).model, expand),
        combine=combine, search_params=search_params, approximate=approximate, threads=threads, syntax=syntax,
    )  # fmt: skip


def search_page(retriever: Retriever, query: str, k: int, filter: str | None, page: PageOptions) -> Hits:
    """The results of a query that are on a page; a retriever without pages is refused."""
    if not page:
        return retriever.search(query, k, filter)
    from vizsla.index import CollectionView

    if not isinstance(retriever, CollectionView):
        option = next(iter(page)).replace("_", "-")
        raise VizslaError(f"{retriever.name} is not an index, so --{option} has no meaning for it")
    return retriever.search(query, k, filter, **page)


def _expanded(model: Model, expand: str | None) -> Model:
    from vizsla.models import parse_expander, with_expansion

    return model if expand is None else with_expansion(model, parse_expander(expand))
