"""Calling the machine code of a kernel from Python, without numba.

An entry is a function in machine code that Python calls like one of its own. It gets arguments as objects and checks
that they have the types that the kernel was compiled for; if not, it returns NotImplemented. It reads numbers and
addresses out of them, lets other threads run, calls the kernel, and makes an object of the result. `entries.py` writes
entries; here they are loaded.

An entry finds what belongs to the process, such as the type of arrays, in a table of addresses.
"""

from __future__ import annotations

import ctypes
import pickle
import struct
import sys
import sysconfig
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.kernels.signatures import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable

# Where things are in CPython's and numpy's objects, in bytes, where pointers have eight.
TYPE, VALUE, BYTES, TUPLE_ITEMS = 8, 16, 32, 24
ARRAY_DATA, ARRAY_NDIM, ARRAY_SHAPE, ARRAY_DTYPE, ARRAY_FLAGS = 16, 24, 32, 56, 64
C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400

FUNCTIONS = (
    "PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_Occurred", "PyErr_SetObject", "PyLong_AsLongLong",
    "PyLong_FromLongLong", "PyLong_FromUnsignedLongLong", "PyFloat_FromDouble", "PyBytes_FromStringAndSize",
    "Py_IncRef", "Py_DecRef",
)  # fmt: skip


class KernelError(Exception):
    """An error that a kernel raised, as numba writes it down: pickled, with the place where it was raised."""

    def original(self) -> BaseException:
        """The error as it was raised."""
        error, arguments, _ = pickle.loads(self.args[0])  # our own machine code made it
        return error(*arguments)  # type: ignore[no-any-return]


_OBJECTS: dict[str, object] = {
    "None": None, "True": True, "False": False, "NotImplemented": NotImplemented, "KernelError": KernelError,
    "int": int, "float": float, "numpy.int64": np.int64, "numpy.float64": np.float64, "numpy.ndarray": np.ndarray,
    **{name: np.dtype(name) for name in DTYPES},
}  # fmt: skip
TABLE = {name: place for place, name in enumerate((*FUNCTIONS, *_OBJECTS))}
"""Where an entry finds a function or an object of this process: the place in the table of addresses."""


def _is_supported() -> bool:
    """Whether objects lie in memory as entries expect it: CPython with a GIL and 64 bits, on Linux."""
    common = sys.implementation.name == "cpython" and sys.maxsize == (1 << 63) - 1 and sys.platform == "linux"
    if not common or sysconfig.get_config_var("Py_GIL_DISABLED") or hasattr(sys, "gettotalrefcount"):
        return False
    array, pair, text = np.zeros((2, 3), np.uint16), (array_type := np.ndarray, None), b"dogs"
    content = ctypes.string_at(id(array), ARRAY_FLAGS + 4)
    shape = int.from_bytes(content[ARRAY_SHAPE : ARRAY_SHAPE + 8], "little")
    found = (
        *struct.unpack_from("=qqi", content, TYPE),
        *struct.unpack_from("=qi", content, ARRAY_DTYPE),
        *struct.unpack("=qq", ctypes.string_at(shape, 16)),
        *struct.unpack("=qq", ctypes.string_at(id(pair) + TUPLE_ITEMS, 16)),
        ctypes.string_at(id(text) + BYTES, len(text)),
        *struct.unpack("=d", ctypes.string_at(id(number := 0.625) + VALUE, 8)),
        *struct.unpack("=d", ctypes.string_at(id(double := np.float64(0.625)) + VALUE, 8)),
        *struct.unpack("=q", ctypes.string_at(id(integer := np.int64(625)) + VALUE, 8)),
    )
    flags = C_CONTIGUOUS | ALIGNED | WRITEABLE | 0x4  # it owns its data
    return found == (
        id(array_type), array.ctypes.data, 2, id(array.dtype), flags, 2, 3, id(array_type), id(None), text, number,
        double, integer,
    )  # fmt: skip


SUPPORTED = _is_supported()
"""Whether Python can call kernels through entries here."""


class _Method(ctypes.Structure):
    """PyMethodDef of CPython."""

    _fields_ = (("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


_FASTCALL = 0x80


def load(code: bytes, name: str, classes: list[type]) -> Callable[..., Any]:
    """The entry with a name in machine code, as a function of Python; `classes`: of the named tuples that it takes."""
    from llvmlite import binding  # type: ignore[import-untyped]

    engine = _engine()
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    method = _Method(name.encode(), engine.get_function_address(name), _FASTCALL, None)
    _keep_forever((method, classes))
    table = _table() + struct.pack(f"={len(classes)}q", *map(id, classes))
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.argtypes, make.restype = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p), ctypes.py_object
    return make(ctypes.addressof(method), table, None)  # type: ignore[no-any-return]


def _keep_forever(thing: object) -> None:
    """Never free what machine code and functions point to: a function reads its method when Python, ending, frees it.

    A list of a module would not do: Python clears modules before it frees the functions of others.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


@cache
def _table() -> bytes:
    functions = (ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in FUNCTIONS)
    return struct.pack(f"={len(TABLE)}q", *functions, *map(id, _OBJECTS.values()))


@cache
def _engine() -> Any:
    """What puts machine code into memory."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    machine = target.create_target_machine(reloc="static", codemodel="jitdefault", jit=True)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    _keep_forever(engine)
    return engine
