"""What the tests share: where outside material lies when it is there, and small collections."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import settings

# Kernels are compiled on first use, which no deadline foresees.
settings.register_profile("vizsla", deadline=None, max_examples=60)
settings.load_profile("vizsla")

BESIDE = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder with Lucene's own output ($VIZSLA_REFERENCE, or shared/reference beside the checkout)."""
    folder = Path(os.environ.get("VIZSLA_REFERENCE", BESIDE / "reference"))
    if not folder.is_dir():
        pytest.skip("Lucene's reference output is not here; set VIZSLA_REFERENCE to its folder")
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with SciFact and NFCorpus ($VIZSLA_DATA, or archives in shared/data beside the checkout)."""
    if "VIZSLA_DATA" in os.environ:
        return Path(os.environ["VIZSLA_DATA"])
    archives = [BESIDE / "data" / f"{name}.tar.xz" for name in ("scifact", "nfcorpus")]
    if not all(a.is_file() for a in archives):
        pytest.skip("SciFact and NFCorpus are not here; set VIZSLA_DATA to the folder that holds them")
    folder = tmp_path_factory.mktemp("data")
    for archive in archives:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    return folder


DOCUMENTS = [
    {"_id": "d1", "title": "Dogs", "text": "A dog barks at the other dogs.", "year": 1999},
    {"_id": "d2", "title": "Cats", "text": "Cats do not bark, but a cat may purr."},
    {"_id": "d3", "title": "", "text": "The vizsla is a dog that points and retrieves."},
    {"_id": "d4", "title": "Fish", "text": "Fish."},
]


@pytest.fixture
def documents() -> list[dict[str, object]]:
    return [dict(d) for d in DOCUMENTS]
