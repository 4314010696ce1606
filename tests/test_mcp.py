"""Tools for assistants: what they answer, in memory, over standard input and output, and over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from served import running
from vizsla import Index, VizslaError
from vizsla.server.hosting import Hosting
from vizsla.server.mcp import McpApp, mcp_server
from vizsla.server.settings import Settings
from waiting import LIMIT

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
    return built(tmp_path / "dogs.index")


@contextmanager
def hosting(**indexes: Path) -> Iterator[Hosting]:
    """The indexes of a server, open."""
    opened = Hosting(Settings({name: str(folder) for name, folder in indexes.items()}))
    opened.open()
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def dogs(folder: Path) -> Iterator[Hosting]:
    with hosting(dogs=folder) as opened:
        yield opened


def built(folder: Path, model: str = "bm25", documents: list[dict[str, Any]] = DOCUMENTS, **options: Any) -> Path:
    with Index.create(folder, model, **options) as index:
        index.add(documents)
        index.commit()
    return folder


def call(over: Hosting, tool: str, **arguments: object) -> Any:
    """What a tool answers to the SDK's client, in memory: structured content, or the sentence of an error."""
    from mcp.client import Client

    async def ask() -> Any:
        async with Client(mcp_server(over, polls=True)) as client:
            result = await client.call_tool(tool, arguments)
        assert len(result.content) == 1
        if result.is_error:
            return result.content[0].text  # type: ignore[union-attr]
        assert json.loads(result.content[0].text) == result.structured_content  # type: ignore[union-attr]
        return result.structured_content

    return asyncio.run(ask())


def test_tools_are_described_typed_and_only_read(dogs: Hosting) -> None:
    from mcp.client import Client

    async def main() -> None:
        async with Client(mcp_server(dogs)) as client:
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


def test_a_search_gives_short_texts(dogs: Hosting) -> None:
    answer = call(dogs, "search", query="zebra barking dogs")
    hits = dogs["dogs"].index.search("zebra barking dogs")
    assert [(found["id"], found["score"]) for found in answer["results"]] == [(hit.id, hit.score) for hit in hits]
    assert (answer["index"], answer["model"]) == ("dogs", "bm25")
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
    (fish,) = call(dogs, "search", query="fish")["results"]
    assert len(fish["snippet"]) < 700  # of a text that is one long word
    assert "title" not in fish


def test_a_search_takes_a_filter_a_model_and_a_number(dogs: Hosting) -> None:
    for condition in ("year >= 2000", {"year": 2004}, '{"year": 2004}'):
        (found,) = call(dogs, "search", query="bark", filter=condition)["results"]
        assert found["id"] == "d2"
    assert len(call(dogs, "search", query="bark vizsla", k=1)["results"]) == 1
    other = call(dogs, "search", query="bark", model="bm25(k1=3)")
    assert other["model"] == "bm25(k1=3)"
    assert other["results"][0]["score"] == dogs["dogs"].index.search("bark", model="bm25(k1=3)")[0].score
    nothing = call(dogs, "search", query="unicorn", filter="year >= 1")
    assert (nothing["results"], nothing["note"]) == ([], "nothing was found; try other words, or without the filter")


def test_a_document_is_read_in_pages(dogs: Hosting) -> None:
    text, offset, pages = "", 0, 0
    while offset is not None:
        page = call(dogs, "get_document", id="d3", offset=offset)
        assert page["characters"] == len(LONG)
        text, offset, pages = text + page["text"], page.get("next_offset"), pages + 1
    assert (text, pages) == (LONG, 4)
    assert call(dogs, "get_document", id="d2") == {
        "index": "dogs",
        "id": "d2",
        "title": "Cats",
        "text": "Cats do not bark.",
        "offset": 0,
        "characters": 17,
        "fields": {"year": 2004, "source": '{"name": "wire"}'},
    }
    assert call(dogs, "get_document", id="d2", max_characters=4)["next_offset"] == 4
    assert call(dogs, "get_document", id="http://x/4?a=b")["characters"] == 5005


