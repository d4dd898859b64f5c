"""A user's table of sensors: read by pandas, put on an even grid of steps, and checked.

Names, ids, times and numbers are read as texts first. A table is read right, or refused with the
option that reads it right; in Python `plan(frame)` takes any table that pandas can make. Messages
name the options of `aft plan`, which are the arguments of `read_sensors`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_float_dtype, is_numeric_dtype

from aftlib.core.checks import listed
from aftlib.sensor_plans.sensor_checks import (
    IN_PYTHON,
    require_fill_values_marked,
    require_no_counters,
    require_polled,
)
from aftlib.sensor_plans.table_file import read_files
from aftlib.sensor_plans.time_columns import (
    find_times,
    join_parts,
    note,
    put_on_grid,
    read_times,
    usual_step,
)

MOST_MISSING = 0.5
"""Share of a sensor's samples that may be missing: with more, most results would be guesses."""
_NAMELESS = re.compile(r"Unnamed: \d+|index|")
_HOURS = r"\s*\d{1,2}:\d\d(:\d\d(\.\d+)?)?( ?[AaPp][Mm])?\s*"
_SIGNS = {  # what reads a number, by its form; the first that fits all odd cells
    r"[-+]?[1-9]\d{0,2},\d{3}": "give --csv decimal=, if the comma begins decimals, --csv "
    "thousands=, if it groups",
    r"[-+]?(0|[1-9]\d*)?,\d+([eE][-+]?\d+)?": "give --csv decimal=,",
    r"[-+]?[1-9]\d{0,2}((,\d{3})+\.\d*|(,\d{3}){1,})": "give --csv thousands=,",
    r"[-+]?[1-9]\d{0,2}((\.\d{3})+,\d+|(\.\d{3}){2,})": "give --csv decimal=, --csv thousands=.",
}
_CODES = r"[-+]?\d+,\d"  # a number with one decimal, or with a code of one digit


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
            f"gaps: {np.isnan(self.values).mean():.2%} of the samples are missing",
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
    time_unit : {"s", "ms", "us", "ns", "D"}, optional
        Unit of times that are numbers since 1970.
    tz : str, optional
        Zone of local times, such as "Europe/Berlin"; they become UTC.
    long : sequence of str, optional
        Columns of time, sensor and value in tables with one row per sample.
    resample : str, optional
        Period of the grid, such as "10min": each row goes to the nearest step, and rows of one step
        are averaged. By default the commonest distance, on which every row must lie.
    drop : sequence of str
        Columns to leave out; in long tables, sensors.
    missing : sequence of float, optional
        Numbers that stand for missing samples. Empty: every number is measured.
    csv : mapping, optional
        Arguments of `pandas.read_csv`, such as ``{"sep": ";", "decimal": ","}``.

    Raises
    ------
    ValueError
        When the table cannot be read with certainty, has less than two sensors or two steps, or a
        sensor never varies or misses most of its samples. The message has the option that reads it.
    """
    options, notes = dict(csv or {}), list[str]()
    if options and isinstance(data, pd.DataFrame):
        raise ValueError(f"--csv must be given with a CSV file, got {options} with a DataFrame")
    frame = data if isinstance(data, pd.DataFrame) else read_files(Path(data), options)
    frame = _tidy(frame, notes)
    if long is None:
        frame, time = join_parts(_leave_out(frame, drop), time)
        time = time or find_times(frame)
        times = None if time is None else read_times(frame.pop(time), time_format, time_unit, tz)
        if not isinstance(data, pd.DataFrame):
            _require_names(frame)
        if times is not None and resample is None:
            _require_rows(frame, times)
        values = _read_numbers(frame, options, times)
    elif time is not None or len({*long}) != 3 or not {*long} <= {*frame.columns}:
        raise ValueError(
            f"--long must name the columns of time, sensor and value, without --time, got "
            f"{list(long)}; columns are {listed(frame.columns)}"
        )
    else:
        times = read_times(frame[long[0]], time_format, time_unit, tz)
        numbers = _read_numbers(frame[[long[2]]], options, None)
        if ignored := [name for name in frame if name not in long]:
            notes.append(f"other columns, not read: {', '.join(map(str, ignored))}")
        frame = _pivot(times, frame[long[1]], numbers[:, 0], resample is not None, notes)
        times, frame = pd.DatetimeIndex(frame.index), _leave_out(frame, drop)
        values = frame.to_numpy()

    names = tuple(map(str, frame.columns))
    marked = np.zeros(values.shape, bool)
    for code in missing or ():
        marked |= np.isclose(values, code, rtol=1e-6, atol=0)
    note(notes, marked, "samples marked as missing")
    note(notes, np.isinf(values), "infinite samples, taken as missing")
    values = np.where(marked | np.isinf(values), np.nan, values)
    if missing is None or len(missing):
        require_fill_values_marked(names, values, missing or ())
    if times is not None:
        require_polled(names, values, times)
        values, times = put_on_grid(values, times, resample, notes)
    elif resample is not None or tz is not None:
        raise ValueError(
            f"--resample and --tz must be given with times, got {resample or tz!r} and no column "
            "of times: name it by --time"
        )
    if missing is None or len(missing):
        require_no_counters(names, values)
    _require_usable(names, values, times, resample)
    return SensorTable(values, names, times, tuple(notes))


def _tidy(frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """The table with its index as columns, names as texts, and without empty or repeated heads."""
    if isinstance(frame.index, pd.PeriodIndex):
        frame = frame.set_axis(frame.index.to_timestamp(), axis=0)
    if not (isinstance(frame.index, pd.RangeIndex) and frame.index.name is None):
        frame = frame.reset_index()
    frame = frame.set_axis([str(name).strip() for name in frame.columns], axis=1)
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise ValueError(f"columns must differ, got {twice!r} more than once; rename them")
    empty = frame.isna().all(axis=1).to_numpy()
    heads = np.zeros(len(frame), bool)
    for row in np.flatnonzero(frame.iloc[:, 0].astype(str).str.strip() == frame.columns[0]):
        heads[row] = [str(cell).strip() for cell in frame.iloc[row]] == list(frame.columns)
    note(notes, empty, "empty rows, left out")
    note(notes, heads, "rows that repeat the line of names, left out")
    frame = frame[~(empty | heads)].reset_index(drop=True)
    if not frame.size:
        raise ValueError("FILE must hold sensors and rows, got none: is it the right one?")
    if _NAMELESS.fullmatch(frame.columns[0]):
        numbers = pd.to_numeric(frame.iloc[:, 0], errors="coerce")
        if not is_numeric_dtype(numbers) or (numbers.diff()[1:] == 1).all():
            notes.append("row numbers in the first column, left out")
            return frame.iloc[:, 1:].copy()
    return frame


def _leave_out(frame: pd.DataFrame, drop: Sequence[str]) -> pd.DataFrame:
    if unknown := [name for name in drop if name not in frame.columns]:
        names = listed(frame.columns)
        raise ValueError(f"--drop must name columns, got {unknown}; columns are {names}")
    return frame.drop(columns=list(drop))


def _require_names(frame: pd.DataFrame) -> None:
    if nameless := [name for name in frame.columns if _NAMELESS.fullmatch(name)]:
        raise ValueError(
            f"columns must have names, got none for {listed(nameless)}: name them in the first "
            f"line, or leave them out by --drop {quote(','.join(nameless))}"
        )


def _require_rows(frame: pd.DataFrame, times: pd.DatetimeIndex) -> None:
    """Refuse times whose hours stand in another column, and rows that are single samples."""
    hours = next((n for n in frame if frame[n].astype(str).str.fullmatch(_HOURS).all()), None)
    if hours is not None:
        raise ValueError(
            f"columns {times.name!r} and {hours!r} hold parts of times: give --time "
            f"{quote(f'{times.name},{hours}')}, which joins them"
        )
    if len(times.unique()) < len(times) / 2:
        columns = ",".join([str(times.name), str(frame.columns[0]), str(frame.columns[-1])])
        raise ValueError(
            f"every time occurs {len(times) / len(times.unique()):.0f} times: if a row is one "
            f"sample, give --long {quote(columns)}, or average the rows of each time by --resample"
        )


def _read_numbers(
    frame: pd.DataFrame, options: Mapping[str, Any], times: pd.DatetimeIndex | None
) -> np.ndarray:
    """Numbers of the columns, (rows, n), NaN where missing; ValueError for other cells."""
    decimal, thousands = options.get("decimal", "."), options.get("thousands")
    whole = rf"(\d{{1,3}}({re.escape(thousands)}\d{{3}})+|\d+)" if thousands else r"(0|[1-9]\d*)"
    form = rf"[-+]?{whole}?({re.escape(decimal)}\d*)?([eE][-+]?\d+)?"
    numbers, odd = [], dict[str, pd.Series]()
    for name in frame.columns:
        column = frame[name]
        if not is_numeric_dtype(column.dtype):
            texts = column.astype("str").str.strip().replace("", None)
            column = texts
            if decimal != "." or thousands:
                column = texts.where(texts.str.fullmatch(form).fillna(False).astype(bool))
                column = column.str.replace(thousands or "\0", "", regex=False)
                column = column.str.replace(decimal, ".", regex=False)
            column = pd.to_numeric(column, errors="coerce")
            bad = column.isna() & texts.notna() & (texts.str.lower() != "nan")
            if bad.any():
                odd[name] = texts[bad]
        numbers.append(column.to_numpy(dtype=float, na_value=np.nan))
    if odd:
        _refuse_texts(frame, odd, times)
    return np.column_stack(numbers) if numbers else np.empty((len(frame), 0))


def _refuse_texts(
    frame: pd.DataFrame, odd: Mapping[str, pd.Series], times: pd.DatetimeIndex | None
) -> None:
    """Raise ValueError for cells that are no numbers, with the option that reads them."""
    mostly = [name for name in odd if len(odd[name]) > len(frame) / 2]
    name = next((name for name in odd if name not in mostly), next(iter(odd)))
    cells, first = sorted({*odd[name]}), odd[name].iloc[0]
    option = next((fix for form, fix in _SIGNS.items() if odd[name].str.fullmatch(form).all()), "")
    codes = odd[name].str.fullmatch(_CODES).all() and odd[name].str[-1].nunique() <= 3 < len(
        odd[name]
    )
    fix = IN_PYTHON
    if codes or odd[name].str.fullmatch(r"[-+]?0\d+,\d+").any():
        fix = f"the part after the comma may be a code, not decimals; {IN_PYTHON}"
    elif option:
        fix = option
    elif name in mostly and frame.shape[1] == 2 and times is not None:
        value = next(column for column in frame if column != name)
        fix = f"if a row is one sample, give --long {quote(f'{times.name},{name},{value}')}"
    elif name in mostly and not re.match(r"[-+]?\d", first):
        texts = [name for name in mostly if not re.match(r"[-+]?\d", odd[name].iloc[0])]
        fix = f"leave out what is no sensor by --drop {quote(','.join(texts))}, or {IN_PYTHON}"
    elif len(cells) <= 5 and not any(re.search(r"\d", cell) for cell in cells):
        marks = " ".join(f"--csv {quote(f'na_values={cell}')}" for cell in cells)
        fix = f"give {marks} if that stands for missing samples"
    raise ValueError(
        f"column {name!r} must hold numbers, got {first!r:.80} ({len(odd[name]):,} such); {fix}"
    )


def _pivot(
    times: pd.DatetimeIndex,
    ids: pd.Series,
    numbers: np.ndarray,
    average: bool,
    notes: list[str],
) -> pd.DataFrame:
    """One row per time and one column per sensor, from one row per sample."""
    if ids.isna().any():
        raise ValueError(f"column {ids.name!r} must name a sensor in every row: remove the others")
    if is_float_dtype(ids.dtype) and (ids % 1 == 0).all():
        ids = ids.astype("int64")  # whole numbers that once had a gap among them
    sensors = ids.astype(str).str.strip().to_numpy()
    samples = pd.DataFrame({"time": times, "sensor": sensors, "value": numbers})
    again = samples.duplicated().to_numpy()
    note(notes, again, "rows that repeat another, left out")
    samples = samples[~again]
    twice = samples.duplicated(["time", "sensor"])
    if twice.any() and not average:
        first = samples[twice].iloc[0]
        raise ValueError(
            f"two different samples of {first['sensor']!r} share the time {first['time']} "
            f"({int(twice.sum()):,} such); keep one of them, or average them by --resample"
        )
    return samples.pivot_table(index="time", columns="sensor", values="value", dropna=False)


def _require_usable(
    names: Sequence[str], values: np.ndarray, times: pd.DatetimeIndex | None, resample: str | None
) -> None:
    """Refuse too few sensors or steps, and sensors that never vary or miss most samples."""
    if len(names) < 2 or len(values) < 2:
        raise ValueError(
            f"FILE must hold two sensors and two rows or more, got {len(names)} and {len(values)}: "
            "a sensor is estimated from others"
        )
    gone = np.isnan(values)
    lost, still = gone.mean(axis=0) > MOST_MISSING, np.nanmin(values, 0) == np.nanmax(values, 0)
    if lost.all():
        fix = "plan for a part without the longest gap"
        if gone.all(axis=1).mean() < MOST_MISSING:
            fix = "take a longer --resample"
            if times is not None and resample is None:
                fix = f"average what comes apart by --resample {usual_step(values, times)}"
        raise ValueError(
            f"sensors must have samples at half of the steps, got {1 - gone.mean():.0%}; {fix}"
        )
    for flags, wanted in ((lost, "have samples at half of the steps"), (still, "vary")):
        if flags.any():
            bad = list(compress(names, flags))
            raise ValueError(
                f"sensors must {wanted}, got {listed(bad)}, which do not; leave them out by "
                f"--drop {quote(','.join(bad))}"
            )
