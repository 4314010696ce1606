"""Sparse matrices in files: one that claims too much, or does not fit together, is refused."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from vizsla.datasets.files import InputFile
from vizsla.datasets.matrix import read_matrix
from vizsla.errors import InputError


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


def test_a_matrix_that_claims_too_much_is_refused_by_its_header(tmp_path: Path) -> None:
    huge = npz_claiming(tmp_path / "a.npz", (10**11,))
    empty = npz_claiming(tmp_path / "b.npz", (10**11,), 0, "|V0")
    packed = npz_claiming(tmp_path / "c.npz", (3_000_000,), 24_000_000)
    wide = tmp_path / "d.npz"
    np.savez(wide, indptr=np.array([0, 1]), indices=np.array([7]), data=np.array([1.5]), shape=np.array([1, 10**11]))
    tracemalloc.start()
    try:
        for path, message in (
            (huge, "declares the shape"),
            (empty, "other than numbers"),
            (packed, "far more than its size"),
        ):
            with pytest.raises(InputError, match=message):
                list(read_matrix(InputFile.of(path)))
        assert [d.content for d in read_matrix(InputFile.of(wide))] == [{"vector": {"7": 1.5}}]
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_matrix_whose_parts_do_not_fit_is_refused(tmp_path: Path) -> None:
    good = {
        "indptr": np.array([0, 2]),
        "indices": np.array([1, 1]),
        "data": np.array([1.0, 2.0]),
        "shape": np.array([1, 2]),
    }
    path = tmp_path / "x.npz"
    np.savez(path, **good)
    assert [d["vector"] for d in read_matrix(InputFile.of(path))] == [{"1": 3.0}]
    for change in (
        {"indptr": np.array([1, 2])}, {"indptr": np.array([0, 9, 2]), "shape": np.array([2, 2])},
        {"data": np.array(["a", "b"])}, {"indices": np.array([0.0, 1.0])}, {"indices": np.array([[0, 1]])},
        {"indices": np.array([-1, 1])}, {"shape": np.array([1])}, {"shape": np.array(["a", "b"])},
        {"format": np.array(b"csc")},
    ):  # fmt: skip
        np.savez(path, **{**good, **change})
        with pytest.raises(InputError, match=r"x\.npz: (this is not a sparse matrix|expected a sparse matrix)"):
            list(read_matrix(InputFile.of(path)))
