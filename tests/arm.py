"""The engine's tests on ARM, on a Linux machine that is not: QEMU runs the wheel for Linux on ARM with Debian's Python.

    python tests/arm.py FOLDER [arguments of pytest]

The folder has the wheel; it gets a Python for ARM and what the tests import. This takes `qemu-aarch64-static` or
`qemu-aarch64`, and nothing that only root may do. Emulation shows what ARM's instructions compute. It says nothing of
speed, and threads see memory in the order of this machine.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
MIRROR = "VIZSLA_DEBIAN"
"""The variable that names a mirror of Debian, as in https://mirror.example/debian; without it, the mirror of apt."""
PACKAGES = (
    "libbz2-1.0", "libc6", "libcrypt1", "libexpat1", "libffi8", "libgcc-s1", "liblzma5", "libpython3.11-minimal",
    "libpython3.11-stdlib", "libsqlite3-0", "libssl3", "libstdc++6", "libuuid1", "python3.11-minimal", "zlib1g",
)  # fmt: skip
"""Debian 12's Python, the oldest that Vizsla runs on, and the libraries that it and wheels load."""
WHEELS = ("hypothesis", "pytest", "regex", "tokenizers", "zstandard")
TESTS = (
    "bitmaps", "dense_engine", "document_ids", "engine", "list_directory", "max_sim", "ngram_scores",
    "ranges", "raw_lines", "rows", "scored_rows", "stored_ids", "suffix_array", "term_blocks", "text", "token_match",
)  # fmt: skip
"""What runs if no tests are named: files that compare kernels with their definitions."""


def unpack_debian(root: Path) -> None:
    """Unpack Debian's packages for ARM into a folder."""
    index = lzma.decompress(fetched("dists/bookworm/main/binary-arm64/Packages.xz")).decode()
    for paragraph in index.split("\n\n"):
        about = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        if about.get("Package") in PACKAGES:
            package = fetched(about["Filename"])
            if hashlib.sha256(package).hexdigest() != about["SHA256"]:
                sys.exit(f"{about['Filename']} is not what Debian's index says")
            for name, data in members(package):
                if name.startswith("data.tar"):
                    with tarfile.open(fileobj=io.BytesIO(data)) as files:
                        files.extractall(root, filter="tar")


def fetched(path: str) -> bytes:
    with urllib.request.urlopen(f"{mirror()}/{path}") as answer:
        return bytes(answer.read())


@cache
def mirror() -> str:
    """Where Debian's packages are."""
    given, apt = os.environ.get(MIRROR), shutil.which("apt-get")
    if given or apt is None:
        return (given or sys.exit(f"there is no apt here; name a mirror of Debian in {MIRROR}")).rstrip("/")
    command = [apt, "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main"]
    known = subprocess.run(command, capture_output=True, text=True).stdout.split()
    found = next((uri for uri in known if uri.rstrip("/").endswith("/debian")), None)
    return (found or sys.exit(f"apt knows no mirror of Debian; name one in {MIRROR}")).rstrip("/")


def members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """The files of an `ar` archive, which a Debian package is."""
    at = 8
    while at < len(archive):
        name, size = archive[at : at + 16].decode().strip(), int(archive[at + 48 : at + 58])
        yield name, archive[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def make_environment(place: Path, emulator: str, debian: Path, wheel: Path) -> Path:
    """An environment with wheels for ARM; gives its Python, a script, so that tests can start it again."""
    shutil.rmtree(place, ignore_errors=True)
    python, site = place / "bin" / "python", place / "lib" / "python3.11" / "site-packages"
    python.parent.mkdir(parents=True)
    (place / "pyvenv.cfg").write_text(f"home = {debian}/usr/bin\n")
    python.write_text(f'#!/bin/sh\nexec {emulator} -L {debian} -0 {python} {debian}/usr/bin/python3.11 "$@"\n')
    python.chmod(0o755)
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(site)]
    command += [f"--platform=manylinux{tag}_aarch64" for tag in ("_2_28", "_2_17", "2014")]
    command += ["--python-version=3.11", "--only-binary=:all:", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*command, *WHEELS, str(wheel)], check=True)
    return python


def main() -> None:
    folder, arguments = Path(sys.argv[1]).resolve(), sys.argv[2:]
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if emulator is None:
        sys.exit("there is no qemu-aarch64 on this machine; Debian has it in the package qemu-user-static")
    (wheel,) = folder.glob("vizsla-*_aarch64.whl")
    debian = folder / "debian"
    if not debian.exists():
        shutil.rmtree(folder / "unpacked", ignore_errors=True)
        unpack_debian(folder / "unpacked")
        (folder / "unpacked").rename(debian)
    python = make_environment(folder / "environment", emulator, debian, wheel)
    tests = arguments or [f"tests/test_{name}.py" for name in TESTS]
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", "-v", *tests]
    sys.exit(subprocess.run(command, cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
