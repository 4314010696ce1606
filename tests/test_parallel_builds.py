"""An index is the same byte for byte, whatever the number of threads that build, change and compact it."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from many_threads import use_threads
from vizsla import Index
from vizsla.datasets import Source, raw_lines
from vizsla.engine.merge import MergedPostingLists
from vizsla.engine.threads import in_order, in_threads, in_threads_by_size
from vizsla.index import verify
from vizsla.index.storage import arrays
from vizsla.index.storage.packed_terms import PackedTerms
from vizsla.index.writing import analysis
from vizsla.models import parse_model
from waiting import LIMIT

COUNT = 3000


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two collections; the second replaces some documents of the first."""
    chance = random.Random(7)
    words = [f"{a}{b}{c}" for a in ("run", "bark", "sleep", "Über", "o'") for b in "abcdefghij" for c in range(40)]
    weights = [1 / (i + 1) for i in range(len(words))]
    folder = tmp_path_factory.mktemp("corpora")
    files = []
    for name, ids in (("a", range(COUNT)), ("b", range(COUNT - 400, COUNT + 600))):
        records = []
        for i in ids:
            text = " ".join(chance.choices(words, weights, k=chance.randrange(1, 60)))
            records.append({"_id": f"d{i * (1 + i % 3)}-{i}", "text": f"{text} {'bark ' * (i % 9)} only{name}{i}"})
        files.append(folder / f"{name}.jsonl")
        files[-1].write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    return files


