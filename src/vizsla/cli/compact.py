"""vizsla compact: one segment, without what was deleted or replaced."""

from __future__ import annotations

import time

from vizsla.cli import console, options


def compact(
    index: options.IndexFolder,
    memory: options.Memory = options.DEFAULT_MEMORY,
    vector_index: options.VectorIndex = None,
    positions: options.Positions = None,
) -> None:
    """Rewrite an index without deleted documents, as one segment.

    --vector-index also changes how dense vectors are stored and searched from now on, --positions whether the index
    stores where words stand.
    """
    from vizsla.index import Index

    started = time.perf_counter()
    with Index.open(index, memory=console.parse_size(memory)) as opened:
        before = opened.info()["index_bytes"]
        opened.compact(vector_index, positions=positions)
        after = opened.info()["index_bytes"]
    seconds = time.perf_counter() - started
    console.remark(f"from {console.size(before)} to {console.size(after)} in {seconds:.1f} s")
