"""Errors as answers: a status and one sentence, without paths of this machine."""

from __future__ import annotations

import errno
import re
import sqlite3
from pathlib import Path

from vizsla.errors import CollectionError, StoppedError, UnsupportedError, VizslaError
from vizsla.harmless import harmless
from vizsla.index.storage.locks import LockedError
from vizsla.server.judgements import JudgementsError

_LONGEST = 500
_PATH = re.compile(r"(?<![\w.])/(?:[\w.@+~-]+/)+[\w.@+~-]*")


class RequestError(VizslaError):
    """A refused request; `status`: the HTTP status of the response."""

    status = 400

    def __init__(self, sentence: str, status: int | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status or self.status
        self.headers = headers or {}


class NotFoundError(RequestError):
    """An index, a document or a page that does not exist."""

    status = 404


class UnavailableError(RequestError):
    """A temporary failure (503)."""

    status = 503

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, headers={"Retry-After": "1"})


def status_of(error: VizslaError) -> int:
    """The HTTP status for an error."""
    if isinstance(error, RequestError):
        return error.status
    if isinstance(error, StoppedError):
        return 504
    if is_full_disk(error):
        return 507
    if isinstance(error, LockedError):
        return 409
    if isinstance(error, CollectionError | JudgementsError):  # the index or a file of the server, not the request
        return 503
    return 400 if not isinstance(error, UnsupportedError) else 422


def is_full_disk(error: BaseException | None) -> bool:
    """Whether an error comes from a full disk."""
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if isinstance(error, sqlite3.Error) and "full" in str(error):
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False


def without_paths(sentence: str, name: str = "", folder: Path | None = None) -> str:
    """A sentence for a client: the folder of an index becomes its name, other paths are left out.

    >>> without_paths("/data/my.index: a segment is damaged", "my", Path("/data/my.index"))
    'my: a segment is damaged'
    """
    if folder is not None:
        sentence = sentence.replace(str(folder), name)
    sentence = _PATH.sub("a file of the server", sentence)
    return harmless(sentence if len(sentence) <= _LONGEST else sentence[: _LONGEST - 1] + "…")
