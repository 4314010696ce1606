"""`language=`: a query that is analysed in one language of an index of several, everywhere a query can be given."""

from __future__ import annotations

import asyncio
import itertools
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import vizsla
from conftest import Cli
from qdrant_server import address, nodes
from served import served
from vizsla import Index, VizslaError
from vizsla.backends.qdrant import QdrantIndex
from vizsla.models import BM25, in_language, language_model, multilingual, parse_model
from vizsla.runs import Hits

DOCUMENTS: list[dict[str, Any]] = [
    {"id": "de1", "text": "Der Rat der Stadt hat ein Gift im Garten gefunden.", "year": 2001},
    {"id": "de2", "text": "Guter Rat ist teuer, und der Garten ist alt.", "year": 2002},
    {"id": "en1", "text": "The rat has found the gift in the garden of the house.", "year": 2001},
    {"id": "en2", "text": "A gift for the gardener is in the old garden, and so is the rat.", "year": 2003},
    {"id": "fr1", "text": "Le rat a trouvé le gift dans le jardin de la maison.", "year": 2001, "language": "fr"},
]
QUERIES = ["gift rat", "Rat im Garten", "old garden", "Gift", "the rat of the house"]


def _german_alone(folder: Path) -> Index:
    index = Index.create(folder, language="de")
    index.add([d for d in DOCUMENTS if d["id"].startswith("de")])
    index.commit()
    return index


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with Index.create(tmp_path / "index", language="de,en") as made:
        made.add(DOCUMENTS)
        made.commit()
        yield made


def _scores(hits: Hits) -> dict[str, float]:
    return {hit.id: hit.score for hit in hits}


def _of(code: str, hits: Hits) -> dict[str, float]:
    return {doc_id: score for doc_id, score in _scores(hits).items() if doc_id.startswith(code)}


def test_a_query_in_one_language_finds_its_documents_with_the_same_scores(index: Index, tmp_path: Path) -> None:
    for query in QUERIES:
        every = index.search(query)
        for code, name in (("de", "German"), ("en", "en-GB"), ("fr", "other")):
            expected = _of(code, every)
            assert _scores(index.search(query, language=code if code != "fr" else "other")) == expected
            assert _scores(index.search(query, language=name)) == expected
        assert _scores(index.search(query, language="de, other")) == _of("de", every) | _of("fr", every)
    assert set(_scores(index.search("gift"))) == {"de1", "en1", "en2", "fr1"}
    with _german_alone(tmp_path / "german") as alone:  # whose query of known words has the same scores
        assert _scores(index.search("Rat im Garten", language="de")) == _scores(alone.search("Rat im Garten"))


def test_no_cache_mixes_languages(index: Index) -> None:
    codes: list[str | None] = [None, "de", "en", "other", "de,en"]
    expected = {}
    for code, query in itertools.product(codes, QUERIES):  # each from an index that has searched nothing yet
        with vizsla.open(index.path) as fresh:
            expected[code, query] = _scores(fresh.search(query, language=code))  # type: ignore[call-arg]
    for _ in range(2):
        for query, code in itertools.product(QUERIES, codes):
            assert _scores(index.search(query, language=code)) == expected[code, query]
    index.add([{"id": "de3", "text": "Das Gift ist für den Rat der Stadt nicht gut.", "year": 2004}])
    index.commit()
    assert set(_scores(index.search("Gift", language="de"))) == {"de1", "de3"}
    assert set(_scores(index.search("Gift", language="en"))) == {"en1", "en2"}
    for number in range(100):  # more models than are kept
        index.search("gift", language="de", model=multilingual(["de", "en"], k1=1 + number / 100))
    assert _scores(index.search("old garden", language="en")) == expected["en", "old garden"]


