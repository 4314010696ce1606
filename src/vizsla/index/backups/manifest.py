"""The manifest of a backup: which files an index has, and of which pieces each consists.

A piece is a file whose name is the SHA-256 of its content, so backups share what did not change. The name of a
manifest ends with the beginning of its own SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import vizsla
from vizsla.errors import CollectionError, VizslaError
from vizsla.index.backups.places import BACKUPS, Place
from vizsla.index.storage import database, segment_files
from vizsla.index.storage.arrays import FOLDER
from vizsla.plain_data import parse_settings

FORMAT = 1
PIECE = 1 << 20
"""The bytes of a piece; the last one of a file may have fewer."""
MODEL = "model"
_MAX_BYTES = 1 << 30  # of a manifest: that of an index of 16 TB
_HASH = re.compile("[0-9a-f]{64}")
_NAME = re.compile(r"([0-9]{8}T[0-9]{6}-[0-9]{6})\.([0-9a-f]{16})\.json")


@dataclass(frozen=True)
class Part:
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
    files: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(part.bytes for part in self.files)

    @property
    def pieces(self) -> set[str]:
        """The names of all pieces."""
        return {piece for part in self.files for piece in part.pieces}


def write_manifest(place: Place, manifest: Manifest) -> str:
    """Write a manifest, which completes a backup; gives the name of the backup."""
    facts = {"format": FORMAT, "vizsla": vizsla.__version__, "piece_bytes": PIECE, **asdict(manifest)}
    data = json.dumps(facts).encode()
    newest = max(manifests(place), default="")
    name = datetime.now(UTC).strftime("%Y%m%dT%H%M%S-%f")
    if name <= newest:  # the clock went backwards, and the last backup must be the last one by name
        day, _, fraction = newest.rpartition("-")
        name = f"{day}-{int(fraction) + 1:06}"
    place.write(BACKUPS, f"{name}.{_digest(data)}.json", data)
    return name


def manifests(place: Place) -> dict[str, str]:
    """The file names of all manifests by the names of the backups, the oldest first."""
    named = ((_NAME.fullmatch(file), file) for file in sorted(place.sizes(BACKUPS)))
    return {match[1]: file for match, file in named if match}


def read_manifest(place: Place, name: str | None) -> Manifest:
    """The manifest of a backup, None for the last one; one that is damaged or names other files is refused."""
    known = manifests(place)
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
        return _parsed(parse_settings(data))
    except ValueError as e:
        raise CollectionError(f"{place}: the backup {name} is damaged ({e})") from None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _parsed(facts: Any) -> Manifest:
    """The manifest that JSON describes; a ValueError for any other."""
    if not isinstance(facts, dict) or facts.get("format") != FORMAT or facts.get("piece_bytes") != PIECE:
        raise ValueError("its format is another one")
    counts = [facts.get(key) for key in ("generation", "documents")]
    files = facts.get("files")
    if not all(type(n) is int and n >= 0 for n in counts) or not isinstance(facts.get("created"), str):
        raise ValueError("its description is not valid")
    if not isinstance(files, list):
        raise ValueError("its list of files is not valid")
    parts = tuple(map(_part, files))
    if len({part.path for part in parts}) < len(parts) or database.FILE not in {part.path for part in parts}:
        raise ValueError("its files are not those of an index")
    return Manifest(facts["created"], facts["generation"], facts["documents"], parts)


def _part(entry: Any) -> Part:
    if not isinstance(entry, dict) or entry.keys() != {"path", "bytes", "sha256", "pieces"}:
        raise ValueError("its list of files is not valid")
    path, size, sha256, pieces = (entry[key] for key in ("path", "bytes", "sha256", "pieces"))
    if not isinstance(path, str) or not is_path_of_index(path):
        raise ValueError(f"it names the file {str(path)[:80]!r}, which no index has")
    is_valid = type(size) is int and size >= 0 and isinstance(pieces, list) and len(pieces) == -(-size // PIECE)
    if not is_valid or not all(isinstance(text, str) and _HASH.fullmatch(text) for text in (sha256, *pieces)):
        raise ValueError("its list of files is not valid")
    return Part(path, size, sha256, tuple(pieces))


def is_path_of_index(path: str) -> bool:
    """Whether an index may have a file with this relative path.

    >>> is_path_of_index("index.db"), is_path_of_index("model/tokenizer.json")
    (True, True)
    >>> is_path_of_index("../index.db"), is_path_of_index("model/../../.bashrc"), is_path_of_index("/etc/passwd")
    (False, False, False)
    """
    first, *inner = path.split("/")
    if first == MODEL:
        return bool(inner) and database.is_plain_path(path)
    if first == FOLDER:
        return len(inner) == 2 and segment_files.is_file_of_segment(*inner)
    return path == database.FILE
