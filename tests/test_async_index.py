"""An index in an event loop: the loop goes on, cancelled searches stop, changes are whole."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import vizsla.index.async_index as async_index
from numbered import records
from test_forking import fork
from vizsla import AsyncCollection, AsyncIndex, Index, VizslaError, stopping
from vizsla.errors import CollectionError, StoppedError, UncommittedChangesWarning
from vizsla.index import Added
from waiting import LIMIT


def running(main: Callable[[AsyncIndex], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine with an index of five documents in memory."""

    async def outer() -> None:
        async with await AsyncIndex.create(":memory:") as index:
            await index.add(records(range(5)))
            await index.commit()
            await main(index)

    asyncio.run(outer())


def test_the_loop_goes_on_while_the_index_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method waits, in its thread, for something that only the loop can do."""

    async def main(index: AsyncIndex) -> None:
        loop, collection = asyncio.get_running_loop(), index._collection
        assert isinstance(collection, Index)
        names = ["search", "search_many", "run", "get", "facets", "similar", "suggest", "info", "add", "commit"]
        arguments: dict[str, Any] = {
            "search": "word1", "search_many": ["word1"], "run": {"q": "word1"}, "get": "1", "facets": ["text"],
            "similar": "1", "suggest": "wo", "info": None, "add": records(range(3)), "commit": None,
        }  # fmt: skip
        for name in names:
            came, method = threading.Event(), getattr(collection, name)

            def waits(*given: Any, method: Any = method, came: threading.Event = came, **options: Any) -> Any:
                assert threading.current_thread() is not threading.main_thread()
                loop.call_soon_threadsafe(came.set)
                assert came.wait(LIMIT)
                return method(*given, **options)

            with monkeypatch.context() as patch:
                patch.setattr(collection, name, waits)
                given = [] if arguments[name] is None else [arguments[name]]
                await getattr(index, name)(*given)

    running(main)


def test_searches_run_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(index: AsyncIndex) -> None:
        together = threading.Barrier(2, timeout=LIMIT)
        search = index._collection.search  # type: ignore[union-attr]
        monkeypatch.setattr(index._collection, "search", lambda *given: (together.wait(), search(*given))[1])
        found = await asyncio.gather(index.search("word1"), index.search("word2"))
        assert [hits.ids for hits in found] == [["1"], ["2"]]

    running(main)


def test_a_cancelled_search_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(index: AsyncIndex) -> None:
        begun, ended = threading.Event(), threading.Event()
        reasons: list[str] = []

        def searches(*_: Any) -> None:
            begun.set()
            try:
                while True:
                    stopping.check()
            except StoppedError as e:
                reasons.append(str(e))
                raise
            finally:
                ended.set()

        with monkeypatch.context() as patch:
            patch.setattr(index._collection, "search", searches)
            task = asyncio.create_task(index.search("word1"))
            await asyncio.to_thread(begun.wait, LIMIT)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(ended.wait, LIMIT)
        assert reasons == ["the task was cancelled"]
        assert (await index.search("word1")).ids == ["1"]

    running(main)


def test_a_cancelled_change_goes_on_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(index: AsyncIndex) -> None:
        begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()
        commit = index._collection.commit  # type: ignore[union-attr]

        def commits() -> int:
            begun.set()
            assert go_on.wait(LIMIT)
            try:
                return commit()
            finally:
                ended.set()

        await index.add(records(range(9)))
        with monkeypatch.context() as patch:
            patch.setattr(index._collection, "commit", commits)
            task = asyncio.create_task(index.commit())
            await asyncio.to_thread(begun.wait, LIMIT)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        go_on.set()
        assert await asyncio.to_thread(ended.wait, LIMIT)
        assert await index.count() == 9

    running(main)


def test_documents_of_hits_are_read_in_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(index: AsyncIndex) -> None:
        view = await index.with_model("bm25(k1=2)")
        found = [
            await index.search("common"),
            *await index.search_many(["common", "word1"]),
            await view.search("word2"),
        ]
        found.append(await index.similar("1"))
        assert all(len(hits) for hits in found)
        for hits in found:
            monkeypatch.setattr(hits._columns, "_source", None)  # it would be asked now
            assert all(hit["text"].startswith("common word") for hit in hits)

    running(main)


def test_documents_come_from_an_asynchronous_iterable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_index, "_BATCH", 7)

    async def stream(count: int, error: Exception | None = None) -> AsyncIterator[dict[str, Any]]:
        for record in records(range(count)):
            assert threading.current_thread() is threading.main_thread()
            yield record
            await asyncio.sleep(0)
        if error is not None:
            raise error

    async def main(index: AsyncIndex) -> None:
        for count in (0, 1, 7, 20):
            assert await index.add(stream(count)) == Added(count, replaced=min(count, 5))
            await index.rollback()
        for error in (ValueError("no more"), TimeoutError("too late")):
            with pytest.raises(type(error), match=str(error)):
                await index.add(stream(20, error))
        await index.commit()
        assert await index.count() == 5  # an add that fails adds nothing
        added = await index.add([{"id": "x", "text": "more"}, 5], skip_bad=True)  # type: ignore[list-item]
        assert (added.documents, added.skipped.count) == (1, 1)
        await index.rollback()

    running(main)


def test_an_add_whose_documents_never_come_can_be_cancelled() -> None:
    async def never() -> AsyncIterator[dict[str, Any]]:
        yield {"id": "a", "text": "first"}
        waits.set()
        await asyncio.Event().wait()

    waits = asyncio.Event()

    async def main(index: AsyncIndex) -> None:
        task = asyncio.create_task(index.add(never()))
        await waits.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await index.commit()  # which waits for its turn
        assert await index.get("a") is None

    running(main)


def test_opening_and_closing(tmp_path: Path) -> None:
    async def main() -> None:
        index = AsyncIndex(tmp_path / "i")
        with pytest.raises(CollectionError, match="is not open; use async with, or await open"):
            await index.search("dogs")
        with pytest.raises(CollectionError, match="does not exist"):
            await index.open()
        with pytest.raises(VizslaError):
            await AsyncIndex.create(tmp_path / "i", "no model")
        made = await AsyncIndex.create(tmp_path / "i", "bm25", passages=5)
        await made.close()
        await made.close()
        for call in (made.open, made.count):
            with pytest.raises(CollectionError, match="the index has been closed"):
                await call()
        async with index:
            assert index.name == "bm25"
            assert await index.open() is index
            assert "AsyncIndex of <Index" in repr(index)
            assert (await index.info())["passages"] == 0
            assert isinstance(index, AsyncCollection)
        async with AsyncIndex(tmp_path / "i", refresh_every=0) as reader:
            writer = await AsyncIndex(tmp_path / "i").open()
            await writer.add(records(range(3)))
            await writer.commit()
            assert await reader.count() == 3
            assert await reader.generation() == await writer.generation() == 1
            await writer.delete("1")
            with pytest.warns(UncommittedChangesWarning):
                await writer.__aexit__(None, None, None)
        with pytest.raises(VizslaError, match="expected a Collection"):
            AsyncIndex.of("my.index")  # type: ignore[arg-type]

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(folder: Path) -> None:
    index = asyncio.run(AsyncIndex(folder).open())
    assert asyncio.run(index.count()) == 5  # in a thread that a child does not have
    assert fork(lambda: asyncio.run(index.search("word1")).ids) == "['1']"
    assert asyncio.run(index.search("word1")).ids == ["1"]
    asyncio.run(index.close())


def test_copies_for_worker_processes(folder: Path) -> None:
    async def main() -> None:
        index = AsyncIndex(folder, memory=1 << 22, refresh_every=0)
        unopened = pickle.dumps(index)
        await index.open()
        for pickled in (unopened, pickle.dumps(index)):
            async with pickle.loads(pickled) as again:
                assert (await again.search("word1")).ids == ["1"]
                assert (again._collection.memory, again._collection.refresh_every) == (1 << 22, 0)
        await index.close()
        with pytest.raises(CollectionError, match="the index has been closed"):
            pickle.dumps(index)

    asyncio.run(main())


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if not thread.name.startswith(("vizsla-search", "vizsla-queries")):  # which are kept for all searches
            thread.join(LIMIT)
            assert not thread.is_alive()
