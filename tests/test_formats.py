"""Indexes of earlier formats open, answer as before, and become the present format."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla.engine import BlockTable, ListDirectory
from vizsla.engine.blocks import OFFSET_MASK, RANGE_BITS
from vizsla.errors import CollectionError
from vizsla.index import Index, verify
from vizsla.index.storage import arrays, database, list_files, number_files
from vizsla.index.storage.checksums import Checksums
from vizsla.index.storage.number_files import from_runs, to_runs
from vizsla.index.storage.schema import FORMAT
from vizsla.index.storage.term_blocks import stored_terms


def plain_lists(folder: Path, segment: str, facts: dict[str, Any], kind: str) -> tuple[BlockTable, np.ndarray]:
    """The small or the large lists of a segment without bitmaps, as format 5 and earlier had them."""
    lists = list_files.read_lists(folder, segment, facts, kind)
    starts, documents, values = lists.unpack(1 << 30)
    term, ranges = np.repeat(np.arange(len(starts) - 1), np.diff(starts)), documents >> RANGE_BITS
    is_first = np.append(True, (np.diff(term) > 0) | (np.diff(ranges.astype(np.int64)) > 0))[: len(term)]
    firsts = np.append(np.flatnonzero(is_first), len(term))
    block_starts = np.searchsorted(firsts, starts)
    above = (values.astype(np.int64) - 1) << RANGE_BITS if kind == "small" else 0
    postings = ((documents & OFFSET_MASK) | above).astype(np.uint16)
    table = BlockTable.plain(lists.terms, block_starts, ranges[firsts[:-1]].astype(np.uint16), firsts)
    return table, postings


def make_format_5(folder: Path) -> None:
    """Give the segments of an index small lists without bitmaps."""
    with sqlite3.connect(folder / "index.db") as db:
        for segment, files in db.execute("SELECT id, files FROM segments").fetchall():
            facts, place = json.loads(files), folder / "segments" / segment
            table, postings = plain_lists(folder, segment, facts, "small")
            directory = ListDirectory.pack(table)
            for part in ("groups", "records"):
                facts[f"small_{part}"] = arrays.write_array(place / f"small_{part}.npy", getattr(directory, part))
            (place / facts.pop("small_blocks")["file"]).unlink()
            facts["small_postings"] = arrays.write_array(place / "small_postings.npy", postings)
            db.execute("UPDATE segments SET files = ? WHERE id = ?", (json.dumps(facts), segment))
        store_format(db, 5)
    db.close()


def store_format(db: sqlite3.Connection, version: int) -> None:
    """Store the number of a format, and the checksums of what has been changed."""
    db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (str(version),))
    generation = database.get_meta(db, "generation")
    Checksums(db, generation).store(db, generation, database.get_meta(db, "next_term"))


def make_format_4(folder: Path) -> None:
    """Give the segments of an index the directories and numbers that format 4 had: plain arrays."""
    make_format_5(folder)
    with sqlite3.connect(folder / "index.db") as db:
        for segment, files in db.execute("SELECT id, files FROM segments").fetchall():
            facts, place = json.loads(files), folder / "segments" / segment
            for kind in ("small", "large"):
                parts = [facts.pop(f"{kind}_{part}") for part in ("groups", "records")]
                table = ListDirectory(*(np.array(arrays.read_array(folder, segment, f)) for f in parts)).unpack()
                for f in parts:
                    (place / f["file"]).unlink()
                for part, array, dtype in zip(
                    ("terms", "runs", "windows", "starts"), table[:4], ("u4", "u4", "u2", "u4"), strict=True
                ):
                    facts[f"{kind}_{part}"] = arrays.write_array(place / f"{kind}_{part}.npy", array.astype(dtype))
            if "number_runs" in facts:
                numbers = from_runs(arrays.read_array(folder, segment, facts["number_runs"]))
                (place / facts.pop("number_runs")["file"]).unlink()
                facts["numbers"] = arrays.write_array(place / "numbers.npy", numbers)
            db.execute("UPDATE segments SET files = ? WHERE id = ?", (json.dumps(facts), segment))
        rows = list(stored_terms(db))
        db.execute("DROP TABLE term_blocks")
        db.execute("DELETE FROM terms")
        db.executemany("INSERT INTO terms VALUES (?, ?, ?)", rows)
        db.execute("DELETE FROM meta WHERE key = 'folded_terms'")
        store_format(db, 4)
    db.close()


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
    make_format_4(folder)
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
    make_format_4(old)
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
    make_format_5(folder)
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
