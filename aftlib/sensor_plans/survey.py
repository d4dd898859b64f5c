"""All that a plan needs of the samples: inventory, window results, and the last of the first half.

Counts of pieces that follow each other add up, so that a file may be read in pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from aftlib.core.datasets import Quality, SensorTable
from aftlib.core.fillvalues import FillValue
from aftlib.core.windows import Windows
from aftlib.sensor_plans.question import Question

CHUNK = 20_000
LEAST_PERIOD = 0.02
"""Share of the variance that a seasonal period must explain to be given to the guard."""
MOST_ROWS = 200_000
"""Samples before the middle to which the baseline model is fitted at most."""
LEAST_WINDOWS = 8


@dataclass(frozen=True, eq=False)
class Runs:
    """Consecutive trues among flags, a column each; + joins flags that follow each other."""

    length: int
    head: np.ndarray  # (m,) trues that the flags begin with
    tail: np.ndarray  # (m,) and end with
    longest: np.ndarray  # (m,)

    @classmethod
    def of(cls, flags: np.ndarray) -> Self:
        """Runs of flags, shape (length, m)."""
        length, m = flags.shape
        if not length:
            return cls(0, *np.zeros((3, m), np.int64))
        full = flags.all(axis=0)
        head = np.where(full, length, flags.argmin(axis=0))
        tail = np.where(full, length, flags[::-1].argmin(axis=0))
        longest = np.array([longest_run(column) for column in flags.T], np.int64)
        return cls(length, head, tail, longest)

    def __add__(self, other: Runs) -> Runs:
        """Runs of these flags and then the others."""
        head = np.where(self.head == self.length, self.length + other.head, self.head)
        tail = np.where(other.tail == other.length, other.length + self.tail, other.tail)
        across = self.tail + other.head
        longest = np.maximum(np.maximum(self.longest, other.longest), across)
        return Runs(self.length + other.length, head, tail, longest)


def longest_run(flags: np.ndarray) -> int:
    """Most consecutive true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max(initial=0))


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts over consecutive steps; + joins what follows. Not of no steps at all."""

    missing: np.ndarray  # (n,) samples that are missing
    lowest: np.ndarray  # (n,) of those there; inf without
    highest: np.ndarray  # (n,)
    lows: np.ndarray  # (n,) samples that equal the lowest, and the highest
    highs: np.ndarray  # (n,)
    first: np.ndarray  # (n,) sample of the first step, NaN where missing
    last: np.ndarray  # (n,) and of the last
    silent: np.ndarray  # (1,) steps without any sample
    silence: Runs  # of these, one column
    still: Runs  # of samples that repeat the one before them, n columns

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """Counts of samples, shape (steps, n), NaN where missing."""
        gone = np.isnan(values)
        nobody = gone.all(axis=1)
        lowest = np.where(gone, np.inf, values).min(axis=0)
        highest = np.where(gone, -np.inf, values).max(axis=0)
        return cls(
            missing=gone.sum(axis=0),
            lowest=lowest,
            highest=highest,
            lows=(values == lowest).sum(axis=0),
            highs=(values == highest).sum(axis=0),
            first=values[0].copy(),
            last=values[-1].copy(),
            silent=np.array([nobody.sum()]),
            silence=Runs.of(nobody[:, None]),
            still=Runs.of(values[1:] == values[:-1]),
        )

    def __add__(self, other: Tally) -> Tally:
        """Counts of these steps and then the others."""
        lowest = np.minimum(self.lowest, other.lowest)
        highest = np.maximum(self.highest, other.highest)
        return Tally(
            missing=self.missing + other.missing,
            lowest=lowest,
            highest=highest,
            lows=self.lows * (self.lowest == lowest) + other.lows * (other.lowest == lowest),
            highs=self.highs * (self.highest == highest) + other.highs * (other.highest == highest),
            first=self.first,
            last=other.last,
            silent=self.silent + other.silent,
            silence=self.silence + other.silence,
            still=self.still + Runs.of((self.last == other.first)[None]) + other.still,
        )

    @property
    def steps(self) -> int:
        """Steps counted."""
        return self.silence.length


@dataclass(frozen=True, eq=False)
class Inventory:
    """What a file of sensors holds."""

    names: tuple[str, ...]
    first: Any  # time of the first step, or its number where the file has no times
    last: Any
    step: pd.Timedelta | None  # period of the grid; None without times
    quality: Quality
    tally: Tally
    row_numbers: tuple[str, ...] = ()  # columns that only numbered the rows
    fill_values: tuple[FillValue, ...] = ()  # values that may stand for missing samples

    @classmethod
    def of(cls, table: SensorTable) -> Self:
        """Inventory of a table in memory."""
        return cls(
            names=table.names,
            first=table.time[0],
            last=table.time[-1],
            step=step_of(table),
            quality=table.quality,
            tally=Tally.of(table.values),
            row_numbers=table.row_numbers,
            fill_values=table.fill_values,
        )

    @property
    def steps(self) -> int:
        """Steps of the grid."""
        return self.tally.steps

    @property
    def missing(self) -> float:
        """Share of all samples that are missing."""
        return float(self.tally.missing.sum() / (self.steps * len(self.names)))

    def at(self, step: int) -> Any:
        """Time of a step."""
        return self.first + step * (1 if self.step is None else self.step)

    @property
    def summary_lines(self) -> list[str]:
        """What was taken for time, step and sensors, and what was found amiss, a line each."""
        quality = self.quality
        names = ", ".join(self.names[:6]) + (" …" if len(self.names) > 6 else "")
        lines = [f"sensors: {len(self.names)} ({names})"]
        if self.step is None:
            lines.append(f"time: none; {self.steps:,} rows are taken as even steps")
        else:
            lines.append(f"time: {self.first} to {self.last}")
            step = str(self.step).removeprefix("0 days ").removesuffix(" 00:00:00")
            lines.append(f"step: {step}, {self.steps:,} steps from {quality.rows:,} rows")
        if self.row_numbers:
            lines.append(f"row numbers: {', '.join(self.row_numbers)}, left out of the sensors")
        gaps, longest = self.missing, int(self.tally.silence.longest[0])
        lines.append(f"gaps: {gaps:.2%} of all samples are missing" if gaps else "gaps: none")
        if longest > 1:
            lines.append(f"      the longest time without any sensor is {longest:,} steps")
        counts = {
            "rows out of order, sorted": quality.out_of_order,
            "rows that repeated another": quality.duplicates,
            "infinite values, taken as missing": quality.non_finite,
            "rows averaged into their step": quality.averaged,
            "values marked as missing": quality.marked,
        }
        return lines + [f"{name}: {count:,}" for name, count in counts.items() if count]


def step_of(table: SensorTable) -> pd.Timedelta | None:
    """Period of the table's grid; None where the file had no times."""
    if isinstance(table.time, pd.DatetimeIndex) and len(table.time) > 1:
        return table.time[1] - table.time[0]
    return None


