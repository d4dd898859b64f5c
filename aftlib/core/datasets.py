"""Real sensor data: a user's own CSV or Parquet files, put on an even grid of steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.checks import listed, refuse_columns, require_numbers
from aftlib.core.counters import NAMELESS, numbers_rows, require_no_counters
from aftlib.core.fillvalues import find_fill_values, mark_missing
from aftlib.core.sensortable import Quality, SensorTable
from aftlib.core.tablefile import files_of, keep_rows, read_frame, require_heading, require_names
from aftlib.core.textfile import TextFormat, memory_bytes
from aftlib.core.timecolumns import (
    advise_grid,
    as_times,
    duration,
    looks_like_times,
    require_elapsed,
    require_whole_times,
    usual_step,
)


@dataclass(frozen=True)
class Reading(TextFormat):
    """Options for reading wide files (one row per time, one column per sensor) or long files.

    Parameters
    ----------
    decimal, encoding, comment, na
        Format of a text table, see `textfile.TextFormat`.
    long : sequence of str, optional
        Columns of time, sensor and value in long files, which have one row per sample.
    time : str, optional
        Column of times: dates, numbers since 1970 in s, ms, µs or ns, or stamps such as
        202401311400. By default the index if it holds times, else the first column that holds dates
        or looks like such numbers. Without such a column, each row is one step. A column 0, 1, 2 …
        that only numbers the rows is left out.
    resample : str, optional
        Period of the grid, such as "10min". Each row goes to the nearest step, and rows of the same
        step are averaged. If most rows are in the middle of two steps, each goes to the step before
        it. By default the period is the most frequent distance between rows, and every row must lie
        exactly on the grid.
    drop : sequence of str
        Columns to leave out; in long files, sensors.
    measured : sequence of str
        Columns that are sensors although they grow or count.
    missing : sequence of float, optional
        Fill values: numbers that stand for a missing sample. Empty: every value is measured.
    where : sequence of str
        Conditions such as "status=GOOD" on the rows that are read. Several values of one column are
        alternatives. The columns of conditions are not read as sensors.
    tz : str, optional
        Zone of local times, such as "Europe/Berlin"; they become UTC.
    """

    long: Sequence[str] | None = None
    time: str | None = None
    resample: str | None = None
    drop: Sequence[str] = ()
    missing: Sequence[float] | None = None
    where: Sequence[str] = ()
    tz: str | None = None
    measured: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse values of another type."""
        for name in ("drop", "where", "long", "na", "measured"):
            value = getattr(self, name)
            texts = isinstance(value, Sequence) and all(isinstance(one, str) for one in value)
            if value is not None and (isinstance(value, str) or not texts):
                what = "texts" if name in ("where", "na") else "columns"
                raise ValueError(
                    f"{name} must be a list of {what}, got {value!r}: put names in [ ]"
                )
        for name in ("time", "tz", "encoding"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value):
                raise ValueError(f"{name} must be a text, got {value!r}: give one, or None")
        if self.missing not in (None, [], ()):
            require_numbers("missing", self.missing)

    def read(self, path: Path | str) -> SensorTable:
        """Return the samples of a .csv (commas, semicolons or tabs), .csv.gz or .parquet file.

        Long samples may be in several files: those of a directory, or of a pattern such as
        ``2024*.csv``.

        Raises
        ------
        ValueError
            When the file cannot be read as such a table; a sensor's column is not numeric, has no
            value, or only grows like a counter; times do not lie on an even grid; two different
            rows or samples share a time without `resample`; or long samples fill half of the
            memory. The message names the columns and the fix.
        """
        if self.long is not None:
            return self._read_long(Path(path), self.long)
        frame = read_frame(path, self)
        rows = keep_rows(frame, self.where)
        return _on_grid(rows, self, filtered=len(frame) - len(rows))

    def _read_long(self, path: Path, long: Sequence[str]) -> SensorTable:
        if self.time is not None:
            raise ValueError(
                f"time must not be given with long, got {self.time!r}: leave it out, because long "
                "names the column of times"
            )
        if len(long) != 3 or len(set(long)) != 3:
            raise ValueError(
                f"long must name three columns, time, sensor and value, got {list(long)}"
            )
        filtered, parts = 0, list[pd.DataFrame]()
        ignored = dict[str, None]()
        for file in files_of(path):
            frame = read_frame(file, self)
            rows = keep_rows(frame, self.where)
            if absent := [name for name in long if name not in rows.columns]:
                raise ValueError(
                    f"long must name columns, got {absent}; columns of {file.name!r} are "
                    f"{listed(rows)}"
                )
            ignored |= dict.fromkeys(str(name) for name in rows.columns if name not in long)
            filtered += len(frame) - len(rows)
            parts.append(rows[list(long)])
            if sum(int(part.memory_usage(deep=True).sum()) for part in parts) > memory_bytes() / 2:
                raise ValueError(
                    f"samples must fill at most half of the memory, got more in {str(path)!r}: "
                    "plan for a part of them"
                )
        joined = pd.concat(parts, ignore_index=True)
        wide = _pivot_samples(joined, long, average=self.resample is not None)
        table = _on_grid(wide, replace(self, time=long[0]), filtered)
        again = int(joined.duplicated().sum())
        quality = replace(table.quality, duplicates=table.quality.duplicates + again)
        return replace(table, quality=quality, ignored=tuple(ignored))


