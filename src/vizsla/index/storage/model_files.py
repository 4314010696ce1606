"""The files of the model in an index."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from vizsla.errors import CollectionError


def model_files(folder: Path) -> list[tuple[str, Path]]:
    """Relative name and path of each file in the folder of a model, including subfolders."""
    return [(f.relative_to(folder).as_posix(), f) for f in sorted(folder.rglob("*")) if f.is_file()]


def check_model_folder(folder: Path) -> None:
    """Refuse links, pipes and devices among a model's files, before anything opens them."""
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            mode = os.lstat(os.path.join(parent, name)).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise CollectionError(f"{folder.parent}: {name} in {folder.name} is a link or a special file")
