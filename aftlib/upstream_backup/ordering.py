"""Order downstream: the costs and benefits of sorting for an operator that needs order.

Tuples sent again arrive after later tuples that went to the survivor. Results of two nodes of
different speed overtake each other at every switch. A filter does not depend on the order. A
windowed aggregate and a join of neighbours do: without sorting they close a window, or forget a
partner, too early.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aftlib.upstream_backup.parameters import MS
from aftlib.upstream_backup.routes import NEVER


@dataclass(frozen=True)
class Sorting:
    """Cost of sorting results downstream."""

    late: int  # results that come after one with a larger number
    waiting: int  # most results held back at one time
    longest_ms: float  # longest delay of a result by sorting


def sorting(delivered: np.ndarray) -> Sorting:
    """Cost of passing results on in the order of their numbers; `delivered`: arrival times, ns.

    A ValueError when a result never arrived: later results would wait for ever.
    """
    _check_complete(delivered)
    released = np.maximum.accumulate(delivered)
    after = np.minimum.accumulate(delivered[::-1])[::-1]
    arrived = np.arange(1, len(delivered) + 1)
    waiting = arrived - np.searchsorted(released, np.sort(delivered), side="right")
    return Sorting(
        late=int((delivered[:-1] > after[1:]).sum()),
        waiting=int(max(waiting.max(), 0)),
        longest_ms=float((released - delivered).max() / MS),
    )


@dataclass(frozen=True)
class Operator:
    """Outputs of an operator, with and without sorting before it."""

    wrong: int  # outputs that are wrong or missing without sorting
    outputs: int
    delay_ms: float  # mean delay of an output by sorting


def aggregate(delivered: np.ndarray, window: int) -> Operator:
    """Tumbling windows over `window` tuples, closed by the first result of a later window.

    A window is wrong if one of its own results arrives after that. ValueError if `window` is less
    than 1, there are fewer than two windows, or a result never arrived.
    """
    _check_complete(delivered)
    count = len(delivered) // window if window > 0 else 0
    if count < 2:
        raise ValueError(
            f"window must be 1 … {len(delivered) // 2} tuples, for at least two windows, got "
            f"{window!r}"
        )
    times = delivered[: count * window].reshape(count, window)
    first, last = times.min(axis=1), times.max(axis=1)
    closed = np.minimum.accumulate(first[::-1])[::-1][1:]
    held = np.maximum.accumulate(last) - last
    return Operator(int((last[:-1] > closed).sum()), count - 1, float(held[:-1].mean() / MS))


def join(delivered: np.ndarray, lag: int, memory: int) -> Operator:
    """Pairs (i, i + lag), found if one result arrives while the other is still remembered.

    The operator remembers the last `memory` results; if results are sorted, `lag` of them suffice.
    ValueError when lag or memory is out of range, or a result never arrived.
    """
    _check_complete(delivered)
    if not (0 < lag < len(delivered) and memory > 0):
        raise ValueError(
            f"lag must be 1 … {len(delivered) - 1} and memory at least 1, got {lag!r}, {memory!r}"
        )
    rank = np.empty(len(delivered), dtype=np.int64)
    rank[np.argsort(delivered, kind="stable")] = np.arange(len(delivered))
    apart = np.abs(rank[lag:] - rank[:-lag])
    both = np.maximum(delivered[lag:], delivered[:-lag])
    held = np.maximum.accumulate(delivered)[lag:] - both
    return Operator(int((apart > memory).sum()), len(apart), float(held.mean() / MS))


def _check_complete(delivered: np.ndarray) -> None:
    if not len(delivered) or delivered.max() == NEVER:
        raise ValueError(
            f"delivered must be finite, got {int((delivered == NEVER).sum())} of {len(delivered)} "
            "results that never arrived; follow the stream to its end"
        )
