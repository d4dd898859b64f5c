"""How a file, or a directory of them, is laid out, so that any stretch of its rows can be read."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from aftlib.core.checks import listed
from aftlib.core.datasets import even_grid, no_number
from aftlib.core.fillvalues import mark_missing
from aftlib.core.tablefile import as_floats, csv_signs, require_distinct
from aftlib.core.times import as_times

HEAD = 20_000
"""Rows from which columns, times and the period are told."""
CELL_BYTES = 16
"""Of a sample in a text file, about."""
LAST_BYTES = 1 << 22
BEYOND = "\0"
"""Label of what stands behind the last column: nothing, but for a separator."""
TOO_LONG = "a line has more cells than the first, which names the columns; give every line as many"
BATCH = 1_000_000
"""Samples that a task holds at a time, about."""


@dataclass(frozen=True)
class Stretch:
    """Consecutive rows of one file: its row groups (Parquet) or bytes (CSV) from begin to end."""

    file: Path
    begin: int
    end: int


@dataclass(frozen=True)
class Layout:
    """Files that hold one table, the rows in the order of their times."""

    files: tuple[Path, ...]  # all of one kind, in order
    names: tuple[str, ...]  # the n sensors
    time: str | None  # column of times; None where they are the index
    first: pd.Timestamp  # time of the first row
    step: pd.Timedelta
    steps: int  # of the grid, from the first row to the last
    labels: tuple[str, ...] = ()  # columns of a CSV file
    signs: tuple[str, str] = (",", ".")  # its separator and decimal sign
    missing: tuple[float, ...] = ()  # fill values
    row_numbers: tuple[str, ...] = ()  # columns that only number the rows

    def read(self, stretch: Stretch) -> Iterator[tuple[np.ndarray, np.ndarray, int, int]]:
        """Steps, samples (rows, n), and how many were infinite or marked, some rows at a time.

        ValueError when a time is off the grid or a column holds no numbers.
        """
        text = stretch.file.suffix == ".csv"
        for frame in self._lines(stretch) if text else self._groups(stretch):
            if frame.empty:
                continue
            times = times_of(frame, self.time)
            require_same_clock(times.tz, self.first)
            steps, rest = np.divmod((times - self.first).to_numpy(), self.step.to_numpy())
            off = rest != np.timedelta64(0)
            if off.any():
                raise ValueError(
                    f"times must lie on an even grid, got {times[int(off.argmax())]} off the "
                    f"period of {self.step} from {self.first}; average the rows into steps first"
                )
            for name in self.names:
                if not pd.api.types.is_numeric_dtype(frame[name].dtype):
                    raise ValueError(
                        f"column {name!r} must be numeric, got {no_number(frame[name])}; leave "
                        f"such cells empty, or the column out with drop=[{name!r}]"
                    )
            values = frame[list(self.names)].to_numpy(dtype=float, copy=True)
            marked, infinite = mark_missing(values, self.missing), np.isinf(values)
            values[infinite] = np.nan
            yield steps.astype(np.int64), values, int(infinite.sum()), marked

    def _groups(self, stretch: Stretch) -> Iterator[pd.DataFrame]:
        groups, most = range(stretch.begin, stretch.end), max(1, BATCH // len(self.names))
        with pq.ParquetFile(stretch.file) as file:
            for batch in file.iter_batches(most, row_groups=groups):
                yield frame_of(pa.Table.from_batches([batch]))

    def _lines(self, stretch: Stretch) -> Iterator[pd.DataFrame]:
        """Lines that begin in the stretch; the first file's or any other's heading is none."""
        with stretch.file.open("rb") as file:
            if stretch.begin:  # on a line that the stretch before has begun
                file.seek(stretch.begin - 1)
            file.readline()
            while file.tell() < stretch.end:
                left = stretch.end - file.tell()
                text = file.read(min(left, BATCH * CELL_BYTES))
                text += b"" if text.endswith(b"\n") else file.readline()
                yield lines_of(text, self.labels, self.signs)


def lines_of(text: bytes, labels: Sequence[str], signs: tuple[str, str]) -> pd.DataFrame:
    """The frame of a text table's lines, without its heading; ValueError as `read_text`."""
    names = [*labels, BEYOND]
    frame = read_text(io.BytesIO(text), sep=signs[0], decimal=signs[1], header=None, names=names)
    if frame.pop(BEYOND).notna().any():
        raise ValueError(TOO_LONG)
    return frame


