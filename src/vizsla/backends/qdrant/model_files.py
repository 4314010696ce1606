"""The files of a collection's model: stored in pieces beside the collection, and in the cache of each client."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from qdrant_client import QdrantClient, models

from vizsla.backends.qdrant.connection import Connection
from vizsla.backends.qdrant.layout import file_id, files_of
from vizsla.backends.qdrant.state import CollectionState
from vizsla.cache import cache_folder
from vizsla.errors import CollectionError, VizslaError
from vizsla.index.storage import arrays
from vizsla.index.storage.folder import model_files
from vizsla.models import Model
from vizsla.plain_data import DescriptionError, parse_json

PIECE = 8 << 20
"""Bytes of a file in one point; a server takes requests of 32 MB."""


class DescribedModel:
    """A model as a collection keeps it: plain data, and files in a folder that is removed at the end of the block."""

    def __init__(self, model: Model) -> None:
        self._folder = TemporaryDirectory(prefix="vizsla-")
        self.folder = Path(self._folder.name)
        try:
            self.description: dict[str, Any] = parse_json(json.dumps(model.describe(self.folder)))
            Model.from_description(self.description, self.folder)
        except (TypeError, ValueError, DescriptionError) as e:
            self._folder.cleanup()
            raise VizslaError(f"the model {model.name!r} cannot be stored: {e}") from e
        except BaseException:
            self._folder.cleanup()
            raise
        self.files: dict[str, dict[str, Any]] = {
            name: {"sha256": arrays.hash_file(file), "bytes": file.stat().st_size}
            for name, file in model_files(self.folder)
        }

    def __enter__(self) -> DescribedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def store_files(connection: Connection, base: str, described: DescribedModel, replicas: int | None = None) -> None:
    """Keep the files of a model beside a new collection."""
    if not described.files:
        return
    name = files_of(base)
    one: dict[str, Any] = {"shard_number": 1, "replication_factor": replicas, "on_disk_payload": True}
    connection.call(QdrantClient.create_collection, name, {}, **one)
    for file, facts in described.files.items():
        with (described.folder / file).open("rb") as stream:
            for piece in range(_pieces(facts["bytes"])):
                content = base64.b64encode(stream.read(PIECE)).decode()
                payload = {"file": file, "piece": piece, "content": content}
                point = models.PointStruct(id=file_id(file, piece), vector={}, payload=payload)
                connection.call(QdrantClient.upsert, name, [point], wait=True)


def load_model(connection: Connection, state: CollectionState) -> Model:
    """The model of a collection; its files come from the cache, or are fetched from the collection and verified."""
    folder = cache_folder("qdrant") / _key(state.files)
    if state.files and not _is_whole(folder, state.files):
        _fetch(connection, state, folder)
    try:
        return Model.from_description(state.model, folder)
    except DescriptionError as e:
        raise CollectionError(
            f"the collection {state.base!r} does not describe a model ({e}); build it again"
        ) from None


def _key(files: Mapping[str, Any]) -> str:
    """The name of a folder for these files."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:32]


def _pieces(size: int) -> int:
    return max(-(-size // PIECE), 1)


def _is_whole(folder: Path, files: Mapping[str, Any]) -> bool:
    """Whether a folder has all files in their sizes; it was checked when it was filled."""
    try:
        return all((folder / name).stat().st_size == facts["bytes"] for name, facts in files.items())
    except OSError:
        return False


def _fetch(connection: Connection, state: CollectionState, folder: Path) -> None:
    """Fill a folder of the cache, completely or not at all."""
    new = folder.with_name(f"{folder.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        for name, facts in state.files.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\\" in name:
                raise CollectionError(f"the collection {state.base!r} names a file outside of its model: {name!r}")
            file = new / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as stream:
                for piece in range(_pieces(facts["bytes"])):
                    stream.write(_piece(connection, state.base, name, piece))
            if arrays.hash_file(file) != facts["sha256"]:
                raise CollectionError(
                    f"the file {name!r} of the model in {files_of(state.base)!r} is damaged; build the collection again"
                )
        shutil.rmtree(folder, ignore_errors=True)
        try:
            new.rename(folder)
        except OSError:
            if not _is_whole(folder, state.files):  # another process was faster
                raise
    except OSError as e:
        raise CollectionError(f"{folder}: the files of the model cannot be kept here ({e.strerror or e})") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _piece(connection: Connection, base: str, name: str, piece: int) -> bytes:
    found = connection.call(QdrantClient.retrieve, files_of(base), [file_id(name, piece)])
    if not found or found[0].payload is None:
        raise CollectionError(f"a piece of the model's file {name!r} is missing in {files_of(base)!r}; build it again")
    return base64.b64decode(str(found[0].payload.get("content", "")))
