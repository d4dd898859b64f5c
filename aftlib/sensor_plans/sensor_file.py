"""A user's file of sensors, read whole and checked for a plan; nothing is guessed silently.

A `Tally` counts consecutive pieces, so that `large_file` can read a file in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from aftlib.core.checks import refuse_columns
from aftlib.core.datasets import Reading
from aftlib.core.fillvalues import FillValue, require_no_fill_values
from aftlib.core.sensortable import Quality, SensorTable
from aftlib.core.timecolumns import usual_step

PIECE = 1_000_000
"""Approximate number of samples that are counted or aggregated at a time."""
MOST_MISSING = 0.5
"""Share of a sensor's samples that may be missing: with more, most results would be guesses."""
LONG_GAP = 0.1
"""A gap of all sensors over more than this share of the steps separates two campaigns."""


class Runs:
    """Longest run of true flags in each of m columns; the flags come in consecutive pieces."""

    def __init__(self, m: int) -> None:
        self.tail = np.zeros(m, np.int64)  # length of the run that has not ended yet
        self.longest = np.zeros(m, np.int64)

    def add(self, flags: np.ndarray) -> None:
        """Add the next flags, shape (at least 1, m)."""
        step = np.arange(1, len(flags) + 1)[:, None]
        before = np.maximum.accumulate(np.where(flags, -self.tail, step), axis=0)
        lengths = step - before
        self.tail, self.longest = lengths[-1], np.maximum(self.longest, lengths.max(axis=0))


class Tally:
    """Counts of the samples of n sensors, which come in consecutive pieces."""

    def __init__(self, n: int) -> None:
        self.steps = 0
        self.missing = np.zeros(n, np.int64)  # missing samples
        self.lowest, self.highest = np.full(n, np.inf), np.full(n, -np.inf)  # sample values
        self.lows, self.highs = np.zeros((2, n), np.int64)  # samples equal to lowest, highest
        self.last = np.full(n, np.nan)  # sample of the last step, NaN where missing
        self.silent = 0  # steps without any sample
        self.silence = Runs(1)  # runs of steps without any sample
        self.still = Runs(n)  # runs of samples that repeat the one before them

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """Counts of samples, shape (steps, n), NaN where missing."""
        tally = cls(values.shape[1])
        for rows in pieces_of(values):
            tally.add(rows)
        return tally

    def add(self, values: np.ndarray) -> None:
        """Count the next samples, shape (at least 1, n), NaN where missing."""
        gone = np.isnan(values)
        empty = gone.all(axis=1)
        self.steps += len(values)
        self.missing += gone.sum(axis=0)
        self.silent += int(empty.sum())
        lowest = np.fmin(self.lowest, np.fmin.reduce(values))
        highest = np.fmax(self.highest, np.fmax.reduce(values))
        self.lows = self.lows * (self.lowest == lowest) + (values == lowest).sum(axis=0)
        self.highs = self.highs * (self.highest == highest) + (values == highest).sum(axis=0)
        self.lowest, self.highest = lowest, highest
        self.silence.add(empty[:, None])
        self.still.add(values == np.vstack([self.last, values[:-1]]))
        self.last = values[-1].copy()


