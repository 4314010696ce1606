"""The API: searching, looking closer, refusing. All requests go over real connections."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from served import Answer, Client, build, doc_path, served
from vizsla import Index
from vizsla.server.settings import Keys, Limits
from waiting import LIMIT, eventually

DOCUMENTS = [
    {"id": "d1", "title": "Dogs", "text": "A dog barks at the other dogs.", "year": 1999, "tags": ["pets", "noise"]},
    {"id": "d2", "title": "Cats", "text": "Cats do not bark, but a cat may purr.", "year": 2005, "tags": ["pets"]},
    {"id": "d3", "title": "", "text": "The vizsla is a dog that points and retrieves.", "year": 1999},
    {"id": "a/b c?&é", "title": "Fish", "text": "Fish swim. No dog can bark there.", "year": 2020},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("server") / "pets.index", DOCUMENTS)


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with served({"pets": folder}) as client:
        yield client


# The shape of Anserini's and Pyserini's servers


def test_search_as_in_pyserini(client: Client, folder: Path) -> None:
    answer = client.get("/v1/pets/search", query="barking dog", hits=2)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    data = answer.data
    assert list(data) == ["api", "index", "query", "candidates"]
    assert (data["api"], data["index"], data["query"]) == ("v1", "pets", {"text": "barking dog"})
    with Index.open(folder) as index:
        hits = index.search("barking dog", 2)
    assert [list(candidate) for candidate in data["candidates"]] == [["docid", "score", "rank", "doc"]] * 2
    assert [(c["docid"], c["score"], c["rank"]) for c in data["candidates"]] == [(h.id, h.score, h.rank) for h in hits]
    assert data["candidates"][0]["doc"] == {"id": hits[0].id, **hits[0].document.content}


def test_hits_and_parse_have_the_defaults_of_pyserini(client: Client) -> None:
    assert len(client.get("/v1/pets/search", query="dog bark cat fish").data["candidates"]) == 4
    texts = client.get("/v1/pets/search", query="dog", hits=1, parse="false").data["candidates"]
    assert json.loads(texts[0]["doc"])["id"] == texts[0]["docid"]


@pytest.mark.parametrize("doc_id", ["d1", "a/b c?&é"])
def test_document_as_in_pyserini(client: Client, doc_id: str) -> None:
    data = client.get(doc_path("pets", doc_id)).data
    stored = next(d for d in DOCUMENTS if d["id"] == doc_id)
    assert data == {"api": "v1", "index": "pets", "docid": doc_id, "doc": stored}


def test_unknown_documents_and_indexes(client: Client) -> None:
    answer = client.get(doc_path("pets", "d99"))
    assert (answer.status, answer.error) == (404, "there is no document with the id 'd99'")
    answer = client.get("/v1/birds/search", query="dog")
    assert (answer.status, answer.error) == (404, "there is no index 'birds' here; the index here is 'pets'")
    assert client.get("/nothing").status == 404


# Searching with a body


def search(client: Client, **body: object) -> Answer:
    return client.post("/v1/pets/search", body)


def hits_of(answer: Answer) -> list[dict[str, object]]:
    assert answer.status == 200, answer.body
    (result,) = answer.data["results"]
    return list(result["hits"])


def test_one_query_and_many(client: Client, folder: Path) -> None:
    data = search(client, query="dog", k=2).data
    assert (data["index"], data["model"], data["generation"]) == ("pets", "bm25", 1)
    assert data["took_ms"] > 0
    queries = ["dog", "cat purr", "unicorn", "fish"] * 20
    results = search(client, queries=queries, k=3).data["results"]
    with Index.open(folder) as index:
        expected = index.search_many(queries, 3)
    assert [r["query"] for r in results] == queries
    assert [[(h["id"], h["score"]) for h in r["hits"]] for r in results] == [
        [(h.id, h.score) for h in e] for e in expected
    ]


def test_paging_and_fields(client: Client) -> None:
    everything = hits_of(search(client, query="dog bark cat fish", k=4))
    pages = [hits_of(search(client, query="dog bark cat fish", k=1, offset=n)) for n in range(4)]
    assert [page[0] for page in pages] == everything
    assert [h["rank"] for h in everything] == [1, 2, 3, 4]
    only = hits_of(search(client, query="dog", fields=["year", "nothing"]))
    assert [set(h["document"]) for h in only] == [{"year"}] * 3  # type: ignore[call-overload]


def test_filters_as_text_and_as_fields(client: Client) -> None:
    by_text = hits_of(search(client, query="dog", filter="year >= 2000"))
    assert [h["id"] for h in by_text] == ["a/b c?&é"]
    assert hits_of(search(client, query="dog", filter={"year": 2020})) == by_text
    got = client.get("/v1/pets/search", query="dog", filter="year >= 2000").data["candidates"]
    assert [c["docid"] for c in got] == ["a/b c?&é"]
    wrong = search(client, query="dog", filter="year >= ")
    assert wrong.status == 400
    assert wrong.error.startswith("the filter ends too early")
    assert search(client, query="dog", filter="colour = 'red'").error.startswith("no document has a field 'colour'")


def test_models_weights_and_expansion(client: Client, folder: Path) -> None:
    with Index.open(folder) as index:
        expected = index.search("dog bark", model="bm25(k1=1.2, b=0.75)")
    found = search(client, query="dog bark", model="bm25(k1=1.2, b=0.75)")
    assert found.data["model"] == "bm25(k1=1.2, b=0.75)"
    assert [(h["id"], h["score"]) for h in hits_of(found)] == [(h.id, h.score) for h in expected]
    doubled = hits_of(search(client, query="dog bark", weights=[2]))
    assert doubled[0]["score"] == pytest.approx(2 * hits_of(search(client, query="dog bark"))[0]["score"])  # type: ignore[operator]
    assert search(client, query="dog", expand="rm3(documents=2)").data["model"] == "bm25 with rm3"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"model": "dense(checkpoint=/etc)"}, "a request cannot name the model dense"),
        ({"model": "/etc"}, "unknown model"),
        ({"model": "bm225"}, "unknown model 'bm225'; did you mean 'bm25'?"),
        ({"model": "bm25(analyzer=wordpiece:/etc)"}, "a request cannot set the option analyzer"),
        ({"model": "bm25-wp"}, "this index does not have what 'bm25-wp' reads"),
        ({"model": "bm25-rm3(documents=1000000)"}, "documents is 1000000, and the server takes at most 1000"),
        ({"expand": "/etc"}, "a request cannot name the query expander '/etc', only 'rm3' and 'general'"),
        ({"expand": "augmenter"}, "start the server with --expander NAME=EXPANDER"),
        ({"weights": [1, 2]}, "the model bm25 has 1 parts"),
        ({"weights": [1], "model": "bm25"}, "give either a model or the weights"),
        ({"combine": "rrf"}, "rrf combines the parts of a sum"),
        ({"search_params": "nprobe=3"}, "the index has no dense vectors"),
        ({"rerank": "any"}, "there is no reranker 'any' here"),
        ({"k": 1001}, "k is 1001, and this server gives at most 1000 results"),
        ({"k": -1}, "k, the number of results, must be 0 or more, not -1"),
        ({"k": "ten"}, "k: input should be a valid integer"),
        ({"k": 1.5}, "k: input should be a valid integer"),
        ({"k": True}, "k: input should be a valid integer"),
        ({"offset": 10001}, "offset is 10001"),
        ({"query": "x" * 5000}, "the query has 5000 characters"),
        ({"query": "  "}, "the query is empty"),
        ({"query": 7}, "query: input should be a valid string"),
        ({"kk": 1}, "kk is not known here"),
        ({"queries": ["a"]}, "give one of query, queries and like"),
        ({"explain": True, "k": 200}, "this server explains at most 100 hits a request"),
        ({"facets": {}}, "facets.fields is missing"),
        ({"facets": {"fields": ["nothing"]}}, "no document has"),
    ],
)  # fmt: skip
def test_what_is_refused(client: Client, folder: Path, body: dict[str, object], message: str) -> None:
    answer = search(client, **{"query": "dog", **body})
    assert answer.status in (400, 404), answer.body
    assert message in answer.error
    assert str(folder) not in answer.error


def test_bodies_that_are_no_searches(client: Client) -> None:
    kind = {"content-type": "application/json"}
    for body in (b"", b"{", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"query": "a", "query": NaN}'):
        answer = client.send("POST", "/v1/pets/search", body, kind)
        assert answer.status == 400, body[:20]
        assert len(answer.error) < 300
    assert search(client).error == "there is no query; give query, queries or like"


def test_highlights_count_characters(tmp_path: Path) -> None:
    text = "\U0001f415\U0001f415 a dog \U0001f415 barks"
    with served({"x": build(tmp_path / "x.index", [{"id": "1", "text": text}])}) as client:
        (hit,) = hits_of(client.post("/v1/x/search", {"query": "dog", "highlight": True}))
    shown = hit["highlights"]["text"]  # type: ignore[index]
    assert [shown["text"][a:b] for a, b in shown["matches"]] == ["dog"]


def test_explanations_add_up(client: Client, folder: Path) -> None:
    (hit,) = hits_of(search(client, query="dog bark", k=1, explain=True))
    with Index.open(folder) as index:
        assert hit["explanation"] == json.loads(json.dumps(index.explain("dog bark", hit["id"]).as_dict()))  # type: ignore[arg-type]
    alone = client.post("/v1/pets/explain", {"query": "dog bark", "id": hit["id"]}).data
    assert alone["explanation"] == hit["explanation"]
    assert client.post("/v1/pets/explain", {"query": "dog", "id": "d99"}).status == 404


def test_explanations_tell_words_that_an_expansion_added(tmp_path: Path) -> None:
    others = [{"id": str(n), "text": f"nothing of word{n}"} for n in range(60)]
    documents = [{"id": "a", "text": "dog hound"}, {"id": "b", "text": "hound dog"}, *others]
    with served({"x": build(tmp_path / "x.index", documents)}) as client:
        body = {"query": "dog", "id": "a", "expand": "rm3"}
        explanation = client.post("/v1/x/explain", body).data["explanation"]
    assert {part["name"]: part["added"] for part in explanation["parts"]} == {"dog": False, "hound": True}


def test_facets_over_all_and_over_the_top(client: Client) -> None:
    body = {"query": "dog", "k": 0, "facets": {"fields": ["year", "tags"]}}
    (result,) = search(client, **body).data["results"]
    assert result["hits"] == []
    assert result["facets_over"] == {"documents": 3, "exact": True, "top": None}
    assert result["facets"]["year"] == {
        "values": [{"value": 1999, "count": 2}, {"value": 2020, "count": 1}], "distinct": 2, "missing": 0,
    }  # fmt: skip
    assert result["facets"]["tags"]["missing"] == 2
    (result,) = search(client, query="dog", k=1, facets={"fields": ["year"], "over": 2}).data["results"]
    assert len(result["hits"]) == 1
    assert result["facets_over"] == {"documents": 2, "exact": False, "top": 2}


def test_facets_without_a_query_count_all_documents(client: Client) -> None:
    body = {"k": 0, "facets": {"fields": ["year"]}, "filter": "year < 2010"}
    (result,) = search(client, **body).data["results"]
    assert result["facets_over"]["documents"] == 3
    assert search(client, k=1, facets={"fields": ["year"]}).status == 400
    assert search(client, k=0, query="", facets={"fields": ["year"]}).error.startswith("the query is empty")


def test_how_many_documents_match(client: Client) -> None:
    (result,) = search(client, query="dog", k=1, facets={"fields": []}).data["results"]
    assert (result["facets"], result["facets_over"]["documents"]) == ({}, 3)


def test_similar_documents(client: Client) -> None:
    found = hits_of(search(client, like="d1"))
    assert found
    assert "d1" not in [hit["id"] for hit in found]
    assert search(client, like="d99").status == 404


def test_terms_and_suggestions(client: Client) -> None:
    terms = client.get("/v1/pets/terms", text="dogs unicorn").data["terms"]
    assert [(t["term"], t["documents"]) for t in terms] == [("dog", 3), ("unicorn", 0)]
    found = client.get("/v1/pets/suggest", prefix="a bar").data
    assert found["suggestions"][0]["text"].startswith("bar")
    assert client.get("/v1/pets/suggest", prefix="").data["suggestions"] == []
    assert client.get("/v1/pets/suggest", prefix="x" * 5000).status == 400


def test_indexes_are_described(client: Client) -> None:
    data = client.get("/v1/indexes").data
    (info,) = data["indexes"]
    assert info == client.get("/v1/pets").data
    assert (info["status"], info["documents"], info["model"], info["fields"]) == ("ready", 4, "bm25", ["title", "text"])
    assert info["parts"] == [{"name": "bm25", "namespace": "words", "weight": 1.0, "kind": "sparse"}]
    assert info["expanders"][0] == "rm3"
    assert set(info["facets"]) == {"year", "tags"}
    assert info["models"][0]["name"] == "bm25"
    for model in info["models"]:
        assert search(client, query="dog", model=model["name"]).status == 200


def test_health_and_metrics(client: Client) -> None:
    assert client.get("/healthz").data == {"status": "ok"}
    assert client.get("/readyz").data == {"status": "ready", "indexes": {"pets": "ready"}}
    client.get("/v1/pets/search", query="dog")
    text = client.get("/metrics").body.decode()
    assert re.search(r'vizsla_requests_total\{route="/v1/\{index\}/search",status="200"\} \d', text)
    assert 'vizsla_index_documents{index="pets"} 4.0' in text
    assert 'vizsla_index_generation{index="pets"} 1.0' in text
    assert "vizsla_request_seconds_bucket" in text
    assert re.search(r'vizsla_index_cache_entries\{cache="terms",index="pets"\} [1-9]', text)


def test_head_is_get_without_a_body(client: Client) -> None:
    answer = client.send("HEAD", "/healthz")
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "15")


def test_openapi_and_pages(client: Client) -> None:
    paths = client.get("/openapi.json").data["paths"]
    assert {"get", "post"} <= paths["/v1/{index}/search"].keys()
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert client.get("/page/../settings.py").status == 404
    assert client.get("/page/%2e%2e%2fsettings.py").status == 404


# Many at once


def test_concurrent_searches_are_those_of_the_index(client: Client, folder: Path) -> None:
    with Index.open(folder) as index:
        queries = ["dog", "cat purr", "bark", "fish swim", "vizsla points"]
        expected = {q: [(h.id, h.score) for h in index.search(q, 3)] for q in queries}
    wrong: list[object] = []

    def ask(offset: int) -> None:
        for n in range(40):
            query = queries[(n + offset) % len(queries)]
            found = client.get("/v1/pets/search", query=query, hits=3).data["candidates"]
            if [(c["docid"], c["score"]) for c in found] != expected[query]:
                wrong.append((query, found))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_one_bad_query_spoils_no_other(client: Client) -> None:
    """Requests that are gathered into one call get their own answers and errors."""
    answers: list[Answer] = []

    def ask(n: int) -> None:
        condition = "year >= 1999" if n % 2 else "colour = 1"
        answers.append(client.post("/v1/pets/search", {"query": "dog", "filter": condition}))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(a.status for a in answers) == [200] * 8 + [400] * 8


# Who may ask, and how much

READ, WRITE = "r" * 20, "w" * 20


def test_keys(folder: Path) -> None:
    with served({"pets": folder}, keys=Keys((READ,), (WRITE,)), write=True) as client:
        for bad in (client, client.with_headers(authorization="Bearer wrong"), client.with_headers(x_api_key="")):
            answer = bad.get("/v1/pets/search", query="dog")
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert READ not in answer.error
            assert bad.get("/metrics").status == 401
            assert bad.get("/v1/indexes").status == 401
        for good in ({"authorization": f"Bearer {READ}"}, {"x_api_key": READ}, {"x_api_key": WRITE}):
            assert client.with_headers(**good).get("/v1/pets/search", query="dog").status == 200
        assert client.with_headers(x_api_key=READ).post("/v1/pets/commit").status == 403
        assert client.with_headers(x_api_key=WRITE).post("/v1/pets/commit").status == 200
        for path in ("/", "/healthz", "/readyz", "/docs", "/openapi.json"):
            assert client.get(path).status != 401


def test_pages_of_other_sites(folder: Path) -> None:
    with served({"pets": folder}, write=True) as client:
        foreign = client.with_headers(origin="https://evil.example")
        assert foreign.post("/v1/pets/commit").status == 403
        assert "access-control-allow-origin" not in foreign.get("/v1/pets/search", query="dog").headers
        assert client.with_headers(origin=client.url).post("/v1/pets/commit").status == 200
        assert client.with_headers(host="evil.example:80").get("/v1/indexes").status == 421
        assert client.with_headers(host="evil.example:80").get("/healthz").status == 200
    with served({"pets": folder}, write=True, cors=("https://ours.example",)) as client:
        ours = client.with_headers(origin="https://ours.example")
        found = ours.get("/v1/pets/search", query="dog")
        assert found.headers["access-control-allow-origin"] == "https://ours.example"
        assert ours.post("/v1/pets/commit").status == 200


def test_limits(folder: Path) -> None:
    limits = Limits(k=5, offset=3, query_characters=10, queries=2, body_bytes=200)
    with served({"pets": folder}, limits=limits) as client:
        assert client.get("/v1/pets/search", query="dog", hits=6).status == 400
        assert client.get("/v1/pets/search", query="dog", offset=4).status == 400
        assert client.get("/v1/pets/search", query="d" * 11).status == 400
        assert client.post("/v1/pets/search", {"queries": ["a", "b", "c"]}).status == 400
        answer = client.post("/v1/pets/search", {"query": "dog", "fields": ["x" * 300]})
        assert (answer.status, answer.error) == (413, "the body has more than 200 bytes, the most this server reads")
        assert chunked(client.url, b"x" * 300).startswith(b"HTTP/1.1 413")


def chunked(url: str, body: bytes, path: str = "/v1/pets/search") -> bytes:
    """The answer to a request whose length is not said."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        head = f"POST {path} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
        connection.sendall(
            head.encode() + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        )
        return connection.recv(65536)


