"""Searching a collection: without stored texts, many queries at once, beside dead documents, by passages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from scattered import Scattered
from vizsla import BM25, Document, Index, Splitter, VizslaError
from vizsla.backends import export_vectors
from vizsla.engine import in_turns
from vizsla.index import document_vectors, pools, verify
from vizsla.models import Part, Sum, parse_model


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
        assert index.highlighter("common").snippet(hits[0].document).text == ""
        index.compact()
        assert not index.info()["stored"]
    assert verify(folder) == []


@pytest.mark.parametrize(
    "model", ["bm25", "bm25(query_norm=0.5)", "bm25-multifield", "bm25(analyzer=cjk) + 2 * bm25-wp"]
)
def test_many_queries_are_what_each_is_alone(folder: Path, model: str) -> None:
    """Words that no document has, that occur twice or in another script, deleted documents, segments, and a filter."""
    words = [
        "dog",
        "Dogs",
        "barking",
        "caf\u00e9",
        "\u72ac\u5c0f\u5c4b",
        "3.5",
        "isn't",
        "unheard",
        "the",
        "\U0001f415",
        "\ud800",
    ]
    rng = np.random.default_rng(2)
    with Index.create(folder, parse_model(model)) as index:
        for first in (0, 60):
            rows = [" ".join(words[i % 8] for i in rng.integers(0, 99, 6)) for _ in range(60)]
            ids = [f"\u00fc{first + i}" if i % 9 == 0 else f"d{first + i}" for i in range(60)]
            index.add(
                [
                    {"id": own, "title": text[:5], "text": text, "odd": len(text) % 2}
                    for own, text in zip(ids, rows, strict=True)
                ]
            )
            index.commit()
        index.delete(["d7", "d61"])
        index.commit()
        queries = [" ".join(words[i] for i in rng.integers(0, len(words), n)) for n in rng.integers(0, 7, 70)]
        for filter in (None, "odd = 1"):
            for k in (1, 9, 200):
                together = index.search_many(queries, k, filter, threads=3)
                assert together == [index.search(query, k, filter) if query.strip() else [] for query in queries]
                ranked = index.run({str(i): query for i, query in enumerate(queries)}, k, filter)
                assert [list(ranking) for ranking in ranked.values()] == [
                    list(zip(hits.ids, hits.scores, strict=True)) for hits in together
                ]


def test_many_queries_under_a_weight_that_is_a_whole_number(folder: Path) -> None:
    """`2 * BM25()` has a weight of 2.0; a sum that is made of parts may have 2."""
    with Index.create(folder) as index:
        index.add([{"id": str(i), "text": f"dog number {i}"} for i in range(20)])
        index.commit()
        doubled = Sum((Part(2, BM25()),))
        for many in (1, 5, 50):
            found = index.search_many(["dog 7"] * many, 3, model=doubled)
            assert found == [index.search("dog 7", 3, model=2 * BM25())] * many


def test_ids_of_hits_are_lists_of_their_own(folder: Path) -> None:
    with Index.create(folder) as index:
        index.add([{"id": str(i), "text": f"dog number {i}"} for i in range(5)])
        index.commit()
        for query, count in (("dog", 5), ("cat", 0)):
            hits = index.search_many([query])[0]
            hits.ids.append("x")
            hits.scores.append(1.0)
            assert (len(hits), len(hits.ids), len(hits.scores)) == (count, count, count)


def test_turns_of_threads() -> None:
    assert in_turns(str, range(100), 7) == list(map(str, range(100)))
    begun = []

    def call(i: int) -> int:
        begun.append(i)
        if i == 3:
            raise VizslaError("three")
        return len(in_turns(str, range(i), 4))  # turns in turns do not wait for each other for ever

    assert in_turns(call, [1, 2] * 20, 4) == [1, 2] * 20
    with pytest.raises(VizslaError, match="three"):
        in_turns(call, [0, 1, 2, 3, *[4] * 10_000], 4)
    assert len(begun) < 10_000


def test_many_queries_in_threads(folder: Path) -> None:
    with Index.create(folder) as index:
        index.add([{"id": str(i), "text": f"common word{i % 10}"} for i in range(300)])
        index.commit()
        queries = [f"common word{i}" for i in range(200)] + ["nothing-of-that-kind"]
        one = index.search_many(queries, 5, threads=1)
        assert index.search_many(queries, 5, threads=3) == one
        assert one == [index.search(query, 5) for query in queries]
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


def test_exact_lengths_in_phrases_and_filters(folder: Path) -> None:
    """Lengths that take more than a byte, in every way to search."""
    rng = np.random.default_rng(4)
    words = [f"w{i}" for i in range(20)]
    with Index.create(folder, "bm25(lengths=exact)", positions=True) as index:
        texts = [" ".join(rng.choice(words, rng.integers(2, 400))) for _ in range(300)]
        index.add([{"id": str(i), "text": text, "n": i} for i, text in enumerate(texts)])
        index.commit()
        for query, allowed in (("w1 w2", None), ('"w1 w2"', None), ("+w1 +w2", None), ("w3 w4 w5", "n >= 290")):
            hits = index.search(query, 5, allowed, syntax="lucene")
            assert hits
            for hit in hits:
                assert index.explain(query, hit.id, syntax="lucene").score == pytest.approx(hit.score)
            if query[0] == '"':
                assert all("w1 w2" in hit["text"] for hit in hits)


def test_documents_in_passages_are_found_by_their_best(folder: Path) -> None:
    long = " ".join(["filler"] * 30 + ["vizsla", "dog"] + ["filler"] * 30)
    with Index.create(folder, passages=Splitter(10, 2)) as index:
        added = index.add(
            [{"id": "a", "text": long, "year": 1}, {"id": "a#b", "text": "vizsla"}, {"id": "c", "text": "filler"}]
        )
        index.commit()
        assert added.documents == 3
        assert (len(index), index.info()["passages"]) == (3, 10)
        hits = index.search("vizsla dog", k=5)
        assert [h.id for h in hits] == ["a", "a#b"]
        assert "vizsla dog" in hits[0]["text"]
        assert hits[0]["year"] == 1
        assert (hits[0].passage, hits[1].passage) == (3, 0)
        assert index.explain("vizsla dog", "a").score == pytest.approx(hits[0].score)
        assert [h.id for h in index.search("filler", k=2)] == ["a", "c"]  # "a" has passages enough for both places
        assert index.add([{"id": "a", "text": "short"}]).replaced == 1
        index.commit()
        assert [h.id for h in index.search("vizsla filler short", 9)] == ["a#b", "c", "a"]
        assert index.delete(["a", "nope"]) == 1
        index.commit()
        assert len(index) == 2
    assert verify(folder) == []


LONG = " ".join(["filler"] * 30 + ["vizsla", "dog"] + ["filler"] * 30)


def test_passages_do_not_show_in_documents(folder: Path, tmp_path: Path, cli: Cli) -> None:
    documents = [
        {"id": "a", "text": LONG, "passage": "mine", "year": 1},
        {"id": "a#0", "text": "vizsla vizsla\nof  its own"},
        {"id": "a\0#1", "text": "the"},
        {"id": "b", "text": "the " * 10 + "end"},
    ]
    with Index.create(folder, passages=Splitter(10, 2)) as index:
        added = index.add(documents)
        assert [d.id for d in added.empty] == ["a\0#1"]  # "b" has one passage of stop words, and one more
        index.commit()
        whole = {d["id"]: d["text"].split() for d in documents}
        assert {d.id: d["text"].split() for d in index.documents()} == whole
        assert {d: found["text"].split() for d, found in index.get_many(whole).items()} == whole
        assert [d.id for d in index.documents()] == list(whole)
        first = index.get("a")
        assert first is not None
        assert {key: value for key, value in first.content.items() if key != "text"} == {"passage": "mine", "year": 1}
        assert index.get_many(["a#0"])["a#0"].content == {"text": "vizsla vizsla\nof  its own"}
        hits = index.search("vizsla dog")
        assert [(hit.id, hit.passage, hit.get("passage")) for hit in hits] == [("a", 3, "mine"), ("a#0", 0, None)]
        assert set(index.run({"q": "vizsla filler"})["q"].documents) == {"a", "a#0"}
        assert {doc_id for doc_id, _ in document_vectors(index)} == set(whole)
        assert [hit.id for hit in index.search("vizsla", filter='passage = "mine"')] == ["a"]
        index.delete(["a#0"])
        index.commit()
        assert (len(index), index.info()["documents"], index.info()["passages"]) == (3, 3, 11)
        assert "in 1 passage)" in str(index.explain("vizsla", "a"))
        export_vectors(index, "jsonl", tmp_path / "v.jsonl")
    assert {json.loads(line)["id"] for line in (tmp_path / "v.jsonl").read_text().splitlines()} == {"a", "a\0#1", "b"}
    assert "3 documents in 11 passages" in cli("verify", folder)[2]
    assert "3 in 11 passages (1 passage deleted or replaced" in cli("info", folder)[1]
    (hit,) = json.loads(cli("search", folder, "vizsla", "--json")[1])["results"]
    assert (hit["id"], hit["passage"], hit["document"]["passage"]) == ("a", 3, "mine")


@given(st.lists(st.text("ab \n\u3000", max_size=4), max_size=12).map(" ".join), st.integers(1, 4), st.data())
def test_passages_make_the_document_they_were_cut_from(text: str, words: int, data: st.DataObject) -> None:
    splitter = Splitter(words, data.draw(st.integers(0, words - 1)))
    document = Document("a#1", {"text": text, "passage": 7})
    whole = splitter.whole(list(splitter.passages(document)))
    assert (whole.id, whole["text"].split(), whole["passage"]) == (document.id, text.split(), 7)


def test_a_passage_that_cannot_be_stored_is_told_by_its_document(folder: Path) -> None:
    with Index.create(folder, passages=Splitter(5)) as index, pytest.raises(VizslaError, match="document 'a' cannot"):
        index.add([{"id": "a", "text": "dog", "odd": "\ud800"}])


def test_an_empty_query_finds_nothing_among_others(folder: Path) -> None:
    for model in (BM25(), Scattered()):
        with Index.create(folder, model, overwrite=True) as index:
            index.add([{"id": "1", "text": "dogs bark"}])
            index.commit()
            queries = ["dogs", "", " \n", "dogs"]
            assert [[hit.id for hit in hits] for hits in index.search_many(queries)] == [["1"], [], [], ["1"]]
            run = index.run(dict(enumerate(queries)))  # type: ignore[arg-type]
            assert [list(ranking.documents) for ranking in run.values()] == [["1"], [], [], ["1"]]
            with pytest.raises(VizslaError, match="the query is empty"):
                index.search(" ")


def test_what_is_no_query_no_number_and_no_filter_is_told(folder: Path) -> None:
    wrong: Any
    with Index.create(folder) as index:
        index.add([{"id": "1", "text": "dogs bark", "year": 1999}])
        index.commit()
        for wrong in (None, b"dogs", 3, ["dogs"], {"q": "dogs"}):
            with pytest.raises(VizslaError, match="a query is a text, not "):
                index.search(wrong)
            with pytest.raises(VizslaError, match="a query is a text, not "):
                index.search_many(["dogs", wrong])
            with pytest.raises(VizslaError, match="a query is a text, not "):
                index.explain(wrong, "1")
            with pytest.raises(VizslaError, match="a query is a text, not "):
                index.highlighter(wrong)
            with pytest.raises(VizslaError, match="need a text"):
                index.term_statistics(wrong)
        for wrong in (None, b"dogs", 3, "dogs", {"q": "dogs"}):
            with pytest.raises(VizslaError, match="queries are a list of texts"):
                index.search_many(wrong)
            with pytest.raises(VizslaError, match="queries are a list of texts"):
                pools(index, wrong)
        with pytest.raises(VizslaError, match="takes a mapping of query ids"):
            index.run(["dogs"])  # type: ignore[arg-type]
        for wrong, message in {
            0: "must be 1 or more, not 0", -1: "must be 1 or more, not -1", 2.5: "a whole number, not 2.5",
            "3": "a whole number, not '3'", True: "a whole number, not true or false", None: "not null",
        }.items():  # fmt: skip
            with pytest.raises(VizslaError, match=message):
                index.search("dogs", wrong)
            if wrong is not None:
                with pytest.raises(VizslaError, match=message):
                    index.search_many(["dogs"], threads=wrong)
        with pytest.raises(VizslaError, match="a model is a Model or its name"):
            index.search("dogs", model=3)  # type: ignore[arg-type]
        for wrong in ("much", 2, float("nan")):
            with pytest.raises(VizslaError, match="from 0 to 1"):
                index.search("dogs", approximate=wrong)
        for k in (np.int64(3), np.uint8(1), 10**30):
            assert [hit.id for hit in index.search("dogs", k)] == ["1"]
        assert [hit.id for hit in next(iter(index.search_many(iter(["dogs"]))))] == ["1"]  # type: ignore[arg-type]


def test_ways_that_cannot_be_are_told_at_once(folder: Path) -> None:
    wrong: Any
    with Index.create(folder, BM25() + 2 * Scattered()) as index:
        index.add([{"id": "1", "text": "dogs bark"}])
        index.commit()
        for wrong, message in [
            ({"combine": "rff"}, "unknown way to combine 'rff'"),
            ({"combine": 3}, "combine is a text, as in 'rrf', not the number 3"),
            ({"search_params": "hsnw"}, "unknown vector index 'hsnw'"),
            ({"search_params": 3}, "search_params is a text, as in 'ef_search=200', not the number 3"),
        ]:
            with pytest.raises(VizslaError, match=message):
                index.with_model(None, **wrong)
        assert [hit.id for hit in index.search("dogs")] == ["1"]
        with pytest.raises(VizslaError, match="the model reads no dense vectors"):
            index.search("dogs", model="bm25", search_params="ef_search=200")
    with Index.create(folder, overwrite=True) as index:
        index.add([{"id": "1", "text": "dogs bark"}])
        index.commit()
        with pytest.raises(VizslaError, match="the index has no dense vectors"):
            index.search("dogs", search_params="ef_search=200")
        with pytest.raises(VizslaError, match="combines the parts of a sum"):
            index.with_model(None, combine="rrf")
        assert [hit.id for hit in index.search("dogs", search_params="exact")] == ["1"]


def test_a_hit_is_read_like_its_document(folder: Path) -> None:
    with Index.create(folder) as index:
        index.add([{"_id": "1", "text": "dogs bark", "id": "own"}, {"_id": "2", "text": "dogs bark"}])
        index.commit()
        own, other = index.search("dogs")
        assert (own["id"], other["id"], other.get("id"), other.get("nope"), other.get("nope", 3)) == (
            "own", "2", "2", None, 3,
        )  # fmt: skip
        assert ("id" in other, "text" in other, "nope" in other) == (True, True, False)
        with pytest.raises(KeyError):
            other["nope"]


def test_an_explanation_is_printed_as_a_tree(folder: Path) -> None:
    with Index.create(folder, "bm25 + 2 * vectors") as index:
        index.add([{"id": str(i), "text": "dogs bark", "vector": {"dogs": 0.25, "bark": 3}} for i in range(2)])
        index.commit()
        explained = index.explain("dogs zebra", "1")
    words, vectors = explained.parts
    (weight,) = [part.facts["in_document"] for part in vectors.parts if part.name == "dogs"]
    assert weight == 0.25
    assert str(explained).splitlines()[0] == f"{explained.score:.4f}  {explained.name}"
    assert "\n    0.5000  vectors (weight 2)\n" in str(explained)
    assert "\n        0.5000  dogs  = 2.0000 (in 2 documents) x 0.2500\n" in str(explained)
    assert "2 documents" in words.note
    assert f"\n    {words.score:.4f}  bm25\n        length norm " in str(explained)
    assert "        0.0000  zebra  in no document" in str(explained)
