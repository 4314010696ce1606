"""Generates the entry point of a kernel as LLVM IR: the C function that `module.c` calls.

An entry is `int32_t entry(const int64_t *arguments, int64_t *result)`. It reads addresses, shapes and numbers from its
arguments, calls the kernel, and writes the result. It returns 0, or the number of an error.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.np.arrayobj import make_array, populate_array

_WORD, _INT, _FLOAT = ir.IntType(64), ir.IntType(32), ir.DoubleType()


def result_code(kind: Any) -> str | None:
    """The letter that module.c uses for the type of a result; None if such a result cannot be returned to Python."""
    if isinstance(kind, types.NoneType):
        return "n"
    if isinstance(kind, types.Boolean):
        return "b"
    if isinstance(kind, types.Float):
        return "f"
    if isinstance(kind, types.Integer):
        return "i" if kind.signed else "u"
    return None


def define_entry(context: Any, module: ir.Module, name: str, kernel: Any) -> None:
    """Define the entry point of a compiled kernel in an LLVM module."""
    words = _WORD.as_pointer()
    function = ir.Function(module, ir.FunctionType(_INT, [words, words]), name)
    entry = _Entry(context, ir.IRBuilder(function.append_basic_block("entry")), function.args[0])
    builder, arguments = entry.builder, kernel.signature.args
    values = [entry.argument(kind) for kind in arguments]
    callee = context.declare_function(module, kernel.fndesc)
    status, result = context.call_conv.call_function(builder, callee, kernel.signature.return_type, arguments, values)
    with cgutils.if_unlikely(builder, status.is_error):
        builder.ret(status.code)
    entry.store_result(kernel.signature.return_type, result, function.args[1])
    builder.ret(_INT(0))


class _Entry:
    """An entry that is being written."""

    def __init__(self, context: Any, builder: Any, words: Any) -> None:
        self._context = context
        self.builder = builder
        self._words = words
        self._read = 0  # words that were read

    def argument(self, kind: Any) -> Any:
        """The next argument, or field of a named tuple, in numba's representation."""
        if isinstance(kind, types.Array):
            return self._array(kind)
        if isinstance(kind, types.BaseTuple):
            return self._context.make_tuple(self.builder, kind, [self.argument(field) for field in kind])
        word = self._next()
        if isinstance(kind, types.Boolean):
            return self.builder.icmp_signed("!=", word, _WORD(0))
        return self.builder.bitcast(word, _FLOAT) if isinstance(kind, types.Float) else word

    def store_result(self, kind: Any, value: Any, to: Any) -> None:
        """Write a result as one word."""
        if isinstance(kind, types.NoneType):
            return
        if isinstance(kind, types.Boolean):
            value = self.builder.zext(value, _WORD)
        elif isinstance(kind, types.Float):
            wide = value if kind.bitwidth == 64 else self.builder.fpext(value, _FLOAT)
            value = self.builder.bitcast(wide, _WORD)
        elif kind.bitwidth < 64:
            value = self.builder.sext(value, _WORD) if kind.signed else self.builder.zext(value, _WORD)
        self.builder.store(value, to)

    def _array(self, kind: Any) -> Any:
        b = self.builder
        address, *shape = [self._next() for _ in range(1 + kind.ndim)]
        item = _WORD(self._context.get_abi_sizeof(self._context.get_data_type(kind.dtype)))
        strides = [item]
        for size in reversed(shape[1:]):
            strides.insert(0, b.mul(strides[0], size))
        array = make_array(kind)(self._context, b)
        populate_array(array, b.inttoptr(address, array.data.type), shape, strides, item, None)
        return array._getvalue()

    def _next(self) -> Any:
        word = self.builder.load(self.builder.gep(self._words, [_WORD(self._read)]))
        self._read += 1
        return word
