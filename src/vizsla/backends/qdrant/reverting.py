"""Back to an earlier generation of a collection, which was kept when another one took its place."""

from __future__ import annotations

from dataclasses import dataclass

from vizsla.backends.qdrant.address import Address
from vizsla.backends.qdrant.connection import Connection
from vizsla.backends.qdrant.generations import Generations, generation_status, swap, writing_live
from vizsla.backends.qdrant.lock import DEFAULT_TIMEOUT, WriteLock
from vizsla.backends.qdrant.state import BUILDING, replaced_state, restored_state
from vizsla.errors import CollectionError


@dataclass(frozen=True)
class RevertReport:
    """What a revert has done."""

    base: str
    """The generation that the name stands for now."""
    documents: int
    replaced: str
    """The generation that it stood for before, which is kept."""


def revert(
    address: str | Address,
    to: str | None = None,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    connection: Connection | None = None,
) -> RevertReport:
    """Let a name stand for another of its generations, by default for the one before.

    `to`: the generation, as in `my@3`; it may also be a later one, to go forward again. Searches go on; all clients see
    it within a second. What was committed to the generation that is left stays there. `timeout`: how many seconds to
    wait for writers.
    """
    where = Address.parse(address) if isinstance(address, str) else address
    asked = connection or Connection(where.servers)
    try:
        with writing_live(asked, where.name, timeout) as (generations, lock):
            live = lock.state().base
            base = _chosen(asked, generations, to)
            documents = _restore(asked, base, timeout)
            swap(asked, where.name, base)
            lock.release(replaced_state(lock.state()))
        return RevertReport(base, documents, live)
    finally:
        if connection is None:
            asked.close()


def _chosen(connection: Connection, generations: Generations, to: str | None) -> str:
    """The generation to go to; one that is not finished is refused."""
    name, live = generations.name, generations.live
    finished = [base for base in generations.others if generation_status(connection, base) not in (None, BUILDING)]
    kept = f"kept are {', '.join(finished)}" if finished else "no other generation is kept"
    if to is not None:
        if to in finished:
            return to
        problem = "is the one that is searched" if to == live else "is no finished generation of it"
        raise CollectionError(f"the collection {name!r} at {connection} cannot go to {to!r}: it {problem}; {kept}")
    place = generations.bases.index(live) if live in generations.bases else 0
    earlier = [base for base in generations.bases[:place] if base in finished]
    if not earlier:
        later = f"; {kept}" if finished else ""
        raise CollectionError(f"the collection {name!r} at {connection} has no earlier generation{later}")
    return earlier[-1]


def _restore(connection: Connection, base: str, timeout: float) -> int:
    """Let writers write to a generation again, which nobody reaches before the swap; gives its documents.

    Where a writer had died before it was replaced, the next one still has to count all statistics again.
    """
    with WriteLock(connection, base, timeout) as lock:
        state = restored_state(lock.state())
        lock.release(state)
        return state.documents
