"""The stream in time: writes, turns, segments, and servers that work them off in order."""

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
    """Tuples of a connection, cut in segments of whole tuples; a segment never spans two writes.

    Attributes
    ----------
    first, last : ndarray, shape (s,)
        Position of each segment's first and last tuple.
    of : ndarray, shape (n,)
        Segment of each tuple.
    sizes : ndarray, shape (s,)
        Tuples in each.
    """

    first: np.ndarray
    last: np.ndarray
    of: np.ndarray
    sizes: np.ndarray

    @classmethod
    def cut(cls, entry: np.ndarray, most: int) -> Segments:
        """Cut tuples that enter the connection at (n,) times, those of one time in one write."""
        n = len(entry)
        position = np.arange(n)
        begins = np.ones(n, dtype=bool)
        np.not_equal(entry[1:], entry[:-1], out=begins[1:])
        write = np.maximum.accumulate(np.where(begins, position, 0))
        starts = (position - write) % most == 0
        first = np.flatnonzero(starts)
        sizes = np.diff(first, append=n)
        return cls(first, first + sizes - 1, np.cumsum(starts) - 1, sizes)


def lindley(arrival: np.ndarray, service: np.ndarray | int) -> np.ndarray:
    r"""When each job of one server is done: first come, first served.

    Unrolled, :math:`d_i = \max(a_i, d_{i-1}) + s_i` is :math:`d_i = S_i + \max_{j \le i}
    (a_j - S_{j-1})` with the running sum :math:`S`, so a running maximum gives all at once; exact
    for whole numbers. One pass: O(n).

    Parameters
    ----------
    arrival : ndarray of int, shape (n,)
        In order of arrival.
    service : ndarray of int, shape (n,), or int

    Returns
    -------
    ndarray of int, shape (n,)

    Examples
    --------
    >>> lindley(np.array([0, 1, 9]), 3).tolist()
    [3, 6, 12]
    """
    if np.ndim(service) == 0:
        before = np.arange(len(arrival), dtype=np.int64) * service
        total = before + service
    else:
        total = np.cumsum(service)
        before = total - service
    return total + np.maximum.accumulate(arrival - before)


def slow_start(
    arrival: np.ndarray, service: np.ndarray, window: int | None, echo_ns: int
) -> np.ndarray:
    """When each segment of a connection is on its way, with TCP's window growing from `window`.

    Every acknowledged segment admits two more, so segment j waits for the acknowledgement of
    segment ⌊(j − window) / 2⌋: blocks that double are computed one after the other.

    Parameters
    ----------
    arrival, service : ndarray of int, shape (s,)
    window : int or None
        Segments at first; None: no limit.
    echo_ns : int
        From a segment's departure until its acknowledgement is back.

    Returns
    -------
    ndarray of int, shape (s,)
        Departures: the end of each segment's time on the wire.
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
