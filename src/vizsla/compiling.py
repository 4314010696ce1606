"""What happens before a kernel is compiled: a message to the user, and a hook that may compile all kernels at once.

This module does not import numba, which takes longer than most commands.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

hook: Callable[[], bool] | None = None
"""Called once, when a kernel is not in the cache: compiles all kernels to the cache, and returns whether it did."""

seconds = 0.0
"""How long the hook took; commands that time their work subtract it."""

_announced = False


def announce(where: str = "once, later runs start at once") -> None:
    """Print once per process that kernels are being compiled, which makes the first run slow."""
    global _announced
    if not _announced:
        _announced = True
        print(f"vizsla: compiling kernels for this machine ({where}) ...", file=sys.stderr, flush=True)


def run_hook() -> bool:
    """Run the hook, unless it has run; returns whether it compiled all kernels."""
    global hook, seconds
    compile_all, hook = hook, None
    started = time.perf_counter()
    compiled = compile_all is not None and compile_all()
    seconds += time.perf_counter() - started
    return compiled
