"""Files of sensors that are too large for memory, read in pieces and surveyed as if in memory.

The pieces come from the same parsers as a small file, in the order of the rows, so that the survey
is the same to the bit. The first pass aggregates windows; the second stores the samples to which
the baseline model is fitted. Memory grows with the number of windows only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from aftlib.core.checks import listed
from aftlib.core.datasets import Reading, even_grid, read_values
from aftlib.core.fillvalues import FillValue, find_fill_values, require_no_fill_values
from aftlib.core.sensortable import Quality
from aftlib.core.tablefile import files_of, keep_rows, read_pieces
from aftlib.core.timecolumns import as_times
from aftlib.core.windows import Windows
from aftlib.sensor_plans.sensor_file import PIECE, Inventory, Tally, require_usable
from aftlib.sensor_plans.survey import Question, Survey, aggregate_windows, recent_rows

HEAD = 20_000
"""First rows of a file, which show its columns, times and period."""


def survey_large(data: Path, question: Question, **options: Any) -> Survey:
    """Survey a wide CSV or Parquet file, or a directory of such files in the order of their names.

    Its rows must be in the order of their times, which lie on an even grid, each time once.
    `options` are fields of `datasets.Reading`. ValueError when rows are not in that order, or
    `read_sensors` would refuse the data; the message names the column and the fix.
    """
    reading = Reading(**options)
    file = LargeFile.open(data, reading)
    counts = Counter[str]()
    tally = Tally(len(file.names))

    def tallied() -> Iterator[np.ndarray]:
        for rows in file.read(counts):
            tally.add(rows)
            yield rows

    values = aggregate_windows(tallied(), Windows(*question.steps(file.step), question.query))
    require_usable(file.names, tally)
    windows = question.windows(file.names, tally.steps, file.step)
    recent = file.read_recent(recent_rows(tally.steps))
    fill_values = find_large_fill_values(file.names, recent, tally)
    if reading.missing is None or len(reading.missing):
        require_no_fill_values(fill_values)
    inventory = Inventory(
        names=file.names,
        first=file.first,
        step=file.step,
        quality=Quality(**counts, missing_steps=tally.steps - counts["rows"]),
        tally=tally,
        row_numbers=file.row_numbers,
        fill_values=fill_values,
    )
    return Survey.of(inventory, windows, values, recent)


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
    reading: Reading

    @classmethod
    def open(cls, data: Path, reading: Reading) -> Self:
        """Find columns, times and period in the first rows; ValueError as `datasets.even_grid`."""
        for name in ("long", "resample"):
            if (value := getattr(reading, name)) is not None:
                raise ValueError(
                    f"{name} must not be given with a file that is read in pieces, got {value!r}; "
                    "write it wide and even first, or read it into memory by --no-pieces"
                )
        files = files_of(data)
        heads = (
            keep_rows(next(read_pieces(file, HEAD, reading), pd.DataFrame()), reading.where)
            for file in files
        )
        head = next((frame for frame in heads if len(frame)), pd.DataFrame())
        shown = head.copy()
        silent = [c for c in shown if shown[c].dtype.kind == "f" and shown[c].isna().all()]
        shown.loc[shown.index[:1], silent] = 0.0  # a sensor's first sample may come later
        about = {"drop": reading.drop, "tz": reading.tz, "measured": reading.measured}
        table = even_grid(shown, reading.time, **about)
        if not isinstance(table.time, pd.DatetimeIndex) or len(table.time) < 2:
            raise ValueError(
                f"a file that is read in pieces must have times in its rows, got {str(data)!r} "
                "without; give it a column of times"
            )
        # searched from the end, because row numbers without a name would come before the times
        known = {*table.names, *table.row_numbers, *reading.drop}
        column = next((name for name in reversed(head.columns) if name not in known), None)
        return cls(
            files=files,
            columns=tuple(head.columns),
            names=table.names,
            time=column,
            first=times_of(head[:1], column, reading.tz)[0],
            step=table.time[1] - table.time[0],
            row_numbers=table.row_numbers,
            reading=reading,
        )

    def read(self, counts: Counter[str]) -> Iterator[np.ndarray]:
        """Yield consecutive pieces of samples (steps, n), NaN where missing; add to the counts.

        ValueError when a time is off the grid or out of order, or a column holds no numbers.
        """
        end, most = 0, max(1, PIECE // len(self.names))
        for file, frame in self._frames(counts):
            try:
                steps = self._steps_of(frame, end)
                values, faults = read_values(frame[list(self.names)], self.reading.missing)
            except ValueError as error:
                where = f"{file}: " if len(self.files) > 1 else ""
                raise ValueError(f"{where}{error}") from error
            counts.update(faults, rows=len(frame))
            if steps[-1] > 100 * counts["rows"] + 1_000_000:
                raise ValueError(
                    f"rows must be closer in time, got {counts['rows']:,} rows from {self.first} "
                    f"to {self.first + int(steps[-1]) * self.step} in steps of {self.step}: "
                    "over 99 % of the steps have no row; one time is probably wrong: correct it"
                )
            while end <= steps[-1]:
                stop = min(int(steps[-1]) + 1, end + most)
                rows = np.full((stop - end, len(self.names)), np.nan)
                here = slice(*np.searchsorted(steps, [end, stop]))
                rows[steps[here] - end] = values[here]
                yield rows
                end = stop

    def read_recent(self, rows: slice) -> np.ndarray:
        """Samples of the steps in the slice `rows`, shape (steps, n)."""
        parts, begin = [np.empty((0, len(self.names)))], 0
        for part in self.read(Counter()):
            parts.append(part[max(0, rows.start - begin) : max(0, rows.stop - begin)])
            begin += len(part)
            if begin >= rows.stop:
                break
        return np.concatenate(parts)

    def _frames(self, counts: Counter[str]) -> Iterator[tuple[Path, pd.DataFrame]]:
        """Pieces of all files, which must have the same columns; rows left out are counted."""
        rows = max(1, PIECE // len(self.columns))
        for file in self.files:
            for piece in read_pieces(file, rows, self.reading):
                frame = keep_rows(piece, self.reading.where)
                counts["filtered"] += len(piece) - len(frame)
                if sorted(frame.columns) != sorted(self.columns):
                    raise ValueError(
                        f"files must have the same columns, got {listed(self.columns)} in "
                        f"{str(self.files[0])!r} and {listed(frame.columns)} in {str(file)!r}; "
                        "write them alike, or leave the odd one out of the directory"
                    )
                if len(frame):
                    yield file, frame

    def _steps_of(self, frame: pd.DataFrame, end: int) -> np.ndarray:
        """Steps of a piece's rows on the grid; ValueError for a step before `end`."""
        times = times_of(frame, self.time, self.reading.tz)
        if (times.tz is None) != (self.first.tz is None):
            raise ValueError(
                f"times must have an offset from UTC in all rows or in none, got {self.first} and "
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


def times_of(frame: pd.DataFrame, time: str | None, tz: str | None) -> pd.DatetimeIndex:
    """Times of a frame's rows, from a column or its index."""
    column = frame.index.to_series() if time is None else frame[time]
    return as_times(column, str(frame.index.name or "index") if time is None else time, tz)
