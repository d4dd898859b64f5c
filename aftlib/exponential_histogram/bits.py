"""Seeded streams of bits, rare or dense, independent or in bursts (D5), and their exact counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aftlib.core.checks import require_number

EVENTS_PER_RANGE = 2**16
"""Events of one random generator; no parameter, because the events of a seed depend on it."""


@dataclass(frozen=True)
class BitStream:
    """An endless stream of bits; how a caller cuts the stream does not change the bits.

    `burst` is at least 1, and at least share / (1 - share), where the mean run of zeros is one
    event. Without `burst`, events are independent. Raises ValueError for a parameter outside its
    range.
    """

    share: float  # probability of a one, in (0, 1)
    burst: float | None = None  # mean length of a run of ones, in events
    seed: int = 0  # not negative

    def __post_init__(self) -> None:
        require_number("share", self.share, above=0, below=1)
        least = max(1.0, self.share / (1 - self.share))
        if self.burst is not None and not least <= self.burst < float("inf"):
            raise ValueError(
                f"burst must be at least {least:g} event, got {self.burst!r}: lengthen it, "
                "or leave it out for independent events"
            )
        require_number("seed", self.seed, least=0, whole=True)

    def draw(self, size: int, first: int = 0) -> NDArray[np.bool_]:
        """Events `first` … `first + size - 1`, counted from 0, shape (size,)."""
        ranges = range(first // EVENTS_PER_RANGE, -(-(first + size) // EVENTS_PER_RANGE))
        parts = [self.range(index) for index in ranges]
        whole = np.concatenate(parts) if parts else np.empty(0, bool)
        offset = first - ranges.start * EVENTS_PER_RANGE
        return whole[offset : offset + size]

    def range(self, index: int) -> NDArray[np.bool_]:
        """Events of range number `index`, shape (EVENTS_PER_RANGE,)."""
        rng = np.random.default_rng([self.seed, index])
        if self.burst is None:
            return rng.random(EVENTS_PER_RANGE, np.float32) < self.share

        # Runs of ones and of zeros in turn, of geometric lengths; each range begins again.
        ones, zeros = self.burst, self.burst * (1 - self.share) / self.share
        first = bool(rng.random() < self.share)  # so that the share is right from the first event
        means = (ones, zeros) if first else (zeros, ones)
        pairs = 16 + int(1.5 * EVENTS_PER_RANGE / (ones + zeros))
        runs = np.empty(0, np.int64)
        while runs.sum() < EVENTS_PER_RANGE:
            drawn = np.column_stack([rng.geometric(min(1.0, 1 / mean), pairs) for mean in means])
            runs = np.append(runs, drawn.ravel())
        bits = (np.arange(runs.size) & 1 == 0) == first
        # cut first: where ones are rare, a run of zeros is longer than many ranges
        ends = np.minimum(np.cumsum(runs), EVENTS_PER_RANGE)
        return np.repeat(bits, np.diff(ends, prepend=0))


class BitRing:
    """The last `window` bits, eight per byte, and the number of ones among them.

    O(1) per event and `window` / 8 bytes; raises ValueError if the window holds no event. It has no
    time windows and no sums, and another window needs another ring.
    """

    def __init__(self, window: int) -> None:
        require_number("window", window, least=1, whole=True)
        self.window = window
        self.count = 0
        self._bytes = bytearray(-(-window // 8))
        self._bits = np.frombuffer(self._bytes, np.uint8)  # the same memory
        self._next = 0

    def update(self, events: ArrayLike) -> None:
        """Add one bit, or an array of any length."""
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


def relative(estimates: NDArray[np.float64], exact: NDArray[np.int64]) -> NDArray[np.float64]:
    """|estimate − exact| / exact; if exact is 0: 0 where the estimate is 0, else infinite."""
    off = np.abs(estimates - exact)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(off == 0, 0.0, off / exact)
