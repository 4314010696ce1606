"""Bodies of requests on their way: not too large, not too slow, not too many; and the places of those that are here.

A request takes one of a worker's places when its body has arrived. So clients that send slowly, or never end, keep
nobody else out.
"""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException

from vizsla.server.asgi import Message, Receive, Scope
from vizsla.server.errors import RequestError
from vizsla.server.service import Service

_WITH_BODY = ("POST", "PUT", "PATCH")


def too_large(limit: int) -> RequestError:
    """The answer to a body that is too large."""
    return RequestError(
        f"the body has more than {limit:,} bytes, the most this server reads", 413, {"Connection": "close"}
    )


def has_body(scope: Scope) -> bool:
    """Whether a request says that a body follows, of a kind that routes read."""
    headers = dict(scope["headers"])
    told = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
    return told and scope["method"] in _WITH_BODY


class Place:
    """A place among the requests that a worker answers at a time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.is_taken = False

    def take(self, always: bool = False) -> None:
        """Take a place; 429 if there is none, unless it must `always` succeed."""
        if not always and self._service.in_flight >= self._service.settings.limits.in_flight:
            raise HTTPException(429, "too many requests at a time; try again later", {"Retry-After": "1"})
        self._service.in_flight += 1
        self.is_taken = True

    def leave(self) -> None:
        """Give the place back."""
        self._service.in_flight -= self.is_taken
        self.is_taken = False


class Waits:
    """The bodies whose next bytes are awaited. Beyond `most`, the one that sent nothing for longest is given up."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._waiting: dict[asyncio.Timeout, None] = {}  # those that wait longest are first

    async def message(self, receive: Receive) -> Message:
        """The next message of a body; 408 if it does not come in time, or is given up."""
        try:
            async with asyncio.timeout(self._seconds) as wait:
                if len(self._waiting) >= self._most:
                    longest = next(iter(self._waiting))
                    del self._waiting[longest]
                    longest.reschedule(asyncio.get_running_loop().time())
                self._waiting[wait] = None
                try:
                    return await receive()
                finally:
                    self._waiting.pop(wait, None)
        except TimeoutError:
            raise too_slow() from None


def too_slow() -> HTTPException:
    """The answer to a body that does not come."""
    return HTTPException(408, "the body of the request came too slowly")


class Body:
    """Receives the body of a request, and takes a place when it is there. Routes read messages by calling it.

    An upload gets a place in any case: its client has sent a lot, and writes wait in a queue of their own.
    """

    def __init__(self, receive: Receive, waits: Waits, place: Place, limit: int, is_upload: bool) -> None:
        self._receive, self._waits, self._place = receive, waits, place
        self._left = self._limit = limit
        self._is_upload = is_upload

    async def __call__(self) -> Message:
        if self._place.is_taken:  # what comes now is the end of the connection
            return await self._receive()
        message = await self._waits.message(self._receive)
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise HTTPException(413, str(too_large(self._limit)))
            if not message.get("more_body", False):
                self._place.take(always=self._is_upload)
        return message
