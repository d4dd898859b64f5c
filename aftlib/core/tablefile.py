"""Tables in .csv and .parquet files as pandas reads them, and the times and durations in them.

Our own code decides only what pandas cannot: separator, decimal sign, grouped thousands, and which
numbers are times. What would fill the memory is refused.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from aftlib.core.checks import listed

LONGEST_LINE = 2**20
"""Bytes that a line of a text table may have; twice as many are always refused."""
SUFFIXES = (".csv", ".parquet")
HEAD_ROWS = 1000
"""Rows that show whether every row ends with a separator."""
HEAD = 2**22
"""Characters that show the decimal sign, because whole numbers may come first."""
_PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_DOTS = re.compile(r"[-+]?\d*(\.\d+)+")
_GROUPS = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+")
_SMALL = re.compile(r"[-+]?\d{1,3}")
_GERMAN = r"[-+]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?"

# Numbers of this size that mostly grow are seconds (or ms, µs, ns) since 1970 and no sensor.
_LEAST_EPOCH = 1e8
# The unit is the first with which no time lies after the year 2100.
_UNITS = {"s": 4.102e9, "ms": 4.102e12, "us": 4.102e15}
# Digits of a calendar stamp, such as 202401311400, and their order.
_STAMPS = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
# Years in units of 100 ns, from 1601 (Windows) and from the year 1 (.NET), which ns may resemble.
_TICKS = {1601: (1.24e17, 1.42e17), 1: (6.28e17, 6.47e17)}
_ROUND = "1s 2s 5s 10s 15s 20s 30s 1min 2min 5min 10min 15min 20min 30min 1h 2h 3h 6h 12h 1D 7D"
_PARTS = ("year", "month", "day", "hour", "minute", "second")
_TIME_OF_DAY = r"\s*\d{1,2}:\d\d(:\d\d([.,]\d+)?)?\s*([AaPp][Mm])?\s*"
# 31.1.2024: with dots the day always comes first. 1/2/2024 may be of January or of February.
_DOTTED = re.compile(r"^(\d{1,2})\.(\d{1,2})\.(\d{4})(?!\d)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}\.\d{1,2}\.\d{4}|\d{9,}(\.\d+)?$")


def read_frame(path: Path | str, decimal: str | None = None) -> pd.DataFrame:
    """Read a .csv (commas, semicolons or tabs; with decimal commas too) or .parquet file as it is.

    `decimal` is the decimal sign of a text table, by default found in the file. ValueError when
    there is no such file, it cannot be read as a table, or would fill the memory.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        packed = path.suffix in (".gz", ".zip", ".bz2", ".xz", ".zst")
        fix = "unpack it" if packed else "save it as CSV"
        raise ValueError(f"path must end in .csv or .parquet, got {str(path)!r}; {fix}")
    if not path.exists():
        raise ValueError(f"path must be an existing file, got {str(path)!r}")
    with naming(path):
        if path.suffix == ".csv":
            options = _csv_options(path, decimal)
            return _with_numbers(pd.read_csv(path, **options), options["decimal"])
        about = pq.read_metadata(path)  # a few bytes may stand for any number of equal values
        size = 8 * about.num_rows * about.num_columns
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if size > memory / 2:
            raise ValueError(
                f"its {about.num_rows:,} rows of {about.num_columns:,} columns take "
                f"{size / 1e9:,.0f} GB of {memory / 1e9:,.0f} GB of memory; write fewer columns, "
                "or one row for several"
            )
        schema = about.schema.to_arrow_schema()
        require_distinct(schema.names)
        return _as_floats(pd.read_parquet(path), schema)


