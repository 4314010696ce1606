"""Running a server: one process, or several that share a port and are replaced when they die; their connections."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from vizsla.errors import VizslaError
from vizsla.server.app import AppFactory
from vizsla.server.logs import log, set_up
from vizsla.server.settings import Settings

_OWN_FILES = 200  # file descriptors that a worker needs besides its connections


def max_connections() -> int:
    """How many connections a worker may have, so that enough file descriptors are left for everything else."""
    if sys.platform == "win32":
        return 10_000
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 10_000 if allowed == resource.RLIM_INFINITY else max(min(allowed - _OWN_FILES, 10_000), 16)


def http_protocol(seconds: float) -> type[asyncio.Protocol]:
    """A protocol for uvicorn that closes a connection whose request headers take more than this many seconds.

    It also closes connections beyond `max_connections`.
    """
    most = max_connections()

    class Protocol(HttpToolsProtocol):
        _waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.close()
                return
            self._waiting = self.loop.call_later(seconds, self._give_up)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self._waiting is None:
                self._waiting = self.loop.call_later(seconds, self._give_up)

        def on_headers_complete(self) -> None:
            self._stop_waiting()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _stop_waiting(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _give_up(self) -> None:
            self._waiting = None
            if not self.transport.is_closing():
                self.transport.close()

    return Protocol


GRACE = 20
"""The grace period in seconds: how long a server takes to stop at most."""
CLOSING = 5
"""The part of the grace period that is left after requests were cancelled; then a worker is terminated."""
_SHARED_FIGURES = "PROMETHEUS_MULTIPROC_DIR"  # read by prometheus_client when it is imported
_SHORT_LIFE = 5.0  # a worker that ends sooner does not start at once again
_BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; a port in use or an unknown host is an error of one sentence."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise VizslaError(f"--host {host}: this is not the name or address of a machine") from None
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(_BACKLOG)
    except OSError as e:
        opened.close()
        in_use = e.errno == errno.EADDRINUSE
        reason = "is in use; choose another with --port" if in_use else f"cannot be used ({e.strerror})"
        raise VizslaError(f"port {port} of {host} {reason}") from None
    opened.setblocking(False)
    opened.set_inheritable(True)
    return opened


def url_of(opened: socket.socket) -> str:
    """The address of a page that a listening socket serves."""
    host, port = opened.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"


def serve(settings: Settings, opened: socket.socket, announce: Callable[[], None]) -> None:
    """Serve until a signal stops the server; `announce` is called when it accepts requests."""
    set_up(settings.log_format)
    if settings.workers == 1:
        _run_worker(settings, opened, announce)
        return
    folder = tempfile.mkdtemp(prefix="vizsla-serve-")
    os.environ[_SHARED_FIGURES] = folder
    try:
        _Supervisor(settings, opened, announce).run()
    finally:
        del os.environ[_SHARED_FIGURES]
        shutil.rmtree(folder, ignore_errors=True)


def _config(settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        AppFactory(settings), factory=True, lifespan="on", access_log=False, log_level="error", server_header=False,
        timeout_graceful_shutdown=GRACE - CLOSING, timeout_keep_alive=75, ws="none", proxy_headers=False,
        http=http_protocol(settings.limits.seconds), loop="auto", log_config=None,
    )  # fmt: skip


class _Server(uvicorn.Server):
    """A worker that announces when it is ready, and stops some time after a signal even if threads hang."""

    def __init__(self, settings: Settings, announce: Callable[[], None]) -> None:
        super().__init__(_config(settings))
        self._announce = announce
        self._last_resort: threading.Timer | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop. What has not stopped when the grace period is over is terminated with the process."""
        super().handle_exit(sig, frame)
        if self._last_resort is None:
            self._last_resort = threading.Timer(GRACE, _end_at_once)
            self._last_resort.daemon = True
            self._last_resort.start()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run(sockets)
        others = [t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
        if self._last_resort is not None and not others:  # with other threads, Python would wait for them
            self._last_resort.cancel()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM, and do not raise the signal again when that is done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()


def _end_at_once() -> None:
    """Terminate a worker with a hanging thread, such as one that writes to a disk that does not respond."""
    log.error(
        "A request has not finished %g seconds after the signal to stop; the server stops without it. "
        "Committed changes are kept, others are discarded.",
        GRACE,
    )
    os._exit(1)


def _run_worker(settings: Settings, opened: socket.socket, announce: Callable[[], None]) -> None:
    _Server(settings, announce).run([opened])


def _work(settings: Settings, opened: socket.socket, supervisor: Connection) -> None:
    """What a worker process does."""

    def watch() -> None:
        with suppress(EOFError, OSError):
            supervisor.recv()  # nothing is ever sent: this returns when the supervisor has ended
        os.kill(os.getpid(), signal.SIGTERM)

    def announce() -> None:
        supervisor.send(os.getpid())
        threading.Thread(target=watch, daemon=True).start()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_up(settings.log_format)
    _run_worker(settings, opened, announce)


class _Supervisor:
    """Starts workers, replaces those that die, and stops all of them."""

    def __init__(self, settings: Settings, opened: socket.socket, announce: Callable[[], None]) -> None:
        self._settings = settings
        self._socket = opened
        self._announce: Callable[[], None] | None = announce
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[int, tuple[SpawnProcess, Connection, float]] = {}
        self._stopping = False
        self._woken, self._wake = os.pipe()

    def run(self) -> None:
        """Supervise until SIGINT or SIGTERM."""
        handlers = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for _ in range(self._settings.workers):
                self._start()
            while not self._stopping:
                self._wait()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self._end_all()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stopping = True
        os.write(self._wake, b"x")

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(self._settings, self._socket, theirs), daemon=True)
        process.start()
        theirs.close()
        assert process.pid is not None
        self._workers[process.pid] = (process, ours, time.monotonic())

    def _wait(self) -> None:
        """Wait until a worker is ready or dead, or a signal came."""
        by_sentinel = {process.sentinel: pid for pid, (process, _, _) in self._workers.items()}
        by_pipe = {ours: pid for pid, (_, ours, _) in self._workers.items()}
        for happened in wait([*by_sentinel, *by_pipe, self._woken]):
            if happened in by_sentinel:
                self._replace(by_sentinel[happened])
            elif happened in by_pipe and by_pipe[happened] in self._workers:
                with suppress(EOFError, OSError):
                    happened.recv()
                    if self._announce is not None:
                        self._announce()
                        self._announce = None

    def _replace(self, pid: int) -> None:
        process, ours, started = self._workers.pop(pid)
        process.join()
        ours.close()
        if self._stopping:
            return
        lived = time.monotonic() - started
        if self._announce is not None and process.exitcode:
            self._stopping = True
            raise VizslaError("a worker ended before it was ready; the lines above say why")
        log.error("A worker ended (exit code %s); another one starts.", process.exitcode)
        if lived < _SHORT_LIFE:
            time.sleep(_SHORT_LIFE / 5)
        self._start()

    def _end_all(self) -> None:
        for process, _, _ in self._workers.values():
            process.terminate()
        deadline = time.monotonic() + GRACE + 1
        for process, ours, _ in self._workers.values():
            process.join(max(deadline - time.monotonic(), 0))
            if process.is_alive():
                process.kill()
                process.join()
            ours.close()