@pytest.mark.parametrize("positions", [False, True])
def test_the_query_language_in_one_language(tmp_path: Path, positions: bool) -> None:
    index = Index.create(tmp_path / "index", language="de,en", positions=positions)
    index.add(DOCUMENTS)
    index.commit()
    for query, found in {
        '"old garden"': {"en2"}, "gift": {"en1", "en2"}, "gard*": {"en1", "en2"}, "gifd~1": {"en1", "en2"},
        "+gift -house": {"en2"}, "text:rat": {"en1", "en2"}, "Stadt": set(), '"guter Rat"': set(),
    }.items():  # fmt: skip
        hits = index.search(query, syntax="lucene", language="en")
        assert set(_scores(hits)) == found, query
        assert index.count(query, syntax="lucene", language="en") == len(found)
        for hit in hits:
            why = index.explain(query, hit.id, syntax="lucene", language="en")
            assert why.score == pytest.approx(hit.score)
    assert set(_scores(index.search('"guter Rat"', syntax="lucene", language="de"))) == {"de2"}
    assert set(_scores(index.search("gard", syntax="typing", language="en"))) == {"en1", "en2"}
    assert set(_scores(index.search("gart", syntax="typing", language="en"))) == set()


def test_counts_explanations_highlights_and_suggestions_in_one_language(index: Index) -> None:
    assert (index.count("gift"), index.count("gift", language="en"), index.count("gift", language="de")) == (4, 2, 1)
    assert index.search("gift", 1, language="en", total=True).total == 2
    assert index.count(None, "year = 2001", language="de") == 3  # without a query no language matters
    for over in ("all", 10):
        counted = index.facets(["year"], "gift", over=over, language="en")
        assert [(value.value, value.count) for value in counted["year"].values] == [(2001, 1), (2003, 1)]
    (best, _) = index.search("gift", language="en")
    assert index.explain("gift", best.id, language="en").score == pytest.approx(best.score)
    assert index.explain("gift", "en1", language="de").score == 0
    shown = {}
    for code in ("de", "en", None):
        highlighter = index.highlighter("gift im garden", language=code)
        for doc_id in ("de1", "en1"):
            document = index.get(doc_id)
            assert document is not None
            snippet = highlighter.snippet(document)
            shown[code, doc_id] = [snippet.text[a:z] for a, z in snippet.matches]
    assert shown[None, "de1"] == shown["de", "de1"] == ["Gift"]
    assert shown[None, "en1"] == shown["en", "en1"] == ["gift", "garden"]
    assert shown["en", "de1"] == shown["de", "en1"] == []
    for _ in range(2):  # what is remembered is that of the language
        assert [s.text for s in index.suggest("gart")] == ["garten"]
        assert [s.text for s in index.suggest("gar", language="de")] == ["garten"]
        assert [s.text for s in index.suggest("gar", language="en")] == ["garden"]
        assert [(s.text, s.documents) for s in index.suggest("gif", language="de,en")] == [("gift", 3)]


