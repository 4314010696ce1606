"""Sparse matrices as documents: rows of a .npz file as scipy writes it, with ids and terms in files beside it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vizsla.datasets.document import Document, Origin
from vizsla.errors import InputError


def read_matrix(path: Path) -> Iterator[Document]:
    """Each row a document with a `vector`; ids and terms from NAME.ids.json and NAME.terms.json, else numbers."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            kind = str(arrays["format"].item().decode() if "format" in arrays else "csr")
            pointers, indices, data = arrays["indptr"], arrays["indices"], arrays["data"]
            rows, columns = (int(n) for n in arrays["shape"])
    except (OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile):
        raise InputError("this is no sparse matrix as scipy.sparse.save_npz writes it", file=str(path)) from None
    whole = kind == "csr" and len(pointers) == rows + 1 and len(indices) == len(data) == int(pointers[-1])
    if not whole or (len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < columns):
        raise InputError("expected a sparse matrix in CSR form whose parts fit together", file=str(path))
    ids, terms = _names(path, ".ids.json", rows), _names(path, ".terms.json", columns)
    for row in range(rows):
        part = slice(int(pointers[row]), int(pointers[row + 1]))
        pairs = zip(indices[part].tolist(), data[part].tolist(), strict=True)
        yield Document(ids[row], {"vector": {terms[i]: w for i, w in pairs}}, Origin(str(path), row + 1))


def _names(path: Path, ending: str, count: int) -> list[str]:
    file = path.with_suffix(ending)
    if not file.is_file():
        return [str(i) for i in range(count)]
    try:
        names = json.loads(file.read_text("utf-8"))
    except ValueError:
        names = None
    if not isinstance(names, list) or len(names) != count or not all(isinstance(n, str) for n in names):
        raise InputError(f"expected a JSON list of {count:,} names", file=str(file))
    return names
