"""Memory that is asked for before it is read, so that a kernel does not wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vizsla.kernels import data_of, intrinsic


def _prefetch() -> Callable[..., Any]:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types

    def fetch(typing_context, array, i):  # noqa: ARG001 (numba asks for these)
        def generate(context, builder, signature, arguments):
            data = data_of(context, builder, signature, arguments, 0)
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


prefetch: Any = intrinsic(_prefetch)
"""`prefetch(array, i)` has the processor fetch the item of an array at a place; an array and a place of any size will
do."""
