"""The folder of an index: where an index may be created, and how a new index replaces an old one.

A new index is built in a folder beside the old one. When it is complete the two exchange their names, so that whoever
opens the index finds one of them. The writer lock of the old index is held during the build, so that nobody writes to
it.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from vizsla.errors import CollectionError
from vizsla.index.storage import arrays, database, in_memory, segment_files
from vizsla.index.storage.locks import FileLock

BUILDING = "building.lock"
"""A lock in the folder of an index that is being built; it is removed when the index is complete."""
_OWN_NAMES = frozenset(
    (
        *(database.FILE + ending for ending in ("", "-wal", "-shm", ".new", ".new-wal", ".new-shm", ".new-journal")),
        *(database.LOCK + ending for ending in ("", "-journal", "-wal", "-shm")),
        BUILDING,
        arrays.FOLDER,
        "model",
    )
)
_LONGEST_SWAP = 10.0  # seconds a reader waits between the two renamings of a replacement
_PAUSE = 0.01
_HERE = -100  # AT_FDCWD on Linux: paths are as they are given
_EXCHANGE = 2  # RENAME_EXCHANGE on Linux, RENAME_SWAP on macOS
_UNLOCKED = 60.0  # seconds after which a build without a lock is considered dead


def absolute(path: str | Path) -> Path:
    """An absolute path, which stays valid when the process changes its folder; an impossible path is refused."""
    if str(path) == in_memory.NAME:
        raise CollectionError(
            f'{in_memory.NAME} names no folder; Index.create("{in_memory.NAME}") makes an index in memory, which ends '
            "with its object"
        )
    absolute_path = Path(os.path.abspath(path))
    try:
        os.lstat(absolute_path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass  # opening it raises the error
    except (OSError, ValueError) as e:
        raise CollectionError(f"{str(path)!r}: this cannot be a folder ({getattr(e, 'strerror', None) or e})") from None
    return absolute_path


def is_index(folder: Path) -> bool:
    """Whether a folder holds an index, of any format, and nothing else."""
    if any(entry.name not in _OWN_NAMES or entry.is_symlink() for entry in folder.iterdir()):
        return False
    return not any(segment_files.foreign_files(folder, {})) and database.is_index_database(folder / database.FILE)


def is_being_built(folder: Path) -> bool:
    """Whether `replace_index` has created this folder for a build that has not created the index yet."""
    return (folder / BUILDING).exists() and not (folder / database.FILE).exists()


def check_target(folder: Path, overwrite: bool) -> None:
    """Refuse a folder for a new index if it holds something else, or an index that may not be overwritten."""
    if not folder.exists() and not folder.is_symlink():
        return
    if not folder.is_dir():
        raise CollectionError(f"{folder}: this is a file; an index is a folder")
    if not any(folder.iterdir()):
        return
    if not is_index(folder):
        raise CollectionError(f"{folder}: this folder holds something that is not an index; choose another")
    if not overwrite and not _never_committed(folder):
        raise CollectionError(
            f"{folder}: an index exists here already; --overwrite (in Python overwrite=True) replaces it"
        )


def model_files(folder: Path) -> list[tuple[str, Path]]:
    """Relative name and path of each file in the folder of a model, including subfolders."""
    return [(f.relative_to(folder).as_posix(), f) for f in sorted(folder.rglob("*")) if f.is_file()]


def check_model_folder(folder: Path) -> None:
    """Refuse links, pipes and devices among a model's files, before anything opens them."""
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            mode = os.lstat(os.path.join(parent, name)).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise CollectionError(f"{folder.parent}: {name} in {folder.name} is a link or a special file")


def recover(folder: Path) -> None:
    """Rename an old index back if its replacement was stopped between the two renamings.

    If the replacement is still running, wait for it.
    """
    until = time.monotonic() + _LONGEST_SWAP
    while not folder.exists() and time.monotonic() < until:
        old = _beside(folder, "old")
        if len(old) != 1:
            return
        with suppress(CollectionError, OSError):  # it is locked or removed: the replacement is still running
            lock = database.lock_for_writing(old[0], wait=0.0)
            try:
                if not folder.exists():
                    old[0].rename(folder)
                    arrays.sync_folder(folder.parent)
            finally:
                lock.release()
            return
        time.sleep(_PAUSE)


@contextmanager
def replace_index(folder: Path, *, overwrite: bool) -> Iterator[Path]:
    """A context with a new folder to build an index in; when it ends, that folder replaces `folder`.

    If the build fails, `folder` stays as it was. During the build nobody can write to the old index.

    >>> import tempfile
    >>> from vizsla.index import Index
    >>> place = Path(tempfile.mkdtemp()) / "dogs.index"
    >>> with replace_index(place, overwrite=True) as building, Index.create(building) as index:
    ...     _ = index.add([{"id": "1", "text": "Dogs bark."}])
    ...     _ = index.commit()
    >>> len(Index.open(place))
    1
    """
    if folder.name in ("", ".."):
        raise CollectionError(
            f"{folder}: a complete index is renamed to its folder; give the folder a name, as in my.index"
        )
    recover(folder)
    check_target(folder, overwrite)
    folder = folder.resolve() if folder.is_symlink() else absolute(folder)
    old_lock = database.lock_for_writing(folder, wait=1.0) if (folder / database.FILE).exists() else None
    try:
        _sweep(folder)
        with _building(folder) as building:
            yield building
            with _locked(folder.parent):
                if old_lock is None and (folder / database.FILE).exists():  # another build was faster
                    check_target(folder, overwrite)
                    old_lock = database.lock_for_writing(folder, wait=1.0)
                _put_in_place(building, folder)
    finally:
        if old_lock is not None:
            old_lock.release()


