"""The stream in time: writes, turns, segments, and servers that process them in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aftlib.upstream_backup.parameters import MS, Parameters


def written_ns(parameters: Parameters, until_ns: int) -> np.ndarray:
    """When the upstream node writes each tuple, up to a time, shape (n,), nanoseconds.

    The i-th tuple is due at i / rate and written at the next multiple of the write interval.
    """
    count = int(until_ns * parameters.rate / 1e9) + 1
    every = round(parameters.write_ms * MS)
    due = np.arange(count) * (1e9 / parameters.rate)
    ticks = np.ceil(due / every).astype(np.int64) * every
    return ticks[: np.searchsorted(ticks, until_ns, side="right")]


def primary_turn(parameters: Parameters, time_ns: np.ndarray | int) -> np.ndarray | bool:
    """Whether a moment belongs to the primary's turn (the proposal)."""
    cycle, phase = parameters.rhythm("switching")
    return (time_ns - phase) % cycle < round(cycle * parameters.share)


@dataclass(frozen=True)
class Segments:
    """Tuples of a connection, cut in segments of whole tuples; a segment never spans two writes."""

    first: np.ndarray  # position of each segment's first tuple, shape (s,)
    last: np.ndarray  # and of its last one
    of: np.ndarray  # segment of each tuple, shape (n,)
    sizes: np.ndarray  # tuples in each, shape (s,)

    @classmethod
    def cut(cls, entry: np.ndarray, most: int) -> Segments:
        """Cut tuples that enter the connection at (n,) times, those of one time in one write."""
        position = np.arange(len(entry))
        begins = np.diff(entry, prepend=-1) != 0
        write = np.maximum.accumulate(np.where(begins, position, 0))
        starts = (position - write) % most == 0
        first = np.flatnonzero(starts)
        sizes = np.diff(first, append=len(entry))
        return cls(first, first + sizes - 1, np.cumsum(starts) - 1, sizes)


def lindley(arrival: np.ndarray, service: np.ndarray | int) -> np.ndarray:
    r"""When each job of one server is done: first come, first served.

    Unrolled, :math:`d_i = \max(a_i, d_{i-1}) + s_i` is :math:`d_i = S_i + \max_{j \le i}
    (a_j - S_{j-1})` with the running sum :math:`S`, so a running maximum gives all at once; exact
    for whole numbers. One pass: O(n). `arrival` and the result have shape (n,), `service` as well
    or it is one number.

    Examples
    --------
    >>> lindley(np.array([0, 1, 9]), 3).tolist()
    [3, 6, 12]
    """
    total = np.cumsum(np.broadcast_to(service, len(arrival)))
    return total + np.maximum.accumulate(arrival - total + service)


def slow_start(
    arrival: np.ndarray, service: np.ndarray, window: int | None, echo_ns: int
) -> np.ndarray:
    """When each segment of a connection is on its way, with TCP's window growing from `window`.

    Every acknowledged segment admits two more, so segment j waits for the acknowledgement of
    segment ⌊(j − window) / 2⌋: blocks that double are computed one after the other.

    Shapes (s,), nanoseconds: `arrival`, `service` (on the wire), and the departures returned, the
    end of each segment's time on the wire. `window` None: no limit. `echo_ns`: from a segment's
    departure until its acknowledgement is back.
    """
    if window is None or window >= len(arrival):
        return lindley(arrival, service)
    departure = np.empty(len(arrival), dtype=np.int64)
    departure[:window] = lindley(arrival[:window], service[:window])
    begin = window
    while begin < len(arrival):
        end = min(len(arrival), 2 * begin + window)
        acknowledged = departure[(np.arange(begin, end) - window) // 2] + echo_ns
        ready = np.maximum(np.maximum(arrival[begin:end], acknowledged), departure[begin - 1])
        departure[begin:end] = lindley(ready, service[begin:end])
        begin = end
    return departure
