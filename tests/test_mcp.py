"""Tools for assistants: what they answer, in memory, over standard input and output, and over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from vizsla import Index, VizslaError, parse_model
from vizsla.models import Model
from vizsla.server.mcp import McpApp, mcp_server

pytest.importorskip("mcp")

LONG = "The vizsla points and retrieves. " * 400 + "Only at the end a zebra appears."
DOCUMENTS = [
    {"_id": "d1", "title": "Dogs", "text": "A dog barks at the other dogs.", "year": 1999, "tags": ["pet", "loud"]},
    {"_id": "d2", "title": "Cats", "text": "Cats do not bark.", "year": 2004, "source": {"name": "wire"}},
    {"_id": "d3", "title": "Vizsla", "text": LONG, "year": 2011},
    {"_id": "http://x/4?a=b", "title": "", "text": "w" * 5000 + " fish"},
]
TOOLS = {"search", "get_document", "explain", "list_indexes"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Index.create(tmp_path / "dogs.index") as index:
        index.add(DOCUMENTS)
        index.commit()
    return tmp_path / "dogs.index"


@pytest.fixture
def index(folder: Path) -> Iterator[Index]:
    with Index.open(folder) as opened:
        yield opened


def model_of(_: Index, text: str) -> Model:
    if "(" in text and "checkpoint" in text:
        raise VizslaError("a request cannot name files")
    return parse_model(text)


def call(indexes: dict[str, Any], tool: str, **arguments: object) -> Any:
    """What a tool answers to the SDK's client, in memory: structured content, or the sentence of an error."""
    from mcp.client import Client

    async def ask() -> Any:
        async with Client(mcp_server(indexes, model_of)) as client:
            result = await client.call_tool(tool, arguments)
        assert len(result.content) == 1
        if result.is_error:
            return result.content[0].text  # type: ignore[union-attr]
        assert json.loads(result.content[0].text) == result.structured_content  # type: ignore[union-attr]
        return result.structured_content

    return asyncio.run(ask())


def test_tools_are_described_typed_and_only_read(index: Index) -> None:
    from mcp.client import Client

    async def main() -> None:
        async with Client(mcp_server({"dogs": index}, model_of)) as client:
            assert "get_document" in (client.instructions or "")
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == TOOLS
        for tool in tools.values():
            assert len(tool.description or "") > 100
            assert "Use this" in (tool.description or "") or "Read the text" in (tool.description or "")
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is True
            assert tool.annotations.destructive_hint is False
            assert tool.output_schema is not None
            assert tool.output_schema["type"] == "object"
            for name, schema in tool.input_schema["properties"].items():
                assert schema.get("description"), name
        found = tools["search"].output_schema["$defs"]["FoundDocument"]  # type: ignore[index]
        assert found["properties"]["score"]["type"] == "number"
        assert "cut" in found["properties"]["snippet"]["description"]
        assert tools["search"].input_schema["properties"]["k"]["maximum"] == 100

    asyncio.run(main())


def test_a_search_gives_short_texts(index: Index) -> None:
    answer = call({"dogs": index}, "search", query="zebra barking dogs")
    hits = index.search("zebra barking dogs")
    assert [(found["id"], found["score"]) for found in answer["results"]] == [(hit.id, hit.score) for hit in hits]
    assert answer["index"], answer["model"] == ("dogs", "bm25")
    by_id = {found["id"]: found for found in answer["results"]}
    assert by_id["d1"] == {
        "rank": by_id["d1"]["rank"],
        "id": "d1",
        "score": by_id["d1"]["score"],
        "title": "Dogs",
        "snippet": "A dog barks at the other dogs.",
        "fields": {"year": 1999, "tags": ["pet", "loud"]},
    }
    assert by_id["d3"]["snippet"].startswith("… ")
    assert by_id["d3"]["snippet"].endswith("zebra appears.")
    assert len(by_id["d3"]["snippet"]) < 400
    (fish,) = call({"dogs": index}, "search", query="fish")["results"]
    assert len(fish["snippet"]) < 700  # of a text that is one long word
    assert "title" not in fish


def test_a_search_takes_a_filter_a_model_and_a_number(index: Index) -> None:
    indexes = {"dogs": index}
    for condition in ("year >= 2000", {"year": 2004}, '{"year": 2004}'):
        (found,) = call(indexes, "search", query="bark", filter=condition)["results"]
        assert found["id"] == "d2"
    assert len(call(indexes, "search", query="bark vizsla", k=1)["results"]) == 1
    other = call(indexes, "search", query="bark", model="bm25(k1=3)")
    assert other["model"] == "bm25(k1=3)"
    assert other["results"][0]["score"] == index.search("bark", model="bm25(k1=3)")[0].score
    nothing = call(indexes, "search", query="unicorn", filter="year >= 1")
    assert (nothing["results"], nothing["note"]) == ([], "nothing was found; try other words, or without the filter")