def test_all_of_a_document_can_be_read(tmp_path: Path) -> None:
    texts = {"abstract": "Dogs.", "body": "Cats.", "notes": "n" * 300, "more": [1] * 200}
    with hosting(i=built(tmp_path / "i", "bm25(fields=abstract/body)", [{"id": 7, "title": "T", **texts}])) as over:
        page = call(over, "get_document", id=7)
        assert page["text"].startswith("abstract: Dogs.\n\nbody: Cats.\n\nnotes: nnn")
        assert "more: [1, 1" in page["text"]
        assert page["title"] == "T"
        assert "fields" not in page
        for query, snippet in (("dogs", "Dogs."), ("cats", "Cats.")):
            (found,) = call(over, "search", query=query)["results"]
            assert found["snippet"] == snippet


def test_an_index_without_texts_says_so(tmp_path: Path) -> None:
    with hosting(i=built(tmp_path / "i", store=False)) as over:
        assert "does not store" in call(over, "search", query="dogs")["note"]
        page = call(over, "get_document", id="d1")
        assert "does not store" in page["note"]
        assert page["fields"]["year"] == 1999


def test_a_passage_has_its_number(tmp_path: Path) -> None:
    with hosting(i=built(tmp_path / "i", passages=20)) as over:
        (found,) = call(over, "search", query="zebra")["results"]
        assert (found["id"], found["passage"]) == ("d3", over["i"].index.search("zebra")[0].passage)
        assert call(over, "get_document", id="d3")["characters"] == len(LONG)


def test_an_explanation_adds_up(dogs: Hosting) -> None:
    answer = call(dogs, "explain", query="barking dogs", id="d1")
    explanation = dogs["dogs"].index.explain("barking dogs", "d1")
    (part,) = answer["parts"]
    assert (answer["score"], answer["id"], answer["model"]) == (explanation.score, "d1", "bm25")
    assert [term["term"] for term in part["terms"]] == ["dog", "bark"]
    assert sum(term["score"] for term in part["terms"]) == pytest.approx(answer["score"])
    assert "in 1 document" in part["terms"][0]["why"]


def test_the_parts_of_a_sum_are_explained(tmp_path: Path) -> None:
    model = "bm25(fields=title, namespace=titles) + 0.5 * bm25(fields=text, namespace=texts)"
    with hosting(i=built(tmp_path / "i", model)) as over:
        both = call(over, "explain", query="dogs", id="d1")
    assert sum(part["score"] for part in both["parts"]) == pytest.approx(both["score"])
    assert [part.get("weight") for part in both["parts"]] == [None, 0.5]


def test_indexes_are_listed_with_what_a_filter_may_name(folder: Path, tmp_path: Path) -> None:
    empty, gone = built(tmp_path / "empty", documents=[]), tmp_path / "gone"
    with hosting(dogs=folder, empty=empty, gone=gone) as over:
        first, second, third = call(over, "list_indexes")["indexes"]
    assert first == {
        "name": "dogs",
        "documents": 4,
        "model": "bm25",
        "text_fields": ["title", "text"],
        "filter_fields": {"year": 1999, "tags": ["pet", "loud"], "source.name": "wire"},
    }
    assert (second["documents"], second["filter_fields"]) == (0, {})
    assert third.keys() == {"name", "unavailable"}
    assert str(tmp_path) not in third["unavailable"]


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
        ("search", {"query": "dogs", "model": "dense(checkpoint=/etc)"}, "a request cannot name the model dense"),
        ("search", {"query": "dogs", "index": "dogz"}, "there is no index 'dogz' here; the index here is 'dogs'"),
        ("get_document", {"id": "nobody"}, "there is no document with the id 'nobody' in dogs"),
        ("get_document", {"id": "d2", "offset": 18}, "the text of 'd2' has 17 characters, so none from 18 on"),
        ("explain", {"query": "dogs", "id": "nobody"}, "there is no document with the id 'nobody'"),
        ("nothing", {}, "Unknown tool: nothing"),
    ],
)
def test_mistakes_are_one_sentence(dogs: Hosting, tool: str, arguments: dict[str, object], sentence: str) -> None:
    told = call(dogs, tool, **arguments)
    assert told.startswith(sentence)
    assert "\n" not in told


