"""Seeded streams of bits, rare or dense, independent or in bursts, and their exact counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aftlib.core.checks import require_number

EVENTS_PER_RANGE = 2**16
"""Events of one random generator; no parameter, because the events of a seed depend on it."""


@dataclass(frozen=True)
class BitStream:
    """An endless stream of bits; how a caller cuts the stream does not change the bits.

    `burst` is at least 1, and at least share / (1 - share), where the mean run of zeros is one
    event. Without `burst`, events are independent. ValueError for a parameter outside its range.
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

    def draw(self, size: int, first: int = 0) -> NDArray[np.bool_]:
        """Events `first` … `first + size - 1`, counted from 0, shape (size,)."""
        ranges = range(first // EVENTS_PER_RANGE, -(-(first + size) // EVENTS_PER_RANGE))
        parts = [self.draw_range(index) for index in ranges]
        whole = np.concatenate(parts) if parts else np.empty(0, bool)
        offset = first - ranges.start * EVENTS_PER_RANGE
        return whole[offset : offset + size]

    def draw_range(self, index: int) -> NDArray[np.bool_]:
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


def count_exactly(events: NDArray[np.bool_], window: int) -> NDArray[np.int64]:
    """Ones among the last `window` events, after each event, shape (n,)."""
    exact = np.cumsum(events, dtype=np.int64)
    exact[window:] -= exact[:-window]  # NumPy copies what overlaps
    return exact


def relative_error(estimates: Any, exact: Any) -> NDArray[np.float64]:
    """|estimate − exact| / exact; if exact is 0: 0 where the estimate is 0, else infinite."""
    off = np.abs(np.asarray(estimates) - np.asarray(exact))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(off == 0, 0.0, off / exact)
