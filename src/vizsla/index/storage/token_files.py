"""Token vectors in residual codes and their lists by centroid, as files of a segment.

A segment is written with vectors in floats or 8 bits. A commit may add centroids and lists to it, and replace its
vectors by residual codes; these files carry the number of the commit. A merge copies codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from vizsla.engine import (
    ResidualCodec,
    ResidualRows,
    TokenLists,
    TokenRows,
    VectorRows,
    code_bytes,
    number_dtype,
)
from vizsla.index.storage.arrays import ArrayFile, Facts, read_array, write_array

CENTROIDS, ASSIGNED = "centroids_", "assigned_"  # followed by the number of the namespace
RESIDUALS, FACTORS, MEANS = "residuals_", "factors_", "means_"
LIST_STARTS, LISTS = "liststarts_", "lists_"
KINDS = (CENTROIDS, ASSIGNED, RESIDUALS, FACTORS, MEANS, LIST_STARTS, LISTS)
ARRAY_TYPES: dict[str, tuple[int, tuple[str, ...]]] = {
    CENTROIDS: (2, ("<f2", "<f4")),
    ASSIGNED: (1, ("<u2", "<u4")),
    RESIDUALS: (2, ("|u1",)),
    FACTORS: (1, ("<f4",)),
    MEANS: (1, ("<f4",)),
    LIST_STARTS: (1, ("<i8",)),
    LISTS: (1, ("<u4",)),
}
"""The number of dimensions and the allowed types of each array."""


def spaces_of(facts: Mapping[str, Facts], kind: str) -> set[str]:
    """The numbers, as texts, of the namespaces that have a file of a kind."""
    return {part.removeprefix(kind) for part in facts if part.startswith(kind)}


def are_complete(facts: Mapping[str, Facts], tokens: set[str]) -> bool:
    """Whether each namespace has all files of what it has any of."""
    spaces = {kind: spaces_of(facts, kind) for kind in KINDS}
    return (
        spaces[CENTROIDS] == spaces[ASSIGNED] == spaces[RESIDUALS] | spaces[LISTS]
        and spaces[RESIDUALS] == spaces[FACTORS] == spaces[MEANS]
        and spaces[LISTS] == spaces[LIST_STARTS]
        and spaces[CENTROIDS] <= tokens
    )


def write_residuals(
    folder: Path, space: int, tokens: int, pieces: Iterable[VectorRows], codec: ResidualCodec
) -> dict[str, Facts]:
    """Write vectors in the codes of a codec, piece by piece; what is in these codes is copied."""
    width, bits = codec.centroids.shape[1], codec.bits
    files = {
        ASSIGNED: (np.dtype(number_dtype(len(codec.centroids))), (tokens,)),
        RESIDUALS: (np.dtype(np.uint8), (tokens, code_bytes(width, bits))),
        FACTORS: (np.dtype(np.float32), (tokens,)),
    }
    written = {
        f"{name}{space}": write_array(folder / f"{name}{space}.npy", array)
        for name, array in ((CENTROIDS, codec.centroids), (MEANS, codec.means))
    }
    with ExitStack() as stack:
        out = {
            name: stack.enter_context(ArrayFile(folder / f"{name}{space}.npy", *array)) for name, array in files.items()
        }
        for piece in pieces:
            same = isinstance(piece, ResidualRows) and piece.codec.same_as(codec)
            rows = piece if same and isinstance(piece, ResidualRows) else codec.encode(piece[:])
            for file, array in zip(out.values(), (rows.assigned, rows.codes, rows.scales), strict=True):
                file.write(array)
    return written | {f"{name}{space}": file.facts for name, file in out.items()}


def write_token_index(folder: Path, space: int, generation: int, rows: TokenRows) -> dict[str, Facts]:
    """Write the centroids and lists of token vectors, and residual codes if they are stored in them."""
    lists = rows.lists
    assert lists is not None
    arrays = {
        CENTROIDS: lists.centroids,
        ASSIGNED: lists.assigned,
        LIST_STARTS: lists.starts,
        LISTS: lists.documents,
    }
    if isinstance(rows.vectors, ResidualRows):
        vectors = rows.vectors
        arrays |= {RESIDUALS: vectors.codes, FACTORS: vectors.scales, MEANS: vectors.codec.means}
    return {
        f"{name}{space}": write_array(folder / f"{name}{space}-{generation}.npy", array)
        for name, array in arrays.items()
    }


def read_token_rows(
    path: Path, segment: str, facts: Mapping[str, Facts], space: int, plain: VectorRows | None, starts: np.ndarray
) -> TokenRows:
    """Map the token vectors of a namespace; `plain` are those in floats or 8 bits, if it has them."""
    arrays = {kind: read_array(path, segment, facts[f"{kind}{space}"]) for kind in KINDS if f"{kind}{space}" in facts}
    vectors = plain
    if RESIDUALS in arrays:
        codec = ResidualCodec(arrays[CENTROIDS], arrays[MEANS])
        vectors = ResidualRows(codec, arrays[ASSIGNED], arrays[RESIDUALS], arrays[FACTORS])
    assert vectors is not None
    lists = None
    if LISTS in arrays:
        lists = TokenLists(*(arrays[kind] for kind in (CENTROIDS, ASSIGNED, LIST_STARTS, LISTS)))
    return TokenRows(vectors, starts, lists)