@dataclass(frozen=True)
class WindowResults:
    """The result of every window of every sensor.

    A result is NaN where too many samples are missing: more than half for a mean, any for a sum.
    """

    values: np.ndarray  # (N, n)
    names: tuple[str, ...]
    windows: Windows
    seasons: tuple[float, ...] = ()  # periods of seasonal periods, in windows, the strongest first

    @property
    def half(self) -> int:
        """Windows of the first half, from which everything is fitted."""
        return len(self.values) // 2


def window_results(
    samples: np.ndarray,
    names: tuple[str, ...],
    windows: Windows,
    step: pd.Timedelta | None,
) -> WindowResults:
    """Aggregate samples, shape (steps, n), over every window, and find the seasonal periods.

    ValueError when a sensor has less than two different results in a half.
    """
    every = windows.ending_in(0, len(samples))
    parts = []
    for first in range(0, len(every), CHUNK):
        some = every[first : first + CHUNK]
        begin = some[0] * windows.slide
        rows = samples[begin : some[-1] * windows.slide + windows.width]
        parts.append(known_results(*windows.aggregate(rows, begin, some), windows))
    return finish_results(np.concatenate(parts), names, windows, step, samples)


def known_results(results: np.ndarray, count: np.ndarray, windows: Windows) -> np.ndarray:
    """The results of windows with samples enough, NaN for the others."""
    enough = count == windows.width if windows.query == "sum" else 2 * count >= windows.width
    return np.where(enough, results, np.nan)


