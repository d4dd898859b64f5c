"""What a plan has to know of the samples beside their windows: how many, how silent, how still.

Counts of pieces that follow each other add up, so that a file may be read in pieces.
"""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from aftlib.core.datasets import Quality, SensorTable
from aftlib.core.fillvalues import FillValue


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
        return cls(
            missing=gone.sum(axis=0),
            lowest=np.where(gone, np.inf, values).min(axis=0),
            highest=np.where(gone, -np.inf, values).max(axis=0),
            first=values[0].copy(),
            last=values[-1].copy(),
            silent=np.array([nobody.sum()]),
            silence=Runs.of(nobody[:, None]),
            still=Runs.of(values[1:] == values[:-1]),
        )

    @classmethod
    def silent_for(cls, steps: int, sensors: int) -> Self:
        """Counts of steps without any sample."""
        some, nothing = np.full(sensors, np.nan), np.zeros(sensors, np.int64)
        flat = Runs(steps - 1, nothing, nothing, nothing)
        silence = Runs(steps, *np.full((3, 1), steps))
        whole, none = np.full(sensors, steps), np.full(sensors, np.inf)
        return cls(whole, none, -none, some, some, np.array([steps]), silence, flat)

    def __add__(self, other: Tally) -> Tally:
        """Counts of these steps and then the others."""
        return Tally(
            missing=self.missing + other.missing,
            lowest=np.minimum(self.lowest, other.lowest),
            highest=np.maximum(self.highest, other.highest),
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

    def to_bytes(self) -> bytes:
        """The counts, to be sent to another process."""
        buffer, fields = io.BytesIO(), asdict(self)
        for name in ("silence", "still"):
            for part, value in fields.pop(name).items():
                fields[f"{name}.{part}"] = value
        np.savez(buffer, allow_pickle=False, **fields)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The counts that `to_bytes` gave."""
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            fields: dict[str, Any] = {
                name: Runs(
                    int(found[f"{name}.length"]),
                    *(found[f"{name}.{part}"] for part in ("head", "tail", "longest")),
                )
                for name in ("silence", "still")
            }
            fields |= {name: found[name] for name in found.files if "." not in name}
        return cls(**fields)


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
    def taken(self) -> list[str]:
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
