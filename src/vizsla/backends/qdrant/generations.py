"""Generations of a collection: NAME is an alias of NAME@3, and becomes one of NAME@4 when that is ready.

A rebuild fills the next generation beside the one that is searched. At the end all aliases change in one request, which
the servers carry out at once. The old generation stays until somebody drops it.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from qdrant_client import QdrantClient, models

import vizsla
from vizsla.backends.qdrant import layout
from vizsla.backends.qdrant.connection import Address, Connection, ExistingCollectionError, check_name
from vizsla.backends.qdrant.filling import FillingRecord, read_record, write_record
from vizsla.backends.qdrant.layout import STATE_ID, drop_collections, files_of, terms_of
from vizsla.backends.qdrant.lock import DEFAULT_TIMEOUT, WriteLock
from vizsla.backends.qdrant.model_files import DescribedModel, store_files
from vizsla.backends.qdrant.state import (
    BUILDING,
    READY,
    CollectionState,
    NamespaceState,
    read_state,
    replaced_state,
    restored_state,
    write_state,
)
from vizsla.errors import CollectionError
from vizsla.index.parts.part import model_digest
from vizsla.models import Model

GRACE = 3.0
"""Seconds between a swap and the removal of the old generation: clients look for a new one every second."""
_AGAIN = 0.5  # seconds between two checks
_BASE = re.compile(r"(?P<name>.+)@(?P<number>[1-9][0-9]*)")


def base_of(name: str, number: int) -> str:
    """The collection of a generation.

    >>> base_of("dogs", 3)
    'dogs@3'
    """
    return f"{name}@{number}"


@dataclass(frozen=True)
class Generations:
    """The generations of a name."""

    name: str
    live: str | None
    """The collection that the alias NAME points to; None without such an alias."""
    numbers: tuple[int, ...]
    """The numbers of all generations, including unfinished ones, ascending."""

    @property
    def next(self) -> str:
        """The collection of the next generation."""
        return base_of(self.name, max(self.numbers, default=0) + 1)

    @property
    def bases(self) -> tuple[str, ...]:
        """The collections of all generations."""
        return tuple(base_of(self.name, n) for n in self.numbers)

    @property
    def others(self) -> tuple[str, ...]:
        """All generations but the live one."""
        return tuple(base for base in self.bases if base != self.live)


def find_generations(connection: Connection, name: str) -> Generations:
    """The generations of a name, from the collections and aliases of the cluster."""
    collections = {c.name for c in connection.call(QdrantClient.get_collections).collections}
    aliases = {a.alias_name: a.collection_name for a in connection.call(QdrantClient.get_aliases).aliases}
    owners = (c.removesuffix(".terms").removesuffix(".files") for c in collections)
    found = {int(m["number"]) for owner in owners if (m := _BASE.fullmatch(owner)) and m["name"] == name}
    live = name if name in collections else aliases.get(name)
    return Generations(name, live, tuple(sorted(found)))


def generation_status(connection: Connection, base: str) -> str | None:
    """Whether a generation is `ready`, being written to or unfinished; None if its creation was interrupted."""
    if not connection.call(QdrantClient.collection_exists, terms_of(base)):
        return None
    if not connection.call(QdrantClient.retrieve, terms_of(base), [STATE_ID]):
        return None
    return read_state(connection, base).status


def check_alias(connection: Connection, generations: Generations) -> None:
    """Refuse a name that is a collection itself and not an alias, since it cannot be replaced."""
    if generations.live == generations.name:
        raise CollectionError(
            f"{generations.name!r} at {connection} is a collection itself and no alias, so no other one can take its "
            "place; use another name, or remove it first"
        )


def swap(connection: Connection, name: str, base: str) -> None:
    """Point the alias of a name to a generation, atomically for all clients."""
    collections = {c.name for c in connection.call(QdrantClient.get_collections).collections}
    aliases = {a.alias_name for a in connection.call(QdrantClient.get_aliases).aliases}
    changes: list[models.AliasOperations] = []
    for of in (str, terms_of, files_of):
        if of(name) in aliases:
            changes.append(models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=of(name))))
        if of(base) in collections:
            alias = models.CreateAlias(collection_name=of(base), alias_name=of(name))
            changes.append(models.CreateAliasOperation(create_alias=alias))
    connection.call(QdrantClient.update_collection_aliases, changes)


def find_finished(connection: Connection, generations: Generations, source: str) -> str | None:
    """The generation that was filled from a source, finished, and not changed or replaced since; not the live one."""
    for base in reversed(generations.others):
        if generation_status(connection, base) == READY:
            record = read_record(connection, base)
            if record is not None and record.source == source:
                return base
    return None


def find_unfinished(
    connection: Connection, generations: Generations, source: str, is_stale: Callable[[FillingRecord], bool]
) -> str | None:
    """The generation that was partly filled from a source; one from another source is an error, unless it is stale.

    Stale generations, and those whose creation was interrupted, are removed.
    """
    for base in generations.bases:
        status = generation_status(connection, base)
        record = read_record(connection, base) if status == BUILDING else None
        if record is not None and record.source == source:
            return base
        if record is not None and not is_stale(record):
            raise CollectionError(
                f"another upload to {generations.name!r} was begun and is not finished, one of other documents or with "
                f"another model; finish it, or remove its collection {base!r} first"
            )
        if status in (None, BUILDING):
            drop_collections(connection, base)
    return None


def begin_generation(
    connection: Connection,
    name: str,
    model: Model,
    record: FillingRecord,
    is_stale: Callable[[FillingRecord], bool],
    *,
    shards: int | None = None,
    replicas: int | None = None,
) -> tuple[str, bool]:
    """The generation to fill from the source of a record, and whether it was begun before; otherwise a new one.

    A server may carry out a request of a dead client only now. If the new collection has been created in the meantime,
    the generations are therefore looked up again.
    """
    for last in (False, False, False, False, True):
        found = find_generations(connection, name)
        begun = find_unfinished(connection, found, record.source, is_stale)
        if begun is not None:
            return begun, True
        try:
            create_collection(connection, found.next, model, status=BUILDING, shards=shards, replicas=replicas)
        except ExistingCollectionError:
            if last:
                raise
            time.sleep(_AGAIN)
            continue
        write_record(connection, found.next, record)
        return found.next, False
    raise AssertionError


def take_over(connection: Connection, name: str, base: str, replaced: str | None, version: str | None) -> None:
    """Replace the live generation, which becomes read-only, with another one.

    `version`: that of the live one when the filling began; if it has changed, this is an error, since changes would be
    lost. None: do not check.
    """
    if replaced is None:
        swap(connection, name, base)
        return
    with WriteLock(connection, replaced) as lock:
        state = lock.state()
        if version not in (None, version_of(state)):
            raise CollectionError(
                f"the collection {name!r} was changed while its next generation was made, and would lose the changes; "
                "the next generation is complete: give --force to switch to it anyway"
            )
        swap(connection, name, base)
        lock.release(replaced_state(state))


def version_of(state: CollectionState) -> str:
    """What changes with every commit to a collection."""
    return f"{state.build} {state.generation}"


def create_generation(
    connection: Connection,
    name: str,
    model: Model,
    *,
    overwrite: bool = False,
    shards: int | None = None,
    replicas: int | None = None,
) -> CollectionState:
    """An empty collection under a name, as its next generation, so that it can be replaced later.

    An existing one is replaced only with `overwrite`, and then removed. For the other options see `create_collection`.
    """
    check_name(name)
    found = find_generations(connection, name)
    if found.live is not None and not overwrite:
        raise CollectionError(
            f"there is a collection {name!r} at {connection} already; choose another name, or replace it"
        )
    if found.live == name:
        drop_collections(connection, name)
    state = create_collection(connection, found.next, model, shards=shards, replicas=replicas)
    swap(connection, name, state.base)
    if overwrite:
        drop_others(connection, name, grace=0)
    return state


def drop_others(connection: Connection, name: str, *, grace: float | None = None) -> list[str]:
    """Remove all generations but the live one; returns their names.

    `grace`: the seconds that clients get to leave them, by default `GRACE`.
    """
    return drop(connection, find_generations(connection, name).others, grace=grace)


def drop(connection: Connection, bases: Sequence[str], *, grace: float | None = None) -> list[str]:
    """Remove generations that are not live any more; returns their names. `grace`: as for `drop_others`."""
    if bases:
        time.sleep(GRACE if grace is None else grace)
    for base in bases:
        drop_collections(connection, base)
    return list(bases)


@contextmanager
def writing_live(connection: Connection, name: str, timeout: float) -> Iterator[tuple[Generations, WriteLock]]:
    """The generations of a collection and the lock of the live one, which excludes other writers."""
    live = read_state(connection, name).base  # raises an error if there is no such collection
    check_alias(connection, find_generations(connection, name))
    with WriteLock(connection, live, timeout) as lock:
        generations = find_generations(connection, name)
        if generations.live != live:
            raise CollectionError(f"the collection {name!r} has been replaced by another one; try again")
        yield generations, lock


# New, empty collections


def create_collection(
    connection: Connection,
    base: str,
    model: Model,
    *,
    overwrite: bool = False,
    shards: int | None = None,
    replicas: int | None = None,
    status: str = READY,
) -> CollectionState:
    """Create the collections of a model, then store its files and its state; returns the state.

    `shards` and `replicas`: by default the servers' settings. `status`: `building` for a collection that must not be
    searched before it is filled.
    """
    check_name(base)
    connection.check_version()
    layout.check_storable(model)
    names = base, layout.terms_of(base)
    there = [name for name in names if connection.call(QdrantClient.collection_exists, name)]
    if there and not overwrite:
        raise ExistingCollectionError(
            f"there is a collection {there[0]!r} at {connection} already; choose another name, or replace it"
        )
    with DescribedModel(model) as described:
        layout.create_collections(connection, base, model, shards=shards, replicas=replicas)
        store_files(connection, base, described, replicas)
        state = CollectionState(
            base=base,
            build=secrets.token_hex(8),
            model=described.description,
            files=described.files,
            digest=model_digest(model),
            namespaces={name: NamespaceState() for name in model.namespaces},
            vizsla=vizsla.__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            status=status,
        )
    write_state(connection, state)
    return state


# Back to an earlier generation, which was kept when another one took its place


@dataclass(frozen=True)
class RevertReport:
    """What a revert has done."""

    base: str
    """The generation that the name now points to."""
    documents: int
    replaced: str
    """The generation that it pointed to before, which is kept."""


def revert(
    address: str | Address,
    to: str | None = None,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    connection: Connection | None = None,
) -> RevertReport:
    """Point a name to another of its generations, by default to the previous one.

    `to`: the generation, as in `my@3`; it may also be a later one. Searches continue, and all clients see it within a
    second. Commits to the current generation stay there. `timeout`: how many seconds to wait for writers.
    """
    where = Address.parse(address) if isinstance(address, str) else address
    opened = connection or Connection(where.servers)
    try:
        with writing_live(opened, where.name, timeout) as (generations, lock):
            live = lock.state().base
            base = _chosen(opened, generations, to)
            documents = _restore(opened, base, timeout)
            swap(opened, where.name, base)
            lock.release(replaced_state(lock.state()))
        return RevertReport(base, documents, live)
    finally:
        if connection is None:
            opened.close()


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
    """Make a generation writable again before the swap; returns the number of its documents.

    If a writer had died before it was replaced, the next writer still has to recount all statistics.
    """
    with WriteLock(connection, base, timeout) as lock:
        state = restored_state(lock.state())
        lock.release(state)
        return state.documents
