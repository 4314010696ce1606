"""What happens before a kernel is compiled: a message to the user, and a hook that may compile all kernels at once.

This module knows nothing of numba, whose import takes longer than most commands.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

prepare: Callable[[], bool] | None = None
"""Called once, when the first kernel is missing on disk: compiles all of them to disk, and returns whether it did."""

seconds = 0.0
"""How long that took; timings of the work itself leave it out."""

_announced = False


def tell(where: str = "once, later runs start at once") -> None:
    """Say once per process that kernels are being compiled, so that a slow first run explains itself."""
    global _announced
    if not _announced:
        _announced = True
        print(f"vizsla: compiling kernels for this machine ({where}) ...", file=sys.stderr, flush=True)


def prepared() -> bool:
    """Run the hook, if there is one; returns whether it compiled all kernels."""
    global prepare, seconds
    hook, prepare = prepare, None
    started = time.perf_counter()
    done = hook is not None and hook()
    seconds += time.perf_counter() - started
    return done
