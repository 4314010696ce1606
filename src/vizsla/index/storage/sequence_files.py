"""The terms of documents in the order of the text, as files of a segment.

A commit adds them to a segment from the stored texts, so these files carry the number of the commit. A merge copies
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from vizsla.engine import Merge, TermSequences
from vizsla.index.storage.arrays import ArrayFile, Facts, read_array, write_array

_BLOCK = 1 << 22  # bytes that are copied at once
SEQUENCES, STARTS = "sequences_", "sequencestarts_"  # followed by the number of the namespace
ARRAY_TYPES: dict[str, tuple[int, tuple[str, ...]]] = {SEQUENCES: (1, ("<u4",)), STARTS: (1, ("<i8",))}
"""The number of dimensions and the allowed types of each array."""
KINDS = (SEQUENCES, STARTS)


def are_complete(facts: Mapping[str, Facts]) -> bool:
    """Whether each namespace has both files or none."""
    terms, starts = (
        {part.removeprefix(kind) for part in facts if part.startswith(kind)} for kind in (SEQUENCES, STARTS)
    )
    return terms == starts


def read_sequences(path: Path, segment: str, facts: Mapping[str, Facts]) -> dict[int, TermSequences]:
    """Map the term sequences of a segment into memory, by the places of the namespaces that have them."""
    spaces = [int(part.removeprefix(SEQUENCES)) for part in facts if part.startswith(SEQUENCES)]
    return {
        s: TermSequences(*(read_array(path, segment, facts[f"{kind}{s}"]) for kind in (SEQUENCES, STARTS)))
        for s in spaces
    }


def write_sequences(folder: Path, name: str, space: int, pieces: Iterable[TermSequences]) -> dict[str, Facts]:
    """Write term sequences, piece by piece; `name`: how the files are called after their kind."""
    sizes = [np.zeros(1, np.int64)]
    with TemporaryFile() as spool:  # how many there are is known at the end, and stands at the beginning
        for piece in pieces:
            spool.write(np.ascontiguousarray(piece.numbers, np.uint32).data)
            sizes.append(piece.sizes())
        starts = np.cumsum(np.concatenate(sizes)).astype(np.int64)
        spool.seek(0)
        with ArrayFile(folder / f"{SEQUENCES}{name}.npy", np.dtype(np.uint32), (int(starts[-1]),)) as out:
            while block := spool.read(_BLOCK):
                out.write(np.frombuffer(block, np.uint32))
    return {
        f"{SEQUENCES}{space}": out.facts,
        f"{STARTS}{space}": write_array(folder / f"{STARTS}{name}.npy", starts),
    }


def write_merged_sequences(folder: Path, merge: Merge, chunk: int) -> dict[str, Facts]:
    """Write the sequences of a merged segment, in the namespaces in which all old segments have them."""
    written = {}
    for space in merge.old[0].sequences:
        if not all(space in segment.sequences for segment in merge.old):
            continue
        starts, pieces = merge.sequence_starts(space), merge.sequence_pieces(space, chunk)
        with ArrayFile(folder / f"{SEQUENCES}{space}.npy", np.dtype(np.uint32), (int(starts[-1]),)) as out:
            for piece in pieces:
                out.write(piece)
        written[f"{SEQUENCES}{space}"] = out.facts
        written[f"{STARTS}{space}"] = write_array(folder / f"{STARTS}{space}.npy", starts)
    return written
