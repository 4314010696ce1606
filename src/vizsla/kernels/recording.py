"""Records the argument types of kernel calls in tests: one line per kernel and types, one file per process."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SCALARS = {"bool": "B..", "int": "I..", "float": "F.."}


def recorded(name: str, kernel: Callable[..., Any], declared: int) -> Callable[..., Any]:
    """A wrapper of a kernel that records its argument types in the folder VIZSLA_KERNEL_CALLS.

    A kernel takes what it is declared for and nothing else, so nothing is new once it has been called with as many
    types as are declared.
    """
    seen: set[str] = set()

    @functools.wraps(kernel)
    def call(*arguments: Any) -> Any:
        result = kernel(*arguments)
        if len(seen) < declared:
            line = f"{name} {''.join(map(_code, arguments))}\n"
            if line not in seen:
                seen.add(line)
                folder = Path(os.environ["VIZSLA_KERNEL_CALLS"])
                folder.mkdir(parents=True, exist_ok=True)
                with (folder / f"{os.getpid()}.calls").open("a") as out:
                    out.write(line)
        return result

    return call


def _code(value: Any) -> str:
    """Three letters for a type, as `kernel_build/signatures.py` has them.

    >>> _code((True, 2, 0.5))
    'B..I..F..'
    """
    if isinstance(value, tuple):
        return "".join(map(_code, value))
    if hasattr(value, "dtype") and value.ndim:
        return f"{value.dtype.kind}{value.dtype.itemsize}{value.ndim}"
    return _SCALARS[type(value.item() if hasattr(value, "item") else value).__name__]