def read_table(path: Path | str, time: str | None = None, **options: Any) -> SensorTable:
    """Read a file by a `Reading` with the given options; errors are those of `Reading.read`."""
    return Reading(time=time, **options).read(path)


def _pivot_samples(frame: pd.DataFrame, long: Sequence[str], average: bool) -> pd.DataFrame:
    """Return long rows as a wide frame: one row per time, one column per sensor."""
    time, sensor, value = long
    if not pd.api.types.is_numeric_dtype(frame[value].dtype):
        raise ValueError(
            f"column {value!r} must be numeric, got {_no_number(frame[value])}; leave such cells "
            "empty, or name the column of values third in long" + _advise_numbers(frame[value])
        )
    empty = frame[[time, sensor]].isna().any(axis=1)
    if empty.any():
        raise ValueError(
            f"columns {time!r} and {sensor!r} must be filled in every row, got {int(empty.sum())} "
            "rows without; remove them"
        )

    samples = frame[list(long)].drop_duplicates()
    twice = samples.duplicated([time, sensor])
    if twice.any() and not average:
        first = samples[twice].iloc[0]
        raise ValueError(
            f"two different samples of {first[sensor]!r} share the time {first[time]} "
            f"({int(twice.sum())} such); keep one of them, or average them by resample="
        )
    samples = samples.assign(**{sensor: samples[sensor].astype(str)})
    if (samples[sensor] == time).any():
        raise ValueError(
            f"a sensor is called {time!r}, like the column of times: rename that column"
        )
    wide = samples.pivot_table(index=time, columns=sensor, values=value, dropna=False)
    wide.columns.name = None
    return wide.reset_index()


def even_grid(frame: pd.DataFrame, time: str | None = None, **options: Any) -> SensorTable:
    """Put a wide frame on an even grid of steps; options and errors are those of `Reading`."""
    return _on_grid(frame, Reading(time=time, **options))


def _on_grid(frame: pd.DataFrame, how: Reading, filtered: int = 0) -> SensorTable:
    """The table of a wide frame; `filtered` rows were left out before."""
    time, resample, drop, tz = how.time, how.resample, how.drop, how.tz
    if not len(frame):
        raise ValueError(
            f"frame must hold sensors and rows, got shape {frame.shape}: is it empty"
            ", or does where= leave no row?"
        )
    for name, given in (("drop", drop), ("measured", how.measured)):
        if any(column not in frame.columns for column in given):
            columns = listed(frame.columns)
            raise ValueError(
                f"{name} must be a list of columns, got {given!r}; columns are {columns}"
            )
    if not frame.columns.is_unique:
        repeated = sorted({str(c) for c in frame.columns[frame.columns.duplicated()]})
        raise ValueError(f"columns must differ, got {listed(repeated)} more than once; rename them")
    frame = frame.drop(columns=list(drop))
    require_names(frame)
    require_whole_times(frame)
    exempt = (time, *how.measured)
    numbering = [name for name in frame.columns if name not in exempt and numbers_rows(frame[name])]
    sensors, times = _separate_times(frame.drop(columns=numbering), time, tz, how.measured)
    if sensors.empty:
        raise ValueError(f"frame must hold sensors and rows, got shape {sensors.shape}")
    values, counts = read_values(sensors, how.missing, times)
    names = tuple(map(str, sensors.columns))
    refuse_columns(names, ~np.isfinite(values).any(axis=0), "hold a finite value", "none")
    fill_values = find_fill_values(names, values)
    grid: pd.Index = pd.RangeIndex(len(frame))
    if times is not None:
        counts["out_of_order"] = int((np.diff(times.asi8) < 0).sum())
        place = _place(values, times) if resample is None else _average(values, times, resample)
        values, grid, row_counts = place
        counts |= row_counts
    elif resample is not None or tz is not None:
        name, value = ("resample", resample) if resample is not None else ("tz", tz)
        raise ValueError(
            f"{name} must be given with times, got {value!r} and no column of times: name that "
            f"column with time= or leave {name} out"
        )
    require_no_counters(sensors.columns, values, times is not None, how.measured)
    numbered = tuple(str(name) for name in numbering)
    quality = Quality(len(frame), filtered=filtered, **counts)
    return SensorTable(values, names, grid, quality, numbered, fill_values)