def test_misspelt_words_are_corrected_by_those_of_the_language(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", language="de,en")
    german = [{"id": f"d{i}", "text": "Der Vogel ist im Garten und nicht auf dem Haus."} for i in range(9)]
    english = [{"id": f"e{i}", "text": "The bird is in the garden and not on the house."} for i in range(9)]
    index.add([*german, *english])
    index.commit()
    for _ in range(2):
        assert index.search("garren", language="de", typos="suggest").did_you_mean == "garten"
        assert index.search("garren", language="en", typos="suggest").did_you_mean == "garden"
        assert set(_scores(index.search("garren", 20, language="en", typos="on"))) == {f"e{i}" for i in range(9)}
        assert index.search("hause", typos="suggest").did_you_mean is None  # a form of Haus
        assert index.search("hause", language="en", typos="suggest").did_you_mean == "house"


def test_views_runs_and_pickles_in_one_language(index: Index) -> None:
    view = index.with_model(language="de")
    assert view.model == in_language(index.model, "de")
    assert view.name == "bm25-de"
    again = pickle.loads(pickle.dumps(view))
    for searched in (view, again):
        assert set(_scores(searched.search("gift rat"))) == {"de1", "de2"}
        assert searched.run({"q": "gift"})["q"].documents == ["de1"]
        assert searched.count("gift") == 1
        assert searched.facets(["year"], "gift").documents == 1
        assert searched.explain("gift", "en1").score == 0
        assert [s.text for s in searched.suggest("gar")] == ["garten"]
        document = index.get("en1")
        assert document is not None
        assert searched.highlighter("gift").snippet(document).matches == ()
    again.index.close()
    assert index.run({"q": "gift", "r": ""}, language="en") == index.with_model(language="en").run(
        {"q": "gift", "r": ""}
    )
    assert set(_scores(view.with_model("multilingual(languages=de/en, k1=2)").search("gift"))) == {"de1"}

    async def asked() -> set[str]:
        async with vizsla.AsyncIndex(index.path) as opened:
            return {hit.id for hit in await opened.search("gift", language="en")}

    assert asyncio.run(asked()) == {"en1", "en2"}


def test_parts_that_are_for_no_language_stay(tmp_path: Path) -> None:
    model = multilingual(["de", "en"]) + 0.5 * parse_model("bm25-wp")
    index = Index.create(tmp_path / "index", model)
    index.add(DOCUMENTS)
    index.commit()
    pieces = index.with_model(0.5 * parse_model("bm25-wp"))
    words = index.with_model(index.model.parts[1].component)
    expected, own = _scores(pieces.search("gift garden")), _scores(words.search("gift garden"))
    found = _scores(index.search("gift garden", language="en"))
    assert found == pytest.approx({doc_id: score + own.get(doc_id, 0) for doc_id, score in expected.items()})
    assert found.keys() > {"en1", "en2"}
    for combine in ("rrf", "union"):
        assert index.search("gift garden", language="en", combine=combine).ids[0] in ("en1", "en2")
    reweighed = index.search(
        "gift garden", language="en", model=multilingual(["de", "en"]) + 2 * parse_model("bm25-wp")
    )
    assert _scores(reweighed)["de1"] == pytest.approx(4 * expected["de1"])


def test_expanded_queries_in_one_language(index: Index) -> None:
    expanded = language_model(["de", "en"])
    from vizsla.models import RM3, with_expansion

    view = index.with_model(with_expansion(expanded, RM3(documents=2, terms=5)), language="en")
    hits = view.search("gift")
    assert set(_scores(hits)) == {"en1", "en2"}
    assert view.explain("gift", hits[0].id).score == pytest.approx(hits[0].score)


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("klingon", "unknown language 'klingon'"),
        ("", "unknown language"),
        ("de,", "unknown language"),
        ("fr", "multilingual(de, en) has no part for French; language is one of de, en, other"),
        (7, "language is a text, as in 'de', not"),
        (["de"], "language is a text, as in 'de', not"),
    ],
)
def test_a_language_that_the_index_does_not_have_is_refused(index: Index, language: Any, said: str) -> None:
    for call in (
        lambda: index.search("gift", language=language),
        lambda: index.with_model(language=language),
        lambda: index.run({"q": "gift"}, language=language),
        lambda: index.facets(["year"], "gift", language=language),
        lambda: index.explain("gift", "de1", language=language),
        lambda: index.highlighter("gift", language=language),
        lambda: index.suggest("gif", language=language),
    ):
        with pytest.raises(VizslaError) as raised:
            call()
        assert said in str(raised.value)


def test_an_index_of_one_language_takes_no_other(tmp_path: Path) -> None:
    with _german_alone(tmp_path / "german") as alone:
        with pytest.raises(VizslaError) as raised:
            alone.search("Gift", language="de")
        assert str(raised.value) == "bm25 has no parts for languages, so a query cannot be analysed in de"
    with pytest.raises(VizslaError, match="no part for German; language is one of en"):
        in_language(multilingual(["de", "en"]).parts[1].component, "de")
    assert in_language(BM25() + multilingual(["de"]).with_name("m"), "other").namespaces == ("words", "words-other")


