"""Back up an index and restore it: the last commit, while a writer goes on, and only what earlier backups do not have.

A backup is a manifest that says which files an index has and of which pieces each consists. A piece is a file whose
name is the SHA-256 of its content, so backups share what did not change. The name of a manifest ends with the beginning
of its own SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import numpy as np

import vizsla
from vizsla import stopping
from vizsla.errors import CollectionError, VizslaError
from vizsla.index.backups.places import BACKUPS, PIECES, Folder, Place, open_place
from vizsla.index.storage import arrays, checksums, database, segment_files
from vizsla.index.storage.folder import absolute, check_model_folder, recover, replace_index
from vizsla.index.storage.verify import verify
from vizsla.plain_data import parse_settings

FORMAT = 1
PIECE = 1 << 20
"""The bytes of a piece; the last one of a file may have fewer."""
_MODEL = "model"
_MAX_BYTES = 1 << 30  # of a manifest: that of an index of 16 TB
_HASH = re.compile("[0-9a-f]{64}")
_NAME = re.compile(r"([0-9]{8}T[0-9]{6}-[0-9]{6})\.([0-9a-f]{16})\.json")
_ATTEMPTS = 5  # while a writer commits again and again
_PAGES = 256  # of the database, copied between two looks at the stop flag
_AT_ONCE = 8  # transfers: an object store takes as long for a small file as for a larger one

T = TypeVar("T")
R = TypeVar("R")
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
        pieces = _PieceWriter(to, commit.size, progress)
        files = [pieces.add(file) for file in commit.files()]
        manifest = Manifest(
            datetime.now(UTC).isoformat(timespec="seconds"), commit.generation, commit.documents, tuple(files)
        )
        to.sync()
        name = _write_manifest(to, manifest)
        to.sync()
        if keep is not None:
            _remove_older(to, keep)
    return Backup(
        name, manifest.created, manifest.generation, manifest.documents, manifest.bytes, new_bytes=pieces.new_bytes
    )


def list_backups(place: str | Path, *, storage_options: Mapping[str, Any] | None = None) -> list[Backup]:
    """The backups in a place, the oldest first."""
    where = open_place(place, storage_options)
    found = [(name, _read_manifest(where, name)) for name in _manifests(where)]
    return [Backup(name, m.created, m.generation, m.documents, m.bytes) for name, m in found]


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
    manifest = _read_manifest(source, name)
    with replace_index(folder, overwrite=overwrite) as building:
        _check_free_space(building, manifest.bytes)
        done = 0
        for part in manifest.files:
            for count in _restore_file(source, part, building):
                done += count
                if progress is not None:
                    progress(done, manifest.bytes)
        if problems := verify(building):
            problem = problems[0].removeprefix(f"{building}: ")  # a folder that is removed now
            raise CollectionError(f"{source}: what was backed up is damaged: {problem}")
        _give_own_uuid(building, source)
        for parent, _, _ in os.walk(building):
            arrays.sync_folder(Path(parent))
    return folder


# The manifest


@dataclass(frozen=True)
class BackupFile:
    """A file of an index in a backup."""

    path: str
    """Relative to the folder of the index, with slashes."""
    bytes: int
    sha256: str
    pieces: tuple[str, ...]

    def piece_size(self, number: int) -> int:
        """The bytes of a piece, by its number."""
        return min(PIECE, self.bytes - number * PIECE)


@dataclass(frozen=True)
class Manifest:
    """The files of a commit."""

    created: str
    generation: int
    documents: int
    files: tuple[BackupFile, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(part.bytes for part in self.files)

    @property
    def pieces(self) -> set[str]:
        """The names of all pieces."""
        return {piece for part in self.files for piece in part.pieces}


def _write_manifest(place: Place, manifest: Manifest) -> str:
    """Write a manifest, which completes a backup; gives the name of the backup."""
    facts = {"format": FORMAT, "vizsla": vizsla.__version__, "piece_bytes": PIECE, **asdict(manifest)}
    data = json.dumps(facts).encode()
    newest = max(_manifests(place), default="")
    name = datetime.now(UTC).strftime("%Y%m%dT%H%M%S-%f")
    if name <= newest:  # the clock went backwards, and the last backup must be the last one by name
        day, _, fraction = newest.rpartition("-")
        name = f"{day}-{int(fraction) + 1:06}"
    place.write(BACKUPS, f"{name}.{_digest(data)}.json", data)
    return name


def _manifests(place: Place) -> dict[str, str]:
    """The file names of all manifests by the names of the backups, the oldest first."""
    named = ((_NAME.fullmatch(file), file) for file in sorted(place.sizes(BACKUPS)))
    return {match[1]: file for match, file in named if match}


def _read_manifest(place: Place, name: str | None) -> Manifest:
    """The manifest of a backup, None for the last one; one that is damaged or names other files is refused."""
    known = _manifests(place)
    if not known:
        raise CollectionError(f"{place}: there is no backup here")
    if name is None:
        name = list(known)[-1]
    if name not in known:
        raise VizslaError(f"{place}: there is no backup {name!r}; the last one is {list(known)[-1]}")
    data = place.read(BACKUPS, known[name], _MAX_BYTES)
    try:
        if not known[name].endswith(f".{_digest(data)}.json"):
            raise ValueError("its content is not what was written")
        return _manifest_of(parse_settings(data))
    except ValueError as e:
        raise CollectionError(f"{place}: the backup {name} is damaged ({e})") from None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _manifest_of(facts: Any) -> Manifest:
    """The manifest that JSON describes; a ValueError for any other."""
    if not isinstance(facts, dict) or facts.get("format") != FORMAT or facts.get("piece_bytes") != PIECE:
        raise ValueError("its format is another one")
    counts = [facts.get(key) for key in ("generation", "documents")]
    files = facts.get("files")
    if not all(type(n) is int and n >= 0 for n in counts) or not isinstance(facts.get("created"), str):
        raise ValueError("its description is not valid")
    if not isinstance(files, list):
        raise ValueError("its list of files is not valid")
    parts = tuple(map(_backup_file, files))
    if len({part.path for part in parts}) < len(parts) or database.FILE not in {part.path for part in parts}:
        raise ValueError("its files are not those of an index")
    return Manifest(facts["created"], facts["generation"], facts["documents"], parts)


def _backup_file(entry: Any) -> BackupFile:
    if not isinstance(entry, dict) or entry.keys() != {"path", "bytes", "sha256", "pieces"}:
        raise ValueError("its list of files is not valid")
    path, size, sha256, pieces = (entry[key] for key in ("path", "bytes", "sha256", "pieces"))
    if not isinstance(path, str) or not is_path_of_index(path):
        raise ValueError(f"it names the file {str(path)[:80]!r}, which no index has")
    is_valid = type(size) is int and size >= 0 and isinstance(pieces, list) and len(pieces) == -(-size // PIECE)
    if not is_valid or not all(isinstance(text, str) and _HASH.fullmatch(text) for text in (sha256, *pieces)):
        raise ValueError("its list of files is not valid")
    return BackupFile(path, size, sha256, tuple(pieces))


def is_path_of_index(path: str) -> bool:
    """Whether an index may have a file with this relative path.

    >>> is_path_of_index("index.db"), is_path_of_index("model/tokenizer.json")
    (True, True)
    >>> is_path_of_index("../index.db"), is_path_of_index("model/../../.bashrc"), is_path_of_index("/etc/passwd")
    (False, False, False)
    """
    first, *inner = path.split("/")
    if first == _MODEL:
        return bool(inner) and database.is_plain_path(path)
    if first == arrays.FOLDER:
        return len(inner) == 2 and segment_files.is_file_of_segment(*inner)
    return path == database.FILE


# Backing up


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
        check_model_folder(folder / _MODEL)
        for name, sha256 in hashes.items():
            yield _File(f"{_MODEL}/{name}", arrays.map_whole_file(folder / _MODEL / name), sha256)
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


class _PieceWriter:
    """Writes pieces that a place does not have."""

    def __init__(self, place: Place, total: int, progress: Progress | None) -> None:
        self._place, self._total, self._progress = place, total, progress
        self._there = place.sizes(PIECES)
        last = [_read_manifest(place, None)] if _manifests(place) else []
        self._before = {(part.path, part.sha256): part for manifest in last for part in manifest.files}
        self._done = self.new_bytes = 0

    def add(self, file: _File) -> BackupFile:
        """Add a file; a file of the last backup is not even read."""
        same = self._before.get((file.path, file.sha256 or ""))
        if same is not None and same.bytes == len(file.content) and self._has(same):
            self._tell(same.bytes)
            return same
        whole, pieces = hashlib.sha256(), []
        blocks = (file.content[start : start + PIECE].tobytes() for start in range(0, len(file.content), PIECE))
        for name, block in _in_order(self._put, blocks):
            whole.update(block)
            pieces.append(name)
            self._tell(len(block))
        if file.sha256 not in (None, whole.hexdigest()):
            raise CollectionError(f"{file.path} is damaged: its content is not what was written; see 'vizsla verify'")
        return BackupFile(file.path, len(file.content), whole.hexdigest(), tuple(pieces))

    def _has(self, part: BackupFile) -> bool:
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
    known = _manifests(place)
    kept = list(known)[-keep:]
    needed = set().union(*(_read_manifest(place, name).pieces for name in kept))
    for name in known.keys() - set(kept):
        place.remove(BACKUPS, known[name])
    place.sync()  # a backup must not come back without its pieces
    unneeded = sorted(place.sizes(PIECES).keys() - needed)
    for _ in _in_order(lambda name: place.remove(PIECES, name), unneeded):
        pass


# Restoring


def _check_free_space(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise CollectionError(f"{folder.parent}: the backup needs {size:,} bytes, and {free:,} are free")


def _restore_file(source: Place, part: BackupFile, folder: Path) -> Iterator[int]:
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
            for data in _in_order(piece, range(len(part.pieces))):
                out.write(data)
                whole.update(data)
                yield len(data)
            out.flush()
            os.fsync(out.fileno())
    except OSError as e:
        raise CollectionError(f"{folder.parent}: {part.path} cannot be written ({e.strerror})") from None
    if whole.hexdigest() != part.sha256:
        raise CollectionError(f"{source}: {part.path} is damaged: its pieces are not what was written")


def _give_own_uuid(folder: Path, source: Place) -> None:
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


# Transfers


def _in_order(call: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """What a function gives for each item, in their order; a few calls run ahead, in threads that no search waits for.

    >>> list(_in_order(str.upper, ["a", "b", "c"]))
    ['A', 'B', 'C']
    """
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(_AT_ONCE, "vizsla-transfer") as pool:
        try:
            for item in items:
                stopping.check()
                waiting.append(pool.submit(call, item))
                if len(waiting) > _AT_ONCE:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
