"""Locks between processes, threads and objects: a file that one of them at a time holds.

The system frees a lock when its holder dies. A lock belongs to the opened file, not to the process, so two objects
of one process exclude each other as well.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
import weakref
from contextlib import suppress
from pathlib import Path

from vizsla.errors import CollectionError

_PAUSE = 0.02  # seconds between two attempts


class FileLock:
    """An exclusive lock on a file that is made for it and never removed alone.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> held = FileLock(folder / "lock")
    >>> FileLock.is_free(folder / "lock")
    False
    >>> held.release()
    >>> FileLock.is_free(folder / "lock")
    True
    """

    def __init__(self, file: Path, wait: float = 0.0) -> None:
        """Take the lock, or raise `LockedError` if it is not free within `wait` seconds."""
        until = time.monotonic() + wait
        while True:
            descriptor = _open(file)
            if _lock(descriptor) and _is_still(descriptor, file):
                # Whoever loses the object, by an interruption or a forgotten close, loses the lock, too.
                self._free = weakref.finalize(self, _let_go, descriptor, os.getpid())
                return
            os.close(descriptor)
            if time.monotonic() >= until:
                raise LockedError(f"{file.parent}: another writer is at work on it; try again when it is done")
            time.sleep(_PAUSE)

    @classmethod
    def is_free(cls, file: Path) -> bool:
        """Whether the lock could be taken now."""
        try:
            cls(file).release()
        except LockedError:
            return False
        return True

    def release(self) -> None:
        """Free the lock. A forked child only lets go of its copy; the lock stays with the parent."""
        self._free()


def _let_go(descriptor: int, process: int) -> None:
    if os.getpid() == process:
        _unlock(descriptor)
    os.close(descriptor)


class LockedError(CollectionError):
    """Somebody else holds the lock."""


def _open(file: Path) -> int:
    """Open a lock's file, if it is a plain one; a link is not followed, and a pipe is not waited for."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(file, flags | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as e:
        if e.errno == errno.ENOENT:
            raise CollectionError(f"{file.parent}: the folder is not there") from None
        if e.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise CollectionError(f"{file.parent}: {file.name} is not a plain file; remove it to go on") from None
        raise CollectionError(f"{file.parent}: cannot be written to ({file.name}: {e.strerror})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CollectionError(f"{file.parent}: {file.name} is not a plain file; remove it to go on")
    return descriptor


def _is_still(descriptor: int, file: Path) -> bool:
    """Whether a file still has its name: it may have gone with its folder while it was waited for."""
    with suppress(OSError):
        named = os.stat(file, follow_symlinks=False)
        return os.path.samestat(named, os.fstat(descriptor))
    return False


if sys.platform != "win32":
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            if e.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                return False
            raise CollectionError(f"a lock cannot be had on this file system ({e.strerror})") from None
        return True

    def _unlock(descriptor: int) -> None:
        with suppress(OSError):  # closing it does the same
            fcntl.flock(descriptor, fcntl.LOCK_UN)

else:
    import msvcrt

    def _lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        with suppress(OSError):
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
