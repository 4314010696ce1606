"""Two folders that exchange their names at once, where the system can do it: Linux and macOS, on most file systems."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

_HERE = -100  # AT_FDCWD on Linux: paths are as they are given
_EXCHANGE = 2  # RENAME_EXCHANGE on Linux, RENAME_SWAP on macOS


def exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders, so that each name always has one of them; False if that is not possible here.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a").mkdir(), (folder / "b").mkdir(), (folder / "a" / "file").touch()
    >>> exchange(folder / "a", folder / "b") == (folder / "b" / "file").exists()
    True
    """
    call = _system_call()
    if call is None:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    arguments = (_HERE, paths[0], _HERE, paths[1]) if sys.platform == "linux" else paths
    return bool(call(*arguments, ctypes.c_uint(_EXCHANGE)) == 0)


@cache
def _system_call() -> Any:
    """What renames files with options; None on other systems, and where the C library is older."""
    name = {"linux": "renameat2", "darwin": "renamex_np"}.get(sys.platform)
    if name is None:
        return None
    return getattr(ctypes.CDLL(None), name, None)
