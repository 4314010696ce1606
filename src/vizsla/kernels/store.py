"""Machine code of kernels on disk.

A file holds a kernel for one signature. The names of the file and of its folder say what it was compiled from, by what
and for which processor, so that no other process takes it for something else; its content begins with a digest. A file
that is damaged is compiled again and replaced. Files are written beside and then renamed: two processes that write the
same one do no harm. Folders of other versions are deleted when they are old.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vizsla.kernels.signatures import Signature

FORMAT = 1
"""Counts up when entries or files change."""
_FOLDER = "NUMBA_CACHE_DIR"
_DIGEST = 16
_PREFIX = "vizsla-kernels-"
TRANSLATED = Path(__file__).with_name("translated")
"""Kernels that come with a release as code of LLVM: no machine that installs it needs to translate them."""
keep_translated = False
"""Whether a release is being made, see `cli/translating.py`."""
_OLD = 30 * 24 * 3600  # seconds


def name_of(function: Callable[..., Any], signature: Signature) -> str:
    """The name of a kernel for a signature: of its file, and of its entry in machine code. It depends on the source."""
    facts = (sources_of(function), function.__module__, function.__qualname__, signature)
    return f"{function.__name__}-{_hash(repr(facts).encode())}"


def sources_of(function: Callable[..., Any]) -> str:
    """A digest of the files that a kernel is compiled from."""
    return _sources() + _digest(function.__code__.co_filename)


def read(name: str) -> bytes | None:
    """The machine code of a kernel; None if it is not stored or is damaged."""
    for folder in _folders():
        with suppress(OSError):
            content = (folder / f"{name}.o").read_bytes()
            if content[:_DIGEST] == _digest_of(content[_DIGEST:]):
                return content[_DIGEST:]
    return None


def read_translated(name: str) -> bytes | None:
    """A kernel as code of LLVM that came with the package; None if there is none, or of another version."""
    try:
        content = (TRANSLATED / _compiler() / f"{name}.ll.xz").read_bytes()
        translated = lzma.decompress(content[_DIGEST:])
    except (OSError, EOFError, lzma.LZMAError):
        return None
    return translated if content[:_DIGEST] == _digest_of(translated) else None


def write_translated(name: str, translated: bytes) -> None:
    """Keep a kernel as code of LLVM, for a release."""
    folder = TRANSLATED / _compiler()
    folder.mkdir(parents=True, exist_ok=True)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "pb": 0}]  # 8% less for text
    packed = lzma.compress(translated, check=lzma.CHECK_NONE, filters=filters)
    (folder / f"{name}.ll.xz").write_bytes(_digest_of(translated) + packed)


def write(name: str, code: bytes) -> bool:
    """Store the machine code of a kernel; returns False if no folder can be written."""
    for folder in _folders():
        with suppress(OSError):
            if not folder.exists():
                _delete_old(folder.parent)
            folder.mkdir(parents=True, exist_ok=True)
            number, beside = tempfile.mkstemp(prefix=".", dir=folder)
            try:
                with os.fdopen(number, "wb") as out:
                    out.write(_digest_of(code) + code)
                os.chmod(beside, 0o644)  # other users of the machine may read it
                os.replace(beside, folder / f"{name}.o")
            except BaseException:
                with suppress(OSError):
                    os.unlink(beside)
                raise
            return True
    return False


def folder() -> Path | None:
    """The folder that kernels are written to; None if there is none."""
    for place in _folders():
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            if os.access(place, os.W_OK):
                return place
    return None


@cache
def machine() -> str:
    """A digest of all that the kernels of Vizsla are compiled from, by and for."""
    return _hash(repr((_sources(), environment())).encode())


def _folders() -> Iterator[Path]:
    """Where kernels may be: in NUMBA_CACHE_DIR if it is set, else beside the package, else in the user's cache."""
    for place in _places():
        yield place / f"{_PREFIX}{machine()}"


def _places() -> Iterator[Path]:
    if named := os.environ.get(_FOLDER):
        yield Path(named)
        return
    yield Path(__file__).parents[1] / "__pycache__"
    with suppress(RuntimeError):  # there may be no home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vizsla"


def _delete_old(place: Path) -> None:
    """Delete kernels of other versions that were compiled long ago."""
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _OLD:
                shutil.rmtree(folder, ignore_errors=True)


@cache
def environment() -> tuple[object, ...]:
    """What machine code depends on besides the source: the compiler, this Python and this processor."""
    from vizsla.kernels.optimizer import processor

    settings = sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_") and item[0] != _FOLDER)
    return (_compiler(), sys.version, processor(), settings)


@cache
def _compiler() -> str:
    """A digest of what translates kernels: the versions of numba and llvmlite, and the system they translate for."""
    import llvmlite  # type: ignore[import-untyped]
    from llvmlite import binding

    spec = find_spec("numba")
    assert spec is not None
    assert spec.origin is not None
    numba = _digest(str(Path(spec.origin).with_name("_version.py")))
    return _hash(repr((FORMAT, numba, llvmlite.__version__, binding.get_process_triple())).encode())


@cache
def _sources() -> str:
    """A digest of all files with kernels of Vizsla, since kernels call each other."""
    here = Path(__file__).parents[1]
    files = [file for room in ("kernels", "engine", "text") for file in sorted((here / room).rglob("*.py"))]
    return _hash("".join(map(_digest, map(str, files))).encode())


@cache
def _digest(file: str) -> str:
    """A digest of a file; of its name if there is no such file, as for a function that was typed in."""
    try:
        return _hash(Path(file).read_bytes())
    except OSError:
        return _hash(file.encode())


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST).hexdigest()


def _digest_of(code: bytes) -> bytes:
    return hashlib.blake2b(code, digest_size=_DIGEST).digest()
