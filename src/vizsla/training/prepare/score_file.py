"""Scores of a teacher on disk, so that a run that was stopped while they were computed goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

_KEY = 64  # bytes that the file begins with: the hash of all that decides its scores


def scores_key(*parts: object) -> str:
    """The hash of all that decides some scores: texts, and arrays of numbers.

    >>> scores_key("bm25", np.arange(3)) == scores_key("bm25", np.arange(3)) != scores_key("bm25", np.arange(4))
    True
    """
    digest = hashlib.sha256()
    for part in parts:
        content = part.tobytes() if isinstance(part, np.ndarray) else str(part).encode()
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


def kept_scores(file: Path, key: str, count: int, block: int, score: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """`count` scores; what the file has of them is read, and the others are computed and written, `block` at a time.

    `score(first, last)` computes those from `first` up to `last`. A file with another key is overwritten.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    known = _known(file, key, count, block)
    with file.open("r+b" if len(known) else "wb") as opened:
        opened.truncate(_KEY + known.nbytes if len(known) else 0)
        opened.seek(0)
        opened.write(key.encode())
        opened.seek(0, 2)
        parts = [known]
        for first in range(len(known), count, block):
            parts.append(np.asarray(score(first, min(first + block, count)), np.float32))
            opened.write(parts[-1].tobytes())
            opened.flush()
    return np.concatenate(parts)


def _known(file: Path, key: str, count: int, block: int) -> np.ndarray:
    """The scores in a file: all of them, or as many whole blocks as there are."""
    none = np.zeros(0, np.float32)
    if not file.is_file():
        return none
    with file.open("rb") as opened:
        if opened.read(_KEY) != key.encode():
            return none
        content = opened.read(4 * count)
    whole = len(content) // 4
    return np.frombuffer(content, np.float32, whole if whole == count else whole // block * block).copy()