def read_values(
    sensors: pd.DataFrame,
    missing: Sequence[float] | None = None,
    times: pd.DatetimeIndex | None = None,
) -> tuple[np.ndarray, dict[str, int]]:
    """Samples (rows, n), NaN where missing, infinite or a fill value, and counts of these.

    ValueError for a column of texts; it suggests long= if `times` show that a row is one sample.
    """
    for column in sensors.columns:
        if pd.api.types.is_numeric_dtype(sensors[column].dtype):
            continue
        texts = sensors.select_dtypes(exclude="number").columns
        # one row per sample: its times repeat, and names stand next to one column of numbers
        pairs = len(texts) == 1 and sensors.shape[1] == 2
        if pairs and times is not None and times.has_duplicates:
            columns = ",".join(map(str, [times.name, column, *sensors.columns.drop(column)]))
            raise ValueError(
                f"column {column!r} holds names, such as {sensors[column].iloc[0]!r}: if a row "
                f"is one sample, give long={columns!r}"
            )
        raise ValueError(
            f"column {column!r} must be numeric, got {_no_number(sensors[column])}; leave such "
            f"cells empty, or the column out with drop=[{column!r}]"
            + _advise_numbers(sensors[column])
        )
    values = sensors.to_numpy(dtype=float, copy=True)
    counts = {"missing_values": int(np.isnan(values).sum())}
    counts["marked"] = mark_missing(values, missing or ())
    infinite = np.isinf(values)
    values[infinite] = np.nan
    return values, counts | {"non_finite": int(infinite.sum())}


def _no_number(column: pd.Series) -> str:
    """Return the first entry that is no number, as an error shows it, and how many there are."""
    odd = column.notna() & pd.to_numeric(column, errors="coerce").isna()
    first = column[odd].iloc[0] if odd.any() else column.iloc[0]
    return f"{column.dtype} such as {first!r:.80} ({int(odd.sum()) or len(column):,} such)"


def _advise_numbers(column: pd.Series) -> str:
    """The option by which the first entry that is no number is read, if there is one."""
    odd = column[column.notna() & pd.to_numeric(column, errors="coerce").isna()]
    first = odd.iloc[0] if len(odd) else None
    if not isinstance(first, str):
        return ""
    if re.fullmatch(r"\s*[-+]?\d+,\d+([eE][-+]?\d+)?\s*", first):
        return ", or, if its comma begins decimals, give decimal=','"
    if re.fullmatch(r"\s*[-+]?\d{1,3}(['’\s]\d{3})+([.,]\d+)?\s*", first):
        return ", or write numbers without spaces or signs between the thousands"
    if len(odd) < len(column) / 2:
        return f", or, if that stands for missing, give na=[{first!r:.80}]"
    return ""


