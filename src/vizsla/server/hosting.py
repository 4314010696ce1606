"""The indexes of a server: opened, refreshed, and reported as unavailable while they cannot be read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from vizsla.errors import VizslaError, in_words
from vizsla.harmless import harmless
from vizsla.index import Index
from vizsla.index.searchable import SearchableCollection
from vizsla.models import Reranker, parse_expander, parse_model
from vizsla.retrievers import open as open_location
from vizsla.runs.query_language import QuerySyntaxError
from vizsla.server.collections import INDEX, STATE, CollectionsFolder, Identity, Record, no_collection
from vizsla.server.errors import NotFoundError, RequestError, UnavailableError, status_of, without_paths
from vizsla.server.requested_models import RequestedModels
from vizsla.server.settings import Settings

T = TypeVar("T")
POLL = 0.25
"""Seconds between two checks for a new commit of an index."""
WRITE_MEMORY = 256 << 20
"""The memory in bytes for documents before they are written as a segment."""
_RETRY = 2.0  # seconds between two attempts to open an index that cannot be read
_CLUSTERS = ("qdrant://", "qdrants://")


def is_cluster(location: str) -> bool:
    """Whether a location is the address of a collection in Qdrant.

    >>> is_cluster("qdrant://localhost:6333/my"), is_cluster("my.index")
    (True, False)
    """
    return location.lower().startswith(_CLUSTERS)


def open_served(location: str, memory: int) -> SearchableCollection:
    """The index in a folder, or the collection at an address; `memory`: bytes that writing to an index may use."""
    if is_cluster(location):
        return open_location(location)  # type: ignore[return-value]
    return Index.open(Path(location).absolute(), memory=memory)


class Hosted:
    """A served index. It sees new commits within a second, even if its folder is replaced.

    An index that can no longer be read (its folder is gone, or a commit is damaged) stays searchable in its last state,
    and `problem` says what is wrong. One that was never readable is unavailable.
    """

    def __init__(self, name: str, folder: str, settings: Settings, collection: Collected | None = None) -> None:
        self.name = name
        self.location = folder
        self.collection = collection
        """What it is if a request has created it; None: the operator has named it."""
        self.is_deleted = False
        self.folder = Path(f"{name}.cluster" if is_cluster(folder) else folder).absolute()
        """The folder of the index, beside which the server keeps its own files; a cluster has none."""
        state = Path(settings.state).absolute() / name if settings.state else None
        self.state = state or self.folder.with_name(f"{self.folder.name}.serve")
        """The folder of the server's own files for it: beside the index, or where the settings say."""
        if collection is not None:
            self.state = self.folder.with_name(STATE)
        self.problem: str | None = None
        self._settings = settings
        self._index: SearchableCollection | None = None
        self._turn = threading.Lock()
        self._next_attempt = 0.0
        self._models: RequestedModels | None = None
        self._fields: tuple[int, list[str], list[str]] = (-1, [], [])  # of a generation: to count, to sort by

    @property
    def is_open(self) -> bool:
        """Whether the index can be searched."""
        return self._index is not None

    @property
    def index(self) -> SearchableCollection:
        """The index; one that cannot be read raises `UnavailableError`, and one that was deleted `NotFoundError`."""
        if self.is_deleted:
            raise no_collection(self.name)
        if self._index is None:
            raise UnavailableError(f"the index {self.name} cannot be read now: {self.problem or 'it is not open yet'}")
        return self._index

    @property
    def models(self) -> RequestedModels:
        """The models that a request may name."""
        index = self.index
        if self._models is None or self._models.own is not index.model:
            self._models = RequestedModels(index.model, self._settings.models, self._settings.expanders)
        return self._models

    @property
    def generation(self) -> int:
        """The number of the commit that searches see."""
        return self.index.generation

    def fields(self) -> tuple[list[str], list[str]]:
        """Fields worth counting, and fields worth sorting by."""
        index = self.index
        seen = index.generation
        if self._fields[0] != seen:
            self._fields = (seen, index.facet_fields(), index.sort_fields())
        return self._fields[1:]

    def open(self) -> None:
        """Open the index, or switch to its newest commit; an error is stored in `problem`."""
        with self._turn:
            if self.is_deleted:
                return
            try:
                if self._index is None:
                    self._index = open_served(self.location, WRITE_MEMORY)
                elif self._index.is_outdated():
                    self._index.refresh()
                    self._fields = (-1, [], [])  # it may be another index
                self.problem = None
            except (VizslaError, OSError) as e:
                self.problem = self.sentence(e)

    def poll(self) -> None:
        """Open a new commit if there is one. A server calls this four times a second."""
        if self.problem is None and self._index is not None:
            try:
                if not self._index.is_outdated():
                    return
            except (VizslaError, OSError) as e:
                self.problem = self.sentence(e)
        if self.problem is not None:
            if time.monotonic() < self._next_attempt:
                return
            self._next_attempt = time.monotonic() + _RETRY
        self.open()

    def sentence(self, error: BaseException) -> str:
        """The message of an error, without paths of this machine; a syntax error in a query is shown in context."""
        if isinstance(error, QuerySyntaxError):
            return harmless(str(error), lines=True)
        return without_paths(str(error).replace(self.location, self.name), self.name, self.folder)

    def is_gone(self) -> bool:
        """Whether the index was deleted by a request, perhaps to another worker."""
        if self.collection is None or self.is_deleted:
            return self.is_deleted
        now = self.collection.folder.record(self.name)
        return now is None or now.id != self.collection.record.id

    def delete(self) -> None:
        """Let nobody search the index any more, and close it; searches that are running end as they began."""
        self.is_deleted = True
        with self._turn:
            self.close()

    def close(self) -> None:
        """Close the index."""
        if self._index is not None:
            self._index.close()


