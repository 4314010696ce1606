"""Files of arrays: one that claims too much is refused."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from vizsla.npz import load_npz


def npz_claiming(path: Path, shape: tuple[int, ...], bytes_there: int = 8, kind: str = "<f8") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("indptr", "indices", "data"):
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(header, {"descr": kind, "fortran_order": False, "shape": shape})
            archive.writestr(f"{name}.npy", header.getvalue() + bytes(bytes_there))
        whole = io.BytesIO()
        np.save(whole, np.array([10**11, 10**11]))
        archive.writestr("shape.npy", whole.getvalue())
    return path


def test_a_file_that_claims_too_much_is_refused_by_its_header(tmp_path: Path) -> None:
    huge = npz_claiming(tmp_path / "a.npz", (10**11,))
    empty = npz_claiming(tmp_path / "b.npz", (10**11,), 0, "|V0")
    packed = npz_claiming(tmp_path / "c.npz", (3_000_000,), 24_000_000)
    tracemalloc.start()
    try:
        for path, message in (
            (huge, "declares the shape"),
            (empty, "other than numbers"),
            (packed, "far more than its size"),
        ):
            with pytest.raises(ValueError, match=message):
                load_npz(path)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
