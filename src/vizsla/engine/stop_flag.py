"""What a kernel does with its stop flag: it looks at it after each block of work, and gives up if it is set.

A kernel that was stopped returns what it returns for damaged arrays. Its caller asks `failure` which of both it was.
"""

from __future__ import annotations

from vizsla import stopping
from vizsla.engine.arrays import DamagedSegmentError
from vizsla.errors import StoppedError
from vizsla.kernels import njit


@njit
def must_stop(stop):
    """Whether to give up. `stop`: one byte; 0 goes on, 1 stops, and n stops at the n-th look (see `Stop`)."""
    if stop[0] == 0:
        return False
    if stop[0] == 1:
        return True
    stop[0] -= 1
    return False


def failure() -> Exception:
    """Why a kernel gave up: it was stopped, or the arrays of a segment are damaged."""
    stop = stopping.current()
    return StoppedError(stop.reason) if stop.is_set else DamagedSegmentError()
