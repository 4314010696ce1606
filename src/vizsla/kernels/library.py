"""The extension module with the compiled kernels: finding it, and whether it belongs to the sources beside it."""

from __future__ import annotations

import os
import sysconfig
import tomllib
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from vizsla.errors import VizslaError
from vizsla.kernels.recording import recorded
from vizsla.kernels.sources import Sources, digest_of

_PACKAGE = Path(__file__).parents[1]
_CHECKOUT = _PACKAGE.parents[1]
_BUILD = (
    "building.py", "entries.py", "machine_code.py", "module.c", "signatures.py", "targets.py", "translating.py",
)  # fmt: skip
"""The build files that the content of a library depends on."""
SUMMARY = Path(__file__).with_name("_native.txt")
"""In a checkout: what the library was built from."""
_CALLS = os.environ.get("VIZSLA_KERNEL_CALLS")
"""A folder in which the argument types of all kernel calls are recorded; see tests/kernel_calls.py."""


class KernelsError(VizslaError):
    """The compiled kernels are missing, or do not match the sources."""


def find(function: Callable[..., Any], level: str) -> Any:
    """The compiled kernel of a function, for a processor level; by default the best one of this machine."""
    name = f"{function.__module__}.{function.__qualname__}"
    try:
        kernel = _kernels(level)[name]
    except KeyError:
        raise KernelsError(f"the compiled kernels lack {name}; {_remedy()}") from None
    return recorded(name, kernel, len(native().signatures()[name])) if _CALLS else kernel


@cache
def native() -> Any:
    """The extension module; checked against its sources in a checkout."""
    try:
        module = import_module("vizsla.kernels._native")
    except ImportError as e:
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            raise KernelsError("Vizsla has no kernels for free-threaded Python; use a Python with the GIL") from None
        if not any(Path(__file__).parent.glob("_native.*")):
            raise KernelsError(f"the kernels are not built; {_remedy()}") from None
        raise KernelsError(f"the compiled kernels cannot be loaded ({e}); {_remedy()}") from None
    if (_CHECKOUT / "kernel_build").is_dir() and is_stale(module.digest):
        raise KernelsError("the compiled kernels are older than their sources; run: make kernels")
    return module


def is_stale(digest: str) -> bool:
    """Whether the sources of kernels have changed since the library with a digest was built."""
    try:
        built, *files = SUMMARY.read_text(encoding="utf-8").splitlines()
        if built != digest:
            return True
        if all(digest_of_file(_CHECKOUT / file) == known for known, file in (line.split(" ", 1) for line in files)):
            return False
    except (OSError, ValueError):
        return True
    return summarize(_CHECKOUT)[0] != digest


def summarize(checkout: Path) -> tuple[str, str]:
    """A digest of everything kernels are built from, and a text with the digest of each of these files.

    These are the kernels, the code of the build, and the versions of its tools.
    """
    digest, files = Sources(checkout / "src" / "vizsla").summary()
    build = [checkout / "kernel_build" / name for name in _BUILD]
    project = checkout / "pyproject.toml"
    tools = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["optional-dependencies"]["build"]
    places = [*(checkout / "src" / "vizsla" / file for file in files), *build, project]
    whole = digest_of([digest, [digest_of_file(file) for file in build], tools])
    lines = [f"{digest_of_file(place)} {place.relative_to(checkout).as_posix()}" for place in places]
    return whole, "\n".join([whole, *lines, ""])


def digest_of_file(file: Path) -> str:
    """A digest of what a file holds."""
    return digest_of(file.read_text(encoding="utf-8"))


@cache
def _kernels(level: str) -> dict[str, Any]:
    levels = native().levels()
    if not levels:
        raise KernelsError(
            "the kernels were built for newer processors than this machine's; wheels of Vizsla run on any x86-64 since "
            "2009, and so does a build with VIZSLA_LEVELS=all"
        )
    if level and level not in levels:
        raise KernelsError(f"VIZSLA_KERNELS is {level!r}; it may be jit or {', '.join(levels)} on this machine")
    found: dict[str, Any] = native().kernels(level or levels[-1])
    return found


def _remedy() -> str:
    if (_CHECKOUT / "kernel_build").is_dir():
        return "run: make kernels"
    return "install a wheel of Vizsla for this system"
