"""Writing the entry of a kernel as code of LLVM: what Python calls, see `native.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype

from vizsla.kernels import native
from vizsla.kernels.signatures import ArgumentType, Signature, class_at

_WORD, _INT, _POINTER = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
_FLOAT, _VOID = ir.DoubleType(), ir.VoidType()
_FUNCTIONS = {
    "PyEval_SaveThread": (_POINTER,),
    "PyEval_RestoreThread": (_VOID, _POINTER),
    "PyErr_Occurred": (_POINTER,),
    "PyErr_SetObject": (_VOID, _POINTER, _POINTER),
    "PyLong_AsLongLong": (_WORD, _POINTER),
    "PyLong_FromLongLong": (_POINTER, _WORD),
    "PyLong_FromUnsignedLongLong": (_POINTER, _WORD),
    "PyFloat_FromDouble": (_POINTER, _FLOAT),
    "PyBytes_FromStringAndSize": (_POINTER, _POINTER, _WORD),
    "Py_IncRef": (_VOID, _POINTER),
    "Py_DecRef": (_VOID, _POINTER),
}
"""Of each function of CPython: the type of its result, then those of its arguments."""
_SCALARS = {"int64": types.int64, "float64": types.float64, "bool": types.boolean}


def numba_types(signature: Signature) -> tuple[Any, ...]:
    """The types of arguments as numba has them.

    >>> numba_types(("uint16[2]r", "bool"))
    (Array(uint16, 2, 'C', True, aligned=True), bool)
    """
    return tuple(map(_numba_type, signature))


def _numba_type(kind: ArgumentType) -> Any:
    if isinstance(kind, tuple):
        return types.BaseTuple.from_types(numba_types(kind[1:]), class_at(kind[0]))
    if kind in _SCALARS:
        return _SCALARS[kind]
    name, _, rest = kind.partition("[")
    dimensions, _, readonly = rest.partition("]")
    return types.Array(from_dtype(np.dtype(name)), int(dimensions), "C", readonly=bool(readonly))


def can_return(kind: Any) -> bool:
    """Whether an entry can make an object of such a result: nothing, a truth value or a number."""
    return isinstance(kind, types.NoneType | types.Boolean | types.Float | types.Integer)


def define_entry(context: Any, module: ir.Module, name: str, kernel: Any, signature: Signature) -> None:
    """Write the entry of a compiled kernel into a module of LLVM."""
    function = ir.Function(module, ir.FunctionType(_POINTER, [_POINTER, _POINTER.as_pointer(), _WORD]), name)
    entry = _Entry(context, function)
    entry.require(entry.builder.icmp_signed("==", function.args[2], _WORD(len(signature))))
    arguments = numba_types(signature)
    values = [entry.argument(function.args[1], place, kind) for place, kind in enumerate(arguments)]
    thread = entry.call("PyEval_SaveThread")
    callee = context.declare_function(module, kernel.fndesc)
    status, result = context.call_conv.call_function(
        entry.builder, callee, kernel.signature.return_type, arguments, values
    )
    entry.call("PyEval_RestoreThread", thread)
    with cgutils.if_unlikely(entry.builder, status.is_error):
        entry.fail(status)
    entry.builder.ret(entry.result(kernel.signature.return_type, result))


class _Entry:
    """An entry that is being written."""

    def __init__(self, context: Any, function: ir.Function) -> None:
        self._context = context
        self._function = function
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self._others = function.append_basic_block("others")  # where the types are others
        self._addresses = self._at(function.args[0], native.BYTES, _POINTER)
        self._tuples = 0  # named tuples that were met
        with self.builder.goto_block(self._others):
            self.builder.ret(self._new_reference("NotImplemented"))

    def require(self, condition: Any) -> None:
        """Go on if a condition holds; else the arguments are for another entry."""
        after = self._function.append_basic_block()
        self.builder.cbranch(condition, after, self._others)
        self.builder.position_at_end(after)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of CPython."""
        result, *kinds = _FUNCTIONS[name]
        kind = ir.FunctionType(result, kinds).as_pointer()
        return self.builder.call(self.builder.bitcast(self._address(name), kind), arguments)

    def argument(self, items: Any, place: int, kind: Any) -> Any:
        """An argument, or a field of a named tuple, as numba has it."""
        b = self.builder
        item = b.load(b.gep(items, [_WORD(place)]))
        if isinstance(kind, types.Array):
            return self._array(item, kind)
        if isinstance(kind, types.BaseTuple):
            return self._named_tuple(item, kind)
        if isinstance(kind, types.Boolean):
            yes = self._is(item, "True")
            self.require(b.or_(yes, self._is(item, "False")))
            return yes
        found = self._load(item, native.TYPE, _POINTER)
        if isinstance(kind, types.Float):  # a float of numpy is one of Python, and lies in memory like it
            self.require(b.or_(self._is(found, "float"), self._is(found, "numpy.float64")))
            return self._load(item, native.VALUE, _FLOAT)
        return self._integer(item, found)

    def result(self, kind: Any, value: Any) -> Any:
        """An object of the result of a kernel."""
        if isinstance(kind, types.NoneType):
            return self._new_reference("None")
        if isinstance(kind, types.Boolean):
            object = self.builder.select(value, self._address("True"), self._address("False"))
            self.call("Py_IncRef", object)
            return object
        if isinstance(kind, types.Float):
            return self.call("PyFloat_FromDouble", value if kind.bitwidth == 64 else self.builder.fpext(value, _FLOAT))
        if kind.bitwidth < 64:
            value = self.builder.sext(value, _WORD) if kind.signed else self.builder.zext(value, _WORD)
        return self.call("PyLong_FromLongLong" if kind.signed else "PyLong_FromUnsignedLongLong", value)

    def fail(self, status: Any) -> None:
        """Raise what a kernel has raised."""
        b = self.builder
        pickled, size = (b.extract_value(b.load(status.excinfoptr), place) for place in (0, 1))
        written = self.call("PyBytes_FromStringAndSize", pickled, b.sext(size, _WORD))
        self.call("PyErr_SetObject", self._address("KernelError"), written)
        self.call("Py_DecRef", written)
        b.ret(_POINTER(None))

    def _array(self, item: Any, kind: Any) -> Any:
        b = self.builder
        self.require(self._is(self._load(item, native.TYPE, _POINTER), "numpy.ndarray"))
        self.require(self._is(self._load(item, native.ARRAY_DTYPE, _POINTER), str(np.dtype(str(kind.dtype)))))
        self.require(b.icmp_signed("==", self._load(item, native.ARRAY_NDIM, _INT), _INT(kind.ndim)))
        flags = _INT(native.C_CONTIGUOUS | native.ALIGNED | (native.WRITEABLE if kind.mutable else 0))
        self.require(b.icmp_signed("==", b.and_(self._load(item, native.ARRAY_FLAGS, _INT), flags), flags))
        sizes = self._load(item, native.ARRAY_SHAPE, _WORD.as_pointer())
        shape = [b.load(b.gep(sizes, [_WORD(x)])) for x in range(kind.ndim)]
        bytes_of_item = _WORD(self._context.get_abi_sizeof(self._context.get_data_type(kind.dtype)))
        strides = [bytes_of_item]
        for size in reversed(shape[1:]):
            strides.insert(0, b.mul(strides[0], size))
        array = make_array(kind)(self._context, b)  # type: ignore[no-untyped-call]
        data = b.bitcast(self._load(item, native.ARRAY_DATA, _POINTER), array.data.type)
        populate_array(array, data, shape, strides, bytes_of_item, None)  # type: ignore[no-untyped-call]
        return array._getvalue()

    def _named_tuple(self, item: Any, kind: Any) -> Any:
        wanted = self._entry_of_table(len(native.TABLE) + self._tuples)
        self._tuples += 1
        found = self._load(item, native.TYPE, _POINTER)
        self.require(self.builder.icmp_unsigned("==", found, wanted))
        fields = self._at(item, native.TUPLE_ITEMS, _POINTER)
        values = [self.argument(fields, place, field) for place, field in enumerate(kind)]
        return self._context.make_tuple(self.builder, kind, values)

    def _integer(self, item: Any, found: Any) -> Any:
        """A whole number, of Python or of numpy."""
        b = self.builder
        python, numpy, after = (self._function.append_basic_block() for _ in range(3))
        b.cbranch(self._is(found, "int"), python, numpy)
        b.position_at_end(python)
        one = self.call("PyLong_AsLongLong", item)
        with cgutils.if_unlikely(b, b.icmp_signed("==", one, _WORD(-1))):
            failed = b.icmp_unsigned("!=", self.call("PyErr_Occurred"), _POINTER(None))
            with cgutils.if_unlikely(b, failed):
                b.ret(_POINTER(None))
        from_python = b.block
        b.branch(after)
        b.position_at_end(numpy)
        self.require(self._is(found, "numpy.int64"))
        other = self._load(item, native.VALUE, _WORD)
        from_numpy = b.block
        b.branch(after)
        b.position_at_end(after)
        value = b.phi(_WORD)
        value.add_incoming(one, from_python)
        value.add_incoming(other, from_numpy)
        return value

    def _new_reference(self, name: str) -> Any:
        object = self._address(name)
        self.call("Py_IncRef", object)
        return object

    def _is(self, pointer: Any, name: str) -> Any:
        """Whether a pointer is to an object of the table."""
        return self.builder.icmp_unsigned("==", pointer, self._address(name))

    def _address(self, name: str) -> Any:
        return self._entry_of_table(native.TABLE[name])

    def _entry_of_table(self, place: int) -> Any:
        return self.builder.load(self.builder.gep(self._addresses, [_WORD(place)]))

    def _load(self, item: Any, offset: int, kind: Any) -> Any:
        return self.builder.load(self._at(item, offset, kind))

    def _at(self, item: Any, offset: int, kind: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(item, [_WORD(offset)]), kind.as_pointer())
