"""What happens before a kernel is compiled: the user is told, and a program may see to all kernels at once.

This module knows nothing of numba, whose import takes longer than most commands.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

prepare: Callable[[], bool] | None = None
"""Called once, when the first kernel is missing on disk: compiles all of them to there, and tells whether it did."""

seconds = 0.0
"""How long that took, which is no time of the work itself."""

_told = False


def tell(where: str = "once, later runs start at once") -> None:
    """Say once per process that kernels are being compiled, so that a slow first run explains itself."""
    global _told
    if not _told:
        _told = True
        print(f"vizsla: compiling kernels for this machine ({where}) ...", file=sys.stderr, flush=True)


def prepared() -> bool:
    """Have all kernels compiled, where somebody sees to that."""
    global prepare, seconds
    asked, prepare = prepare, None
    started = time.perf_counter()
    done = asked is not None and asked()
    seconds += time.perf_counter() - started
    return done
