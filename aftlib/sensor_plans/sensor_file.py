"""A user's table of sensors: read by pandas, checked, and put on an even grid of steps.

Names, ids, times and numbers are read as texts first. A table is read right, or refused with the
options that may read it; in Python `plan(frame)` takes any table that pandas can make. Messages
name the options of `aft plan`, which are the arguments of `read_sensors`.
"""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet

from aftlib.core.checks import listed
from aftlib.sensor_plans import sensor_checks
from aftlib.sensor_plans.sensor_checks import IN_PYTHON, SKIP_LINES, note
from aftlib.sensor_plans.sensor_times import (
    DATE,
    columns_like_times,
    localize,
    put_on_grid,
    read_times,
    require_distinct,
    require_ns,
)

BYTES_IN_MEMORY = 8  # per byte of a file: pandas holds CSV as texts first, about so much larger


@dataclass(frozen=True, eq=False)
class SensorTable:
    """Samples on an even grid of steps."""

    values: np.ndarray  # (steps, n), NaN where a sample is missing
    names: tuple[str, ...]  # the n sensors
    time: pd.DatetimeIndex | None  # of each step; None: rows are steps
    notes: tuple[str, ...] = ()  # what was changed while reading, in words

    @property
    def step(self) -> pd.Timedelta | None:
        """Period of the grid; None without times."""
        return None if self.time is None else self.time[1] - self.time[0]

    def at(self, step: int) -> Any:
        """Time of a step, or its number where there are no times."""
        return step if self.time is None else self.time[step]

    @property
    def summary_lines(self) -> list[str]:
        """Sensors, times and gaps as they were read, one line each."""
        when = "none; rows are taken as even steps"
        if self.time is not None:
            step = str(self.step).removeprefix("0 days ").removesuffix(" 00:00:00")
            when = f"{self.time[0]} to {self.time[-1]}, every {step}"
        return [
            f"sensors: {len(self.names)} ({listed(self.names)})",
            f"time: {when}; {len(self.values):,} steps",
            f"gaps: {100 * np.isnan(self.values).mean():.2f} % of the samples are missing",
            *self.notes,
        ]


def read_sensors(
    data: Path | str | pd.DataFrame,
    *,
    time: str | None = None,
    time_format: str | None = None,
    time_unit: str | None = None,
    tz: str | None = None,
    long: Sequence[str] | None = None,
    resample: str | None = None,
    drop: Sequence[str] = (),
    missing: Sequence[float] | None = None,
    csv: Mapping[str, Any] | None = None,
) -> SensorTable:
    """Read sensors, and refuse data for which no plan can be made.

    Parameters
    ----------
    data : path or DataFrame
        A CSV or Parquet file, a directory of such files, or a pattern such as ``2024*.csv``. A row
        has the samples of one time, in one column per sensor.
    time : str, optional
        Column or index of times, or several such as "date,hour", which are joined by blanks. By
        default the first that holds times or is called like one; without such, rows are steps.
    time_format : str, optional
        Format of the times for `pandas.to_datetime`; by default ISO 8601.
    time_unit : {"s", "ms", "us", "ns", "D", "excel", "matlab"}, optional
        Unit of times that are numbers since 1970, or the day numbers of Excel or MATLAB.
    tz : str, optional
        Zone of local times, such as "Europe/Berlin"; they become UTC.
    long : sequence of str, optional
        Columns of time, sensor and value in tables with one row per sample. With `time`, such as
        "date,hour", its columns are the times.
    resample : str, optional
        Period of the grid, such as "10min": each row goes to the nearest step, or to the step
        before if rows lie near the middle of steps, and rows of one step are averaged. By default
        the commonest distance, on which every row must lie.
    drop : sequence of str
        Columns to leave out; in long tables, sensors.
    missing : sequence of float, optional
        Numbers that stand for missing samples; other suspicious numbers are refused. Empty: every
        number is measured, and neither fill values nor counters are looked for.
    csv : mapping, optional
        Arguments of `pandas.read_csv`, such as ``{"sep": ";", "decimal": ","}``.

    Raises
    ------
    ValueError
        When the table cannot be read with certainty, has less than two sensors or two steps, or a
        sensor never varies or misses most of its samples. The message has the options that read it.
    """
    notes = list[str]()
    options = csv or {}
    frame = _tidy(data) if isinstance(data, pd.DataFrame) else _read_files(Path(data), options)
    # 1. columns: which are read, and which one has the times
    if long is None:
        frame = _leave_out(frame, drop)
    sensor_checks.require_cells(frame)
    joined = time is not None and time not in frame and "," in time
    others = [] if time is not None or long is not None else columns_like_times(frame)
    frame, time = _choose_columns(frame, time, long)
    if time is None and (resample or tz):
        raise ValueError("--time must name a column for --resample and --tz, got none")
    # 2. times, which become the index
    if time is not None:
        frame = _leave_out_repeated(frame, notes)
        ids = None if long is None else _read_ids(frame.pop(long[1]))
        times = read_times(frame.pop(time), time_format, time_unit)
        require_ns(times, time, csv=not isinstance(data, pd.DataFrame))
        frame.index = times if tz is None else localize(times, tz, ids)
        if ids is not None:
            frame.index = pd.MultiIndex.from_arrays([frame.index, ids])
        if resample is None:
            require_distinct(
                frame.index,
                time,
                others=[name for name in others if name != time],
                long=long is not None,
                joined=joined,
                zoned=tz is not None,
            )
    # 3. numbers, in one column per sensor and one row per step
    if not {"decimal", "thousands"} & {*options}:
        sensor_checks.require_plain_dots(frame, options.get("sep", ","))
    frame = sensor_checks.require_numbers(frame, options)
    if long is not None:
        frame = _leave_out(frame.iloc[:, 0].groupby(level=[0, 1]).mean().unstack(), drop)
    if min(frame.shape) < 2:
        raise ValueError(f"FILE must hold two rows and two sensors, got {frame.shape}: add others")
    frame = _mask_missing(frame, missing or (), notes)
    if time is not None:
        note(notes, frame.index.to_series().diff() < pd.Timedelta(0), "rows out of order, sorted")
        frame = frame.sort_index(kind="stable")
    if missing is None or len(missing):
        sensor_checks.require_fill_values_marked(frame, missing or ())
        sensor_checks.require_no_counters(frame)
    if time is not None:
        frame = put_on_grid(frame, resample, notes)
    sensor_checks.require_usable(frame)
    grid = pd.DatetimeIndex(frame.index) if time is not None else None
    return SensorTable(frame.to_numpy(), tuple(frame.columns), grid, tuple(notes))


