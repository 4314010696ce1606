"""Data sets from the network: resumed where a download broke off, verified, and whole or not at all."""

from __future__ import annotations

import hashlib
import lzma
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from vizsla.datasets.registry import Download, Entry
from vizsla.errors import InputError

Progress = Callable[[int, int], None]
"""Told how many bytes there are and how many there will be, 0 if that is not known."""

CHUNK = 1 << 20
TIMEOUT = 60.0
_NOT_SATISFIABLE = 416
_BAD_ARCHIVE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError, NotImplementedError,
    ValueError, OverflowError, IsADirectoryError, NotADirectoryError, FileExistsError,
)  # fmt: skip


def _silent(done: int, total: int) -> None:
    del done, total


def fetch(entry: Entry, root: Path, progress: Progress = _silent) -> Path:
    """Bring a data set under a folder; gives where it lies. What is there already stays."""
    target = root / entry.name
    if target.exists():
        return target
    if not entry.downloads:
        raise InputError(f"it cannot be fetched: {entry.how or 'it has to be asked for'}", file=entry.name)
    root.mkdir(parents=True, exist_ok=True)
    files = [download(source, root / ".downloads" / entry.name, progress) for source in entry.downloads]
    with tempfile.TemporaryDirectory(prefix=f".{entry.name}-", dir=root) as folder:
        for file in files:
            if zipfile.is_zipfile(file):
                _unpack(file, Path(folder))
            else:
                shutil.copy(file, folder)
        Path(folder).chmod(0o755)  # temporary folders are for their owner only
        _innermost(Path(folder)).rename(target)
    shutil.rmtree(root / ".downloads" / entry.name)
    return target


def download(source: Download, folder: Path, progress: Progress = _silent) -> Path:
    """A file from the network, going on where an earlier try broke off; its checksum is right, or it is gone."""
    folder.mkdir(parents=True, exist_ok=True)
    done, part = folder / source.name, folder / f"{source.name}.part"
    if done.exists():
        return done
    try:
        _receive(source, part, progress)
    except HTTPError as e:
        raise InputError(f"the server says {e.code} {e.reason}", file=source.url) from None
    except (URLError, TimeoutError, ConnectionError, HTTPException) as e:
        reason = getattr(e, "reason", e)
        kept = "what has arrived is kept, try again to go on" if part.exists() else "nothing has arrived"
        message = f"cannot be reached ({reason}); {kept}"
        raise InputError(message, file=source.url) from None
    if source.name.endswith(".zip") and not zipfile.is_zipfile(part):
        part.unlink()
        raise InputError("what arrived is no archive; perhaps the server wants something first", file=source.url)
    found = _md5(part)
    if source.md5 and found != source.md5:
        part.unlink()
        raise InputError(f"what arrived is damaged (its md5 is {found}, not {source.md5}); try again", file=source.url)
    part.rename(done)
    return done


def _receive(source: Download, part: Path, progress: Progress) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = Request(source.url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urlopen(request, timeout=TIMEOUT)
    except HTTPError as e:
        if e.code != _NOT_SATISFIABLE or not have:
            raise
        if e.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
            return  # all of it is here
        part.unlink()  # what is here is of something else
        _receive(source, part, progress)
        return
    with answer:
        resumed = answer.status == 206
        have = have if resumed else 0
        total = have + int(answer.headers.get("Content-Length") or 0)
        with part.open("ab" if resumed else "wb") as file:
            _copy(answer, file, lambda n: progress(have + n, total))
        if total > have and part.stat().st_size < total:
            raise ConnectionError("the connection broke off")


def _copy(source: IO[bytes], target: IO[bytes], told: Callable[[int], None]) -> None:
    done = 0
    while chunk := source.read(CHUNK):
        target.write(chunk)
        done += len(chunk)
        told(done)


def _md5(file: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with file.open("rb") as source:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _unpack(file: Path, folder: Path) -> None:
    """Unpack an archive; one that is damaged or would write outside the folder is removed, so that it comes anew."""
    try:
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if not (folder / name).resolve().is_relative_to(folder.resolve()):
                    raise ValueError(f"it would write outside its folder ({name!r})")
            size, room = sum(member.file_size for member in archive.infolist()), shutil.disk_usage(folder).free
            if size > room:
                raise InputError(f"the archive unpacks to {size:,} bytes, and {room:,} are free", file=str(file))
            archive.extractall(folder)
    except _BAD_ARCHIVE as e:
        file.unlink()
        message = f"the archive is damaged, encrypted or not what it should be ({e}); it is removed, fetch it again"
        raise InputError(message, file=str(file)) from None


def _innermost(folder: Path) -> Path:
    """The folder itself, or the only one in it, as most archives have."""
    inside = [p for p in folder.iterdir() if p.name != "__MACOSX"]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder
