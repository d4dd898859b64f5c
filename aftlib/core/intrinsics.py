"""Processor instructions that numba does not offer, written as LLVM code.

Without numba, a function in NumPy or Python stands in for each instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aftlib.core.compiling import COMPILED

if COMPILED:
    import numba
    from llvmlite import ir
    from numba.extending import intrinsic


def emitted(python: Any) -> Callable[[Any], Any]:
    """Return a decorator for functions that emit LLVM code; without numba `python` stands in."""
    return intrinsic if COMPILED else lambda _: python


def _address(context: Any, builder: Any, signature: Any, args: Any, index: Any, kind: Any) -> Any:
    """Return a pointer to entry `index` of the array that is the first argument."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.bitcast(builder.gep(array.data, [index]), kind.as_pointer())


def _mask_by_numpy(array: Any, first: Any, limit: Any) -> Any:
    bits = np.packbits(array[first : first + 64] > limit, bitorder="little")
    return bits.view(np.uint64)[0]


@emitted(_mask_by_numpy)
def bytes_above(typing: Any, array: Any, first: Any, limit: Any) -> Any:
    """Mask of the 64 bytes from index `first` on, lowest bit first: 1 for a byte above a limit."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = ir.VectorType(ir.IntType(8), 64)
        word = ir.IntType(64)
        here = _address(context, builder, signature, args, args[1], row)
        one = builder.insert_element(ir.Constant(row, None), args[2], ir.Constant(word, 0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), 64), None)
        limits = builder.shuffle_vector(one, one, lanes)
        bits = builder.icmp_unsigned(">", builder.load(here, align=1), limits)
        return builder.bitcast(bits, word)

    return numba.uint64(array, numba.intp, numba.uint8), emit


@emitted(lambda mask: int(mask).bit_count())
def ones(typing: Any, mask: Any) -> Any:
    """Number of ones of a mask."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return numba.int64(numba.uint64), emit


@emitted(lambda array, first: array[first : first + 8].view("<u8")[0])
def eight_bytes(typing: Any, array: Any, first: Any) -> Any:
    """Eight bytes of an array, from index `first` on, as one integer; the first is the lowest."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        here = _address(context, builder, signature, args, args[1], ir.IntType(64))
        return builder.load(here, align=1)

    return numba.uint64(array, numba.intp), emit


@emitted(lambda cells, place: None)
def prefetch(typing: Any, cells: Any, place: Any) -> Any:
    """Prefetch a row of two cells into the cache; an index outside of the array does no harm."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        flag = ir.IntType(32)
        cell = builder.mul(args[1], ir.Constant(ir.IntType(64), 2))
        here = _address(context, builder, signature, args, cell, ir.IntType(8))
        kind = ir.FunctionType(ir.VoidType(), [here.type, flag, flag, flag])
        instruction = builder.module.declare_intrinsic("llvm.prefetch", [here.type], kind)
        builder.call(instruction, [here, flag(1), flag(3), flag(1)])  # to write, near, data
        return context.get_dummy_value()

    return numba.void(cells, numba.uint64), emit
