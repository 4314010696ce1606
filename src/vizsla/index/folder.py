"""The folder of an index: where one may be put, and how one takes the place of another."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vizsla.errors import CollectionError
from vizsla.index import database, files

_OWN_NAMES: tuple[str, ...] = (
    *(database.FILE + ending for ending in ("", "-wal", "-shm", ".new", ".new-wal", ".new-shm")),
    database.SEAL,
    database.SEAL + ".new",
    files.FOLDER,
    "model",
)


def is_index(folder: Path) -> bool:
    """Whether a folder holds an index, of any format, and nothing else."""
    if any(entry.name not in (*_OWN_NAMES, database.LOCK) for entry in folder.iterdir()):
        return False
    return database.is_ours(folder / database.FILE)


def check_room(folder: Path, overwrite: bool) -> None:
    """Refuse to put an index where something else is, or where one is that shall stay."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise CollectionError(f"{folder}: this is a file; an index is a folder")
    if not any(folder.iterdir()):
        return
    if not is_index(folder):
        raise CollectionError(f"{folder}: this folder holds something that is no index; choose another")
    if not overwrite and not _never_committed(folder):
        raise CollectionError(
            f"{folder}: there is an index here already; --overwrite (in Python overwrite=True) replaces it"
        )


def make_room(folder: Path, overwrite: bool) -> None:
    """Clear the way for a new index without ever removing what is not an index."""
    check_room(folder, overwrite)
    if not (folder / database.FILE).exists():
        return
    lock = database.WriterLock(folder, wait=1.0)
    try:  # the lock stays: others may be waiting for it
        for name in _OWN_NAMES:
            entry = folder / name
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink(missing_ok=True)
    finally:
        lock.release()


def recover(folder: Path) -> None:
    """Give an index its name back if a replacement was stopped between the two renamings it takes."""
    kept = list(folder.parent.glob(f".{folder.name[:100]}.old-*"))
    if not folder.exists() and len(kept) == 1:
        kept[0].rename(folder)


def _sweep_builds(folder: Path) -> None:
    """Remove what builds that were killed have left beside the folder."""
    for left in folder.parent.glob(f".{folder.name[:100]}.new-*"):
        try:
            lock = database.WriterLock(left, wait=0.0)
        except CollectionError:  # somebody is still at it
            continue
        lock.release()
        shutil.rmtree(left, ignore_errors=True)


@contextmanager
def replace_index(folder: Path, *, overwrite: bool) -> Iterator[Path]:
    """A place to build an index that takes the folder's place when it is done; until then nothing is touched."""
    recover(folder)
    empty = folder.is_dir() and not any(folder.iterdir())
    replacing = folder.exists() and not empty
    if replacing:
        check_room(folder, overwrite)
    _sweep_builds(folder)
    building = folder.with_name(f".{folder.name[:100]}.new-{secrets.token_hex(4)}")
    try:
        yield building
        if replacing:
            old = folder.with_name(f".{folder.name[:100]}.old-{secrets.token_hex(4)}")
            folder.rename(old)
            building.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
        else:
            if empty:
                folder.rmdir()
            folder.parent.mkdir(parents=True, exist_ok=True)
            building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _never_committed(folder: Path) -> bool:
    """Whether the folder holds a build that was stopped before its first commit."""
    connection = database.connect(folder, write=False)
    try:
        return bool(database.get_meta(connection, "generation") == 0)
    finally:
        connection.close()