def _read_files(data: Path, options: Mapping[str, Any]) -> pd.DataFrame:
    """Read the files of a path, directory or pattern as one table, in order of their names."""
    pattern = f"{glob.escape(str(data))}/[!_]*" if data.is_dir() else str(data)
    paths = [data] if data.is_file() else map(Path, glob.glob(pattern))
    files = sorted(path for path in paths if path.is_file())
    if not files:
        raise ValueError(f"FILE must be a file, a directory or a pattern, got {str(data)!r}")
    size = BYTES_IN_MEMORY * sum(file.stat().st_size for file in files)
    if size > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2:
        raise ValueError(
            f"FILE must fit into half of the memory, got about {size / 1e9:,.1f} GB: aggregate it "
            "to windows with Spark, and plan with --window 1"
        )
    frames = list[pd.DataFrame]()
    for file in files:
        try:
            frames.append(_read_file(file, options))
        except ValueError as error:
            if len(files) == 1:
                raise
            suffixes = [other.suffix for other in files if other != file]
            usual = max({*suffixes}, key=suffixes.count)
            raise ValueError(
                f"{error}; if {file.name!r} holds no samples, name the other files by a pattern in "
                f"quotes, such as '{file.parent}/*{usual}'"
            ) from error
    return pd.concat(frames, ignore_index=True)


def _read_file(path: Path, options: Mapping[str, Any]) -> pd.DataFrame:
    """Read one file; ValueError, with the reason and the fix, if it is no table."""
    with path.open("rb") as file:
        start = file.read(4)
    if start in (b"PK\x03\x04", b"\xd0\xcf\x11\xe0"):
        raise ValueError(f"{path.name!r} is a spreadsheet or an archive: save it as CSV")
    fix = IN_PYTHON
    try:
        if start == b"PAR1":
            return _read_parquet(path)
        fix = (
            "give options of pandas.read_csv, such as --csv 'sep=;', --csv encoding=cp1252, --csv "
            "encoding=utf-16, --csv compression=gzip, --csv header=None, or for other names --csv "
            f"header=0 --csv \"names=['time', 'a']\"; {SKIP_LINES}; or {IN_PYTHON}"
        )
        with warnings.catch_warnings():  # pandas warns where it leaves out cells
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return _read_csv(path, options)
    except Exception as error:  # whatever pandas, Arrow, an option or a damaged file raises
        raise ValueError(f"{path.name!r} cannot be read: {str(error).strip()}; {fix}") from error


