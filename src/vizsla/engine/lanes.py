"""Many 16-bit numbers compared at once, and the places where bits are set: a few instructions each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vizsla.kernels import data_of, intrinsic

LANES = 64  # numbers compared together: as many as bits in a word
_AT_ONCE = 16  # a comparison of more is not translated well for ARM


def _largest() -> Callable[..., Any]:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types

    def largest(typing_context, numbers, at):  # noqa: ARG001 (numba asks for these)
        def generate(context, builder, signature, arguments):
            lanes = ir.VectorType(ir.IntType(16), LANES)
            address = builder.gep(data_of(context, builder, signature, arguments, 0), [arguments[1]])
            name, kind = f"llvm.vector.reduce.umax.v{LANES}i16", ir.FunctionType(ir.IntType(16), [lanes])
            reduce = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
            return builder.call(reduce, [builder.load(builder.bitcast(address, lanes.as_pointer()), align=2)])

        return types.uint16(numbers, types.uint64), generate

    return largest


def _bits_reaching() -> Callable[..., Any]:
    from llvmlite import ir
    from numba import types

    def bits_reaching(typing_context, numbers, at, threshold):  # noqa: ARG001 (numba asks for these)
        def generate(context, builder, signature, arguments):
            lanes, word = ir.VectorType(ir.IntType(16), _AT_ONCE), ir.IntType(64)
            data = data_of(context, builder, signature, arguments, 0)
            nothing, first = (
                ir.Constant(lanes, ir.Undefined),
                ir.Constant(ir.VectorType(ir.IntType(32), _AT_ONCE), None),
            )
            threshold = builder.insert_element(nothing, arguments[2], ir.IntType(32)(0))
            threshold = builder.shuffle_vector(threshold, nothing, first)
            bits = word(0)
            for lane in range(0, LANES, _AT_ONCE):
                address = builder.gep(data, [builder.add(arguments[1], word(lane))])
                numbers = builder.load(builder.bitcast(address, lanes.as_pointer()), align=2)
                reaching = builder.bitcast(builder.icmp_unsigned(">=", numbers, threshold), ir.IntType(_AT_ONCE))
                bits = builder.or_(bits, builder.shl(builder.zext(reaching, word), word(lane)))
            return bits

        return types.uint64(numbers, types.uint64, types.uint16), generate

    return bits_reaching


def _four_numbers() -> Callable[..., Any]:
    from llvmlite import ir
    from numba import types

    def four_numbers(typing_context, numbers, at):  # noqa: ARG001 (numba asks for these)
        def generate(context, builder, signature, arguments):
            address = builder.gep(data_of(context, builder, signature, arguments, 0), [arguments[1]])
            return builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()), align=2)

        return types.uint64(numbers, types.uint64), generate

    return four_numbers


def _first_bit() -> Callable[..., Any]:
    from llvmlite import ir
    from numba import types

    def first_bit(typing_context, bits):  # noqa: ARG001 (numba asks for these)
        def generate(context, builder, signature, arguments):  # noqa: ARG001
            return builder.cttz(arguments[0], ir.IntType(1)(0))

        return types.uint64(types.uint64), generate

    return first_bit


def _count_bits() -> Callable[..., Any]:
    from numba import types

    def count_bits(typing_context, bits):  # noqa: ARG001 (numba asks for these)
        def generate(context, builder, signature, arguments):  # noqa: ARG001
            return builder.ctpop(arguments[0])

        return types.uint64(types.uint64), generate

    return count_bits


largest: Any = intrinsic(_largest)
"""`largest(numbers, at)`: the largest of the 64 numbers that start at a place."""
bits_reaching: Any = intrinsic(_bits_reaching)
"""`bits_reaching(numbers, at, threshold)`: a bit for each of the 64 numbers that start at a place, set if it is not
below a threshold."""
four_numbers: Any = intrinsic(_four_numbers)
"""`four_numbers(numbers, at)`: the four numbers that start at a place in one word, the first in its lowest bits."""
first_bit: Any = intrinsic(_first_bit)
"""`first_bit(bits)`: the place of the lowest bit that is set, 64 if none is."""
count_bits: Any = intrinsic(_count_bits)
"""`count_bits(bits)`: how many bits are set."""
