"""Which faiss indexes may be opened: those that the user has built on this machine, and those that the user trusts.

faiss does not check the files it reads, so a file from elsewhere could do harm. The hashes of trusted files are in the
user's own folder, one empty file for each, never in the index.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from vizsla.errors import VizslaWarning

_in_process: set[str] = set()
"""The hashes that this process trusts, in case the folder of the user cannot be written to."""


def _folder() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")) / "vizsla" / "trusted"


def is_trusted(sha256: str) -> bool:
    """Whether a file with this hash is trusted."""
    return sha256 in _in_process or (sha256.isalnum() and (_folder() / sha256).is_file())


def remember(sha256: str) -> None:
    """Trust files with this hash from now on."""
    _in_process.add(sha256)
    try:
        _folder().mkdir(parents=True, exist_ok=True)
        (_folder() / sha256).touch()
    except OSError as e:
        warnings.warn(
            f"{_folder()}: cannot be written to ({e.strerror}), so other processes will not search what was built here "
            "until 'vizsla vectors trust' is run",
            VizslaWarning,
            stacklevel=2,
        )
