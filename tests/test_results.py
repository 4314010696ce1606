"""Which results are given and how: pages, sorting, one result a group, least scores, tables; in Python, API and CLI."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from queries import random_documents
from scattered import Scattered
from served import Client, build, served
from vizsla import Document, Hit, Index, RemoteIndex, VizslaError, parse_model
from vizsla.runs import Hits

DOCUMENTS = [
    {**document, **({"size": [i % 5, 9 - i % 3]} if i % 4 else {})}
    for i, document in enumerate(random_documents(random.Random(3), 120))
]
BY_ID = {document["id"]: document for document in DOCUMENTS}


@pytest.fixture(scope="module", params=["words", "sum", "passages"])
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    model = parse_model("bm25") + 0.1 * Scattered() if request.param == "sum" else "bm25"
    passages = 4 if request.param == "passages" else None
    with Index.create(tmp_path_factory.mktemp("results") / "i", model, passages=passages) as index:
        for start in (0, 50):
            index.add(DOCUMENTS[start : start + 70])
            index.commit()
        yield index


def group_of(document: Mapping[str, Any], field: str) -> object:
    value = document.get(field)
    return value[0] if isinstance(value, list) else value


def expected_page(
    hits: list[Hit], k: int, offset: int, sort: str | None, collapse: str | None, min_score: float | None
) -> list[str]:
    """A page made from all results, one step after the other."""
    kept = [hit for hit in hits if min_score is None or hit.score >= min_score]
    if sort is not None:
        field, descending = sort.removeprefix("-"), sort.startswith("-")
        values = {hit.id: BY_ID[hit.id].get(field) for hit in kept}
        best = max if descending else min
        keys = {d: best(v) if isinstance(v, list) else v for d, v in values.items()}
        with_value = [hit for hit in kept if keys[hit.id] is not None]
        ordered = sorted(with_value, key=lambda hit: keys[hit.id], reverse=descending)  # type: ignore[arg-type,return-value]
        kept = ordered + [hit for hit in kept if keys[hit.id] is None]
    if collapse is not None:
        seen: set[object] = set()
        groups = []
        for hit in kept:
            group = group_of(BY_ID[hit.id], collapse)
            if group is None or group not in seen:
                groups.append(hit)
            seen.add(group)
        kept = groups
    return [hit.id for hit in kept[offset : offset + k]]


def test_pages_are_parts_of_all_results(index: Index) -> None:
    rng = random.Random(4)
    for _ in range(60):
        query = rng.choice(("dog", "big cats run", "state art", "retrieval of arts", "old dogs dig"))
        hits = index.search(query, 1000)
        page: dict[str, Any] = {
            "offset": rng.choice((0, 0, 1, 7, 500)),
            "sort": rng.choice((None, "n", "-n", "lang", "-lang", "size", "-size")),
            "collapse": rng.choice((None, None, "n", "lang", "size")),
            "min_score": rng.choice((None, None, hits[len(hits) // 2].score)),
        }
        k = rng.choice((1, 3, 10, 200))
        found = index.search(query, k, **page)
        assert [hit.id for hit in found] == expected_page(hits, k, **page), (query, k, page)
        assert [hit.rank for hit in found] == list(range(page["offset"] + 1, page["offset"] + 1 + len(found)))
        scores = {hit.id: (hit.score, hit.passage) for hit in hits}
        assert {hit.id: (hit.score, hit.passage) for hit in found} == {hit.id: scores[hit.id] for hit in found}
        assert index.with_model(index.model).search(query, k, **page) == found
        assert index.search_many([query, ""], k, documents=False, **page)[1] == []


def test_pages_of_a_fusion(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", parse_model("bm25") + Scattered()) as index:
        index.add(DOCUMENTS)
        index.commit()
        hits = index.search("big dogs", 100, combine="rrf")
        assert index.search("big dogs", 5, combine="rrf", offset=5) == hits[5:10]
        by_year = index.search("big dogs", 100, combine="rrf", sort="year")
        assert sorted(hit.id for hit in by_year) == sorted(hit.id for hit in hits)
        assert [BY_ID[hit.id]["year"] for hit in by_year] == sorted(BY_ID[hit.id]["year"] for hit in hits)


def test_wrong_pages_are_refused_in_one_sentence(index: Index) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"offset": -1}, "offset, how many results are left out, must be 0 or more"),
        ({"offset": "2"}, "offset, how many"),
        ({"sort": ""}, "sort is the name of a field"),
        ({"collapse": 3}, "collapse is the name of a field"),
        ({"min_score": "high"}, "min_score is a number"),
        ({"min_score": float("nan")}, "min_score is a number"),
        ({"sort": "colour"}, "in the field 'colour'"),
    ]
    for page, problem in wrong:
        with pytest.raises(VizslaError, match=problem):
            index.search("dog", **page)


# Tables

HITS = Hits([
    Hit(1, 2.5, Document("<7>", {"title": "Dogs & cats", "text": "x" * 300})),
    Hit(2, 1.0, Document("8", {"rank": 5}), 3),
])  # fmt: skip


def test_hits_are_a_table_in_a_notebook() -> None:
    shown = HITS._repr_html_()
    assert "<code>&lt;7&gt;</code>" in shown
    assert "<b>Dogs &amp; cats</b> " + "x" * 199 + "…" in shown
    assert Hits()._repr_html_() == "<p>nothing found</p>"


def test_hits_become_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = HITS.columns()
    assert list(columns) == ["rank", "id", "score", "passage", "title", "text", "document.rank"]
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(VizslaError, match=f"{name} is not installed; run: pip install {name}"):
            getattr(HITS, f"to_{name}")()


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_hits_become_frames_of_the_real_packages(name: str) -> None:
    pytest.importorskip(name)
    frame = getattr(HITS, f"to_{name}")()
    assert list(frame.columns) == list(HITS.columns())
    assert frame["id"].to_list() == ["<7>", "8"]
    assert len(Hits().to_pandas() if name == "pandas" else Hits().to_polars()) == 0


# The API, its client, and the command line

PETS = [
    {"id": "1", "title": "Big dogs", "text": "Big dogs bark at cats.", "year": 1999},
    {"id": "2", "title": "Cats", "text": "Cats see big old dogs.", "year": 2001},
    {"id": "3", "title": "Fish", "text": "Fish of the big sea see no dogs.", "year": 1999},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("results") / "pets.index", PETS, positions=True)


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with served({"pets": folder}) as client:
        yield client


def test_the_api_takes_queries_in_a_language(client: Client) -> None:
    body = {"query": '+"big dogs"~1 -sea', "syntax": "lucene", "highlight": True, "explain": True}
    answer = client.post("/v1/pets/search", {**body, "facets": {"fields": ["year"]}}).data["results"][0]
    assert [hit["id"] for hit in answer["hits"]] == ["1", "2"]
    assert answer["facets_over"]["documents"] == 2
    assert answer["hits"][0]["explanation"]["score"] == pytest.approx(answer["hits"][0]["score"], abs=1e-5)
    got = client.get("/v1/pets/search", query='"big dogs"', syntax="lucene").data["candidates"]
    assert [candidate["docid"] for candidate in got] == ["1"]
    why = client.post("/v1/pets/explain", {"query": "+dogs -sea", "id": "1", "syntax": "lucene"})
    assert why.data["explanation"]["name"] == "bm25"
    wrong = client.post("/v1/pets/search", {"query": 'dogs "big', "syntax": "lucene"})
    assert wrong.status == 400
    assert wrong.error.split("\n")[1:] == ['  dogs "big', "       ^"]
    assert client.post("/v1/pets/search", {"query": "dogs", "syntax": "sql"}).status == 400


def test_the_api_sorts_collapses_and_cuts(client: Client) -> None:
    def ids(**body: object) -> list[str]:
        answer = client.post("/v1/pets/search", {"query": "big dogs cats", **body})
        return [hit["id"] for hit in answer.data["results"][0]["hits"]]

    assert ids() == ["2", "1", "3"]
    assert ids(sort="-year") == ["2", "1", "3"]
    assert ids(collapse="year") == ["2", "1"]
    assert ids(collapse="year", offset=1) == ["1"]
    assert ids(sort="year", offset=1, k=1) == ["3"]
    assert ids(min_score=1e9) == []
    refused = client.post("/v1/pets/search", {"query": "dogs", "sort": "year", "rerank": "x"})
    assert refused.status in (400, 404)


def test_a_client_searches_as_the_index_does(client: Client, folder: Path) -> None:
    with RemoteIndex(f"{client.url}/pets") as remote, Index.open(folder) as index:
        for query in ("+big -sea", '"big dogs"~1', "retriev* title:cats^2"):
            there = remote.with_model(syntax="lucene").search(query)
            assert there == index.search(query, syntax="lucene")
        page: dict[str, Any] = {"offset": 1, "sort": "-year", "collapse": "year", "min_score": 0.01}
        assert remote.search("big dogs", 5, **page) == index.search("big dogs", 5, **page)
        with pytest.raises(VizslaError, match="not closed"):
            remote.with_model(syntax="lucene").search('"big')
        explained = remote.with_model(syntax="lucene").explain("+dogs -sea", "1")
        assert explained.score == index.explain("+dogs -sea", "1", syntax="lucene").score


def test_results_on_the_command_line(folder: Path, cli: Cli) -> None:
    def ids(*arguments: str) -> list[str]:
        code, out, _ = cli("search", folder, *arguments, "--json")
        assert code == 0
        return [hit["id"] for hit in json.loads(out)["results"]]

    assert ids('"big dogs"', "--syntax", "lucene") == ["1"]
    assert ids("big dogs cats", "--sort=-year", "--offset", "1") == ["1", "3"]
    assert ids("big dogs cats", "--collapse", "year") == ["2", "1"]
    assert ids("big dogs cats", "--min-score", "1e9") == []
    assert "3" in ids("--like", "1")
    assert cli("search", folder, "big dogs", "--facets", "year")[1].endswith("year  1999 (2), 2001 (1)\n")
    counted = json.loads(cli("search", folder, "big dogs", "--facets", "year", "--json")[1])["facets"]["year"]
    assert counted["values"] == [{"value": 1999, "count": 2}, {"value": 2001, "count": 1}]
    shown = cli("search", folder, "big dogs", "--facets", "year, year(..2000,2000..)")[1]
    assert shown.endswith("year  1999 (2), 2001 (1)\nyear(..2000,2000..)  ..2000 (2), 2000.. (1)\n")


def test_mistakes_on_the_command_line(folder: Path, cli: Cli) -> None:
    code, _, err = cli("search", folder, "cats (dogs", "--syntax", "lucene")
    assert code == 2
    assert err.endswith("vizsla: this parenthesis is not closed; add ) where the group ends\n  cats (dogs\n       ^\n")
    for arguments, problem in {
        ("--sort", "year"): "--sort is for the results of one query",
        ("dogs", "--like", "1"): "--like replaces the query",
        ("dogs", "--rerank", "--min-score", "1"): "a reranker orders results by its own scores",
        ("dogs", "--syntax", "sql"): "unknown syntax 'sql'",
    }.items():
        code, _, err = cli("search", folder, *arguments)
        assert code == 2
        assert problem in err
