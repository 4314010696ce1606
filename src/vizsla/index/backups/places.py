"""Where backups are kept: a folder, or an object store through fsspec.

A place has two folders, `backups` and `pieces`. Whoever gave them may have changed them, so names are checked, links
are not followed, and no more is read than was announced.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vizsla.errors import CollectionError, VizslaError, kind_of
from vizsla.index.storage import arrays
from vizsla.index.storage.folder import absolute
from vizsla.index.storage.locks import FileLock, LockedError

BACKUPS, PIECES = FOLDERS = "backups", "pieces"
_LOCK = "backup.lock"
_UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.unfinished")


class Place(ABC):
    """A place for backups."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """A context in which backups may be written here, by this process alone where that can be ensured."""
        foreign = sorted(self.entries() - {*FOLDERS, _LOCK})
        if foreign:
            raise CollectionError(f"{self}: this holds something that is not a backup ({foreign[0]}); choose another")
        yield

    @abstractmethod
    def entries(self) -> set[str]:
        """The names of files and folders directly in the place; empty if it does not exist."""

    @abstractmethod
    def sizes(self, folder: str) -> dict[str, int]:
        """The names of the files of a folder, and how many bytes each has."""

    @abstractmethod
    def read(self, folder: str, name: str, limit: int) -> bytes:
        """The content of a file, or an error if it is not there or has more than `limit` bytes."""

    @abstractmethod
    def write(self, folder: str, name: str, data: bytes) -> None:
        """Write a file; nobody sees half of it."""

    @abstractmethod
    def remove(self, folder: str, name: str) -> None:
        """Remove a file."""

    @abstractmethod
    def sync(self) -> None:
        """Wait until what was written survives a crash."""

    def _missing(self, folder: str, name: str) -> CollectionError:
        return CollectionError(f"{self}: {folder}/{name} is missing")

    def _too_long(self, folder: str, name: str) -> CollectionError:
        return CollectionError(f"{self}: {folder}/{name} is damaged: it is longer than it should be")


class Folder(Place):
    """A folder."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """See `Place.writing`; a lock keeps others out."""
        with super().writing():
            with self._errors("written to"):
                for folder in FOLDERS:
                    (self.path / folder).mkdir(parents=True, exist_ok=True)
            try:
                lock = FileLock(self.path / _LOCK)
            except LockedError:
                raise CollectionError(f"{self}: another backup to this folder is running") from None
            try:
                for folder in FOLDERS:  # left by a process that was killed
                    for name in self.sizes(folder):
                        if _UNFINISHED.fullmatch(name):
                            self.remove(folder, name)
                yield
            finally:
                lock.release()

    def entries(self) -> set[str]:
        """See `Place.entries`."""
        try:
            return {entry.name for entry in self.path.iterdir()}
        except FileNotFoundError:
            return set()
        except NotADirectoryError:
            raise CollectionError(f"{self}: this is a file; backups are in a folder") from None
        except OSError as e:
            raise CollectionError(f"{self}: cannot be read ({e.strerror})") from None

    def sizes(self, folder: str) -> dict[str, int]:
        """See `Place.sizes`."""
        with self._errors("read"):
            if (self.path / folder).is_symlink():
                raise CollectionError(f"{self}: {folder} is a link; choose another place")
            try:
                with os.scandir(self.path / folder) as entries:
                    return {
                        e.name: e.stat(follow_symlinks=False).st_size
                        for e in entries
                        if e.is_file(follow_symlinks=False)
                    }
            except FileNotFoundError:
                return {}

    def read(self, folder: str, name: str, limit: int) -> bytes:
        """See `Place.read`."""
        try:
            with open(arrays.open_plain(self.path / folder / name), "rb") as file:
                data = file.read(limit + 1)
        except FileNotFoundError:
            raise self._missing(folder, name) from None
        except OSError as e:
            raise CollectionError(f"{self}: {folder}/{name} cannot be read ({e.strerror})") from None
        if len(data) > limit:
            raise self._too_long(folder, name)
        return data

    def write(self, folder: str, name: str, data: bytes) -> None:
        """See `Place.write`."""
        unfinished = self.path / folder / f".{secrets.token_hex(8)}.unfinished"
        with self._errors("written to"):
            try:
                with unfinished.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.replace(self.path / folder / name)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise

    def remove(self, folder: str, name: str) -> None:
        """See `Place.remove`."""
        with self._errors("written to"):
            (self.path / folder / name).unlink(missing_ok=True)

    def sync(self) -> None:
        """See `Place.sync`."""
        with self._errors("written to"):
            for folder in (self.path, *(self.path / folder for folder in FOLDERS)):
                arrays.sync_folder(folder)

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            raise CollectionError(f"{self}: cannot be {what} ({e.strerror})") from None


class ObjectStore(Place):
    """A folder of an object store, or whatever else fsspec reaches."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        super().__init__(url)
        try:
            import fsspec
        except ImportError:
            raise VizslaError(
                "an object store needs fsspec, which is not installed; get it with: pip install 'vizsla[fsspec]'"
            ) from None
        with self._errors("opened"):
            self._files, self._root = fsspec.core.url_to_fs(url, **options)

    def entries(self) -> set[str]:
        """See `Place.entries`."""
        return {name for name, _, _ in self._list(self._root)}

    def sizes(self, folder: str) -> dict[str, int]:
        """See `Place.sizes`."""
        return {name: size for name, kind, size in self._list(self._path(folder)) if kind == "file"}

    def read(self, folder: str, name: str, limit: int) -> bytes:
        """See `Place.read`."""
        try:
            with self._errors("read"):
                data: bytes = self._files.cat_file(self._path(folder, name), start=0, end=limit + 1)
        except FileNotFoundError:
            raise self._missing(folder, name) from None
        if len(data) > limit:
            raise self._too_long(folder, name)
        return data

    def write(self, folder: str, name: str, data: bytes) -> None:
        """See `Place.write`; an object store shows an object when it is complete."""
        with self._errors("written to"):
            self._files.pipe_file(self._path(folder, name), data)

    def remove(self, folder: str, name: str) -> None:
        """See `Place.remove`."""
        with self._errors("written to"), contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(folder, name))

    def sync(self) -> None:
        """See `Place.sync`; what a store has acknowledged stays."""

    def _path(self, *names: str) -> str:
        return "/".join((self._root.rstrip("/"), *names))

    def _list(self, path: str) -> list[tuple[str, str, int]]:
        """Name, kind and size of what is in a folder."""
        try:
            with self._errors("read"):
                self._files.invalidate_cache()
                found = self._files.ls(path, detail=True)
        except FileNotFoundError:
            return []
        named = ((str(entry["name"]).rstrip("/").rpartition("/")[2], entry) for entry in found)
        return [(name, str(entry["type"]), int(entry.get("size") or 0)) for name, entry in named if name]

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """A context in which every error but a missing file is one sentence; stores have errors of their own."""
        try:
            yield
        except (FileNotFoundError, VizslaError):
            raise
        except Exception as e:
            detail = " ".join(str(e).split()) or type(e).__name__
            raise CollectionError(f"{self}: cannot be {what} ({detail})") from e


def open_place(place: str | Path, options: Mapping[str, Any] | None) -> Place:
    """The place with this name: a path, or a URL such as s3://bucket/my-index."""
    if not isinstance(place, str | Path) or not str(place):
        raise VizslaError(f"a place for backups is a folder or a URL, not {kind_of(place)}")
    scheme, separator, rest = str(place).partition("://")
    if not separator or isinstance(place, Path):
        scheme, rest = "file", str(place)
    if scheme != "file":
        return ObjectStore(str(place), options or {})
    if options:
        raise VizslaError(f"{place}: options are for object stores, and this is a folder")
    return Folder(absolute(rest))
