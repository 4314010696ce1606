"""Collections on disk: what is found, stored, explained, kept and refused."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vizsla
from numbered import build
from vizsla import BM25, Index, Model, VizslaError, parse_model
from vizsla.errors import CollectionError, InputError

Records = list[dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "my.index"


def test_five_lines(folder: Path, documents: Records) -> None:
    with build(folder, documents) as index:
        hits = index.search("barking dogs")
        assert [h.id for h in hits] == ["d1", "d3", "d2"]
        assert hits[0]["title"] == "Dogs"
        assert hits[0].document.get("year") == 1999
        assert len(index) == 4
    with Index.open(folder) as index:
        assert [h.id for h in index.search("barking dogs", k=1)] == ["d1"]
        assert index.get("d4") == vizsla.Document("d4", {"title": "Fish", "text": "Fish."})
        assert index.get("d5") is None


WORDS = st.lists(st.sampled_from(["dog", "dogs", "cat", "the", "bark", "7", "vizsla's", "été"]), max_size=12).map(
    " ".join
)
MODELS = st.sampled_from(
    [
        "bm25",
        "bm25-multifield",
        "bm25(variant=robertson)",
        "bm25(lengths=exact, variant=bm25l)",
        "bm25 + 0.3 * bm25(fields=title, namespace=title)",
    ]
)


@given(texts=st.lists(st.tuples(WORDS, WORDS), max_size=12), query=WORDS, model=MODELS, cut=st.integers(0, 12))
def test_scores_equal_the_models_vectors(
    tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str]], query: str, model: str, cut: int
) -> None:
    """Any collection, added in one commit or two: hits are those of the exhaustive product, explained to the score."""
    records = [{"id": str(i), "title": a, "text": b} for i, (a, b) in enumerate(texts)]
    parsed = parse_model(model)
    statistics = parsed.statistics(records)
    scores = parsed.encode_queries([query], statistics).dot(parsed.encode_documents(records))[0] if records else []
    with Index.create(tmp_path_factory.mktemp("x") / "i", model) as index:
        for part in (records[:cut], records[cut:]):
            index.add(part)
            index.commit()
        found = index.run({"q": query}, k=20)["q"]
        assert {d for d, s in found if abs(s) > 1e-9} == {str(i) for i, s in enumerate(scores) if abs(s) > 1e-9}
        for doc_id, score in found:
            assert score == pytest.approx(scores[int(doc_id)], rel=1e-6, abs=1e-9)
            explanation = index.explain(query, doc_id)
            assert np.float32(explanation.score) == pytest.approx(score, rel=1e-6, abs=1e-9)
            leaves = [leaf for p in explanation.parts for leaf in (p.parts or (p,))]
            assert sum(leaf.score for leaf in leaves) == pytest.approx(explanation.score)
        assert [s for _, s in found] == sorted((s for _, s in found), reverse=True)


def test_many_flushes_make_one_commit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BM25, "batch_size", 3)
    records = [{"id": str(i), "text": f"word{i % 5} common"} for i in range(20)]
    with Index.create(folder, memory=1) as index:  # every batch is flushed, and terms are forgotten
        index.add(records)
        with Index.open(folder) as reader:  # flushed, not committed: nobody sees it
            assert len(reader) == 0
            assert reader.search("common") == []
        index.commit()
        assert index.info()["segments"] == 7
        assert [h.id for h in index.search("common", k=30)] == [str(i) for i in range(20)]
        assert index.explain("word3", "13").score == pytest.approx(index.search("word3", 20)[2].score)
    with Index.create(folder.with_name("whole.index")) as whole:
        whole.add(records)
        whole.commit()
        with Index.open(folder) as index:
            assert whole.run({"q": "word1 common"}) == index.run({"q": "word1 common"})


def test_leftovers_of_a_crash_are_swept(folder: Path, documents: Records) -> None:
    build(folder, documents[:2]).close()
    crashed = Index.open(folder, memory=1)
    crashed.add(documents[2:])  # flushed as a pending generation; then the process dies
    assert crashed._own_writer is not None
    transaction = crashed._own_writer._transaction
    assert transaction is not None
    assert transaction._unfinished is not None
    transaction._unfinished[1].result()  # a thread writes it
    crashed._own_writer._lock.release()
    transaction._db.close()
    assert len(list((folder / "segments").iterdir())) == 2
    with Index.open(folder) as index:
        assert len(index) == 2
        assert index.search("vizsla") == []
        index.add(documents[2:])
        index.commit()
        assert len(list((folder / "segments").iterdir())) == 2
        assert [h.id for h in index.search("vizsla")] == ["d3"]


def test_an_index_carries_its_tokenizer(folder: Path, documents: Records) -> None:
    with build(folder, documents, "bm25-wp") as index:
        (file,) = (folder / "model").iterdir()
        assert [h.id for h in index.search("vizsla")] == ["d3"]
    file.unlink()
    with pytest.raises(VizslaError, match="no such tokenizer file"):
        Index.open(folder)


def test_ids_that_are_there_already(folder: Path, documents: Records) -> None:
    with build(folder, documents) as index:
        assert index.add([{"id": "d1", "text": "a new dog"}]).replaced == 1
        with pytest.raises(InputError, match="'d9' has"):
            index.add([{"id": "d9", "text": "one"}, {"id": "d9", "text": 7}])
        added = index.add([{"id": "d9", "text": "one"}, {"id": "d1", "text": "newer"}, {"id": "d9", "text": "two"}])
        assert (added.documents, added.replaced, added.repeated) == (2, 1, 1)
        index.commit()
        assert (index.get("d1")["text"], index.get("d9")["text"]) == ("newer", "two")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"title": "no id"}, "no id; expected a field '_id' or 'id'"),
        ({"id": "", "text": "x"}, "must be a text or a whole number, not an empty text"),
        ({"id": None, "text": "x"}, "not null"),
        ({"id": 1.5, "text": "x"}, "not the number 1.5"),
        ({"id": "1", "title": "only"}, "has no text; expected a field 'text' or 'contents'"),
        ({"id": "1", "text": 7}, "has a field 'text' that is not a text, but the number 7"),
        ({"id": "1", "text": "x", "more": {1, 2}}, "cannot be stored as JSON"),
        ({"id": "1", "text": "half \ud800"}, "cannot be stored as JSON"),
        ("text", "expected a JSON object"),
    ],
)
def test_documents_that_are_refused(folder: Path, documents: Records, record: Any, message: str) -> None:
    with build(folder, documents) as index:
        with pytest.raises(VizslaError, match=message):
            index.add([{"id": "fine", "text": "fine"}, record])
        index.commit()
        assert len(index) == 4
        assert index.get("fine") is None


def test_empty_documents_are_stored_and_named(folder: Path) -> None:
    with Index.create(folder) as index:
        added = index.add([{"id": "1", "text": ""}, {"id": "2", "text": "the"}, {"id": "3", "text": "dog"}])
        index.commit()
        assert [d.id for d in added.empty] == ["1", "2"]
        assert added.documents == 3
        assert index.get("1") is not None
        assert [h.id for h in index.search("the dog")] == ["3"]


def test_queries_of_many_and_of_unknown_words(folder: Path, documents: Records) -> None:
    with build(folder, documents) as index:
        assert index.search("xyzzy the") == []
        long = " ".join(f"word{i}" for i in range(100_000)) + " purr"
        assert [h.id for h in index.search(long)] == ["d2"]
        assert len(index.search("dog cat fish", k=10**9)) == 4


def test_a_model_named_again_is_not_opened_again(
    folder: Path, documents: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def parsed(text: str) -> Model:
        opened.append(text)
        return parse_model(text)

    monkeypatch.setattr("vizsla.index.searchable.parse_model", parsed)
    with build(folder, documents) as index:
        opened.clear()
        for _ in range(3):
            assert index.search("dog", model="bm25(k1=2)")[0].score != index.search("dog")[0].score
            index.explain("dog", index.search("dog")[0].id, model="bm25(k1=2)")
    assert opened == ["bm25(k1=2)"]


def test_explain_wants_a_document(folder: Path, documents: Records) -> None:
    with build(folder, documents) as index, pytest.raises(VizslaError, match="no document with the id 'd9'"):
        index.explain("dog", "d9")


def test_highlights_show_the_best_passage(folder: Path) -> None:
    text = "Nothing here. " * 40 + "The Vizsla's dogs bark. " + "Nothing there. " * 40
    with build(folder, [{"id": "1", "text": text}]) as index:
        hit = index.search("barking vizslas")[0]
        snippet = index.highlighter("barking vizslas").snippet(hit.document, width=60)
        assert [snippet.text[a:b] for a, b in snippet.matches] == ["Vizsla's", "bark"]
        assert len(snippet.text) < 90
        assert not snippet.at_start
        assert not snippet.at_end


def test_folders_that_are_no_index(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match="this is not a Vizsla index"):
        Index.open(tmp_path)
    (tmp_path / "index.db").write_text("not a database at all, whatever its name says" * 10)
    with pytest.raises(CollectionError, match=r"index\.db is damaged"):
        Index.open(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    sqlite3.connect(other / "index.db").execute("CREATE TABLE x (y)").connection.close()
    with pytest.raises(CollectionError, match="this is not a Vizsla index"):
        Index.open(other)


def test_an_index_prints_what_it_is(folder: Path) -> None:
    with Index.create(folder, "bm25(k1=1.2)") as index:
        assert repr(index) == f"<Index {folder}: {index.model.name}, 0 documents, generation 0>"
        index.add([{"id": str(i), "text": "dogs"} for i in range(1200)])
        index.commit()
        assert repr(index) == f"<Index {folder}: {index.model.name}, 1,200 documents, generation 1>"
    assert repr(index) == f"<Index {folder}: closed>"


def test_create_removes_nothing_it_should_not(tmp_path: Path, documents: Records) -> None:
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "chapter.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(CollectionError, match="holds something that is not an index"):
            Index.create(precious, overwrite=overwrite)
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(CollectionError, match="this is a file"):
        Index.create(file)
    build(tmp_path / "i", documents).close()
    with pytest.raises(CollectionError, match="an index exists here already"):
        Index.create(tmp_path / "i")
    with Index.create(tmp_path / "i", overwrite=True) as index:
        assert len(index) == 0


def test_missing_and_damaged_segments_are_told(folder: Path, documents: Records) -> None:
    build(folder, documents).close()
    (file,) = (folder / "segments").glob("*/small_groups.npy")
    whole = file.read_bytes()
    file.write_bytes(whole[:40])
    with pytest.raises(CollectionError, match="is damaged"):
        Index.open(folder)
    file.unlink()
    with pytest.raises(CollectionError, match=r"small_groups\.npy is missing"):
        Index.open(folder)


def test_reading_works_where_nothing_can_be_written(folder: Path, documents: Records) -> None:
    build(folder, documents).close()
    assert sorted(p.name for p in folder.iterdir()) == ["index.db", "segments", "writer.lock"]
    from vizsla.index.storage import database

    connection = database._connect((folder / "index.db").resolve(), "ro&immutable=1")
    assert connection.execute("SELECT count(*) FROM contents").fetchone() == (4,)
    connection.close()
