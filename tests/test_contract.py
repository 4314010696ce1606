"""One story over every kind of collection: an index, a server's client, a cluster, a client of a served cluster.

The asynchronous kinds tell it through `Awaited`, which waits for each of their coroutines.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from served import served
from vizsla import AsyncCollection, AsyncIndex, AsyncRemoteIndex, Collection, Index, RemoteIndex, VizslaError
from vizsla.backends.qdrant import QdrantIndex
from vizsla.errors import UnsupportedError
from vizsla.index import AsyncCollectionView, CollectionView

KINDS = ["index", "client", "cluster", "client of a cluster"]
ASYNCHRONOUS = ["asynchronous index", "asynchronous client", "asynchronous cluster"]
BEYOND_A_CLUSTER = {
    "facets": "cannot count the values of fields over all documents that match",
    "matching": "cannot count all documents that match a query",
    "suggestions": "cannot complete words",
    "total": "cannot count all results of a search",
    "buckets": "cannot count the values of fields over all documents that match",
    "meant": "cannot correct words",
    "corrected": "cannot correct words",
    "half typed": "cannot read a query language",
    "updated": "cannot be changed in part",
    "compacted": "its servers compact it themselves",
}
DOCUMENTS = [
    {"id": "1", "text": "Vizslas are dogs that point and retrieve.", "lang": "en", "year": 2001},
    {"id": "2", "text": "Dogs bark, and some dogs retrieve birds.", "lang": "en", "year": 2003},
    {"id": "3", "text": "Cats do not retrieve anything.", "lang": "en", "year": 1999},
    {"id": "4", "text": "Vizslas are Hungarian dogs.", "lang": "hu", "year": 2001},
    {"id": "5", "text": "Fish swim.", "lang": "en", "year": 1980},
    {"id": "6", "text": " ", "lang": "en", "year": 1981},
]


class AwaitedView(CollectionView):
    """An asynchronous view whose coroutines are waited for."""

    def __init__(self, view: AsyncCollectionView, loop: asyncio.AbstractEventLoop) -> None:
        self.view, self.loop = view, loop
        self.name = view.name

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        return self.loop.run_until_complete(getattr(self.view, method)(*arguments, **options))

    def with_model(self, model: Any = None, **options: Any) -> CollectionView:
        return AwaitedView(self.call("with_model", model, **options), self.loop)

    def __len__(self) -> int:
        return self.call("count")  # type: ignore[no-any-return]


class Awaited(AwaitedView, Collection):
    """An asynchronous collection whose coroutines are waited for."""

    @property
    def generation(self) -> int:
        return self.call("generation")  # type: ignore[no-any-return]


def _waiting(name: str) -> Callable[..., Any]:
    return lambda self, *arguments, **options: self.call(name, *arguments, **options)


for kind_of_awaited, contract in ((AwaitedView, AsyncCollectionView), (Awaited, AsyncCollection)):
    for name in vars(contract):
        if not name.startswith("_") and name not in ("with_model", "generation", "open"):
            setattr(kind_of_awaited, name, _waiting(name))
    kind_of_awaited.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


@contextmanager
def opened_asynchronously(kind: str, folder: Path, where: str) -> Iterator[Collection]:
    """An empty collection of an asynchronous kind."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        if kind == "asynchronous client":
            Index.create(folder / "served").close()
            with served({"dogs": str(folder / "served")}, write=True, state=str(folder / "state")) as server:
                client = runner.run(AsyncRemoteIndex(f"{server.url}/dogs").open())
                yield Awaited(client, loop)
                runner.run(client.close())
        else:
            cluster = QdrantIndex.create(where, overwrite=True) if kind == "asynchronous cluster" else None
            index = AsyncIndex.of(cluster) if cluster else runner.run(AsyncIndex.create(folder / "dogs"))
            yield Awaited(index, loop)
            runner.run(index.close())


