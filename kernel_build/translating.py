"""Translates kernels to LLVM IR, which is independent of the processor, in half the time numba takes.

Numba compiles every function separately: it optimises it, generates machine code, and generates a wrapper for Python.
A function that calls others inlines their code and optimises all of it again, at every level of calls.

Here functions stay LLVM IR, which `machine_code.py` optimises once, in the kernel that uses it.
"""

from __future__ import annotations

from typing import Any

from numba.core import compiler, sigutils, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import _FunctionCompiler
from numba.core.registry import CPUDispatcher
from numba.core.typing.templates import make_concrete_template

from kernel_build.entries import define_entry, result_code

ENTRY = "vizsla_entry"
"""The name of an entry in its code."""


class Dispatcher(CPUDispatcher):
    """A kernel that is translated for other kernels, and with an entry for Python."""

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        super().__init__(function, {}, options)
        self._compiler = _KernelCompiler(function, self.targetdescr, self.targetoptions, self.locals, compiler.Compiler)
        self._callees: dict[tuple[Any, ...], Any] = {}  # by the types of arguments

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """The types of the arguments and the result, which numba requests when another kernel calls this one.

        A literal argument gets the type of an ordinary number, so that no second version is compiled for it.
        """
        signature, folded = self._compiler.fold_argument_types(args, kws)
        arguments = tuple(map(types.unliteral, folded))
        if arguments not in self._callees:
            callee = self._compiler.translate(arguments)
            self.targetctx.insert_user_function(callee.library, callee.fndesc, [callee.library])
            self._callees[arguments] = callee
        name = self.py_func.__name__
        signatures = [callee.signature for callee in self._callees.values()]
        template = make_concrete_template(f"CallTemplate({name})", key=name, signatures=signatures)
        return template, signature, arguments, {}

    def get_overload(self, sig: Any) -> Any:
        """What numba calls in another kernel: the key under which `get_call_template` has put it."""
        arguments, _ = sigutils.normalize_signature(sig)
        return self._callees[tuple(arguments)].library

    def translate(self, arguments: tuple[Any, ...]) -> tuple[bytes, str]:
        """Bitcode with an entry for these types, and the code of its result."""
        with global_compiler_lock:
            kernel = self._compiler.translate(arguments)
            result = result_code(kernel.signature.return_type)
            if result is None:
                name = f"{self.py_func.__module__}.{self.py_func.__qualname__}"
                raise TypeError(f"the kernel {name} returns {kernel.signature.return_type}; Python takes one number")
            context: Any = self.targetctx
            library = _EntryLibrary(context.codegen(), ENTRY)
            module = library.create_ir_module(ENTRY)
            define_entry(context, module, ENTRY, kernel)
            library.add_ir_module(module)
            library.add_linking_library(kernel.library)
            return library.linked(), result


class _KernelCompiler(_FunctionCompiler):
    """Translates one function."""

    def translate(self, args: Any) -> Any:
        """Translate to LLVM IR, without machine code or wrappers."""
        flags = _Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        library = _Library(self.targetdescr.target_context.codegen(), self.py_func.__qualname__)
        return compiler.compile_extra(
            self.targetdescr.typing_context, self.targetdescr.target_context, self.py_func, args, None, flags,
            self.locals, library=library, pipeline_class=self.pipeline_class,
        )  # fmt: skip


class _Flags(compiler.Flags):
    """Numba's flags, which it compares for every call it compiles: only those that were set are compared."""

    def __hash__(self) -> int:
        return hash(_Flags)

    def __eq__(self, other: object) -> bool:
        return bool(self._values == other._values if isinstance(other, _Flags) else super().__eq__(other))


class _Library(JITCodeLibrary):
    """The code of a function, and of all that it calls; no machine code."""

    def add_linking_library(self, library: Any) -> None:
        super().add_linking_library(library)
        if isinstance(library, _Library):
            for callee in library._linking_libraries:
                super().add_linking_library(callee)

    def _optimize_functions(self, ll_module: Any) -> None:
        """Leave single functions as they are: all are optimised together."""
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._finalized = True


class _EntryLibrary(_Library):
    """The code of an entry point, its kernel, and everything the kernel calls."""

    def linked(self) -> bytes:
        """All of it, not optimised: it is for any processor."""
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        return self._final_module.as_bitcode()
