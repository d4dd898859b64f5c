"""A table in a .csv or .parquet file, read whole; what would fill the memory is refused."""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

LONGEST_LINE = 2**20
"""Bytes that a line of a text table may have; twice as many are always refused."""
SUFFIXES = (".csv", ".parquet")
HEAD_ROWS = 1000
"""Rows that show whether every row ends with a separator."""
HEAD = 2**22
"""Characters of a text table that tell its signs: whole numbers may come first."""
PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
"""What gzip, zip, bzip2, xz and zstd files begin with."""
_DECIMAL = re.compile(r"[-+]?\d*(\.\d+)+")
_GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+")
_SMALL = re.compile(r"[-+]?\d{1,3}")
_GERMAN = r"[-+]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?"
_DOTTED_DATE = re.compile(r"\d{1,2}\.\d{1,2}\.\d{4}")


def read_frame(path: Path | str, decimal: str | None = None) -> pd.DataFrame:
    """Read a .csv (commas, semicolons or tabs; with decimal commas too) or .parquet file as it is.

    `decimal` is the decimal sign of a text table, by default found in the file. ValueError when
    there is no such file, it cannot be read as a table, or would fill the memory.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        packed = path.suffix in (".gz", ".zip", ".bz2", ".xz", ".zst")
        way_out = "unpack it" if packed else "save it as CSV"
        raise ValueError(f"path must end in .csv or .parquet, got {str(path)!r}; {way_out}")
    if not path.exists():
        raise ValueError(f"path must be an existing file, got {str(path)!r}")
    with naming(path):
        if path.suffix == ".parquet":
            return _read_parquet(path)
        options = _csv_options(path, decimal)
        return _with_numbers(pd.read_csv(path, **options), options["decimal"])


def read_pieces(path: Path, rows: int, decimal: str | None = None) -> Iterator[pd.DataFrame]:
    """Yield the rows of a file that `read_frame` reads, at most so many at a time, in order."""
    with naming(path):
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                require_distinct(file.schema_arrow.names)
                for batch in file.iter_batches(rows):
                    frame = pa.Table.from_batches([batch]).to_pandas()
                    yield as_floats(frame, file.schema_arrow).rename(columns=str)
            return
        options = _csv_options(path, decimal)
        with pd.read_csv(path, chunksize=rows, **options) as pieces:
            for piece in pieces:
                yield _with_numbers(piece, options["decimal"])


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in the error of what cannot be read of it, and how to mend it."""
    try:
        yield
    except (ValueError, OSError) as error:
        reason, way_out = str(error).strip().splitlines()[0], ""
        if isinstance(error, UnicodeError):
            way_out = "; save it as UTF-8"
        elif isinstance(error, pd.errors.ParserError):
            way_out = "; give every line as many cells as the first, which names the columns"
        raise ValueError(
            f"path must hold a table, got {str(path)!r} ({reason}){way_out}"
        ) from error


