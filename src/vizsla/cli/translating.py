"""Translate all kernels for a release: `python -m vizsla.cli.translating`.

Most of the time that a kernel takes to compile, numba translates it to code of LLVM, which is for any processor of a
system. A release has this code. Where it is installed, only the machine code is made. A package without it, such as
one from a clone, translates its kernels itself.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from vizsla.cli.warming import PARTS
from vizsla.kernels import store


def translate() -> tuple[int, int]:
    """Translate the kernels that commands need into the package; returns how many there are, and their bytes."""
    shutil.rmtree(store.TRANSLATED, ignore_errors=True)
    store.keep_translated = True
    with tempfile.TemporaryDirectory(prefix="vizsla-") as folder:
        os.environ["NUMBA_CACHE_DIR"] = folder
        for name, part in PARTS.items():
            part(Path(folder) / name)
    files = list(store.TRANSLATED.rglob("*.ll.xz"))
    return len(files), sum(file.stat().st_size for file in files)


if __name__ == "__main__":
    count, size = translate()
    print(f"{count} kernels, {size / 1e6:.1f} MB, in {store.TRANSLATED}")
