"""Documents that the tests of writing add, and what is found of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vizsla import Index
from vizsla.index import verify


def records(ids: range, word: str = "common") -> list[dict[str, Any]]:
    return [{"id": str(i), "text": f"{word} word{i % 10}"} for i in ids]


def found(folder: Path) -> set[str]:
    """All ids that are stored, each of them findable, in an index that is whole."""
    assert verify(folder) == []
    with Index.open(folder) as index:
        stored = [d.id for d in index.documents()]
        assert sorted(h.id for h in index.search("common", 10_000)) == sorted(stored)
        assert len(set(stored)) == len(stored) == len(index)
    return set(stored)