def test_requests_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = build(tmp_path / "pets.index", DOCUMENTS)
    search_many, begun, goes_on = Index.search_many, threading.Semaphore(0), threading.Event()

    def held(*arguments: object, **options: object) -> object:
        begun.release()
        assert goes_on.wait(LIMIT)
        return search_many(*arguments, **options)  # type: ignore[arg-type]

    limits = Limits(in_flight=1, seconds=3600)
    with served({"pets": folder}, write=True, limits=limits) as client, ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(Index, "search_many", held)
        first = pool.submit(client.get, "/v1/pets/search", query="dog")
        try:
            assert begun.acquire(timeout=LIMIT)
            for answer in (
                client.get("/v1/pets/search", query="dog"),
                client.post("/v1/pets/search", {"query": "dog"}),
            ):
                assert (answer.status, answer.headers["retry-after"]) == (429, "1")
            assert client.add("pets", [{"id": "new", "text": "a dog"}]).status == 200  # an upload is not for nothing
            assert client.get("/healthz").status == 200
        finally:
            goes_on.set()
        assert first.result().status == 200
        assert client.get("/v1/pets/search", query="dog").status == 200


def test_slow_clients_and_hang_ups(folder: Path) -> None:
    with served({"pets": folder}, limits=Limits(seconds=0.5)) as client:
        parts = urlsplit(client.url)
        head = f"POST /v1/pets/search HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
        with socket.create_connection((parts.hostname, parts.port)) as connection:
            connection.sendall(f"{head}content-length: 50\r\n\r\n{{".encode())
            assert connection.recv(65536).split(b"\r\n")[0] == b"HTTP/1.1 408 Request Timeout"
        with socket.create_connection((parts.hostname, parts.port)) as connection:  # never ends its head
            connection.sendall(b"GET /healthz HTTP/1.1\r\n")
            connection.settimeout(LIMIT)
            assert connection.recv(100) == b""
        for _ in range(50):
            with socket.create_connection((parts.hostname, parts.port)) as connection:
                connection.sendall(f"{head}content-length: 5000\r\n\r\n{{".encode())
        eventually(lambda: client.get("/v1/pets/search", query="dog").status == 200)


def test_a_mistake_of_the_server_shows_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with served({"pets": folder}) as client:

        def broken(*_: object, **__: object) -> None:
            raise RuntimeError(f"secret of {folder}")

        monkeypatch.setattr(Index, "search_many", broken)
        answer = client.get("/v1/pets/search", query="dog")
        assert (answer.status, answer.error) == (500, "an unexpected error occurred in the server; see its log")
        monkeypatch.undo()
        assert "secret of" in caplog.text
        assert client.get("/v1/pets/search", query="dog").status == 200