def _read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file; a few bytes of one may stand for any number of equal values."""
    told = pq.read_metadata(path)
    size = 8 * told.num_rows * told.num_columns
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory / 2:
        raise ValueError(
            f"its {told.num_rows:,} rows of {told.num_columns:,} columns take {size / 1e9:,.0f} GB "
            f"of {memory / 1e9:,.0f} GB of memory; write fewer columns, or one row for several"
        )
    names = told.schema.to_arrow_schema().names
    require_distinct(names)
    return as_floats(pd.read_parquet(path), told.schema.to_arrow_schema())


def as_floats(frame: pd.DataFrame, schema: pa.Schema) -> pd.DataFrame:
    """The frame of a Parquet file with its decimal fractions as floats."""
    exact = [field.name for field in schema if pa.types.is_decimal(field.type)]
    return frame.astype({name: float for name in exact if name in frame.columns})


def require_distinct(names: Iterable[str]) -> None:
    """Refuse columns of the same name, which pandas renames without a word; empty names may be."""
    repeated = [name for name, count in Counter(names).items() if count > 1 and name.strip()]
    if repeated:
        raise ValueError(f"columns must differ, got {repeated[0]!r} more than once; rename them")


def csv_signs(path: Path, decimal: str | None = None) -> tuple[str, str]:
    """Separator and decimal sign of a text table, as its first lines show; the sign may be given.

    ValueError when two of its columns have the same name, or a dot may group thousands.
    """
    if decimal not in (None, ",", "."):
        raise ValueError(f"decimal must be ',' or '.', got {decimal!r}")
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        head = file.readline(LONGEST_LINE)
        rest = file.read(HEAD)
    separator = max(",;\t", key=head.count)
    with suppress(csv.Error):  # which pandas tells of
        require_distinct(next(csv.reader(io.StringIO(head + rest), delimiter=separator), []))
    if separator == ",":
        return separator, "."
    field = rf"(?:^|[{separator}])\s*[-+]?\d+,\d+\s*(?:[{separator}]|$)"
    if decimal is None and re.search(field, rest, re.M):
        decimal = ","
    if decimal is None:
        require_plain_dots(head + rest, separator)
    return separator, decimal or "."


def require_plain_dots(text: str, separator: str) -> None:
    """Refuse a table in which "1.160" may be 1160: beside "820" and nowhere beside "1.5"."""
    try:
        names, *rows = csv.reader(io.StringIO(text), delimiter=separator)
    except (csv.Error, ValueError):
        return
    dotted_dates = any(_DOTTED_DATE.match(cell.strip()) for row in rows[:1] for cell in row)
    ambiguous = None
    for name, *column in zip_longest(names, *rows[:-1] or rows, fillvalue=""):
        cells = [cell.strip() for cell in column if cell.strip()]
        dotted = [cell for cell in cells if _DECIMAL.fullmatch(cell)]
        if dotted and _DOTTED_DATE.match(dotted[0]):
            continue
        if not dotted:
            continue
        whole = [cell for cell in cells if "." not in cell]
        small = all(_SMALL.fullmatch(cell) for cell in whole)
        if not small or not all(_GROUPED.fullmatch(cell) for cell in dotted):
            return
        if ambiguous is None and (whole or dotted_dates or any(c.count(".") > 1 for c in dotted)):
            ambiguous = f"{name!r}", [*whole[:1], dotted[0]]
    if ambiguous:
        column_name, examples = ambiguous
        raise ValueError(
            f"column {column_name} holds {' and '.join(map(repr, examples))}, whose dot may group "
            "thousands or begin decimals; give decimal=',' where it groups, or else decimal='.'"
        )


def _numbers_of(column: pd.Series) -> pd.Series:
    """The numbers of a text column such as "1.160,5", or the column where it holds other text."""
    texts = column.astype("string").str.strip()
    if not texts.str.fullmatch(_GERMAN).fillna(True).all():
        return column
    plain = texts.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    return plain.astype("Float64").astype(float)


def _csv_options(path: Path, decimal: str | None) -> dict[str, Any]:
    """Arguments with which pandas reads a text table, from its first lines."""
    with path.open("rb") as file:
        if file.read(4).startswith(PACKED):
            raise ValueError("it is packed: unpack it")
        file.seek(0)
        while len(block := file.read(LONGEST_LINE)) == LONGEST_LINE:
            if b"\n" not in block and b"\r" not in block:
                raise ValueError(f"a line is longer than {LONGEST_LINE:,} bytes: is this a table?")
    separator, decimal = csv_signs(path, decimal)
    options: dict[str, Any] = {"sep": separator, "decimal": decimal, "encoding": "utf-8-sig"}
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


def _with_numbers(frame: pd.DataFrame, decimal: str) -> pd.DataFrame:
    """The frame with texts such as "1.160,5" as numbers, where the decimal sign is a comma."""
    for name in frame.columns if decimal == "," else ():
        if not pd.api.types.is_numeric_dtype(frame[name].dtype):
            frame[name] = _numbers_of(frame[name])
    return frame
