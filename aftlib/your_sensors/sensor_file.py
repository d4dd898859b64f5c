"""A user's file of sensors, wide or long, read and judged fit for a plan; nothing is guessed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.core.datasets import SensorTable, read_long, read_table
from aftlib.guard.guard import LARGEST

MOST_MISSING = 0.5
"""Share of a sensor's samples that may be missing: with more, windows are mostly guesses."""

FARTHEST = 1e9
"""Spreads from its median at which no sensor measures."""


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
    _require_usable(table)
    return table


def _require_usable(table: SensorTable) -> None:
    steps, n = table.values.shape
    if n < 2:
        raise ValueError(
            f"the file must hold at least two sensors, got {list(table.names)}: one has no other "
            "to be estimated from"
        )
    if steps < 2:
        raise ValueError(f"the file must hold at least two rows, got {steps}: give a longer record")
    share = np.isnan(table.values).mean(axis=0)
    lost = [name for name, part in zip(table.names, share, strict=True) if part > MOST_MISSING]
    if len(lost) == n:
        raise ValueError(
            f"the columns must have most of their samples, got {share.max():.0%} missing; take a "
            "longer step with resample="
        )
    if lost:
        raise ValueError(
            f"column {_some(lost)} must have most of its samples, got {share.max():.0%} missing; "
            f"leave it out with drop={lost[:8]!r}, or take a longer step with resample="
        )
    _require_measured(table)
    constant = np.nanmin(table.values, axis=0) == np.nanmax(table.values, axis=0)
    still = [name for name, one in zip(table.names, constant, strict=True) if one]
    if len(still) == n:
        raise ValueError("no column varies, got one value only in each: is this the right file?")
    if still:
        raise ValueError(
            f"column {_some(still)} must vary, got one value only; leave it out with "
            f"drop={still[:8]!r}"
        )


def _require_measured(table: SensorTable) -> None:
    """Refuse what stands for missing: 9.97e36 in netCDF, or the largest number that there is."""
    for name, values in zip(table.names, table.values.T, strict=True):
        low, middle, high = np.nanquantile(values, [0.01, 0.5, 0.99])
        spread = high - low if 0 < high - low < LARGEST else LARGEST / FARTHEST
        wild = np.abs(values - middle) > FARTHEST * spread
        count = int(wild.sum())
        if count:
            raise ValueError(
                f"column {name!r} must hold measurements, got {values[wild][0]:g} ({count} such) "
                f"where most lie from {low:g} to {high:g}; if that stands for missing, leave "
                f"those cells empty, or leave the column out with drop=[{name!r}]"
            )


def _some(names: Sequence[str]) -> str:
    listed = ", ".join(repr(name) for name in names[:8])
    return listed + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def step_of(table: SensorTable) -> pd.Timedelta | None:
    """Period of the table's grid; None where the file had no times."""
    if isinstance(table.time, pd.DatetimeIndex) and len(table.time) > 1:
        return table.time[1] - table.time[0]
    return None


def taken(table: SensorTable) -> list[str]:
    """What was taken for time, step and sensors, and what was found amiss, a line each."""
    step, quality = step_of(table), table.quality
    names = ", ".join(table.names[:6]) + (" …" if len(table.names) > 6 else "")
    lines = [f"sensors: {len(table.names)} ({names})"]
    if step is None:
        lines.append(f"time: none; {len(table.values):,} rows are taken as even steps")
    else:
        lines.append(f"time: {table.time[0]} to {table.time[-1]}")
        lines.append(f"step: {step}, {len(table.values):,} steps from {quality.rows:,} rows")
    gaps = float(np.isnan(table.values).mean())
    longest = longest_run(np.isnan(table.values).all(axis=1))
    lines.append(f"gaps: {gaps:.2%} of all samples are missing" if gaps else "gaps: none")
    if longest > 1:
        lines.append(f"      the longest time without any sensor is {longest:,} steps")
    counts = {
        "rows out of order, sorted": quality.out_of_order,
        "rows that repeated another": quality.duplicates,
        "infinite values, taken as missing": quality.non_finite,
        "rows averaged into their step": quality.averaged,
    }
    return lines + [f"{name}: {count:,}" for name, count in counts.items() if count]


def longest_run(flags: np.ndarray) -> int:
    """Most consecutive true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max(initial=0))
