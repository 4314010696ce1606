"""What the tests of adapters share. The frameworks are in an environment of their own: make test-adapters."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from vizsla import BeirDataset, Index

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")  # tests send nothing to other hosts

DOCUMENTS = [
    {"id": "1", "title": "Dogs", "text": "Dogs bark at cats.", "year": 1999},
    {"id": "2", "title": "Cats", "text": "Cats purr; a dog barks.", "year": 2005},
    {"id": "3", "title": "Taxes", "text": "Taxes on vehicles.", "year": 2011},
]


@pytest.fixture
def pets(tmp_path: Path) -> Iterator[Index]:
    """An index of three documents."""
    with Index.create(tmp_path / "pets.index") as index:
        index.add(DOCUMENTS)
        index.commit()
        yield index


@pytest.fixture(scope="session")
def scifact(data: Path) -> BeirDataset:
    """The data set of the figures."""
    return BeirDataset.open(data / "scifact")


@pytest.fixture(scope="session")
def scifact_index(scifact: BeirDataset, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """Its documents, for BM25."""
    with Index.create(tmp_path_factory.mktemp("scifact") / "scifact.index") as index:
        index.add(scifact.documents())
        index.commit()
        yield index
