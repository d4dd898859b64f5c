"""Files of sensors that are too large for memory, read in pieces and surveyed as if in memory.

The pieces come from the same parsers as a small file, in the order of the rows, so that the survey
is the same to the bit. The first pass adds up the slices that windows are made of; the second keeps
the samples to which the baseline model is fitted. Memory grows with the number of windows only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.core.checks import listed
from aftlib.core.datasets import Quality, even_grid, no_number
from aftlib.core.fillvalues import FillValue, find_fill_values, mark_missing, require_no_fill_values
from aftlib.core.tablefile import SUFFIXES, read_pieces
from aftlib.core.times import as_times
from aftlib.core.windows import Windows
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.sensor_file import require_usable
from aftlib.sensor_plans.survey import (
    Inventory,
    Survey,
    Tally,
    answerable_windows,
    finish_results,
    known_results,
    recent_rows,
)

HEAD = 20_000
"""Rows from which columns, times and the period are found."""
PIECE = 1_000_000
"""Samples that are held at a time, about."""
RESULTS = 20_000
"""Windows that are put together at a time."""


def survey_large(
    data: Path,
    question: Question,
    *,
    time: str | None = None,
    drop: Sequence[str] = (),
    missing: Sequence[float] | None = None,
    decimal: str | None = None,
) -> Survey:
    """Survey a wide CSV or Parquet file, or a directory of them in the order of their names.

    Its rows must be in the order of their times, which lie on an even grid, each time once.
    Parameters are as `sensor_file.read_sensors`. ValueError when the rows are not like that, or
    `read_sensors` would refuse them; the message names the column and the way out.
    """
    file = LargeFile.open(data, time=time, drop=drop, missing=missing or (), decimal=decimal)
    windows = Windows(*question.steps(file.step), question.query)
    counts = dict.fromkeys(("rows", "missing_values", "non_finite", "marked"), 0)
    slices, rest = [], np.empty((0, len(file.names)))
    tally: Tally | None = None
    for rows in file.read(counts):
        tally = Tally.of(rows) if tally is None else tally + Tally.of(rows)
        rest = np.concatenate([rest, rows])
        whole = len(rest) - len(rest) % windows.pane
        slices.append(windows.slices(rest[:whole]))
        rest = rest[whole:]
    if tally is None:
        raise ValueError(f"path must hold rows, got {str(data)!r}: is it empty?")
    steps = tally.steps
    require_usable(file.names, tally)
    every = answerable_windows(file.names, steps, file.step, question).ending_in(0, steps)
    recent = file.read_recent(recent_rows(steps))
    fill_values = find_large_fill_values(file.names, recent, tally)
    if missing is None or len(missing):
        require_no_fill_values(fill_values)

    sums, samples = (np.concatenate(parts) for parts in zip(*slices, strict=True))
    results = []
    for begin in range(0, len(every), RESULTS):
        starts = np.array(every[begin : begin + RESULTS]) * (windows.slide // windows.pane)
        results.append(known_results(*windows.joined(sums, samples, starts), windows))
    inventory = Inventory(
        names=file.names,
        first=file.first,
        last=file.first + (steps - 1) * file.step,
        step=file.step,
        quality=Quality(**counts, missing_steps=steps - counts["rows"]),
        tally=tally,
        row_numbers=file.row_numbers,
        fill_values=fill_values,
    )
    values = np.concatenate(results)
    return Survey(inventory, finish_results(values, file.names, windows, file.step), recent)


def find_large_fill_values(
    names: Sequence[str], recent: np.ndarray, tally: Tally
) -> tuple[FillValue, ...]:
    """Suspected fill values among the recent samples and the extremes of all samples."""
    extremes = [
        np.where(counts > repeat, values, np.nan)
        for values, counts in ((tally.lowest, tally.lows), (tally.highest, tally.highs))
        for repeat in range(3)
    ]
    return find_fill_values(names, np.vstack([recent, *extremes]))


@dataclass(frozen=True)
class LargeFile:
    """Files of one table, whose rows are in the order of their times."""

    files: tuple[Path, ...]
    columns: tuple[str, ...]
    names: tuple[str, ...]  # the n sensors
    time: str | None  # column of times; None where they are the index
    first: pd.Timestamp  # time of the first row
    step: pd.Timedelta
    row_numbers: tuple[str, ...]
    missing: tuple[float, ...]
    decimal: str | None

    @classmethod
    def open(
        cls,
        data: Path,
        *,
        time: str | None,
        drop: Sequence[str],
        missing: Sequence[float] = (),
        decimal: str | None = None,
    ) -> LargeFile:
        """Find columns, times and period in the first rows; ValueError as `datasets.even_grid`."""
        files = files_of(data)
        head = first_rows(files, decimal)
        shown = head.copy()
        silent = [c for c in shown if shown[c].dtype.kind == "f" and shown[c].isna().all()]
        shown.loc[shown.index[:1], silent] = 0.0  # a sensor may begin later
        table = even_grid(shown, time, drop=drop)
        if not isinstance(table.time, pd.DatetimeIndex) or len(table.time) < 2:
            raise ValueError(
                f"a file that is read in pieces must have times in its rows, got {str(data)!r} "
                "without; give it a column of times"
            )
        # row numbers without a name would come before the times
        others = [c for c in head.columns if c not in {*table.names, *table.row_numbers, *drop}]
        column = others[-1] if others else None
        return cls(
            files=files,
            columns=tuple(head.columns),
            names=table.names,
            time=column,
            first=times_of(head[:1], column)[0],
            step=table.time[1] - table.time[0],
            row_numbers=table.row_numbers,
            missing=tuple(missing),
            decimal=decimal,
        )

    def read(self, counts: dict[str, int]) -> Iterator[np.ndarray]:
        """Yield samples (steps, n) that follow each other, NaN where missing; add to the counts.

        ValueError when a time is off the grid or out of order, or a column holds no numbers.
        """
        end, most = 0, max(1, PIECE // len(self.names))
        for file, frame in self._frames():
            try:
                steps = self._steps_of(frame, end)
                values = self._values_of(frame, counts)
            except ValueError as error:
                where = f"{file}: " if len(self.files) > 1 else ""
                raise ValueError(f"{where}{error}") from error
            counts["rows"] += len(frame)
            if steps[-1] > 100 * counts["rows"] + 1_000_000:
                raise ValueError(
                    f"times must fill some part of their grid, got {self.first} first, "
                    f"{self.first + int(steps[-1]) * self.step} later and a period of {self.step} "
                    f"for {counts['rows']:,} rows; correct a wrong time"
                )
            while end <= steps[-1]:
                stop = min(int(steps[-1]) + 1, end + most)
                rows = np.full((stop - end, len(self.names)), np.nan)
                here = slice(*np.searchsorted(steps, [end, stop]))
                rows[steps[here] - end] = values[here]
                yield rows
                end = stop

    def read_recent(self, rows: slice) -> np.ndarray:
        """Samples of the steps in the slice, (steps, n)."""
        parts, begin = [np.empty((0, len(self.names)))], 0
        for part in self.read(dict.fromkeys(("rows", "missing_values", "non_finite", "marked"), 0)):
            parts.append(part[max(0, rows.start - begin) : max(0, rows.stop - begin)])
            begin += len(part)
            if begin >= rows.stop:
                break
        return np.concatenate(parts)

    def _frames(self) -> Iterator[tuple[Path, pd.DataFrame]]:
        """Pieces of all files, which must have the same columns."""
        for file in self.files:
            for frame in read_pieces(file, max(1, PIECE // len(self.columns)), self.decimal):
                if sorted(frame.columns) != sorted(self.columns):
                    raise ValueError(
                        f"files must have the same columns, got {listed(self.columns)} in "
                        f"{str(self.files[0])!r} and {listed(frame.columns)} in {str(file)!r}; "
                        "write them alike, or leave the odd one out of the directory"
                    )
                if len(frame):
                    yield file, frame

    def _steps_of(self, frame: pd.DataFrame, end: int) -> np.ndarray:
        """Places of a piece's rows on the grid, at `end` or later."""
        times = times_of(frame, self.time)
        if (times.tz is None) != (self.first.tz is None):
            raise ValueError(
                f"times must all have an offset from UTC or none, got {self.first} first and "
                f"others {'without' if times.tz is None else 'with'} one; write them alike"
            )
        steps, rest = np.divmod((times - self.first).to_numpy(), self.step.to_numpy())
        off = rest != np.timedelta64(0)
        if off.any():
            raise ValueError(
                f"times must lie on an even grid, got {times[int(off.argmax())]} off the "
                f"period of {self.step} from {self.first}; average the rows into steps first"
            )
        steps = steps.astype(np.int64)
        late = np.diff(steps, prepend=end - 1) <= 0
        if late.any():
            raise ValueError(
                f"rows must be in the order of their times, each time once, got {self.first} first "
                f"and {times[int(late.argmax())]} again or too late; sort them, and keep one per "
                "time"
            )
        return steps

    def _values_of(self, frame: pd.DataFrame, counts: dict[str, int]) -> np.ndarray:
        """The samples of a piece; what is missing in them is counted."""
        for name in self.names:
            if not pd.api.types.is_numeric_dtype(frame[name].dtype):
                raise ValueError(
                    f"column {name!r} must be numeric, got {no_number(frame[name])}; leave "
                    f"such cells empty, or the column out with drop=[{name!r}]"
                )
        values = frame[list(self.names)].to_numpy(dtype=float, copy=True)
        counts["missing_values"] += int(np.isnan(values).sum())
        counts["marked"] += mark_missing(values, self.missing)
        infinite = np.isinf(values)
        counts["non_finite"] += int(infinite.sum())
        values[infinite] = np.nan
        return values


