"""One writer at a time: a collection records its writer, and dead writers are detected.

Qdrant has no locks. A writer sets the state's `writer` if it is empty, which a server checks and does atomically, and
then reads back whether its own name is there. While it works, it increments a heartbeat every few seconds. A waiting
client considers a writer dead whose heartbeat has not changed for some time by the client's clock.

One fixed server, the leader, orders all changes (`strong`). While it is down, the servers choose another one
(`medium`). For a moment two clients might then ask two different servers, so a writer checks a second time.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from datetime import UTC, datetime
from typing import Any, Self

from qdrant_client import QdrantClient, models

from vizsla.backends.qdrant.connection import Connection, LeaderLostError
from vizsla.backends.qdrant.layout import STATE_ID, terms_of
from vizsla.backends.qdrant.state import WRITER, WRITING, CollectionState, read_state
from vizsla.errors import CollectionError, VizslaError

BEAT = 2.0
"""Seconds between two heartbeats of a writer."""
DEAD = 15.0
"""Seconds without a heartbeat after which a writer is considered dead."""
DEFAULT_TIMEOUT = 20.0
_SETTLE = 1.0  # seconds before the second check
_LOOK = 0.2  # seconds between two checks of a lock that is held by another writer


class WriteLock:
    """The right to write to a collection. Use it as a context manager, or call `release`.

    `timeout`: how many seconds to wait for another writer; with more than `DEAD` a dead one is replaced.
    """

    def __init__(self, connection: Connection, base: str, timeout: float = DEFAULT_TIMEOUT) -> None:
        self._connection = connection
        self._base = base
        self._token = secrets.token_hex(8)
        self._beat = 0
        self._lost = False
        self._leader_lost = False
        self._ended = threading.Event()
        self.interrupted = self._acquire(timeout)
        """Whether a writer died before this one, so that statistics may be wrong."""
        self._thread = threading.Thread(target=self._keep, name="vizsla-lock", daemon=True)
        self._thread.start()

    def state(self) -> CollectionState:
        """The current stored state; an error if another writer has taken the lock."""
        state = read_state(self._connection, self._base)
        if not self._is_mine(state):
            self._lost = True
        self.check()
        return state

    def check(self) -> None:
        """Raise an error if another writer has taken over."""
        if self._lost:
            raise CollectionError(
                f"the collection {self._base!r}: this writer sent nothing for {DEAD:g} seconds, and another one has "
                "taken over; open it again"
            )

    def save(self, state: CollectionState) -> None:
        """Store a state, if the lock is still held."""
        self.check()
        self._set(state.payload(), self._mine)
        self.state()

    def release(self, state: CollectionState | None = None) -> None:
        """Release the lock; `state` is stored in the same request."""
        self._ended.set()
        self._thread.join()
        if self._lost:
            return
        self._set({**(state.payload() if state is not None else {}), WRITER: None}, self._mine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ended.is_set():
            self.release()

    @property
    def _mine(self) -> list[models.Condition]:
        return [models.FieldCondition(key=f"{WRITER}.token", match=models.MatchValue(value=self._token))]

    def _acquire(self, timeout: float) -> bool:
        started = time.monotonic()
        seen: tuple[tuple[str, int], float] | None = None  # the other writer's heartbeat, and when it last changed
        while True:
            other = read_state(self._connection, self._base).writer
            if other is None:
                free = models.IsEmptyCondition(is_empty=models.PayloadField(key=WRITER))
                self._set({WRITER: self._about()}, [free])
                died = False
            else:
                now = time.monotonic()
                sign = str(other.get("token")), int(other.get("beat") or 0)
                if seen is None or seen[0] != sign:
                    seen = sign, now
                died = now - seen[1] >= DEAD
                if died:
                    keys: list[tuple[str, str | int]] = [("token", sign[0]), ("beat", sign[1])]
                    same: list[models.Condition] = [
                        models.FieldCondition(key=f"{WRITER}.{key}", match=models.MatchValue(value=value))
                        for key, value in keys
                    ]
                    self._set({WRITER: self._about()}, same)
            state = read_state(self._connection, self._base)
            if self._is_mine(state) and self._leader_lost:
                time.sleep(_SETTLE)
                state = read_state(self._connection, self._base)
            if self._is_mine(state):
                return died or state.status == WRITING
            if other is not None and time.monotonic() - started >= timeout:
                raise CollectionError(self._busy(state.writer or other))
            time.sleep(_LOOK)

    def _is_mine(self, state: CollectionState) -> bool:
        return state.writer is not None and state.writer.get("token") == self._token

    def _busy(self, other: dict[str, Any]) -> str:
        who = f"process {other.get('process')} on {other.get('host')}, since {other.get('since')}"
        return (
            f"the collection {self._base!r} is being written to ({who}); wait for it, or, if it has died, try again "
            f"with a timeout of more than {DEAD:g} seconds"
        )

    def _about(self) -> dict[str, Any]:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        about = {"host": socket.gethostname(), "process": os.getpid(), "since": since}
        return {"token": self._token, "beat": self._beat, **about}

    def _set(self, payload: dict[str, Any], conditions: list[models.Condition], key: str | None = None) -> None:
        """Change the state if conditions hold, atomically."""
        held = models.Filter(must=[models.HasIdCondition(has_id=[STATE_ID]), *conditions])
        change = QdrantClient.set_payload, terms_of(self._base), payload, held
        try:
            self._connection.call(*change, key=key, wait=True, ordering=models.WriteOrdering.STRONG)
        except LeaderLostError:
            self._leader_lost = True
            self._connection.call(*change, key=key, wait=True, ordering=models.WriteOrdering.MEDIUM)

    def _keep(self) -> None:
        """Send heartbeats until the lock is released."""
        while not self._ended.wait(BEAT):
            self._beat += 1
            try:
                self._set({"beat": self._beat}, self._mine, key=WRITER)
            except VizslaError:
                continue  # the writer itself will hit the same problem and report it
