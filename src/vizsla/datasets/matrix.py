"""Sparse matrices as documents: rows of a .npz file as scipy writes it, with ids and terms in files beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from vizsla.datasets.files import InputFile
from vizsla.npz import load_npz
from vizsla.plain_data import parse_json
from vizsla.runs.documents import Document, Origin, document_id


class _Matrix(NamedTuple):
    pointers: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    rows: int
    columns: int


def read_matrix(file: InputFile) -> Iterator[Document]:
    """A document with a `vector` for each row.

    Ids and terms come from NAME.ids.json and NAME.terms.json; without these files they are the numbers of rows and
    columns.
    """
    matrix = _read(file)
    id_of, term_of = _names(file, ".ids.json", matrix.rows), _names(file, ".terms.json", matrix.columns)
    for row in range(matrix.rows):
        part = slice(int(matrix.pointers[row]), int(matrix.pointers[row + 1]))
        vector: dict[str, float] = {}
        for column, weight in zip(matrix.indices[part].tolist(), matrix.data[part].tolist(), strict=True):
            term = term_of(column)
            vector[term] = vector.get(term, 0) + weight  # scipy sums duplicate elements, too
        origin = Origin(file.name, row + 1)
        yield Document(document_id(id_of(row), origin), {"vector": vector}, origin)


def _read(file: InputFile) -> _Matrix:
    try:
        arrays = load_npz(file.path)
        layout = arrays["format"].item() if "format" in arrays else b"csr"
        rows, columns = (int(n) for n in arrays["shape"])
        matrix = _Matrix(arrays["indptr"], arrays["indices"], arrays["data"], rows, columns)
    except (OSError, ValueError, KeyError, TypeError) as e:
        message = f"this is not a sparse matrix as scipy.sparse.save_npz writes it ({e})"
        raise file.refusal(message) from None
    if layout not in (b"csr", "csr") or not _fits_together(matrix):
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
    names_file = file.path.with_suffix(ending)
    if not names_file.is_file():
        return str
    try:
        names = parse_json(names_file.read_text("utf-8"))
        "".join(names).encode()
    except (OSError, ValueError, TypeError):
        names = None
    if not isinstance(names, list) or len(names) != count:
        raise InputFile.of(names_file).refusal(f"expected a JSON list of {count:,} names")
    return names.__getitem__
