"""A plugin that makes a server lose SOAK_LEAK bytes with each request, so that soak.py can show that it notices."""

from __future__ import annotations

import os

from vizsla.server.gate import Gate, Receive, Scope, Send

lost: list[bytes] = []
answer = Gate.__call__


async def leaking(self: Gate, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, and lose some memory."""
    lost.append(os.urandom(int(os.environ["SOAK_LEAK"])))
    await answer(self, scope, receive, send)


Gate.__call__ = leaking  # type: ignore[method-assign]
