"""What a search gives: ids from the segments, and documents that are read when somebody looks at them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numbered import records
from test_forking import fork
from vizsla import Document, Index
from vizsla.errors import CollectionError
from vizsla.index import verify
from vizsla.index.reading.documents import DocumentStore
from vizsla.index.storage.stored_ids import DamagedTextsError, StoredIds, StoredTexts

IDS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["", "\n", "a\nb", "\0", "é" * 300])


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The numbers of the documents that are read from the database, call by call."""
    calls: list[list[int]] = []
    read = DocumentStore.by_number

    def by_number(self: DocumentStore, numbers: Any) -> dict[int, Document]:
        calls.append(sorted(numbers))
        return read(self, numbers)

    monkeypatch.setattr(DocumentStore, "by_number", by_number)
    return calls


# Stored texts


@given(st.lists(IDS, max_size=200), st.data())
def test_stored_texts_give_back_what_was_stored(texts: list[str], data: st.DataObject) -> None:
    stored = StoredTexts.of(texts)
    assert stored.fit()
    assert len(stored) == len(texts)
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=20)) if texts else []
    assert StoredIds(stored).at(np.array(rows, np.int64)) == [texts[row] for row in rows]


@pytest.mark.parametrize("row", [-1, 3, 1 << 40])
def test_a_row_that_is_not_there(row: int) -> None:
    with pytest.raises(DamagedTextsError):
        StoredIds(StoredTexts.of(["a", "b", "c"])).at(np.array([0, row]))


@given(st.data())
def test_damaged_texts_are_noticed_or_read_without_a_crash(data: st.DataObject) -> None:
    whole = StoredTexts.of([str(i) * (i % 5) for i in range(100)])
    arrays = {name: np.array(getattr(whole, name)) for name in ("data", "sizes", "starts")}
    array = arrays[data.draw(st.sampled_from(sorted(arrays)))]
    array[data.draw(st.integers(0, len(array) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DamagedTextsError):
        assert len(StoredIds(StoredTexts(**arrays)).at(np.arange(100))) == 100


# When documents are read


def test_ids_and_scores_need_no_document(folder: Path, reads: list[list[int]]) -> None:
    with Index.open(folder) as index:
        hits = index.search("common", 3)
        assert [(hit.rank, hit.id) for hit in hits] == [(1, "0"), (2, "1"), (3, "2")]
        assert all(hit.score > 0 for hit in hits)
        assert reads == []
        assert [hit["text"] for hit in hits] == ["common word0", "common word1", "common word2"]
        assert reads == [[0, 1, 2]]


def test_documents_of_several_queries_are_read_together(folder: Path, reads: list[list[int]]) -> None:
    with Index.open(folder) as index:
        found = index.search_many(["word1", "word2", "word3"], 5)
        assert [hits[0]["text"] for hits in found] == [f"common word{i}" for i in (1, 2, 3)]
        assert reads == [[1, 2, 3]]
        assert index.search_many(["word1"], documents=False)[0][0].document == Document("1", {})
        assert len(reads) == 1


CHANGES: dict[str, Callable[[Index], object]] = {
    "refresh": Index.refresh,
    "close": Index.close,
    "commit": lambda index: (index.add(records(range(3), "other")), index.delete(["4"]), index.commit()),
    "compact": lambda index: (index.delete(["0", "1"]), index.compact()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_hits_outlive_what_they_were_found_in(folder: Path, change: str) -> None:
    with Index.open(folder) as index:
        hits, looked_at = index.search("common", 5), index.search("common", 5)
        before = [hit.document for hit in looked_at]
        CHANGES[change](index)
        assert [hit.document for hit in hits] == before
        assert [hit["text"] for hit in hits] == [f"common word{i}" for i in range(5)]


def test_hits_that_nobody_holds_are_not_read(folder: Path, reads: list[list[int]]) -> None:
    with Index.open(folder) as index:
        index.search("common", 5)
        index.refresh()
        assert reads == []


def test_threads_that_look_while_the_index_is_refreshed(folder: Path) -> None:
    wrong: list[object] = []

    def look(index: Index) -> None:
        for _ in range(50):
            texts = [hit["text"] for hit in index.search("common", 5)]
            if texts != [f"common word{i}" for i in range(5)]:
                wrong.append(texts)

    with Index.open(folder) as index:
        threads = [threading.Thread(target=look, args=(index,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(30):
            index.refresh()
        for thread in threads:
            thread.join()
    assert wrong == []


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_reads_what_its_parent_has_found(folder: Path) -> None:
    with Index.open(folder) as index:
        hits = index.search("common", 2)
        assert fork(lambda: hits[1]["text"]) == "common word1"
        assert hits[0]["text"] == "common word0"


def test_damage_is_told_when_a_document_is_looked_at(folder: Path) -> None:
    with sqlite3.connect(folder / "index.db") as db:
        db.execute("UPDATE contents SET fields = '[1]' WHERE number = 1")
    db.close()
    with Index.open(folder) as index:
        hits, others = index.search("common", 5), index.search("common", 5)
        with pytest.raises(CollectionError, match="what is stored of a document is not a JSON object"):
            hits[0]["text"]
    with pytest.raises(CollectionError, match="what is stored of a document is not a JSON object"):
        others[0]["text"]


# Ids in segments


def test_ids_after_replacing_deleting_and_merging(folder: Path) -> None:
    with Index.open(folder) as index:
        for turn in range(12):  # more segments than are kept apart
            index.add(records(range(turn, turn + 3)))
            index.delete([str(turn)])
            index.commit()
            hits = index.search("common", 100)
            assert all(index.get(hit.id) == hit.document for hit in hits)
            assert sorted(hit.id for hit in hits) == sorted(d.id for d in index.documents())
    assert verify(folder) == []
