"""The collections that requests create and delete: a folder each, in the folder that the operator has named.

A collection is built under a name that no request can ask for and renamed when it is complete, and one that is deleted
is renamed before its files are removed. So after a crash it is there as a whole or not at all; what a crash leaves is
removed when the next server starts, and with the next change.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vizsla.errors import CollectionError, in_words
from vizsla.index import Index
from vizsla.index.storage import database
from vizsla.index.storage.arrays import sync_folder
from vizsla.index.storage.locks import FileLock, LockedError
from vizsla.models import parse_model
from vizsla.plain_data import parse_json
from vizsla.server.errors import NotFoundError, RequestError
from vizsla.server.settings import Settings

RECORD, INDEX, STATE = "collection.json", "index", "state"
"""The files of a collection: what it was created with, its index, and what the server keeps beside that."""
STAGED = "staged"
MODELS = {"bm25": "bm25"}
"""The models that a new collection may have if the operator names none."""
_LOCK, _NEW, _GONE = "lock", ".new-", ".gone-"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
_RESERVED = {"indexes", _LOCK}
_WAIT = 10.0  # seconds for other requests that create or delete


def is_name(name: str) -> bool:
    """Whether a collection may have a name: it is the name of a folder on any system, and the same one on each.

    >>> [is_name(name) for name in ("dogs-2", "Dogs", "../dogs", "dogs.index", "con", "dogs\\n")]
    [True, False, False, False, False, False]
    """
    return bool(_NAME.fullmatch(name)) and name not in _DEVICES | _RESERVED


def check_collection_name(name: str) -> str:
    """Refuse a name that a collection may not have."""
    if not is_name(name):
        raise RequestError(
            f"{name[:80]!r} cannot be the name of a collection: it has at most 64 characters, small letters from a to "
            "z, digits, '-' and '_', begins with a letter or digit, and is no name of a device"
        )
    return name


@dataclass(frozen=True)
class CollectionSettings:
    """What can be changed of a collection."""

    description: str = ""
    read_only: bool = False
    """Whether requests may not change its documents."""
    documents: int | None = None
    """How many documents it may have; None: as many as the server allows."""
    bytes: int | None = None
    """How large it may become; None: as large as the server allows."""


@dataclass(frozen=True)
class Making:
    """What a collection is created with, for good."""

    model: str
    passages: int | None = None
    store: bool = True
    positions: bool = False


@dataclass(frozen=True)
class Record:
    """A collection: an id that no other one has, its creation, and its settings."""

    id: str
    created: str
    making: Making
    settings: CollectionSettings

    @classmethod
    def read(cls, file: Path) -> Record:
        """The record in a file."""
        try:
            data = parse_json(file.read_bytes())
            making, settings = Making(**data["making"]), CollectionSettings(**data["settings"])
            return cls(str(data["id"]), str(data["created"]), making, settings)
        except (ValueError, KeyError, TypeError) as e:
            raise CollectionError(f"{file}: this is not the record of a collection ({e})") from None

    def public(self) -> dict[str, Any]:
        """What the API says of it."""
        return {"created": self.created, **asdict(self.making), "settings": asdict(self.settings)}


Identity = tuple[int, int]
"""Says whether the record of a collection is still the one that was read."""


class CollectionsFolder:
    """The folder of all collections. Any number of processes may use it at a time."""

    def __init__(self, settings: Settings) -> None:
        self.folder = Path(settings.collections).absolute()
        self.quotas = settings.quotas
        self.models = settings.collection_models or MODELS

    def prepare(self) -> None:
        """Make the folder, and remove what a crash has left."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise CollectionError(f"{self.folder}: cannot be written to ({e.strerror})") from None
        with self._locked():
            self._sweep()

    # Reading

    def names(self) -> list[str]:
        """The names of all collections."""
        with suppress(FileNotFoundError):
            return sorted(name for name in os.listdir(self.folder) if is_name(name) and self.identity(name))
        return []

    def path(self, name: str) -> Path:
        """The folder of a collection."""
        return self.folder / check_collection_name(name)

    def identity(self, name: str) -> Identity | None:
        """What changes whenever the record of a collection does; None if there is no such collection."""
        if not is_name(name):
            return None
        try:
            found = os.stat(self.folder / name / RECORD, follow_symlinks=False)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def record(self, name: str) -> Record | None:
        """The record of a collection; None if there is no such collection."""
        try:
            return Record.read(self.path(name) / RECORD) if is_name(name) else None
        except OSError:
            return None

    # Changing

    def create(self, name: str, making: Making, settings: CollectionSettings) -> bool:
        """Create a collection, durably; False if there is one that was created in the same way."""
        target = self.path(name)
        if making.model not in self.models:
            raise RequestError(
                f"a collection cannot have the model {making.model[:80]!r}; this server offers {in_words(self.models)}"
            )
        self._check_quotas(settings)
        with self._locked():
            known = self.record(name)
            if known is not None:
                if known.making == making and known.settings == settings:
                    return False
                raise RequestError(f"there is a collection {name} already, which was created in another way", 409)
            if len(self.names()) >= self.quotas.collections:
                most = self.quotas.collections
                raise RequestError(f"there are already {most:,} collections, the most allowed; delete one first", 507)
            self._sweep()
            try:
                self._build(target, making, settings)
            except OSError as e:
                raise _not_stored(e) from e
        return True

    def _build(self, target: Path, making: Making, settings: CollectionSettings) -> None:
        building = self.folder / f"{_NEW}{secrets.token_hex(8)}"
        try:
            (building / STATE / STAGED).mkdir(parents=True)
            model = parse_model(self.models[making.model])
            passages = making.passages
            with Index.create(
                building / INDEX, model, passages=passages, store=making.store, positions=making.positions
            ):
                pass
            now = datetime.now(UTC).isoformat(timespec="seconds")
            _write(building, Record(secrets.token_hex(16), now, making, settings))
            for folder in (building / STATE, building, self.folder):
                sync_folder(folder)
            os.rename(building, target)
            sync_folder(self.folder)
        finally:
            shutil.rmtree(building, ignore_errors=True)

    def change(self, name: str, changes: Mapping[str, Any]) -> Record:
        """Change settings of a collection, durably."""
        with self._locked():
            known = self.record(name)
            if known is None:
                raise no_collection(name)
            settings = replace(known.settings, **changes)
            self._check_quotas(settings)
            changed = replace(known, settings=settings)
            if changed != known:
                try:
                    _write(self.path(name), changed)
                    sync_folder(self.path(name))
                except OSError as e:
                    raise _not_stored(e) from e
            return changed

    def delete(self, name: str, wait: float) -> None:
        """Delete a collection, durably, when nobody writes to it; `wait`: at most so many seconds for that."""
        path, known = self.path(name), self.record(name)
        if known is None:
            raise no_collection(name)
        gone = self.folder / f"{_GONE}{secrets.token_hex(8)}"
        with _nobody_writes(path / INDEX, wait), self._locked():
            now = self.record(name)
            if now is None or now.id != known.id:
                raise no_collection(name)
            try:
                os.rename(path, gone)
                sync_folder(self.folder)
            except OSError as e:
                raise RequestError(f"the collection cannot be deleted now ({e.strerror or e})", 503) from e
        shutil.rmtree(gone, ignore_errors=True)

    def _check_quotas(self, settings: CollectionSettings) -> None:
        for name in ("documents", "bytes"):
            wanted, most = getattr(settings, name), getattr(self.quotas, name)
            if wanted is not None and wanted > most:
                raise RequestError(f"{name} is {wanted:,}, and a collection of this server may have {most:,} at most")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One change of the folder at a time."""
        try:
            lock = FileLock(self.folder / _LOCK, _WAIT)
        except LockedError:
            raise RequestError(
                "other collections are being created or deleted; try again", 409, {"Retry-After": "1"}
            ) from None
        try:
            yield
        finally:
            lock.release()

    def _sweep(self) -> None:
        """Remove what stopped creations and deletions have left; the caller holds the lock, so nothing is new."""
        for name in os.listdir(self.folder):
            if name.startswith((_NEW, _GONE)):
                shutil.rmtree(self.folder / name, ignore_errors=True)


@contextmanager
def _nobody_writes(folder: Path, wait: float) -> Iterator[None]:
    """The writer's lock of an index, if there still is one that could be written to."""
    lock = None
    if (folder / database.FILE).exists():
        try:
            lock = database.lock_for_writing(folder, wait)
        except CollectionError:
            if (folder / database.FILE).exists():
                raise
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _write(folder: Path, record: Record) -> None:
    """Write a record beside its collection, whole."""
    unfinished = folder / f"{RECORD}.new"
    with open(unfinished, "w", encoding="utf-8") as file:
        json.dump({field.name: _plain(getattr(record, field.name)) for field in fields(record)}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, folder / RECORD)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else asdict(value)


def no_collection(name: str) -> NotFoundError:
    """The answer to a request for a collection that is not there."""
    return NotFoundError(f"there is no collection {name[:80]!r} here")


def _not_stored(error: OSError) -> RequestError:
    return RequestError(f"the server cannot store this ({error.strerror or error}); nothing was changed", 507)
