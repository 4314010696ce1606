"""The types that a kernel is compiled for, as the list beside it says: `"const uint16[:], float32[:,:], int64"`.

An array is given by its dtype and its dimensions, and is in C order. `const` means that the kernel only reads it, so
that read-only arrays are accepted as well. Other arguments are `int64`, `float64`, `bool`, or a named
tuple with the types of its fields: `Blocks(const uint16[:], const uint32[:])`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_SCALARS = {"int64": "I...", "float64": "F...", "bool": "B..."}
_KINDS = {"i": "i", "u": "u", "f": "f", "b": "b"}
_ARRAY = re.compile(r"(const )?(\w+)\[(:(?:,:)*)\]")
_WORD = re.compile(r"\s*((?:const )?\w+(?:\[[:,]*\])?|[(),])")


@dataclass(frozen=True)
class Value:
    """A number, a bool or an array."""

    text: str
    dtype: str
    dimensions: int = 0
    written: bool = False

    @property
    def code(self) -> str:
        """Four letters, as module.c compares them.

        >>> Value("const uint16[:]", "uint16", 1).code
        'u21r'
        """
        if not self.dimensions:
            return _SCALARS[self.dtype]
        dtype = np.dtype(self.dtype)
        return f"{_KINDS[dtype.kind]}{dtype.itemsize}{self.dimensions}{'w' if self.written else 'r'}"


@dataclass(frozen=True)
class Tuple:
    """A named tuple: the name of its class, and its fields."""

    name: str
    fields: tuple[Value | Tuple, ...]


Argument = Value | Tuple


def parse(signature: str) -> tuple[Argument, ...]:
    """The arguments of a signature.

    >>> shape_of(parse("Pair(const uint8[:], int64), float64[:,:]"))
    '(..).'
    """
    words = _WORD.findall(signature)
    if "".join(words).replace(" ", "") != signature.replace(" ", ""):
        raise ValueError(f"a signature has unknown characters: {signature}")
    arguments, rest = _parse_all(words)
    if rest:
        raise ValueError(f"a signature has an unmatched closing bracket: {signature}")
    return arguments


def _parse_all(words: list[str]) -> tuple[tuple[Argument, ...], list[str]]:
    found: list[Argument] = []
    while words and words[0] != ")":
        word, words = words[0], words[1:]
        if word == ",":
            continue
        if words and words[0] == "(":
            fields, words = _parse_all(words[1:])
            found.append(Tuple(word, fields))
            words = words[1:]
        else:
            found.append(_parse(word))
    return tuple(found), words


def _parse(word: str) -> Value:
    if word in _SCALARS:
        return Value(word, word)
    match = _ARRAY.fullmatch(word)
    if match is None or np.dtype(match[2]).kind not in _KINDS:
        raise ValueError(f"not a type of an argument: {word}")
    return Value(word, match[2], match[3].count(":"), written=match[1] is None)


def shape_of(arguments: tuple[Argument, ...]) -> str:
    """A dot for each value; those of a tuple are in brackets."""
    return "".join("." if isinstance(a, Value) else f"({shape_of(a.fields)})" for a in arguments)


def values_of(arguments: tuple[Argument, ...]) -> list[Value]:
    """All values, in the order in which a kernel gets them."""
    return [v for a in arguments for v in ([a] if isinstance(a, Value) else values_of(a.fields))]


def numba_types(arguments: tuple[Argument, ...], names: Mapping[str, Any]) -> tuple[Any, ...]:
    """The same types as numba types; `names`: the classes of named tuples, by name."""
    return tuple(_numba_type(a, names) for a in arguments)


def _numba_type(argument: Argument, names: Mapping[str, Any]) -> Any:
    from numba.core import types
    from numba.np.numpy_support import from_dtype

    if isinstance(argument, Tuple):
        return types.BaseTuple.from_types(numba_types(argument.fields, names), names[argument.name])
    if not argument.dimensions:
        return {"int64": types.int64, "float64": types.float64, "bool": types.boolean}[argument.dtype]
    return types.Array(from_dtype(np.dtype(argument.dtype)), argument.dimensions, "C", readonly=not argument.written)
