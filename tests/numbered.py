"""Indexes of small numbered documents: build one, add to it, and see that all of them are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vizsla import Index, Model
from vizsla.index import verify


def records(ids: int | range, word: str = "common") -> list[dict[str, Any]]:
    """Documents with these numbers, or so many."""
    numbers = range(ids) if isinstance(ids, int) else ids
    return [{"id": str(i), "text": f"{word} word{i % 10}", "n": i} for i in numbers]


def build(folder: Path, documents: list[dict[str, Any]], model: Model | str = "bm25") -> Index:
    index = Index.create(folder, model)
    index.add(documents)
    index.commit()
    return index


def found(folder: Path) -> set[str]:
    """All ids that are stored, each of them findable, in an index that is whole."""
    assert verify(folder) == []
    with Index.open(folder) as index:
        stored = [d.id for d in index.documents()]
        assert sorted(h.id for h in index.search("common", 10_000)) == sorted(stored)
        assert len(set(stored)) == len(stored) == len(index)
    return set(stored)
