"""Several arrays in one .npz file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from vizsla.errors import InputError


def save_arrays(file: str | Path, **arrays: np.ndarray) -> None:
    """Write arrays into one file."""
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, **arrays)  # type: ignore[arg-type]


def read_arrays(file: str | Path, *names: str) -> list[np.ndarray]:
    """Some arrays of a file, in this order."""
    try:
        with Path(file).open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            return [arrays[name] for name in names]
    except FileNotFoundError:
        raise InputError("there are no packed queries here", file=str(file)) from None
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as e:
        raise InputError(f"these are not packed queries, or not of this version ({e})", file=str(file)) from None