def pieces_of(samples: np.ndarray) -> Iterator[np.ndarray]:
    """Samples (steps, n) in consecutive pieces."""
    rows = max(1, PIECE // samples.shape[1])
    return (samples[begin : begin + rows] for begin in range(0, len(samples), rows))


@dataclass(frozen=True, eq=False)
class Inventory:
    """Contents of a file of sensors."""

    names: tuple[str, ...]
    first: Any  # time of the first step, or its number where the file has no times
    step: pd.Timedelta | None  # period of the grid; None without times
    quality: Quality
    tally: Tally
    row_numbers: tuple[str, ...] = ()  # columns that only numbered the rows
    fill_values: tuple[FillValue, ...] = ()  # values that may stand for missing samples
    ignored: tuple[str, ...] = ()  # columns of a long file that are not read

    @classmethod
    def of(cls, table: SensorTable) -> Self:
        """Inventory of a table in memory."""
        return cls(
            names=table.names,
            first=table.time[0],
            step=step_of(table),
            quality=table.quality,
            tally=Tally.of(table.values),
            row_numbers=table.row_numbers,
            fill_values=table.fill_values,
            ignored=table.ignored,
        )

    @property
    def steps(self) -> int:
        """Steps of the grid."""
        return self.tally.steps

    def at(self, step: int) -> Any:
        """Time of a step."""
        return self.first + step * (1 if self.step is None else self.step)

    @property
    def last(self) -> Any:
        """Time of the last step."""
        return self.at(self.steps - 1)

    @property
    def summary_lines(self) -> list[str]:
        """Time, step and sensors as they were read, and faults, one line each."""
        quality = self.quality
        names = ", ".join(self.names[:6]) + (" …" if len(self.names) > 6 else "")
        lines = [f"sensors: {len(self.names)} ({names})"]
        if self.step is None:
            lines.append(f"time: none; {self.steps:,} rows are taken as even steps")
        else:
            step = str(self.step).removeprefix("0 days ").removesuffix(" 00:00:00")
            lines.append(f"time: {self.first} to {self.last}")
            lines.append(f"step: {step}, {self.steps:,} steps from {quality.rows:,} rows")
        if self.row_numbers:
            lines.append(f"row numbers: {', '.join(self.row_numbers)}, left out of the sensors")
        if self.ignored:
            lines.append(f"other columns, not read: {', '.join(self.ignored)}")
        gaps = self.tally.missing.sum() / (self.steps * len(self.names))
        lines.append(f"gaps: {gaps:.2%} of all samples are missing" if gaps else "gaps: none")
        longest = int(self.tally.silence.longest[0])
        if longest > 1:
            lines.append(f"      the longest time without any sensor is {longest:,} steps")
        counts = {
            "rows out of order, sorted": quality.out_of_order,
            "rows that repeated another": quality.duplicates,
            "infinite values, taken as missing": quality.non_finite,
            "rows averaged into their step": quality.averaged,
            "values marked as missing": quality.marked,
            "rows left out by --where": quality.filtered,
        }
        return lines + [f"{name}: {count:,}" for name, count in counts.items() if count]


def step_of(table: SensorTable) -> pd.Timedelta | None:
    """Period of the table's grid; None where the file had no times."""
    if isinstance(table.time, pd.DatetimeIndex) and len(table.time) > 1:
        return table.time[1] - table.time[0]
    return None


def read_sensors(path: Path | str, **options: Any) -> SensorTable:
    """Read sensors, and refuse data for which no plan can be made.

    Parameters
    ----------
    path : path
        CSV or Parquet file. Wide files have one row per time and one column per sensor. With `long`
        also a directory of files, or a pattern.
    **options
        Fields of `datasets.Reading`. With `long`, a row is one sample. Values in `missing` stand
        for a missing sample. Other certain fill values are refused, unless `missing` is an empty
        list.

    Raises
    ------
    ValueError
        When the file cannot be read as such a table, has less than two sensors or two steps, or a
        sensor never varies or misses more than half of its samples. The message names the columns
        and the fix.
    """
    reading = Reading(**options)
    table = reading.read(path)
    if not table.values.size:
        raise ValueError("the file must hold at least two rows, got none: give a longer record")
    if reading.missing is None or len(reading.missing):
        require_no_fill_values(table.fill_values)
    tally = Tally.of(table.values)
    if reading.resample is None and isinstance(table.time, pd.DatetimeIndex):
        _require_common_steps(table, table.time, tally)
    require_usable(table.names, tally)
    return table


def _require_common_steps(table: SensorTable, times: pd.DatetimeIndex, tally: Tally) -> None:
    """Refuse sensors whose times differ so much that few steps have samples of several sensors."""
    if (tally.missing <= MOST_MISSING * tally.steps).any():
        return
    regular = []
    for column in table.values.T:
        distance = np.diff(np.flatnonzero(np.isfinite(column)))
        if len(distance) > 1:
            usual = np.median(distance)
            near = (abs(distance / usual - 1) < 0.1).mean()
            regular.append(usual > 1 and near > 0.6)
    if regular and np.mean(regular) >= 0.5:
        raise ValueError(
            f"sensors must report at the same times, got {tally.missing.mean() / tally.steps:.0%} "
            f"of the samples missing in steps of {times[1] - times[0]}; average the samples around "
            f"each step with resample={usual_step(table.values, times)!r}"
        )


def require_usable(names: Sequence[str], tally: Tally) -> None:
    """Refuse too few sensors or steps, and sensors that never vary or miss most samples."""
    if len(names) < 2:
        raise ValueError(
            f"the file must hold at least two sensors, got {list(names)}: a sensor "
            "is estimated from others"
        )
    if tally.steps < 2:
        raise ValueError("the file must hold at least two rows, got 1: give a longer record")
    share, gap = tally.missing / tally.steps, int(tally.silence.longest[0])
    lost = share > MOST_MISSING
    if lost.all() and gap > LONG_GAP * tally.steps:
        raise ValueError(
            "the file must have samples at more than half of its steps, got no sample of any "
            f"sensor at {tally.silent:,} of {tally.steps:,} steps, of which the longest gap has "
            f"{gap:,}; plan for the rows before that gap or after it alone"
        )
    missing = f"{share.max():.0%} missing"
    if lost.all():
        raise ValueError(
            "columns must have samples at half of the steps or more, got fewer in every column (up "
            f"to {missing}); take a longer step with resample="
        )
    longer = ", or take a longer step with resample="
    refuse_columns(names, lost, "have most samples", missing, longer)
    still = tally.lowest == tally.highest
    if still.all():
        raise ValueError("no column varies, got one value only in each: is this the right file?")
    refuse_columns(names, still, "vary", "one value only")
