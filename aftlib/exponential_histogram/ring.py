"""The exact rival of a histogram for one count window: a ring of bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


class BitRing:
    """The last `window` bits themselves, eight a byte, and how many of them are 1.

    O(1) an event and `window` / 8 bytes; raises ValueError if the window holds no event. Knows
    nothing of time windows of unknown rate, of sums, or of other windows' answers without counting
    again.
    """

    def __init__(self, window: int) -> None:
        if window < 1:
            raise ValueError(f"window must be at least 1 event, got {window!r}")
        self.window = window
        self.count = 0
        self._bytes = bytearray(-(-window // 8))
        self._bits = np.frombuffer(self._bytes, np.uint8)  # the same memory
        self._next = 0

    def update(self, events: ArrayLike) -> None:
        """Take in one bit, or a row of any length."""
        if isinstance(events, int):
            place, shift = self._next >> 3, self._next & 7
            byte = self._bytes[place]
            change = events - (byte >> shift & 1)
            self._bytes[place] = byte + (change << shift)
            self.count += change
            self._next = (self._next + 1) % self.window
            return
        bits = np.atleast_1d(np.asarray(events)).astype(bool)
        skipped = max(0, bits.size - self.window)
        self._next = (self._next + skipped) % self.window
        bits = bits[skipped:]
        while bits.size:
            size = min(bits.size, self.window - self._next)
            first, after = self._next, self._next + size  # the oldest bits, which lie in one piece
            piece = slice(first // 8, -(-after // 8))
            held = np.unpackbits(self._bits[piece], bitorder="little")
            place = slice(first - 8 * piece.start, after - 8 * piece.start)
            self.count += int(np.count_nonzero(bits[:size])) - int(np.count_nonzero(held[place]))
            held[place] = bits[:size]
            self._bits[piece] = np.packbits(held, bitorder="little")
            self._next, bits = after % self.window, bits[size:]


def exact_counts(events: NDArray[np.bool_], window: int) -> NDArray[np.int64]:
    """Ones among the last `window` events, after each event, shape (n,)."""
    ones = np.concatenate((np.zeros(1, np.int64), np.cumsum(events, dtype=np.int64)))
    first = np.maximum(np.arange(1, ones.size) - window, 0)
    return np.subtract(ones[1:], ones[first])


def relative(found: NDArray[np.float64], exact: NDArray[np.int64]) -> NDArray[np.float64]:
    """|found − exact| / exact; where nothing is to be counted 0 if 0 was found, else infinite."""
    off = np.abs(found - exact)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(off == 0, 0.0, off / exact)
