"""Tables in .csv and .parquet files as pandas reads them, and the times and durations in them.

Our own code decides only which numbers are times. A file that would fill the memory is refused.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from aftlib.core.checks import listed
from aftlib.core.textfile import (
    DOTTED,
    TextFormat,
    csv_options,
    memory_bytes,
    require_distinct,
    with_numbers,
)

SUFFIXES = (".csv", ".csv.gz", ".parquet")

# Numbers of this size that mostly grow are seconds (or ms, µs, ns) since 1970 and no sensor.
_LEAST_EPOCH = 1e8
# The unit is the first with which no time lies after the year 2100.
_UNITS = {"s": 4.102e9, "ms": 4.102e12, "us": 4.102e15}
# Digits of a calendar stamp, such as 202401311400, and their order.
_STAMPS = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
# Numbers of 100 ns since 1601 (Windows) and since the year 1 (.NET), which resemble ns since 1970.
_TICKS = {1601: (1.24e17, 1.42e17), 1: (6.28e17, 6.47e17)}
_ROUND = "1s 2s 5s 10s 15s 20s 30s 1min 2min 5min 10min 15min 20min 30min 1h 2h 3h 6h 12h 1D 7D"
_PARTS = ("year", "month", "day", "hour", "minute", "second")
_TIME_OF_DAY = r"\s*\d{1,2}:\d\d(:\d\d([.,]\d+)?)?\s*([AaPp][Mm])?\s*"
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}\.\d{1,2}\.\d{4}|\d{9,}(\.\d+)?$")


def read_frame(path: Path | str, form: TextFormat = TextFormat()) -> pd.DataFrame:  # noqa: B008
    """Read a .csv (commas, semicolons or tabs), .csv.gz or .parquet file as it is.

    ValueError when there is no such file, it cannot be read as a table, or would fill the memory.
    """
    path = Path(path)
    if not path.name.endswith(SUFFIXES):
        packed = path.suffix in (".gz", ".zip", ".bz2", ".xz", ".zst")
        fix = "unpack it" if packed else "save it as CSV"
        raise ValueError(f"path must end in {' or '.join(SUFFIXES)}, got {str(path)!r}; {fix}")
    if not path.exists():
        raise ValueError(f"path must be an existing file, got {str(path)!r}")
    with naming(path):
        if path.suffix != ".parquet":
            options = csv_options(path, form)
            return with_numbers(pd.read_csv(path, **options), options["decimal"])
        about = pq.read_metadata(path)  # a few bytes may stand for any number of equal values
        size, memory = 8 * about.num_rows * about.num_columns, memory_bytes()
        if size > memory / 2:
            raise ValueError(
                f"its {about.num_rows:,} rows of {about.num_columns:,} columns take "
                f"{size / 1e9:,.0f} GB of {memory / 1e9:,.0f} GB of memory; write fewer columns, "
                "or one row for several"
            )
        schema = about.schema.to_arrow_schema()
        require_distinct(schema.names)
        return _as_floats(pd.read_parquet(path), schema)


def read_pieces(path: Path, rows: int, form: TextFormat) -> Iterator[pd.DataFrame]:
    """Yield the rows of a file that `read_frame` reads, at most `rows` rows at a time, in order."""
    with naming(path):
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                require_distinct(file.schema_arrow.names)
                for batch in file.iter_batches(rows):
                    frame = pa.Table.from_batches([batch]).to_pandas()
                    yield _as_floats(frame, file.schema_arrow).rename(columns=str)
            return
        options = csv_options(path, form)
        with pd.read_csv(path, chunksize=rows, **options) as pieces:
            for piece in pieces:
                yield with_numbers(piece, options["decimal"])


def files_of(data: Path) -> tuple[Path, ...]:
    """Return a file, or the files of a directory or pattern such as ``2024*.csv``, sorted by name.

    ValueError when there are none, or they are not of one kind.
    """
    if data.is_file() and data.name.endswith(SUFFIXES):
        return (data,)
    found = data.iterdir() if data.is_dir() else map(Path, glob.glob(str(data)))
    files = sorted(path for path in found if path.is_file() and path.name[0] not in "._")
    kinds = {next((end for end in SUFFIXES if path.name.endswith(end)), "") for path in files}
    if data.is_file() or not (files or data.is_dir()):
        raise ValueError(
            f"path must be an existing {' or '.join(SUFFIXES)} file, a directory of them or a "
            f"pattern such as '2024*.csv', got {str(data)!r}"
        )
    if len(kinds) != 1 or "" in kinds:
        raise ValueError(
            f"path must hold {' or '.join(SUFFIXES)} files, all of one kind, got {str(data)!r} "
            f"with {listed(path.name for path in files)}"
        )
    return tuple(path for path in files if path.stat().st_size) or tuple(files[:1])


def keep_rows(frame: pd.DataFrame, where: Sequence[str]) -> pd.DataFrame:
    """Return the rows that satisfy all conditions, without the columns that conditions name.

    A condition is a text such as ``status=GOOD``. Several values of one column are alternatives.
    ValueError when a condition names no column.
    """
    wanted: dict[str, list[str]] = {}
    for condition in where if frame.shape[1] else ():
        column, equals, value = condition.partition("=")
        if not equals or column not in frame.columns:
            raise ValueError(
                f"where must be COLUMN=VALUE, got {condition!r}; columns are {listed(frame)}"
            )
        wanted.setdefault(column, []).append(value)
    keep = np.ones(len(frame), bool)
    for column, values in wanted.items():
        texts = frame[column].astype(str)
        if pd.api.types.is_float_dtype(frame[column].dtype):
            texts = texts.str.removesuffix(".0")  # whole numbers in a column with empty cells
        keep &= texts.isin(values).to_numpy()
    numbered = isinstance(frame.index, pd.RangeIndex)
    kept = frame[keep].drop(columns=list(wanted))
    return kept.reset_index(drop=True) if numbered else kept


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file's name, and the fix, to an error that occurs while it is read."""
    try:
        yield
    except (ValueError, OSError) as error:
        reason, fix = str(error).strip().splitlines()[0], ""
        if isinstance(error, UnicodeError):
            fix = "; save it as UTF-8, or name its encoding="
        elif isinstance(error, pd.errors.ParserError):
            fix = "; give every line as many cells as the first, which names the columns"
        raise ValueError(f"path must hold a table, got {str(path)!r} ({reason}){fix}") from error


def _as_floats(frame: pd.DataFrame, schema: pa.Schema) -> pd.DataFrame:
    """The frame of a Parquet file with its decimal fractions as floats."""
    exact = [field.name for field in schema if pa.types.is_decimal(field.type)]
    return frame.astype({name: float for name in exact if name in frame.columns})


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
    if DOTTED.match(str(column.iloc[0])):
        column = column.astype("string").str.replace(
            DOTTED, lambda date: f"{date[3]}-{int(date[2]):02}-{int(date[1]):02}", regex=True
        )
    # offsets change in spring and autumn, so that only UTC has even steps
    offsets = bool(column.astype(str).str.contains(r"\d(?:Z|[+-]\d\d:?\d\d)$").all())
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
