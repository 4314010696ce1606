"""Many small commits: what they write and read does not grow, and readers that follow them keep nothing back."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scattered import ScatteredTokens
from vizsla import Index, parse_model
from vizsla.engine import build_segment, live_frequencies, live_frequencies_without
from vizsla.engine.deletions import frequencies_in_rows
from vizsla.index import verify
from vizsla.index.storage import database, live_documents, segment_files, terms
from vizsla.index.writing import transaction

SHORT = 100_000


@pytest.fixture
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "MAX_LOG_BYTES", SHORT)


def add(index: Index, number: int, count: int = 40) -> None:
    index.add([{"id": f"{number}-{i}", "text": f"dog w{number} {'bark ' * 100} x{i}"} for i in range(count)])
    index.commit()


def log_bytes(index: Index) -> int:
    return (index.path / database.LOG).stat().st_size


def follow_together(readers: list[Index]) -> None:
    for reader in readers:
        reader.refresh()


def follow_and_look(readers: list[Index]) -> None:
    """The first to refresh still meets the commit that the second reads; it looks again later."""
    follow_together(readers)
    for reader in readers:
        assert not reader.is_outdated()


@pytest.mark.usefixtures("short_log")
@pytest.mark.parametrize(("readers", "follow"), [(0, follow_together), (1, follow_together), (3, follow_and_look)])
def test_the_log_stays_short(tmp_path: Path, readers: int, follow: Callable[[list[Index]], None]) -> None:
    longest, written = 0, 0
    with Index.create(tmp_path / "my.index") as index:
        followers = [Index.open(index.path) for _ in range(readers)]
        for i in range(12):
            before = log_bytes(index)
            add(index, i)
            written += max(log_bytes(index) - before, 0)
            longest = max(longest, log_bytes(index))
            follow(followers)
            assert all(len(reader.search(f"w{i}", k=100)) == 40 for reader in followers)
        for reader in followers:
            reader.close()
    assert longest < 3 * SHORT < written
    assert not verify(tmp_path / "my.index")


@pytest.mark.usefixtures("short_log")
def test_a_reader_that_has_left_the_log_keeps_its_commit(tmp_path: Path) -> None:
    with Index.create(tmp_path / "my.index") as index:
        count = fill_log(index)
        reader = Index.open(index.path)
        before = reader._searcher.snapshot.connection.db
        reader._searcher.snapshot.leave_log()
        assert reader._searcher.snapshot.connection.db is not before
        index.delete([f"{i}-{j}" for i in range(count) for j in range(40)])
        for i in range(count, count + 5):
            add(index, i)
        assert [hit["text"][:6] for hit in reader.search("w2", k=3)] == ["dog w2"] * 3
        assert reader.search(f"w{count + 2}") == []
        assert len(reader) == count * 40
        reader.close()


def fill_log(index: Index) -> int:
    """Commit until the log is long; returns how many times."""
    for i in range(20):
        add(index, i)
        if i > 2 and log_bytes(index) > SHORT:
            return i + 1
    raise AssertionError("the log stays short")


@pytest.mark.usefixtures("short_log")
def test_a_reader_stays_with_the_log_that_it_needs(tmp_path: Path) -> None:
    with Index.create(tmp_path / "my.index") as index:
        fill_log(index)
        reader = Index.open(index.path)
        index.delete([f"2-{j}" for j in range(40)])
        index.commit()
        before = reader._searcher.snapshot.connection.db
        reader._searcher.snapshot.leave_log()  # there is a newer commit, which has no such documents
        assert reader._searcher.snapshot.connection.db is before
        assert len(reader.search("w2", k=100)) == 40
        reader.close()


def segment_of(rows: list[list[int]], values: list[int]) -> object:
    terms = [np.unique(np.array(row, np.int64)) for row in rows]
    counts = np.array([len(row) for row in terms])
    sizes = np.maximum(counts, 1)[None]
    flat = np.concatenate([*terms, np.zeros(0, np.int64)]).astype(np.uint32)
    weights = np.resize(np.array(values, np.uint32), len(flat))
    pointers = np.append(0, np.cumsum(counts))
    return build_segment(np.arange(len(rows)), sizes.astype(np.uint8), sizes, pointers, flat, weights)


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=8), min_size=1, max_size=60),
    st.lists(st.integers(1, 9), min_size=1, max_size=7),
    st.data(),
)
def test_frequencies_follow_deletions(rows: list[list[int]], values: list[int], data: st.DataObject) -> None:
    segment = segment_of(rows, values)
    gone = st.sets(st.integers(0, len(rows) - 1))
    alive, frequencies = np.ones(len(rows), np.bool_), None
    for _ in range(3):
        now = np.array(sorted(data.draw(gone) & set(np.flatnonzero(alive).tolist())), np.int64)
        alive[now] = False
        frequencies = live_frequencies_without(segment, frequencies, now)  # type: ignore[arg-type]
        assert frequencies.tolist() == live_frequencies(segment, alive).tolist()  # type: ignore[arg-type]


def test_frequencies_follow_deletions_in_other_ranges() -> None:
    rng = np.random.default_rng(0)
    segment = segment_of(rng.integers(0, 50, (40_000, 3)).tolist(), [1, 2, 9])
    alive = np.ones(40_000, np.bool_)
    gone = np.array([3, 16_383, 16_384, 39_999])
    alive[gone] = False
    found = live_frequencies_without(segment, None, gone)  # type: ignore[arg-type]
    assert found.tolist() == live_frequencies(segment, alive).tolist()  # type: ignore[arg-type]


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=8), min_size=1, max_size=60),
    st.lists(st.integers(1, 9), min_size=1, max_size=7),
    st.data(),
)
def test_frequencies_in_rows(rows: list[list[int]], values: list[int], data: st.DataObject) -> None:
    segment = segment_of(rows, values)
    some = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1))))
    terms = np.array([*range(32), -1], np.int64)
    found = frequencies_in_rows(segment, terms, np.array(some, np.int64))  # type: ignore[arg-type]
    assert found.tolist() == [sum(term in rows[row] for row in some) for term in terms]


@pytest.mark.parametrize("values", [[1, 2], [1, 2, 9]])
def test_frequencies_in_rows_of_other_ranges(values: list[int]) -> None:
    """Frequent terms have bitmaps, others blocks of some ranges only."""
    rng = np.random.default_rng(0)
    rows = [[0, 1 + i % 2, int(n), 300 + i // 9000] for i, n in enumerate(rng.integers(10, 60, 50_000))]
    segment, terms = segment_of(rows, values), np.arange(320)
    for some in (np.array([3, 16_383, 16_384, 49_999]), np.sort(rng.choice(50_000, 700, replace=False))):
        expected = np.bincount(np.concatenate([rows[i] for i in some]), minlength=320)
        assert frequencies_in_rows(segment, terms, some).tolist() == expected.tolist()  # type: ignore[arg-type]


@pytest.mark.parametrize(("most", "positions"), [(0, False), (3, True), (1000, False)])
def test_deletions_are_listed_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, positions: bool
) -> None:
    """Whatever a commit writes of its deletions, a search finds what an index of the living documents does."""
    monkeypatch.setattr(live_documents, "most_listed", lambda _: most)
    folder, rng = tmp_path / "my.index", np.random.default_rng(most)
    with Index.create(folder, positions=positions) as index, Index.create(tmp_path / "fresh.index") as fresh:
        reader = Index.open(folder)
        for turn in range(12):
            ids = rng.choice(60, 12, replace=False).tolist()
            words = [" ".join(f"w{n}" for n in rng.integers(0, 25, 9)) for _ in ids]
            index.add([{"id": str(i), "text": text} for i, text in zip(ids, words, strict=True)])
            index.delete([str(i) for i in rng.choice(60, 3, replace=False)])
            index.commit()
            reader.refresh()
            fresh.delete([d.id for d in fresh.documents()])
            fresh.add(index.documents())
            fresh.compact()
            queries = ["w1 w2 w3", "w7", "w20 w4 w4"]
            expected = [[(hit.id, hit.score) for hit in hits] for hits in fresh.search_many(queries, 100)]
            for one in (index, reader, Index.open(folder)):
                assert [[(hit.id, hit.score) for hit in hits] for hits in one.search_many(queries, 100)] == expected
                assert len(one) == len(fresh)
            assert verify(folder) == []
            if turn == 8:
                index.compact()
        has_files = any(folder.rglob("alive-*.npy"))
        has_lists = rows(folder, "SELECT count(*) FROM segments WHERE statistics LIKE '%deleted%'") != [(0,)]
        assert (has_files, has_lists) == ((most < 1000), (most > 0))
        reader.close()


def test_a_commit_that_deletes_few_documents_writes_no_files(tmp_path: Path) -> None:
    folder = tmp_path / "my.index"
    with Index.create(folder) as index:
        for i in range(3):
            add(index, i)
        before = set(folder.rglob("*.npy"))
        index.delete(["0-1", "1-1", "2-1"])
        index.commit()
        assert set(folder.rglob("*.npy")) == before
        index.delete([f"1-{i}" for i in range(2, 10)])
        index.commit()
        assert set(folder.rglob("*.npy")) == before
        assert index.search("w1")[0].score == fresh_score(tmp_path, "w1")
    assert not verify(folder)


def test_a_commit_opens_the_segments_that_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    read = segment_files.read_segment

    def reading(path: Path, name: str, facts: dict[str, object]) -> object:
        opened.append(name)
        return read(path, name, facts)  # type: ignore[arg-type]

    with Index.create(tmp_path / "my.index") as index:
        for i in range(5):
            add(index, i)
        monkeypatch.setattr(segment_files, "read_segment", reading)
        add(index, 5)
        assert len(opened) == 1  # the new one, to search it
        opened.clear()
        index.delete("3-7")
        index.commit()
        assert len(opened) == 1  # the one with the document, to count its terms; a reader has it open
        index.delete("3-8")
        index.commit()
        assert len(opened) == 1  # now the writer has it open, too
        assert [hit.id for hit in index.search("w3 x7", k=1)] != ["3-7"]
        assert index.search("w3")[0].score == fresh_score(tmp_path, "w3")
    assert not verify(tmp_path / "my.index")


def fresh_score(folder: Path, query: str) -> float:
    """The best score in an index of the same documents that was never changed."""
    with Index.open(folder / "my.index") as index, Index.create(folder / "fresh.index") as fresh:
        fresh.add(index.documents())
        fresh.commit()
        return fresh.search(query)[0].score


def test_what_a_long_call_has_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "MAX_UNCOMMITTED", 1000)
    folder = tmp_path / "my.index"
    with Index.create(folder) as index:
        add(index, 0)
        assert rows(folder, "PRAGMA user_version") == [(2,)]
        index.add([{"id": f"0-{i}", "text": "cat " * 50} for i in range(40)])
        index._own_writer.rollback()  # type: ignore[union-attr]  # the rows of the call are in the database
        assert rows(folder, "SELECT count(*) FROM contents") == [(80,)]
        assert rows(folder, "SELECT count(*) FROM deletions") == [(40,)]
        assert rows(folder, "PRAGMA user_version") == [(0,)]
        add(index, 1)
        assert (len(index), len(index.search("w0", k=100))) == (80, 40)
        assert rows(folder, "SELECT count(*) FROM deletions") == [(0,)]
        assert rows(folder, "PRAGMA user_version") == [(3,)]
    assert not verify(folder)


def rows(folder: Path, sql: str) -> list[tuple[int, ...]]:
    connection = sqlite3.connect(folder / database.FILE)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_terms_are_found_again(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(1300)]
    with Index.create(tmp_path / "my.index") as index:
        index.add([{"id": "1", "text": " ".join(words[:900])}])
        index.commit()
        index.add([{"id": "2", "text": " ".join(words[400:])}])
        index.commit()
        found = [{hit.id for hit in index.search(word)} for word in words]
    assert found == [{"1"}] * 400 + [{"1", "2"}] * 500 + [{"2"}] * 400


def words_of(index: Index, words: list[str]) -> list[set[str]]:
    return [{hit.id for hit in index.search(word)} for word in words]


@pytest.mark.parametrize("folding", [1, 1 << 20])
def test_kept_terms_are_those_of_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folding: int) -> None:
    """Two writers take turns, with changes that are discarded, and terms that move to blocks: each keeps its terms."""
    monkeypatch.setattr(terms, "_MIN_FOLDED", folding)
    folder, rng = tmp_path / "my.index", np.random.default_rng(0)
    expected: dict[str, set[str]] = {}
    with Index.create(folder) as one, Index.open(folder) as other:
        for i in range(24):
            index, words = (one, other)[i // 2 % 2], [f"w{n}" for n in rng.integers(0, 40 + 10 * i, 30).tolist()]
            index.refresh()
            index.add([{"id": f"lost{i}", "text": " ".join(f"u{i}x{n}" for n in range(i % 3))}])
            if i % 3 == 2:
                index.rollback()
            index.add([{"id": str(i), "text": " ".join(words)}])
            index.commit()
            for word in words:
                expected.setdefault(word, set()).add(str(i))
        one.refresh()
        for word, ids in expected.items():
            assert {hit.id for hit in one.search(word, k=100)} == ids
    assert not verify(folder)


def test_kept_terms_are_forgotten_with_the_index_they_are_of(tmp_path: Path) -> None:
    """An index that goes back to an earlier commit gives the numbers of later terms to others."""
    folder, copy = tmp_path / "my.index", tmp_path / "copy.index"
    with Index.create(folder) as index:
        index.add([{"id": "1", "text": "dog"}])
        index.commit()
        shutil.copytree(folder, copy)
        index.add([{"id": "2", "text": "cat fish"}])
        index.commit()
        index.add([{"id": "3", "text": "cat fish"}])
        index.commit()
        kept = index._own_writer._opened  # type: ignore[union-attr]
    with Index.open(copy) as index:
        index.add([{"id": "4", "text": "bird"}])
        index.commit()
        index._own_writer._opened = kept  # type: ignore[union-attr]
        index.add([{"id": "5", "text": "fish bird"}])
        index.commit()
        assert words_of(index, ["bird", "fish", "cat", "dog"]) == [{"4", "5"}, {"5"}, set(), {"1"}]
    assert not verify(copy)


def test_a_commit_that_only_adds_reads_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[Path] = []
    sweep = segment_files.sweep_segments
    monkeypatch.setattr(segment_files, "sweep_segments", lambda path, live: (swept.append(path), sweep(path, live)))
    folder = tmp_path / "my.index"
    with Index.create(folder) as index:
        for i in range(4):
            add(index, i)
        assert len(swept) == 1  # what a writer before may have left
        index.add([{"id": "lost", "text": "dog"}])
        index.rollback()
        leftover = folder / "segments" / "0123456789ab"
        leftover.mkdir()
        (leftover / "sizes.npy").write_bytes(b"")
        add(index, 4)
        assert not leftover.exists()
    assert not verify(folder)


def test_statistics_follow_deletions(tmp_path: Path) -> None:
    folder = tmp_path / "my.index"
    with Index.create(folder, parse_model("bm25") + ScatteredTokens()) as index:
        index.add([{"id": str(i), "text": "dog " * i} for i in range(30)])
        index.commit()
        for gone in (["4", "29"], ["0"], ["28", "27", "5"], ["3"]):
            index.delete(gone)
            index.commit()
            assert not verify(folder)  # counts them again
            with Index.create(tmp_path / "fresh.index", index.model, overwrite=True) as fresh:
                fresh.add(index.documents())
                fresh.commit()
                expected, found = (i._searcher.snapshot.statistics["words"] for i in (fresh, index))
            for name in ("documents", "total_length", "longest"):
                assert getattr(found, name) == getattr(expected, name)
