"""What the folder of an index holds now, found out without opening a snapshot.

As long as index.db and its log have the size and the time that they had, there is nothing new, which takes some
microseconds to see. Only when they change is the number of the last commit read.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from vizsla.index.storage import database

_TICK = 1_000_000_000
"""Nanoseconds: file systems count time in steps, and a file may be written to twice in one of them."""


class Newest(NamedTuple):
    """The index that a folder holds, and its last commit."""

    identity: tuple[int, int] | None
    uuid: str
    generation: int


class Watch:
    """Watches a folder. Threads may share it: what they find is the same."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[tuple[database.Stamp | None, ...], Newest] | None = None

    def newest(self) -> Newest:
        """What the folder holds now; an error tells if that is no index, or a damaged one."""
        now = time.time_ns()
        stamps = database.stamp(self._path), database.stamp(self._path, database.LOG)
        if self._known is not None and self._known[0] == stamps:
            return self._known[1]
        found = self._read()
        is_settled = all(stamp is None or stamp.time < now - _TICK for stamp in stamps)
        self._known = (stamps, found) if is_settled else None
        return found

    def _read(self) -> Newest:
        identity = database.identity(self._path)
        with database.using_sqlite(self._path), closing(database.connect(self._path, write=False)) as connection:
            meta = database.read_meta(connection, self._path)
        return Newest(identity, meta["uuid"], meta["generation"])
