"""Small indexes of numbered documents that several tests build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vizsla.index import Index


def records(count: int, word: str = "common") -> list[dict[str, Any]]:
    return [{"id": str(i), "text": f"{word} word{i % 10}", "n": i} for i in range(count)]


def build(folder: Path, documents: list[dict[str, Any]]) -> Index:
    index = Index.create(folder)
    index.add(documents)
    index.commit()
    return index