def test_several_indexes_must_be_named_and_paths_are_not_shown(folder: Path) -> None:
    with hosting(dogs=folder, cats=folder) as over:
        assert call(over, "search", query="dogs") == "there are several indexes; name one of them: dogs, cats"
        assert call(over, "search", query="dogs", index="cats")["index"] == "cats"
        over.close()
        assert call(over, "search", query="dogs", index="dogs") == "dogs: the index has been closed"


def test_new_commits_are_seen(dogs: Hosting, folder: Path) -> None:
    assert call(dogs, "search", query="unicorn")["results"] == []
    with Index.open(folder) as writer:
        writer.add([{"id": "u", "text": "A unicorn.", "colour": "white"}])
        writer.commit()
    assert call(dogs, "search", query="unicorn")["results"][0]["id"] == "u"
    assert call(dogs, "list_indexes")["indexes"][0]["filter_fields"]["colour"] == "white"


def test_a_bug_shows_nothing_of_itself(dogs: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(Index, "search", fail)
    assert call(dogs, "search", query="dogs") == "Error executing tool search"


def test_the_root_logger_is_left_alone(dogs: Hosting) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    mcp_server(dogs)
    assert (root.handlers, root.level) == before


# Over HTTP


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[int]:
    """The port of an ASGI application that uvicorn serves in this event loop."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off"))
    running = asyncio.create_task(server.serve())
    async with asyncio.timeout(LIMIT):
        while not server.started:
            await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await running


def test_the_sdk_s_client_lists_and_calls_over_http(dogs: Hosting) -> None:
    from mcp.client import Client

    made = 0

    def make() -> Any:
        nonlocal made
        made += 1
        return mcp_server(dogs)

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


def test_a_server_has_the_tools_at_mcp(folder: Path, tmp_path: Path) -> None:
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client

    keys = tmp_path / "keys"
    keys.write_text("read a-key-for-reading\n")
    keys.chmod(0o600)

    async def main(url: str) -> None:
        import httpx2

        headers = {"Authorization": "Bearer a-key-for-reading"}
        async with httpx2.AsyncClient(timeout=LIMIT) as refused:
            assert (await refused.post(f"{url}/mcp", json=CALL)).status_code == 401
        async with httpx2.AsyncClient(headers=headers, timeout=LIMIT) as http:  # noqa: SIM117
            async with Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client:
                assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
                for _ in range(8):
                    result = await client.call_tool("search", {"query": "dogs"})
                    assert result.structured_content["results"][0]["id"] == "d1"  # type: ignore[index]
                with Index.open(folder) as writer:
                    writer.add([{"id": "u", "text": "A unicorn."}])
                    writer.commit()

                async def first(query: str) -> list[str]:
                    result = await client.call_tool("search", {"query": query})
                    return [hit["id"] for hit in result.structured_content["results"][:1]]  # type: ignore[index]

                async with asyncio.timeout(LIMIT):
                    while [await first("unicorn") for _ in range(8)] != [["u"]] * 8:
                        await asyncio.sleep(0.05)

    with running(f"dogs={folder}", "--keys", keys, "--workers", "2") as server:
        asyncio.run(main(server.client.url))
        assert server.stop() == 0
        assert not any("Traceback" in line for line in server.log)


CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search", "arguments": {"query": "dogs"}}}
TAKES = {"accept": "application/json, text/event-stream"}


def test_each_http_answer_is_one_piece_of_json_without_a_session(dogs: Hosting) -> None:
    import httpx2

    async def main() -> None:
        app = McpApp(lambda: mcp_server(dogs))
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


def test_only_named_hosts_are_answered(dogs: Hosting) -> None:
    import httpx2

    async def status(hosts: tuple[str, ...] | None, **headers: str) -> int:
        app = McpApp(lambda: mcp_server(dogs), hosts)
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


# Over standard input and output


def test_the_sdk_s_client_lists_and_calls_over_stdio(folder: Path) -> None:
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters

    command = StdioServerParameters(
        command=sys.executable, args=["-m", "vizsla", "mcp", f"dogs={folder}"], env=dict(os.environ)
    )

    async def main() -> None:
        async with Client(command) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
            for query, first in (("dogs", "d1"), ("cats", "d2")):
                result = await client.call_tool("search", {"query": query})
                assert result.structured_content["results"][0]["id"] == first  # type: ignore[index]
            result = await client.call_tool("search", {"query": "dogs", "model": "dense(checkpoint=/etc)"})
            assert result.is_error
            with Index.open(folder) as writer:
                writer.add([{"id": "u", "text": "A unicorn."}])
                writer.commit()
            result = await client.call_tool("search", {"query": "unicorn"})
            assert result.structured_content["results"][0]["id"] == "u"  # type: ignore[index]

    asyncio.run(main())


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """`vizsla mcp` as a client starts it, ready."""
    command = [sys.executable, "-m", "vizsla", "mcp", *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def ask(process: subprocess.Popen[bytes], message: dict[str, Any]) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


@pytest.mark.parametrize("end", ["closed stdout", "SIGINT", "SIGTERM"])
def test_it_ends_quietly(folder: Path, end: str) -> None:
    with started(folder) as process:
        assert ask(process, HELLO)["result"]["serverInfo"]["name"] == "vizsla"
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        if end == "closed stdout":
            process.stdout.close()
            process.stdin.write(json.dumps({**CALL, "method": "tools/list", "params": {}}).encode() + b"\n")
            process.stdin.flush()
        else:
            process.send_signal(signal.Signals[end])
        assert process.wait(LIMIT) == 0
        assert process.stderr.read() == b""
        if end != "closed stdout":
            assert process.stdout.read() == b""


def test_only_the_protocol_is_written_to_standard_output(folder: Path) -> None:
    """What a plugin prints, also by way of a child process, goes to standard error."""
    plugin = folder.parent / "talkative.py"
    plugin.write_text(
        "import os, vizsla.index.index as i\n"
        "search = i.Index.search\n"
        "def talk(*a, **k):\n"
        "    print('printed'); os.system('echo echoed')\n"
        "    return search(*a, **k)\n"
        "i.Index.search = talk\n"
    )
    code = f"import runpy, sys; exec(open({str(plugin)!r}).read()); sys.argv = ['vizsla', 'mcp', {str(folder)!r}]; "
    code += "runpy.run_module('vizsla', run_name='__main__')"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        ask(process, HELLO)
        assert ask(process, CALL)["result"]["structuredContent"]["results"][0]["id"] == "d1"
        out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out) == (0, b"")
    assert b"printed" in err
    assert b"echoed" in err


def test_garbage_is_answered_or_passed_over_until_the_input_ends(folder: Path) -> None:
    with started(folder) as process:
        ask(process, HELLO)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"garbage\n\xff\xfe\n" + b"[" * 100_000 + b"\n\n")
        while "id" not in (told := ask(process, CALL)) or told["id"] != 1:
            assert told.get("error") or told.get("method") == "notifications/message"
        assert told["result"]["structuredContent"]["results"][0]["id"] == "d1"
        process.stdin.close()
        assert process.wait(LIMIT) == 0
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing.index"], "nothing.index: "),
        (["bad name!=x"], ""),
        ([], "Usage: vizsla mcp"),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(cli: Cli, arguments: list[str], sentence: str) -> None:
    code, out, err = cli("mcp", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err


def test_without_the_sdk_one_sentence_says_what_to_install(folder: Path, cli: Cli, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "vizsla.server.mcp_tools", raising=False)
    code, out, err = cli("mcp", folder)
    assert (code, out) == (2, "")
    assert "vizsla[mcp]" in err
    assert err.count("\n") == 1