def test_asynchronous_collections_have_the_methods_of_the_others() -> None:
    for sync, other in ((CollectionView, AsyncCollectionView), (Collection, AsyncCollection)):
        names = {name for name in dir(sync) if not name.startswith("_")} - {"close"}
        assert names - set(dir(other)) == set()
        for name in names - {"with_model", "generation"}:
            expected, found = inspect.signature(getattr(sync, name)), inspect.signature(getattr(other, name))
            assert list(expected.parameters) == list(found.parameters), name
            assert inspect.iscoroutinefunction(getattr(other, name)), name


@contextmanager
def opened(kind: str, folder: Path, where: str) -> Iterator[Collection]:
    """An empty collection of a kind."""
    if kind in ASYNCHRONOUS:
        with opened_asynchronously(kind, folder, where) as collection:
            yield collection
    elif kind == "index":
        with Index.create(folder / "dogs") as index:
            yield index
    elif kind == "cluster":
        with QdrantIndex.create(where, overwrite=True) as cluster:
            yield cluster
    else:
        address = where if kind == "client of a cluster" else str(folder / "served")
        (QdrantIndex.create(where, overwrite=True) if address == where else Index.create(address)).close()
        with (
            served({"dogs": address}, write=True, state=str(folder / "state")) as server,
            RemoteIndex(f"{server.url}/dogs") as client,
        ):
            yield client


def story(collection: Collection, cannot: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """What a collection says, step by step; `cannot`: steps that it refuses, with the sentence."""

    def tried(step: str, call: Callable[[], Any]) -> tuple[str, Any]:
        if step not in cannot:
            return step, call()
        with pytest.raises(UnsupportedError, match=cannot[step]):
            call()
        return step, None

    added = collection.add(DOCUMENTS)
    yield "added", (added.documents, added.replaced, [document.id for document in added.empty])
    yield "not committed", (len(collection), collection.search("dogs"), collection.get("1"))
    first = collection.commit()
    yield "committed", (first == collection.generation, type(first), len(collection))
    yield "nothing to commit", collection.commit() - first >= 0

    yield "document", collection.get("2")
    yield "documents", collection.get_many(["4", 5, "nobody"])
    for query, filter in (("dogs that retrieve", None), ("vizslas", "year = 2001"), ("nothing", {"lang": "en"})):
        yield f"search {query}", list(collection.search(query, 3, filter))
    yield "page", collection.search("dogs retrieve", 1, offset=1, min_score=0.01).ids
    yield "many", [hits.ids for hits in collection.search_many(["dogs", "", "cats"], documents=False)]
    yield "run", {query: ranking.documents for query, ranking in collection.run({"q": "dogs", "r": "fish"}).items()}
    view = collection.with_model()
    assert isinstance(view, CollectionView)
    yield "view", [view.search("dogs").ids, view.count(filter="year > 2000"), view.similar("1").ids, len(view)]

    explanation = collection.explain("dogs retrieve", "2", "year > 2000")
    yield "explained", (explanation.name, explanation.score, [(p.name, p.score) for p in explanation.parts])
    yield tried("facets", lambda: collection.facets(["lang", "year"], "dogs", "year > 1990", size=2))
    yield "facets of the best", collection.facets(["lang"], "dogs retrieve", over=3)
    buckets = ["year(..2001, 2001..2003, 2000..)", "year"]
    yield tried("buckets", lambda: collection.facets(buckets, "dogs"))
    yield "buckets of the best", collection.facets(buckets, "dogs retrieve", over=3)
    yield "budget", collection.search("dogs retrieve", max_tokens=16).ids
    yield tried("total", lambda: collection.search("dogs retrieve", 1, "year > 1990", total=True).total)
    yield "similar", list(collection.similar("1", 2))
    yield "similar, filtered", collection.similar("1", 2, 'lang = "hu"').ids
    yield tried("suggestions", lambda: collection.suggest("big viz"))
    spelled = {"typos": "suggest"}
    yield tried("meant", lambda: collection.search("viszlas", **spelled).did_you_mean)  # type: ignore[arg-type]
    yield tried("corrected", lambda: _corrected(collection))
    yield tried("half typed", lambda: collection.search("dogs retri", syntax="typing").ids)
    yield "terms", collection.term_statistics("retrieving dogs xyzzy")
    yield "counts", (collection.count(), collection.count(filter="year = 2001"))
    yield tried("matching", lambda: collection.count("dogs", "year > 2001"))
    yield "facts", {name: collection.info()[name] for name in ("model", "documents", "passages", "stored")}

    added = collection.add([{"id": "3", "text": "Cats retrieve mice.", "year": 2020}, {"id": "7", "text": "Mice."}])
    yield "replaced", (added.documents, added.replaced)
    added = collection.add([{"id": "7", "text": "More mice."}, {"id": "8", "text": "Fish."}])
    yield "added again", (added.documents, added.replaced)
    yield "deleted again", (collection.delete(["7", "7", "8", "2", "nobody"]), collection.delete(["7", "2"]))
    added = collection.add([{"id": "7", "text": "No more mice."}, {"id": "2", "text": "A dog."}])
    yield "added after all", (added.documents, added.replaced)
    collection.rollback()
    yield "rolled back", collection.commit() - first >= 0
    yield "as before", collection.get("3")
    changes = [{"id": "3", "year": 2021}, {"id": "nobody"}, {"id": 3, "lang": "en"}]
    yield tried("updated", lambda: (collection.update(changes), collection.commit() > first, collection.get("3")))
    yield "deleted", (collection.delete(["5", "nobody"]), collection.delete(6), collection.delete([]))
    yield "deleted by filter", collection.delete(filter="year = 2001")
    yield "not yet", len(collection)
    yield "later", (collection.commit() > first, len(collection), collection.search("vizslas"))
    yield "left", list(collection.get_many("1234567"))
    yield tried("compacted", lambda: collection.compact() > first)
    collection.refresh()
    yield "refreshed", collection.generation > first
    for wrong in (
        lambda: collection.delete(),
        lambda: collection.delete("1", filter="year = 1"),
        lambda: collection.delete(filter="colour = 1"),
        lambda: collection.search(" "),
        lambda: collection.similar("nobody"),
        lambda: collection.search("dogs", model="bm26x"),
        lambda: collection.search("dogs", oder=1),  # type: ignore[call-arg]
        lambda: collection.facets("lang"),
        lambda: collection.facets(["year(5..1)"], "dogs"),
        lambda: collection.search("dogs", total="yes"),  # type: ignore[arg-type]
    ):
        with pytest.raises(VizslaError):
            wrong()


def _corrected(collection: Collection) -> list[Any]:
    found = collection.search_many(["viszlas", "dogs", ""], typos="on")
    return [(hits.ids, hits.corrected) for hits in found]


def rounded(value: Any) -> Any:
    """Values with scores as they are told in single precision."""
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-5)
    if isinstance(value, tuple | list):
        return type(value)(map(rounded, value)) if type(value) in (tuple, list) else value
    return value


