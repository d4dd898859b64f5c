"""Four checks that a table of sensors holds measurements: each refuses what it finds, with a fix.

Fill values, counters and clocks, dots that may group thousands, and samples recorded on change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from shlex import quote

import numpy as np
import pandas as pd

from aftlib.core.checks import listed

IN_PYTHON = "change the table in Python and call plan(frame)"
USUAL_CODES = np.array([85, 127, 999, 9999, 99999, 999999, 32767, 32768, 65535, 6999, 7999])
"""Usual fill values, sign and fraction ignored; one occurrence is suspicious."""
LARGEST = 1e30
"""A number of this size or more is no measurement."""
FAR = 3
"""Distance of a repeated fill value from the other samples, in their 90 % ranges."""
STATES = 9
"""A column with fewer distinct numbers may have states instead of a range of measurements."""
RISES = 8
"""Least rises of a counter."""
_GROUPED = r"[-+]?[1-9]\d{0,2}(\.\d{3})+"
_FORMAT = dict(year="%Y", month="%m", day="%d", hour="%H", minute="%M", second="%S")
_PART = re.compile(
    r"year|month|day|hour|minute|second|week|weekday|day.?of.?(week|month|year)|doy|"
    r"jahr|monat|tag|stunde|sekunde|woche|wochentag",
    re.I,
)


def require_fill_values_marked(
    names: Sequence[str], values: np.ndarray, missing: Sequence[float]
) -> None:
    """Refuse numbers that stand for missing samples and are not in `missing`."""
    columns = zip(names, values.T, strict=True)
    codes = {name: find_fill_values(column[np.isfinite(column)]) for name, column in columns}
    bad = [name for name in names if codes[name]]
    if bad:
        every = sorted({*missing, *(code for name in bad for code in codes[name])})
        raise ValueError(
            f"column {listed(bad)} must hold measurements, got {codes[bad[0]][0]:g}, far from the "
            f"others; if that stands for missing samples, give --missing "
            f"{','.join(f'{code:g}' for code in every)}; if every number is measured, give "
            "--missing none"
        )


def find_fill_values(column: np.ndarray) -> list[float]:
    """Numbers, at either end of a sensor's samples, that repeat exactly and lie far from others."""
    codes: list[float] = []
    numbers, counts = np.unique(column, return_counts=True)
    while len(numbers) > 2:
        lows, highs = np.quantile(numbers[1:-1], [0.05, 0.95])
        states = len(numbers) < STATES
        for at in (0, -1):
            value, count = float(numbers[at]), counts[at]
            distance = max(lows - value, value - highs)
            usual = (np.floor(abs(value)) == USUAL_CODES).any()
            usual &= not states or abs(value) >= 999
            far = distance > (1 if usual else FAR) * max(highs - lows, 1e-12)
            # a machine that is off measures 0, and one outlier alone is named as such
            if (far and (usual or (count > 2 and value != 0 and not states))) or abs(
                value
            ) >= LARGEST:
                codes.append(value)
                numbers, counts = np.delete(numbers, at), np.delete(counts, at)
                break
        else:
            break
    return codes


def require_no_counters(names: Sequence[str], values: np.ndarray) -> None:
    """Refuse clocks, counters, row numbers and parts of dates among the sensors."""
    bad = []
    for name, column in zip(names, values.T, strict=True):
        known = column[np.isfinite(column)]
        if _counts(known) or (_PART.fullmatch(name.strip()) and not (known % 1).any()):
            bad.append(name)
    if bad:
        lower = {name.strip().lower(): name for name in bad}
        fix = "take it as times by --time with --time-unit or --time-format"
        if lower.keys() >= {"year", "month", "day"}:
            parts = [part for part in _FORMAT if part in lower]
            columns, form = (",".join(lower[p] for p in parts), " ".join(_FORMAT[p] for p in parts))
            fix = f"take them as times by --time {quote(columns)} --time-format {quote(form)}"
        raise ValueError(
            f"column {listed(bad)} must hold measurements, got numbers of a clock or a counter; "
            f"leave it out by --drop {quote(','.join(bad))}, {fix}, write the differences of a "
            "meter, or give --missing none if every number is measured"
        )


def _counts(column: np.ndarray) -> bool:
    """Whether numbers grow (or fall) steadily, apart from rare falls to near the lowest."""
    changes = np.diff(column)
    changes = changes[changes != 0]
    if len(changes) < RISES:
        return False
    rises = changes > 0
    if rises.mean() < 0.5 and np.ptp(changes) < 1e-9 * abs(changes[0]):
        return True  # row numbers or times, the newest first
    resets = (
        rises.mean() > 1 - 1 / RISES
        and (column[1:][np.diff(column) < 0] <= column.min() + 2 * np.median(changes[rises])).all()
    )
    shuffled = len(column) > 24 and bool((np.diff(np.sort(column)) == 1).all())
    return bool(rises.all() or resets or rises.mean() > 0.995 or shuffled)


def require_plain_dots(texts: pd.DataFrame, separator: object) -> None:
    """Refuse a file in which every dot may group thousands: "1.160" next to "820"."""
    doubtful = ""
    for name in texts.columns:
        cells = texts[name].dropna().str.strip()
        dotted = cells[cells.str.fullmatch(r"[-+]?[\d.]*\.\d+")]
        if not len(dotted) or re.fullmatch(r"\d{1,2}\.\d{1,2}\.\d{4}", dotted.iloc[0]):
            continue
        if not dotted.str.fullmatch(_GROUPED).all():
            return  # this column has a plain decimal, so the file's dots begin decimals
        whole = cells[cells.str.fullmatch(r"[-+]?\d+")]
        if (len(whole) or separator != ",") and not whole.str.fullmatch(r"[-+]?\d{4,}").any():
            doubtful = doubtful or f"{name!r} holds {[*whole[:1], dotted.iloc[0]]}"
    if doubtful:
        raise ValueError(
            f"column {doubtful}, whose dot may group thousands or begin decimals; give --csv "
            "thousands=. where it groups, or --csv decimal=. where it begins decimals"
        )


def require_polled(names: Sequence[str], values: np.ndarray, times: pd.DatetimeIndex) -> None:
    """Refuse sensors that record a sample when the value changes, at uneven times.

    The mean of such samples is not the mean over time, and silence is no gap.
    """
    order = np.argsort(times.asi8, kind="stable")
    changing = []
    for name, column in zip(names, values[order].T, strict=True):
        known = np.isfinite(column)
        samples, distances = column[known], np.diff(times.asi8[order][known])
        if len(samples) < 50 or len(np.unique(samples)) > len(samples) / 2:
            continue  # a number that is not rounded never repeats
        short, long = np.quantile(distances, [0.25, 0.9])
        if (np.diff(samples) == 0).mean() < 0.02 and long > 2 * max(short, 1):
            changing.append(name)
    if len(changing) > len(names) / 2:
        raise ValueError(
            f"{listed(changing)} record a sample only when the value changes; hold the last value "
            "in Python, such as frame.resample('1min').ffill(), and call plan(frame)"
        )
