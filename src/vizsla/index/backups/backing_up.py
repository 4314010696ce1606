"""Back up an index: the last commit, while a writer goes on, and only what earlier backups do not have."""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vizsla import stopping
from vizsla.errors import CollectionError, VizslaError
from vizsla.index.backups.manifest import MODEL, PIECE, Manifest, Part, manifests, read_manifest, write_manifest
from vizsla.index.backups.places import BACKUPS, PIECES, Folder, Place, open_place
from vizsla.index.backups.transfers import in_order
from vizsla.index.storage import arrays, checksums, database
from vizsla.index.storage.folder import absolute, check_model_folder, recover

_ATTEMPTS = 5  # while a writer commits again and again
_PAGES = 256  # of the database, copied between two looks at the stop flag

Progress = Callable[[int, int], None]
"""Called with the bytes that are done and those of the whole index."""


@dataclass(frozen=True)
class Backup:
    """A backup of a commit."""

    name: str
    created: str
    generation: int
    documents: int
    """Or passages, where documents are cut into passages."""
    bytes: int
    """Of the whole index."""
    new_bytes: int | None = None
    """What `backup` has written for it; earlier backups had the rest."""


def backup(
    path: str | Path,
    place: str | Path,
    *,
    keep: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Backup:
    """Back up the last commit of an index, also while somebody writes to it; gives what was backed up.

    `place`: a folder, or a URL that fsspec opens, as in `s3://bucket/my-index`. Keep one index in a place. Pieces that
    earlier backups have are not written again, so a backup takes as long as what has changed.
    `keep`: how many backups to keep; older ones are removed, with the pieces that only they have.
    `storage_options`: for fsspec, such as the address of the store.

    >>> import tempfile
    >>> from vizsla.index import Index, backup, restore
    >>> folder = Path(tempfile.mkdtemp())
    >>> with Index.create(folder / "dogs.index") as index:
    ...     _ = index.add([{"id": "1", "text": "Dogs bark."}])
    ...     _ = index.commit()
    ...     backup(index.path, folder / "saved").documents
    1
    >>> len(Index.open(restore(folder / "saved", folder / "again.index")))
    1
    """
    if keep is not None and (type(keep) is not int or keep < 1):
        raise VizslaError(f"keep 1 backup or more, not {keep!r}")
    folder, to = absolute(path), open_place(place, storage_options)
    if isinstance(to, Folder) and folder.resolve() in (to.path.resolve(), *to.path.resolve().parents):
        raise VizslaError(f"{to}: a backup cannot be inside of the index itself")
    with ExitStack() as stack:
        commit = stack.enter_context(closing(_open_commit(folder)))  # before the place is created
        stack.enter_context(to.writing())
        taken = _Taking(to, commit.size, progress)
        files = [taken.add(file) for file in commit.files()]
        manifest = Manifest(
            datetime.now(UTC).isoformat(timespec="seconds"), commit.generation, commit.documents, tuple(files)
        )
        to.sync()
        name = write_manifest(to, manifest)
        to.sync()
        if keep is not None:
            _remove_older(to, keep)
    return Backup(
        name, manifest.created, manifest.generation, manifest.documents, manifest.bytes, new_bytes=taken.new_bytes
    )


def list_backups(place: str | Path, *, storage_options: Mapping[str, Any] | None = None) -> list[Backup]:
    """The backups in a place, the oldest first."""
    where = open_place(place, storage_options)
    found = [(name, read_manifest(where, name)) for name in manifests(where)]
    return [Backup(name, m.created, m.generation, m.documents, m.bytes) for name, m in found]


class _File(NamedTuple):
    """A file of a commit. Its content is mapped, so that it stays when a later commit removes the file."""

    path: str
    content: np.ndarray
    sha256: str | None
    """What the database says; of the database itself None."""


class _Commit:
    """The files of a commit, which are held until `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        identity = database.identity(folder)
        self._db = database.connect(folder, write=False)
        self.close = database.close_with(self, self._db)
        try:
            with database.using_sqlite(folder):
                self._db.execute("BEGIN")
                meta = database.read_meta(self._db, folder)
                rows = database.segment_rows(self._db, folder, meta["generation"])
                if problem := checksums.wrong_table(self._db, meta):
                    raise database.damaged(folder, f"{problem} is not what was written")
                ((pages,),) = self._db.execute("PRAGMA page_count").fetchall()
                ((page_size,),) = self._db.execute("PRAGMA page_size").fetchall()
            self.generation: int = meta["generation"]
            self.documents = sum(statistics["living"] for *_, statistics in rows)
            self._files = list(_model_files(folder, meta["model_files"]))
            for segment, facts, _ in rows:
                for entry in facts.values():
                    content = arrays.map_file(folder, segment, entry)
                    self._files.append(_File(f"{arrays.FOLDER}/{segment}/{entry['file']}", content, entry["sha256"]))
            if database.identity(folder) != identity:
                raise arrays.MissingFileError(f"{folder}: the index was replaced while it was opened")
        except BaseException:
            self.close()
            raise
        self.size = pages * page_size + sum(len(file.content) for file in self._files)

    def files(self) -> Iterator[_File]:
        """All files; that of the database, a copy, is gone when the next one is asked for.

        After that the commit is let go of in the database, so that its log can shrink.
        """
        with tempfile.TemporaryDirectory(prefix="vizsla-") as scratch:
            copy = Path(scratch) / database.FILE
            with database.using_sqlite(self._folder), closing(sqlite3.connect(copy, isolation_level=None)) as target:
                target.execute("PRAGMA synchronous=OFF")
                self._db.backup(target, pages=_PAGES, progress=lambda *_: stopping.check())
            self.close()
            yield _File(database.FILE, arrays.map_whole_file(copy), None)
        yield from self._files


def _model_files(folder: Path, hashes: Mapping[str, str]) -> Iterator[_File]:
    try:
        check_model_folder(folder / MODEL)
        for name, sha256 in hashes.items():
            yield _File(f"{MODEL}/{name}", arrays.map_whole_file(folder / MODEL / name), sha256)
    except FileNotFoundError as e:
        raise arrays.MissingFileError(f"{e.filename}: this file is missing") from None
    except OSError as e:
        raise CollectionError(f"{folder}: the files of the model cannot be read ({e.strerror})") from None


def _open_commit(folder: Path) -> _Commit:
    """The last commit; if a writer removes a file before it is held, the commit that this writer has made."""
    for _ in range(_ATTEMPTS - 1):
        recover(folder)
        try:
            return _Commit(folder)
        except arrays.MissingFileError:
            pass
    return _Commit(folder)


class _Taking:
    """Writes pieces that a place does not have."""

    def __init__(self, place: Place, total: int, progress: Progress | None) -> None:
        self._place, self._total, self._progress = place, total, progress
        self._there = place.sizes(PIECES)
        last = [read_manifest(place, None)] if manifests(place) else []
        self._before = {(part.path, part.sha256): part for manifest in last for part in manifest.files}
        self._done = self.new_bytes = 0

    def add(self, file: _File) -> Part:
        """Add a file; a file of the last backup is not even read."""
        same = self._before.get((file.path, file.sha256 or ""))
        if same is not None and same.bytes == len(file.content) and self._has(same):
            self._tell(same.bytes)
            return same
        whole, pieces = hashlib.sha256(), []
        blocks = (file.content[start : start + PIECE].tobytes() for start in range(0, len(file.content), PIECE))
        for name, block in in_order(self._put, blocks):
            whole.update(block)
            pieces.append(name)
            self._tell(len(block))
        if file.sha256 not in (None, whole.hexdigest()):
            raise CollectionError(f"{file.path} is damaged: its content is not what was written; see 'vizsla verify'")
        return Part(file.path, len(file.content), whole.hexdigest(), tuple(pieces))

    def _has(self, part: Part) -> bool:
        return all(self._there.get(piece) == part.piece_size(n) for n, piece in enumerate(part.pieces))

    def _put(self, block: bytes) -> tuple[str, bytes]:
        """Write a piece, unless it is there; gives its name, and the piece."""
        name = hashlib.sha256(block).hexdigest()
        if self._there.get(name) != len(block):
            self._place.write(PIECES, name, block)
            self._there[name] = len(block)
            self.new_bytes += len(block)
        return name, block

    def _tell(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, max(self._total, self._done))


def _remove_older(place: Place, keep: int) -> None:
    """Remove all but the last backups, and then the pieces that no backup has."""
    known = manifests(place)
    kept = list(known)[-keep:]
    needed = set().union(*(read_manifest(place, name).pieces for name in kept))
    for name in known.keys() - set(kept):
        place.remove(BACKUPS, known[name])
    place.sync()  # a backup must not come back without its pieces
    unneeded = sorted(place.sizes(PIECES).keys() - needed)
    for _ in in_order(lambda name: place.remove(PIECES, name), unneeded):
        pass
