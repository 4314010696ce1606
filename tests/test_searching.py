"""Searching a collection: without stored texts, many queries at once, beside dead documents, by passages."""

from __future__ import annotations

from pathlib import Path

import pytest

from vizsla.datasets import Splitter
from vizsla.errors import VizslaError
from vizsla.index import Index, verify


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "my.index"


def test_a_collection_without_texts(folder: Path) -> None:
    with Index.create(folder, store=False) as index:
        index.add([{"id": str(i), "text": f"common word{i}", "year": 1990 + i} for i in range(20)])
        index.commit()
        index.add([{"id": "3", "text": "quite another", "year": 2030}])
        index.delete(["4"])
        index.commit()
        hits = index.search("common", 30, filter="year >= 1992")
        assert [h.id for h in hits] == [str(i) for i in range(2, 20) if i not in (3, 4)]
        assert hits[0].document.content == {"year": 1992}
        found = index.get("3")
        assert found is not None
        assert found.content == {"year": 2030}
        with pytest.raises(VizslaError, match="no document has a field 'text'"):
            index.search("common", filter='text = "x"')
        assert index.highlight("common", hits[0].document).text == ""
        index.compact()
        assert not index.info()["stored"]
    assert verify(folder) == []


def test_many_queries_in_threads(folder: Path) -> None:
    with Index.create(folder) as index:
        index.add([{"id": str(i), "text": f"common word{i % 10}"} for i in range(300)])
        index.commit()
        queries = [f"common word{i}" for i in range(200)] + ["nothing-of-that-kind"]
        one = index.search_many(queries, 5, threads=1)
        assert index.search_many(queries, 5, threads=3) == one
        assert one[7] == index.search(queries[7], 5)
        assert one[-1] == []
        bare = index.search_many(queries, 5, documents=False)
        assert [[(h.id, h.score) for h in hits] for hits in bare] == [[(h.id, h.score) for h in hits] for hits in one]
        assert bare[0][0].document.content == {}
        assert index.search_many(queries, 5, approximate=1.0) == one
        with pytest.raises(VizslaError, match="list of texts"):
            index.search_many("common", 5)
        with pytest.raises(VizslaError, match="threads must be 1 or more, not 0"):
            index.search_many(queries, threads=0)
        with pytest.raises(VizslaError, match="from 0 to 1"):
            index.search("common", approximate=2.0)


def test_a_longer_dead_document_is_no_damage(folder: Path) -> None:
    """With exact lengths the table of lengths ends with the longest living document."""
    with Index.create(folder, "bm25(variant=robertson, lengths=exact)") as index:
        index.add([{"id": str(i), "text": "dog " * (500 if i == 9 else 1) + f"word{i}"} for i in range(10)])
        index.commit()
        index.delete(["9"])
        index.commit()
        assert len(index.search("dog", 20)) == 9


def test_documents_in_passages_are_found_by_their_best(folder: Path) -> None:
    long = " ".join(["filler"] * 30 + ["vizsla", "dog"] + ["filler"] * 30)
    with Index.create(folder, passages=Splitter(10, 2)) as index:
        added = index.add(
            [{"id": "a", "text": long, "year": 1}, {"id": "a#b", "text": "vizsla"}, {"id": "c", "text": "filler"}]
        )
        index.commit()
        assert added.documents == 3
        assert len(index) == 10
        hits = index.search("vizsla dog", k=5)
        assert [h.id for h in hits] == ["a", "a#b"]
        assert "vizsla dog" in hits[0]["text"]
        assert hits[0]["year"] == 1
        assert index.explain("vizsla dog", "a").score == pytest.approx(hits[0].score)
        assert [h.id for h in index.search("filler", k=2)] == ["a", "c"]  # "a" has passages enough for both places
        assert index.add([{"id": "a", "text": "short"}]).replaced == 1
        index.commit()
        assert [h.id for h in index.search("vizsla filler short", 9)] == ["a#b", "c", "a"]
        assert index.delete(["a", "nope"]) == 1
        index.commit()
        assert len(index) == 2
    assert verify(folder) == []