def test_the_command_line(index: Index, cli: Cli) -> None:
    code, said, _ = cli("search", index.path, "gift", "--language", "de", "--json")
    assert code == 0
    assert [row["id"] for row in json.loads(said)["results"]] == ["de1"]
    assert json.loads(said)["model"] == "bm25-de"
    code, said, _ = cli("explain", index.path, "gift", "en1", "--language", "de")
    assert (code, said.split()[0]) == (0, "0.0000")
    code, said, error = cli("search", index.path, "Stadt", "--language", "en")
    assert (code, said) == (0, "")
    assert "nothing found: no document in en matches the query" in error
    code, _, error = cli("search", index.path, "gift", "--language", "fr")
    assert code == 2
    assert "has no part for French; language is one of de, en, other" in error


def test_servers_and_clients(index: Index) -> None:
    with served({"i": str(index.path)}) as client, vizsla.RemoteIndex(f"{client.url}/i") as remote:
        for _, (query, code) in itertools.product(range(2), itertools.product(QUERIES, ("de", "en", "other", None))):
            expected = index.search(query, language=code)
            assert remote.search(query, language=code) == expected
            chosen = {} if code is None else {"language": code}
            got = client.get("/v1/i/search", query=query, **chosen).data["candidates"]
            assert [(row["docid"], row["score"]) for row in got] == [(hit.id, hit.score) for hit in expected]
        body = {"query": "gift", "language": "en", "highlight": True, "explain": True, "total": True, "typos": "on"}
        (result,) = client.post("/v1/i/search", {**body, "facets": {"fields": ["year"]}}).data["results"]
        assert (result["total"], result["facets"]["year"]["distinct"]) == (2, 2)
        for hit in result["hits"]:
            assert hit["explanation"]["score"] == pytest.approx(hit["score"])
            shown = hit["highlights"]["text"]
            assert [shown["text"][a:z] for a, z in shown["matches"]] == ["gift"]
        assert remote.count("gift", language="de") == 1
        assert remote.facets(["year"], "gift", language="en") == index.facets(["year"], "gift", language="en")
        assert remote.explain("gift", "en1", language="de").score == 0
        assert remote.suggest("gar", language="en") == index.suggest("gar", language="en")
        view = remote.with_model(language="de")
        assert view.name == "bm25-de"
        assert [s.text for s in view.suggest("gar")] == ["garten"]
        assert view.count("gift") == 1
        for language, said in (("fr", "no part for French"), ("klingon", "unknown language")):
            assert said in client.get("/v1/i/search", query="gift", language=language).error
            assert said in client.post("/v1/i/search", {"query": "gift", "language": language}).error
            assert said in client.get(f"/v1/i/suggest?prefix=g&language={quote(language)}").error
            with pytest.raises(VizslaError, match=said):
                remote.search("gift", language=language)


def test_clusters(index: Index, tmp_path: Path, qdrant_command: list[str]) -> None:
    with nodes(tmp_path / "nodes", command=qdrant_command) as (node,):
        cluster = QdrantIndex.create(address([node], "words"), language_model(["de", "en"]))
        cluster.add(DOCUMENTS)
        cluster.commit()
        for query, code in itertools.product(QUERIES, ("de", "en", "other", None)):
            expected = _scores(index.search(query, language=code))
            assert _scores(cluster.search(query, language=code)) == pytest.approx(expected, rel=1e-5)
        view = cluster.with_model(language="en")
        assert set(_scores(view.search("gift"))) == {"en1", "en2"}
        assert cluster.explain("gift", "en1", language="de").score == 0
        document = cluster.get("de1")
        assert document is not None
        assert cluster.highlighter("gift", language="en").snippet(document).matches == ()
        with pytest.raises(VizslaError, match="no part for French"):
            cluster.search("gift", language="fr")
        with served({"c": address([node], "words")}) as client:
            got = client.get("/v1/c/search", query="gift", language="de").data["candidates"]
            assert [row["docid"] for row in got] == ["de1"]
