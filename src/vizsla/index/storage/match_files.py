"""The files of posting lists that carry vectors, in the folder of a segment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.engine import ScaledRows, VectorPostings, VectorRows, convert_rows, storage_of
from vizsla.engine.posting_vectors import MergedVectorPostings, row_norms
from vizsla.index.storage.arrays import ArrayFile, Facts, read_array, write_array

_PARTS = {"terms": "<u4", "starts": "<i8", "norms": "<f8", "documents": "<u4"}
"""The arrays of `VectorPostings` besides the vectors, and their types."""
_PLAIN, _CODES, _SCALES = "match_vectors_", "match_codes_", "match_scales_"
ARRAY_TYPES: dict[str, tuple[int, tuple[str, ...]]] = {
    **{f"match_{part}_": (1, (kind,)) for part, kind in _PARTS.items()},
    _PLAIN: (2, ("<f4", "<f2")),
    _CODES: (2, ("|i1",)),
    _SCALES: (1, ("<f4",)),
}
"""The number of dimensions and the allowed types of each array; the number of a namespace follows its name."""
FILE = re.compile(f"({'|'.join(ARRAY_TYPES)})[0-9]{{1,4}}")


def are_complete(facts: Mapping[str, Any]) -> bool:
    """Whether each namespace that has one of the files has all of them."""
    spaces = {kind: {name.removeprefix(kind) for name in facts if name.startswith(kind)} for kind in ARRAY_TYPES}
    vectors = spaces[_PLAIN] | spaces[_CODES]
    lists = (spaces[f"match_{part}_"] for part in _PARTS)
    return spaces[_CODES] == spaces[_SCALES] and all(own == vectors for own in lists)


def write_matches(folder: Path, space: int, lists: VectorPostings) -> dict[str, Facts]:
    """Write the lists of a namespace."""
    written = _write_arrays(folder, space, {part: getattr(lists, part) for part in _PARTS})
    rows = lists.vectors
    return written | _write_vectors(folder, space, rows.shape, [rows], storage_of(rows))


def write_merged_matches(
    folder: Path, space: int, lists: MergedVectorPostings, chunk: int, store: str
) -> dict[str, Facts]:
    """Write merged lists, about `chunk` numbers of vectors at a time, vectors as the type `store`."""
    norms, count = np.zeros(len(lists.terms)), int(lists.starts[-1])
    name = f"match_documents_{space}"
    with ArrayFile(folder / f"{name}.npy", np.dtype(np.uint32), (count,)) as documents:

        def pieces() -> Iterator[VectorRows]:
            for places, some, vectors in lists.pieces(chunk):
                documents.write(some)
                rows = convert_rows(vectors, store)
                np.maximum.at(norms, places, row_norms(rows))
                yield rows

        written = _write_vectors(folder, space, (count, lists.width), pieces(), store)
    written[name] = documents.facts
    return written | _write_arrays(folder, space, {"terms": lists.terms, "starts": lists.starts, "norms": norms})


def _write_arrays(folder: Path, space: int, arrays: Mapping[str, np.ndarray]) -> dict[str, Facts]:
    names = {part: f"match_{part}_{space}" for part in arrays}
    return {names[part]: write_array(folder / f"{names[part]}.npy", array) for part, array in arrays.items()}


def _write_vectors(
    folder: Path, space: int, shape: tuple[int, ...], pieces: Iterable[VectorRows], store: str
) -> dict[str, Facts]:
    """Write vectors of the type `store`, piece by piece."""
    files: dict[str, tuple[np.dtype, tuple[int, ...]]]
    if store == "sq8":
        files = {_CODES: (np.dtype(np.int8), shape), _SCALES: (np.dtype(np.float32), shape[:1])}
    else:
        files = {_PLAIN: (np.dtype(store), shape)}
    with ExitStack() as stack:
        out = {
            f"{kind}{space}": stack.enter_context(ArrayFile(folder / f"{kind}{space}.npy", *array))
            for kind, array in files.items()
        }
        for rows in pieces:
            arrays = (rows.codes, rows.scales) if isinstance(rows, ScaledRows) else (np.asarray(rows),)
            for file, array in zip(out.values(), arrays, strict=True):
                file.write(array)
    return {name: file.facts for name, file in out.items()}


def read_matches(path: Path, segment: str, facts: Mapping[str, Facts]) -> dict[int, VectorPostings]:
    """Map the lists of all namespaces of a segment that have some."""
    matches = {}
    for space in (int(name.removeprefix("match_terms_")) for name in facts if name.startswith("match_terms_")):
        files = {kind: f for kind in ARRAY_TYPES if (f := facts.get(f"{kind}{space}")) is not None}
        arrays = {kind: read_array(path, segment, f) for kind, f in files.items()}
        vectors = arrays[_PLAIN] if _PLAIN in arrays else ScaledRows(arrays[_CODES], arrays[_SCALES])
        matches[space] = VectorPostings(**{part: arrays[f"match_{part}_"] for part in _PARTS}, vectors=vectors)
    return matches
