"""Checks that a table of sensors holds measurements: each refuses what it finds, with a fix.

Texts, dots that may group thousands, fill values, counters and clocks, samples recorded on change,
and times that repeat or lie off the even grid. Two of them also convert: `require_numbers` returns
texts as numbers, and `put_on_grid` the samples on an even grid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import compress
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from aftlib.core.checks import listed

IN_PYTHON = "change the table in Python and call plan(frame)"
MOST_MISSING = 0.5
"""Share of a sensor's samples that may be missing: with more, most results would be guesses."""
USUAL_CODES = np.array([85, 127, 999, 9999, 99999, 999999, 32767, 32768, 65535, 6999, 7999])
"""Usual fill values, sign and fraction ignored; one occurrence is suspicious."""
LARGEST, HUGE = 1e30, 1e100
"""A number of this size or more is no measurement, and one of which products overflow."""
FAR = 3
"""Distance of a repeated fill value from the other samples, in their 90 % ranges."""
STATES = 9
"""A column with fewer distinct numbers may have states instead of a range of measurements."""
RISES = 8
"""Least rises of a counter."""
_DATE_PARTS = re.compile(
    r"year|month|day|hour|minute|second|week|weekday|day.?of.?(week|month|year)|doy|"
    r"jahr|monat|tag|stunde|sekunde|woche|wochentag",
    re.I,
)


def require_numbers(frame: pd.DataFrame, options: Mapping[str, Any]) -> pd.DataFrame:
    """Numbers of the columns, NaN where missing; ValueError for other cells."""
    decimal, thousands = options.get("decimal", "."), options.get("thousands", "\0")
    whole = rf"(0|[1-9]\d*|[1-9]\d{{0,2}}({re.escape(thousands)}\d{{3}})+)"
    form = rf"[-+]?{whole}?({re.escape(decimal)}\d*)?([eE][-+]?\d+)?"
    columns, odd = dict[str, np.ndarray](), dict[str, pd.Series]()
    for name, column in frame.items():
        if not is_numeric_dtype(column.dtype):
            texts = column.astype("str").str.strip().replace("", None)
            column = texts
            if decimal != "." or thousands != "\0":
                column = texts.where(texts.str.fullmatch(form).fillna(False).astype(bool))
                column = column.str.replace(thousands, "", regex=False)
                column = column.str.replace(decimal, ".", regex=False)
            column = pd.to_numeric(column, errors="coerce")
            bad = column.isna() & texts.notna() & (texts.str.lower() != "nan")
            if bad.any():
                odd[str(name)] = texts[bad]
        columns[str(name)] = column.to_numpy(dtype=float, na_value=np.nan)
    if odd:
        _refuse_texts(odd, len(frame))
    return pd.DataFrame(columns, frame.index)


def _refuse_texts(odd: Mapping[str, pd.Series], rows: int) -> None:
    """Raise ValueError for cells that are no numbers, with the options that may read them."""
    many = [name for name in odd if len(odd[name]) > rows / 2]
    texts = [name for name in many if not re.match(r"[-+]?\d", odd[name].iloc[0])]
    name = next((name for name in odd if name not in many), next(iter(odd)))
    fix = IN_PYTHON
    if odd[name].str.fullmatch(r"[-+]?[\d.]*(,\d+)+(\.\d*)?").all():
        fix = (
            "if commas begin decimals, give --csv decimal=, or, where dots group digits, --csv "
            "decimal=, --csv thousands=.; if they group digits, --csv thousands=,; if a code "
            f"follows them, {IN_PYTHON}"
        )
    elif name in texts:
        fix = f"leave out what is no sensor by --drop {quote(','.join(texts))}, or {IN_PYTHON}"
    elif name not in many:
        marks = " ".join(f"--csv {quote(f'na_values={cell}')}" for cell in sorted({*odd[name]})[:5])
        fix = f"give {marks} if they stand for missing samples, else {IN_PYTHON}"
    raise ValueError(
        f"column {name!r} must hold numbers, got {odd[name].iloc[0]!r:.80} ({len(odd[name]):,} "
        f"such); {fix}"
    )


def require_plain_dots(texts: pd.DataFrame, separator: object) -> None:
    """Refuse a file in which every dot may group thousands: "1.160" next to "820"."""
    doubtful = ""
    for name in texts.columns:
        cells = texts[name].dropna().str.strip()
        dotted = cells[cells.str.fullmatch(r"[-+]?[\d.]*\.\d+")]
        if not len(dotted) or re.fullmatch(r"\d{1,2}\.\d{1,2}\.\d{4}", dotted.iloc[0]):
            continue
        if not dotted.str.fullmatch(r"[-+]?[1-9]\d{0,2}(\.\d{3})+").all():
            return  # this column has a plain decimal, so the file's dots begin decimals
        whole = cells[cells.str.fullmatch(r"[-+]?\d+")]
        if (len(whole) or separator != ",") and not whole.str.fullmatch(r"[-+]?\d{4,}").any():
            doubtful = doubtful or f"{name!r} holds {[*whole[:1], dotted.iloc[0]]}"
    if doubtful:
        raise ValueError(
            f"column {doubtful}, whose dot may group thousands or begin decimals; give --csv "
            "thousands=. where it groups, or --csv decimal=. where it begins decimals"
        )