def plain(value: Any) -> Any:
    """Hits as their columns, for comparisons of scores that are not exact."""
    if isinstance(value, list):
        return [(v.rank, v.id, v.score, dict(v.document.content)) if hasattr(v, "rank") else plain(v) for v in value]
    return value


@pytest.mark.parametrize("kind", [*KINDS, *ASYNCHRONOUS])
def test_the_story_is_the_same(kind: str, tmp_path: Path, where: str) -> None:
    with Index.create(tmp_path / "expected") as index:
        expected = dict(story(index, {}))
    cannot = BEYOND_A_CLUSTER if "cluster" in kind else {}
    with opened(kind, tmp_path, where) as collection:
        assert isinstance(collection, Collection)
        for step, found in story(collection, cannot):
            if step in cannot:
                continue
            assert type(found) is type(expected[step]), step
            assert plain(found) == rounded(plain(expected[step])), step


@pytest.mark.parametrize("kind", [Index, RemoteIndex, QdrantIndex, AsyncIndex, AsyncRemoteIndex])
def test_each_method_has_help(kind: type) -> None:
    """Most of them are described once, in the contract."""
    methods = [getattr(kind, name) for name in dir(kind) if not name.startswith("_")]
    without = [m for m in methods if (callable(m) or isinstance(m, property)) and not inspect.getdoc(m)]
    assert without == []
    assert "`typos`: " in str(inspect.getdoc(kind.search_many))