def _read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file; ValueError for columns of one name."""
    names = [str(name) for name in pyarrow.parquet.read_schema(path).names]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(
            f"it must have columns of different names, got {listed(twice)} more than once; write "
            f"it with others, such as pyarrow.parquet.ParquetFile({path.name!r}).read()."
            "rename_columns([…])"
        )
    return _tidy(pd.read_parquet(path))


def _read_csv(path: Path, options: Mapping[str, Any]) -> pd.DataFrame:
    """Read a CSV file as texts; ValueError where it lacks several columns with different names."""
    given = {name: options[name] for name in options if name not in ("decimal", "thousands")}
    defaults = {"index_col": False, "skipinitialspace": True}
    frame = _tidy(pd.read_csv(path, dtype=str, **{**defaults, **given}))
    if frame.shape[1] == 1:
        raise ValueError(f"it has one column, {frame.columns[0]!r:.80}")
    if "header" not in options and "names" not in options:
        again = [name for name in frame if f"{name}.1" in frame]  # pandas has numbered them
        samples = frame.columns.str.match(r"[-+.]?\d").all() or DATE.match(frame.columns[0])
        if again or samples:
            names = listed(again or frame)
            raise ValueError(f"its names must occur once, and not all be numbers, got {names}")
    return frame[~(frame == [*frame]).all(axis=1)].reset_index(drop=True)


def _tidy(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with its index as columns, and names as texts."""
    if not isinstance(frame.index, pd.RangeIndex) or frame.index.name is not None:
        frame = frame.reset_index()
    frame = frame.set_axis([str(name).strip() for name in frame.columns], axis=1)
    if not frame.columns.is_unique:
        raise ValueError(f"columns must differ, got {listed(frame.columns)}; rename them")
    return frame


def _leave_out(frame: pd.DataFrame, drop: Sequence[str]) -> pd.DataFrame:
    if unknown := [name for name in drop if name not in frame.columns]:
        raise ValueError(f"--drop must name some of {listed(frame.columns)}, got {unknown}")
    return frame.drop(columns=list(drop))


def _leave_out_repeated(frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Return the rows that are not empty and do not repeat another."""
    frame = frame.dropna(how="all")
    again = frame.duplicated()
    note(notes, again, "rows that repeat another, left out")
    return frame[~again]


def _choose_columns(
    frame: pd.DataFrame, time: str | None, long: Sequence[str] | None
) -> tuple[pd.DataFrame, str | None]:
    """The columns to read, and the one of times; several such as "date,hour" are joined."""
    if time is None and long is None:
        like_times = columns_like_times(frame)
        return frame, like_times[0] if like_times else None
    parts = list(long or [])
    if time is not None:  # beside --long, the columns of times
        parts[:1] = [time] if time in frame else time.split(",")
    if not {*parts} <= {*frame} or (long is not None and (len(long) != 3 or len({*parts}) < 3)):
        raise ValueError(
            f"--time must name columns, or --long those of time, sensor and value, got {parts}; "
            f"columns are {listed(frame.columns)}"
        )
    if long is not None:
        frame = frame[parts]
        parts = parts[:-2]
    if len(parts) == 1:
        return frame, parts[0]
    name = ",".join(parts)
    texts = frame[parts].apply(sensor_checks.as_texts)
    joined = texts[parts[0]].str.cat(texts[parts[1:]], sep=" ")
    rest = frame.drop(columns=parts)
    rest.insert(0, name, joined)
    return rest, name


def _mask_missing(frame: pd.DataFrame, missing: Sequence[float], notes: list[str]) -> pd.DataFrame:
    """The samples with gaps in place of infinite ones, and of numbers that mean missing."""
    gone = np.isinf(frame.to_numpy())
    for code in missing:
        gone |= np.isclose(frame, code, rtol=1e-6, atol=0)
    note(notes, gone, "samples marked as missing, or infinite")
    return frame.mask(gone)


def _read_ids(column: pd.Series) -> pd.Series:
    """Names of sensors as texts, one in every row."""
    if empty := int(column.isna().sum()):
        raise ValueError(
            f"column {column.name!r} must name a sensor in every row, got none in {empty:,}; if "
            "one is called NA, give --csv keep_default_na=False"
        )
    # whole numbers that once had a gap among them are floats
    return column.convert_dtypes().astype(str).str.strip()
