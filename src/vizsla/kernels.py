"""How numba is used here: three decorators, kernels cached on disk, and a message when one is compiled.

Kernels are cached beside the package, else in the user's cache folder (numba looks for both). Where neither can be
written, every process compiles them again in memory, and the message says so.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from numba.core import config, event
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys  # type: ignore[attr-defined]
from numba.np import linalg

from vizsla import compiling
from vizsla.kernel_compiler import Kernel

_cached = True


def njit(function: Callable[..., Any]) -> Any:
    """Compile a function over numbers with numba: no Python objects, no GIL, cached on disk.

    >>> @njit
    ... def twice(x):
    ...     return 2 * x
    >>> twice(21)
    42
    """
    return _compiled(function, {})


def njit_no_alloc(function: Callable[..., Any]) -> Any:
    """`njit` for a function that allocates no arrays.

    Numba then counts no references to arrays, which would cost much in functions that are called often.
    """
    return _compiled(function, {"_nrt": False})


def njit_fastsum(function: Callable[..., Any]) -> Any:
    """`njit` with sums in any order, so that the processor adds several numbers at once."""
    return _compiled(function, {"fastmath": {"reassoc", "contract"}})


def _compiled(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    global _cached
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    always = {"nopython": True, "nogil": True, "error_model": "numpy", "boundscheck": None}
    compiled: Any = Kernel(function, targetoptions={**always, **options})
    try:
        compiled._cache = _Cache(function)
    except RuntimeError:  # numba found no folder it may write its cache to
        _cached = False
    return compiled


class _Cache(FunctionCache):
    """A kernel on disk, which holds as long as no file with kernels changes, since they call each other.

    Numba alone would look at the kernel's own file and go on using what has changed in others.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file._source_stamp = stamp()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        overload = self._load(sig, target_context)
        if overload is None and compiling.run_hook():
            overload = self._load(sig, target_context)
        if overload is None:  # numba compiles it now
            _load_arrays()
        return overload

    def _load(self, sig: Any, target_context: Any) -> Any:
        """Read a kernel, without what numba needs to compile one, which it would load first: a quarter of a second.

        What a compiled kernel needs is the runtime that counts references.
        """
        rtsys.initialize(target_context)
        try:
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except (ImportError, AttributeError):  # kernels of another version, whose files had other names
            self.flush()  # type: ignore[no-untyped-call]
            return None


def cache_folder() -> Path | None:
    """The folder of the kernel cache; None if it cannot be written to."""
    try:
        folder = Path(_Cache(cache_folder).cache_path)
        folder.mkdir(parents=True, exist_ok=True)
    except (RuntimeError, OSError):
        return None
    return folder


@functools.cache
def _load_arrays() -> None:
    """Make numba load its support of arrays without importing scipy's linear algebra, which takes a fifth of a second.

    Numba imports scipy to check whether it is installed. It checks again before it compiles a kernel that needs linear
    algebra. No kernel of Vizsla does, so the first check can be skipped.
    """
    ensure_blas = getattr(linalg, "ensure_blas", None)
    if ensure_blas is None or "numba.np.arraymath" in sys.modules or find_spec("scipy") is None:
        return
    linalg.ensure_blas = lambda: None
    try:
        import_module("numba.np.arraymath").ensure_blas = ensure_blas  # type: ignore[attr-defined]
    finally:
        linalg.ensure_blas = ensure_blas


@functools.cache
def stamp() -> str:
    """What cached kernels were compiled from: all files with kernels."""
    here = Path(__file__).parent
    files = [
        Path(__file__),
        here / "kernel_compiler.py",
        *sorted((here / "engine").rglob("*.py")),
        *sorted((here / "text").rglob("*.py")),
    ]
    stats = [file.stat() for file in files]
    return " ".join(f"{s.st_mtime_ns}:{s.st_size}" for s in stats)


class _CompilationNotice(event.Listener):
    """Tells the user that one of our kernels is compiled."""

    def on_start(self, event: event.Event) -> None:
        if event.data["dispatcher"].py_func.__module__.startswith("vizsla."):
            compiling.announce(*([] if _cached else ["in memory: no cache folder can be written"]))

    def on_end(self, event: event.Event) -> None:
        """Nothing to say."""


event.register("numba:compile", _CompilationNotice())  # type: ignore[no-untyped-call]
