"""Passages scored with their headings and their documents: against all scores computed in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from served import served
from vizsla import Document, Index, RemoteIndex, Splitter, VizslaError, parse_model
from vizsla.backends.qdrant import QdrantIndex
from vizsla.errors import UnsupportedError
from vizsla.index import encode_shard
from vizsla.index.exporting import document_vectors
from vizsla.models import BM25, Model, parse_expander, with_expansion
from vizsla.server.requested_models import RequestedModels

SUM = "bm25 + 0.5 * bm25-document"
WORDS = ["dog", "cat", "fish", "bird"]
VIZSLA = {
    "id": "vizsla",
    "title": "Vizsla",
    "text": "A dog that points.\n\nCare\n\nIt needs to run. Every day for hours.\n\nFood\n\nIt eats meat twice.",
    "outline": {"headings": [[20, 2, "Care"], [64, 2, "Food"]]},
}
CATS = {"id": "cats", "title": "Cats", "text": "Cats purr. They need care and food.\n\nTheir food is meat."}


def _in_memory(texts: dict[str, dict[str, Any]], splitter: Splitter, query: str, weight: float) -> dict[Any, float]:
    """The score of each passage that has a word of the query: its own and, times a weight, that of its document."""
    owners, passages, wholes = [], [], []
    for doc_id, content in texts.items():
        document = Document(doc_id, content)
        for number, passage in enumerate(splitter.read(document, list(splitter.passages(document)))):
            owners.append((doc_id, number))
            passages.append({name: passage.get(name) for name in ("title", "text")})
        wholes.append({"document_text": [content.get("title", ""), content["text"]]})
    if not passages:
        return {}
    own, whole = _scores(BM25(), passages, query), _scores(BM25(fields=("document_text",)), wholes, query)
    places = {doc_id: place for place, doc_id in enumerate(texts)}
    pairs = zip(owners, own, strict=True)
    return {owner: score + weight * whole[places[owner[0]]] for owner, score in pairs if score > 0}


def _scores(model: Model, documents: list[dict[str, Any]], query: str) -> list[float]:
    statistics = model.statistics(documents)
    scores: list[float] = model.encode_queries([query], statistics).dot(model.encode_documents(documents))[0].tolist()
    return scores


@pytest.mark.parametrize("headings", [True, False])
@given(data=st.data())
def test_a_sum_with_document_scores_is_exact(
    headings: bool, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """While documents are added, replaced and deleted, and the index is compacted."""
    some = st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join)
    splitter = Splitter(3, data.draw(st.integers(0, 2)), headings=headings)
    weight = data.draw(st.sampled_from([0.0, 0.1, 0.5, 3.0]))
    with Index.create(tmp_path_factory.mktemp("i") / "i", SUM, passages=splitter) as index:
        texts: dict[str, dict[str, Any]] = {}
        for _ in range(data.draw(st.integers(1, 4))):
            batch = data.draw(st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(some, some), max_size=6))
            gone = data.draw(st.sets(st.sampled_from("abcdefgh"), max_size=2)) - batch.keys()
            new = {
                key: {"title": title, "text": text, "outline": {"headings": [[0, 1, "fish"], [5, 2, "cat bird"]]}}
                for key, (title, text) in batch.items()
            }
            index.add([{"id": key, **content} for key, content in new.items()])
            index.delete(list(gone))
            index.commit()
            if data.draw(st.booleans()):
                index.compact()
            texts = {key: content for key, content in (texts | new).items() if key not in gone}
        query = " ".join(data.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5)))
        model = f"bm25 + {weight} * bm25-document"
        wanted = _in_memory(texts, splitter, query, weight)
        every = index.search(query, 1000, passages=1000, model=model)
        assert {(hit.id, hit.passage): hit.score for hit in every} == pytest.approx(wanted, abs=1e-5)
        assert every.scores == sorted(every.scores, reverse=True)
        for k in (1, 2, 5):
            best = index.search(query, k, passages=1000, model=model)
            assert [(h.id, h.passage, h.score) for h in best] == [(h.id, h.passage, h.score) for h in every[:k]]
            documents = list(dict.fromkeys(hit.id for hit in every))
            assert [hit.id for hit in index.search(query, k, model=model)] == documents[:k]
        for hit in every[:5]:
            highest = max(other.score for other in every if other.id == hit.id)
            assert index.explain(query, hit.id, model=model).score == pytest.approx(highest, abs=1e-5)
        counted = index.search(query, 1, model=model, total=True).total
        assert counted == len({owner for owner, _ in wanted})


def test_a_search_goes_deeper_until_no_passage_can_be_better(tmp_path: Path) -> None:
    """The best passage by the sum is behind hundreds of others by its own score."""
    others = [{"id": f"d{i}", "text": "dog dog dog. " + "bird " * 30} for i in range(500)]
    best = {"id": "best", "text": "dog " + "bird " * 50 + "\n\n" + "fish " * 50}
    with Index.create(tmp_path / "i", "bm25 + 5 * bm25-document", passages=Splitter(60)) as index:
        index.add([*others, best])
        index.commit()
        alone = index.search("dog fish", 1000, model="bm25", passages=2)
        assert [hit.passage for hit in alone if hit.id == "best"] == [1, 0]
        assert alone[-1].id == "best"
        found = index.search("dog fish", 2, passages=2)
        assert [(hit.id, hit.passage) for hit in found] == [("best", 1), ("best", 0)]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with Index.create(tmp_path_factory.mktemp("scores") / "i", SUM, passages=Splitter(8), positions=True) as opened:
        opened.add([VIZSLA, CATS])
        opened.commit()
        yield opened


def test_models_read_the_headings_above_a_passage(index: Index, tmp_path: Path) -> None:
    fed = index.search("vizsla food", 1)[0]
    assert (fed.id, fed["text"], fed["title"]) == ("vizsla", "Food\n\nIt eats meat twice.", "Vizsla")
    daily = index.search("care hours", 1, model="bm25")[0]
    assert daily["text"] == "Every day for hours."
    assert daily.place.breadcrumb == ("Vizsla", "Care")
    leaves = {leaf.facts["term"]: leaf.score for leaf in index.explain("care hours", "vizsla", model="bm25").parts}
    assert min(leaves.values()) > 0
    with Index.create(tmp_path / "i", passages=Splitter(8, headings=False)) as plain:
        plain.add([VIZSLA, CATS])
        plain.commit()
        leaves = {leaf.facts["term"]: leaf.score for leaf in plain.explain("care hours", "vizsla").parts}
        assert leaves["care"] == 0 < leaves["hour"]
        assert dict(plain.get("vizsla").content) == dict(index.get("vizsla").content)


@pytest.mark.parametrize("positions", [True, False])
def test_words_of_headings_are_found_in_the_query_language(positions: bool, tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", SUM, passages=Splitter(8), positions=positions) as opened:
        opened.add([VIZSLA, CATS])
        opened.commit()
        found = opened.search("title:care", syntax="lucene", passages=9)
        assert [hit["text"] for hit in found] == ["Every day for hours."]
        (only,) = opened.search('"every day" AND vizsla', syntax="lucene", passages=9)
        plain = opened.search("every day vizsla", passages=9)
        assert only.score == pytest.approx(next(h.score for h in plain if h.passage == only.passage))
        assert not opened.search("hours AND purr", syntax="lucene")


def test_explanations_show_the_score_of_the_document(index: Index) -> None:
    hit = index.search("points meat", 1)[0]
    explanation = index.explain("points meat", hit.id)
    assert explanation.score == pytest.approx(hit.score)
    own, whole = explanation.parts
    assert (own.name, whole.name) == ("bm25", "bm25-document")
    assert (own.facts["unit"], whole.facts["documents"], "unit" in whole.facts) == ("passage", 2, False)
    assert {leaf.name for leaf in whole.parts if leaf.score} == {"point", "meat"}


def test_document_scores_on_the_command_line_and_in_the_api(cli: Cli, tmp_path: Path, index: Index) -> None:
    source = tmp_path / "vizsla.md"
    source.write_text("# Vizsla\n\nA dog that points.\n\n## Care\n\nIt needs to run. Every day, for an hour or two.\n")
    assert cli("index", source, "-o", tmp_path / "i", "--passages", 8, "--model", SUM)[0] == 0
    about = cli("info", tmp_path / "i")[1]
    assert "a passage on average" in about
    assert "a document on average" in about
    assert "bm25-document" in cli("explain", tmp_path / "i", "care every hour", "vizsla.md")[1]
    assert cli("index", source, "-o", tmp_path / "p", "--passages", 8, "--no-headings")[0] == 0
    with Index.open(tmp_path / "i") as read, Index.open(tmp_path / "p") as plain:
        assert [hit.passage for hit in read.search("care", 9, model="bm25", passages=9)] == [1, 2]
        assert [hit.passage for hit in plain.search("care", 9, passages=9)] == [1]
    offered = [choice["name"] for choice in RequestedModels(index.model, {}).choices()]
    assert "bm25" in offered
    assert "bm25-document" not in offered
    with served({"dogs": str(index.path)}) as server, RemoteIndex(f"{server.url}/dogs") as remote:
        for options in ({}, {"passages": 3}, {"model": "bm25 + 2 * bm25-document"}):
            near, far = index.search("points meat", **options), remote.search("points meat", **options)
            assert [(h.id, h.passage, h.score) for h in far] == [(h.id, h.passage, h.score) for h in near]


def test_what_cannot_be_scored_is_refused(index: Index, tmp_path: Path) -> None:
    with pytest.raises(VizslaError, match="needs an index of passages"):
        Index.create(tmp_path / "i", SUM)
    with pytest.raises(VizslaError, match="needs an index of passages"):
        encode_shard([VIZSLA], tmp_path / "part.parquet", SUM)
    with pytest.raises(VizslaError, match="needs an index of passages"):
        QdrantIndex.create("qdrant://127.0.0.1:1/dogs", SUM)
    with pytest.raises(VizslaError, match="add a model that finds these"):
        Index.create(tmp_path / "i", "bm25-document", passages=9)
    with pytest.raises(VizslaError, match="add a model that finds these"):
        index.search("dog", model="bm25-document")
    with pytest.raises(VizslaError, match="reads no other field"):
        Index.create(tmp_path / "i", "bm25 + bm25(fields=title/document_text, namespace=d)", passages=9)
    with pytest.raises(UnsupportedError, match="rankings of passages"):
        index.search("dog", combine="rrf")
    with pytest.raises(VizslaError, match="cannot be exported"):
        list(document_vectors(index))
    with pytest.raises(VizslaError, match="headings is True or False"):
        Splitter(9, headings=1)  # type: ignore[arg-type]


def test_expanded_queries_leave_the_score_of_documents_as_it_is(index: Index) -> None:
    expanded = with_expansion(index.model, parse_expander("rm3(documents=1, terms=3)"))
    hit = index.search("points", 1, model=expanded)[0]
    own, whole = index.explain("points", hit.id, model=expanded).parts
    assert own.score + whole.score == pytest.approx(hit.score)
    assert (own.name, own.parts[0].facts["in_query"]) == ("bm25 with rm3", 0.5)
    assert (whole.name, [leaf.facts["in_query"] for leaf in whole.parts]) == ("bm25-document", [1])


def test_one_language_of_several_with_document_scores(tmp_path: Path) -> None:
    model = "multilingual(languages=de/en) + 0.5 * bm25-document"
    with Index.create(tmp_path / "i", model, passages=8) as index:
        index.add([{**VIZSLA, "language": "en"}, {**CATS, "language": "en"}])
        index.commit()
        plain = index.search("points meat", 3, language="en", model="multilingual(languages=de/en)")
        scored = index.search("points meat", 3, language="en")
        assert scored[0].score > plain[0].score > 0
        assert scored[0].score == pytest.approx(index.explain("points meat", scored[0].id, language="en").score)


def test_a_document_may_say_itself_what_stands_for_it(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", SUM, passages=2) as index:
        index.add(
            [{"id": "1", "text": "a dog barks at night", "document_text": "night watch"}, {"id": "2", "text": "night"}]
        )
        index.commit()
        scores = np.array([hit.score for hit in index.search("dog watch", passages=9)])
        without = np.array([hit.score for hit in index.search("dog watch", passages=9, model="bm25")])
        assert len(scores) == 1
        assert (scores > without).all()
        assert index.get("1")["document_text"] == "night watch"


def test_other_weights_of_the_sum_are_fitted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice([f"w{i}" for i in range(300)], 40)) for _ in range(80)]
    with Index.create(tmp_path / "i", "auto(bm25, bm25-wp) + 0.5 * bm25-document", passages=20) as index:
        index.add([{"id": str(i), "text": text} for i, text in enumerate(texts)])
        index.commit()
        one, fitted, whole = (part.weight for part in index.model.parts)
        assert (one, whole) == (1, 0.5)
        assert fitted != 1
        assert index.search(texts[7], 1)[0].id == "7"
    with Index.create(tmp_path / "j", SUM, passages=20) as index, pytest.raises(VizslaError, match="not a sum"):
        index.fit_weights()


def test_the_model_is_written_as_an_expression() -> None:
    model = parse_model("bm25 + 0.1 * bm25-document(k1=1.2)")
    assert model.name == "bm25 + 0.1 * bm25-document(k1=1.2)"
    assert [part.component.reads_documents for part in model.parts] == [False, True]
