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


class SegmentInTheMaking:
    """Sorts, packs and writes the rows of a segment in a thread of its own.

    What the segment holds was decided before; the thread changes neither the database nor the buffer.
    """

    def __init__(self, path: Path, ids: segment_files.DatedIds, rows: BufferedRows, *, wait: bool) -> None:
        """`wait`: do it in this thread, now."""

        def write() -> Written:
            name, segment = secrets.token_hex(6), rows.segment()
            return name, segment_files.write_segment(path, name, segment, ids), segment.sizes

        self._result: Future[Written] | None = None
        if wait:
            self._written = write()
        else:
            executor = ThreadPoolExecutor(1)
            self._result = submit(executor, carried(write))
            executor.shutdown(wait=False)

    @property
    def has_failed(self) -> bool:
        """Whether the thread has ended with an error, which `result` raises."""
        return self._result is not None and self._result.done() and self._result.exception() is not None

    def result(self) -> Written:
        """Wait until the segment is on disk."""
        return self._written if self._result is None else self._result.result()

    def give_up(self) -> None:
        """Wait until the thread has ended, whatever interrupts this; its files are removed by the next transaction."""
        if self._result is not None:
            finish_all([self._result])
