"""A user's table of sensors: read by pandas, checked, and put on an even grid of steps.

Names, ids, times and numbers are read as texts first. A table is read right, or refused with the
option that reads it right; in Python `plan(frame)` takes any table that pandas can make. Messages
name the options of `aft plan`, which are the arguments of `read_sensors`.
"""

from __future__ import annotations

import glob
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from csv import reader as csv_reader
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype, is_float_dtype
from pandas.tseries.api import guess_datetime_format

from aftlib.core.checks import listed
from aftlib.sensor_plans import sensor_checks
from aftlib.sensor_plans.sensor_checks import IN_PYTHON, note

BYTES_IN_MEMORY = 8
"""Bytes of memory per byte of a file, roughly."""
UNITS = {1: "s", 5: "D", 10: "s", 13: "ms", 16: "us", 19: "ns"}
"""Units of times by their digits: since a start, and today's since 1970."""
_CLOCK = re.compile(r"date|date.?time|time|time.?stamp|ts|datum|zeit|zeitstempel|epoch", re.I)
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}\b.*|\d{1,2}[- ][A-Za-z]{3,}[- ]\d{2,4}.*")
_NUMBER = re.compile(r"[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?|nan", re.I)


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
    notes = list[str]()
    if csv and isinstance(data, pd.DataFrame):
        raise ValueError(f"--csv must be given with a CSV file, got {csv} with a DataFrame")
    frame = data if isinstance(data, pd.DataFrame) else _read_files(Path(data), csv or {})
    frame = _tidy(frame, notes)
    if long is None:
        frame = _leave_out(frame, drop)
    frame, time = _choose_columns(frame, time, long, notes)
    if time is None:
        if resample is not None or tz is not None:
            raise ValueError(
                f"--resample and --tz must be given with times, got {resample or tz!r} and no "
                "column of times: name it by --time"
            )
        frame = sensor_checks.require_numbers(frame, csv or {})
    else:
        again = frame.duplicated()
        note(notes, again, "rows that repeat another, left out")
        frame = frame[~again]
        times = _read_times(frame.pop(time), time_format, time_unit, tz)
        ids = None if long is None else _read_ids(frame.pop(long[1]))
        if resample is None:
            sensor_checks.require_distinct(frame, times, ids)
        frame = sensor_checks.require_numbers(frame, csv or {}).set_axis(times, axis=0)
        if ids is not None:
            frame = frame.iloc[:, 0].groupby([times, ids.to_numpy()]).mean().unstack()
            frame = _leave_out(frame, drop)

    gone = np.isinf(frame.to_numpy())
    for code in missing or ():
        gone |= np.isclose(frame, code, rtol=1e-6, atol=0)
    note(notes, gone, "samples marked as missing, or infinite")
    frame = frame.mask(gone)
    sensor_checks.require_fill_values_marked(frame, missing)
    if time is not None:
        sensor_checks.require_polled(frame)
        frame = sensor_checks.put_on_grid(frame, resample, notes)
    if missing is None or len(missing):
        sensor_checks.require_no_counters(frame)
    sensor_checks.require_usable(frame)
    grid = frame.index if isinstance(frame.index, pd.DatetimeIndex) else None
    return SensorTable(frame.to_numpy(), tuple(frame.columns), grid, tuple(notes))


