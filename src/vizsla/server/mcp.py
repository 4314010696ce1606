"""The Model Context Protocol: indexes as tools for assistants, over standard input and output or over HTTP.

The SDK takes seconds to import, so it is imported when a server is made.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from vizsla.server.hosting import Hosting

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_BODY = 1 << 20
_MISSING = 'the tools for assistants need the package mcp; install it with: pip install "vizsla[mcp]"'

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def mcp_server(hosting: Hosting, *, polls: bool = False) -> MCPServer[Any]:
    """A server with the tools `search`, `get_document`, `explain` and `list_indexes` over the indexes of a hosting.

    `polls`: look for new commits before each call, where nothing else polls the hosting.
    """
    try:
        from vizsla.server.mcp_tools import make_server
    except ModuleNotFoundError as e:
        if (e.name or "").startswith("vizsla"):
            raise
        raise VizslaError(_MISSING) from None
    return make_server(hosting, polls)


class McpApp:
    """The tools as an ASGI application: streamable HTTP, without sessions, each answer one piece of JSON.

    It keeps no state between requests, so any worker process may answer. It is created at the first request, which
    takes seconds, and needs no lifespan of its own. Use it in a route for all methods, and close it when the
    application stops:

        tools = McpApp(lambda: mcp_server(hosting))
        app.router.routes.append(Route("/mcp", endpoint=tools))
        ...
        await tools.close()  # at the end of the lifespan

    `hosts`: the names that are allowed in the header `Host`, with any port, besides those of this machine; browsers may
    send requests from pages of these hosts. This protects against DNS rebinding, in which a foreign site lets its name
    resolve to this machine. None: any host, for a server that checks this itself.
    """

    def __init__(self, make: Callable[[], MCPServer[Any]], hosts: Sequence[str] | None = ()) -> None:
        self._make = make
        self._hosts = hosts
        self._manager: Any = None
        self._owner: asyncio.Task[None] | None = None
        self._starting: asyncio.Lock | None = None
        self._stop: asyncio.Event | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"an MCP application takes HTTP requests, not {scope['type']}")
        if scope["method"] != "POST":
            await _refuse(send, 405, "send MCP messages with POST; this server opens no streams", (b"allow", b"POST"))
            return
        try:
            manager = await self._started()
        except VizslaError as e:
            await _refuse(send, 503, str(e))
            return
        await manager.handle_request(scope, receive, send)

    async def close(self) -> None:
        """Release the resources of requests; must be awaited in the loop that served them."""
        if self._owner is not None and self._stop is not None:
            self._stop.set()
            await self._owner
        self._manager = self._owner = self._stop = None

    async def _started(self) -> Any:
        """The SDK's running session manager, in its own task, since one task must enter and leave its context."""
        if self._manager is not None:
            return self._manager
        self._starting = self._starting or asyncio.Lock()
        async with self._starting:
            if self._manager is None:
                manager = await asyncio.to_thread(self._session_manager)
                self._stop, ready = asyncio.Event(), asyncio.Event()
                self._owner = asyncio.create_task(_own(manager, ready, self._stop))
                await ready.wait()
                self._manager = manager
        return self._manager

    def _session_manager(self) -> Any:
        server = self._make()
        server.streamable_http_app(
            json_response=True,
            stateless_http=True,
            max_request_body_size=MAX_BODY,
            transport_security=_security(self._hosts),
        )
        return server.session_manager


async def _own(manager: Any, ready: asyncio.Event, stop: asyncio.Event) -> None:
    async with manager.run():
        ready.set()
        await stop.wait()


async def _refuse(send: Send, status: int, sentence: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": sentence}).encode()
    sent = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


def _security(hosts: Sequence[str] | None) -> Any:
    """Which hosts and origins a request may name; the SDK compares them with and without a port."""
    from mcp.server.transport_security import TransportSecuritySettings

    if hosts is None:
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    names = [name for host in (*LOOPBACK, *hosts) for name in (host, f"{host}:*")]
    origins = [f"{scheme}://{name}" for scheme in ("http", "https") for name in names]
    return TransportSecuritySettings(allowed_hosts=names, allowed_origins=origins)


# Standard input and output


def serve_stdio(server: MCPServer[Any]) -> None:
    """Serve a client over standard input and output, until it closes them or a signal stops the program.

    Everything else that is printed to standard output in the meantime goes to standard error.
    """
    import anyio

    try:
        anyio.run(_serve_stdio, server)
    except* (BrokenPipeError, ConnectionError):
        pass  # the client has gone


async def _serve_stdio(server: MCPServer[Any]) -> None:
    import signal

    import anyio
    from mcp.server.stdio import stdio_server

    low = server._lowlevel_server

    async def stop_on_signal(scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                scope.cancel()
                return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop_on_signal, tasks.cancel_scope)
        async with stdio_server(stdin=_Lines(0)) as (read, write):  # type: ignore[arg-type]
            await low.run(read, write, low.create_initialization_options())
        tasks.cancel_scope.cancel()


class _Lines:
    """The lines of a file descriptor, to be iterated over in an event loop.

    A daemon thread reads them, which, unlike the SDK's, does not keep the process alive while it waits for a line.
    """

    def __init__(self, descriptor: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        threading.Thread(target=self._read, args=(descriptor,), daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[str]:
        begun: list[bytes] = []  # of a line whose end has not come
        while chunk := await self._queue.get():
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                yield b"".join([*begun, end]).decode("utf-8", "replace")
                begun.clear()
            begun.append(rest)
        if any(begun):
            yield b"".join(begun).decode("utf-8", "replace")

    def _read(self, descriptor: int) -> None:
        try:
            while chunk := os.read(descriptor, 1 << 16):
                self._loop.call_soon_threadsafe(self._queue.put_nowait, chunk)
            self._loop.call_soon_threadsafe(self._queue.put_nowait, b"")
        except (OSError, RuntimeError):  # the descriptor or the loop is closed
            pass
