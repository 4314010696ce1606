"""What faiss reads: structures that were built here, and are written whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scattered import Scattered
from vizsla import Index
from vizsla.errors import CollectionError
from vizsla.index import trust_vector_indexes, verify
from vizsla.index.storage import trust


@pytest.fixture
def approximate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("faiss")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "here"))
    monkeypatch.setattr("vizsla.engine.vector_indexes.faiss_indexes._FEW", 60)
    with Index.create(tmp_path / "near", Scattered(), vector_index="hnsw(min_documents=300)") as index:
        index.add([{"id": str(i), "text": f"w{i % 97} v{i}"} for i in range(400)])
        index.commit()
        assert index.search("w3", 5)
    return tmp_path / "near"


def test_a_structure_from_elsewhere_is_not_opened(
    approximate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "_in_process", set())
    with Index.open(approximate) as index:  # this machine has built it
        expected = [h.id for h in index.search("w3", 5)]
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "elsewhere"))
    with Index.open(approximate) as index:
        with pytest.raises(CollectionError, match="was not built on this machine"):
            index.search("w3", 5)
        assert len(index.search("w3", 5, search_params="exact")) == 5
        assert verify(index.path) == []
        assert trust_vector_indexes(index) == 1
        assert [h.id for h in index.search("w3", 5)] == expected
    monkeypatch.setattr(trust, "_in_process", set())
    with Index.open(approximate) as index:
        assert [h.id for h in index.search("w3", 5)] == expected


def test_a_structure_that_cannot_be_written_is_no_commit(approximate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """faiss does not look whether its last bytes were written; the disk is full when the structure comes."""
    from vizsla.index.storage import arrays

    put = arrays.HashedFile.put

    def full(self: Any, data: bytes) -> None:
        if self.facts["file"].endswith(".faiss"):
            raise OSError(28, "No space left on device")
        put(self, data)

    monkeypatch.setattr(arrays.HashedFile, "put", full)
    with Index.open(approximate) as index:
        index.add([{"id": f"n{i}", "text": f"w{i % 97} n{i}"} for i in range(400)])
        with pytest.raises(CollectionError, match="No space left on device"):
            index.commit()
        assert len(index) == 400
    monkeypatch.undo()
    assert verify(approximate) == []