class Collected(NamedTuple):
    """A collection as it was last seen."""

    folder: CollectionsFolder
    identity: Identity
    record: Record


class Hosting:
    """All indexes and rerankers of a server: those that the operator has named, and those that requests create."""

    def __init__(self, settings: Settings, load_reranker: Callable[[str], Reranker] = Reranker.open) -> None:
        self.settings = settings
        self.indexes = {name: Hosted(name, folder, settings) for name, folder in settings.indexes.items()}
        """By name. It is replaced when collections come or go, so it can be iterated at any time."""
        self.named = frozenset(self.indexes)
        """The names of the indexes that the operator has named."""
        self.collections = CollectionsFolder(settings) if settings.collections else None
        self._load_reranker = load_reranker
        self._rerankers: dict[str, Reranker] = {}
        self._turn = threading.Lock()
        self._changing = threading.Lock()

    def open(self) -> None:
        """Open all indexes; those that cannot be read are tried again later."""
        for hosted in self.indexes.values():
            hosted.open()
        if self.collections is not None:
            self.collections.prepare()
        self._look_for_collections()

    def poll(self) -> None:
        """See new commits of all indexes, and collections that other workers have created or deleted."""
        self._look_for_collections()
        for hosted in self.indexes.values():
            hosted.poll()

    def _look_for_collections(self) -> None:
        if self.collections is not None:
            for name in {*self.collections.names(), *self.indexes} - self.named:
                if not self.is_current(name):
                    self.look(name)

    def is_current(self, name: str) -> bool:
        """Whether `indexes` is right about a name, so that `look` would change nothing; this takes microseconds."""
        if self.collections is None or name in self.named:
            return True
        hosted = self.indexes.get(name)
        seen = None if hosted is None or hosted.collection is None else hosted.collection.identity
        return self.collections.identity(name) == seen

    def look(self, name: str) -> None:
        """See whether there is a collection now, and what its settings are."""
        if self.collections is None or name in self.named:
            return
        with self._changing:
            old, identity = self.indexes.get(name), self.collections.identity(name)
            record = None if identity is None else self.collections.record(name)
            now = None
            if record is not None and identity is not None:
                now = Collected(self.collections, identity, record)
            if now and old and old.collection and old.collection.record.id == now.record.id:
                old.collection = now
                return
            indexes = {other: hosted for other, hosted in self.indexes.items() if other != name}
            if now is not None:
                indexes[name] = Hosted(name, str(self.collections.path(name) / INDEX), self.settings, now)
                indexes[name].open()
            self.indexes = indexes
        if old is not None:
            old.delete()

    def __getitem__(self, name: str) -> Hosted:
        if not self.is_current(name):
            self.look(name)
        hosted = self.indexes.get(name)
        if hosted is None:
            here = "index here is" if len(self.indexes) == 1 else "indexes here are"
            known = f"the {here} {in_words(self.indexes)}" if self.indexes else "there is none"
            raise NotFoundError(f"there is no index {name[:80]!r} here; {known}")
        return hosted

    def created(self, name: str) -> CollectionsFolder:
        """Where a request may create or change a collection with this name."""
        if self.collections is None:
            raise RequestError("this server has no collections to create or delete; start it with --collections", 403)
        if name in self.named:
            raise RequestError(f"the index {name} was named when the server was started; no request changes it", 403)
        return self.collections

    def reranker(self, name: str) -> Reranker:
        """A reranker by the name it is served under."""
        folders = self.settings.rerankers
        if name not in folders:
            known = f"known: {', '.join(folders)}" if folders else "start the server with --reranker NAME=MODEL"
            raise NotFoundError(f"there is no reranker {name[:80]!r} here; {known}")
        with self._turn:
            if name not in self._rerankers:
                self._rerankers[name] = self._load_reranker(folders[name])
            return self._rerankers[name]

    def close(self) -> None:
        """Close all indexes."""
        for hosted in self.indexes.values():
            hosted.close()


