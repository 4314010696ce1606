"""Files mapped into memory without keeping them open.

Each of Python's own maps holds a file handle until it is collected. An index of many segments has hundreds of arrays,
and a process may often have only a thousand handles. The system needs the handle only while it maps the file.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np

SMALL = 1 << 14
"""Files up to this many bytes are read rather than mapped, since a map takes whole pages and a system call."""


def map_bytes(descriptor: int, size: int) -> np.ndarray:
    """The first `size` bytes of an open file as a read-only array; the file may be closed afterwards."""
    if size <= SMALL:
        data = os.pread(descriptor, size, 0) if hasattr(os, "pread") else os.read(descriptor, size)
        if len(data) < size:
            raise OSError(0, "the file is shorter than it was")
        return np.frombuffer(data, np.uint8)
    if os.name == "posix":
        return np.asarray(_Mapping(descriptor, size))
    return np.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ), np.uint8)


class _Mapping:
    """The memory of a mapped file; numpy holds this object as long as an array uses the memory."""

    def __init__(self, descriptor: int, size: int) -> None:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == ctypes.c_void_p(-1).value:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        self._address, self._size = address, size
        self._unmap = _libc.munmap  # kept, since globals may be gone when the interpreter ends
        self.__array_interface__ = {"data": (address, True), "shape": (size,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        if hasattr(self, "_address"):
            self._unmap(self._address, self._size)


def _system_library() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    # The offset in the file has the size of a pointer, also on 32-bit systems.
    library.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_ssize_t
    ]  # fmt: skip
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


if os.name == "posix":
    _libc = _system_library()