def test_a_document_is_read_in_pages(index: Index) -> None:
    indexes = {"dogs": index}
    text, offset, pages = "", 0, 0
    while offset is not None:
        page = call(indexes, "get_document", id="d3", offset=offset)
        assert page["characters"] == len(LONG)
        text, offset, pages = text + page["text"], page.get("next_offset"), pages + 1
    assert (text, pages) == (LONG, 4)
    assert call(indexes, "get_document", id="d2") == {
        "index": "dogs",
        "id": "d2",
        "title": "Cats",
        "text": "Cats do not bark.",
        "offset": 0,
        "characters": 17,
        "fields": {"year": 2004, "source": '{"name": "wire"}'},
    }
    assert call(indexes, "get_document", id="d2", max_characters=4)["next_offset"] == 4
    assert call(indexes, "get_document", id="http://x/4?a=b")["characters"] == 5005


def test_all_of_a_document_can_be_read(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", "bm25(fields=abstract/body)") as index:
        index.add(
            [{"id": 7, "title": "T", "abstract": "Dogs.", "body": "Cats.", "notes": "n" * 300, "more": [1] * 200}]
        )
        index.commit()
        page = call({"i": index}, "get_document", id=7)
        text = page["text"]
        assert text.startswith("abstract: Dogs.\n\nbody: Cats.\n\nnotes: nnn")
        assert "more: [1, 1" in text
        assert page["title"] == "T"
        assert "fields" not in page
        (found,) = call({"i": index}, "search", query="cats")["results"]
        assert found["snippet"] == "Dogs."  # of the first field that the model reads


def test_an_index_without_texts_says_so(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", store=False) as index:
        index.add(DOCUMENTS)
        index.commit()
        assert "does not store" in call({"i": index}, "search", query="dogs")["note"]
        page = call({"i": index}, "get_document", id="d1")
        assert "does not store" in page["note"]
        assert page["fields"]["year"] == 1999


def test_a_passage_has_its_number(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", passages=20) as index:
        index.add(DOCUMENTS)
        index.commit()
        (found,) = call({"i": index}, "search", query="zebra")["results"]
        assert (found["id"], found["passage"]) == ("d3", index.search("zebra")[0].passage)
        assert call({"i": index}, "get_document", id="d3")["characters"] == len(LONG)


def test_an_explanation_adds_up(index: Index) -> None:
    answer = call({"dogs": index}, "explain", query="barking dogs", id="d1")
    explanation = index.explain("barking dogs", "d1")
    (part,) = answer["parts"]
    assert (answer["score"], answer["id"], answer["model"]) == (explanation.score, "d1", "bm25")
    assert [term["term"] for term in part["terms"]] == ["dog", "bark"]
    assert sum(term["score"] for term in part["terms"]) == pytest.approx(answer["score"])
    assert "in 1 document" in part["terms"][0]["why"]
    both = call({"dogs": index}, "explain", query="dogs", id="d1", model="bm25 + 0.5 * bm25(k1=2)")
    assert sum(part["score"] for part in both["parts"]) == pytest.approx(both["score"])
    assert [part.get("weight") for part in both["parts"]] == [None, 0.5]


def test_indexes_are_listed_with_what_a_filter_may_name(index: Index, tmp_path: Path) -> None:
    with Index.create(tmp_path / "empty") as empty:
        first, second = call({"dogs": index, "empty": lambda: empty}, "list_indexes")["indexes"]
    assert first == {
        "name": "dogs",
        "documents": 4,
        "model": "bm25",
        "text_fields": ["title", "text"],
        "filter_fields": {"year": 1999, "tags": ["pet", "loud"], "source.name": "wire"},
    }
    assert (second["documents"], second["filter_fields"]) == (0, {})


@pytest.mark.parametrize(
    ("tool", "arguments", "sentence"),
    [
        ("search", {"query": ""}, "the query is empty; give at least one word"),
        ("search", {"query": "dogs", "k": 101}, "k: Input should be less than or equal to 100"),
        ("search", {"query": "dogs", "k": "many"}, "k: Input should be a valid integer"),
        ("search", {}, "query: Field required"),
        ("search", {"query": "x" * 5000}, "query: String should have at most 4096 characters"),
        ("search", {"query": "dogs", "filter": "year >"}, "the filter ends too early"),
        ("search", {"query": "dogs", "model": "bm225"}, "unknown model 'bm225'; did you mean 'bm25'?"),
        ("search", {"query": "dogs", "model": "dense(checkpoint=/etc)"}, "a request cannot name files"),
        ("search", {"query": "dogs", "index": "dogz"}, "unknown index 'dogz'; did you mean 'dogs'?"),
        ("get_document", {"id": "nobody"}, "there is no document with the id 'nobody' in dogs"),
        ("get_document", {"id": "d2", "offset": 18}, "the text of 'd2' has 17 characters, so none from 18 on"),
        ("explain", {"query": "dogs", "id": "nobody"}, "there is no document with the id 'nobody'"),
        ("nothing", {}, "Unknown tool: nothing"),
    ],
)
def test_mistakes_are_one_sentence(index: Index, tool: str, arguments: dict[str, object], sentence: str) -> None:
    told = call({"dogs": index}, tool, **arguments)
    assert told.startswith(sentence)
    assert "\n" not in told


def test_several_indexes_must_be_named_and_paths_are_not_shown(index: Index, tmp_path: Path) -> None:
    indexes = {"dogs": index, "cats": index}
    assert call(indexes, "search", query="dogs") == "there are several indexes; name one of them: dogs, cats"
    assert call(indexes, "search", query="dogs", index="cats")["index"] == "cats"
    index.close()
    told = call({"dogs": index}, "search", query="dogs")
    assert told == "dogs: the index has been closed"

    def broken() -> Index:
        raise VizslaError(f"{tmp_path}/secret/place: it is gone")

    assert str(tmp_path) not in call({"dogs": broken}, "search", query="dogs")


def test_a_bug_shows_nothing_of_itself(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(Index, "search", fail)
    assert call({"dogs": index}, "search", query="dogs") == "Error executing tool search"


def test_the_root_logger_is_left_alone(index: Index) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    mcp_server({"dogs": index}, model_of)
    assert (root.handlers, root.level) == before


# Over HTTP


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[int]:
    """The port of an ASGI application that uvicorn serves in this event loop."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off"))
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await running


def test_the_sdk_s_client_lists_and_calls_over_http(index: Index) -> None:
    from mcp.client import Client

    made = 0

    def make() -> Any:
        nonlocal made
        made += 1
        return mcp_server({"dogs": index}, model_of)

    async def main() -> None:
        app = McpApp(make)
        async with served(app) as port:
            assert made == 0
            for mode in ("auto", "legacy"):
                async with Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:
                    assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
                    results = await asyncio.gather(
                        *(client.call_tool("search", {"query": query}) for query in ["dogs", "cats", "vizsla"] * 4)
                    )
                    first = [result.structured_content["results"][0]["id"] for result in results]  # type: ignore[index]
                    assert first == ["d1", "d2", "d3"] * 4
        await app.close()
        assert made == 1

    asyncio.run(main())


CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search", "arguments": {"query": "dogs"}}}
TAKES = {"accept": "application/json, text/event-stream"}


def test_each_http_answer_is_one_piece_of_json_without_a_session(index: Index) -> None:
    import httpx2

    async def main() -> None:
        app = McpApp(lambda: mcp_server({"dogs": index}, model_of))
        async with (
            served(app) as port,
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=TAKES) as client,
        ):
            answer = await client.post("/mcp", json=CALL)
            assert answer.headers["content-type"] == "application/json"
            assert "mcp-session-id" not in answer.headers
            assert answer.json()["result"]["structuredContent"]["results"][0]["id"] == "d1"
            for method in ("GET", "DELETE", "PUT"):
                answer = await client.request(method, "/mcp")
                assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
                assert "POST" in answer.json()["error"]
            assert (await client.post("/mcp", content=b"{")).status_code == 400
            large = {**CALL, "params": {"name": "search", "arguments": {"query": "x" * (2 << 20)}}}
            assert (await client.post("/mcp", json=large)).status_code == 413
        await app.close()

    asyncio.run(main())


def test_only_named_hosts_are_answered(index: Index) -> None:
    import httpx2

    async def status(hosts: tuple[str, ...] | None, **headers: str) -> int:
        app = McpApp(lambda: mcp_server({"dogs": index}, model_of), hosts)
        async with served(app) as port, httpx2.AsyncClient() as client:
            sent = {**TAKES, **{name: value.replace("PORT", str(port)) for name, value in headers.items()}}
            answer = await client.post(f"http://127.0.0.1:{port}/mcp", json=CALL, headers=sent)
        await app.close()
        return int(answer.status_code)

    async def main() -> None:
        assert await status(()) == 200
        assert await status((), host="localhost:PORT", origin="http://localhost:6274") == 200
        assert await status((), host="evil.example") == 421
        assert await status((), origin="http://evil.example") == 403
        assert await status(("search.example",), host="search.example") == 200
        assert await status(("search.example",), host="search.example:8080", origin="https://search.example") == 200
        assert await status(None, host="evil.example") == 200

    asyncio.run(main())


def test_without_the_sdk_http_says_what_to_install() -> None:
    import httpx2

    def make() -> Any:
        raise VizslaError('install it with: pip install "vizsla[mcp]"')

    async def main() -> None:
        app = McpApp(make)
        async with served(app) as port, httpx2.AsyncClient() as client:
            answer = await client.post(f"http://127.0.0.1:{port}/mcp", json=CALL)
            assert (answer.status_code, "vizsla[mcp]" in answer.json()["error"]) == (503, True)
        await app.close()

    asyncio.run(main())
