"""The folder of an index in memory, which nobody has to name and nothing is left of.

It lies on a file system that the operating system keeps in memory, if there is one with room: /dev/shm on Linux. Else
it is in the folder for temporary files. So an index in memory is an index like any other, and other processes can read
it. Its owner holds a lock; what a killed process has left behind is removed when the next index in memory is made.
"""

from __future__ import annotations

import os
import shutil
import time
import weakref
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from vizsla.errors import CollectionError
from vizsla.index.storage.locks import FileLock

NAME = ":memory:"
"""What stands for an index in memory, where the folder of an index is named."""
_SHARED_MEMORY = Path("/dev/shm")
_ROOM = 1 << 30  # bytes that must be free there; containers often have 64 MB
_PREFIX = "vizsla-memory-"
_LOCK = "owner.lock"
_YOUNG = 60.0  # seconds in which a folder without a held lock may be one that is just being made


class MemoryFolder:
    """A new folder for one index. It is removed by `remove`, when this object is collected, or when Python exits.

    A forked child does not remove the folder of its parent.

    >>> folder = MemoryFolder()
    >>> folder.path.parent.is_dir()
    True
    >>> folder.remove()
    >>> folder.path.parent.is_dir()
    False
    """

    def __init__(self) -> None:
        place = _place()
        _sweep(place)
        try:
            parent = Path(mkdtemp(prefix=_PREFIX, dir=place))
        except OSError as e:
            raise CollectionError(f"{place}: an index in memory cannot be made here ({e.strerror})") from None
        self.path = parent / "index"
        """Where the index is to be created."""
        self._remove = weakref.finalize(self, _remove, parent, FileLock(parent / _LOCK), os.getpid())

    def remove(self) -> None:
        """Remove the folder, if that has not happened yet."""
        self._remove()


def _place() -> Path:
    """The folder that folders of indexes in memory are made in."""
    with suppress(OSError):
        if os.access(_SHARED_MEMORY, os.W_OK) and shutil.disk_usage(_SHARED_MEMORY).free >= _ROOM:
            return _SHARED_MEMORY
    return Path(gettempdir())


def _remove(folder: Path, lock: FileLock, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
    lock.release()


def _sweep(place: Path) -> None:
    """Remove the folders of this user's processes that have ended without removing them."""
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(OSError, CollectionError):
            status = os.lstat(folder)
            is_own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
            is_old = time.time() - status.st_mtime > _YOUNG
            if is_own and is_old and not folder.is_symlink() and FileLock.is_free(folder / _LOCK):
                shutil.rmtree(folder, ignore_errors=True)
