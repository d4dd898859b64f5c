"""Streams of bits, their exact counts, and the errors of estimates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Events of one random generator; no parameter, because the events of a seed depend on it.
EVENTS_PER_RANGE = 2**16


def draw_bits(size: int, share: float, seed: int, burst: float = 0) -> NDArray[np.bool_]:
    """`size` bits of a stream, each a one with probability `share`.

    `burst` is the mean length of a run of ones, in events. It must be at least 1, and at least
    share / (1 - share), where the mean run of zeros is one event. With 0, events are independent.
    """
    ranges = range(-(-size // EVENTS_PER_RANGE))
    generators = [np.random.default_rng([seed, index]) for index in ranges]
    if burst:
        parts = [_draw_bursts(rng, share, burst) for rng in generators]
    else:
        parts = [rng.random(EVENTS_PER_RANGE, np.float32) < share for rng in generators]
    return np.concatenate(parts)[:size]


def _draw_bursts(rng: np.random.Generator, share: float, burst: float) -> NDArray[np.bool_]:
    """One range: runs of ones and of zeros in turn, of geometric lengths."""
    zeros = burst * (1 - share) / share
    first = bool(rng.random() < share)  # so that the share is right from the first event
    means = (burst, zeros) if first else (zeros, burst)
    pairs = 16 + int(1.5 * EVENTS_PER_RANGE / (burst + zeros))
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
