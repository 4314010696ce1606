"""Compiling kernels that call each other, in half of numba's time.

Numba compiles every function on its own: it optimises it, makes machine code of it, and makes a wrapper that Python can
call. A function that calls others takes in their code and optimises all of it again, at every level of calls.

Here only the kernels that Python calls become machine code. The functions that they call stay code of LLVM, which is
optimised once, where it is used. The machine code is as fast; it is made from the same code by the same optimiser.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numba.core import compiler, event, sigutils, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.registry import CPUDispatcher
from numba.core.typing.templates import make_concrete_template

from vizsla.kernels.entries import can_return, define_entry, numba_types
from vizsla.kernels.signatures import Signature


class Dispatcher(CPUDispatcher):
    """A kernel as numba calls it: compiled when it is first called, by Python or by another kernel.

    >>> double = Dispatcher(lambda x: 2 * x, targetoptions={"nopython": True})
    >>> double(21)
    42
    """

    def __init__(
        self,
        py_func: Any,
        locals: Mapping[str, Any] | None = None,
        targetoptions: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(py_func, dict(locals or {}), dict(targetoptions or {}))
        self._compiler = _KernelCompiler(py_func, self.targetdescr, self.targetoptions, self.locals, compiler.Compiler)
        self._callees: dict[tuple[Any, ...], Any] = {}  # by the types of arguments: compiled for calls from kernels

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """What numba asks for when another kernel calls this one: the types of its arguments and its result.

        A constant argument has the type of other numbers, so that no second version is compiled for it.
        """
        signature, folded = self._compiler.fold_argument_types(args, kws)
        arguments = tuple(map(types.unliteral, folded))
        if arguments not in self._callees:
            callee = self._compile_callee(arguments)
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

    def translate(self, signature: Signature, name: str) -> bytes | None:
        """Code of LLVM with an entry of this name for calls from Python; None if only numba can call the kernel."""
        with global_compiler_lock:
            kernel = self._compile_callee(numba_types(signature))
            if not can_return(kernel.signature.return_type):
                return None
            context: Any = self.targetctx
            library = _EntryLibrary(context.codegen(), name)
            module = library.create_ir_module(name)
            define_entry(context, module, name, kernel, signature)
            library.add_ir_module(module)
            library.add_linking_library(kernel.library)
            return library.linked()

    def _compile_callee(self, arguments: tuple[Any, ...]) -> Any:
        details = {"dispatcher": self, "args": arguments, "return_type": None}
        with event.trigger_event("numba:compile", data=details):
            return self._compiler.compile_callee(arguments)


class _KernelCompiler(_FunctionCompiler):
    """Compiles one function: for Python, or for other kernels."""

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        """Compile it for Python."""
        flags = self._flags()
        flags.no_cfunc_wrapper = True  # C never calls it
        library = _Library(self.targetdescr.target_context.codegen(), self.py_func.__qualname__)
        library.enable_object_caching()
        compiled = self._compile(args, return_type, flags, library)
        for environment in compiled._find_referenced_environments():  # of its callees too, as when it is loaded
            library.codegen.set_env(environment.env_name, environment)
        return compiled

    def compile_callee(self, args: Any) -> Any:
        """Compile it for other kernels: to code of LLVM, without machine code or wrappers."""
        flags = self._flags()
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        library = _CalleeLibrary(self.targetdescr.target_context.codegen(), self.py_func.__qualname__)
        return self._compile(args, None, flags, library)

    def _flags(self) -> Any:
        flags = _Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        return flags

    def _compile(self, args: Any, return_type: Any, flags: _Flags, library: _Library) -> Any:
        return compiler.compile_extra(
            self.targetdescr.typing_context, self.targetdescr.target_context, self.py_func, args, return_type, flags,
            self.locals, library=library, pipeline_class=self.pipeline_class,
        )  # fmt: skip


class _Flags(compiler.Flags):
    """Numba's flags, which it compares for every call it compiles: only those that were set are compared."""

    def __hash__(self) -> int:
        return hash(_Flags)

    def __eq__(self, other: object) -> bool:
        return bool(self._values == other._values if isinstance(other, _Flags) else super().__eq__(other))


class _Library(JITCodeLibrary):
    """The code of a kernel that Python calls, and of all that it calls."""

    def add_linking_library(self, library: Any) -> None:
        super().add_linking_library(library)
        if isinstance(library, _CalleeLibrary):
            for callee in library._linking_libraries:
                super().add_linking_library(callee)

    def _optimize_functions(self, ll_module: Any) -> None:
        """Leave single functions as they are: all are optimised together."""
        ll_module.data_layout = self._codegen._data_layout


class _EntryLibrary(_Library):
    """The code of an entry, its kernel, and all that this calls."""

    def linked(self) -> bytes:
        """All of it, not optimised: it is for any processor."""
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        return self._final_module.as_bitcode()  # type: ignore[no-any-return]


class _CalleeLibrary(_Library):
    """The code of a function that only kernels call: no machine code."""

    def finalize(self) -> None:
        self._finalized = True
