"""A user's file of sensors, wide or long, read and judged fit for a plan; nothing is guessed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from pathlib import Path

import numpy as np

from aftlib.core.checks import listed
from aftlib.core.datasets import SensorTable, read_long, read_table
from aftlib.guard.guard import LARGEST
from aftlib.your_sensors.inventory import Tally

MOST_MISSING = 0.5
"""Share of a sensor's samples that may be missing: with more, windows are mostly guesses."""

COARSEST = 1e-6
"""Of a sensor's range, the most that its largest numbers may be rounded by."""

FARTHEST = 1e9
"""Spreads from its median at which no sensor measures."""

CODES = np.array([999, 999.9, 9999, 9999.9, 99999, 999999, 32767, 32768, 65535])
"""What loggers write, with either sign, for a sample that they do not have."""


def read_sensors(
    path: Path | str,
    *,
    long: Sequence[str] | None = None,
    time: str | None = None,
    resample: str | None = None,
    drop: Sequence[str] = (),
) -> SensorTable:
    """Read sensors that a plan can be made for.

    Parameters
    ----------
    path : path
        CSV or Parquet file. Wide: rows are moments, columns are sensors.
    long : (time, sensor, value), optional
        Columns of a long file, which has one row a sample.
    time, resample, drop
        As `datasets.read_table`; in a long file, `drop` names sensors.

    Raises
    ------
    ValueError
        When the file cannot be read as such a table, has less than two sensors or two steps, or a
        sensor never varies or misses more than half of its samples. The message names the columns
        and the way out.
    """
    if long is None:
        table = read_table(path, time, resample=resample, drop=drop)
    else:
        if time is not None:
            raise ValueError(f"time must not go with long, got {time!r}: long names it already")
        table = read_long(path, long, resample=resample, drop=drop)
    if not table.values.size:
        raise ValueError("the file must hold at least two rows, got none: give a longer record")
    require_usable(table.names, Tally.of(table.values))
    require_measured(table.names, table.values)
    return table


def require_usable(names: Sequence[str], tally: Tally) -> None:
    """Refuse too few sensors or steps, and sensors that never vary or miss most samples."""
    n, steps = len(names), tally.steps
    if n < 2:
        raise ValueError(
            f"the file must hold at least two sensors, got {list(names)}: one has no other "
            "to be estimated from"
        )
    if steps < 2:
        raise ValueError(f"the file must hold at least two rows, got {steps}: give a longer record")
    share = tally.missing / steps
    lost = list(compress(names, share > MOST_MISSING))
    if len(lost) == n:
        raise ValueError(
            f"the columns must have most of their samples, got {share.max():.0%} missing; take a "
            "longer step with resample="
        )
    if lost:
        raise ValueError(
            f"column {listed(lost)} must have most of its samples, got {share.max():.0%} missing; "
            f"leave it out with drop={lost[:8]!r}, or take a longer step with resample="
        )
    require_told_apart(names, tally)
    still = list(compress(names, tally.lowest == tally.highest))
    if len(still) == n:
        raise ValueError("no column varies, got one value only in each: is this the right file?")
    if still:
        raise ValueError(
            f"column {listed(still)} must vary, got one value only; leave it out with "
            f"drop={still[:8]!r}"
        )


def require_told_apart(names: Sequence[str], tally: Tally) -> None:
    """Refuse whole numbers so large that a float of 53 bits rounds their differences away."""
    largest = np.maximum(np.abs(tally.lowest), np.abs(tally.highest))
    with np.errstate(invalid="ignore"):
        coarse = np.spacing(largest) > COARSEST * (tally.highest - tally.lowest)
    for i in np.flatnonzero(coarse & (largest >= 2**53)).tolist():
        raise ValueError(
            f"column {names[i]!r} must hold numbers that differ by more than their rounding, got "
            f"{tally.lowest[i]:.16g} to {tally.highest[i]:.16g}, which are kept in steps of "
            f"{np.spacing(largest[i]):g}; subtract a constant first, or, if it names rows or "
            f"devices, leave it out with drop=[{names[i]!r}]"
        )


def require_measured(names: Sequence[str], values: np.ndarray) -> None:
    """Refuse what stands for missing: 9.97e36 in netCDF, the largest number that there is, -999."""
    for name, column in zip(names, values.T, strict=True):
        low, middle, high = np.nanquantile(column, [0.01, 0.5, 0.99])
        spread = high - low if 0 < high - low < LARGEST else LARGEST / FARTHEST
        wild = np.abs(column - middle) > FARTHEST * spread
        coded = np.isin(np.abs(column), CODES)
        if coded.any() and not (coded | np.isnan(column)).all():
            low, high = np.nanmin(column[~coded]), np.nanmax(column[~coded])
            away = np.maximum(low - column, column - high)
            wild |= coded & (away > 3 * (high - low)) & (high > low)
        count = int(wild.sum())
        if count:
            raise ValueError(
                f"column {name!r} must hold measurements, got {column[wild][0]:g} ({count} such) "
                f"where others lie from {low:g} to {high:g}; if that stands for missing, leave "
                f"those cells empty, or leave the column out with drop=[{name!r}]"
            )
