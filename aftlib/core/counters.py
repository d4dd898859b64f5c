"""Columns of numbers that are no sensors: clocks, counters, row numbers and parts of dates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from aftlib.core.checks import listed
from aftlib.core.timecolumns import may_be_elapsed, may_count_days

ROWS = 24
"""A column of fewer rows is judged by its name and size only."""
RISES = 8
"""Least number of rises by which a counter is known."""
STEADY = 0.8
"""With this share of equal changes, a column is a clock or a counter that starts again."""
RESETS, GLITCHES = 0.1, 0.005
"""Largest shares of falls in a counter's changes: to near its smallest value, and to any value."""
LARGE = 1e8
"""A column of such numbers that never falls holds times or a counter, however rarely it rises."""
NAMELESS = re.compile(r"Unnamed: 0|index|")
_CLOCK = re.compile(r"date|date.?time|time|time.?stamp|datum|zeit|zeitstempel", re.I)
_PART = re.compile(
    r"year|month|day|hour|minute|second|week|week.?day|day.?of.?(week|month|year)|doy|dow|"
    r"jahr|monat|tag|stunde|sekunde|woche|kw|wochentag|ann[ée]e|mois|jour|heure|seconde|semaine",
    re.I,
)


def numbers_rows(column: pd.Series) -> bool:
    """Whether a column holds row numbers in order; a column without a name, in any order."""
    if not pd.api.types.is_numeric_dtype(column.dtype) or len(column) < 2:
        return False
    numbers = column.to_numpy(dtype=float)
    if NAMELESS.fullmatch(str(column.name)):
        return bool((np.diff(np.sort(numbers)) == 1).all())
    # a second per row since 1970 numbers no rows
    small = len(column) >= ROWS and numbers[0] < LARGE and np.isfinite(numbers).all()
    return bool(small and (np.diff(numbers) == 1).all())


def require_no_counters(
    columns: pd.Index, values: np.ndarray, timed: bool, measured: Sequence[str] = ()
) -> None:
    """Refuse clocks, counters, shuffled row numbers and parts of dates among values (steps, n).

    `timed` says that another column holds the times. Columns in `measured` are not refused.
    """
    finite = {
        name: column[np.isfinite(column)] for name, column in zip(columns, values.T, strict=True)
    }
    named = {name for name, column in finite.items() if _is_named_as_time(str(name), column)}
    matches = [name for name, column in finite.items() if name in named or _counts(column)]
    if not timed:
        clocks = [name for name in finite if _is_clock_of_few_rows(name, finite)]
        matches = list(dict.fromkeys([*clocks, *matches]))
    matches = [name for name in matches if name not in measured]
    if not matches:
        return
    name, column = matches[0], finite[matches[0]]
    part = bool(_PART.fullmatch(str(name).strip()))
    other = timed or part or may_count_days(column) or not may_be_elapsed(column)
    times = "" if other else f"take it as times with time={name!r}, "
    raise ValueError(
        f"column {listed(matches)} must hold measurements, got values of a clock, a counter or row "
        f"numbers, from {column[0]:g} to {column[-1]:g}, and no times since 1970; {times}leave it "
        f"out with drop={matches[:8]!r}, or, if it is measured, give measured={matches[:8]!r}, or "
        "replace a meter's readings by their differences; write days as 2024-01-31 14:00"
    )


def _is_named_as_time(name: str, column: np.ndarray) -> bool:
    """Whether a column is called like a time, or like a part of dates and holds whole numbers."""
    whole = bool((column % 1 == 0).all())
    return bool(_CLOCK.fullmatch(name.strip()) or (whole and _PART.fullmatch(name.strip())))


def _is_clock_of_few_rows(name: str, columns: Mapping[str, np.ndarray]) -> bool:
    """Whether a column rises in equal steps, or the first one often and always, unlike another."""
    steps, others = np.diff(columns[name]), [each for key, each in columns.items() if key != name]
    if len(steps) < 2 or not (steps > 0).all() or all(_equal(other) for other in others):
        return False
    first = name == next(iter(columns))
    return _equal(columns[name]) and (first or len(steps) > 2) or (first and len(steps) >= RISES)


def _equal(column: np.ndarray) -> bool:
    """Whether all changes of a column are equal."""
    steps = np.diff(column)
    return bool(np.isclose(steps, steps[:1], rtol=1e-6).all())


def _counts(column: np.ndarray) -> bool:
    """Whether a column grows, apart from rare falls, or in equal steps, or numbers the rows."""
    if len(column) < 2:
        return False
    steps = np.diff(column)
    backward = bool(steps.any() and np.median(steps[steps != 0]) < 0)
    if backward:  # the newest row first
        column, steps = column[::-1], -steps[::-1]
    falls, rises = int((steps < 0).sum()), int((steps > 0).sum())
    if not falls and rises and column[0] >= LARGE:
        return True
    if len(column) < ROWS:
        return False
    usual, shuffled = np.median(steps), bool((np.diff(np.sort(column)) == 1).all())
    if shuffled or (backward and (usual == 0 or (steps == usual).mean() < STEADY)):
        return shuffled  # a battery or a tank falls, too
    changes = steps[steps != 0]
    steady = rises + falls > 0 and (changes == np.median(changes)).mean() >= STEADY
    # the first value after a reset already counts the time since
    to_lowest = (column[1:][steps < 0] <= column.min() + steps.max()).all()
    rare = falls <= max(GLITCHES * len(changes), len(changes) >= 50)
    resets = falls <= RESETS * len(changes) and to_lowest
    return rises >= RISES and bool(steady or rare or resets)
