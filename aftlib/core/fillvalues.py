"""Fill values: numbers such as -999.25 or 9.97e36 that loggers write for a missing sample.

A fill value repeats exactly and lies far from all measurements. The search for the bulk of the
measurements counts each distinct value once. So a frequent fill value does not widen the bulk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

TYPICAL = np.array([85, 127, 999, 9999, 99999, 999999, 32767, 32768, 65535, 6999, 7999])
"""Usual fill values, sign and fraction ignored; one occurrence is suspicious."""
LARGEST = 1e100
"""A value of this size or more is no measurement."""
FAR, CERTAIN, ABSURD = 1, 3, 1000
"""Distances from the bulk, in its widths: suspicious, certain if repeated, certain in any case."""
SAMPLED = 20_000
"""Samples of a column from which the bulk is first estimated."""
MOST_CODES = 4
"""Most fill values of one sensor; a sensor with more such values has several modes."""
WHOLE_CODES = 10
"""As before, if they are whole numbers and the measurements are not."""
STILL = 1e8
"""Distance of a fill value from a sensor's only other value."""
FEW = 8
"""A column with fewer distinct values may have states instead of a range of measurements."""


@dataclass(frozen=True)
class FillValue:
    """A value that probably stands for missing samples of one sensor."""

    sensor: str
    value: float
    count: int
    low: float  # smallest and largest of the sensor's other values
    high: float
    certain: bool  # whether it cannot be a measurement


def find_fill_values(names: Sequence[str], values: np.ndarray) -> tuple[FillValue, ...]:
    """Return the suspected fill values of samples (steps, n), NaN where missing."""
    return tuple(
        fill_value
        for name, column in zip(names, values.T, strict=True)
        for fill_value in _find_in(name, column[np.isfinite(column)])
    )


def mark_missing(values: np.ndarray, missing: Sequence[float]) -> int:
    """Set samples that equal one of the fill values to NaN, in place; return their number."""
    marked = np.zeros(values.shape, bool)
    with np.errstate(over="ignore"):
        short = np.asarray(missing, np.float32)
    for code in {*missing, *short[np.isfinite(short)].tolist()}:
        marked |= values == code
    values[marked] = np.nan
    return int(marked.sum())


def require_no_fill_values(fill_values: Sequence[FillValue]) -> None:
    """Raise ValueError if a value cannot be a measurement; the message gives the fix."""
    certain = [one for one in fill_values if one.certain]
    if not certain:
        return
    first, sensors = certain[0], {one.sensor for one in certain}
    others = f", and such values in {len(sensors) - 1} more columns," if len(sensors) > 1 else ""
    codes = ", ".join(sorted({shown(one.value) for one in certain}, key=float)[:20])
    raise ValueError(
        f"column {first.sensor!r} must hold measurements, got {shown(first.value)} "
        f"({first.count:,} such){others} where others lie from {first.low:g} to {first.high:g}; if "
        f"that stands for missing, mark it with missing=[{codes}], or leave the column out with "
        f"drop=[{first.sensor!r}]; if all values are measured, give missing=[]"
    )


def shown(value: float) -> str:
    """Shortest text that `mark_missing` recognizes as the value."""
    with np.errstate(over="ignore"):
        short = np.float32(value)
        text = str(short if float(short) == value else float(value))
    return text.removesuffix(".0")