def require_fill_values_marked(frame: pd.DataFrame, missing: Sequence[float] | None) -> None:
    """Refuse numbers that stand for missing samples and are not in `missing`.

    If that is empty, every number is measured; then only those are refused that overflow.
    """
    limit = HUGE if missing is not None and not len(missing) else LARGEST
    known = {name: column.dropna().to_numpy() for name, column in frame.items()}
    codes = {name: _find_fill_values(column, limit) for name, column in known.items()}
    bad = [name for name in codes if codes[name]]
    if bad:
        every = sorted({*(missing or ()), *(code for name in bad for code in codes[name])})
        measured = "give --missing none"
        if max(map(abs, every)) >= HUGE:
            measured = f"{IN_PYTHON}, in another unit: its squares overflow"
        raise ValueError(
            f"column {listed(bad)} must hold measurements, got {codes[bad[0]][0]:g}, far from the "
            "others or too large; if that stands for missing samples, give --missing "
            f"{','.join(f'{code:.9g}' for code in every)}; if every number is measured, {measured}"
        )


def _find_fill_values(column: np.ndarray, limit: float) -> list[float]:
    """Numbers from `limit`, and those at an end that repeat exactly and lie far from others."""
    numbers, counts = np.unique(column, return_counts=True)
    ordinary = np.abs(numbers) < limit
    codes: list[float] = numbers[~ordinary].tolist()
    numbers, counts = numbers[ordinary], counts[ordinary]
    while len(numbers) > 2 and limit == LARGEST:
        low, high = np.quantile(numbers[1:-1], [0.05, 0.95])
        states = len(numbers) < STATES
        for at in (0, -1):
            value = float(numbers[at])
            usual = np.floor(abs(value)) in USUAL_CODES and (abs(value) >= 999 or not states)
            # a machine that is off measures 0, and one outlier alone is named as such
            repeated = counts[at] > 2 and value != 0 and not states
            limit = (1 if usual else FAR) * max(high - low, 1e-12)
            far = max(low - value, value - high) > limit and (usual or repeated)
            if far:
                codes.append(value)
                numbers, counts = np.delete(numbers, at), np.delete(counts, at)
                break
        else:
            break
    return codes


def require_no_counters(frame: pd.DataFrame) -> None:
    """Refuse clocks, counters, row numbers and parts of dates among the sensors."""
    known = {name: column.dropna().to_numpy() for name, column in frame.items()}
    parts = [n for n in known if _DATE_PARTS.fullmatch(str(n)) and not (known[n] % 1).any()]
    if bad := [str(name) for name in known if name in parts or _counts(known[name])]:
        raise ValueError(
            f"column {listed(bad)} must hold measurements, got numbers of a clock or a counter; "
            f"leave it out by --drop {quote(','.join(bad))}, take it as times by --time with "
            "--time-unit or --time-format, such as --time year,month,day,hour --time-format "
            "'%Y %m %d %H', write the differences of a meter, or give --missing none if every "
            "number is measured"
        )


def _counts(column: np.ndarray) -> bool:
    """Whether numbers grow (or fall) steadily, apart from rare falls to near the lowest."""
    changes = np.diff(column)
    changes = changes[changes != 0]
    if len(changes) < RISES:
        return False
    rises = changes > 0
    lowest = column.min() + 2 * np.median(changes[rises]) if rises.any() else -np.inf
    resets = rises.mean() > 1 - 1 / RISES and (column[1:][np.diff(column) < 0] <= lowest).all()
    shuffled = len(column) > 24 and bool((np.diff(np.sort(column)) == 1).all())
    linear = np.ptp(changes) < 1e-9 * abs(changes[0])
    return bool(linear or resets or rises.mean() > 0.995 or shuffled)


def require_distinct(frame: pd.DataFrame, times: pd.DatetimeIndex, ids: pd.Series | None) -> None:
    """Refuse two rows of one time, or two samples of one sensor and time."""
    keys = pd.DataFrame({"time": times, "sensor": None if ids is None else ids.to_numpy()})
    twice = times[keys.duplicated().to_numpy()]
    if not len(twice):
        return
    fix = "average them by --resample, keep one of them, or, if clocks were set back, give --tz"
    if ids is None and frame.shape[1]:
        first, last = map(str, frame.columns[[0, -1]])
        fix = (
            f"if a row is one sample, give --long {quote(f'{times.name},{first},{last}')}; if "
            f"another column holds the hour, give --time {quote(f'{times.name},{first}')}; or {fix}"
        )
    raise ValueError(f"two different rows share the time {twice[0]!s} ({len(twice):,} such): {fix}")


