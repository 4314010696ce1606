"""Download data sets: downloads are resumed and verified, and appear only when they are complete."""

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

from vizsla.datasets.registry import DatasetEntry, Download
from vizsla.errors import InputError

DownloadProgress = Callable[[int, int], None]
"""Called with the number of bytes received, and of all bytes, 0 if that is not known."""

CHUNK = 1 << 20
TIMEOUT = 60.0
_NOT_SATISFIABLE = 416
_BAD_ARCHIVE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError, NotImplementedError,
    ValueError, OverflowError, IsADirectoryError, NotADirectoryError, FileExistsError,
)  # fmt: skip


def _silent(done: int, total: int) -> None:
    del done, total


def fetch(entry: DatasetEntry, root: Path, progress: DownloadProgress = _silent) -> Path:
    """Download a data set into a folder inside `root` and return that folder; an existing one is not changed."""
    target = root / entry.name
    if target.exists():
        return target
    if not entry.downloads:
        raise InputError(f"it cannot be downloaded: {entry.how or 'request it from its authors'}", file=entry.name)
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


def download(source: Download, folder: Path, progress: DownloadProgress = _silent) -> Path:
    """Download a file into a folder and return its path; an earlier attempt is resumed, a damaged file is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    complete, part = folder / source.name, folder / f"{source.name}.part"
    if complete.exists():
        return complete
    try:
        _receive(source, part, progress)
    except HTTPError as e:
        raise InputError(f"the server says {e.code} {e.reason}", file=source.url) from None
    except (URLError, TimeoutError, ConnectionError, HTTPException) as e:
        reason = getattr(e, "reason", e)
        state = "the part that arrived is kept, try again to resume" if part.exists() else "nothing has arrived"
        raise InputError(f"cannot be reached ({reason}); {state}", file=source.url) from None
    if source.name.endswith(".zip") and not zipfile.is_zipfile(part):
        part.unlink()
        raise InputError(
            "the download is not an archive; perhaps the server requires a login or a consent first", file=source.url
        )
    md5 = _md5(part)
    if source.md5 and md5 != source.md5:
        part.unlink()
        raise InputError(f"the download is damaged (its md5 is {md5}, not {source.md5}); try again", file=source.url)
    part.rename(complete)
    return complete


def _receive(source: Download, part: Path, progress: DownloadProgress) -> None:
    received = part.stat().st_size if part.exists() else 0
    request = Request(source.url, headers={"Range": f"bytes={received}-"} if received else {})
    try:
        response = urlopen(request, timeout=TIMEOUT)
    except HTTPError as e:
        if e.code != _NOT_SATISFIABLE or not received:
            raise
        if e.headers.get("Content-Range", "").rpartition("/")[2] == str(received):
            return  # the file is complete
        part.unlink()  # the partial download belongs to another file
        _receive(source, part, progress)
        return
    with response:
        resumed = response.status == 206
        received = received if resumed else 0
        total = received + int(response.headers.get("Content-Length") or 0)
        with part.open("ab" if resumed else "wb") as file:
            _copy(response, file, lambda copied: progress(received + copied, total))
        if total > received and part.stat().st_size < total:
            raise ConnectionError("the connection broke off")


def _copy(source: IO[bytes], target: IO[bytes], progress: Callable[[int], None]) -> None:
    copied = 0
    while chunk := source.read(CHUNK):
        target.write(chunk)
        copied += len(chunk)
        progress(copied)


def _md5(file: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with file.open("rb") as source:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _unpack(file: Path, folder: Path) -> None:
    """Unpack an archive; one that is damaged or would write outside the folder is removed, to be downloaded again."""
    try:
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if not (folder / name).resolve().is_relative_to(folder.resolve()):
                    raise ValueError(f"it would write outside its folder ({name!r})")
            size, free = sum(member.file_size for member in archive.infolist()), shutil.disk_usage(folder).free
            if size > free:
                raise InputError(f"the archive unpacks to {size:,} bytes, and {free:,} are free", file=str(file))
            archive.extractall(folder)
    except _BAD_ARCHIVE as e:
        file.unlink()
        message = f"the archive is damaged, encrypted or of another kind ({e}); it is removed, fetch it again"
        raise InputError(message, file=str(file)) from None


def _innermost(folder: Path) -> Path:
    """The folder itself, or its only subfolder, which most archives have."""
    entries = [p for p in folder.iterdir() if p.name != "__MACOSX"]
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else folder
