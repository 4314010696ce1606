"""Document vectors of an index as files: Anserini's JSON lines, or a sparse matrix with its ids and terms.

A document's vector has the full weight of each term, its idf included. A query of plain term counts then gets the same
scores in any engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vizsla.errors import UnknownNameError
from vizsla.index import Index, document_vectors
from vizsla.vectors import Quantiser

FORMATS = ("jsonl", "npz")


def export_vectors(index: Index, to: str, output: Path, quantiser: str | None = None) -> int:
    """Write the vectors of all documents, as `jsonl` or `npz`, and return their number.

    `quantiser`: a quantiser such as `minmax:8`, which stores weights as whole numbers.
    """
    if to not in FORMATS:
        raise UnknownNameError("export format", to, FORMATS)
    chosen = Quantiser.parse(quantiser) if quantiser else None
    if chosen is not None and not chosen.fitted:
        weights = (np.fromiter(vector.values(), np.float64) for _, vector in document_vectors(index))
        chosen = chosen.fit(np.concatenate([*weights, np.zeros(0)]))
    rows = _quantised(index, chosen)
    return _write_json_lines(rows, output) if to == "jsonl" else _write_matrix(rows, output)


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


def _write_matrix(rows: Iterator[tuple[str, dict[str, float | int]]], output: Path) -> int:
    """Write a file for scipy.sparse.load_npz, with the ids of its rows and the terms of its columns as JSON files."""
    numbers: dict[str, int] = {}
    ids: list[str] = []
    pointers, indices = [0], []
    weights: list[float] = []
    for doc_id, vector in rows:
        ids.append(doc_id)
        indices += [numbers.setdefault(term, len(numbers)) for term in vector]
        weights += vector.values()
        pointers.append(len(indices))
    shape = np.array([len(ids), len(numbers)])
    with output.open("wb") as file:
        np.savez(
            file, data=np.array(weights, np.float32), indices=np.array(indices, np.int64),
            indptr=np.array(pointers, np.int64), shape=shape, format=np.array(b"csr"),
        )  # fmt: skip
    for ending, names in ((".ids.json", ids), (".terms.json", list(numbers))):
        output.with_suffix(ending).write_text(json.dumps(names, ensure_ascii=False), encoding="utf-8")
    return len(ids)
