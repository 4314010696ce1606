"""The user's cache folder, and digests of large files, which are computed once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from vizsla.errors import VizslaError

_SETTLED = 2.0  # seconds after which any change to a file is assumed to change its modification time


def cache_folder(name: str) -> Path:
    """A folder of the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vizsla" / name


def cached_folder(name: str, key: Sequence[Any], write: Callable[[Path], None]) -> Path:
    """A folder of the user's cache, found by a key; where it is missing, `write` fills a new one that becomes it."""
    place = cache_folder(name) / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    if place.is_dir():
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        written = Path(tempfile.mkdtemp(prefix=".", dir=place.parent))
    except OSError as e:
        raise VizslaError(f"{place.parent}: cannot be written to ({e.strerror}); set XDG_CACHE_HOME") from None
    try:
        write(written)
        written.rename(place)
    except OSError as e:
        if not place.is_dir():  # else another process was faster
            raise VizslaError(f"{place}: cannot be written ({e.strerror})") from None
    finally:
        shutil.rmtree(written, ignore_errors=True)
    return place


def digest(folder: Path, files: Sequence[Path]) -> str:
    """The SHA-256 of files below a folder, their names and their contents."""
    names = sorted(file.relative_to(folder).as_posix() for file in files)
    return hashlib.sha256(json.dumps([[name, file_digest(folder / name)] for name in names]).encode()).hexdigest()


def file_digest(file: Path) -> str:
    """The SHA-256 of a file, cached for as long as its size and modification time stay the same."""
    status = file.stat()
    stamp = [str(file.resolve()), status.st_size, status.st_mtime_ns]
    place = cache_folder("digests") / hashlib.sha256(json.dumps(stamp).encode()).hexdigest()[:32]
    with suppress(OSError):
        return place.read_text("ascii")
    with file.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    if time.time() - status.st_mtime > _SETTLED:
        with suppress(OSError):  # without a writable cache the digest is computed again next time
            place.parent.mkdir(parents=True, exist_ok=True)
            written = place.with_suffix(f".{os.getpid()}")
            written.write_text(sha256, "ascii")
            written.replace(place)
    return sha256