def _read_files(data: Path, options: Mapping[str, Any]) -> pd.DataFrame:
    """Read the files of a path, directory or pattern as one table, in order of their names."""
    files = [data]
    if not data.is_file():
        paths = data.iterdir() if data.is_dir() else map(Path, glob.glob(str(data)))
        files = sorted(path for path in paths if path.is_file() and path.name[0] not in "._")
    if not files:
        raise ValueError(f"FILE must be a file, a directory or a pattern, got {str(data)!r}")
    size = BYTES_IN_MEMORY * sum(file.stat().st_size for file in files)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory / 2:
        raise ValueError(
            f"FILE takes about {size / 1e9:,.1f} GB of {memory / 1e9:,.1f} GB of memory: aggregate "
            "it to windows with Spark, and plan with --window 1"
        )
    frames = [_read_file(file, options) for file in files]
    for file, frame in zip(files, frames, strict=True):
        if list(frame.columns) != list(frames[0].columns):
            raise ValueError(
                f"files must have the same columns, got {listed(frame.columns)} in {file.name!r} "
                f"and {listed(frames[0].columns)} in {files[0].name!r}; plan for files of one kind"
            )
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def _read_file(path: Path, options: Mapping[str, Any]) -> pd.DataFrame:
    """Read one file; ValueError, with the reason and the fix, if it is no table."""
    with path.open("rb") as file:
        start = file.read(4)
    try:
        if start in (b"PK\x03\x04", b"\xd0\xcf\x11\xe0"):
            raise ValueError("it is a spreadsheet or an archive: save it as CSV")
        if start == b"PAR1":
            frame = pd.read_parquet(path)
            return frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()
        with warnings.catch_warnings():  # pandas warns where it leaves out cells
            warnings.simplefilter("error", pd.errors.ParserWarning)
            compression = "gzip" if start[:2] == b"\x1f\x8b" else "infer"
            return _read_csv(path, {"compression": compression, **options})
    except (ValueError, TypeError, LookupError, OSError, EOFError, Warning) as error:
        fix = ""
        if isinstance(error, UnicodeError):
            fix = "; name its encoding, such as --csv encoding=cp1252 or --csv encoding=utf-16"
        elif isinstance(error, pd.errors.ParserError | pd.errors.ParserWarning):
            fix = f"; give each line as many cells as the line of names, or {IN_PYTHON}"
        reason = str(error).strip()
        raise ValueError(f"{path.name!r} cannot be read: {reason}{fix}") from error


def _read_csv(path: Path, options: dict[str, Any]) -> pd.DataFrame:
    """Read a CSV file as texts, or refuse it with the option that finds its columns and names."""
    defaults = {"encoding": "utf-8-sig", "index_col": False, "skipinitialspace": True}
    options = {**defaults, **options}
    signs = {options.pop(name) for name in ("decimal", "thousands") if name in options}
    raw: dict[str, Any] = dict(header=None, quoting=3, nrows=30, skip_blank_lines=False)
    same = {name: options[name] for name in ("encoding", "compression")}
    lines = pd.read_csv(path, sep="\1", dtype=str, **raw, **same)[0].fillna("")
    _require_names(lines.tolist(), options)
    if len(options.get("sep", ",")) > 1:
        options.setdefault("engine", "python")  # a regular expression
    frame = pd.read_csv(path, dtype=str, **options).rename(columns=str)
    for name in frame.columns:  # pandas numbers columns of the same name silently
        original = name.rpartition(".")[0]
        if original in frame.columns and not lines.str.contains(name, regex=False).any():
            raise ValueError(f"columns must differ, got {original!r} more than once; rename them")
    if not signs:
        sensor_checks.require_plain_dots(frame.select_dtypes("str"), options.get("sep", ","))
    return frame


