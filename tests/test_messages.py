"""What is said to somebody who asks for something wrong, over HTTP and in Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from served import Client, build, served
from vizsla import Index, VizslaError, read_documents
from vizsla.models import Augmenter, augmenter
from vizsla.server.settings import Limits

DOCUMENTS = [{"id": str(n), "text": f"dog number{n} barks at cats", "year": 1990 + n} for n in range(5)]
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("messages") / "d.index", DOCUMENTS)


@pytest.fixture(scope="module")
def client(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    other = build(tmp_path_factory.mktemp("other") / "pq.index", DOCUMENTS)
    with served({"d": folder, "pq": other}, write=True, limits=Limits(seconds=300)) as client:
        yield client


# Parameters of addresses

SEARCH = "'query', 'hits', 'parse', 'like', 'k', 'offset', 'sort', 'collapse', 'min_score', 'filter', 'model'"


@pytest.mark.parametrize(
    ("method", "address", "message"),
    [
        ("GET", "/v1/d/search?query=dog&top=1", f"there is no parameter 'top'; the parameters here are {SEARCH}"),
        ("GET", "/v1/d/search?top=1", "there is no parameter 'top'; the parameters here are 'query'"),
        ("GET", "/v1/d/doc/1?pasre=false", "there is no parameter 'pasre'; the parameters here are 'parse'"),
        (
            "GET",
            "/v1/d/suggest?prefix=d&k=1",
            "there is no parameter 'k'; the parameters here are 'prefix', 'size' and 'language'",
        ),
        ("GET", "/v1/d/judgements/qrels?fromat=beir", "there is no parameter 'fromat'"),
        ("GET", "/v1/indexes?x=1", "there is no parameter 'x'; this address takes none"),
        ("POST", "/v1/d/commit?comit=false", "there is no parameter 'comit'; this address takes none"),
        ("DELETE", "/v1/d/doc/1?comit=false", "there is no parameter 'comit'; the parameters here are 'commit'"),
    ],
)
def test_parameters_that_do_not_exist(client: Client, method: str, address: str, message: str) -> None:
    answer = client.send(method, address)
    assert (answer.status, answer.error[: len(message)]) == (400, message)


def test_parameters_that_exist(client: Client) -> None:
    for address in (
        "/v1/d/search?query=dog&hits=1&parse=false&offset=1&filter=year%3E1990&model=bm25&expand=rm3",
        "/v1/d/search?query=dog&syntax=lucene",
        "/v1/d/doc/1?parse=false",
        "/v1/d?generation=1",
        "/v1/d/judgements/qrels?format=beir",
        "/?q=dog",
        "/healthz?from=somebody",
    ):
        assert client.get(address).status == 200, address


# Bodies and names


@pytest.mark.parametrize(
    ("body", "headers", "message"),
    [
        (
            b'{"query": "dog"}',
            {"content-type": "application/x-www-form-urlencoded"},  # as curl -d sends it
            "the body must be JSON and say so: send it with the header Content-Type: application/json",
        ),
        (b'{"query": "dog"}', {}, "the body must be JSON and say so: send it with the header Content-Type"),
        (b'["dog"]', JSON, "the body must be a JSON object with named fields, as in {...}"),
        (b'"dog"', {"content-type": "application/json; charset=utf-8"}, "the body must be a JSON object"),
        (b"{", JSON, "the body is not JSON"),
    ],
)
def test_bodies_that_are_no_json_object(client: Client, body: bytes, headers: dict[str, str], message: str) -> None:
    answer = client.send("POST", "/v1/d/search", body, headers)
    assert (answer.status, answer.error[: len(message)]) == (400, message)


def test_an_index_that_is_not_here(client: Client) -> None:
    assert client.get("/v1/nope").error == "there is no index 'nope' here; the indexes here are 'd' and 'pq'"


def test_a_document_whose_text_is_null(client: Client) -> None:
    answer = client.add("d", [{"id": "1", "text": None}])
    assert answer.status == 400
    assert answer.error.endswith("the document '1' has null in the field 'text'; expected a text")


# Query expansion over HTTP


def test_the_augmenter_of_vizsla(client: Client, folder: Path) -> None:
    assert client.get("/v1/d").data["expanders"] == ["rm3", "general"]
    found = client.post("/v1/d/search", {"query": "which dog barks?", "expand": "general"})
    assert found.data["model"] == "bm25 with general"
    hits = [(hit["id"], hit["score"]) for hit in found.data["results"][0]["hits"]]
    with Index.open(folder) as index:
        (own,) = (part.component for part in index.model.parts)
        expected = index.search("which dog barks?", model=own.expand(Augmenter.load("general")))  # type: ignore[attr-defined]
    assert hits == [(hit.id, hit.score) for hit in expected]
    by_get = client.get("/v1/d/search", query="which dog barks?", expand="general").data["candidates"]
    assert [(hit["docid"], hit["score"]) for hit in by_get] == hits


def test_a_folder_called_general_is_not_opened(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "general").mkdir()
    (tmp_path / "general" / augmenter.ABOUT).write_text("{")
    monkeypatch.chdir(tmp_path)
    augmenter._general_augmenter.cache_clear()
    assert client.post("/v1/d/search", {"query": "dog", "expand": "general"}).status == 200


def test_without_the_weights_of_the_augmenter(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmenter, "SHIPPED", tmp_path)
    augmenter._general_augmenter.cache_clear()
    with served({"d": folder}) as client:
        assert client.get("/v1/d").data["expanders"] == ["rm3"]
        answer = client.post("/v1/d/search", {"query": "dog", "expand": "general"})
        assert answer.status == 400
        assert "are not installed; get them (35 MB) with: pip install 'vizsla[augmenter]'" in answer.error
    monkeypatch.undo()
    augmenter._general_augmenter.cache_clear()


@pytest.mark.parametrize("expand", ["augmenter", "augmenter(network=general)", "/etc", "rm33", "gar(file=/etc/passwd)"])
def test_other_expanders_are_refused_with_a_way_that_works(
    client: Client, folder: Path, tmp_path: Path, expand: str
) -> None:
    answer = client.post("/v1/d/search", {"query": "dog", "expand": expand})
    assert answer.status == 400
    way = "start the server with --expander NAME=EXPANDER for synonyms from a file or an augmenter of your own"
    assert "only 'rm3' and 'general'" in answer.error
    assert way in answer.error
    Augmenter.load("general").save(tmp_path / "mine")
    with served({"d": folder}, expanders={"mine": str(tmp_path / "mine")}) as other:
        assert other.post("/v1/d/search", {"query": "dog", "expand": "mine"}).status == 200


# In Python


def test_a_search_option_that_does_not_exist(folder: Path) -> None:
    options = "model, combine, search_params, approximate, threads, syntax, language, timeout, typos, total, "
    options += "max_tokens, offset, sort, collapse, min_score, passages, window"
    with Index.open(folder) as index:
        for wrong in (
            lambda: index.search("dog", nope=1),  # type: ignore[call-arg]
            lambda: index.search_many(["dog"], nope=1),  # type: ignore[call-arg]
            lambda: index.run({"1": "dog"}, nope=1),  # type: ignore[call-arg]
            lambda: index.with_model("bm25", nope=1),  # type: ignore[call-arg]
        ):
            with pytest.raises(VizslaError) as raised:
                wrong()
            assert str(raised.value) == f"unknown search option 'nope'; known: {options}"
        with pytest.raises(VizslaError, match="unknown search option 'thread'; did you mean 'threads'"):
            index.search("dog", thread=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"title": "dog"}, "among its fields 'title'; name it with --id-field, or in Python call it 'id'"),
        ({"id": "1", "txt": "dog"}, "fields 'txt'; name another with --text-field, or in Python call it 'text'"),
        ({"id": "1", "text": None}, "the document '1' has null in the field 'text'; expected a text"),
    ],
)  # fmt: skip
def test_documents_of_a_program(tmp_path: Path, document: dict[str, object], message: str) -> None:
    with Index.create(tmp_path / "x.index") as index, pytest.raises(VizslaError) as raised:
        index.add([document])
    assert message in str(raised.value)


def test_a_file_of_an_unknown_format(tmp_path: Path) -> None:
    (tmp_path / "x.xyz").write_text("dog")
    with pytest.raises(VizslaError) as raised:
        list(read_documents(tmp_path / "x.xyz"))
    for ending in (".jsonl", ".json", ".md", ".html", ".csv", ".pdf"):
        assert f" {ending}" in str(raised.value)
    assert "--format (in Python format=)" in str(raised.value)


def test_a_field_to_count_that_no_document_has(client: Client) -> None:
    answer = client.post("/v1/d/search", {"query": "dog", "facets": {"fields": ["yaer"]}})
    assert answer.error == (
        "no document has a value in the field 'yaer' that can be counted or sorted by: a text, a number, true or "
        "false; did you mean 'year'?"
    )
