"""Approximate variance over a sliding window (D5's extension, after Babcock et al.)."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aftlib.exponential_histogram.sketch import LARGEST_REAL, MAX_UNITS, Sketch, as_reals

#: Single values wait until there are so many, or until the state is needed.
_WAITING = 1024
_FIRST_LIMIT = 64


class _Row(NamedTuple):
    """Buckets oldest first: newest value's time, number of values, mean, spread."""

    stamps: NDArray[Any]
    counts: NDArray[Any]
    means: NDArray[Any]
    spreads: NDArray[Any]

    def cut(self, first: int, after: int | None = None) -> _Row:
        return _Row(*(column[first:after] for column in self))

    def then(self, row: _Row) -> _Row:
        return _Row(*map(np.concatenate, zip(self, row, strict=True)))


_NONE = _Row(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0))


class VarianceHistogram(Sketch):
    r"""The variance of the last `window` values of a stream, within relative error ε.

    Every bucket keeps the number n, mean and spread V (sum of squared deviations from the mean) of
    some neighbouring values. Two buckets merge if their joint V is at most ρ² times that of all
    newer values. Only the oldest bucket can extend beyond the window. The number of its values
    inside is known. Their mean is estimated by the bucket's mean, and their V by V/2. There are
    O(log(range of spreads) / ε²) buckets; a value costs amortised O(1).

    Parameters
    ----------
    window
        Number of values; at least 1, below 2**61.
    epsilon
        Relative error ε in (0, 1).

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Notes
    -----
    The error is at most ε for :math:`\rho^2 = \varepsilon^2 / (1 + 3 \varepsilon / 2)`. Let V be
    the spread of the window, I the oldest bucket's part inside, B all newer values, and :math:`V_1`
    the whole bucket's spread. The bucket's mean is d above I's, and I's mean is g above B's. With
    :math:`c = n_I n_B / (n_I + n_B)`,

    .. math:: V = V_I + V_B + c g^2, \quad \hat V = V_1 / 2 + V_B + c (g + d)^2, \quad
              \hat V - V = (V_1 / 2 - V_I + c d^2) + 2 c d g .

    Splitting the bucket at the window's edge gives :math:`V_I + n_I d^2 \le V_1`, hence
    :math:`V_I + c d^2 \le V_1`, and merging gave :math:`V_1 \le \rho^2 V_B`. So the bracket is at
    most :math:`\frac32 \rho^2 V_B` in size. The cross term is at most
    :math:`2 \sqrt{c d^2 \cdot c g^2} \le 2 \rho \sqrt{V_B (V - V_B)}`. Their sum is largest, over
    :math:`V_B = \frac12 (1 - \cos\theta) V`, at
    :math:`(\frac34 \rho^2 + \sqrt{\rho^2 + \frac9{16} \rho^4}) V`, which is εV for this ρ. Babcock,
    Datar, Motwani and O'Callaghan's ρ = ε/3 keeps more buckets.

    Examples
    --------
    >>> histogram = VarianceHistogram(window=4, epsilon=0.1)
    >>> histogram.update([1.0, 5.0, 2.0, 2.0, 4.0, 8.0])
    >>> histogram.estimate()
    6.0
    """

    _kind, _head, _width = 2, struct.Struct("<qdqq"), 32

    def __init__(self, window: int, epsilon: float) -> None:
        super().__init__(window, epsilon)
        self._slack = epsilon**2 / (1 + 1.5 * epsilon)  # ρ²
        self._buckets, self._limit, self._now = _NONE, _FIRST_LIMIT, 0
        self._waiting: list[float] = []

    def __repr__(self) -> str:
        return f"VarianceHistogram(window={self._window}, epsilon={self._epsilon})"

    @property
    def now(self) -> int:
        """Number of values so far."""
        return self._now + len(self._waiting)

    @property
    def buckets(self) -> list[tuple[int, int, float, float]]:
        """(timestamp, number of values, mean, spread) of the window's buckets, newest first."""
        row = self._active()
        return list(zip(*(column[::-1].tolist() for column in row), strict=True))

    def update(self, values: ArrayLike) -> None:
        """Add one value, or an array of any length; the state is the same either way.

        Raises
        ------
        ValueError
            If the values are not finite real numbers; the state stays as it was.
        """
        if type(values) is float and abs(values) <= LARGEST_REAL:
            self._waiting.append(values)
            if len(self._waiting) < _WAITING:
                return
            values = []
        reals = as_reals(values)
        self._settle()
        self._absorb(reals)

    def estimate(self) -> float:
        """Estimate the variance (the mean squared deviation) of the window's values.

        Exact, up to rounding, while the oldest bucket lies inside the window.

        Raises
        ------
        ValueError
            If there are no values yet.
        """
        row = self._active()
        if row.stamps.size == 0:
            raise ValueError("a variance needs values, got none so far: update first")
        counts, spreads = row.counts.copy(), row.spreads.copy()
        number = min(self._now, self._window)
        inside = number - int(counts[1:].sum())
        if inside < counts[0]:
            counts[0], spreads[0] = inside, spreads[0] / 2
        mean = np.average(row.means, weights=counts)
        return float((spreads.sum() + counts @ (row.means - mean) ** 2) / number)

    def _state(self) -> tuple[tuple[Any, ...], bytes]:
        self._settle()
        columns = (column.astype(column.dtype.newbyteorder("<")) for column in self._buckets)
        fields = self._window, self._epsilon, self._now, self._limit
        return fields, b"".join(column.tobytes() for column in columns)

    @classmethod
    def _restored(cls, rows: bytes, *fields: Any) -> tuple[Self, bool]:
        window, epsilon, now, limit = fields
        self, size = cls(window, epsilon), len(rows) // cls._width
        columns = (
            np.frombuffer(rows, kind, size, 8 * i * size).astype(kind[1:])
            for i, kind in enumerate(("<i8", "<i8", "<f8", "<f8"))
        )
        self._buckets, self._now, self._limit = _Row(*columns), now, limit
        stamps, counts, means, spreads = self._buckets
        sound = size <= limit and 0 <= now < MAX_UNITS and (counts > 0).all()
        sound &= (np.diff(stamps, prepend=0, append=now + 1) > 0).all()
        sound &= np.isfinite(means).all() and np.isfinite(spreads).all() and (spreads >= 0).all()
        return self, bool(sound)

    def _active(self) -> _Row:
        """Buckets with values in the window."""
        self._settle()
        first = np.searchsorted(self._buckets.stamps, self._now - self._window + 1)
        return self._buckets.cut(int(first))

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._absorb(np.array(waiting, np.float64))

    def _absorb(self, values: NDArray[np.float64]) -> None:
        """Add an array: a run of equal values becomes a bucket, or extends the newest one.

        When no slot is free for a new bucket, expired buckets are dropped and neighbours merge.
        This depends on the values alone, not on how calls split them.
        """
        from aftlib.exponential_histogram.kernels import compact

        starts = np.flatnonzero(np.diff(values, prepend=np.nan) != 0)
        counts = np.diff(starts, append=values.size)
        runs = _Row(self._now + starts + counts, counts, values[starts], np.zeros(starts.size))
        row = self._buckets
        if row.stamps.size and row.spreads[-1] == 0 and (row.means[-1] == runs.means[:1]).any():
            longer = runs.cut(0, 1)._replace(counts=runs.counts[:1] + row.counts[-1])
            row, runs = row.cut(0, -1).then(longer), runs.cut(1)

        done = self._limit - row.stamps.size
        row = row.then(runs.cut(0, done))
        while done < runs.stamps.size:
            edge = runs.stamps[done] - runs.counts[done] + 1 - self._window
            row = row.cut(int(np.searchsorted(row.stamps, edge, side="right")))
            row = _Row(*compact(*row, self._slack))
            self._limit = max(_FIRST_LIMIT, 2 * row.stamps.size)
            first, done = done, done + self._limit - row.stamps.size
            row = row.then(runs.cut(first, done))
        self._buckets, self._now = row, self._now + values.size
