"""A table in a .csv or .parquet file, read whole; what would fill the memory is refused."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

LONGEST_LINE = 2**20
"""Bytes that a line of a text table may have; twice as many are always refused."""


def read_frame(path: Path | str) -> pd.DataFrame:
    """Read a .csv (commas, semicolons or tabs; with decimal commas too) or .parquet file as it is.

    Raises
    ------
    ValueError
        When there is no such file, it cannot be read as a table, or would fill the memory.
    """
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise ValueError(f"path must end in .csv or .parquet, got {str(path)!r}; save it as CSV")
    if not path.exists():
        raise ValueError(f"path must be an existing file, got {str(path)!r}")
    try:
        return _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    except (ValueError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        way_out = "; save it as UTF-8" if isinstance(error, UnicodeError) else ""
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
    return pd.read_parquet(path)


def csv_signs(path: Path) -> tuple[str, str]:
    """Separator and decimal sign of a text table, as its first lines tell."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        head = [file.readline(LONGEST_LINE) for _ in range(50)]
    separator = max(",;\t", key=head[0].count)
    field = rf"(?:^|[{separator}])\s*[-+]?\d+,\d+\s*(?:[{separator}]|$)"
    decimal = "," if separator != "," and re.search(field, "".join(head[1:]), re.M) else "."
    return separator, decimal


def _read_csv(path: Path) -> pd.DataFrame:
    """Read a text table whose separator and decimal sign its first lines tell."""
    with path.open("rb") as file:
        while len(block := file.read(LONGEST_LINE)) == LONGEST_LINE:
            if b"\n" not in block and b"\r" not in block:
                raise ValueError(f"a line is longer than {LONGEST_LINE:,} bytes: is this a table?")
    separator, decimal = csv_signs(path)
    read: Any = partial(pd.read_csv, path, sep=separator, decimal=decimal, encoding="utf-8-sig")
    frame: pd.DataFrame = read()
    if frame.index.nlevels > 1:
        raise ValueError(f"its rows have {frame.index.nlevels} values more than its first line")
    if not isinstance(frame.index, pd.RangeIndex) and len(frame) and frame.iloc[:, -1].isna().all():
        # every row ends with a separator, which pandas takes for one column more
        frame = read(index_col=False)
    return frame