def _require_names(lines: list[str], options: Mapping[str, Any]) -> None:
    """Refuse lines that need an option to find the columns and their names."""
    text, separator = "".join(lines), options.get("sep", ",")
    best = max(";\t|", key=text.count)
    if "sep" not in options and text.count(best) > text.count(","):
        name = "sep=" + best.replace("\t", r"\t")
        raise ValueError(f"it needs --csv {quote(name)}, which separates its columns")
    if {"header", "names", "skiprows", "comment"} & {*options} or len(separator) > 1:
        return
    # the first line of samples has mostly numbers and times; a line of names stands before it, has
    # as many cells, all different, and preferably a name of a column of times
    rows = [[cell.strip() for cell in row] for row in csv_reader(lines, delimiter=separator)]
    numbers = [[bool(_NUMBER.fullmatch(c) or _DATE.match(c)) for c in row] for row in rows]
    samples = [sum(row) >= max(2, len(row) / 2) for row in numbers]
    if True not in samples:
        return
    first = samples.index(True)
    if not first and (_DATE.match(rows[0][0]) or all("." in cell for cell in rows[0])):
        fix = "--csv header=None --time 0" if _DATE.match(rows[0][0]) else "--csv header=None"
        raise ValueError(f"it needs a line of names: give {fix}")
    whole = [i for i in range(first) if len({*rows[i]} - {""}) == len(rows[i]) == len(rows[first])]
    timed = [i for i in whole if any(map(_CLOCK.fullmatch, rows[i]))]
    names = next(iter(timed or whole), first)
    skipped = [i for i in range(first) if i != names]
    if names < first and skipped and not any(map(any, numbers[names + 1 : first])):
        fix = f"--csv {quote(f'skiprows={skipped}')}"
        raise ValueError(f"it needs {fix}, which skips lines without samples")


def _tidy(frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """The table with its index as columns, names as texts, and without empty or repeated heads."""
    if isinstance(frame.index, pd.PeriodIndex):
        frame = frame.set_axis(frame.index.to_timestamp(), axis=0)
    if not isinstance(frame.index, pd.RangeIndex) or frame.index.name is not None:
        frame = frame.reset_index()
    frame = frame.set_axis([str(name).strip() for name in frame.columns], axis=1)
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise ValueError(f"columns must differ, got {twice!r} more than once; rename them")
    texts = frame.select_dtypes(["str", "object"])
    heads = (texts == list(texts)).all(axis=1) & (texts.shape == frame.shape)
    empty = frame.isna().all(axis=1)
    note(notes, heads & ~empty, "rows that repeat the line of names, left out")
    note(notes, empty, "empty rows, left out")
    frame = frame[~(empty | heads)].reset_index(drop=True)
    if not frame.size:
        raise ValueError("FILE must hold sensors and rows, got none: is it the right one?")
    numbers = pd.to_numeric(frame.iloc[:, 0], errors="coerce")
    if frame.columns[0] in ("Unnamed: 0", "index") and (numbers.diff()[1:] == 1).all():
        notes.append("row numbers in the first column, left out")
        return frame.iloc[:, 1:]
    return frame


def _leave_out(frame: pd.DataFrame, drop: Sequence[str]) -> pd.DataFrame:
    if unknown := [name for name in drop if name not in frame.columns]:
        names = listed(frame.columns)
        raise ValueError(f"--drop must name columns, got {unknown}; columns are {names}")
    return frame.drop(columns=list(drop))


def _choose_columns(
    frame: pd.DataFrame, time: str | None, long: Sequence[str] | None, notes: list[str]
) -> tuple[pd.DataFrame, str | None]:
    """The columns to read, and the one of times; several such as "date,hour" are joined."""
    if long is not None:
        if time is not None or len({*long}) != 3 or not {*long} <= {*frame.columns}:
            raise ValueError(
                f"--long must name the columns of time, sensor and value, without --time, got "
                f"{list(long)}; columns are {listed(frame.columns)}"
            )
        if ignored := [name for name in frame if name not in long]:
            notes.append(f"other columns, not read: {listed(ignored)}")
        return frame[list(long)], long[0]
    for name in map(str, frame if time is None else ()):
        cell = "".join(frame[name].dropna()[:1].astype(str))
        typed = is_datetime64_any_dtype(frame[name].dtype)
        if typed or _CLOCK.fullmatch(name) or _DATE.fullmatch(cell.strip()):
            return frame, name
    if time is None or time in frame:
        return frame, time
    parts = time.split(",")
    if not {*parts} <= {*frame}:
        names = listed(frame.columns)
        raise ValueError(f"--time must name a column, got {time!r}; columns are {names}")
    texts = [frame[part].astype(str).str.strip() for part in parts]
    joined = texts[0].str.cat(pd.concat(texts[1:], axis=1), sep=" ")
    return frame.drop(columns=parts).assign(**{time: joined}), time


def _read_times(
    column: pd.Series, time_format: str | None, unit: str | None, tz: str | None
) -> pd.DatetimeIndex:
    """Times of a column; ValueError, with the option that reads it, for what is not certain."""
    texts = column.astype(str).str.strip()
    if unit is not None:
        if unit not in UNITS.values():
            raise ValueError(f"--time-unit must be one of {listed(UNITS.values())}, got {unit!r}")
        numbers, kind = pd.to_numeric(column, errors="coerce"), f"numbers for --time-unit {unit}"
        read = pd.to_datetime(numbers, unit=unit, errors="coerce", utc=True)  # type: ignore
    elif is_datetime64_any_dtype(column.dtype):
        read, kind = column, "times"
    elif time_format is not None:
        kind, zoned = f"times of --time-format {time_format!r}", "%z" in time_format
        read = pd.to_datetime(texts, format=time_format, errors="coerce", utc=zoned)
    else:
        read, kind = _read_iso(texts), "ISO 8601 times, all or none with an offset from UTC,"
    bad = read.isna()
    if bad.any():
        fix = f"correct or remove {bad.sum():,} such rows"
        if time_format is not None or bad.mean() > 0.5:
            fix = _advise_times(texts)
        raise ValueError(
            f"column {column.name!r} must hold {kind} in every row, got {texts[bad].iloc[0]!r:.80} "
            f"in row {int(bad.to_numpy().argmax()) + 1}; {fix}"
        )
    times = pd.DatetimeIndex(read, name=column.name)
    try:
        return times if tz is None else times.tz_localize(tz, ambiguous="infer").tz_convert("UTC")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"--tz must be the zone of local times, such as Europe/Berlin, got {tz!r} for "
            f"{column.name!r}: {error}; leave it out, or write the offset from UTC into the file"
        ) from error


