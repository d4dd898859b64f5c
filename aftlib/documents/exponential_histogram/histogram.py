"""Approximate counts and sums over a sliding window (D5)."""

from __future__ import annotations

import struct
from copy import deepcopy
from itertools import product
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aftlib.core.checks import require_choice, require_number
from aftlib.documents.exponential_histogram.buckets import NEVER, NOTHING, Buckets, halves
from aftlib.documents.exponential_histogram.units import (
    MAX_UNITS,
    Units,
    as_row,
    as_times,
    check_total,
    least_buckets,
    refuse,
    running,
)

#: An event of at most so many units is added unit by unit.
_FEW = 16
#: With a larger total, such an event might overflow.
_SAFE_TOTAL = MAX_UNITS - _FEW
_HEAD = struct.Struct("<qd??qdqqq")


def units_of(events: ArrayLike, values: str, scale: int, total: int) -> Units:
    """Convert events of the kind `values` to units of 1/scale; ValueError if `total` overflows."""
    if values == "integers":
        array = as_row("events", events, "non-negative integers")
        fix = "an exponential histogram can only add; keep negative parts in a second one"
        refuse(array < 0, array, "events must not be negative", fix)
    else:
        array = as_row("events", events, "bits (booleans, 0 or 1)")
        if array.dtype != bool:
            fix = 'a sum of non-negative integers needs values="integers"'
            refuse((array < 0) | (array > 1), array, "events must be bits", fix)
        if scale == 1:  # by blocks, at the speed of counting
            from aftlib.documents.exponential_histogram.kernels import BLOCK_SHIFT, count_blocks

            bits = np.ascontiguousarray(array, bool).view(np.uint8)
            return Units(bits.size, count_blocks(bits), BLOCK_SHIFT, bits)
    check_total(total, array, scale)
    return running(array.astype(np.int64) * scale)


