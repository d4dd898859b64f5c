"""A user's table of sensors: read by pandas, put on an even grid of steps, and checked.

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
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pandas.api.types import is_float_dtype, is_numeric_dtype

from aftlib.core.checks import listed
from aftlib.sensor_plans.sensor_checks import (
    require_fill_values_marked,
    require_no_counters,
    require_plain_dots,
    require_polled,
)
from aftlib.sensor_plans.time_columns import (
    CLOCK,
    as_duration,
    find_times,
    join_parts,
    looks_like_time,
    read_times,
    usual_step,
)

MOST_MISSING = 0.5
"""Share of a sensor's samples that may be missing: with more, most results would be guesses."""
BYTES_IN_MEMORY = 8
"""Bytes of memory per byte of CSV, roughly."""
HEAD = 30
"""Lines that are searched for the line of names."""
IN_PYTHON = "change the table in Python and call plan(frame)"
_GZIP, _PARQUET, _PACKED = b"\x1f\x8b", b"PAR1", (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_NAMELESS = re.compile(r"Unnamed: \d+|index|")
_NUMBER = re.compile(r"[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?|nan", re.I)
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
            notes.append(f"other columns, not read: {', '.join(ignored)}")
        frame = _pivot(times, frame[long[1]], numbers[:, 0], resample is not None, notes)
        times, frame = pd.DatetimeIndex(frame.index), _leave_out(frame, drop)
        values = frame.to_numpy()

    names = tuple(map(str, frame.columns))
    marked = np.zeros(values.shape, bool)
    for code in missing or ():
        marked |= np.isclose(values, code, rtol=1e-6, atol=0)
    _note(notes, marked, "samples marked as missing")
    _note(notes, np.isinf(values), "infinite samples, taken as missing")
    values = np.where(marked | np.isinf(values), np.nan, values)
    if missing is None or len(missing):
        require_fill_values_marked(names, values, missing or ())
    if times is not None:
        require_polled(names, values, times)
        values, times = _on_grid(values, times, resample, notes)
    elif resample is not None or tz is not None:
        raise ValueError(
            f"--resample and --tz must be given with times, got {resample or tz!r} and no column "
            "of times: name it by --time"
        )
    if missing is None or len(missing):
        require_no_counters(names, values)
    _require_usable(names, values, times, resample)
    return SensorTable(values, names, times, tuple(notes))


def read_files(data: Path, options: Mapping[str, Any]) -> pd.DataFrame:
    """Read the files of a path, directory or pattern as one table, in order of their names."""
    files = [data]
    if not data.is_file():
        paths = data.iterdir() if data.is_dir() else map(Path, glob.glob(str(data)))
        files = sorted(path for path in paths if path.is_file() and path.name[0] not in "._")
    if not files:
        raise ValueError(f"FILE must be a file, a directory or a pattern, got {str(data)!r}")
    _require_memory(files)
    frames = [_read_file(file, options) for file in files]
    for file, frame in zip(files, frames, strict=True):
        if list(frame.columns) != list(frames[0].columns):
            raise ValueError(
                f"files must have the same columns, got {listed(frame.columns)} in {file.name!r} "
                f"and {listed(frames[0].columns)} in {files[0].name!r}; plan for files of one kind"
            )
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def _require_memory(files: Sequence[Path]) -> None:
    size = 0
    for file in files:
        with file.open("rb") as opened:
            parquet = opened.read(4) == _PARQUET
        size += BYTES_IN_MEMORY * file.stat().st_size
        if parquet and (about := pq.read_metadata(file)):
            size += 8 * about.num_rows * about.num_columns
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory / 2:
        raise ValueError(
            f"FILE takes about {size / 1e9:,.1f} GB of {memory / 1e9:,.1f} GB of memory: aggregate "
            "it to windows with Spark, and plan with --window 1"
        )


def _read_file(path: Path, options: Mapping[str, Any]) -> pd.DataFrame:
    with path.open("rb") as file:
        start = file.read(4)
    if start.startswith(_PACKED):
        raise ValueError(f"{path.name!r} is a spreadsheet or an archive: save it as CSV")
    try:
        if start == _PARQUET:
            frame = pd.read_parquet(path)
            return frame.reset_index(drop=isinstance(frame.index, pd.RangeIndex))
        return _read_csv(path, start, {**options})
    except (OSError, EOFError, pa.ArrowInvalid) as error:
        raise ValueError(f"{path.name!r} cannot be read: {error}") from error


def _read_csv(path: Path, start: bytes, options: dict[str, Any]) -> pd.DataFrame:
    """Read a CSV file as texts, or refuse it with the option that reads it."""
    wide = start[:2] in (b"\xff\xfe", b"\xfe\xff")
    options = {"encoding": "utf-16" if wide else "utf-8-sig", "index_col": False} | options
    options["compression"] = "gzip" if start.startswith(_GZIP) else "infer"
    signs = {name: options.pop(name) for name in ("decimal", "thousands") if name in options}
    reason = "its rows have more cells than its line of names"
    try:
        head = _read_head(path, options)
        if fix := _advise_head(head, options):
            raise ValueError(f"{path.name!r} needs {fix}")
        with warnings.catch_warnings():  # pandas warns where it leaves out cells
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(path, dtype=str, **options)
    except UnicodeError as error:
        fix = "name its encoding, such as --csv encoding=cp1252"
        raise ValueError(f"{path.name!r} is not in {options['encoding']}: {fix}") from error
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"{path.name!r} is empty: is it the right file?") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        if isinstance(error, pd.errors.ParserError):
            reason = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        fix = f"give each line as many cells as the line of names, or {IN_PYTHON}"
        raise ValueError(f"{path.name!r} is no table ({reason}): {fix}") from error
    except TypeError as error:
        raise ValueError(f"--csv takes options of pandas.read_csv, got {error}") from error
    names = list(frame.columns)
    for row in head:  # pandas numbers columns of the same name silently
        twice = [name for name in row if name and row.count(name) > 1]
        if twice and len(row) == len(names) and row[0] == str(names[0]):
            raise ValueError(f"columns must differ, got {twice[0]!r} more than once; rename them")
    if not signs:
        require_plain_dots(frame, options.get("sep", ","))
    return frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()


