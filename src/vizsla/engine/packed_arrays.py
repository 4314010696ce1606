"""Many arrays for a kernel in one argument: their addresses and shapes.

Each array argument of a kernel costs a tenth of a microsecond per call, and a search needs 45 arrays. A table of their
addresses is a single array. The table does not own the arrays: whoever makes a table must keep them alive.

A kernel gets array i of a table from the function for its type, as in `read_uint16(table, i)`; the name also says
whether the array may be written. Types are not checked, so they must be those of the arrays in the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vizsla.kernels import intrinsic

_ENTRY = 3  # numbers of an array in a table: its address, rows and columns


def pack_arrays(*arrays: np.ndarray) -> np.ndarray:
    """A table of arrays with one or two dimensions, in C order.

    >>> table = pack_arrays(np.zeros(3, np.uint16), np.zeros((2, 5)))
    >>> table[:, 1:].tolist()
    [[3, 1], [2, 5]]
    """
    if not all(array.flags.c_contiguous and array.ndim in (1, 2) for array in arrays):
        raise ValueError("arrays in a table have one or two dimensions and lie in C order")
    shapes = (array.shape if array.ndim == 2 else (array.shape[0], 1) for array in arrays)
    return np.array([(array.ctypes.data, *shape) for array, shape in zip(arrays, shapes, strict=True)], np.int64)


def _reader(dtype_name: str, dimensions: int, readonly: bool) -> Callable[[], Callable[..., Any]]:
    """The intrinsic that returns array i of a table to a kernel."""

    def define() -> Callable[..., Any]:
        from llvmlite import ir  # type: ignore[import-untyped]
        from numba import types
        from numba.core import cgutils
        from numba.np.arrayobj import make_array, populate_array

        dtype = getattr(types, dtype_name)
        array_type = types.Array(dtype, dimensions, "C", readonly=readonly)

        def read(typing_context, table, i):  # noqa: ARG001 (numba requires these)
            def generate(context, builder, signature, arguments):
                entries = make_array(signature.args[0])(context, builder, arguments[0]).data  # type: ignore[no-untyped-call]
                first = builder.mul(arguments[1], ir.Constant(cgutils.intp_t, _ENTRY))
                places = [builder.add(first, ir.Constant(cgutils.intp_t, x)) for x in range(_ENTRY)]
                address, *shape = [builder.load(builder.gep(entries, [place])) for place in places]
                array = make_array(signature.return_type)(context, builder)  # type: ignore[no-untyped-call]
                item = ir.Constant(cgutils.intp_t, context.get_abi_sizeof(context.get_data_type(dtype)))
                strides = [builder.mul(shape[1], item), item] if dimensions == 2 else [item]
                data = builder.inttoptr(address, array.data.type)
                populate_array(array, data, shape[:dimensions], strides, item, None)  # type: ignore[no-untyped-call]
                return array._getvalue()

            return array_type(table, types.intp), generate

        return read

    return define


read_bool: Any = intrinsic(_reader("boolean", 1, True))
read_uint8: Any = intrinsic(_reader("uint8", 1, True))
read_uint16: Any = intrinsic(_reader("uint16", 1, True))
read_uint32_rows: Any = intrinsic(_reader("uint32", 2, True))
read_float64: Any = intrinsic(_reader("float64", 1, True))
write_bool: Any = intrinsic(_reader("boolean", 1, False))
write_uint16: Any = intrinsic(_reader("uint16", 1, False))
write_uint16_rows: Any = intrinsic(_reader("uint16", 2, False))
write_uint32: Any = intrinsic(_reader("uint32", 1, False))
write_int32: Any = intrinsic(_reader("int32", 1, False))
write_int64: Any = intrinsic(_reader("int64", 1, False))
write_int64_rows: Any = intrinsic(_reader("int64", 2, False))
write_float32: Any = intrinsic(_reader("float32", 1, False))
write_float64: Any = intrinsic(_reader("float64", 1, False))
write_float64_rows: Any = intrinsic(_reader("float64", 2, False))
