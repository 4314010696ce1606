"""Segments on disk: one folder each, one .npy file an array, written once and never changed."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.engine import Segment
from vizsla.errors import CollectionError

FOLDER = "segments"


def write_segment(path: Path, name: str, segment: Segment) -> dict[str, Any]:
    """Write a segment's arrays so that they survive a crash; gives each file's size and hash."""
    folder = path / FOLDER / name
    try:
        folder.mkdir(parents=True)
        written = {f.name: _write_array(folder / f"{f.name}.npy", getattr(segment, f.name)) for f in fields(segment)}
        _sync_folder(folder)
        _sync_folder(folder.parent)
    except OSError as e:
        shutil.rmtree(folder, ignore_errors=True)
        raise CollectionError(f"{path}: cannot be written to ({e.strerror}); the last commit is intact") from e
    return written


def read_segment(path: Path, name: str) -> Segment:
    """Map a segment's arrays into memory."""
    folder = path / FOLDER / name
    try:
        arrays = {f.name: np.load(folder / f"{f.name}.npy", mmap_mode="r", allow_pickle=False) for f in fields(Segment)}
    except FileNotFoundError as e:
        raise CollectionError(f"{path}: the file {Path(e.filename).name} of segment {name} is missing") from None
    except (ValueError, EOFError) as e:
        raise CollectionError(f"{path}: segment {name} is damaged ({e})") from None
    return Segment(**arrays)


def sweep_segments(path: Path, live: set[str]) -> None:
    """Remove the folders no commit names."""
    for folder in (path / FOLDER).glob("*"):
        if folder.name not in live:
            shutil.rmtree(folder, ignore_errors=True)


def _write_array(file: Path, array: np.ndarray) -> dict[str, Any]:
    with file.open("wb") as out:
        np.save(out, array, allow_pickle=False)
        out.flush()
        os.fsync(out.fileno())
    with file.open("rb") as back:
        digest = hashlib.file_digest(back, "sha256").hexdigest()
    return {"bytes": file.stat().st_size, "sha256": digest}


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