def use(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """Have work of any size done in so many threads."""
    use_threads(threads, partial(monkeypatch.setattr, raising=False))
    monkeypatch.setattr(raw_lines, "RAW_LINES", 100)


def content(path: Path) -> dict[str, Any]:
    """All that an index consists of, but for the names of its segments, which are random."""
    with sqlite3.connect(path / "index.db") as db:
        tables = {
            name: db.execute(f"SELECT * FROM {name}").fetchall()
            for name in ("terms", "term_blocks", "deletions", "documents")
        }
        names = [name for (name,) in db.execute("SELECT id FROM segments")]
    folders = [path / "segments" / name for name in names]
    digests = [{f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.iterdir()} for folder in folders]
    return {**tables, "segments": sorted(digests, key=lambda files: sorted(files.items()))}


def shown(path: Path) -> tuple[int, list[Any]]:
    """How many documents an index has, and what some searches find."""
    with Index.open(path) as index:
        found = index.search_many(["bark", "runa1 sleepb2", "onlya7", f"onlyb{COUNT}"], COUNT)
        return len(index), [list(zip(hits.ids, hits.scores, strict=True)) for hits in found]


def build(path: Path, corpora: list[Path], threads: int, memory: int) -> list[dict[str, Any]]:
    """Add, replace, delete and compact; what the index is after each step."""
    first, second = (Source.find(file) for file in corpora)
    states = []
    with Index.create(path, memory=memory, store=False) as index, index.writer() as writer:
        writer.add(first.raw_lines() or (), workers=threads)
        writer.commit()
        states.append(content(path))
        writer.add(second.raw_lines() or (), workers=threads)
        writer.commit()
        states.append(content(path))
        writer.delete([f"d{i * (1 + i % 3)}-{i}" for i in range(0, COUNT, 3)])
        writer.commit()
        states.append(content(path))
        writer.compact()
        states.append(content(path))
    return states


@pytest.mark.parametrize("memory", [200_000, 1 << 22, 1 << 28])
def test_an_index_is_the_same_for_any_number_of_threads(
    tmp_path: Path, corpora: list[Path], memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = {}
    for threads in (1, 2, 3, 8):
        use(monkeypatch, threads)
        built[threads] = build(tmp_path / str(threads), corpora, threads, memory)
    # With little memory there are so many segments that the commit merges them, with much there is one.
    assert (len(built[1][0]["segments"]) > 1) == (memory == 1 << 22)
    assert len(built[1][-1]["segments"]) == 1
    for threads in (2, 3, 8):
        assert built[threads] == built[1]
    assert verify(tmp_path / "8") == []
    with Index.open(tmp_path / "8") as index:
        assert len(index) == COUNT + 600 - COUNT // 3
        assert index.search(f"onlyb{COUNT}").ids == [f"d{COUNT * (1 + COUNT % 3)}-{COUNT}"]


def test_a_compacted_index_is_the_same_for_any_memory(
    tmp_path: Path, corpora: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory decides where segments end, and when terms are forgotten; they get the same numbers again.

    No term here has mostly values above 4; where one has, memory also decides which of its two lists holds the others.
    """
    use(monkeypatch, 2)
    begin, lexicons = analysis.Analyst._begin, [0]

    def counted(analyst: analysis.Analyst) -> None:
        lexicons[0] += 1
        begin(analyst)

    monkeypatch.setattr(analysis.Analyst, "_begin", counted)
    built, begun = {}, {}
    for memory in (1, 1 << 22, 1 << 28):
        path, lexicons[0] = tmp_path / str(memory), 0
        model = "bm25 + bm25(analyzer=whitespace, namespace=plain)"
        with Index.create(path, model, memory=memory, store=False) as index, index.writer() as writer:
            for corpus in corpora:
                writer.add(Source.find(corpus).raw_lines() or (), workers=2)
            writer.compact()
        built[memory], begun[memory] = content(path), lexicons[0]
    assert begun[1] > begun[1 << 22] > begun[1 << 28] == len(corpora)
    assert built[1] == built[1 << 22] == built[1 << 28]


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("sizes", [[0], [5], [0, 0, 7, 0], [1, 1, 1, 90, 1, 1], list(range(20))])
def test_ranges_of_about_the_same_size_hold_all_items(sizes: list[int], threads: int) -> None:
    """Items without a size at the ends belong to the first and the last range."""
    bounds = 10 + np.append(0, np.cumsum(sizes))
    ranges = in_threads_by_size(lambda a, z: (a, z), bounds, 1, threads)
    assert [i for a, z in ranges for i in range(a, z)] == list(range(len(sizes)))
    assert len(ranges) <= threads


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_a_thread_is_raised_when_the_others_have_ended(threads: int, failing: int) -> None:
    begun, ended, both = [], [], threading.Barrier(2)

    def work(a: int, _: int) -> None:
        part = a * threads // 8
        begun.append(part)
        if part < 2:
            both.wait(LIMIT)
        if part == failing:
            ended.append(part)
            raise ValueError(f"part {part}")
        time.sleep(0.1)
        ended.append(part)

    with pytest.raises(ValueError, match=f"part {failing}"):
        in_threads(work, 8, threads, 1)
    assert {0, 1} <= set(begun)
    assert sorted(begun) == sorted(ended)


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_is_raised_when_the_threads_have_ended(times: int) -> None:
    """What they work on may be removed then: nobody may still write files."""
    ended, begun, main = [], threading.Event(), threading.get_ident()

    def work(part: int) -> None:
        assert begun.wait(LIMIT)
        for _ in range(times):
            signal.pthread_kill(main, signal.SIGINT)  # it waits for this thread
            time.sleep(0.2)
        ended.append(part)

    with pytest.raises(KeyboardInterrupt):
        in_threads(lambda a, _: work(a) if a else begun.set(), 2, 2, 1)
    assert ended == [1]
    begun.clear()

    def items() -> Iterator[int]:
        yield 7
        begun.set()

    with pytest.raises(KeyboardInterrupt):
        list(in_order(work, items(), 2))
    assert ended == [1, 7]


def test_an_error_in_an_item_is_raised_in_its_turn() -> None:
    def fail(item: int) -> int:
        if item == 3:
            raise ValueError("three")
        return item

    results = in_order(fail, range(9), 2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        list(results)


@pytest.mark.parametrize(("memory", "most"), [(1, 1), (1 << 16, 2), (1 << 30, 8)])
def test_batches_that_are_analysed_at_a_time_share_a_bound(
    corpora: list[Path], memory: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_lines, "RAW_LINES", 100)
    lock, at_work, seen = threading.Lock(), [0], [0]
    analyst = analysis.Analyst(parse_model("bm25"), None, False, 1 << 20)
    encode = analyst.encode

    def watched(batch: analysis.Batch, encoders: Any) -> analysis.AnalysedBatch:
        assert isinstance(batch, raw_lines.RawLines)
        size = analysis._BYTES_PER_BYTE * len(batch.data)
        with lock:
            at_work[0] += size
            seen[0] = max(seen[0], at_work[0])
            assert at_work[0] <= max(2 * memory // 3, size)
        try:
            return encode(batch, encoders)
        finally:
            with lock:
                at_work[0] -= size

    monkeypatch.setattr(analyst, "encode", watched)
    work = iter(Source.find(corpora[0]).raw_lines() or ())
    batches = list(analysis._in_threads(analyst, work, most, memory, stored=False))
    assert [doc_id for batch in batches for doc_id in batch.ids] == [f"d{i * (1 + i % 3)}-{i}" for i in range(COUNT)]
    assert seen[0] > 0


@pytest.mark.parametrize(
    ("owner", "name"),
    [(arrays, "write_array"), (arrays, "hash_file"), (MergedPostingLists, "_piece"), (PackedTerms, "checksum")],
    ids=["writing", "reading", "merging", "adding up"],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may fall between open and with
def test_ctrl_c_while_threads_build_leaves_the_last_commit(
    tmp_path: Path, corpora: list[Path], owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of their steps it meets."""
    use(monkeypatch, 3)
    first, second = (Source.find(file) for file in corpora)
    with Index.create(tmp_path / "old", store=False) as index:
        index.add(first.raw_lines() or (), workers=3)
        index.commit()
    step, main, at_work = getattr(owner, name), threading.get_ident(), [0]
    count, at = itertools.count(1), 0

    def interrupting(*arguments: Any) -> Any:
        at_work[0] += 1
        try:
            if next(count) == at:
                signal.pthread_kill(main, signal.SIGINT)
                time.sleep(0.05)
            return step(*arguments)
        finally:
            at_work[0] -= 1

    monkeypatch.setattr(owner, name, interrupting)

    def change(path: Path) -> None:
        with Index.open(path, memory=1 << 20) as index:  # so little that segments are written in the background
            index.add(second.raw_lines() or (), workers=3)
            index.compact()

    shutil.copytree(tmp_path / "old", tmp_path / "new")
    change(tmp_path / "new")
    steps = next(count) - 1
    assert steps > 0
    for at in sorted({1, 2, steps // 2, steps} - {0}):
        path = tmp_path / str(at)
        shutil.copytree(tmp_path / "old", path)
        count = itertools.count(1)
        with pytest.raises(KeyboardInterrupt):
            change(path)
        assert at_work == [0] or owner is PackedTerms  # a sum touches no file, and nobody waits for it
        assert verify(path) == []
        assert shown(path) == shown(tmp_path / "old")
        change(path)
        assert verify(path) == []
        assert shown(path) == shown(tmp_path / "new")
