"""Runs in a compact file: numbers in arrays, ids as text, nothing that could run code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.npz import load_npz
from vizsla.plain_data import parse_json
from vizsla.runs.run import Ranking, Run


def write_packed(run: Run, path: Path) -> None:
    """Write a run to a file, atomically."""
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(d, len(numbers)) for ranking in run.values() for d in ranking.documents]
    arrays = {
        "queries": _text(list(run)),
        "documents": _text(list(numbers)),
        "sizes": np.array([len(ranking) for ranking in run.values()], np.uint32),
        "codes": np.array(codes, np.uint32),
        "scores": np.concatenate([*(ranking.scores for ranking in run.values()), np.zeros(0)]),
        "name": _text([run.name]),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def read_packed(path: Path) -> Run:
    """Read what `write_packed` wrote."""
    try:
        arrays = load_npz(path)
        queries, documents, (name,) = (_lines(arrays[key]) for key in ("queries", "documents", "name"))
        ends = np.cumsum(arrays["sizes"], dtype=np.int64)
        codes, scores = arrays["codes"].tolist(), arrays["scores"]
        ranked = [documents[code] for code in codes]
        starts = [0, *ends.tolist()]
        rows = zip(queries, starts[:-1], starts[1:], strict=True)
        return Run({q: Ranking(ranked[a:z], scores[a:z]) for q, a, z in rows}, name)
    except (ValueError, KeyError, IndexError, TypeError, VizslaError) as e:
        raise InputError(f"this is not a packed run ({e})", file=str(path)) from None


def _text(ids: list[str]) -> np.ndarray:
    return np.frombuffer(json.dumps(ids).encode(), np.uint8)


def _lines(text: np.ndarray) -> list[str]:
    return [str(one) for one in parse_json(text.tobytes())]
