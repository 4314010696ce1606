"""Has work of any size of a build done in threads, as that of a large one is."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from vizsla.engine import merge, posting_lists, segment
from vizsla.index.storage import arrays, checksums, packed_terms


def use_threads(count: int, change: Callable[[Any, str, Any], None] = setattr) -> None:
    """Use so many threads; `change` sets an attribute of a module, for a test or for good."""
    change(os, "sched_getaffinity", lambda _: set(range(count)))
    for module in (segment, posting_lists, merge):
        change(module, "_LEAST", 64)
    change(arrays, "PARALLEL", 0)
    change(packed_terms, "_FEWEST", 1)
    change(checksums, "_AT_ONCE", 1)
