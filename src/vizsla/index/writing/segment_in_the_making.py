"""A segment that is being written while the writer goes on with the next documents."""

from __future__ import annotations

import secrets
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from vizsla.engine import finish_all, submit
from vizsla.index.storage import segment_files
from vizsla.index.storage.arrays import Facts
from vizsla.index.writing.buffer import BufferedRows
from vizsla.stopping import carried

Written = tuple[str, dict[str, Facts], np.ndarray]
"""The name of a segment, the descriptions of its files, and the lengths of its documents in each namespace."""


def write_rows(path: Path, ids: segment_files.DatedIds, rows: BufferedRows) -> Written:
    """Sort, pack and write the rows of a segment."""
    name, segment = secrets.token_hex(6), rows.segment()
    return name, segment_files.write_segment(path, name, segment, ids), segment.sizes


class SegmentInTheMaking:
    """Writes the rows of a segment in a thread of its own.

    What the segment holds was decided before; the thread changes neither the database nor the buffer.
    """

    def __init__(self, path: Path, ids: segment_files.DatedIds, rows: BufferedRows) -> None:
        executor = ThreadPoolExecutor(1)
        self._written: Future[Written] = submit(executor, carried(write_rows), path, ids, rows)
        executor.shutdown(wait=False)

    @property
    def has_failed(self) -> bool:
        """Whether the thread has ended with an error, which `result` raises."""
        return self._written.done() and self._written.exception() is not None

    def result(self) -> Written:
        """Wait until the segment is on disk."""
        return self._written.result()

    def give_up(self) -> None:
        """Wait until the thread has ended, whatever interrupts this; its files are removed by the next transaction."""
        finish_all([self._written])
