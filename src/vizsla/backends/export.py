"""Document vectors of an index as files: JSON lines, a sparse matrix with its ids and terms, and more.

A document's vector has the full weight of each term, its idf included. A query of plain term counts then gets the same
scores in any engine. Dense and token vectors become numpy arrays.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from vizsla.backends.anserini import write_collection
from vizsla.backends.ciff import write_ciff
from vizsla.backends.elasticsearch import ENGINES, write_bulk
from vizsla.backends.impacts import fitted
from vizsla.errors import UnknownNameError, VizslaError
from vizsla.index import Index, document_vectors, vector_blocks
from vizsla.vectors import Quantiser

FORMATS = ("jsonl", "arrays", "ciff", "anserini", "elasticsearch", "opensearch")
UNQUANTISED = {
    "arrays": "arrays hold vectors as they are stored",
    "elasticsearch": "elasticsearch rounds weights itself",
    "opensearch": "opensearch rounds weights itself",
}


def export_vectors(index: Index, to: str, output: Path, quantiser: str | None = None, *, texts: bool = True) -> int:
    """Write the vectors of all documents in one of `FORMATS`, and return the number of documents.

    `quantiser`: a quantiser such as `minmax:8`, which stores weights as whole numbers.
    `texts`: for `elasticsearch` and `opensearch`, whose output is a folder: write the fields of documents, too.
    """
    if to not in FORMATS:
        raise UnknownNameError("export format", to, FORMATS)
    if quantiser and to in UNQUANTISED:
        raise VizslaError(f"only weights of terms can be quantised; {UNQUANTISED[to]}")
    if to == "arrays":
        return _write_arrays(index, output)
    if to in ENGINES:
        return write_bulk(index, to, output, texts=texts)
    if to in ("ciff", "anserini"):
        return write_ciff(index, output, quantiser) if to == "ciff" else write_collection(index, output, quantiser)
    weights = (np.fromiter(vector.values(), np.float64, len(vector)) for _, vector in document_vectors(index))
    chosen = fitted(quantiser, weights) if quantiser else None
    return _write_json_lines(_quantised(index, chosen), output)


def _quantised(index: Index, quantiser: Quantiser | None) -> Iterator[tuple[str, dict[str, float | int]]]:
    for doc_id, vector in document_vectors(index):
        if quantiser is None:
            yield doc_id, {term: float(f"{weight:.7g}") for term, weight in vector.items()}
        else:
            quantised = quantiser.quantise(np.fromiter(vector.values(), np.float64, len(vector))).tolist()
            yield doc_id, {term: weight for term, weight in zip(vector, quantised, strict=True) if weight > 0}


def _write_json_lines(rows: Iterator[tuple[str, dict[str, float | int]]], output: Path) -> int:
    count = 0
    with output.open("w", encoding="utf-8") as file:
        for doc_id, vector in rows:
            file.write(json.dumps({"id": doc_id, "contents": "", "vector": vector}, ensure_ascii=False) + "\n")
            count += 1
    return count


def _write_arrays(index: Index, output: Path) -> int:
    """Write a file for numpy.load, with the ids of documents in a JSON file.

    Each namespace has an array NAMESPACE.vectors, one of token vectors also NAMESPACE.starts: where the vectors of each
    document begin. Vectors are first written to a temporary file, since their number is only known at the end.
    """
    ids: list[str] = []
    starts: dict[str, list[np.ndarray]] = {}
    written: dict[str, _Rows] = {}
    with ExitStack() as files:
        for names, block in vector_blocks(index):
            ids += names
            for name, rows in block.vectors.items():
                if name not in written:
                    place = files.enter_context(tempfile.TemporaryFile(dir=output.parent))
                    written[name] = _Rows(place, rows.shape[1], rows.dtype)
                written[name].add(rows)
            for name, sizes in block.sizes.items():
                starts.setdefault(name, [np.zeros(1, np.int64)]).append(sizes)
        with zipfile.ZipFile(output, "w", allowZip64=True) as archive:
            for name, kept in written.items():
                kept.copy_to(archive, f"{name}.vectors.npy")
            for name, parts in starts.items():
                with archive.open(f"{name}.starts.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.cumsum(np.concatenate(parts)), allow_pickle=False)
    output.with_suffix(".ids.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    return len(ids)


@dataclass
class _Rows:
    """Rows of a matrix, collected in a temporary file."""

    file: IO[bytes]
    width: int
    dtype: np.dtype
    count: int = 0

    def add(self, rows: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(rows, self.dtype).tobytes())
        self.count += len(rows)

    def copy_to(self, archive: zipfile.ZipFile, name: str) -> None:
        """Write them as one array of an archive."""
        about = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.count, self.width)}
        self.file.seek(0)
        with archive.open(name, "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, about)
            shutil.copyfileobj(self.file, file, 1 << 20)
