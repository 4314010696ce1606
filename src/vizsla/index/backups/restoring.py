"""Restore an index from a backup: each piece is compared with its checksum, and then the whole index is verified."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

from vizsla.errors import CollectionError, VizslaError
from vizsla.index.backups.backing_up import Progress
from vizsla.index.backups.manifest import Part, read_manifest
from vizsla.index.backups.places import PIECES, Place, open_place
from vizsla.index.backups.transfers import in_order
from vizsla.index.storage import arrays, checksums, database, segment_files
from vizsla.index.storage.folder import absolute, replace_index
from vizsla.index.storage.verify import verify


def restore(
    place: str | Path,
    path: str | Path,
    *,
    name: str | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Path:
    """Restore an index from a backup into a folder, which is given back.

    `name`: that of the backup in `list_backups`; by default the last one. An existing index is replaced only with
    `overwrite`, and only when the restored one is complete and verified. `storage_options`: for fsspec.
    """
    if name is not None and not isinstance(name, str):
        raise VizslaError(f"the name of a backup is a text, not {name!r}")
    source, folder = open_place(place, storage_options), absolute(path)
    manifest = read_manifest(source, name)
    with replace_index(folder, overwrite=overwrite) as building:
        _check_room(building, manifest.bytes)
        done = 0
        for part in manifest.files:
            for count in _write(source, part, building):
                done += count
                if progress is not None:
                    progress(done, manifest.bytes)
        if problems := verify(building):
            raise CollectionError(f"{source}: what was backed up is damaged: {_without(building, problems[0])}")
        _give_new_name(building, source)
        for parent, _, _ in os.walk(building):
            arrays.sync_folder(Path(parent))
    return folder


def _check_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise CollectionError(f"{folder.parent}: the backup needs {size:,} bytes, and {free:,} are free")


def _write(source: Place, part: Part, folder: Path) -> Iterator[int]:
    """Write a file piece by piece; gives the bytes of each. No piece that is not what its name says is written."""

    def piece(number: int) -> bytes:
        name, size = part.pieces[number], part.piece_size(number)
        data = source.read(PIECES, name, size)
        if len(data) != size or hashlib.sha256(data).hexdigest() != name:
            raise CollectionError(f"{source}: {PIECES}/{name} is damaged: its content is not what was written")
        return data

    file = folder.joinpath(*part.path.split("/"))
    whole = hashlib.sha256()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as out:
            for data in in_order(piece, range(len(part.pieces))):
                out.write(data)
                whole.update(data)
                yield len(data)
            out.flush()
            os.fsync(out.fileno())
    except OSError as e:
        raise CollectionError(f"{folder.parent}: {part.path} cannot be written ({e.strerror})") from None
    if whole.hexdigest() != part.sha256:
        raise CollectionError(f"{source}: {part.path} is damaged: its pieces are not what was written")


def _without(building: Path, problem: str) -> str:
    """A problem without the name of the folder that is removed now."""
    return problem.removeprefix(f"{building}: ")


def _give_new_name(folder: Path, source: Place) -> None:
    """Remove what an unfinished commit has left, refuse files of no commit, and give the index a uuid of its own.

    So whoever has the index open that this one replaces does not take it for the same index.
    """
    with database.using_sqlite(folder), closing(database.connect(folder, write=True)) as db:
        meta = database.sweep(db, database.read_meta(db, folder))
        if any(segment_files.leftovers(folder, database.live_files(db, folder))):
            raise CollectionError(f"{source}: the backup is damaged (it has files that its index does not name)")
        db.execute("BEGIN IMMEDIATE")
        database.set_meta(db, "uuid", uuid4().hex)
        sums = meta[checksums.KEY]
        checksums.Checksums(sums).store(db, meta["generation"], sums["next_term"])
        database.mark_finished(db, meta["generation"])
        database.commit(db, folder)