def require_polled(frame: pd.DataFrame) -> None:
    """Refuse sensors that record a sample when the value changes, at uneven times.

    The mean of such samples is not the mean over time, and silence is no gap.
    """
    changing = []
    for name, column in frame.sort_index(kind="stable").items():
        samples = column.dropna()
        if len(samples) < 50 or samples.nunique() > len(samples) / 2:
            continue  # a number that is not rounded never repeats
        short, long = np.quantile(np.diff(samples.index.astype("int64")), [0.25, 0.9])
        if (samples.diff() == 0).mean() < 0.02 and long > 2 * max(short, 1):
            changing.append(name)
    if len(changing) > frame.shape[1] / 2:
        raise ValueError(
            f"{listed(changing)} record a sample only when the value changes; hold the last value "
            "in Python, such as frame.resample('1min').ffill(), and call plan(frame)"
        )


def note(notes: list[str], flags: Any, text: str) -> None:
    """Add how many flags are true to the notes, if any is."""
    if count := int(np.sum(flags)):
        notes.append(f"{text}: {count:,}")


def as_duration(name: str, text: str) -> pd.Timedelta:
    """Return a duration such as "2s" or "10min"; ValueError, with `name`, for another text."""
    with suppress(ValueError, TypeError):
        length = pd.Timedelta(text)
        if re.search(r"[a-zµ:]", str(text), re.I) and length > pd.Timedelta(0):
            return length.as_unit("ns")
    raise ValueError(
        f"{name} must be a duration such as '2s', '500ms' or '10min', got {text!r}: write a number "
        "above 0 and a unit"
    )


def put_on_grid(frame: pd.DataFrame, resample: str | None, notes: list[str]) -> pd.DataFrame:
    """Samples in order of time, on an even grid; missing steps are NaN."""
    note(notes, np.diff(frame.index.astype("int64")) < 0, "rows out of order, sorted")
    frame = frame.sort_index(kind="stable")
    times = pd.DatetimeIndex(frame.index).as_unit("ns")
    if resample is None:
        period = _find_period(frame.set_axis(times))
    else:
        period = as_duration("--resample", resample)
        # rows in the middle of steps, such as 00:30 and 01:30 for hours, belong to the step before
        phase = (times.asi8 % period.value) / period.value
        middle = np.cos(2 * np.pi * phase).mean() < -0.5
        times = (times if middle else times + period / 2).floor(period)
        notes.append(f"rows averaged into steps of {resample}: {len(frame):,}")
    frame = frame.groupby(times).mean()
    steps = (frame.index[-1] - frame.index[0]) // period + 1
    share = frame.notna().sum().max() / steps
    if share < 1 - MOST_MISSING:
        fix = "take a longer --resample"
        if resample is None:
            fix = f"average what comes apart by --resample {_usual_step(frame)}"
        raise ValueError(
            f"sensors must have samples at half of the steps of {period}, got {share:.0%}; {fix}; "
            "correct a wrong time, or plan for a part without the longest gap"
        )
    return frame.asfreq(pd.tseries.frequencies.to_offset(period))


def _find_period(frame: pd.DataFrame) -> pd.Timedelta:
    """The commonest distance of times; ValueError where times repeat or lie off its grid."""
    times = pd.DatetimeIndex(frame.index)
    if len(times) < 2:
        raise ValueError("FILE must hold at least two times, got one: give a longer record")
    distances, counts = np.unique(np.diff(times.asi8), return_counts=True)
    period = pd.Timedelta(distances[counts.argmax()])
    off = times[(times.asi8 - times.asi8[0]) % period.value != 0]
    if len(off):
        raise ValueError(
            f"times must lie on an even grid, got {off[0]} off the period of {period}; average the "
            f"rows of each step by --resample {_usual_step(frame)}; if they are months, leave the "
            "times out by --drop, so that a row is a step"
        )
    return period


def _usual_step(frame: pd.DataFrame) -> str:
    """Longest median time between a sensor's samples, rounded to its unit, for --resample."""
    known = [column.dropna().index.to_series().diff().median() for _, column in frame.items()]
    median = max(
        (pd.Timedelta(step) for step in known if pd.notna(step)), default=pd.Timedelta("1D")
    )
    units = {unit: pd.Timedelta(f"1{unit}") for unit in ("D", "h", "min", "s", "ms", "us", "ns")}
    unit = next(unit for unit in units if median >= units[unit])
    return f"{round(median / units[unit])}{unit}"


def require_usable(frame: pd.DataFrame) -> None:
    """Refuse too few sensors or steps, and sensors that never vary or miss most samples."""
    rows, sensors = frame.shape
    if sensors < 2 or rows < 2:
        raise ValueError(
            f"FILE must hold two sensors and two rows or more, got {sensors} and {rows}: a sensor "
            "is estimated from others, and --csv sep= names what separates the columns"
        )
    lost, still = frame.isna().mean() > MOST_MISSING, frame.max() - frame.min() <= 1 / HUGE
    refuse_sensors(frame.columns, lost, "have samples at half of the steps")
    # squares of less are 0
    refuse_sensors(frame.columns, still, f"vary, by more than {1 / HUGE:g}")


def refuse_sensors(names: Iterable[str], flags: Iterable[bool], wanted: str) -> None:
    """Refuse the flagged sensors, because they do not do what is `wanted`."""
    if bad := [*compress(names, flags)]:
        raise ValueError(
            f"sensors must {wanted}, got {listed(bad)}, which do not; leave them out by "
            f"--drop {quote(','.join(bad))}"
        )
