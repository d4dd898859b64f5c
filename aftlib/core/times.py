"""Times in a table: which column has them, and what they say."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from aftlib.core.checks import listed

# A number is that many since 1970 from here on; sensors with such values that only grow are none.
_EPOCH = {"ns": 1e17, "us": 1e14, "ms": 1e11, "s": 1e8}
# 31.1.2024: with dots the day always comes first. 1/2/2024 may be of January or of February.
_DOTTED = re.compile(r"^(\d{1,2})\.(\d{1,2})\.(\d{4})(?!\d)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}\.\d{1,2}\.\d{4}|\d{9,}(\.\d+)?$")
_TIME_NAMES = {"time", "date", "datetime", "timestamp"}


def looks_like_times(column: pd.Series) -> bool:
    """Whether a column is no number at all, or holds numbers since 1970 that mostly grow."""
    if not pd.api.types.is_numeric_dtype(column.dtype):
        return True
    numbers = column.to_numpy(dtype=float)
    numbers = numbers[np.isfinite(numbers)]
    since_1970 = len(numbers) > 2 and numbers.min() >= _EPOCH["s"]
    return bool(since_1970 and (np.diff(numbers) > 0).mean() > 0.9)


def require_heading(frame: pd.DataFrame, looks: Sequence[str]) -> None:
    """Refuse samples in the place of names, and times that would be taken for a sensor."""
    names = [str(name) for name in frame.columns]
    samples = all(re.fullmatch(r"[-+]?\d*\.\d+", name) for name in names if name not in looks)
    if any(_DATE.match(str(name)) for name in looks[:1]) or (samples and len(names) > len(looks)):
        raise ValueError(
            f"columns must have names, got {listed(names)}: put a line of names before the first "
            "samples"
        )
    for column in frame.columns if not looks else ():
        numbers = frame[column].to_numpy(float)
        if str(column).lower() in _TIME_NAMES and (np.diff(numbers) > 0).all():
            raise ValueError(
                f"column {column!r} only grows, but holds no times since 1970, from "
                f"{frame[column].iloc[0]} to {frame[column].iloc[-1]}: write times as 2024-01-31 "
                f"14:00, take them as seconds by time={column!r}, or leave the column out with "
                f"drop=[{column!r}]"
            )


def as_times(column: pd.Series, name: str) -> pd.DatetimeIndex:
    """Times of a column, ISO 8601 or numbers since 1970; ValueError when it holds others."""

    def year_first(found: re.Match[str]) -> str:
        return f"{found[3]}-{int(found[2]):02}-{int(found[1]):02}"

    numeric = pd.api.types.is_numeric_dtype(column.dtype)
    try:
        if numeric:
            size = float(np.nanmedian(np.abs(column.to_numpy(dtype=float))))
            unit = next((unit for unit, least in _EPOCH.items() if size >= least), "s")
            times = pd.DatetimeIndex(pd.to_datetime(column, unit=unit))  # type: ignore[call-overload]
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