@contextmanager
def _building(folder: Path) -> Iterator[Path]:
    """A new, locked folder beside `folder`; removed at the end, unless it was renamed."""
    building = folder.with_name(f"{_prefix(folder, 'new')}{secrets.token_hex(4)}")
    process = os.getpid()
    try:
        building.mkdir(parents=True)
        lock = FileLock(building / BUILDING)
    except OSError as e:
        raise CollectionError(f"{folder}: cannot be written to ({e.strerror})") from None
    try:
        yield building
    finally:
        lock.release()
        if os.getpid() == process:  # a forked child has nothing to clean up
            shutil.rmtree(building, ignore_errors=True)


@contextmanager
def _locked(parent: Path) -> Iterator[None]:
    """A lock on the parent folder, so that one process at a time checks for an index and renames folders."""
    try:
        import fcntl

        descriptor = os.open(parent, os.O_RDONLY)
    except (ImportError, OSError):  # this system cannot lock folders
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _put_in_place(building: Path, folder: Path) -> None:
    """Give a complete index its name; an old index that has the name is removed afterwards."""
    try:
        old = _swap(building, folder)
    except OSError as e:
        raise CollectionError(f"{folder}: cannot be written to ({e.strerror}); the folder is as it was") from None
    with suppress(OSError):  # the index has its name; a failure from here on is not a failed build
        (folder / BUILDING).unlink()
        arrays.sync_folder(folder.parent)
    if old is not None:
        gone = folder.with_name(f"{_prefix(folder, 'gone')}{secrets.token_hex(4)}")
        with suppress(OSError):
            old.rename(gone)  # so that `recover` does not rename it back
        shutil.rmtree(gone, ignore_errors=True)


def _swap(building: Path, folder: Path) -> Path | None:
    """Give `building` the name `folder`; returns where the old index is now, if there was one.

    Both exchange their names at once where the system can do that. Elsewhere the old index is renamed first, and for
    a moment nothing has the name; see `recover`.
    """
    if not (folder / database.FILE).exists():
        if folder.exists():  # it is empty; others were refused before
            folder.rmdir()
        building.rename(folder)
        return None
    if exchange(building, folder):
        return building
    old = folder.with_name(f"{_prefix(folder, 'old')}{secrets.token_hex(4)}")
    folder.rename(old)
    try:
        building.rename(folder)
    except OSError:
        with suppress(OSError):  # otherwise `recover` does it when the index is next opened
            if not folder.exists():
                old.rename(folder)
        raise
    return old


def _prefix(folder: Path, purpose: str) -> str:
    name = folder.name
    if len(name) > 100:  # long names that begin alike need different prefixes
        name = f"{name[:80]}-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
    return f".{name}.{purpose}-"


def _beside(folder: Path, purpose: str) -> list[Path]:
    """The folders beside an index that replacements have created for a purpose: new, old or gone."""
    start = _prefix(folder, purpose)
    candidates = (Path(f) for f in glob.glob(f"{glob.escape(str(folder.with_name(start)))}*"))
    return [f for f in candidates if re.fullmatch(r"[0-9a-f]{8}", f.name.removeprefix(start)) and not f.is_symlink()]


def _sweep(folder: Path) -> None:
    """Remove the folders that killed builds and replacements have left beside an index."""
    for leftover in _beside(folder, "gone"):
        shutil.rmtree(leftover, ignore_errors=True)
    for leftover in _beside(folder, "new"):
        with suppress(CollectionError, OSError):
            if (leftover / BUILDING).exists():
                is_dead = FileLock.is_free(leftover / BUILDING)
            else:
                is_dead = time.time() - leftover.stat().st_mtime > _UNLOCKED
            if is_dead:
                shutil.rmtree(leftover, ignore_errors=True)
    if (folder / database.FILE).exists():  # otherwise the old index is the only one
        for leftover in _beside(folder, "old"):
            with suppress(CollectionError):  # somebody is still using it
                database.lock_for_writing(leftover, wait=0.0).release()
                shutil.rmtree(leftover, ignore_errors=True)


def _never_committed(folder: Path) -> bool:
    """Whether the folder holds a build that was stopped before its first commit."""
    connection = database.connect(folder, write=False)
    with database.using_sqlite(folder), closing(connection):
        return bool(database.read_meta(connection, folder)["generation"] == 0)


def exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders, so that each name always has one of them; False if that is not possible here.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a").mkdir(), (folder / "b").mkdir(), (folder / "a" / "file").touch()
    >>> exchange(folder / "a", folder / "b") == (folder / "b" / "file").exists()
    True
    """
    call = _system_call()
    if call is None:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    arguments = (_HERE, paths[0], _HERE, paths[1]) if sys.platform == "linux" else paths
    return bool(call(*arguments, ctypes.c_uint(_EXCHANGE)) == 0)


@cache
def _system_call() -> Any:
    """What renames files with options; None on other systems, and where the C library is older."""
    name = {"linux": "renameat2", "darwin": "renamex_np"}.get(sys.platform)
    if name is None:
        return None
    return getattr(ctypes.CDLL(None), name, None)