def _read_head(path: Path, options: Mapping[str, Any]) -> list[list[str]]:
    """Cells of the first lines, as pandas separates them."""
    kept = ("sep", "delimiter", "quotechar", "comment", "encoding", "compression")
    same = {name: options[name] for name in kept if name in options}
    rows = pd.read_csv(
        path,
        header=None,
        names=range(1000),
        nrows=HEAD,
        dtype=str,
        keep_default_na=False,
        skip_blank_lines=False,
        **same,
    )
    filled = (rows != "").to_numpy()
    widths = np.where(filled.any(axis=1), 1000 - filled[:, ::-1].argmax(axis=1), 0)
    return [row[:width] for row, width in zip(rows.to_numpy().tolist(), widths, strict=True)]


def _advise_head(head: list[list[str]], options: Mapping[str, Any]) -> str:
    """The option that finds the columns and their names; "" if pandas' defaults do."""
    if not head:
        raise pd.errors.EmptyDataError
    text = "".join(head[0])
    best = max(";\t|", key=text.count)
    if "sep" not in options and text.count(best) >= max(1, len(head[0]) - 1):
        shown = "\\t" if best == "\t" else best
        return f"--csv {quote(f'sep={shown}')}"
    if {"header", "names", "skiprows"} & {*options}:
        return ""
    scores = [[bool(_NUMBER.fullmatch(c.strip())) or looks_like_time(c) for c in r] for r in head]
    first = next((i for i, row in enumerate(scores) if sum(row) >= max(2, len(row) / 2)), None)
    if first is None:
        return ""
    fractions = [bool(re.fullmatch(r"[-+]?\d*\.\d+", cell.strip())) for cell in head[0]]
    if not first and (looks_like_time(head[0][0]) or all(fractions)):
        return "a line of names: give --csv header=None" + " --time 0" * looks_like_time(head[0][0])
    whole = [i for i in range(first) if len({*head[i]} - {""}) == len(head[i]) == len(head[first])]
    timed = [i for i in whole if any(CLOCK.fullmatch(cell.strip()) for cell in head[i])]
    names = next(iter(timed or whole), 0)
    skipped = [i for i in range(first) if i != names]
    if not whole or not skipped or any(map(any, scores[names + 1 : first])):
        return ""
    return f"--csv {quote(f'skiprows={skipped}')}, which skips lines without samples"


