"""Generations of a collection: NAME is an alias of NAME@3, and becomes one of NAME@4 when that is ready.

A rebuild fills the next generation beside the one that is searched. At the end all aliases change in one request, which
the servers carry out at once. The old generation stays until somebody drops it.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from qdrant_client import QdrantClient, models

from vizsla.backends.qdrant.connection import Connection
from vizsla.backends.qdrant.layout import STATE_ID, drop_collections, files_of, terms_of
from vizsla.backends.qdrant.state import read_state
from vizsla.errors import CollectionError

GRACE = 3.0
"""Seconds between a swap and the end of the old generation: clients look for a new one every second."""
_BASE = re.compile(r"(?P<name>.+)@(?P<number>[1-9][0-9]*)")


def base_of(name: str, number: int) -> str:
    """The collection of a generation.

    >>> base_of("dogs", 3)
    'dogs@3'
    """
    return f"{name}@{number}"


@dataclass(frozen=True)
class Generations:
    """What there is under a name."""

    name: str
    live: str | None
    """The collection that NAME stands for; None if there is none."""
    numbers: tuple[int, ...]
    """All generations, also one that is not finished, ascending."""

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
    """Whether a generation is `ready`, is being written to or is not finished; None if its making was stopped."""
    if not connection.call(QdrantClient.collection_exists, terms_of(base)):
        return None
    if not connection.call(QdrantClient.retrieve, terms_of(base), [STATE_ID]):
        return None
    return read_state(connection, base).status


def check_alias(connection: Connection, generations: Generations) -> None:
    """Refuse a name that is a collection itself, which no other one can take the place of."""
    if generations.live == generations.name:
        raise CollectionError(
            f"{generations.name!r} at {connection} is a collection itself and no alias, so no other one can take its "
            "place; use another name, or remove it first"
        )


def swap(connection: Connection, name: str, base: str) -> None:
    """Let a name stand for a generation, at once for all clients."""
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


def drop_others(connection: Connection, name: str, *, grace: float = GRACE) -> list[str]:
    """Remove all generations but the live one; gives their names. Clients get some time to leave them."""
    dropped = list(find_generations(connection, name).others)
    if dropped:
        time.sleep(grace)
    for base in dropped:
        drop_collections(connection, base)
    return dropped