def read_pieces(path: Path, rows: int, decimal: str | None = None) -> Iterator[pd.DataFrame]:
    """Yield the rows of a file that `read_frame` reads, at most so many at a time, in order."""
    with naming(path):
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                require_distinct(file.schema_arrow.names)
                for batch in file.iter_batches(rows):
                    frame = pa.Table.from_batches([batch]).to_pandas()
                    yield _as_floats(frame, file.schema_arrow).rename(columns=str)
            return
        options = _csv_options(path, decimal)
        with pd.read_csv(path, chunksize=rows, **options) as pieces:
            for piece in pieces:
                yield _with_numbers(piece, options["decimal"])


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in the error of what cannot be read of it, and the fix."""
    try:
        yield
    except (ValueError, OSError) as error:
        reason, fix = str(error).strip().splitlines()[0], ""
        if isinstance(error, UnicodeError):
            fix = "; save it as UTF-8"
        elif isinstance(error, pd.errors.ParserError):
            fix = "; give every line as many cells as the first, which names the columns"
        raise ValueError(f"path must hold a table, got {str(path)!r} ({reason}){fix}") from error


def _as_floats(frame: pd.DataFrame, schema: pa.Schema) -> pd.DataFrame:
    """The frame of a Parquet file with its decimal fractions as floats."""
    exact = [field.name for field in schema if pa.types.is_decimal(field.type)]
    return frame.astype({name: float for name in exact if name in frame.columns})


def require_distinct(names: Iterable[str]) -> None:
    """Refuse columns of the same name, which pandas renames silently; empty names may repeat."""
    repeated = [name for name, count in Counter(names).items() if count > 1 and name.strip()]
    if repeated:
        raise ValueError(f"columns must differ, got {repeated[0]!r} more than once; rename them")


def _csv_options(path: Path, decimal: str | None) -> dict[str, Any]:
    """Arguments with which pandas reads a text table: separator, decimal sign and index.

    ValueError when two of its columns have the same name, or a dot may group thousands.
    """
    if decimal not in (None, ",", "."):
        raise ValueError(f"decimal must be ',' or '.', got {decimal!r}")
    with path.open("rb") as file:
        if file.read(4).startswith(_PACKED):
            raise ValueError("it is packed: unpack it")
        file.seek(0)
        while len(block := file.read(LONGEST_LINE)) == LONGEST_LINE:
            if b"\n" not in block and b"\r" not in block:
                raise ValueError(f"a line is longer than {LONGEST_LINE:,} bytes: is this a table?")
    with path.open(encoding="utf-8-sig", errors="replace") as text:
        first, rest = text.readline(LONGEST_LINE), text.read(HEAD)
    separator = max(",;\t", key=first.count)
    with suppress(csv.Error):  # pandas reports it
        require_distinct(next(csv.reader(io.StringIO(first + rest), delimiter=separator), []))
    if separator == ",":
        decimal = "."
    field = rf"(?:^|[{separator}])\s*[-+]?\d+,\d+\s*(?:[{separator}]|$)"
    if decimal is None and re.search(field, rest, re.M):
        decimal = ","
    if decimal is None:
        _require_plain_dots(first + rest, separator)
    options: dict[str, Any] = {"sep": separator, "decimal": decimal or ".", "encoding": "utf-8-sig"}
    head = pd.read_csv(path, nrows=HEAD_ROWS, **options)
    if head.index.nlevels > 1:
        raise ValueError(
            f"its rows have {head.index.nlevels} values more than its first line, which names the "
            "columns: put that first"
        )
    if not isinstance(head.index, pd.RangeIndex) and len(head) and head.iloc[:, -1].isna().all():
        # every row ends with a separator, which pandas takes for one column more
        options["index_col"] = False
    return options


def _require_plain_dots(text: str, separator: str) -> None:
    """Refuse a table in which "1.160" may be 1160: "820" stands in its column, "1.5" nowhere."""
    try:
        names, *rows = csv.reader(io.StringIO(text), delimiter=separator)
    except (csv.Error, ValueError):
        return
    dotted_dates = any(_DOTTED.match(cell.strip()) for row in rows[:1] for cell in row)
    ambiguous = ""
    for name, *column in zip_longest(names, *rows[:-1] or rows, fillvalue=""):
        cells = [cell.strip() for cell in column if cell.strip()]
        dotted = [cell for cell in cells if _DOTS.fullmatch(cell)]
        if not dotted or _DOTTED.match(dotted[0]):
            continue
        whole = [cell for cell in cells if "." not in cell]
        small = all(_SMALL.fullmatch(cell) for cell in whole)
        if not small or not all(_GROUPS.fullmatch(cell) for cell in dotted):
            return
        if whole or dotted_dates or any(cell.count(".") > 1 for cell in dotted):
            examples = " and ".join(map(repr, [*whole[:1], dotted[0]]))
            ambiguous = ambiguous or f"column {name!r} holds {examples}"
    if ambiguous:
        raise ValueError(
            f"{ambiguous}, whose dot may group thousands or begin decimals; give decimal=',' where "
            "it groups, or else decimal='.'"
        )


def _with_numbers(frame: pd.DataFrame, decimal: str) -> pd.DataFrame:
    """The frame with texts such as "1.160,5" as numbers, where the decimal sign is a comma."""
    for name in frame.select_dtypes(exclude="number") if decimal == "," else ():
        texts = frame[name].astype("string").str.strip()
        if texts.str.fullmatch(_GERMAN).fillna(True).all():
            plain = texts.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
            frame[name] = plain.astype("Float64").astype(float)
    return frame


def duration(name: str, text: str) -> pd.Timedelta:
    """Return a duration such as "2s", "10min" or "1.5h"; ValueError, which names the argument.

    Every text that `pandas.Timedelta` reads is one, except a number without a unit.
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
    if size not in _STAMPS or not (np.isfinite(numbers) & (numbers % 1 == 0)).all():
        return None
    first_year, last_year = (year * 10.0 ** (size - 4) for year in (1900, 2101))
    if numbers.min() < first_year or numbers.max() >= last_year:
        return None
    times = _parsed(column, _STAMPS[size])
    return None if times.isna().mean() > 0.3 else times  # 24 is no hour, but often written


