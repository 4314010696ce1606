"""HTTP connections that are not too many, and do not wait for ever for the head of a request."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_OWN_FILES = 200  # that a worker may have open besides its connections


def max_connections() -> int:
    """How many connections a worker may have before it has no more files for anything else."""
    if sys.platform == "win32":
        return 10_000
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 10_000 if allowed == resource.RLIM_INFINITY else max(min(allowed - _OWN_FILES, 10_000), 16)


def http_protocol(seconds: float) -> type[asyncio.Protocol]:
    """A protocol for uvicorn that closes a connection whose request's head takes more than so many seconds.

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
