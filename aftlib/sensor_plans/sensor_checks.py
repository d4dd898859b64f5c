"""Checks that a table of sensors holds measurements: each refuses what it finds, with a fix.

Texts, dots that may group thousands, fill values, counters and clocks, samples recorded when the
value changed, and sensors that never vary. `require_numbers` also returns texts as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype, is_string_dtype

from aftlib.core.checks import listed

IN_PYTHON = "change the table in Python and call plan(frame)"
SKIP_LINES = "skip lines without samples, counted from 0, by --csv 'skiprows=[0, 2]'"
# The limits below are ours: they separate the fill values, counters and states of public data sets
# that the tests name from measurements.
MOST_MISSING = 0.5  # share of a sensor's samples: with more, most results would be guesses
LARGEST = 1e30  # a number of this size or more is no measurement
HUGE = 1e100  # products of few larger numbers overflow
# usual fill values, sign and fraction ignored: one occurrence is suspicious
USUAL_CODES = np.array([85, 127, 999, 9999, 99999, 999999, 32767, 32768, 65535, 6999, 7999])
NINES = re.compile(r"-?(9{2,}(\.0|\.9+)?|9\.9+)")  # fill values of nines, such as -99.9
ALONE = 0.1  # least gap between a fill value and the next number, in 90 % ranges of the others
MASS = 5  # how much more often a fill value occurs than any measured number
FAR = 3  # distance of a repeated fill value from the other samples, in their 90 % ranges
#: Words for 0 and 1 that are read as such.
SWITCHES = (("false", "true"), ("off", "on"), ("no", "yes"))
STATES = 7  # with fewer distinct numbers between its ends, a column may have states
RISES = 8  # least rises of a counter
_PARTS = re.compile(r"(day.?of.?)?(year|month|week)|(week)?day|hour|jahr|monat|wochentag", re.I)


def as_texts(column: pd.Series) -> pd.Series:
    """Return cells as texts without outer blanks; missing cells, which pandas 2 names, stay so."""
    return column.astype(str).where(column.notna()).str.strip()


def require_numbers(frame: pd.DataFrame, options: Mapping[str, Any]) -> pd.DataFrame:
    """Numbers of the columns, NaN where missing; ValueError for other cells."""
    thousands = options.get("thousands", "\0")
    decimal = options.get("decimal", "," if thousands == "." else ".")
    if decimal == thousands or str(decimal).isalnum():
        raise ValueError(f"--csv decimal= must be a mark of its own, got {decimal!r}: give . or ,")
    whole = rf"(0|[1-9]\d*|[1-9]\d{{0,2}}({re.escape(thousands)}\d{{3}})+)"
    form = rf"[-+]?{whole}?({re.escape(decimal)}\d*)?([eE][-+]?\d+)?"
    columns = dict[str, np.ndarray]()
    odd = dict[str, pd.Series]()
    states = list[str]()
    for name, column in frame.items():
        if not is_numeric_dtype(column.dtype):
            texts = as_texts(column)
            column = texts = texts.mask(texts.str.lower().isin(["", "nan"]))
            lower = texts.str.lower()
            if any({*lower.dropna()} == {*pair} for pair in SWITCHES):
                on = lower.isin([word for _, word in SWITCHES])
                column = texts = on.astype(int).astype("str").mask(texts.isna())
            if decimal != "." or thousands != "\0":
                column = texts.where(texts.str.fullmatch(form, na=False))
                column = column.str.replace(thousands, "", regex=False)
                column = column.str.replace(decimal, ".", regex=False)
            column = pd.to_numeric(column, errors="coerce")
            bad = column.isna() & texts.notna()
            if bad.any():
                odd[str(name)] = texts[bad]
                if bad.sum() > texts.notna().sum() / 2:
                    states.append(str(name))
        columns[str(name)] = column.to_numpy(dtype=float, na_value=np.nan)
    if odd:
        _refuse_texts(odd, states)
    return pd.DataFrame(columns, frame.index)


def _refuse_texts(odd: Mapping[str, pd.Series], states: Sequence[str]) -> None:
    """Raise ValueError for cells that are no numbers, with the options that may read them.

    Most cells of the columns `states` are texts, which therefore do not stand for missing samples.
    """
    cells = pd.concat(odd.values()).drop_duplicates()
    rare = [cells_of for name, cells_of in odd.items() if name not in states]
    rare_cells = pd.concat(rare).drop_duplicates() if rare else cells[:0]
    words = rare_cells[~rare_cells.str.contains(r"\d")][:5]
    marks = " ".join(f"--csv {quote(f'na_values={word}')}" for word in words)
    missing = f"if texts stand for missing samples, give {marks or '--csv na_values=TEXT'}; "
    if states:
        missing = f"write numbers for the states of {listed(states)} in Python; " + (
            missing if rare else ""
        )
    raise ValueError(
        f"column {listed(odd)} must hold numbers, got {cells.iloc[0]!r:.80}; {SKIP_LINES}; leave "
        f"out what is no sensor by --drop {quote(','.join(odd))}, or name times by --time; "
        f"{missing}if commas begin decimals, --csv decimal=,; if commas or dots group digits, "
        f"--csv thousands=, or --csv thousands=.; if a code or unit follows numbers, {IN_PYTHON}"
    )


def require_plain_dots(frame: pd.DataFrame, separator: object) -> None:
    """Refuse a file in which every dot may group thousands: "1.160" next to "820"."""
    doubtful = ""
    for name in [name for name in frame if is_string_dtype(frame[name].dropna())]:
        cells = frame[name].dropna().str.strip()
        dotted = cells[cells.str.fullmatch(r"[-+]?\d*(\.\d{3})*\.\d+")]
        if not dotted.str.fullmatch(r"[-+]?[1-9]\d{0,2}(\.\d{3})+").all():
            return  # this column has a plain decimal, so the file's dots begin decimals
        whole = cells[cells.str.fullmatch(r"[-+]?\d+")]
        long = whole.str.fullmatch(r"[-+]?\d{4,}").any()
        if len(dotted) and (len(whole) or separator != ",") and not long:
            doubtful = doubtful or f"{name!r} holds {[*whole[:1], dotted.iloc[0]]}"
    if doubtful:
        raise ValueError(
            f"column {doubtful}, whose dot may group thousands or begin decimals; give --csv "
            "thousands=. where it groups, or --csv decimal=. where it begins decimals"
        )


def require_fill_values_marked(frame: pd.DataFrame, missing: Sequence[float]) -> None:
    """Refuse numbers that stand for missing samples and are not in `missing`."""
    codes = {name: _find_fill_values(column.dropna().to_numpy()) for name, column in frame.items()}
    if bad := [name for name in codes if codes[name]]:
        every = sorted({*missing, *(code for name in bad for code in codes[name])})
        raise ValueError(
            f"column {listed(bad)} must hold measurements, got {codes[bad[0]][0]:g}, far from the "
            "others or too large; if that stands for missing samples, give --missing "
            f"{','.join(f'{code:.9g}' for code in every)}; if every number is measured, give "
            "--missing none"
        )


def _find_fill_values(column: np.ndarray) -> list[float]:
    """Numbers that are too large, and usual or repeated ones that lie far from the others."""
    numbers, counts = np.unique(column, return_counts=True)
    size = np.abs(numbers)
    inner = numbers[size < LARGEST][1:-1]
    low, high = np.quantile(inner, [0.05, 0.95]) if len(inner) else (-np.inf, np.inf)
    states = len(inner) < STATES
    usual = np.isin(np.floor(size), USUAL_CODES) & ((size >= 999) | (not states))
    # a machine that is off measures 0, and one outlier alone is named as such
    repeated = (counts > 2) & (numbers != 0) & (not states)
    away = np.maximum(low - numbers, numbers - high)
    extent = max(high - low, 1e-12)
    codes = (usual & (away > extent)) | (repeated & (away > FAR * extent)) | (size >= LARGEST)
    if not states:
        codes |= _sentinels(numbers, counts, extent)
    ends = np.logical_and.accumulate(codes) | np.logical_and.accumulate(codes[::-1])[::-1]
    return [float(number) for number in numbers[ends]]  # between measurements it is one of them


def _sentinels(numbers: np.ndarray, counts: np.ndarray, extent: float) -> np.ndarray:
    """Whether the lowest or highest number is one that people write for missing samples.

    It is a negative whole number or made of nines, comes often, and lies apart from the others, or
    is the only negative number and comes more often than its neighbour. `numbers` are sorted and
    distinct, `extent` is the 90 % range of the others.
    """
    flags = np.zeros(len(numbers), bool)
    for place, neighbour in ((0, 1), (-1, -2)):
        number = numbers[place]
        often = counts[place]
        nines = NINES.fullmatch(repr(float(number))) is not None
        lattice = nines or (place == 0 and number < 0 and number % 1 == 0)
        if not lattice or often <= 2:
            continue
        others = np.delete(counts, place)[np.delete(numbers, place) != 0]
        usual = 1.5 * np.median(np.diff(numbers))  # neighbours of a lattice are not apart
        apart = abs(number - numbers[neighbour]) > max(ALONE * extent, usual)
        only = number < 0 <= numbers[neighbour]
        if only:
            flags[place] = apart or often > 2 * counts[neighbour]
        else:
            flags[place] = apart and often > MASS * others.max()
    return flags


def find_doubtful_number(column: np.ndarray) -> tuple[float, int] | None:
    """The only negative number of a column and how often it occurs, if it may be a fill value."""
    numbers, counts = np.unique(column[np.isfinite(column)], return_counts=True)
    if len(numbers) < STATES or not numbers[0] < 0 <= numbers[1]:
        return None
    return (float(numbers[0]), int(counts[0])) if numbers[0] % 1 == 0 and counts[0] > 2 else None


def require_no_counters(frame: pd.DataFrame) -> None:
    """Refuse clocks, counters, row numbers and parts of dates among the sensors."""
    known = {str(name): column.dropna().to_numpy() for name, column in frame.items()}
    parts = [name for name in known if _PARTS.fullmatch(name) and not (known[name] % 1).any()]
    if bad := [name for name in known if name in parts or _counts(known[name])]:
        raise ValueError(
            f"column {listed(bad)} must hold measurements, got numbers of a clock or a counter; "
            f"leave it out by --drop {quote(','.join(bad))}, read it as times by --time with "
            "--time-unit s, or from parts, --time year,month,day,hour --time-format '%Y %m %d %H', "
            "write a meter's differences, or give --missing none if every number is measured"
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


def require_cells(frame: pd.DataFrame) -> None:
    """Refuse columns whose cells hold lists or records instead of one number or text."""
    kinds = (list, tuple, dict, set, np.ndarray)
    for name, column in frame.items():
        if column.dtype != object:
            continue
        if len(nested := column[[isinstance(cell, kinds) for cell in column]]):
            raise ValueError(
                f"column {name!r} must hold one number per row, got {nested.iloc[0]!r:.80}; leave "
                f"it out by --drop {quote(str(name))}, or {IN_PYTHON}"
            )


def require_polled(frame: pd.DataFrame) -> None:
    """Refuse to average samples that most sensors recorded when the value changed.

    Such a sensor hardly ever repeats a rounded value, and its times are uneven.
    """
    changing = []
    for name, column in frame.items():
        samples = column.dropna()
        if len(samples) < 50:
            continue
        short, long = np.quantile(np.diff(samples.index.astype("int64")), [0.25, 0.9])
        rounded = samples.nunique() < len(samples) / 2
        if rounded and (samples.diff() == 0).mean() < 0.02 and long > 2 * short:
            changing.append(name)
    if len(changing) > frame.shape[1] / 2:
        raise ValueError(
            f"sensors must be sampled at even times for --resample, got {listed(changing)}, "
            "recorded when the value changes: hold the last value in Python, "
            "plan(frame.resample('1min').ffill())"
        )


def note(notes: list[str], flags: Any, text: str) -> None:
    """Add how many flags are true to the notes, if any is."""
    if count := int(np.sum(flags)):
        notes.append(f"{text}: {count:,}")


def require_usable(frame: pd.DataFrame) -> None:
    """Refuse sensors that never vary or miss most samples."""
    lost = frame.isna().mean() > MOST_MISSING
    refuse_sensors(frame.columns, lost, "have samples at half of the steps")
    # squares of more overflow, and squares of less are 0
    refuse_sensors(frame.columns, frame.abs().max() >= HUGE, f"be below {HUGE:g}")
    refuse_sensors(frame.columns, frame.max() - frame.min() <= 1 / HUGE, "vary")


def refuse_sensors(names: Iterable[str], flags: Iterable[bool], wanted: str) -> None:
    """Refuse the flagged sensors, because they do not do what is `wanted`."""
    flagged = dict(zip(names, flags, strict=True))
    bad = [name for name, flag in flagged.items() if flag]
    if bad and len(bad) < len(flagged) - 1:
        fix = f"leave them out by --drop {quote(','.join(bad))}"
    else:  # without them no plan is left
        fix = "give a longer record, or another --resample or --window"
    if bad:
        raise ValueError(f"sensors must {wanted}, got {listed(bad)}, which do not; {fix}")