def _find_in(name: str, column: np.ndarray) -> list[FillValue]:
    """Suspected fill values among a sensor's finite samples."""
    if not len(column):
        return []
    if np.abs(column).max() >= LARGEST:
        wild = np.abs(column) >= LARGEST
        rest = column[~wild] if not wild.all() else column
        value = float(column[wild][0])
        return [FillValue(name, value, int(wild.sum()), rest.min(), rest.max(), certain=True)]
    sampled = np.unique(column[:: -(-len(column) // SAMPLED)])
    low, high = _grow(sampled, *_densest_half(sampled))
    bulk = sampled[(sampled >= low) & (sampled <= high)]
    levels, fractions = len(bulk), bool((bulk % 1 != 0).mean() > 0.5)

    def few(codes: np.ndarray) -> bool:
        most = WHOLE_CODES if fractions and (codes % 1 == 0).all() else MOST_CODES
        return len(codes) <= most

    outside, counts = np.unique(column[(column < low) | (column > high)], return_counts=True)
    ends = np.sort(np.concatenate([outside, [low, high]]))
    low, high = _grow(ends, *np.searchsorted(ends, [low, high]).tolist())
    beyond = (outside < low) | (outside > high)
    repeated = beyond & (counts > 1)
    rare = bool(repeated.any()) and few(outside[repeated])
    one_of_few = rare and levels >= FEW
    fill_values = []
    for value, count in zip(outside[beyond].tolist(), counts[beyond].tolist(), strict=True):
        distance = max(low - value, value - high) / max(high - low, 1e-300)
        # many values close together are another state of the sensor, not fill values
        alone = few(outside[np.abs(outside - value) <= high - low])
        # a machine that is off, or on standby, measures values nearest to zero
        off = min(low, 0) <= value <= max(high, 0)
        typical = alone and bool((np.floor(abs(value)) == TYPICAL).any())
        suspicious = typical or (one_of_few and alone and count > 2)
        certain = suspicious and distance > (FAR if typical and count > 2 else CERTAIN)
        certain &= typical or not off
        certain |= distance > ABSURD and (count == 1 or rare)
        odd = rare and alone and count > 2 and distance > CERTAIN and levels > 2 and not off
        if high > low and (certain or suspicious or odd):
            fill_values.append(FillValue(name, value, count, low, high, certain))
    return fill_values or _find_beside_one(name, column) or _find_at_ends(name, column, sampled)


def _find_beside_one(name: str, column: np.ndarray) -> list[FillValue]:
    """The rarer of two values, if a sensor that stands still cannot measure it."""
    both, counts = np.unique(column, return_counts=True)
    if len(both) != 2:
        return []
    value, still = both[np.argsort(counts)].tolist()
    typical = bool((np.floor(abs(value)) == TYPICAL).any()) and (value < 0 or value >= 999)
    if typical or abs(value - still) > STILL * max(1, abs(still)):
        return [FillValue(name, value, int(counts.min()), still, still, certain=True)]
    return []


def _densest_half(values: np.ndarray) -> tuple[int, int]:
    """Indices of the first and last value of the narrowest half of sorted values."""
    half = len(values) // 2
    widths = values[half:] - values[: len(values) - half]
    begin = int(widths.argmin())
    return begin, begin + half


def _grow(values: np.ndarray, begin: int, end: int) -> tuple[float, float]:
    """Bounds of the bulk, which grows until its width is smaller than the gap to the next value."""
    before = None
    while before != (begin, end):
        before = (begin, end)
        above = np.diff(values[end:]) > FAR * (values[end:-1] - values[begin])
        end = end + int(above.argmax()) if above.any() else len(values) - 1
        below = np.diff(values[: begin + 1]) > FAR * (values[end] - values[1 : begin + 1])
        begin = begin - int(below[::-1].argmax()) if below.any() else 0
    return float(values[begin]), float(values[end])


def _find_at_ends(name: str, column: np.ndarray, sampled: np.ndarray) -> list[FillValue]:
    """The smallest or largest value, if it repeats and lies apart or alone is negative."""
    if len(sampled) <= FEW:
        return []
    usual = float(np.quantile(np.diff(sampled), 0.98))
    fill_values = []
    for value in (float(column.min()), float(column.max())):
        rest = column[column != value]
        low, high = float(rest.min()), float(rest.max())
        gap, count = max(low - value, value - high), len(column) - len(rest)
        least = 0.5 if value == 0 else 0.1  # a machine that is off uses zero
        apart = gap > least * (high - low) and gap > 5 * usual
        alone = value <= -1 and low >= 0  # a measured zero may drift slightly below 0
        if (apart or alone) and count > max(2, 1e-3 * len(column)):
            certain = alone and bool((np.floor(abs(value)) == TYPICAL).any())
            fill_values.append(FillValue(name, value, count, low, high, certain))
    return fill_values
