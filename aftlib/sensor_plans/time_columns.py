"""Times in tables: ISO 8601, a format or a unit that the user names; and their even grid."""

from __future__ import annotations

import re
from itertools import product
from shlex import quote

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype, is_float_dtype, is_numeric_dtype

from aftlib.core.checks import listed

UNITS = ("s", "ms", "us", "ns", "D")
CLOCK = re.compile(r"date|date.?time|time|time.?stamp|ts|datum|zeit|zeitstempel|epoch", re.I)
"""Names of columns of times."""
_LOOKS = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}\b.*|\d{1,2}[- ][A-Za-z]{3,}[- ]\d{2,4}.*")
_ISO = r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?)?\s*(Z|UTC|GMT|[-+]\d\d(:?\d\d)?)?"
_OFFSET = r".*\d\d:\d\d.*(Z|UTC|GMT|[-+]\d\d(:?\d\d)?)"
_DAYS = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%Y.%m.%d", "%d-%m-%Y", "%m-%d-%Y"),
    *("%Y-%m-%d", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d-%b-%Y", "%d %b %Y", "%d %B %Y"),
    *("%Y %m %d", "%Y%m%d", "%d%m%Y", "%m%d%Y", "%y%m%d", "%d%m%y", "%Y%j"),
)
_HOURS = (
    *("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", "T%H:%M", "T%H:%M:%S", " %I:%M %p"),
    *(" %I:%M:%S %p", " %H.%M", " %H", "%H", "%H%M", "%H%M%S", " %H%M", ", %H:%M", " %H:%M:%S %Z"),
)
_ROUND = "1s 2s 5s 10s 15s 20s 30s 1min 2min 5min 10min 15min 20min 30min 1h 2h 3h 6h 12h 1D 7D"


def as_duration(name: str, text: str) -> pd.Timedelta:
    """Return a duration such as "2s" or "10min"; ValueError, with `name`, for another text."""
    try:
        length = pd.Timedelta(text)
        if re.search(r"[a-zµ:]", str(text), re.I) and length > pd.Timedelta(0):
            return length.as_unit("ns")
    except (ValueError, TypeError):
        pass
    raise ValueError(
        f"{name} must be a duration such as '2s', '500ms' or '10min', got {text!r}: write a number "
        "above 0 and a unit"
    )


def looks_like_time(text: object) -> bool:
    """Whether a text looks like a date."""
    return bool(_LOOKS.fullmatch(str(text).strip()))


def find_times(frame: pd.DataFrame) -> str | None:
    """The column that holds times: by its type, its first cell or its name; None if none does."""
    for name in frame.columns:
        column = frame[name].dropna()
        typed = is_datetime64_any_dtype(column.dtype)
        text = not is_numeric_dtype(column.dtype) and len(column)
        if typed or (text and looks_like_time(column.iloc[0])) or CLOCK.fullmatch(name):
            return str(name)
    return None


def join_parts(frame: pd.DataFrame, time: str | None) -> tuple[pd.DataFrame, str | None]:
    """The table with several columns of times, such as "date,hour", joined by blanks into one."""
    if time is None or time in frame.columns:
        return frame, time
    parts = time.split(",")
    if len(parts) < 2 or not {*parts} <= {*frame.columns}:
        names = listed(frame.columns)
        raise ValueError(f"--time must name a column, got {time!r}; columns are {names}")
    joined = frame[parts].astype(str).apply(lambda row: " ".join(map(str.strip, row)), axis=1)
    return frame.drop(columns=parts).assign(**{time: joined}), time


def read_times(
    column: pd.Series, time_format: str | None, unit: str | None, tz: str | None
) -> pd.DatetimeIndex:
    """Times of a column; ValueError, with the option that reads it, for what is not certain."""
    name = column.name
    if column.isna().any():
        row = int(column.isna().to_numpy().argmax()) + 1
        raise ValueError(f"column {name!r} must have a time in every row, got none in row {row}")
    if is_datetime64_any_dtype(column.dtype):
        times = pd.DatetimeIndex(column)
    elif unit is not None:
        if unit not in UNITS:
            raise ValueError(f"--time-unit must be one of {', '.join(UNITS)}, got {unit!r}")
        numbers = pd.to_numeric(column, errors="coerce")
        if numbers.isna().any():
            odd = column[numbers.isna()].iloc[0]
            raise ValueError(f"column {name!r} must hold numbers for --time-unit, got {odd!r}")
        times = pd.DatetimeIndex(pd.to_datetime(numbers, unit=unit))  # type: ignore[call-overload]
    else:
        if is_float_dtype(column.dtype) and (column % 1 == 0).all():
            column = column.astype("int64")
        times = _read_texts(column.astype(str).str.strip(), time_format)
    times.name = name
    if tz is None:
        return times
    if times.tz is not None or unit is not None:
        raise ValueError(f"--tz is for local times, got {tz!r} and times in UTC: leave it out")
    try:
        return times.tz_localize(tz, ambiguous="infer").tz_convert("UTC")
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"--tz must be the zone of the times in {name!r}, such as Europe/Berlin, got {tz!r} "
            f"({error}): write the offset from UTC into the file"
        ) from error


