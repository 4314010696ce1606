"""A kernel: a function over numbers that is compiled when it is first called, by Python or by another kernel."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from vizsla import compiling
from vizsla.kernels import native, store
from vizsla.kernels.signatures import Signature, classes_of, signature_of

_lock = threading.RLock()  # one thread at a time loads or compiles


class Kernel:
    """A function that is compiled when it is first called.

    Python calls the machine code of a kernel that allocates nothing through an entry (`native.py`), and numba is not
    imported if the code is stored. Numba calls all others: those that allocate, those that return something else than
    a number, and those that are called with something else than arrays, numbers and named tuples of them.

    >>> double = Kernel(lambda x: 2 * x, {"nopython": True, "_nrt": False})
    >>> double(21)
    42
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        """`options`: those of `numba.jit`; `_nrt` is False if the function allocates no arrays."""
        functools.update_wrapper(self, function)
        self.py_func = function
        self.options = options
        self._entries: tuple[Callable[..., Any], ...] = ()
        self._by_signature: dict[Signature, Callable[..., Any]] = {}
        self._native = native.SUPPORTED and not options.get("_nrt", True)

    def __call__(self, *arguments: Any) -> Any:
        try:
            for entry in self._entries:
                result = entry(*arguments)
                if result is not NotImplemented:  # it is for other types of arguments
                    return result
            return self._call_first(arguments)
        except native.KernelError as e:
            raise e.original() from None

    @functools.cached_property
    def dispatcher(self) -> Any:
        """The same kernel as numba calls it."""
        from vizsla.kernels.numba_cache import dispatcher_of

        return dispatcher_of(self)

    @property
    def _numba_type_(self) -> Any:
        """What numba takes it for, in another kernel."""
        return self.dispatcher._numba_type_

    def compiled(self) -> list[str]:
        """The types of arguments it has machine code for."""
        numba = self.__dict__.get("dispatcher")
        return [*map(str, self._by_signature), *(map(str, numba.overloads) if numba is not None else ())]

    def compile(self, signature: Signature) -> None:
        """Make machine code for types of arguments without calling it, unless it is stored or numba calls it."""
        if self._native:
            self._entry(signature)

    def _call_first(self, arguments: tuple[Any, ...]) -> Any:
        """Call it with types of arguments that it has not been called with in this process."""
        signature = signature_of(arguments) if self._native else None
        entry = None if signature is None else self._entry(signature)
        result = NotImplemented if entry is None else entry(*arguments)
        return self.dispatcher(*arguments) if result is NotImplemented else result

    def _entry(self, signature: Signature) -> Callable[..., Any] | None:
        """What calls the kernel with such arguments, from the store or compiled now; None if only numba can."""
        with _lock:
            if signature not in self._by_signature:
                name = store.name_of(self.py_func, signature)
                code = compiling.find(lambda: store.read(name)) or self._compile(signature)
                if code is None:
                    self._native = False
                    return None
                entry = native.load(code, name, classes_of(signature))
                self._by_signature[signature] = entry
                self._entries = (*self._entries, entry)
            return self._by_signature[signature]

    def _compile(self, signature: Signature) -> bytes | None:
        name = store.name_of(self.py_func, signature)
        compiling.announce(*([] if store.folder() else ["in memory: no cache folder can be written"]))
        translated = store.read_translated(name) or self._translate(signature, name)
        if translated is None:
            return None
        from vizsla.kernels.optimizer import machine_code

        code = machine_code(translated, name)
        store.write(name, code)
        return code

    def _translate(self, signature: Signature, name: str) -> bytes | None:
        from vizsla.kernels.numba_cache import translate

        translated = translate(self, signature, name)
        if translated is not None and store.keep_translated:
            from vizsla.kernels.optimizer import as_text

            store.write_translated(name, as_text(translated))
        return translated
