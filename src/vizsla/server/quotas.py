"""How much a collection may still grow: quotas of the server, and the smaller ones of its own settings."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from vizsla.server.errors import RequestError
from vizsla.server.hosting import Hosted


def most(hosted: Hosted, name: str) -> int | None:
    """How many `documents` or `bytes` an index may have; None if there is no bound."""
    if hosted.collection is None:
        return None
    own = getattr(hosted.collection.record.settings, name)
    allowed: int = getattr(hosted.collection.folder.quotas, name)
    return allowed if own is None else min(own, allowed)


def check_documents(hosted: Hosted, documents: int) -> None:
    """Refuse a change after which a collection would have more documents than it may."""
    allowed = most(hosted, "documents")
    if allowed is not None and documents > allowed:
        raise RequestError(
            f"the collection {hosted.name} may have {allowed:,} documents, and this would make it {documents:,}", 507
        )


class ByteQuota:
    """The bytes that an upload may have, as the collection is now."""

    def __init__(self, hosted: Hosted) -> None:
        self._name = hosted.name
        self._most = most(hosted, "bytes")
        self._left = 0 if self._most is None else self._most - size(hosted.folder.parent)

    def take(self, size: int) -> None:
        """Take some bytes; refuse those for which there is no room."""
        self._left -= size
        if self._most is not None and self._left < 0:
            raise RequestError(
                f"the collection {self._name} may take {self._most:,} bytes on disk, and there is no room for this", 507
            )


def size(folder: Path) -> int:
    """The bytes of all files in a folder."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # removed in the meantime
                total += os.lstat(os.path.join(parent, name)).st_size
    return total