def _read_texts(texts: pd.Series, time_format: str | None) -> pd.DatetimeIndex:
    """Times of texts, by a format or as ISO 8601; with an offset in every row they become UTC."""
    if time_format is not None:
        read = pd.to_datetime(texts, format=time_format, errors="coerce", utc="%z" in time_format)
        if read.isna().any():
            odd = texts[read.isna()].iloc[0]
            raise ValueError(f"--time-format {time_format!r} does not fit {odd!r}{_advise(texts)}")
        return pd.DatetimeIndex(read)
    iso = texts.str.fullmatch(_ISO)
    zoned = texts.str.fullmatch(_OFFSET)
    if iso.all() and zoned.any() and not zoned.all():
        raise ValueError(
            f"column {texts.name!r} must have an offset from UTC in every row or in none, got "
            f"{texts[zoned].iloc[0]!r} and {texts[~zoned].iloc[0]!r}: write them alike"
        )
    if iso.all():
        plain = texts.str.replace(r"\s*(Z|UTC|GMT)$", "+00:00", regex=True)
        plain = plain.str.replace(r"\s+([-+]\d\d)", r"\1", regex=True)
        read = pd.to_datetime(plain, format="ISO8601", errors="coerce", utc=bool(zoned.any()))
        iso = read.notna()
    if iso.all():
        return pd.DatetimeIndex(read)
    row = int((~iso).to_numpy().argmax())
    raise ValueError(
        f"column {texts.name!r} must hold ISO 8601 times, got {texts.iloc[row]!r:.80} in row "
        f"{row + 1}{_advise(texts)}"
    )


def _advise(texts: pd.Series) -> str:
    """The options by which all texts are times, for an error message."""
    some = texts.drop_duplicates()
    options = []
    numbers = pd.to_numeric(some, errors="coerce")
    if numbers.notna().all():
        for unit in UNITS:
            with np.errstate(all="ignore"):
                years = numbers / (1 if unit == "D" else 86400 * 10.0 ** (3 * UNITS.index(unit)))
            if years.between(3652, 36525).all():  # 1980 to 2070
                options.append(f"--time-unit {unit} for times since 1970")
    for day, hour in product(_DAYS, _HOURS):
        fits = (
            pd.to_datetime(part, format=day + hour, errors="coerce") for part in (some[:1], some)
        )
        digits = "" if re.search(r"\W", (day + hour).replace("%", "")) else day + hour
        if all(
            read.notna().all()
            and read.dt.year.between(1900, 2100).all()
            and not (digits and (read.dt.strftime(digits) != some[: len(read)]).any())
            for read in fits
        ):
            options.append(f"--time-format {quote(day + hour)}")
    if not options and numbers.is_monotonic_increasing and 0 <= numbers.iloc[0] < 1000:
        options = ["--time-unit s for seconds since a start", "--drop it, so that rows are steps"]
    if not options:
        return ": write times as 2024-01-31 14:00, or read them with pandas and call plan(frame)"
    return f"; give {' or '.join(options)}"


def usual_step(values: np.ndarray, times: pd.DatetimeIndex) -> str:
    """Longest median time between a sensor's samples, for --resample; a round time if near."""
    order = np.argsort(times.asi8, kind="stable")
    values, times = values[order], times[order].as_unit("ns")
    medians = []
    for column in values.T:
        distances = np.diff(np.unique(times.asi8[np.isfinite(column)]))
        medians += [float(np.median(distances))] if len(distances) else []
    seconds = max(medians, default=0.0) / 1e9
    for text in _ROUND.split():
        if abs(pd.Timedelta(text).total_seconds() - seconds) < 0.02 * seconds:
            return text
    return f"{round(seconds * 1e6)}us" if 0 < seconds < 1 else f"{max(1, round(seconds))}s"


def note(notes: list[str], flags: np.ndarray, text: str) -> None:
    """Add how many flags are true to the notes, if any is."""
    if count := int(flags.sum()):
        notes.append(f"{text}: {count:,}")


def put_on_grid(
    values: np.ndarray, times: pd.DatetimeIndex, resample: str | None, notes: list[str]
) -> tuple[np.ndarray, pd.DatetimeIndex]:
    """Samples in order of time, on an even grid; missing steps are NaN."""
    note(notes, np.diff(times.asi8) < 0, "rows out of order, sorted")
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
    note(notes, again, "rows that repeat another, left out")
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
