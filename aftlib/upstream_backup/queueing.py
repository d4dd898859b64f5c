"""First come, first served: completion times by Lindley's recursion, without a loop over jobs."""

from __future__ import annotations

import numpy as np


def lindley(arrival: np.ndarray, service: np.ndarray | int) -> np.ndarray:
    r"""When each job of one server is done.

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