def files_of(data: Path) -> tuple[Path, ...]:
    """The file, or those of a directory, by name; ValueError when they are not of one kind."""
    if not data.is_dir():
        if data.suffix not in SUFFIXES or not data.is_file():
            raise ValueError(f"path must be an existing .csv or .parquet file, got {str(data)!r}")
        return (data,)
    files = sorted(p for p in data.iterdir() if p.is_file() and p.name[0] not in "._")
    kinds = {file.suffix for file in files}
    if len(kinds) != 1 or not kinds <= set(SUFFIXES):
        raise ValueError(
            f"path must hold .csv or .parquet files, all of one kind, got {str(data)!r} with "
            f"{listed(file.name for file in files)}"
        )
    filled = tuple(file for file in files if file.stat().st_size)
    return filled or tuple(files[:1])


def first_rows(files: Sequence[Path], decimal: str | None) -> pd.DataFrame:
    """The first rows of the first file that has any."""
    head = pd.DataFrame()
    for file in files:
        head = next(read_pieces(file, HEAD, decimal), head)
        if len(head):
            break
    return head


def times_of(frame: pd.DataFrame, time: str | None) -> pd.DatetimeIndex:
    """Times of a frame's rows, from a column or its index."""
    column = frame.index.to_series() if time is None else frame[time]
    return as_times(column, str(frame.index.name or "index") if time is None else time)
