"""Memory that is asked for before it is read, so that a kernel does not wait for it."""

from __future__ import annotations

from functools import cached_property
from typing import Any


class _Prefetch:
    """What has the processor fetch the item of an array at a place; an array and a place of any size will do."""

    @cached_property
    def _numba_type_(self) -> Any:
        """What numba takes it for; asked for when a kernel is compiled, so that numba is not imported before."""
        from numba.core.registry import cpu_target

        fetch = self._intrinsic()
        cpu_target.typing_context.refresh()  # it knows now of what was defined
        return cpu_target.typing_context.resolve_value_type(fetch)

    def _intrinsic(self) -> Any:
        from llvmlite import ir  # type: ignore[import-untyped]
        from numba import types
        from numba.extending import intrinsic
        from numba.np.arrayobj import make_array

        @intrinsic
        def fetch(typing_context, array, i):  # noqa: ARG001 (numba asks for these)
            def generate(context, builder, signature, arguments):
                data = make_array(signature.args[0])(context, builder, arguments[0]).data  # type: ignore[no-untyped-call]
                byte = ir.IntType(8).as_pointer()
                address = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
                flag = ir.IntType(32)
                kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
                name = "llvm.prefetch.p0"
                function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
                builder.call(function, [address, flag(0), flag(3), flag(1)])  # to read, to keep near, data
                return context.get_dummy_value()

            return types.none(array, types.intp), generate

        return fetch


prefetch: Any = _Prefetch()
