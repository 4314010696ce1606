"""The folder of an index: where one may be put, and how one takes the place of another.

A new index is built in a folder beside and takes its place by renaming, so that at every moment one of the two is
there whole. While it is built, the old one's writer lock is held: nobody writes to what is about to be replaced.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from vizsla.errors import CollectionError
from vizsla.index.storage import arrays, database, segment_files
from vizsla.index.storage.locks import FileLock

BUILDING = "building.lock"
"""Held in a folder that is being built, and gone when it is done."""
_SEALS = ("index.seal", "index.seal.new")  # of earlier versions
_OWN_NAMES = frozenset(
    (
        *(database.FILE + ending for ending in ("", "-wal", "-shm", ".new", ".new-wal", ".new-shm", ".new-journal")),
        *(database.LOCK + ending for ending in ("", "-journal", "-wal", "-shm")),
        *_SEALS,
        BUILDING,
        arrays.FOLDER,
        "model",
    )
)
_LONGEST_SWAP = 10.0  # seconds a reader waits between the two renamings of a replacement
_PAUSE = 0.01
_UNMARKED = 60.0  # seconds after which a folder without a mark is no build that has just begun


def absolute(path: str | Path) -> Path:
    """A path that stays what it is when the process changes its folder; one that cannot be is refused."""
    found = Path(os.path.abspath(path))
    try:
        os.lstat(found)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass  # told by who opens it
    except (OSError, ValueError) as e:
        raise CollectionError(f"{str(path)!r}: this cannot be a folder ({getattr(e, 'strerror', None) or e})") from None
    return found


def is_index(folder: Path) -> bool:
    """Whether a folder holds an index, of any format, and nothing else."""
    if any(entry.name not in _OWN_NAMES or entry.is_symlink() for entry in folder.iterdir()):
        return False
    return not any(segment_files.strangers(folder, {})) and database.is_ours(folder / database.FILE)


def is_being_built(folder: Path) -> bool:
    """Whether `replace_index` has given this folder to build an index in, and none is there yet."""
    return (folder / BUILDING).exists() and not (folder / database.FILE).exists()


def check_room(folder: Path, overwrite: bool) -> None:
    """Refuse to put an index where something else is, or where one is that shall stay."""
    if not folder.exists() and not folder.is_symlink():
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


def recover(folder: Path) -> None:
    """Give an index its name back if a replacement was stopped between the two renamings it takes.

    While the one who replaces it is still there, wait for him.
    """
    until = time.monotonic() + _LONGEST_SWAP
    while not folder.exists() and time.monotonic() < until:
        kept = _beside(folder, "old")
        if len(kept) != 1:
            return
        with suppress(CollectionError, OSError):  # it is locked, or gone: the replacement goes on
            lock = database.lock_for_writing(kept[0], wait=0.0)
            try:
                if not folder.exists():
                    kept[0].rename(folder)
                    arrays.sync_folder(folder.parent)
            finally:
                lock.release()
            return
        time.sleep(_PAUSE)


@contextmanager
def replace_index(folder: Path, *, overwrite: bool) -> Iterator[Path]:
    """A place to build an index that takes the folder's place when it is done; until then nothing is touched.

    What fails leaves the folder as it was. Nobody can write to the old index meanwhile.

    >>> import tempfile
    >>> from vizsla.index import Index
    >>> place = Path(tempfile.mkdtemp()) / "dogs.index"
    >>> with replace_index(place, overwrite=True) as building, Index.create(building) as index:
    ...     _ = index.add([{"id": "1", "text": "Dogs bark."}])
    ...     index.commit()
    >>> len(Index.open(place))
    1
    """
    if folder.name in ("", ".."):
        raise CollectionError(f"{folder}: an index is put in place by renaming; give its folder a name, as in my.index")
    recover(folder)
    check_room(folder, overwrite)
    folder = folder.resolve() if folder.is_symlink() else absolute(folder)
    replaced = database.lock_for_writing(folder, wait=1.0) if (folder / database.FILE).exists() else None
    try:
        _sweep(folder)
        with _building(folder) as building:
            yield building
            with _one_at_a_time(folder.parent):
                if replaced is None and (folder / database.FILE).exists():  # another build was faster
                    check_room(folder, overwrite)
                    replaced = database.lock_for_writing(folder, wait=1.0)
                _put_in_place(building, folder)
    finally:
        if replaced is not None:
            replaced.release()


@contextmanager
def _building(folder: Path) -> Iterator[Path]:
    """A new folder beside, marked as being worked on; removed if it is still there at the end."""
    building = folder.with_name(f"{_prefix(folder, 'new')}{secrets.token_hex(4)}")
    process = os.getpid()
    try:
        building.mkdir(parents=True)
        mark = FileLock(building / BUILDING)
    except OSError as e:
        raise CollectionError(f"{folder}: cannot be written to ({e.strerror})") from None
    try:
        yield building
    finally:
        mark.release()
        if os.getpid() == process:  # a forked child has nothing to clean up
            shutil.rmtree(building, ignore_errors=True)


@contextmanager
def _one_at_a_time(parent: Path) -> Iterator[None]:
    """Nobody else looks at what is there and renames, while somebody does: the folder above is locked."""
    try:
        import fcntl

        descriptor = os.open(parent, os.O_RDONLY)
    except (ImportError, OSError):  # where folders have no locks
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _put_in_place(building: Path, folder: Path) -> None:
    """Rename a finished index to its name; one that is there moves away first and is removed afterwards."""
    old = folder.with_name(f"{_prefix(folder, 'old')}{secrets.token_hex(4)}")
    moved = False
    try:
        if (folder / database.FILE).exists():
            folder.rename(old)
            moved = True
        elif folder.exists():  # empty, or it would have been refused
            folder.rmdir()
        building.rename(folder)
    except OSError as e:
        if moved and not folder.exists():
            with suppress(OSError):  # if even this fails, `recover` does it when the index is next opened
                old.rename(folder)
        raise CollectionError(f"{folder}: cannot be written to ({e.strerror}); what was there is as it was") from None
    with suppress(OSError):  # it is in place; what fails from here on is no failure of that
        (folder / BUILDING).unlink()
        arrays.sync_folder(folder.parent)
    if moved:
        gone = folder.with_name(f"{_prefix(folder, 'gone')}{secrets.token_hex(4)}")
        with suppress(OSError):
            old.rename(gone)  # so that nobody takes it for an index that lost its name
        shutil.rmtree(gone, ignore_errors=True)


def _prefix(folder: Path, what: str) -> str:
    name = folder.name
    if len(name) > 100:  # names that begin alike must not be taken for each other
        name = f"{name[:80]}-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
    return f".{name}.{what}-"


def _beside(folder: Path, what: str) -> list[Path]:
    """The folders that replacements of this index have left beside it."""
    start = _prefix(folder, what)
    found = (Path(f) for f in glob.glob(f"{glob.escape(str(folder.with_name(start)))}*"))
    return [f for f in found if re.fullmatch(r"[0-9a-f]{8}", f.name.removeprefix(start)) and not f.is_symlink()]


def _sweep(folder: Path) -> None:
    """Remove what builds and replacements that were killed have left beside the folder."""
    for left in _beside(folder, "gone"):
        shutil.rmtree(left, ignore_errors=True)
    for left in _beside(folder, "new"):
        with suppress(CollectionError, OSError):
            marked = (left / BUILDING).exists()
            if FileLock.is_free(left / BUILDING) if marked else time.time() - left.stat().st_mtime > _UNMARKED:
                shutil.rmtree(left, ignore_errors=True)
    if (folder / database.FILE).exists():  # else an old index is all there is
        for left in _beside(folder, "old"):
            with suppress(CollectionError):  # somebody is still at it
                database.lock_for_writing(left, wait=0.0).release()
                shutil.rmtree(left, ignore_errors=True)


def remove_seal(folder: Path) -> None:
    """Remove what earlier versions kept beside the database and would now be wrong."""
    for name in _SEALS:
        with suppress(OSError):  # nothing reads it any more
            (folder / name).unlink(missing_ok=True)


def _never_committed(folder: Path) -> bool:
    """Whether the folder holds a build that was stopped before its first commit."""
    connection = database.connect(folder, write=False)
    with database.using_sqlite(folder), closing(connection):
        return bool(database.read_meta(connection, folder)["generation"] == 0)
