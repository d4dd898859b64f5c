"""Times in a table: which column has them, and what they say."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from aftlib.core.checks import listed

# Numbers of this size that mostly grow are seconds (or ms, µs, ns) since 1970 and no sensor.
_LEAST_EPOCH = 1e8
# The unit is the first with which no time lies after the year 2100.
_UNITS = {"s": 4.102e9, "ms": 4.102e12, "us": 4.102e15}
# Digits of a calendar stamp, such as 202401311400, and their order.
_STAMPS = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
# Years in units of 100 ns, from 1601 (Windows) and from the year 1 (.NET), which ns may resemble.
_TICKS = {1601: (1.24e17, 1.42e17), 1: (6.28e17, 6.47e17)}
_PARTS = ("year", "month", "day", "hour", "minute", "second")
_TIME_OF_DAY = re.compile(r"\s*\d{1,2}:\d\d(:\d\d([.,]\d+)?)?\s*([AaPp][Mm])?\s*$")
# 31.1.2024: with dots the day always comes first. 1/2/2024 may be of January or of February.
_DOTTED = re.compile(r"^(\d{1,2})\.(\d{1,2})\.(\d{4})(?!\d)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}\.\d{1,2}\.\d{4}|\d{9,}(\.\d+)?$")


def looks_like_times(column: pd.Series) -> bool:
    """Whether a column is no number at all, or holds times as numbers that mostly grow."""
    if not pd.api.types.is_numeric_dtype(column.dtype):
        return True
    numbers = column.to_numpy(dtype=float)
    numbers = numbers[np.isfinite(numbers)]
    if len(numbers) < 3 or (np.diff(numbers) > 0).mean() <= 0.9:
        return False
    return bool(numbers.min() >= _LEAST_EPOCH) or _calendar_stamps(column) is not None


def _calendar_stamps(column: pd.Series) -> pd.Series | None:
    """Times of numbers such as 202401311400 (YYYYMMDDhhmm); None unless most rows are dates."""
    numbers = column.to_numpy(dtype=float)
    size = len(f"{numbers[0]:.0f}")
    layout = _STAMPS.get(size)
    if layout is None or not (np.isfinite(numbers) & (numbers % 1 == 0)).all():
        return None
    first_year, last_year = (year * 10.0 ** (size - 4) for year in (1900, 2101))
    if numbers.min() < first_year or numbers.max() >= last_year:
        return None
    times = pd.to_datetime(column.astype("int64").astype(str), format=layout, errors="coerce")
    return None if times.isna().mean() > 0.3 else times  # 24 is no hour, but often written


def require_whole_times(frame: pd.DataFrame) -> None:
    """Refuse dates in several columns: year, month and day, or a column of times of day."""
    names = {str(name).strip().lower(): name for name in frame.columns}
    parts: list[Hashable] = [names[part] for part in _PARTS if part in names]
    if not names.keys() >= set(_PARTS[:3]):
        texts = frame.select_dtypes(exclude="number")
        parts = [
            c
            for c in texts
            if texts[c].astype("string").str.match(_TIME_OF_DAY).fillna(False).all()
        ]
    if parts:
        raise ValueError(
            f"column {listed(parts)} must hold whole times, got parts of them such as "
            f"{str(frame[parts[0]].iloc[0])!r}; join date and time in one column, as in "
            f"2024-01-31 14:00, or leave them out with drop={parts!r}"
        )


def require_heading(frame: pd.DataFrame, looks: Sequence[str]) -> None:
    """Refuse a file whose first line holds samples instead of names."""
    names = [str(name) for name in frame.columns]
    samples = all(re.fullmatch(r"[-+]?\d*\.\d+", name) for name in names if name not in looks)
    if any(_DATE.match(str(name)) for name in looks[:1]) or (samples and len(names) > len(looks)):
        raise ValueError(
            f"columns must have names, got {listed(names)}: put a line of names before the first "
            "samples"
        )


def _require_plain_numbers(column: pd.Series, name: str) -> None:
    """Refuse calendar stamps that are no dates, and numbers that may count 100 ns."""
    numbers = column.to_numpy(dtype=float)
    wrong, size = None, float(np.nanmax(np.abs(numbers)))
    stamps = _calendar_stamps(column)
    if stamps is not None and stamps.isna().any():
        row = int(stamps.isna().argmax())
        wrong = f"dates, got {numbers[row]:.0f} in row {row + 1}"
    for year, (least, most) in _TICKS.items():
        if least <= size <= most:
            wrong = f"numbers since 1970, got {size:.0f}, which may count 100 ns since year {year}"
    if wrong:
        raise ValueError(f"column {name!r} must hold {wrong}; write times as 2024-01-31 14:00")


def as_times(column: pd.Series, name: str) -> pd.DatetimeIndex:
    """Times of a column: ISO 8601, numbers since 1970 or calendar stamps; ValueError for others."""

    def year_first(found: re.Match[str]) -> str:
        return f"{found[3]}-{int(found[2]):02}-{int(found[1]):02}"

    numeric = pd.api.types.is_numeric_dtype(column.dtype)
    if numeric:
        _require_plain_numbers(column, name)
    try:
        if numeric:
            stamps = _calendar_stamps(column)
            size = float(np.nanmax(np.abs(column.to_numpy(dtype=float))))
            unit = next((unit for unit, most in _UNITS.items() if size <= most), "ns")
            times = pd.DatetimeIndex(
                pd.to_datetime(column, unit=unit) if stamps is None else stamps  # type: ignore[call-overload]
            )
        else:
            if _DOTTED.match(str(column.iloc[0])):
                column = column.astype("string").str.replace(_DOTTED, year_first, regex=True)
            # of times with offsets, which change in spring and autumn, only UTC is even
            offsets = bool(column.astype(str).str.contains(r"\d(?:Z|[+-]\d\d:?\d\d)$").all())
            times = pd.DatetimeIndex(pd.to_datetime(column, format="ISO8601", utc=offsets))
    except (ValueError, TypeError) as error:
        row = 0
        if not numeric:  # several notations are no reason to name a time that is one
            read = pd.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
            odd = (read.isna() & column.notna()).to_numpy()
            row = int(odd.argmax())
            if not odd.any():
                raise ValueError(
                    f"column {name!r} must have an offset from UTC in every row or in none, got "
                    f"{column.iloc[0]!r:.80} and others; write them alike"
                ) from error
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
