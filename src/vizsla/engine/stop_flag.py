"""The stop flag of kernels: a kernel checks it after each block of work and returns early if it is set.

A stopped kernel returns the same value as for damaged arrays; its caller uses `failure` to tell the two apart.
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
