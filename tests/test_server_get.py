"""A search by GET takes what a search by POST takes, and gives the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from served import Client, build, served
from vizsla.server.schemas import SearchBody, SearchParameters

DOCUMENTS = [
    {"id": str(n), "text": f"dog number {n} barks" + " loudly" * (n % 3), "title": f"Dog {n}", "year": 1990 + n % 4}
    for n in range(12)
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = build(tmp_path_factory.mktemp("get") / "dogs.index", DOCUMENTS)
    with served({"dogs": folder}) as client:
        yield client


def test_the_two_schemas_have_the_same_names() -> None:
    get, post = SearchParameters.model_json_schema()["properties"], SearchBody.model_json_schema()["properties"]
    assert set(post) - set(get) == {"queries"}
    assert set(get) - set(post) == {"hits", "parse"}
    for name in set(get) & set(post) - {"weights", "fields", "highlight", "facets"}:  # these are JSON in a parameter
        assert get[name].get("default") == post[name].get("default"), name


def test_what_is_no_json_is_checked_by_get_as_by_post() -> None:
    """So `as_body` need not check it again."""
    get, post = SearchParameters.model_json_schema()["properties"], SearchBody.model_json_schema()["properties"]
    in_words = {"weights", "fields", "highlight", "facets", "like", "filter"}  # by POST not only texts
    for name in set(get) & set(post) - in_words:
        assert {**get[name], "description": ""} == {**post[name], "description": ""}, name
    for name in ("like", "filter"):
        taken = [{k: v for k, v in kind.items() if k == "type"} for kind in post[name]["anyOf"]]
        assert all(kind in taken for kind in get[name]["anyOf"]), name


ASKED: list[dict[str, Any]] = [
    {"query": "dog loudly"}, {"query": "dog", "k": 3}, {"query": "dog", "offset": 4, "k": 2}, {"like": "3"},
    {"query": "dog", "sort": "-year"}, {"query": "dog", "collapse": "year"}, {"query": "loudly", "min_score": 0.2},
    {"query": "dog", "filter": "year = 1991"}, {"query": "dog", "model": "bm25(k1=1.2)"},
    {"query": "dog", "weights": [1.0]}, {"query": "dog", "expand": "rm3"}, {"query": "dog loudly", "combine": "rrf"},
    {"query": "dog", "fields": ["year"]}, {"query": "dog", "fields": []}, {"query": "loudly", "highlight": True},
    {"query": "loudly", "highlight": {"fields": ["text"], "width": 40}}, {"query": "dog", "explain": True, "k": 2},
    {"query": "dog", "facets": {"fields": ["year"], "size": 2}}, {"query": "dog", "k": 0, "total": True},
    {"k": 0, "facets": {"fields": ["year"], "over": "all"}}, {"query": "dog", "generation": 1},
    {"query": '+dog -loudly', "syntax": "lucene"}, {"query": "dgo loudly", "typos": "on"},
    {"query": "dog", "total": True},
    {"query": "dog", "window": "document"}, {"query": "dog", "passages": 1, "max_tokens": 20},
    {"query": "dog", "depth": 5}, {"query": "dog", "search_params": "exact"}, {"query": "dog", "rerank": "none"},
    {"query": "dog", "language": "en"},
]  # fmt: skip


def test_all_parameters_are_tried() -> None:
    assert {name for asked in ASKED for name in asked} == set(SearchBody.model_fields) - {"queries"}


@pytest.mark.parametrize("asked", ASKED, ids=json.dumps)
def test_both_give_the_same(client: Client, asked: dict[str, Any]) -> None:
    given = {name: value if isinstance(value, str) else json.dumps(value) for name, value in asked.items()}
    get, post = client.get("/v1/dogs/search", **given), client.post("/v1/dogs/search", asked)
    assert get.status == post.status
    if post.status != 200:
        assert get.error == post.error
        return
    (result,) = post.data["results"]
    hits = [
        {**{n: v for n, v in hit.items() if n not in ("id", "document", "place")}, "docid": hit["id"],
         "doc": {"id": hit["id"], **hit["document"]}}
        for hit in result["hits"]
    ]  # fmt: skip
    assert get.data["candidates"] == hits
    assert hits or asked["k"] == 0
    for name in ("total", "facets", "facets_over"):
        assert get.data.get(name) == result.get(name)
    assert get.data["query"] == {"text": result["query"], **{n: result[n] for n in ("corrected",) if n in result}}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "query is missing"),
        ({"query": "dog", "hits": 2, "k": 3}, "hits and k are the same; give one of them"),
        ({"query": "dog", "hits": 0}, "hits, the number of results, must be 1 or more, not 0"),
        ({"query": "dog", "fields": "title,year"}, "lists and objects are written as JSON in a parameter"),
        ({"query": "dog", "fields": '"title"'}, "fields: "),
        ({"query": "dog", "facets": '{"fields": ["nope"]}'}, "nope"),
        (
            {"query": "dog", "facets": "[" * 5000},
            "lists and objects are written as JSON in a parameter (nested too deeply)",
        ),
        ({"query": "dog", "like": "1"}, "give one of query, queries and like, not query and like"),
        ({"query": "dog", "queries": "dog"}, "there is no parameter 'queries'"),
    ],
)
def test_what_is_refused(client: Client, given: dict[str, Any], sentence: str) -> None:
    answer = client.get("/v1/dogs/search", **given)
    assert answer.status == 400
    assert sentence in answer.error
