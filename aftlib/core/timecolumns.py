"""Times and durations in tables: dates, numbers since 1970, and stamps such as 202401311400.

A column that may mean something else, such as days or yymmddHHMM, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.checks import listed
from aftlib.core.textfile import DOTTED

# Numbers of this size that mostly grow are seconds (or ms, µs, ns) since 1970 and no sensor.
_LEAST_EPOCH = 1e8
# The unit is the first with which no time lies after the year 2100.
_UNITS = {"s": 4.102e9, "ms": 4.102e12, "us": 4.102e15}
# Digits of a calendar stamp, such as 202401311400, and their order.
_STAMPS = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
# Other digits of dates and times, which resemble numbers since 1970, by their number.
_AMBIGUOUS = {
    9: ["%y%j%H%M", "%Y%j%H"],
    10: ["%y%m%d%H%M", "%d%m%y%H%M", "%m%d%y%H%M", "%m%d%H%M%S", "%d%m%Y%H", "%m%d%Y%H"],
    11: ["%Y%j%H%M", "%y%j%H%M%S"],
    12: ["%y%m%d%H%M%S", "%d%m%y%H%M%S", "%m%d%y%H%M%S", "%d%m%Y%H%M", "%m%d%Y%H%M"],
    13: ["%Y%j%H%M%S"],
    14: ["%d%m%Y%H%M%S", "%m%d%Y%H%M%S"],
    15: ["%y%m%d%H%M%S%f", "%Y%m%d%H%M%S%f"],
    **dict.fromkeys((16, 17, 18), ["%Y%m%d%H%M%S%f"]),
}
# Numbers of 100 ns since 1601 (Windows) and the year 1 (.NET), which resemble ns since 1970.
_OTHER_COUNTS = {
    "100 ns since year 1601": (1.24e17, 1.42e17),
    "100 ns since year 1": (6.28e17, 6.47e17),
}
# Seconds of the years 1980 and 2065. Counts of other units or since other years, read as ms, µs or
# ns since 1970, lie before; numbers since 1900 (NTP) and 1904 (LabVIEW) lie after.
_USUAL = (3.155e8, 3.0e9)
_PER_SECOND = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}
# Days since 1858 (modified Julian) or 1899 (Excel), the year 0 or 1 (MATLAB, Python), and 4713 BC.
_DAYS = ((3.6e4, 6.5e4), (7e5, 7.8e5), (2.4e6, 2.5e6))
_ROUND = "1s 2s 5s 10s 15s 20s 30s 1min 2min 5min 10min 15min 20min 30min 1h 2h 3h 6h 12h 1D 7D"
_PARTS = (
    ("year", "month", "day", "hour", "minute", "second"),
    ("jahr", "monat", "tag", "stunde", "minute", "sekunde"),
    ("année", "mois", "jour", "heure", "minute", "seconde"),
    ("annee", "mois", "jour", "heure", "minute", "seconde"),
)
_TIME_OF_DAY = r"\s*\d{1,2}:\d\d(:\d\d([.,]\d+)?)?\s*([AaPp][Mm])?\s*"


def duration(name: str, text: str) -> pd.Timedelta:
    """Return a duration such as "2s", "10min" or "1.5h", read by `pandas.Timedelta`.

    ValueError, which names the argument `name`, for a text that is no duration, is not above 0, or
    has no unit.
    """
    try:
        length = pd.Timedelta(text)
        if re.search(r"[a-zµ:]", text, re.I) and length > pd.Timedelta(0):
            return length
    except (ValueError, TypeError):
        pass
    raise ValueError(
        f"{name} must be a duration such as '2s', '500ms' or '10min', got {text!r}: write a number "
        "above 0 and a unit"
    )


def looks_like_times(column: pd.Series) -> bool:
    """Whether a column is not numeric, or holds numbers that mostly grow and may be times."""
    if not pd.api.types.is_numeric_dtype(column.dtype):
        return True
    numbers = column.to_numpy(dtype=float)
    numbers = numbers[np.isfinite(numbers)]
    if len(numbers) < 3:
        return False
    grows = (np.diff(numbers) > 0).mean() > 0.9
    steps = np.diff(np.sort(numbers))  # rows may come in any order
    distinct = (steps > 0).mean() > 0.9
    even = distinct and (steps == np.median(steps)).mean() > 0.9
    if numbers.min() >= _LEAST_EPOCH and (grows or even):
        return True
    return bool((grows or distinct) and _calendar_stamps(column) is not None)


def may_be_elapsed(numbers: np.ndarray) -> bool:
    """Whether numbers may be seconds since 1970 or a start, not digits of a date or minutes."""
    least, most = float(numbers.min()), float(numbers.max())
    if least < 0 or most >= _LEAST_EPOCH:
        return True
    steps = np.diff(numbers)
    if len(numbers) > 1 and ((numbers % 10_000 >= 1900) & (numbers % 10_000 <= 2100)).all():
        return False  # ddmmyyyy
    parts = numbers % 100, numbers // 100 % 100  # of HHMM, or of HHMMSS
    minutes = 100 <= most < 2400 and (parts[0] < 60).all() and (parts[0] > 0).any()
    seconds = 2400 <= most < 240_000 and (np.array(parts) < 60).all()
    return least <= most - least and not ((minutes or seconds) and (steps != steps[0]).any())


def require_elapsed(column: pd.Series) -> None:
    """Refuse small numbers of seconds that may instead be digits of a date or another unit."""
    if len(column) < 2 or not pd.api.types.is_numeric_dtype(column.dtype):
        return
    numbers = column.to_numpy(dtype=float)
    if _calendar_stamps(column) is None and not may_be_elapsed(numbers):
        raise ValueError(
            f"column {column.name!r} must hold seconds, got {numbers[0]:.9g} first, which may be "
            "digits of a date or another unit; write times as 2024-01-31 14:00"
        )


def _calendar_stamps(column: pd.Series) -> pd.Series | None:
    """Times of numbers such as 202401311400 (YYYYMMDDhhmm); None unless most rows are dates."""
    numbers = column.to_numpy(dtype=float)
    size = len(f"{numbers[0]:.0f}")
    if size not in _STAMPS or not (np.isfinite(numbers) & (numbers % 1 == 0)).all():
        return None
    first_year, last_year = (year * 10.0 ** (size - 4) for year in (1900, 2101))
    if numbers.min() < first_year or numbers.max() >= last_year:
        return None
    times = pd.to_datetime(
        column.astype("int64").astype(str), format=_STAMPS[size], errors="coerce"
    )
    return None if times.isna().mean() > 0.3 else times  # 24 is no hour, but often written


def _ambiguous_digits(column: pd.Series) -> str:
    """Layout such as "yymmddHHMM" in which most numbers are dates; "" if there is none."""
    some = column.iloc[:: -(-len(column) // 1000)]
    numbers = some.to_numpy(dtype=float)
    if not (np.isfinite(numbers) & (numbers % 1 == 0) & (numbers >= 0)).all():
        return ""
    texts = some.astype("int64").astype(str)
    longest = int(texts.str.len().max())
    # a grid in seconds only is one of seconds, because stamps jump at the end of an hour
    even = longest <= 10 and len(some) > 2 and _even(numbers)
    for size in (longest, longest + 1):  # a zero in front is lost
        for layout in _AMBIGUOUS.get(size, ()):
            dates = texts.str.zfill(size)
            if "y" not in layout.lower():
                dates, layout = "2000" + dates, "%Y" + layout
            read = pd.to_datetime(dates, format=layout, errors="coerce")
            same = read.dt.strftime(layout).str[: int(dates.str.len().max())] == dates
            if even and not (read.notna().all() and _even(read.to_numpy().astype("int64"))):
                continue
            if (same & read.dt.year.between(1900, 2100)).mean() >= 0.7:
                return _in_letters(layout, size)
    return ""


def _even(numbers: np.ndarray) -> bool:
    """Whether all differences are equal."""
    steps = np.diff(np.sort(numbers))
    return bool((steps == steps[0]).all())


def _in_letters(layout: str, size: int) -> str:
    """A layout such as "%y%m%d" in the letters "yymmdd"."""
    named = {"%Y": "yyyy", "%y": "yy", "%m": "mm", "%d": "dd", "%j": "jjj", "%f": "f" * size}
    named |= {"%H": "HH", "%M": "MM", "%S": "SS"}
    letters = re.sub("%.", lambda part: named[part[0]], layout)
    return letters[:size] if "%f" in layout else letters[-size:]


def may_count_days(numbers: np.ndarray) -> bool:
    """Whether numbers that are at most one apart may be days since a usual origin."""
    if not len(numbers) or not np.isfinite(numbers).all():
        return False
    usual = np.median(np.abs(np.diff(numbers))) if len(numbers) > 1 else 0.0
    sized = any(least <= numbers.min() and numbers.max() <= most for least, most in _DAYS)
    return bool(sized and usual <= 1)


def require_whole_times(frame: pd.DataFrame) -> None:
    """Refuse dates in several columns: year, month and day, or a column of times of day."""
    names = {str(name).strip().lower(): name for name in frame.columns}
    parts: list[Hashable] = []
    for words in _PARTS:
        if names.keys() >= set(words[:3]):
            parts = [names[part] for part in words if part in names]
    if not parts:
        texts = frame.select_dtypes(exclude="number").astype("string")
        parts = [
            name for name in texts if texts[name].str.fullmatch(_TIME_OF_DAY).fillna(False).all()
        ]
    if parts:
        raise ValueError(
            f"column {listed(parts)} must hold whole times, got parts of them such as "
            f"{str(frame[parts[0]].iloc[0])!r}; join date and time in one column, as in "
            f"2024-01-31 14:00, or leave them out with drop={parts!r}"
        )


def as_times(column: pd.Series, name: str, tz: str | None = None) -> pd.DatetimeIndex:
    """Times of a column: ISO 8601, numbers since 1970 or calendar stamps; ValueError for others.

    Local times of the zone `tz` become UTC.
    """
    times = _read_times(column, name)
    if tz is None:
        return times
    epoch = pd.api.types.is_numeric_dtype(column.dtype) and _calendar_stamps(column) is None
    if times.tz is not None or epoch:
        raise ValueError(
            f"tz must be given with local times only, got {tz!r} for {name!r}, whose times have an "
            "offset from UTC or count from 1970: leave it out"
        )
    try:
        return times.tz_localize(tz, ambiguous="infer").tz_convert("UTC")
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"tz must be the zone of the times in {name!r}, such as Europe/Berlin, got {tz!r} "
            f"({error}); write the offset from UTC into the file"
        ) from error


def _read_times(column: pd.Series, name: str) -> pd.DatetimeIndex:
    """Times of a column, without a zone where it names no offsets."""
    numeric = pd.api.types.is_numeric_dtype(column.dtype)
    try:
        times = _times_of_numbers(column, name) if numeric else _times_of_texts(column)
    except (ValueError, TypeError) as error:
        row = 0
        if not numeric:  # name a cell that is no time, not one in a different notation
            read = pd.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
            odd = (read.isna() & column.notna()).to_numpy()
            row = int(odd.argmax())
            if not odd.any():
                raise ValueError(
                    f"column {name!r} must have an offset from UTC in every row or in none, got "
                    f"{column.iloc[0]!r:.80} and others; write them alike"
                ) from error
        elif str(error).startswith("column"):
            raise
        raise ValueError(
            f"column {name!r} must hold numbers or ISO 8601 times, got {column.iloc[row]!r:.80} in "
            f"row {row + 1}; write times as 2024-01-31 14:00, or, if it holds none, leave it out "
            f"with drop=[{name!r}] or name the column of times with time="
        ) from error
    if times.hasnans:
        row = int(times.isna().argmax()) + 1
        raise ValueError(
            f"column {name!r} must have a time in every row, got an empty one in row {row}; remove "
            "such rows"
        )
    return times


def _times_of_numbers(column: pd.Series, name: str) -> pd.DatetimeIndex:
    """Times of numbers; ValueError for stamps that are no dates, and for ambiguous numbers."""
    numbers, stamps = column.to_numpy(dtype=float), _calendar_stamps(column)
    if np.isnan(numbers).any():
        gaps = np.where(np.isnan(numbers), np.datetime64("NaT", "ns"), np.datetime64(0, "ns"))
        return pd.DatetimeIndex(gaps)  # refused by its gaps
    size, wrong = float(np.nanmax(np.abs(numbers))), ""
    unit: Any = next((unit for unit, most in _UNITS.items() if size <= most), "ns")
    if may_count_days(numbers):
        wrong = f"seconds since 1970, got {numbers[0]:.9g}, which may count days"
    elif stamps is None and (other := _other_meaning(column, numbers, unit)):
        wrong = f"numbers since 1970, got {other}"
    elif stamps is not None and stamps.isna().any():
        row = int(stamps.isna().argmax())
        wrong = f"dates, got {numbers[row]:.0f} in row {row + 1}"
    if wrong:
        raise ValueError(f"column {name!r} must hold {wrong}; write times as 2024-01-31 14:00")
    return pd.DatetimeIndex(pd.to_datetime(column, unit=unit) if stamps is None else stamps)


def _other_meaning(column: pd.Series, numbers: np.ndarray, unit: str) -> str:
    """The number that may have another unit or first year, and which; "" if there is none."""
    least, most = np.nanmin(numbers), np.nanmax(numbers)
    if digits := _ambiguous_digits(column):
        return f"{numbers[0]:.0f}, which may also be {digits}"
    for count, (low, high) in _OTHER_COUNTS.items():
        if low <= most <= high:
            return f"{most:.0f}, which may count {count}"
    fractions = numbers[0] >= 1e11 and not (numbers % 1 == 0).all()
    if fractions and _calendar_stamps(pd.Series(np.floor(numbers))) is not None:
        return f"{numbers[0]}, which may also be a date's digits"
    if most / _PER_SECOND[unit] >= _USUAL[1]:
        name = {"s": "seconds", "us": "µs"}.get(unit, unit)
        return f"{most:.0f}, which may count {name} since 1900 or 1904"
    if unit != "s" and least / _PER_SECOND[unit] < _USUAL[0]:
        return f"{least:.0f}, which may have another unit or first year"
    return ""


def _times_of_texts(column: pd.Series) -> pd.DatetimeIndex:
    if DOTTED.match(str(column.iloc[0])):
        column = column.astype("string").str.replace(
            DOTTED, lambda date: f"{date[3]}-{int(date[2]):02}-{int(date[1]):02}", regex=True
        )
    # offsets change in spring and autumn, so that only UTC has even steps
    offsets = bool(
        column.astype(str).str.contains(r"\d(?:Z|[+-]\d\d:?\d\d)$|:\d\d(?:\.\d+)?[+-]\d\d$").all()
    )
    return pd.DatetimeIndex(pd.to_datetime(column, format="ISO8601", utc=offsets))


def advise_grid(values: np.ndarray, times: pd.DatetimeIndex) -> str:
    """Return the fix for rows that lie on no even grid; calendar months have a fix of their own."""
    one_day = (times.day == times.day[0]).all() or times.is_month_end.all()
    if one_day and np.diff(times).min() >= pd.Timedelta(days=28):
        return "months differ in length: leave that column out with drop=, so that a row is a step"
    return f"average the rows around each step with, say, resample={usual_step(values, times)!r}"


def usual_step(values: np.ndarray, times: pd.DatetimeIndex) -> str:
    """Median time between a sensor's samples, for `resample`; a round time if one is within 2 %."""
    distances = [np.diff(times[np.isfinite(column)].unique().asi8) for column in values.T]
    usual = np.median([np.median(some) for some in distances if len(some)] or [0])
    seconds = pd.Timedelta(int(usual), unit=times.unit).total_seconds()
    for text in _ROUND.split():
        if abs(pd.Timedelta(text).total_seconds() - seconds) < 0.02 * seconds:
            return text
    return f"{round(seconds * 1e6)}us" if 0 < seconds < 1 else f"{max(1, round(seconds))}s"
