"""The stream itself: when tuples are written, whose turn it is, how a write is cut in segments."""

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
    cycle = 2 * round(parameters.switching_ms * MS)
    return time_ns % cycle < round(cycle * parameters.share)


@dataclass(frozen=True)
class Segments:
    """Tuples of a connection, cut in segments of whole tuples; a segment never spans two writes.

    Attributes
    ----------
    first : ndarray, shape (s,)
        Position of each segment's first tuple.
    of : ndarray, shape (n,)
        Segment of each tuple.
    sizes : ndarray, shape (s,)
        Tuples in each.
    """

    first: np.ndarray
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
        return cls(first, np.cumsum(starts) - 1, np.diff(first, append=n))

    @property
    def last(self) -> np.ndarray:
        """Position of each segment's last tuple, shape (s,)."""
        return self.first + self.sizes - 1
