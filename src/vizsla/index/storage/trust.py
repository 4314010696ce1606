"""Which structures of faiss's may be opened: those this user has built here, and those he has said he trusts.

faiss follows what it reads without looking whether it is sound, so a structure that comes from elsewhere could do
harm. The hashes of those that are known lie in the user's own folder, one empty file each, never in the index.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

_here: set[str] = set()
"""What this process has built or been told, should the user's folder be out of reach."""


def _folder() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")) / "vizsla" / "trusted"


def is_trusted(sha256: str) -> bool:
    """Whether a structure with this hash is known."""
    return sha256 in _here or (sha256.isalnum() and (_folder() / sha256).is_file())


def remember(sha256: str) -> None:
    """Trust a structure with this hash from now on."""
    _here.add(sha256)
    try:
        _folder().mkdir(parents=True, exist_ok=True)
        (_folder() / sha256).touch()
    except OSError as e:
        warnings.warn(
            f"{_folder()}: cannot be written to ({e.strerror}), so other processes will not search what was built here "
            "before 'vizsla trust' is run",
            stacklevel=2,
        )
