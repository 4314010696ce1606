"""Sparse matrices as documents: rows of a .npz file as scipy writes it, with ids and terms in files beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from vizsla.datasets.files import InputFile
from vizsla.npz import load_npz
from vizsla.runs.documents import Document, Origin, document_id


class _Matrix(NamedTuple):
    pointers: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    rows: int
    columns: int


def read_matrix(file: InputFile) -> Iterator[Document]:
    """Each row a document with a `vector`; ids and terms from NAME.ids.json and NAME.terms.json, else numbers."""
    matrix = _read(file)
    id_of, term_of = _names(file, ".ids.json", matrix.rows), _names(file, ".terms.json", matrix.columns)
    for row in range(matrix.rows):
        part = slice(int(matrix.pointers[row]), int(matrix.pointers[row + 1]))
        vector: dict[str, float] = {}
        for column, weight in zip(matrix.indices[part].tolist(), matrix.data[part].tolist(), strict=True):
            term = term_of(column)
            vector[term] = vector.get(term, 0) + weight  # an element written in parts is their sum, as scipy has it
        origin = Origin(file.name, row + 1)
        yield Document(document_id(id_of(row), origin), {"vector": vector}, origin)


def _read(file: InputFile) -> _Matrix:
    try:
        arrays = load_npz(file.path)
        kind = arrays["format"].item() if "format" in arrays else b"csr"
        rows, columns = (int(n) for n in arrays["shape"])
        matrix = _Matrix(arrays["indptr"], arrays["indices"], arrays["data"], rows, columns)
    except (OSError, ValueError, KeyError, TypeError) as e:
        message = f"this is no sparse matrix as scipy.sparse.save_npz writes it ({e})"
        raise file.refusal(message) from None
    if kind not in (b"csr", "csr") or not _fits_together(matrix):
        raise file.refusal("expected a sparse matrix in CSR form whose parts fit together")
    return matrix


def _fits_together(matrix: _Matrix) -> bool:
    pointers, indices, data = matrix[:3]
    if any(a.ndim != 1 for a in (pointers, indices, data)) or {pointers.dtype.kind, indices.dtype.kind} - set("iu"):
        return False
    if data.dtype.kind not in "iuf" or len(pointers) != matrix.rows + 1 or len(indices) != len(data):
        return False
    if int(pointers[0]) != 0 or int(pointers[-1]) != len(data) or (pointers[1:] < pointers[:-1]).any():
        return False
    return not len(indices) or 0 <= int(indices.min()) <= int(indices.max()) < matrix.columns


def _names(file: InputFile, ending: str, count: int) -> Callable[[int], str]:
    beside = file.path.with_suffix(ending)
    if not beside.is_file():
        return str
    try:
        names = json.loads(beside.read_text("utf-8"))
        "".join(names).encode()
    except (OSError, ValueError, TypeError, RecursionError):
        names = None
    if not isinstance(names, list) or len(names) != count:
        raise InputFile.of(beside).refusal(f"expected a JSON list of {count:,} names")
    return names.__getitem__
