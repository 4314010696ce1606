"""The types of arguments that a kernel is compiled for, as short texts."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

DTYPES = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "bool",
)  # fmt: skip
"""Of arrays that an entry can take."""
ArgumentType = str | tuple[Any, ...]
"""`int64`, `float64` or `bool`; an array in C order: `uint16[1]`, `uint16[2]r` if read only; a named tuple: the place
of its class, as in `vizsla.engine.scores:Terms`, and the types of its fields."""
Signature = tuple[ArgumentType, ...]
"""The type of each argument."""

_INT64 = range(-(1 << 63), 1 << 63)


def signature_of(arguments: tuple[Any, ...]) -> Signature | None:
    """The types of arguments; None if an entry cannot take one of them.

    >>> signature_of((np.zeros((2, 3), np.uint16), 5, 0.5, True))
    ('uint16[2]', 'int64', 'float64', 'bool')
    >>> signature_of((np.zeros((2, 3)).T,)), signature_of(("dogs",))
    (None, None)
    """
    types = tuple(map(_type_of, arguments))
    return None if None in types else types  # type: ignore[return-value]


def classes_of(signature: Signature) -> list[type]:
    """The classes of all named tuples, in the order in which an entry meets them."""
    found: list[type] = []
    for kind in signature:
        if isinstance(kind, tuple):
            found += [class_at(kind[0]), *classes_of(kind[1:])]
    return found


def class_at(place: str) -> Any:
    """The class at a place, as in `vizsla.engine.scores:Terms`."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _type_of(argument: Any) -> ArgumentType | None:
    kind = type(argument)
    if kind is np.ndarray:
        flags, dtype = argument.flags, argument.dtype
        if dtype is not _standard(dtype.type) or not (flags.c_contiguous and flags.aligned) or not argument.ndim:
            return None
        return f"{dtype.name}[{argument.ndim}]{'' if flags.writeable else 'r'}"
    if kind is bool:
        return "bool"
    if kind is np.int64 or (kind is int and argument in _INT64):
        return "int64"
    if kind is float or kind is np.float64:
        return "float64"
    fields = signature_of(argument) if isinstance(argument, tuple) and hasattr(kind, "_fields") else None
    if not fields or getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is not kind:
        return None
    return (f"{kind.__module__}:{kind.__qualname__}", *fields)


@cache
def _standard(scalar: type) -> Any:
    """The one object that numpy has for a type of numbers; None for other types. An entry looks for this object."""
    dtype: Any = np.dtype(scalar)
    return dtype if dtype.name in DTYPES else None
