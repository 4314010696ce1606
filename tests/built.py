"""Small indexes of numbered documents that several tests build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vizsla import Index, Model


def records(count: int, word: str = "common") -> list[dict[str, Any]]:
    return [{"id": str(i), "text": f"{word} word{i % 10}", "n": i} for i in range(count)]


def build(folder: Path, documents: list[dict[str, Any]], model: Model | str = "bm25") -> Index:
    index = Index.create(folder, model)
    index.add(documents)
    index.commit()
    return index