def finish_results(
    values: np.ndarray,
    names: tuple[str, ...],
    windows: Windows,
    step: pd.Timedelta | None,
    samples: np.ndarray | None = None,
) -> WindowResults:
    """Window results, shape (N, n), checked and with their seasonal periods.

    Arguments and errors as `window_results`; samples are only needed where there is no `step`.
    """
    half = len(values) // 2
    for word, part in (("first", values[:half]), ("second", values[half:])):
        few = np.isfinite(part).sum(axis=0) < 2
        if few.any():
            sensor = names[int(few.argmax())]
            raise ValueError(
                f"column {sensor!r} must have windows in the {word} half, got less than two with "
                f"enough samples; leave it out with drop=[{sensor!r}]"
            )
    still = np.nanmin(values[:half], axis=0) == np.nanmax(values[:half], axis=0)
    if still.any():
        sensor = names[int(still.argmax())]
        raise ValueError(
            f"column {sensor!r} must vary in the first half, from which its model is made, got one "
            f"value only; leave it out with drop=[{sensor!r}]"
        )
    return WindowResults(
        values, names, windows, find_seasons(samples, values[:half], windows, step)
    )


def find_seasons(
    samples: np.ndarray | None, first: np.ndarray, windows: Windows, step: pd.Timedelta | None
) -> tuple[float, ...]:
    """Periods in windows of the seasonal periods that explain most, at most four.

    With times these are days, weeks and years and their halves; without, the strongest period of
    the samples. `first` are the window results of the first half, shape (rows, n).
    """
    if step is None:
        periods = [0.0 if samples is None else _strongest_period(samples[: len(samples) // 2])]
    else:
        periods = [pd.Timedelta(days=days) / step for days in (1, 7, 365.25)]
    found = {}
    deviation = np.nanstd(first, axis=0)
    z = np.nan_to_num((first - np.nanmean(first, axis=0)) / np.where(deviation > 0, deviation, 1))
    for period in (part for whole in periods for part in (whole, whole / 2)):
        if period < 2 or 3 * period > len(first) * windows.slide:
            continue
        angle = 2 * np.pi * np.arange(len(first)) * windows.slide / period
        waves = np.column_stack([np.sin(angle), np.cos(angle)])
        waves -= waves.mean(axis=0)
        fitted = waves @ np.linalg.lstsq(waves, z, rcond=1e-6)[0]
        found[float(period / windows.slide)] = float((fitted**2).sum() / max((z**2).sum(), 1e-12))
    ordered = sorted(found, key=lambda period: -found[period])
    return tuple(period for period in ordered if found[period] >= LEAST_PERIOD)[:4]


def _strongest_period(samples: np.ndarray, most: int = 65_536) -> float:
    """Period in steps with the most power, averaged over sensors, of at least six repetitions."""
    part = samples[-most:]
    z = np.nan_to_num(part - np.nanmean(part, axis=0))
    power = (np.abs(np.fft.rfft(z, axis=0)) ** 2 / np.maximum((z**2).sum(axis=0), 1e-12)).sum(1)
    power[:6] = 0
    peak = int(power.argmax())
    return len(part) / peak if peak and power[peak] > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Survey:
    """All that a plan takes from samples."""

    inventory: Inventory
    results: WindowResults
    recent: np.ndarray  # (at most MOST_ROWS, n) samples, the last ones of the first half

    @classmethod
    def of(cls, table: SensorTable, inventory: Inventory, question: Question) -> Self:
        """Survey of a table in memory; ValueError when it has too few windows."""
        windows = answerable_windows(table.names, inventory.steps, inventory.step, question)
        results = window_results(table.values, table.names, windows, inventory.step)
        return cls(inventory, results, table.values[recent_rows(inventory.steps)])


def recent_rows(steps: int) -> slice:
    """The last steps of the first half, to which the baseline model is fitted."""
    return slice(max(0, steps // 2 - MOST_ROWS), steps // 2)


def answerable_windows(
    names: Sequence[str], steps: int, step: pd.Timedelta | None, question: Question
) -> Windows:
    """The question's windows over so many steps, which need not have been read.

    ValueError when there are too few windows, or fewer sensors than there are to be workers.
    """
    windows = Windows(*question.steps(step), question.query)
    count = len(windows.ending_in(0, steps))
    if count < LEAST_WINDOWS:
        raise ValueError(
            f"window must leave at least {LEAST_WINDOWS} windows, got {count} of {windows.width} "
            f"steps in {steps} steps; give more rows or a smaller window"
        )
    n = len(names)
    if (question.workers or n) > n:
        raise ValueError(f"workers must be at most the {n} sensors, got {question.workers!r}")
    return windows
