"""Locks between processes, threads and objects: one of them at a time holds the lock on a file.

The system frees a lock when its holder dies. A lock belongs to the opened file, not to the process, so two objects
of one process exclude each other as well.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path

from vizsla.errors import CollectionError
from vizsla.index.storage.finalizers import finalize

_PAUSE = 0.02  # seconds between two attempts


class FileLock:
    """An exclusive lock on a file, which is created for it and stays; only its whole folder may be removed.

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
            if _lock(descriptor) and _has_its_name(descriptor, file):
                # A lock that is lost, by an interruption or a forgotten close, is released when it is collected.
                self._free = finalize(self, _release, descriptor, os.getpid())
                return
            os.close(descriptor)
            if time.monotonic() >= until:
                raise LockedError(f"{file.parent}: another writer is using the index; try again when it is done")
            time.sleep(_PAUSE)

    @classmethod
    def is_free(cls, file: Path) -> bool:
        """Whether nobody holds the lock now."""
        try:
            cls(file).release()
        except LockedError:
            return False
        return True

    def release(self) -> None:
        """Release the lock. In a forked child this closes its copy; the parent still holds the lock."""
        self._free()


def _release(descriptor: int, process: int) -> None:
    if os.getpid() == process:
        _unlock(descriptor)
    os.close(descriptor)


class LockedError(CollectionError):
    """Another process, thread or object holds the lock."""


def _open(file: Path) -> int:
    """Open the file of a lock, if it is a plain file; links are not followed, and pipes do not block."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(file, flags | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as e:
        if e.errno == errno.ENOENT:
            raise CollectionError(f"{file.parent}: the folder does not exist") from None
        if e.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise CollectionError(f"{file.parent}: {file.name} is not a plain file; remove it to go on") from None
        raise CollectionError(f"{file.parent}: cannot be written to ({file.name}: {e.strerror})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CollectionError(f"{file.parent}: {file.name} is not a plain file; remove it to go on")
    return descriptor


def _has_its_name(descriptor: int, file: Path) -> bool:
    """Whether an open file still has its name; its folder may have been removed while the lock was waited for."""
    with suppress(OSError):
        status = os.stat(file, follow_symlinks=False)
        return os.path.samestat(status, os.fstat(descriptor))
    return False


if sys.platform != "win32":
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            if e.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                return False
            raise CollectionError(f"this file system does not support locks ({e.strerror})") from None
        return True

    def _unlock(descriptor: int) -> None:
        with suppress(OSError):  # closing the file releases the lock, too
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
