"""Indexes of earlier formats open, answer as before, and become the present format."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earlier_formats import make_format
from vizsla.errors import CollectionError
from vizsla.index import Index, verify
from vizsla.index.storage import arrays, number_files, upgrading
from vizsla.index.storage.number_files import from_runs, to_runs
from vizsla.index.storage.schema import FORMAT


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """An index of format 4: two segments, one of them long, with a deletion."""
    folder = tmp_path / "old.index"
    with Index.create(folder) as index:
        index.add({"id": f"a{i}", "text": f"common word{i % 97} " * (1 + i % 6)} for i in range(3000))
        index.commit()
        index.delete(["a7"])
        index.add({"id": f"b{i}", "text": f"common new{i}"} for i in range(20))
        index.commit()
    make_format(4, folder)
    return folder


def test_an_index_of_format_4_answers_as_one_of_this_format(old: Path) -> None:
    queries = ["common word3", "word96 new7", "common"]
    with Index.open(old) as index:
        found = [[(hit.id, hit.score) for hit in index.search(query, 50)] for query in queries]
        index.compact()
        assert [[(hit.id, hit.score) for hit in index.search(query, 50)] for query in queries] == found
        assert index.info()["format"] == FORMAT
    assert verify(old) == []
    assert not list(old.rglob("*_windows.npy"))
    assert all(found)


def test_a_commit_leaves_old_segments_and_compacting_one_rewrites_it(old: Path) -> None:
    with Index.open(old) as index:
        index.add([{"id": "c", "text": "common last"}])
        index.commit()
        assert len(list(old.rglob("small_windows.npy"))) == 2
        assert len(list(old.rglob("small_groups.npy"))) == 1
        assert [hit.id for hit in index.search("last")] == ["c"]
        index.compact()
    make_format(4, old)
    with Index.open(old) as index:
        assert index.info()["segments"] == 1
        index.compact()
    assert len(list(old.rglob("small_groups.npy"))) == 1
    assert verify(old) == []


def test_an_index_of_format_5_answers_as_one_of_this_format_and_becomes_it(tmp_path: Path) -> None:
    folder = tmp_path / "old.index"
    with Index.create(folder) as index:
        index.add({"id": f"a{i}", "text": "common " * (1 + i % 6) + f"word{i % 97}"} for i in range(5000))
        index.commit()
        expected = [[(hit.id, hit.score) for hit in index.search(q, 50)] for q in ("common word3", "common")]
    (blocks,) = folder.glob("segments/*/small_blocks.npy")
    small = blocks.stat().st_size
    make_format(5, folder)
    (postings,) = folder.glob("segments/*/small_postings.npy")
    assert postings.stat().st_size > small, "the present format has a bitmap"
    assert verify(folder) == []
    with Index.open(folder) as index:
        assert [[(h.id, h.score) for h in index.search(q, 50)] for q in ("common word3", "common")] == expected
        index.compact()
        assert [[(h.id, h.score) for h in index.search(q, 50)] for q in ("common word3", "common")] == expected
    (blocks,) = folder.glob("segments/*/small_blocks.npy")
    assert blocks.stat().st_size == small
    assert not list(folder.glob("segments/*/small_postings.npy"))
    assert verify(folder) == []


@pytest.mark.parametrize("part", ["terms", "runs", "starts"])
def test_damaged_directories_of_format_4_are_refused(old: Path, part: str) -> None:
    for file in old.glob(f"segments/*/small_{part}.npy"):
        content = bytearray(file.read_bytes())
        content[-12:] = bytes(12)
        file.write_bytes(content)
    with pytest.raises(CollectionError, match="is damaged: its arrays contradict each other"):
        Index.open(old)


@pytest.fixture(scope="module", params=[(version, store) for version in (3, 4, 5) for store in (True, False)])
def earlier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of an earlier format: three segments, a deletion, replaced documents, and metadata of some."""
    version, store = request.param
    folder = tmp_path_factory.mktemp("earlier") / "my.index"
    with Index.create(folder, store=store) as index:
        index.add(
            {"id": f"a{i}", "text": f"common word{i % 97}", **({"year": i % 10} if i % 3 == 0 else {})}
            for i in range(1500)
        )
        index.commit()
        index.add({"id": f"{i:x}-", "text": "common hex"} for i in range(2000, 3100))
        index.commit()
        index.delete(["a7"])
        index.add([{"id": "a9", "text": "common again"}, {"id": "b\0", "text": "common last", "year": 3}])
        index.commit()
    make_format(version, folder)
    return folder


def content(index: Index) -> object:
    """What there is to see of an index."""
    documents = [(d.id, d.content) for d in index.documents()]
    hits = [(hit.id, hit.score, hit.document.content) for hit in index.search("common word9", 3000)]
    filters = ["year = 3", "not year = 3", "exists(year)", "year > 3 or not exists(year)"]
    passing = [sorted(hit.id for hit in index.search("common", 3000, filter=f)) for f in filters]
    found = index.get_many(["a0", "a7", "a9", "b\0", "b", "7d0-", "nobody"])
    return documents, hits, passing, {doc_id: d.content for doc_id, d in found.items()}, len(index)


def test_an_index_of_an_earlier_format_is_what_it_becomes(earlier: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(earlier, tmp_path / "my.index")
    assert verify(folder) == []
    with Index.open(folder) as index, Index.open(folder) as other:
        before = content(index)
        assert other.info()["format"] < FORMAT
        index.add([{"id": "c", "text": "nothing else"}])
        assert content(index) == before
        index.delete(["c"])
        index.commit()
        assert content(index) == content(other) == before
        other.refresh()
        assert content(other) == before
        assert other.info()["format"] == FORMAT
        assert index.add([{"id": "a0", "text": "common new"}, {"id": "7d0-", "text": "common new"}]).replaced == 2
        index.commit()
        assert len(index) == len(other)
    assert verify(folder) == []


def test_a_writer_that_fails_to_upgrade_leaves_the_index_as_it_was(
    earlier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(earlier, tmp_path / "my.index")

    def fail(*_: object) -> None:
        raise OSError("full")

    with Index.open(folder) as index:
        before, version = content(index), index.info()["format"]
        with monkeypatch.context() as patch:
            patch.setattr(upgrading.database, "mark_finished", fail)
            with pytest.raises(OSError, match="full"):
                index.delete(["a0"])
        index.refresh()
        assert (content(index), index.info()["format"]) == (before, version)
        assert index.delete(["a0"]) == 1
        index.commit()
        assert index.info()["format"] == FORMAT
    assert verify(folder) == []


@given(st.sets(st.integers(0, 1 << 40), min_size=1), st.integers(0, 50))
def test_runs_give_back_their_numbers(starts: set[int], length: int) -> None:
    numbers = np.array(sorted({start + i for start in starts for i in range(length % 7 + 1)}), np.int64)
    assert from_runs(to_runs(numbers)).tolist() == numbers.tolist()


@pytest.mark.parametrize("runs", [[[0, 2], [5, 1]], [[0, 1 << 59]], [[-1, 4]], [[0, 4], [9, -1], [20, 1]]])
def test_runs_of_other_documents_are_refused(tmp_path: Path, runs: list[list[int]]) -> None:
    folder = tmp_path / "segments" / "s"
    folder.mkdir(parents=True)
    facts = {number_files.RUNS: arrays.write_array(folder / "number_runs.npy", np.array(runs, np.int64))}
    with pytest.raises(CollectionError, match="its arrays contradict each other"):
        number_files.read_numbers(tmp_path, "s", facts, 4)