def read_text(source: Path | io.BytesIO, **how: Any) -> pd.DataFrame:
    """What pandas reads of a text table; ValueError for cells that it would leave out.

    Numbers of lines are told of a file only: those of a stretch are others than its file's.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame: pd.DataFrame = pd.read_csv(source, index_col=False, **how)
    except pd.errors.ParserWarning as error:
        raise ValueError(TOO_LONG) from error
    except pd.errors.ParserError as error:
        reason, whole = str(error).strip(), isinstance(source, Path)
        if longer := re.search(r"Expected \d+ fields in line \d+, saw \d+", reason):
            raise ValueError(f"{longer[0]}: {TOO_LONG}" if whole else TOO_LONG) from error
        plain = re.sub(r" starting at row \d+", "", reason)
        raise ValueError(reason if whole else plain) from error
    return frame


def frame_of(rows: pa.Table) -> pd.DataFrame:
    """The frame of a Parquet file's rows: decimal fractions are floats, names are texts."""
    require_distinct(rows.schema.names)
    return as_floats(rows.to_pandas(), rows.schema).rename(columns=str)


def times_of(frame: pd.DataFrame, time: str | None) -> pd.DatetimeIndex:
    """Times of a frame's rows, from a column or its index."""
    column = frame.index.to_series() if time is None else frame[time]
    return as_times(column, str(frame.index.name or "index") if time is None else time)


def files_of(data: Path) -> tuple[Path, ...]:
    """The file, or those of a directory, by name; ValueError when they are not of one kind."""
    if not data.is_dir():
        if data.suffix not in (".csv", ".parquet") or not data.is_file():
            raise ValueError(f"path must be an existing .csv or .parquet file, got {str(data)!r}")
        return (data,)
    found = sorted(p for p in data.iterdir() if p.is_file() and p.name[0] not in "._")
    kinds = {p.suffix for p in found}
    if len(kinds) != 1 or not kinds <= {".csv", ".parquet"}:
        raise ValueError(
            f"path must hold .csv or .parquet files, all of one kind, got {str(data)!r} with "
            f"{listed(sorted(p.name for p in found))}"
        )
    return tuple(found)


@contextmanager
def named(file: Path) -> Iterator[None]:
    """Name the file in the error of what cannot be read of it."""
    try:
        yield
    except (ValueError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"path must hold a table, got {str(file)!r} ({reason})") from error


