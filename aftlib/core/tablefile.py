"""A table in a .csv or .parquet file, read whole; what would fill the memory is refused."""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

LONGEST_LINE = 2**20
"""Bytes that a line of a text table may have; twice as many are always refused."""
HEAD = 2**22
"""Characters of a text table that tell its signs: whole numbers may come first."""
PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
"""What gzip, zip, bzip2, xz and zstd files begin with."""


def read_frame(path: Path | str) -> pd.DataFrame:
    """Read a .csv (commas, semicolons or tabs; with decimal commas too) or .parquet file as it is.

    ValueError when there is no such file, it cannot be read as a table, or would fill the memory.
    """
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        packed = path.suffix in (".gz", ".zip", ".bz2", ".xz", ".zst")
        way_out = "unpack it" if packed else "save it as CSV"
        raise ValueError(f"path must end in .csv or .parquet, got {str(path)!r}; {way_out}")
    if not path.exists():
        raise ValueError(f"path must be an existing file, got {str(path)!r}")
    try:
        return _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
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


def csv_signs(path: Path) -> tuple[str, str]:
    """Separator and decimal sign of a text table, as its first lines tell.

    ValueError when two of its columns have the same name.
    """
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        head = file.readline(LONGEST_LINE)
        rest = file.read(HEAD)
    separator = max(",;\t", key=head.count)
    with suppress(csv.Error):  # which pandas tells of
        require_distinct(next(csv.reader(io.StringIO(head + rest), delimiter=separator), []))
    field = rf"(?:^|[{separator}])\s*[-+]?\d+,\d+\s*(?:[{separator}]|$)"
    decimal = "," if separator != "," and re.search(field, rest, re.M) else "."
    return separator, decimal


def _read_csv(path: Path) -> pd.DataFrame:
    """Read a text table whose separator and decimal sign its first lines tell."""
    with path.open("rb") as file:
        if file.read(4).startswith(PACKED):
            raise ValueError("it is packed: unpack it")
        file.seek(0)
        while len(block := file.read(LONGEST_LINE)) == LONGEST_LINE:
            if b"\n" not in block and b"\r" not in block:
                raise ValueError(f"a line is longer than {LONGEST_LINE:,} bytes: is this a table?")
    separator, decimal = csv_signs(path)
    read: Any = partial(pd.read_csv, path, sep=separator, decimal=decimal, encoding="utf-8-sig")
    frame: pd.DataFrame = read()
    if frame.index.nlevels > 1:
        raise ValueError(
            f"its rows have {frame.index.nlevels} values more than its first line, which names the "
            "columns: put that first"
        )
    if not isinstance(frame.index, pd.RangeIndex) and len(frame) and frame.iloc[:, -1].isna().all():
        # every row ends with a separator, which pandas takes for one column more
        frame = read(index_col=False)
    return frame