def _tidy(frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """The table with its index as columns, names as texts, and without empty or repeated heads."""
    if not (isinstance(frame.index, pd.RangeIndex) and frame.index.name is None):
        frame = frame.reset_index()
    frame = frame.rename(columns=lambda name: str(name).strip())
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise ValueError(f"columns must differ, got {twice!r} more than once; rename them")
    empty = frame.isna().all(axis=1).to_numpy()
    heads = np.zeros(len(frame), bool)
    for row in np.flatnonzero(frame.iloc[:, 0].astype(str).str.strip() == frame.columns[0]):
        heads[row] = [str(cell).strip() for cell in frame.iloc[row]] == list(frame.columns)
    _note(notes, empty, "empty rows, left out")
    _note(notes, heads, "rows that repeat the line of names, left out")
    frame = frame[~(empty | heads)].reset_index(drop=True)
    if not frame.size:
        raise ValueError("FILE must hold sensors and rows, got none: is it the right one?")
    if _NAMELESS.fullmatch(frame.columns[0]):
        numbers = pd.to_numeric(frame.iloc[:, 0], errors="coerce")
        if not is_numeric_dtype(numbers) or (numbers.diff()[1:] == 1).all():
            notes.append("row numbers in the first column, left out")
            return frame.iloc[:, 1:].copy()
    return frame


def _note(notes: list[str], flags: np.ndarray, text: str) -> None:
    if count := int(flags.sum()):
        notes.append(f"{text}: {count:,}")


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


def _read_numbers(
    frame: pd.DataFrame, options: Mapping[str, Any], times: pd.DatetimeIndex | None
) -> np.ndarray:
    """Numbers of the columns, (rows, n), NaN where missing; ValueError for other cells."""
    hours = next((n for n in frame if frame[n].astype(str).str.fullmatch(_HOURS).all()), None)
    if times is not None and hours is not None:
        raise ValueError(
            f"columns {times.name!r} and {hours!r} hold parts of times: give --time "
            f"{quote(f'{times.name},{hours}')}, which joins them"
        )
    if times is not None and len(times.unique()) < len(times) / 2:
        columns = ",".join([str(times.name), str(frame.columns[0]), str(frame.columns[-1])])
        raise ValueError(
            f"every time occurs {len(times) / len(times.unique()):.0f} times: if a row is one "
            f"sample, give --long {quote(columns)}, or average the rows of each time by --resample"
        )
    decimal, thousands = options.get("decimal", "."), options.get("thousands")
    whole = rf"(\d{{1,3}}({re.escape(thousands)}\d{{3}})+|\d+)" if thousands else r"(0|[1-9]\d*)"
    form = rf"[-+]?{whole}?({re.escape(decimal)}\d*)?([eE][-+]?\d+)?"
    numbers, odd = [], dict[str, pd.Series]()
    for name in frame.columns:
        column = frame[name]
        if not is_numeric_dtype(column.dtype):
            texts = column.astype("str").str.strip().replace("", np.nan)
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
    _note(notes, again, "rows that repeat another, left out")
    samples = samples[~again]
    twice = samples.duplicated(["time", "sensor"])
    if twice.any() and not average:
        first = samples[twice].iloc[0]
        raise ValueError(
            f"two different samples of {first['sensor']!r} share the time {first['time']} "
            f"({int(twice.sum()):,} such); keep one of them, or average them by --resample"
        )
    return samples.pivot_table(index="time", columns="sensor", values="value", dropna=False)


def _on_grid(
    values: np.ndarray, times: pd.DatetimeIndex, resample: str | None, notes: list[str]
) -> tuple[np.ndarray, pd.DatetimeIndex]:
    """Samples in order of time, on an even grid; missing steps are NaN."""
    _note(notes, np.diff(times.asi8) < 0, "rows out of order, sorted")
    order = np.argsort(times.asi8, kind="stable")
    values, times = values[order], times[order].as_unit("ns")
    if resample is None:
        values, steps, period = _place(values, times, notes)
        start = times[0]
    else:
        period = as_duration("--resample", resample)
        # rows in the middle of steps, such as 00:30 and 01:30 for hours, belong to the step before
        phase = (times.asi8 % period.value) / period.value
        middle = np.cos(2 * np.pi * phase).mean() < -0.5
        nearest = (times if middle else times + period / 2).floor(period)
        means = pd.DataFrame(values).groupby(((nearest - nearest[0]) // period).to_numpy()).mean()
        notes.append(f"rows averaged into steps of {resample}: {len(values):,}")
        values, steps, start = means.to_numpy(), means.index.to_numpy(), nearest[0]
    count = int(steps[-1]) + 1
    if count > 100 * len(values) + 1_000_000:
        raise ValueError(
            f"times must not leave nearly all steps empty, got {len(values):,} rows for {count:,} "
            f"steps of {period}; correct a wrong time, or give a longer --resample"
        )
    grid = np.full((count, values.shape[1]), np.nan)
    grid[steps] = values
    return grid, pd.DatetimeIndex(start + np.arange(count) * period)


def _place(
    values: np.ndarray, times: pd.DatetimeIndex, notes: list[str]
) -> tuple[np.ndarray, np.ndarray, pd.Timedelta]:
    """Samples without repeated rows, their steps, and the period, the commonest distance."""
    again = np.append(False, times[1:] == times[:-1])
    rows = np.flatnonzero(again)
    differ = ((values[rows] != values[rows - 1]) & ~np.isnan(values[rows])).any(axis=1)
    if differ.any():
        raise ValueError(
            f"two different rows share the time {times[rows[differ][0]]} ({differ.sum():,} such): "
            f"average them by --resample {usual_step(values, times)}, keep one of them, or, if "
            "clocks were set back there, name their zone by --tz"
        )
    _note(notes, again, "rows that repeat another, left out")
    values, times = values[~again], times[~again]
    if len(times) < 2:
        raise ValueError("FILE must hold at least two times, got one: give a longer record")
    distances, counts = np.unique(np.diff(times.asi8), return_counts=True)
    period = pd.Timedelta(distances[counts.argmax()])
    steps, rest = np.divmod(times.asi8 - times.asi8[0], period.value)
    if rest.any():
        fix = f"average the rows of each step by --resample {usual_step(values, times)}"
        if (times.day == times.day[0]).all() and period >= pd.Timedelta(days=28):
            fix = "months differ in length: leave the times out by --drop, so that a row is a step"
        odd = times[int(np.flatnonzero(rest)[0])]
        raise ValueError(
            f"times must lie on an even grid, got {odd} off the period of {period}; {fix}"
        )
    return values, steps, period


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