def _parsed(column: pd.Series, layout: str) -> pd.Series:
    texts = column.astype("int64").astype(str)
    return pd.to_datetime(texts, format=layout, errors="coerce")


def require_whole_times(frame: pd.DataFrame) -> None:
    """Refuse dates in several columns: year, month and day, or a column of times of day."""
    names = {str(name).strip().lower(): name for name in frame.columns}
    parts: list[Hashable] = [names[part] for part in _PARTS if part in names]
    if not names.keys() >= set(_PARTS[:3]):
        texts = frame.select_dtypes(exclude="number").astype("string")
        parts = [name for name in texts if texts[name].str.fullmatch(_TIME_OF_DAY).eq(True).all()]
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


def as_times(column: pd.Series, name: str) -> pd.DatetimeIndex:
    """Times of a column: ISO 8601, numbers since 1970 or calendar stamps; ValueError for others."""
    numeric = pd.api.types.is_numeric_dtype(column.dtype)
    try:
        times = _times_of_numbers(column, name) if numeric else _times_of_texts(column)
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
    """Times of numbers; refused are stamps that are no dates, and those with two meanings."""
    numbers = column.to_numpy(dtype=float)
    size, wrong = float(np.nanmax(np.abs(numbers))), None
    stamps = _calendar_stamps(column)
    if stamps is not None and stamps.isna().any():
        row = int(stamps.isna().argmax())
        wrong = f"dates, got {numbers[row]:.0f} in row {row + 1}"
    ten_digits = (numbers >= 1e9) & (numbers < 1e10) & (numbers % 1 == 0)
    if stamps is None and ten_digits.all() and _parsed(column, "%y%m%d%H%M").notna().all():
        wrong = f"numbers since 1970, got {numbers[0]:.0f}, which may also be yymmddhhmm"
    for year, (least, most) in _TICKS.items():
        if least <= size <= most:
            wrong = f"numbers since 1970, got {size:.0f}, which may count 100 ns since year {year}"
    if wrong:
        raise ValueError(f"column {name!r} must hold {wrong}; write times as 2024-01-31 14:00")
    if stamps is not None:
        return pd.DatetimeIndex(stamps)
    unit: Any = next((unit for unit, most in _UNITS.items() if size <= most), "ns")
    return pd.DatetimeIndex(pd.to_datetime(column, unit=unit))


def _times_of_texts(column: pd.Series) -> pd.DatetimeIndex:
    if _DOTTED.match(str(column.iloc[0])):
        column = column.astype("string").str.replace(
            _DOTTED, lambda date: f"{date[3]}-{int(date[2]):02}-{int(date[1]):02}", regex=True
        )
    # of times with offsets, which change in spring and autumn, only UTC is even
    offsets = bool(column.astype(str).str.contains(r"\d(?:Z|[+-]\d\d:?\d\d)$").all())
    return pd.DatetimeIndex(pd.to_datetime(column, format="ISO8601", utc=offsets))


def advise_grid(values: np.ndarray, times: pd.DatetimeIndex) -> str:
    """What to do about rows that lie on no even grid; calendar months are no irregular times."""
    one_day = (times.day == times.day[0]).all() or times.is_month_end.all()
    if one_day and np.diff(times).min() >= pd.Timedelta(days=28):
        return "months differ in length: leave that column out with drop=, so that a row is a step"
    return f"average the rows around each step with, say, resample={usual_step(values, times)!r}"


def usual_step(values: np.ndarray, times: pd.DatetimeIndex) -> str:
    """The usual distance of a sensor's samples, rounded where that is near, for `resample`."""
    distances = [np.diff(times[np.isfinite(column)].unique().asi8) for column in values.T]
    usual = np.median([np.median(some) for some in distances if len(some)] or [0])
    seconds = pd.Timedelta(int(usual), unit=times.unit).total_seconds()
    for text in _ROUND.split():
        if abs(pd.Timedelta(text).total_seconds() - seconds) < 0.02 * seconds:
            return text
    return f"{round(seconds * 1e6)}us" if 0 < seconds < 1 else f"{max(1, round(seconds))}s"