class ExponentialHistogram:
    r"""Count or sum of the last part of a stream, within relative error ε.

    The window is the last `window` events, or with `timed` the events after now - `window`, where
    now is the newest timestamp. Buckets hold 1, 2, 4, … units (events that are 1, or units of the
    sum) and the time of their newest unit; O(log(window) / ε) buckets suffice (Datar, Gionis,
    Indyk, Motwani). At least :math:`\lceil k/2 \rceil` buckets of each size but the largest are
    kept, :math:`k = \lceil 1/\varepsilon \rceil`. With s units in the oldest bucket and `total` in
    all buckets, the estimate is

    .. math:: \hat c = total - (s - 1) / 2, \qquad |\hat c - c| \le \varepsilon c .

    Sizes depend on the total alone. So an update with an array hops from one expiry of the oldest
    bucket to the next. Its result is bit for bit that of one-by-one updates, at about the speed of
    counting the array's non-zeros.

    Parameters
    ----------
    window
        Width in events, or with `timed` in the timestamps' unit; at least 1, below 2**61.
    epsilon
        Relative error ε in (0, 1).
    timed
        Whether events have timestamps: integers that never decrease.
    values
        "bits" (booleans, 0, 1) to count the ones, "integers" (0, 1, 2, …) to sum.

    Attributes
    ----------
    error_bound
        Relative error that `estimate` guarantees: ε, or after a merge e + ε + eε with e the
        largest bound of the inputs.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Notes
    -----
    D5, figures 1 and 2. For one count window that fits in memory, an exact ring of `window` bits is
    faster, and smaller unless the window is large. Histograms win with many windows, time windows
    of unknown rate, sums, and queries for parts of the window.

    The first update with an array on a machine compiles the loop, which takes some seconds; numba
    stores it on disk. Single events need no compiler. Without numba, updates with arrays give the
    same results at the speed of Python.

    Examples
    --------
    The thirteen events of D5's figure 3, up to the ninth:

    >>> from aftlib import ExponentialHistogram
    >>> histogram = ExponentialHistogram(window=7, epsilon=0.5)
    >>> histogram.update([0, 1, 1, 0, 1, 1, 1, 1, 1])
    >>> histogram.buckets
    [(9, 1), (8, 2), (6, 4)]
    >>> histogram.total, histogram.estimate(), histogram.article_estimate()
    (7, 5.5, 5)

    One event more, and an estimate for the last three events:

    >>> histogram.update(0)
    >>> histogram.estimate(last=3)
    2.5

    Sums over time, of two streams that merge:

    >>> day, night = (ExponentialHistogram(60, 0.1, timed=True, values="integers") for _ in "12")
    >>> day.update([5, 7], timestamps=[100, 130])
    >>> night.update(3, timestamps=90)
    >>> day.merge(night).estimate()
    15.0
    """

    def __init__(
        self, window: int, epsilon: float, timed: bool = False, values: str = "bits"
    ) -> None:
        fix = "count events, or with timed=True units of the timestamps, such as 60_000 ms"
        require_number("window", window, least=1, below=MAX_UNITS, whole=True, fix=fix)
        require_number("epsilon", epsilon, above=0, below=1)
        require_choice("values", values, ("bits", "integers"))
        self.window = int(window)
        self.epsilon = float(epsilon)
        self.timed = bool(timed)
        self.values = values
        start = NEVER if timed else 0
        self._buckets = Buckets(self.window, least_buckets(epsilon), start, start)
        self.error_bound = self.epsilon  # a merge changes it

    def __repr__(self) -> str:
        given = f"window={self.window}, epsilon={self.epsilon}"
        return f"ExponentialHistogram({given}, timed={self.timed}, values={self.values!r})"

    def __copy__(self) -> Self:
        return deepcopy(self)  # otherwise both would go on with the same buckets

    @property
    def now(self) -> int | None:
        """Events so far, or the newest timestamp (None before the first)."""
        return None if self._buckets.now == NEVER else self._buckets.now

    @property
    def total(self) -> int | float:
        """Sum of all buckets' counts; after a merge it may be a fraction."""
        return self._in_events(self._buckets.total)

    @property
    def buckets(self) -> list[tuple[int, int | float]]:
        """(timestamp of its newest event, count) of every bucket, newest first."""
        pairs = zip(self._buckets.stamps.tolist(), self._buckets.sizes.tolist(), strict=True)
        return [(at, self._in_events(size)) for at, size in pairs]

    def update(self, events: ArrayLike, timestamps: ArrayLike | None = None) -> None:
        """Add one event, or an array of any length; the state is the same either way.

        Parameters
        ----------
        events
            One value or n values, of the kind `values`.
        timestamps
            With `timed`, one integer per event; neighbours may be equal.

        Raises
        ------
        ValueError
            If events or timestamps are of another kind, timestamps go back, or the total
            overflows; the state stays as it was.
        """
        held = self._buckets
        if isinstance(events, int) and not events >> 1 and held.total < _SAFE_TOTAL:  # 0 or 1
            if timestamps is None and not self.timed:
                return held.single(held.now + 1, events)
            known = self.timed and isinstance(timestamps, int) and held.scale <= _FEW
            if known and NEVER < held.now <= timestamps < MAX_UNITS:
                return held.single(timestamps, events * held.scale)
        self._many(events, timestamps, NOTHING)
        return None

    def estimates(
        self, events: ArrayLike, timestamps: ArrayLike | None = None, *, article: bool = False
    ) -> NDArray[np.float64]:
        """Update, and return the `estimate()` after each event, shape (n,).

        With `article` return the `article_estimate()` after each event. Raises as `update` does.
        """
        from aftlib.documents.exponential_histogram.kernels import answer

        totals = np.empty(np.size(events), np.int64)
        before = self._buckets.now
        times = self._many(events, timestamps, totals)
        held = self._buckets
        full = held.origin + held.window  # until then, the whole stream is inside the window
        exact = np.searchsorted(times, full, side="right") if self.timed else full - before
        answers = totals.view(np.float64)  # in place: fresh memory costs as much as the arithmetic
        answer(answers, totals, (held.least, held.scale), int(exact), article)
        return answers

    def estimate(self, last: int | None = None) -> float:
        """Estimate the count or sum of the window, or of its last part, within `error_bound`.

        The oldest bucket that reaches into this part has 1 … s of its s units there; (s + 1)/2 are
        counted. The estimate is exact while the whole stream so far lies in this part.

        Parameters
        ----------
        last
            Width of the part, 1 … `window`; by default the window.

        Raises
        ------
        ValueError
            If `last` is no whole number, or outside that range.
        """
        held = self._buckets
        if last is None:
            units = held.total
            largest = held.largest
        else:
            fix = "only a wider window has more"
            require_number("last", last, least=1, most=held.window, whole=True, fix=fix)
            sizes = held.sizes[: np.count_nonzero(held.stamps > held.now - last)]
            units = int(sizes.sum())
            largest = int(sizes[-1]) if sizes.size else 0
        all_inside = held.origin >= held.now - (last or held.window)
        doubt = 0 if all_inside else max(largest - 1, 0)
        return (2 * units - doubt) / (2 * held.scale)

    def article_estimate(self) -> int:
        """The article's ⌈total - largest / 2⌉, whose error is up to 2 ε where ones are few.

        D5, figure 2 and `Query`.
        """
        held = self._buckets
        return -((held.largest - 2 * held.total) // (2 * held.scale))

    def merge(self, other: Self, *others: Self) -> Self:
        """Add the events of other histograms of the same time window, and return self.

        `error_bound` becomes e + ε + eε, with e the largest bound of the inputs. So merge all
        histograms in one call rather than in a chain. `now` becomes the newest of the inputs.

        Raises
        ------
        ValueError
            If another object is given, these are count windows, their windows or values differ,
            or the total overflows.
        """
        inputs = [self, other, *others]
        for each in inputs:
            if not isinstance(each, ExponentialHistogram):
                raise ValueError(
                    f"other must be an ExponentialHistogram, got {type(each).__name__}: pass each "
                    "histogram of a list as merge(*histograms), and read bytes by from_bytes"
                )
        wanted = {"timed": True, "window": self.window, "values": self.values}
        for each, (name, mine) in product(inputs, wanted.items()):
            if getattr(each, name) != mine:
                raise ValueError(
                    f"other must have {name}={mine!r} to merge, got {getattr(each, name)!r}: "
                    "use time windows made with the same parameters"
                )
        held = self._buckets
        started = [each._buckets for each in inputs if each.now is not None]
        filled = [each for each in started if each.total]
        error = max((each.error_bound for each in inputs if each._buckets.total), default=0.0)
        now = max((each.now for each in started), default=NEVER)
        origin = min((each.origin for each in started), default=NEVER)

        if [each.least for each in filled] == [held.least]:
            source = filled[0]  # the only one with buckets, which are ours already: nothing is lost
            held.replace(source.stamps, source.total)
            held.scale = source.scale
            self.error_bound = max(error, self.epsilon)
        elif filled:
            times, units, scale, rounding = halves(filled, now - self.window)
            held = self._buckets = Buckets(self.window, held.least, now - self.window, origin)
            held.many(running(units), times)
            held.scale = scale
            error += rounding
            self.error_bound = error + self.epsilon + error * self.epsilon

        held.origin = origin
        held.single(now, 0)  # old buckets expire
        return self

    def to_bytes(self) -> bytes:
        """Return the state as bytes, the same for the same state."""
        held = self._buckets
        head = _HEAD.pack(
            self.window,
            self.epsilon,
            self.timed,
            self.values == "integers",
            held.scale,
            self.error_bound,
            held.now,
            held.origin,
            held.total,
        )
        return head + held.stamps.astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Rebuild the histogram that wrote the bytes; it goes on exactly as the original would.

        ValueError for bytes that are not those of `to_bytes`, such as a part of them.
        """
        wrong = f"data must be the bytes of to_bytes, got {len(data)} bytes of something else"
        if len(data) < _HEAD.size or (len(data) - _HEAD.size) % 8:
            raise ValueError(wrong)
        fields = _HEAD.unpack_from(data)
        window, epsilon, timed, integers, scale, error_bound, now, origin, total = fields
        self = cls(window, epsilon, timed, "integers" if integers else "bits")
        self.error_bound = error_bound
        held = self._buckets
        held.now = now
        held.origin = origin
        held.scale = scale
        held.replace(np.frombuffer(data, "<i8", offset=_HEAD.size).astype(np.int64), total)
        if len(held.stamps) != len(held.sizes):
            raise ValueError(wrong)
        return self

    def _many(
        self, events: ArrayLike, timestamps: ArrayLike | None, totals: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Add events, write the total after each into `totals`, and return the timestamps."""
        held = self._buckets
        if self.timed != (timestamps is not None):
            wanted = "given, one per event," if self.timed else "left out"
            raise ValueError(
                f"timestamps must be {wanted} with timed={self.timed}, got {timestamps!r}: "
                "choose timed when making the histogram"
            )
        units = units_of(events, self.values, held.scale, held.total)
        times = NOTHING if timestamps is None else as_times(timestamps, units.size, held.now)
        held.many(units, times, totals)
        return times

    def _in_events(self, units: int) -> int | float:
        scale = self._buckets.scale
        return units if scale == 1 else units / scale