def _separate_times(
    frame: pd.DataFrame, time: str | None, tz: str | None, measured: Sequence[str] = ()
) -> tuple[pd.DataFrame, pd.DatetimeIndex | None]:
    """Separate sensor columns and times."""
    if time is not None and time == frame.index.name:
        return frame, as_times(frame.index.to_series(), time, tz)
    if time is not None and time not in frame.columns:
        raise ValueError(f"time must be a column, got {time!r}; columns are {listed(frame)}")
    if time is None and tz is None and isinstance(frame.index, pd.DatetimeIndex):
        return frame, frame.index
    if time is None and looks_like_times(frame.index.to_series()):
        return frame, as_times(frame.index.to_series(), str(frame.index.name or "index"), tz)

    others = [name for name in frame.columns if name not in measured]
    looks = [time] if time else [name for name in others if looks_like_times(frame[name])]
    if len(looks) > 1 and pd.api.types.is_numeric_dtype(frame[looks[1]].dtype):
        raise ValueError(
            f"columns {listed(looks)} look like times; name one with time= and leave the others "
            "out with drop=, or, if they are measured, give measured="
        )
    require_heading(frame, looks)
    times = None
    if looks:
        times = as_times(frame[looks[0]], looks[0], tz)
        require_elapsed(frame[looks[0]])
        frame = frame.drop(columns=looks[0])

    # pandas writes a nameless index as a nameless first column
    first = frame.columns[0] if frame.shape[1] else None
    nameless = times is None and first is not None and NAMELESS.fullmatch(str(first))
    if nameless and (np.diff(frame[first].to_numpy(dtype=float)) > 0).all():
        raise ValueError(
            f"column {first!r} looks like an index, from {frame[first].iloc[0]} to "
            f"{frame[first].iloc[-1]}; take it as times with time={first!r}, "
            f"or leave it out with drop=[{first!r}]"
        )
    return frame, times


def _place(
    values: np.ndarray, times: pd.DatetimeIndex
) -> tuple[np.ndarray, pd.DatetimeIndex, dict[str, int]]:
    """Rows without duplicates on a grid whose period is the most frequent distance of rows."""
    order = np.argsort(times.asi8, kind="stable")
    values, times = values[order], times[order]
    again = np.flatnonzero(times[1:] == times[:-1]) + 1
    differ = [i for i in again if not np.array_equal(values[i], values[i - 1], equal_nan=True)]
    if differ:
        raise ValueError(
            f"two different rows share the time {times[int(differ[0])]} ({len(differ)} such rows); "
            f"keep one of them, or average them by resample={usual_step(values, times)!r}"
            + ("; where clocks were set back, write the offset from UTC" if not times.tz else "")
        )
    values, times = np.delete(values, again, axis=0), times.delete(again)
    if len(times) < 2:
        return values, times, {"duplicates": len(again)}

    distances, counts = np.unique(np.diff(times.asi8), return_counts=True)
    period = pd.Timedelta(distances[counts.argmax()], unit=times.unit)
    steps, rest = np.divmod(times.asi8 - times.asi8[0], distances[counts.argmax()])
    if rest.any():
        raise ValueError(
            f"times must lie on an even grid, got {times[int(np.flatnonzero(rest)[0])]} off the "
            f"period of {period}; {advise_grid(values, times)}"
        )
    grid = _grid(times[0], int(steps[-1]) + 1, period, len(values))
    gridded = np.full((len(grid), values.shape[1]), np.nan)
    gridded[steps] = values
    return gridded, grid, {"duplicates": len(again), "missing_steps": len(grid) - len(times)}


def _average(
    values: np.ndarray, times: pd.DatetimeIndex, resample: str
) -> tuple[np.ndarray, pd.DatetimeIndex, dict[str, int]]:
    """Means of the rows nearest to each step of a grid with the period `resample`.

    A row in the middle of two steps goes to the later one. If most rows are near the middle, as
    00:30 and 01:30 are for hours, each row goes to the step before it, so that no step is empty.
    """
    period = duration("resample", resample)
    try:
        fine = times.as_unit("ns")
        phase = (fine.asi8 % period.as_unit("ns").value) / period.as_unit("ns").value
        middle = np.cos(2 * np.pi * phase).mean() < -0.5
        nearest = (fine if middle else fine + period / 2).floor(period)
    except ValueError as error:
        raise ValueError(f"resample must fit the times, got {resample!r} ({error})") from error
    steps = ((nearest - nearest.min()) // period).to_numpy()
    grid = _grid(nearest.min(), int(steps.max()) + 1, period, len(values))
    means = pd.DataFrame(values).groupby(steps).mean()
    shared = int((np.bincount(steps)[steps] > 1).sum())
    return (
        means.reindex(range(len(grid))).to_numpy(),
        grid,
        {"averaged": shared, "missing_steps": len(grid) - len(means)},
    )


def _grid(start: pd.Timestamp, steps: int, period: pd.Timedelta, rows: int) -> pd.DatetimeIndex:
    if steps > 100 * rows + 1_000_000:
        raise ValueError(
            f"times must not leave nearly all steps empty, got {rows} rows for {steps} steps of "
            f"{period} from {start}; correct a wrong time, or give a longer resample="
        )
    return pd.DatetimeIndex(start + np.arange(steps) * period)
