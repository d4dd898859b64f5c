"""Times of a user's table: texts, numbers and local times become an index, then an even grid.

What is not certain is refused with the options of `aft plan` that read it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype

from aftlib.sensor_plans.sensor_checks import (
    IN_PYTHON,
    MOST_MISSING,
    SKIP_LINES,
    as_texts,
    require_polled,
)

#: Units of times that are numbers: how many are a day, and the day from 1970 that is number 0.
TIME_UNITS = {
    "s": (86_400.0, 0.0),
    "ms": (86_400e3, 0.0),
    "us": (86_400e6, 0.0),
    "ns": (86_400e9, 0.0),
    "D": (1.0, 0.0),
    "excel": (1.0, -25_569.0),  # days since 1899-12-30
    "matlab": (1.0, -719_529.0),  # days since the year 0
}
#: Most decimals of a day number whose time is rounded to a second.
DAY_DIGITS = 6
#: Steps that messages offer for --resample.
STEPS = ("10ms", "100ms", "1s", "10s", "1min", "10min", "1h", "1D")
_CLOCK = re.compile(r"date|date.?time|time|time.?stamp|ts|datum|zeit|zeitstempel|epoch", re.I)
DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}\b.*|\d{1,2}[- ][A-Za-z]{3,}[- ]\d{2,4}.*")


def columns_like_times(frame: pd.DataFrame) -> list[str]:
    """Names of the columns that are called like times, or begin with a date."""
    names = []
    for name, column in frame.items():
        cell = "".join(column.dropna()[:1].astype(str)).strip()
        if _CLOCK.fullmatch(str(name)) or DATE.fullmatch(cell):
            names.append(str(name))
    return names


def read_times(column: pd.Series, time_format: str | None, unit: str | None) -> pd.DatetimeIndex:
    """Times of a column; ValueError, with the options that may read it, for what is not certain."""
    if unit is not None:
        return _read_numbers(column, unit)
    texts = as_texts(column)
    form: dict[str, Any] = {}
    if time_format is not None:
        column = texts
        form = {"format": time_format, "utc": "%z" in time_format}
    elif not is_datetime64_any_dtype(column.dtype):
        plain = texts.str.replace(r"\s*(Z|UTC|GMT)$", "+00:00", regex=True)
        zoned = plain.str.contains(r":\d\d.*[-+]\d\d", regex=True, na=False)
        alike = plain.str.match(r"\d{4}-\d\d-\d\d", na=False) & (zoned == (zoned.mean() > 0.5))
        column = plain.where(alike)
        form = {"format": "ISO8601", "utc": zoned.mean() > 0.5}
    read = pd.to_datetime(column, errors="coerce", **form)
    if (bad := read.isna()).any():
        wanted = time_format or "ISO 8601, all or none with an offset from UTC"
        raise _no_times(column, texts, bad, wanted)
    return pd.DatetimeIndex(read, name=column.name)


def _no_times(column: pd.Series, texts: pd.Series, bad: pd.Series, wanted: str) -> ValueError:
    """The error for cells that hold no times, with the options that may read them."""
    unit = _unit_of(pd.to_numeric(texts, errors="coerce"))
    offer = "s, ms, us, ns, D, or excel or matlab for their day numbers"
    if unit is not None:
        offer = f"--time-unit {unit} would fit, of {offer}"
    return ValueError(
        f"column {column.name!r} must hold times ({wanted}) in every row, got "
        f"{texts[bad].iloc[0]!r:.80} in row {int(bad.to_numpy().argmax()) + 1} ({bad.sum():,} "
        "such); name their --time-format, such as '%d.%m.%Y %H:%M' or '%m/%d/%Y %I:%M %p', or the "
        f"--time-unit of numbers: {offer}; {SKIP_LINES}; leave out a column of no times by --drop; "
        f"or {IN_PYTHON}"
    )


def _unit_of(numbers: pd.Series) -> str | None:
    """The unit with which most of the numbers are times from 1980 to 2065, None if there is none.

    >>> _unit_of(pd.Series([47882.04167])), _unit_of(pd.Series([741842.0]))
    ('excel', 'matlab')
    """
    middle = float(numbers.median())
    for unit, (per_day, epoch) in TIME_UNITS.items():
        if 3_653 <= middle / per_day + epoch <= 34_700:
            return unit
    return None


def _read_numbers(column: pd.Series, unit: str) -> pd.DatetimeIndex:
    """Times that are numbers of a unit; days are rounded to seconds where they have no more digits.

    ValueError for what is no number, and for days that only another origin makes plausible.
    """
    texts = as_texts(column)
    numbers = pd.to_numeric(column, errors="coerce")
    if (bad := numbers.isna()).any():
        raise _no_times(column, texts, bad, unit)
    other = _unit_of(numbers)
    if unit == "D" and other in ("excel", "matlab"):
        raise ValueError(
            f"column {column.name!r} must hold days since 1970, got {texts.iloc[0]!r:.80}, which "
            f"would be in {1970 + int(numbers.iloc[0] / 365.25)}; give --time-unit {other}"
        )
    known: Any = unit
    per_day, epoch = TIME_UNITS[unit]
    if unit not in ("D", "excel", "matlab"):
        return pd.DatetimeIndex(pd.to_datetime(numbers, unit=known, utc=True), name=column.name)
    seconds = (numbers + epoch) * 86_400
    exact = pd.to_datetime(seconds.round(3), unit="s", utc=True)
    rounded = pd.to_datetime(seconds.round(), unit="s", utc=True)
    fits = bool((np.abs(seconds - seconds.round()) < 0.5).all())
    coarse = texts.str.partition(".")[2].str.len().max() <= DAY_DIGITS
    times = pd.DatetimeIndex(rounded if coarse and fits else exact, name=column.name)
    return times if unit == "D" else times.tz_localize(None)


def localize(times: pd.DatetimeIndex, tz: str, ids: pd.Series | None) -> pd.DatetimeIndex:
    """Local times of a zone in UTC; of each sensor alone where `ids` names the rows' sensors.

    The hour that the clocks repeat is told apart by the order of rows, oldest or newest first.
    ValueError if the order does not tell, or for a zone that does not fit.
    """
    if ids is None:
        return _localize_ordered(times, tz)
    parts = pd.Series(np.arange(len(times))).groupby(ids.to_numpy(), sort=False)
    order = np.concatenate([part.to_numpy() for _, part in parts])
    each = [_localize_ordered(times[part.to_numpy()], tz) for _, part in parts]
    together = pd.DatetimeIndex(
        np.concatenate([part.as_unit("ns").asi8 for part in each]), tz="UTC"
    )
    return together[np.argsort(order)]


def _localize_ordered(times: pd.DatetimeIndex, tz: str) -> pd.DatetimeIndex:
    """Local times in UTC whose rows are in order of time, oldest or newest first."""
    if (np.diff(times.asi8) < 0).mean() > 0.5:  # newest first
        return _localize_ordered(times[::-1], tz)[::-1]
    try:
        repeated = np.asarray(times.tz_localize(tz, ambiguous="NaT").isna())
    except Exception as error:  # also pytz's own of pandas 2, which are no ValueError
        raise ValueError(
            f"--tz must be the zone of local times, such as Europe/Berlin, got {tz!r}: {error}; "
            "leave it out, or write the offset from UTC into the file"
        ) from error
    if not repeated.any():
        return times.tz_localize(tz).tz_convert("UTC")
    with suppress(Exception):
        utc = times.tz_localize(tz, ambiguous="infer").tz_convert("UTC")
        if utc.is_monotonic_increasing:
            return utc
    raise ValueError(
        "rows must be in order of time for --tz, and have both hours when clocks are set back, got "
        f"{times[repeated][0]}, which may be either; sort the file, or write the offset from "
        "UTC into it"
    )


def require_distinct(
    index: pd.Index, time: str, others: Sequence[str], long: bool, joined: bool, zoned: bool
) -> None:
    """Refuse two rows of one time, or two samples of one time and sensor.

    `time` is the column of times, and `others` may hold times, too. The last three say whether
    --long, several columns of --time, and --tz were given: what was given is not advised again.
    """
    if not len(twice := index[index.duplicated()]):
        return
    fixes = [f"--time {quote(name)} if that column has the times" for name in others]
    if not long:
        fixes.append("--long TIME,SENSOR,VALUE if a row is one sample")
    if not joined:
        besides = " besides --long" * long
        fixes.append(f"--time DATE,HOUR{besides} if another column has the hour")
    if not zoned:
        fixes.append("--tz if clocks were set back")
    fixes.append("--resample 1h for means of the rows of an hour")
    raise ValueError(
        f"rows must differ in time, got two at {twice[0]!s} in column {time!r} ({len(twice):,} "
        f"such); give {', '.join(fixes[:-1])}, or {fixes[-1]}"
    )


def require_ns(times: pd.DatetimeIndex, name: object, csv: bool) -> None:
    """Refuse times that nanoseconds since 1970 do not reach: before 1678 or after 2261."""
    years = np.asarray(times.year)
    if (bad := (years < 1678) | (years > 2261)).any():
        row = int(bad.argmax()) + 1
        leave_out = f"--csv 'skiprows=[{','.join(map(str, np.flatnonzero(bad) + 1))}]'"
        fix = f"leave such rows out by {leave_out}" if csv and bad.sum() <= 9 else "leave them out"
        raise ValueError(
            f"column {name!r} must hold times from 1678 to 2261, got {times[bad][0]} in row {row} "
            f"({bad.sum():,} such); {fix}, or {IN_PYTHON}"
        )


def as_duration(name: str, text: str) -> pd.Timedelta:
    """Return a duration such as "2s" or "10min"; ValueError, with `name`, for another text."""
    with suppress(ValueError, TypeError):
        length = pd.Timedelta(text)
        if re.search(r"[a-zµ:]", str(text), re.I) and length > pd.Timedelta(0):
            return length.as_unit("ns")
    raise ValueError(f"{name} must be a duration such as '2s', '500ms' or '10min', got {text!r}")


def put_on_grid(frame: pd.DataFrame, resample: str | None, notes: list[str]) -> pd.DataFrame:
    """Samples at times in order, on an even grid; missing steps are NaN."""
    times = pd.DatetimeIndex(frame.index).as_unit("ns")
    if resample is None:
        period = pd.Series(times).diff().mode()[0]
    else:
        period = as_duration("--resample", resample)
        # rows in the middle of steps, such as 00:30 and 01:30 for hours, belong to the step before
        phase = (times.asi8 % period.value) / period.value
        middle = np.cos(2 * np.pi * phase).mean() < -0.5
        times = (times if middle else times + period / 2).floor(period)
        require_polled(frame)
        notes.append(f"rows averaged into steps of {resample}: {len(frame):,}")
    away = times.asi8 - times.asi8[0]
    steps = away // period.value
    off = int(np.sum(away % period.value != 0))
    samples = frame
    frame = frame.groupby(steps).mean()
    share = frame.notna().sum().max() / (steps[-1] + 1)
    if off or share < 1 - MOST_MISSING:
        raise ValueError(
            f"rows must lie on even steps, and on half of them, got {off:,} off the steps of "
            f"{period} and samples at {100 * share:.0f} % of these; average the rows of longer "
            f"steps, such as --resample {offer_step(samples)}; if they are recorded when the value "
            "changes, hold the last in Python: plan(frame.resample('1min').ffill()); or plan the "
            "rows after a long gap: plan(frame.loc['2026-07':])"
        )
    frame = frame.reindex(np.arange(steps[-1] + 1))
    return frame.set_axis(pd.date_range(times[0], periods=len(frame), freq=period), axis=0)


def offer_step(samples: pd.DataFrame) -> str:
    """The shortest of the usual `STEPS` that is not shorter than the typical one of a sensor."""
    times = pd.DatetimeIndex(samples.index).as_unit("ns").asi8
    of_sensors = [np.diff(np.unique(times[column.notna()])) for _, column in samples.items()]
    medians = [np.median(distances) for distances in of_sensors if len(distances)]
    typical = 0.9 * np.median(medians) if medians else 0.0
    longer = [step for step in STEPS if pd.Timedelta(step).value >= typical]
    return longer[0] if longer else STEPS[-1]
