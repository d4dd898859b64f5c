"""What a call's events bring: units, counted by blocks or one by one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aftlib.exponential_histogram.payload import as_bits, as_integers, check_total, refuse_non_bit

_NO_BITS = np.empty(0, np.uint8)
_NO_WORDS = np.empty(0, np.uint64)


class Units(NamedTuple):
    """Units of `size` events: `cum` counts those before each block of 2**shift events, and all.

    `bits` and `words` (the same memory, eight events a word) are empty when shift is 0.
    """

    size: int
    cum: NDArray[np.int64]
    shift: int = 0
    bits: NDArray[np.uint8] = _NO_BITS
    words: NDArray[np.uint64] = _NO_WORDS


def count_bits(events: ArrayLike, scale: int, total: int) -> Units:
    """Count bits, by blocks where that is compiled, in units of 1/scale."""
    from aftlib.core import compiling
    from aftlib.exponential_histogram import kernels

    bits = as_bits(events)
    if not compiling.COMPILED or scale > 1:
        if bits.size and bits.max() > 1:
            refuse_non_bit(bits)
        return _scaled(bits, scale, total)
    words = bits[: bits.size & ~7].view(np.uint64)
    cum, valid = kernels.count_blocks(bits, words, kernels.BLOCK_WORDS)
    if not valid:
        refuse_non_bit(bits)
    return Units(bits.size, cum, kernels.BLOCK_SHIFT, bits, words)


def count_integers(events: ArrayLike, scale: int, total: int) -> Units:
    """Count integers in units of 1/scale; the sum with `total` must not overflow."""
    return _scaled(as_integers(events), scale, total)


def _scaled(units: NDArray[np.integer], scale: int, total: int) -> Units:
    check_total(total, units, scale)
    return running(units.astype(np.int64) * scale)


def running(units: NDArray[np.integer]) -> Units:
    """Units with every event a block of its own."""
    cum = np.zeros(units.size + 1, np.int64)
    np.cumsum(units, out=cum[1:])
    return Units(units.size, cum)