def _read_iso(texts: pd.Series) -> pd.Series:
    """Times of ISO 8601 texts, in UTC if the first has an offset; NaT for what is not alike."""
    plain = texts.str.replace(r"\s*(Z|UTC|GMT)$", "+00:00", regex=True).fillna("")
    zoned = plain.str.contains(r":\d\d.*[-+]\d\d|\+00:00", regex=True)
    alike = plain.str.match(r"\d{4}-\d\d-\d\d") & (zoned == zoned.iloc[0])
    utc = bool(zoned.iloc[0])
    return pd.to_datetime(plain.where(alike), format="ISO8601", errors="coerce", utc=utc)


def _advise_times(texts: pd.Series) -> str:
    """The options by which texts are times, for an error message."""
    some = texts.dropna().drop_duplicates()
    ends = [*some[:1], *some[-1:]]
    whole = some.str.fullmatch(r"\d+(\.\d*)?").all()
    unit = UNITS.get(len(ends[0].partition(".")[0])) if ends and whole else None
    options = [f"--time-unit {unit} for times since 1970 or a start"] if unit else []
    forms = {"%m/%d/%Y %I:%M %p", "%d.%m.%y %H:%M"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns of the order of day and month
        for end, day_first in product(ends, (True, False)):
            forms |= {guess_datetime_format(end, dayfirst=day_first) or "%Y"}
    for form in sorted(forms):
        if pd.to_datetime(some, format=form, errors="coerce").notna().all():
            options.append(f"--time-format {quote(form)}")
    given = ", or ".join([*options, "another format, such as --time-format %y%m%d%H%M"])
    return f"give {given}; if rows are steps, leave it out by --drop {quote(str(texts.name))}"


def _read_ids(column: pd.Series) -> pd.Series:
    """Names of sensors as texts, one in every row."""
    if column.isna().any():
        raise ValueError(f"column {column.name!r} must name a sensor in every row, got none in one")
    if is_float_dtype(column.dtype) and (column % 1 == 0).all():
        column = column.astype("int64")  # whole numbers that once had a gap among them
    return column.astype(str).str.strip()
