"""The extension module with the compiled kernels: finding it, and whether it belongs to the sources beside it."""

from __future__ import annotations

import json
import sysconfig
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from vizsla.errors import VizslaError
from vizsla.kernels.sources import Sources, digest_of

_PACKAGE = Path(__file__).parents[1]
_CHECKOUT = _PACKAGE.parents[1]
SUMMARY = Path(__file__).with_name("_native.json")
"""In a checkout: what the library was built from."""


class KernelsError(VizslaError):
    """The compiled kernels are missing, or are those of other sources."""


def find(function: Callable[..., Any], level: str) -> Any:
    """The compiled kernel of a function, for a kind of processor; the best of this machine if none is named."""
    name = f"{function.__module__}.{function.__qualname__}"
    try:
        return _kernels(level)[name]
    except KeyError:
        raise KernelsError(f"the compiled kernels lack {name}; {_remedy()}") from None


@cache
def native() -> Any:
    """The extension module; checked against its sources in a checkout."""
    try:
        from vizsla.kernels import _native  # type: ignore[attr-defined]
    except ImportError as e:
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            raise KernelsError("Vizsla has no kernels for free-threaded Python; take a Python with a GIL") from None
        if not any(Path(__file__).parent.glob("_native.*")):
            raise KernelsError(f"the kernels are not built; {_remedy()}") from None
        raise KernelsError(f"the compiled kernels cannot be loaded ({e}); {_remedy()}") from None
    if (_CHECKOUT / "kernel_build").is_dir() and is_stale(_native.digest):
        raise KernelsError("the compiled kernels are older than their sources; run: make kernels")
    return _native


def is_stale(digest: str) -> bool:
    """Whether the sources of kernels have changed since the library with a digest was built."""
    try:
        summary = json.loads(SUMMARY.read_text())
        if summary["digest"] != digest:
            return True
        if all(digest_of_file(_CHECKOUT / file) == known for file, known in summary["files"].items()):
            return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return True
    return summarize(_CHECKOUT)["digest"] != digest


def summarize(checkout: Path) -> dict[str, Any]:
    """A digest of what kernels are built from, and the digests of the files that it is in.

    These are the kernels, the code of the build, and the versions of its tools.
    """
    digest, files = Sources(checkout / "src" / "vizsla").summary()
    build = sorted(file for file in (checkout / "kernel_build").iterdir() if file.suffix in (".py", ".c"))
    project = checkout / "pyproject.toml"
    tools = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["optional-dependencies"]["build"]
    places = [*(checkout / "src" / "vizsla" / file for file in files), *build, project]
    return {
        "digest": digest_of([digest, [digest_of_file(file) for file in build], tools]),
        "files": {place.relative_to(checkout).as_posix(): digest_of_file(place) for place in places},
    }


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
