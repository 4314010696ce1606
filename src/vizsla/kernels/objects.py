"""Many objects of one class at once, in machine code.

Python calls a function to fill the attributes of an object. For the hits of a deep ranking this takes as long as
finding them. The machine code here takes a list of values for each attribute and fills the slots of new objects
directly. Where it cannot work, Python does the same.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from itertools import repeat
from typing import Any, TypeVar

from vizsla.kernels import native, store

T = TypeVar("T")
Maker = Callable[..., list[T]]
_POINTER = 8  # bytes


@cache
def maker(cls: type[T], names: tuple[str, ...]) -> Maker[T]:
    """What makes objects of a class with slots: it takes lists of values for all names but the last, whose value is
    shared. It makes as many objects as the first list has values; no list may be shorter.

    `cls`: takes the values in the order of the names. Machine code does not call its `__init__`. The garbage collector
    does not look at the objects that it makes, so none of them should be part of a cycle of references.

    >>> class Pair:
    ...     __slots__ = ("left", "right")
    ...     def __init__(self, left, right):
    ...         self.left, self.right = left, right
    >>> [(pair.left, pair.right) for pair in maker(Pair, ("left", "right"))([1, 2], "dog")]
    [(1, 'dog'), (2, 'dog')]
    """
    offsets = _offsets(cls, names)
    if offsets is None:
        return lambda *values: list(map(cls, *values[:-1], repeat(values[-1], len(values[0]))))
    name = "objects-" + "-".join(map(str, offsets))
    code = store.read(name)
    if code is None:
        from vizsla.kernels.optimizer import machine_code

        code = machine_code(_source(name, offsets).encode(), name)
        store.write(name, code)
    make = native.load(code, name, [])
    return lambda *values: make(cls, *values)


def _offsets(cls: Any, names: Sequence[str]) -> list[int] | None:
    """Where the slots with these names lie in an object, in bytes; None if machine code cannot fill them."""
    if not native.SUPPORTED or os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return None
    values = [object() for _ in names]
    example = cls(*values)
    content = ctypes.string_at(id(example), cls.__basicsize__)
    words = [int.from_bytes(content[a : a + _POINTER], "little") for a in range(0, len(content), _POINTER)]
    places = [[place for place, word in enumerate(words) if word == id(value)] for value in values]
    if any(len(found) != 1 for found in places) or cls.__itemsize__ or cls.__dictoffset__:
        return None
    return [_POINTER * place for (place,) in places]


def _source(name: str, offsets: Sequence[int]) -> str:
    """The function as code of LLVM: it gets the class, a list for each offset but the last, and the shared value."""
    last = len(offsets)
    lines = [f'define ptr @"{name}"(ptr %self, ptr %arguments, i64 %count) {{', "entry:"]
    functions = ("PyList_Size", "PyList_New", "PyList_GetItem", "PyList_SetItem", "PyType_GenericAlloc",
                 "PyObject_GC_UnTrack", "Py_IncRef", "Py_DecRef")  # fmt: skip
    for function in functions:
        lines += _load(function, "%self", native.BYTES + _POINTER * native.TABLE[function])
    for place in range(last + 1):
        lines += _load(f"argument{place}", "%arguments", _POINTER * place)
    lines += [
        "%size = call i64 %PyList_Size(ptr %argument1)",
        "%list = call ptr %PyList_New(i64 %size)",
        "%no_list = icmp eq ptr %list, null",
        "br i1 %no_list, label %nothing, label %loop",
        "loop:",
        f"%i = phi i64 [0, %entry], [%next, %filled{last}]",
        "%next = add i64 %i, 1",
        "%is_more = icmp slt i64 %i, %size",
        "br i1 %is_more, label %make, label %done",
        "make:",
        "%object = call ptr %PyType_GenericAlloc(ptr %argument0, i64 0)",
        "%no_object = icmp eq ptr %object, null",
        "br i1 %no_object, label %failed, label %made",
        "made:",
        "call void %PyObject_GC_UnTrack(ptr %object)",
        "call i32 %PyList_SetItem(ptr %list, i64 %i, ptr %object)",
        "br label %filled0",
    ]
    for place, offset in enumerate(offsets, 1):
        value = f"%argument{place}"
        lines.append(f"filled{place - 1}:")
        if place < last:
            value = f"%value{place}"
            lines += [
                f"{value} = call ptr %PyList_GetItem(ptr %argument{place}, i64 %i)",
                f"%none{place} = icmp eq ptr {value}, null",
                f"br i1 %none{place}, label %failed, label %found{place}",
                f"found{place}:",
            ]
        lines += [
            f"call void %Py_IncRef(ptr {value})",
            f"%slot{place} = getelementptr i8, ptr %object, i64 {offset}",
            f"store ptr {value}, ptr %slot{place}",
            f"br label %filled{place}",
        ]
    lines += [
        f"filled{last}:",
        "br label %loop",
        "failed:",
        "call void %Py_DecRef(ptr %list)",
        "br label %nothing",
        "nothing:",
        "ret ptr null",
        "done:",
        "ret ptr %list",
        "}",
    ]
    return "\n".join(lines)


def _load(name: str, base: str, offset: int) -> list[str]:
    """Code that loads a pointer which lies some bytes behind another."""
    return [f"%{name}.at = getelementptr i8, ptr {base}, i64 {offset}", f"%{name} = load ptr, ptr %{name}.at"]
