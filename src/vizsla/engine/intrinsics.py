"""What numba cannot express, written as LLVM IR: a few instructions that work on many numbers at once.

Many 16-bit numbers are compared at once, and the places where bits are set are found. Memory is asked for before it is
read, so that a kernel does not wait for it. And the table look-up of processors takes sixteen bytes at a time, each of
which gives the place of a byte in a table of sixteen: a byte of a bitmap (see `blocks.py`) has the two bits of four
documents, so half a byte, a number below sixteen, has those of two. One look-up gives one byte of the bounds of sixteen
documents, where a multiplication gives the bounds of eight and takes longer than four look-ups. It is one instruction:
`tbl` of ARM, `pshufb` of x86-64 since its level v2.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

from vizsla import kernels
from vizsla.engine.blocks import WORDS
from vizsla.kernels import data_of, intrinsic

LANES = 64  # numbers compared together: as many as bits in a word
_AT_ONCE = 16  # LLVM generates poor ARM code for wider comparisons


def _largest() -> Callable[..., Any]:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types

    def largest(typing_context, numbers, at):  # noqa: ARG001 (numba requires these)
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

    def bits_reaching(typing_context, numbers, at, threshold):  # noqa: ARG001 (numba requires these)
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

    def four_numbers(typing_context, numbers, at):  # noqa: ARG001 (numba requires these)
        def generate(context, builder, signature, arguments):
            address = builder.gep(data_of(context, builder, signature, arguments, 0), [arguments[1]])
            return builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()), align=2)

        return types.uint64(numbers, types.uint64), generate

    return four_numbers


def _first_bit() -> Callable[..., Any]:
    from llvmlite import ir
    from numba import types

    def first_bit(typing_context, bits):  # noqa: ARG001 (numba requires these)
        def generate(context, builder, signature, arguments):  # noqa: ARG001
            return builder.cttz(arguments[0], ir.IntType(1)(0))

        return types.uint64(types.uint64), generate

    return first_bit


def _count_bits() -> Callable[..., Any]:
    from numba import types

    def count_bits(typing_context, bits):  # noqa: ARG001 (numba requires these)
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


WORDS_AT_A_TIME = 8
_ON_THIS_MACHINE = (
    "llvm.aarch64.neon.tbl1.v16i8" if platform.machine() in ("aarch64", "arm64") else "llvm.x86.ssse3.pshuf.b.128"
)


def _add_words() -> Callable[..., Any]:
    from llvmlite import ir
    from numba import types

    sixteen_bytes, eight_bounds = ir.VectorType(ir.IntType(8), 16), ir.VectorType(ir.IntType(16), 8)

    def bytes_at(places: list[int]) -> Any:
        return ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places)

    def all_bytes(byte: int) -> Any:
        return ir.Constant(sixteen_bytes, [byte] * 16)

    def tables_of(builder: Any, bounds: Any) -> list[list[Any]]:
        """For the first and the second document of half a byte: a table of the low bytes of bounds, one of the high."""
        by_value = ir.Constant(eight_bounds, [0] * 8)
        for i, bound in enumerate(bounds):
            by_value = builder.insert_element(by_value, bound, ir.IntType(32)(i + 1))
        by_value = builder.bitcast(by_value, sixteen_bytes)
        nothing = ir.Constant(sixteen_bytes, ir.Undefined)
        return [
            [
                builder.shuffle_vector(
                    by_value, nothing, bytes_at([2 * (n >> 2 * which & 3) + high for n in range(16)])
                )
                for high in range(2)
            ]
            for which in range(2)
        ]

    def add_words(typing_context, sums, first, postings, at, one, two, more):  # noqa: ARG001 (numba requires these)
        def generate(context, builder, signature, arguments):
            to, words = (data_of(context, builder, signature, arguments, i) for i in (0, 2))
            # A build defines the instruction of each target under this name; see kernel_build/machine_code.py.
            name = _ON_THIS_MACHINE if kernels.translator is None else "vizsla_table_lookup"
            kind = ir.FunctionType(sixteen_bytes, [sixteen_bytes] * 2)
            look_up = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
            tables = tables_of(builder, arguments[4:])
            word = builder.gep(words, [arguments[3]])
            bits = builder.load(builder.bitcast(word, sixteen_bytes.as_pointer()), align=2)
            halves = builder.and_(bits, all_bytes(15)), builder.lshr(bits, all_bytes(4))
            for plane in range(8):
                half, (low, high) = halves[plane >> 1 & 1], tables[plane & 1]
                low, high = builder.call(look_up, [low, half]), builder.call(look_up, [high, half])
                from_byte = plane >> 2  # a word's first byte has the documents of the planes 0 to 3
                places = [x for i in range(from_byte, 16, 2) for x in (i, 16 + i)]
                bounds = builder.bitcast(builder.shuffle_vector(low, high, bytes_at(places)), eight_bounds)
                place = builder.add(arguments[1], ir.IntType(64)(plane * WORDS))
                address = builder.bitcast(builder.gep(to, [place]), eight_bounds.as_pointer())
                builder.store(builder.add(builder.load(address, align=2), bounds), address, align=2)
            return context.get_dummy_value()

        bound = types.uint16
        return types.none(sums, types.uint64, postings, types.uint64, bound, bound, bound), generate

    return add_words


add_words: Any = intrinsic(_add_words)
"""`add_words(sums, first, postings, at, one, two, more)` adds eight words of a bitmap, which start at `at`.

The sums of their first documents start at `first`; documents of the values 1, 2, and 3 or 4 get `one`, `two`, and
`more`.
"""


def _prefetch() -> Callable[..., Any]:
    from llvmlite import ir
    from numba import types

    def fetch(typing_context, array, i):  # noqa: ARG001 (numba requires these)
        def generate(context, builder, signature, arguments):
            data = data_of(context, builder, signature, arguments, 0)
            byte = ir.IntType(8).as_pointer()
            address = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
            flag = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
            name = "llvm.prefetch.p0"
            function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
            builder.call(function, [address, flag(0), flag(3), flag(1)])  # for reading, high locality, data cache
            return context.get_dummy_value()

        return types.none(array, types.intp), generate

    return fetch


prefetch: Any = intrinsic(_prefetch)
"""`prefetch(array, i)` makes the processor load item i of an array into its cache; any array and any integer type are
allowed."""