def public_error(error: VizslaError, hosted: Hosted | None) -> RequestError:
    """The public form of an error: a status, and a sentence without paths of this machine.

    If the index was deleted meanwhile, that is what there is to say.
    """
    if hosted is not None and not isinstance(error, NotFoundError) and hosted.is_gone():
        error = no_collection(hosted.name)
    sentence = without_paths(str(error)) if hosted is None else hosted.sentence(error)
    status = status_of(error)
    if isinstance(error, RequestError):
        return RequestError(sentence, status, error.headers)
    return RequestError(sentence, status, {"Retry-After": "1"} if status in (409, 503) else None)


def check_hosting(settings: Settings) -> Mapping[str, dict[str, Any]]:
    """Refuse indexes, models, query expanders and rerankers that cannot be served, before the server starts."""
    if not settings.indexes and not settings.collections:
        raise VizslaError("nothing to serve: name at least one index, as in vizsla serve my.index")
    facts = {}
    if settings.collections:
        _check_collections(settings)
    for name, folder in settings.indexes.items():
        with open_served(folder, WRITE_MEMORY) as index:
            facts[name] = index.info()
            index.search_many(["a word", "another"], 1)  # warm up once, for all workers
    for name, expression in settings.models.items():
        _named("model", name, parse_model, expression)
    for name, expression in settings.expanders.items():
        _named("query expander", name, parse_expander, expression)
    for folder in settings.rerankers.values():
        Reranker.open(folder)
    return facts


def _check_collections(settings: Settings) -> None:
    """Make the folder of collections, and refuse models that they could not have."""
    collections = CollectionsFolder(settings)
    collections.prepare()
    for name in collections.names():
        if name in settings.indexes:
            raise VizslaError(f"two indexes have the name {name!r}, one of them in the folder of collections")
    for name, expression in collections.models.items():
        _named("model of collections", name, parse_model, expression)


def _named(what: str, name: str, parse: Callable[[str], object], expression: str) -> None:
    try:
        parse(expression)
    except VizslaError as e:
        raise VizslaError(f"the {what} {name}: {e}") from None
