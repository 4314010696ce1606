"""Hits: a sequence over columns, whose hits are made, and whose documents are read, when somebody looks at them."""

from __future__ import annotations

import copy
import pickle
import random
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla import Document, FusedRetriever, Hit, Index
from vizsla.runs import Hits, KnownDocuments
from vizsla.runs.retriever import ranking_of


class Numbers:
    """Documents that are their numbers; it knows which were read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def document(self, number: int, doc_id: str) -> Document:
        assert type(number) is int
        self.read.append(number)
        return Document(doc_id, {"number": number})


def numbered(count: int, source: Numbers | None = None) -> Hits:
    """Hits with the ranks from 3, the ids x0, x1 and so on, and the numbers from 7."""
    ids, scores = [f"x{i}" for i in range(count)], [i / 2 for i in range(count)]
    return Hits.from_columns(ids, scores, np.arange(count) + 7, source or Numbers(), first=3)


def expected(count: int) -> list[Hit]:
    return [Hit(i + 3, i / 2, Document(f"x{i}", {"number": i + 7})) for i in range(count)]


@pytest.mark.parametrize("count", [0, 1, 5, 1500])
def test_hits_equal_a_list_of_hits(count: int) -> None:
    hits, listed = numbered(count), expected(count)
    assert len(hits) == count
    assert bool(hits) == (count > 0)
    assert hits == listed
    assert listed == hits
    assert hits == numbered(count) == Hits(listed) == Hits(iter(listed)) == Hits(hits)
    assert list(reversed(hits)) == listed[::-1]
    assert repr(hits) == f"Hits({listed!r})"
    assert (hits.ids, hits.scores) == ([hit.id for hit in listed], [hit.score for hit in listed])
    assert hits != [*listed, Hit(1, 1.0, Document("y", {}))]
    assert hits != tuple(listed)


def test_hits_that_differ_in_anything_are_not_equal() -> None:
    hit, content = Hit(1, 2.5, Document("7", {"a": 1}), 3), {"a": 1}
    others = [
        Hit(2, 2.5, Document("7", content), 3), Hit(1, 2.0, Document("7", content), 3),
        Hit(1, 2.5, Document("8", content), 3), Hit(1, 2.5, Document("7", {"a": 2}), 3),
        Hit(1, 2.5, Document("7", content)),
    ]  # fmt: skip
    assert [other for other in others if other == hit or Hits([other]) == Hits([hit])] == []
    assert hit == Hit(1, 2.5, Document("7", content), 3)
    assert hit != (1, 2.5, Document("7", content), 3)
    assert hit in Hits([*others, hit])
    assert hit not in Hits(others)
    assert Hits([*others, hit]).index(hit) == len(others)


@given(st.integers(0, 6), st.data())
def test_slices_are_those_of_a_list(count: int, data: st.DataObject) -> None:
    hits, listed = numbered(count), expected(count)
    places = st.none() | st.integers(-8, 8)
    for _ in range(3):
        part = slice(data.draw(places), data.draw(places), data.draw(places.filter(lambda step: step != 0)))
        hits, listed = hits[part], listed[part]
        assert isinstance(hits, Hits)
        assert hits.ids == [hit.id for hit in listed]
        assert hits.scores == [hit.score for hit in listed]
        assert hits.columns()["rank"] == [hit.rank for hit in listed]
        assert hits == listed
    for at in range(-8, 8):
        if -len(listed) <= at < len(listed):
            assert hits[at] == listed[at]
        else:
            with pytest.raises(IndexError, match=f"^there is no hit at {at}; the number of hits is {len(listed)}$"):
                hits[at]


@pytest.mark.parametrize(
    ("at", "named"), [("1", "the text '1'"), (1.0, "the number 1.0"), (None, "null"), (slice("a"), "slice")]
)
def test_places_that_are_no_places(at: Any, named: str) -> None:
    with pytest.raises(TypeError, match=f"^hits are looked up by a whole number or a slice, not by {named}$"):
        numbered(3)[at]
    assert numbered(3)[np.int64(1)].id == "x1"  # type: ignore[call-overload]


def test_hits_cannot_be_changed() -> None:
    hits: Any = numbered(3)
    hit: Any = hits[0]
    for name in ("rank", "score", "id", "passage", "document", "other"):
        with pytest.raises(AttributeError):
            setattr(hit, name, 99)
        with pytest.raises(AttributeError):
            delattr(hit, name)
    with pytest.raises(AttributeError, match="'Hit' object has no attribute 'text'"):
        hit.text  # noqa: B018
    with pytest.raises(TypeError):
        hits[0] = hit
    hits.ids.append("y")
    hits.scores.clear()
    hits.columns()["rank"].clear()
    assert hits == expected(3)


def test_a_hit_is_a_hit() -> None:
    lazy, plain = numbered(2)[1], expected(2)[1]
    assert type(lazy) is type(plain) is Hit
    assert (lazy.rank, lazy.score, lazy.id, lazy.passage) == (4, 0.5, "x1", None)
    assert hash(lazy) == hash(plain)
    assert {lazy, plain} == {plain}
    assert repr(lazy) == "Hit(rank=4, score=0.5, document=Document(id='x1', content={'number': 8}), passage=None)"
    assert (lazy["id"], lazy["number"], lazy.get("none"), lazy.get("none", 1)) == ("x1", 8, None, 1)
    assert "number" in lazy
    assert "none" not in lazy
    with pytest.raises(KeyError):
        lazy["none"]


# What is read, and when


def test_ids_scores_slices_and_ranks_read_nothing() -> None:
    source = Numbers()
    hits = numbered(5, source)
    assert [hit.rank for hit in hits[1:3]] == [4, 5]
    assert len({hits[0], hits[0].at_rank(1), *hits[1:3]}) == 4
    assert hits != numbered(4)
    assert hits[0] != hits[1]
    assert ranking_of(hits).documents == hits.ids[::-1]
    assert source.read == []


def test_a_document_is_read_once() -> None:
    source = Numbers()
    hits = numbered(5, source)
    assert hits[1]["number"] == 8
    assert source.read == [8]
    assert [hit["number"] for hit in hits] == [hit["number"] for hit in hits[::-1]][::-1] == [7, 8, 9, 10, 11]
    assert hits.columns()["number"] == [7, 8, 9, 10, 11]
    assert source.read == [8, 7, 9, 10, 11]
    looks = [hits[2], list(hits)[2], hits[1:][1], Hits(hits)[-3], Hits(list(hits))[2], hits[2].at_rank(1)]
    assert len({id(hit.document) for hit in looks}) == 1
    assert len(source.read) == 5


def test_copies_have_their_documents() -> None:
    for copied in (copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        source = Numbers()
        hits = numbered(40, source)
        other = copied(hits[2:])
        assert isinstance(other, Hits)
        assert other == expected(40)[2:]
        assert sorted(source.read) == list(range(9, 47))
        one = copied(numbered(3)[1])
        assert type(one) is Hit
        assert one == expected(3)[1]
    with pytest.raises(TypeError):  # what cannot be pickled is not tried
        pickle.dumps(weakref.ref(source))
    unpicklable: Any = Numbers()
    unpicklable.source = weakref.ref(source)
    assert pickle.loads(pickle.dumps(numbered(3, unpicklable))) == expected(3)


def test_hits_that_are_dropped_leave_nothing() -> None:
    source, ids, scores = Numbers(), [f"x{i}" for i in range(500)], [i + 0.5 for i in range(500)]
    before = sys.getrefcount(source), sys.getrefcount(ids[7]), sys.getrefcount(scores[7])
    for _ in range(5):
        hits = Hits.from_columns(ids, scores, range(500), source)
        assert [hit["number"] for hit in hits][7] == 7
        assert sys.getrefcount(ids[7]) > before[1]
        del hits
    assert (sys.getrefcount(source), sys.getrefcount(ids[7]), sys.getrefcount(scores[7])) == before


def test_a_document_that_cannot_be_read_is_told_at_each_look() -> None:
    hits = Hits.from_columns(["a", "b"], [2.0, 1.0], source=KnownDocuments([{"n": 1}]))
    assert hits[0]["n"] == 1
    for _ in range(2):
        with pytest.raises(IndexError):
            hits[1].document  # noqa: B018
    assert hits.ids == ["a", "b"]


@pytest.mark.parametrize("read", [False, True])
def test_hits_with_another_rank(read: bool) -> None:
    source = Numbers()
    hit = Hits.from_columns(["x#2"], [0.5], [7], source)[0]
    document = Document("x#2", {"number": 7})
    assert not read or hit.document == document
    moved, scored = hit.at_rank(4), hit.at_rank(4, 2.0)
    assert source.read == [7] * read
    assert moved == Hit(4, 0.5, document)
    assert scored == Hit(4, 2.0, document)
    assert Hit(1, 0.5, document, 2).at_rank(3) == Hit(3, 0.5, document, 2)
    assert (hit.rank, hit.id) == (1, "x#2")


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="a score for every id"):
        Hits.from_columns(["a", "b"], [1.0])


def test_passages_are_a_column() -> None:
    hits = Hits.from_columns(["a", "b"], [2.0, 1.0], passages=[4, 0])
    assert [hit.passage for hit in hits] == hits.columns()["passage"] == [4, 0]
    assert hits[1:] == [Hit(2, 1.0, Document("b", {}), 0)]
    assert Hits(hits[1:]).columns() == {"rank": [2], "id": ["b"], "score": [1.0], "passage": [0]}
    assert "passage" not in Hits([Hit(1, 1.0, Document("a", {}))]).columns()


# From an index


@pytest.mark.parametrize("passages", [None, 4])
def test_an_index_gives_hits(tmp_path: Path, passages: int | None) -> None:
    rng = random.Random(7)
    texts = [" ".join(rng.choices(("dogs", "cats", "birds", "fish"), k=9)) for _ in range(60)]
    documents = [{"id": str(i), "text": text} for i, text in enumerate(texts)]
    with Index.create(tmp_path / "i", "bm25 + bm25(k1=2, namespace=other)", passages=passages) as index:
        index.add(documents)
        index.commit()
        fused = FusedRetriever([index, index.with_model("bm25")])
        found = [
            index.search("dogs", 50), *index.search_many(["dogs", "cats fish"], 50),
            index.search("dogs", 20, offset=5), index.search("dogs", 20, combine="rrf"),
            index.search_many(["dogs"], 20, combine="rrf", documents=False)[0],
            index.with_model("bm25").search("dogs", 20), fused.search("dogs", 20), *index.search_many(["", "dogs"], 20),
        ]  # fmt: skip
        for hits in found:
            assert isinstance(hits, Hits)
            assert all(type(hit) is Hit for hit in hits)
            assert hits.ids == [hit.id for hit in hits]
            assert hits.scores == [hit.score for hit in hits] == sorted(hits.scores, reverse=True)
            assert len(set(hits.ids)) == len(hits)
            first = hits[0].rank if hits else 1
            assert [hit.rank for hit in hits] == list(range(first, first + len(hits)))
            assert all((hit.passage is not None) == (passages is not None) for hit in hits)
            assert all(hit.document.id == hit.id for hit in hits)
        assert [hits[0].rank for hits in found if hits] == [1, 1, 1, 6, 1, 1, 1, 1, 1]
        assert found[3].ids == index.search("dogs", 25).ids[5:]
        whole = all(hit["text"] == texts[int(hit.id)] for hits in found for hit in hits if hit.document.content)
        assert whole or passages is not None