def rows_in(file: Path) -> int:
    """Rows of a file, of text as many as it may have at most; 0 where there are none.

    ValueError when it is no such file.
    """
    with named(file):
        if file.suffix == ".parquet":
            with pq.ParquetFile(file) as groups:
                return groups.metadata.num_rows
        with file.open("rb") as lines:
            heading = lines.readline()
            if b"\r" in heading.rstrip(b"\r\n"):
                raise ValueError(
                    "its first line ends with a carriage return alone: end it with \\n"
                )
            least = heading.count(b",") + 2  # separators and an end
            while (line := lines.readline()) and not line.strip():
                pass
        most = -(-file.stat().st_size // least) if line else 0
    return most


def require_one_line(file: Path, separator: str) -> None:
    """Refuse a heading of several lines, of which a name in quotes may consist."""
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        heading = csv.reader(lines, delimiter=separator)
        with suppress(csv.Error, StopIteration):  # of which pandas tells
            next(heading)
        if heading.line_num > 1:
            raise ValueError("its first line ends within a name: rename that column")


def require_alike(files: Sequence[Path], columns: Sequence[str], signs: tuple[str, str]) -> None:
    """Refuse files with other columns than the first, of text also in another order."""
    for file in files:
        with named(file):
            if file.suffix == ".csv":
                sign, _ = csv_signs(file, signs[1])
                head = pd.read_csv(file, nrows=0, index_col=False, sep=sign, encoding="utf-8-sig")
                found = list(head.columns)
                alike = found == list(columns) and sign == signs[0]
            else:
                with pq.ParquetFile(file) as groups:
                    found = list(frame_of(groups.schema_arrow.empty_table()).columns)
                alike = sorted(found) == sorted(columns)
        if not alike:
            raise ValueError(
                f"files must have the same columns, in text in the same order, got "
                f"{listed(columns)} in {str(files[0])!r} and {listed(found)} in {str(file)!r}; "
                "write them alike, or leave the odd one out of the directory"
            )


def require_same_clock(zone: Any, first: pd.Timestamp) -> None:
    """Refuse times with an offset from UTC where the first has none, or the other way round."""
    if (zone is None) != (first.tz is None):
        raise ValueError(
            f"times must all have an offset from UTC or none, got {first} first and others "
            f"{'without' if zone is None else 'with'} one; write them alike"
        )


def layout_of(
    data: Path,
    time: str | None = None,
    drop: Sequence[str] = (),
    missing: Sequence[float] = (),
    decimal: str | None = None,
) -> Layout:
    """Layout of wide files, told from their first rows and their last.

    ValueError when they are no such files, have no times, or their first rows are refused by
    `datasets.even_grid`.
    """
    files = files_of(data)
    counts = [rows_in(file) for file in files]
    files = tuple(file for file, rows in zip(files, counts, strict=True) if rows) or files[:1]
    labels, signs = tuple[str, ...](), (",", ".")
    with named(files[0]):
        if files[0].suffix == ".csv":
            signs = csv_signs(files[0], decimal)
            require_one_line(files[0], signs[0])
            reading: Any = {"sep": signs[0], "decimal": signs[1], "encoding": "utf-8-sig"}
            head = read_text(files[0], nrows=HEAD, **reading)
            labels = tuple(head.columns)
        else:
            with pq.ParquetFile(files[0]) as file:
                batch = next(file.iter_batches(HEAD), None)
                schema = file.schema_arrow
                head = frame_of(pa.Table.from_batches([batch] if batch else [], schema))
    require_alike(files, list(head.columns), signs)
    told = head.copy()
    quiet = [c for c in told if told[c].dtype.kind == "f" and told[c].isna().all()]
    told.loc[told.index[:1], quiet] = 0.0  # it may begin later
    table = even_grid(told, time, drop=drop)
    if not isinstance(table.time, pd.DatetimeIndex) or len(table.time) < 2:
        raise ValueError(
            f"a file that is read through Spark must have times in its rows, got {str(data)!r} "
            "without; give it a column of times"
        )
    # row numbers without a name would come before the times
    others = [c for c in head.columns if c not in {*table.names, *table.row_numbers, *drop}]
    column = others[-1] if others else None
    step, first = table.time[1] - table.time[0], times_of(head, column)[0]
    with named(files[-1]):
        end = last_row(files[-1], labels, signs)
    last = times_of(end, column)[0]
    require_same_clock(last.tz, first)
    steps, rest = divmod(last - first, step)
    if steps > 100 * sum(counts) + 1_000_000:
        raise ValueError(
            f"times must fill some part of their grid, got {first} first, {last} last and a period "
            f"of {step}, for {sum(counts):,} rows at most; correct a wrong time"
        )
    if rest or steps < 1:
        raise ValueError(
            f"rows must be in the order of their times, which lie on an even grid, got {first} "
            f"first and {last} last with a period of {step}; sort them, or average them into steps"
        )
    places = tuple(file.absolute() for file in files)  # a task may run anywhere
    return Layout(
        files=places,
        names=table.names,
        time=column,
        first=first,
        step=step,
        steps=int(steps) + 1,
        labels=labels,
        signs=signs,
        missing=tuple(missing),
        row_numbers=table.row_numbers,
    )


def last_row(file: Path, labels: Sequence[str], signs: tuple[str, str]) -> pd.DataFrame:
    """The last row of a file."""
    if file.suffix == ".csv":
        with file.open("rb") as lines:
            lines.seek(max(0, file.stat().st_size - LAST_BYTES))
            line = lines.read().rstrip().rpartition(b"\n")[2]
        return lines_of(line, labels, signs)
    with pq.ParquetFile(file) as groups:
        filled = [place for place, rows in enumerate(row_counts(groups)) if rows]
        for batch in groups.iter_batches(HEAD, row_groups=filled[-1:]):
            last = batch[-1:]
    return frame_of(pa.Table.from_batches([last]))


def row_counts(groups: pq.ParquetFile) -> list[int]:
    """Rows of each row group."""
    return [groups.metadata.row_group(i).num_rows for i in range(groups.num_row_groups)]


def stretches_of(layout: Layout, cells: int) -> list[Stretch]:
    """Cut the files into stretches of about so many samples, in order."""
    found, n = list[Stretch](), len(layout.names)
    for file in layout.files:
        if file.suffix == ".csv":
            size, much = file.stat().st_size, max(1, cells * CELL_BYTES)
            found += [Stretch(file, at, min(at + much, size)) for at in range(0, size, much)]
            continue
        with pq.ParquetFile(file) as groups:
            sizes = row_counts(groups)
        begin, held = 0, 0
        for number, size in enumerate(sizes):
            held += size * n
            if held >= cells or number == len(sizes) - 1:
                found.append(Stretch(file, begin, number + 1))
                begin, held = number + 1, 0
    return found
