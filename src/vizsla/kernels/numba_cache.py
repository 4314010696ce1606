"""Kernels that numba calls: numba's own cache of them, and a message when one is compiled.

Numba caches them beside the package, else in the user's cache folder. Where neither can be written, every process
compiles them again in memory, and the message says so.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from numba.core import event
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys  # type: ignore[attr-defined]
from numba.np import linalg

from vizsla import compiling
from vizsla.kernels import store
from vizsla.kernels.compiler import Dispatcher

if TYPE_CHECKING:
    from vizsla.kernels.kernel import Kernel
    from vizsla.kernels.signatures import Signature

_cached = True


def dispatcher_of(kernel: Kernel) -> Any:
    """A kernel as numba calls it."""
    global _cached
    compiled: Any = Dispatcher(kernel.py_func, targetoptions=kernel.options)
    try:
        compiled._cache = _Cache(kernel.py_func)
    except RuntimeError:  # numba found no folder it may write its cache to
        _cached = False
    return compiled


def translate(kernel: Kernel, signature: Signature, name: str) -> bytes | None:
    """Code of LLVM with an entry of this name, for calls from Python; None if only numba can call the kernel."""
    load_arrays()
    translated: bytes | None = kernel.dispatcher.translate(signature, name)
    return translated


class _Cache(FunctionCache):
    """A kernel on disk, which holds as long as no file with kernels changes, since they call each other.

    Numba alone would look at the kernel's own file and go on using what has changed in others.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file._source_stamp = store.sources_of(function)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        overload = compiling.find(lambda: self._load(sig, target_context))
        if overload is None:  # numba compiles it now
            load_arrays()
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


@functools.cache
def load_arrays() -> None:
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


class _CompilationNotice(event.Listener):
    """Tells the user that one of our kernels is compiled."""

    def on_start(self, event: event.Event) -> None:
        if event.data["dispatcher"].py_func.__module__.startswith("vizsla."):
            compiling.announce(*([] if _cached else ["in memory: no cache folder can be written"]))

    def on_end(self, event: event.Event) -> None:
        """Nothing to say."""


event.register("numba:compile", _CompilationNotice())  # type: ignore[no-untyped-call]
