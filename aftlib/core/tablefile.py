"""Tables in .csv and .parquet files as pandas reads them.

A file that would fill the memory is refused.
"""

from __future__ import annotations

import glob
import re
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from aftlib.core.checks import listed
from aftlib.core.textfile import (
    LateDots,
    TextFormat,
    csv_options,
    memory_bytes,
    require_distinct,
    with_numbers,
)

SUFFIXES = (".csv", ".csv.gz", ".parquet")

_UNNAMED = re.compile(r"Unnamed: \d+|")  # pandas' name for an empty one
_FRACTION = re.compile(r"[-+]?\d*\.\d+([eE][-+]?\d+)?")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|nan", re.I)
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}\.\d{1,2}\.\d{4}|\d{9,}(\.\d+)?$")


def read_frame(path: Path | str, form: TextFormat = TextFormat()) -> pd.DataFrame:  # noqa: B008
    """Read a .csv (commas, semicolons or tabs), .csv.gz or .parquet file, unchanged.

    ValueError when there is no such file, it cannot be read as a table, or would fill the memory.
    """
    path = Path(path)
    if not path.name.endswith(SUFFIXES):
        packed = path.suffix in (".gz", ".zip", ".bz2", ".xz", ".zst")
        fix = "unpack it" if packed else "save it as CSV"
        raise ValueError(f"path must end in {' or '.join(SUFFIXES)}, got {str(path)!r}; {fix}")
    with naming(path):
        there = path.exists()
    if not there:
        raise ValueError(f"path must be an existing file, got {str(path)!r}")
    with naming(path):
        if path.suffix != ".parquet":
            options = csv_options(path, form)
            named = form.decimal is not None
            frame = pd.read_csv(path, **options)
            LateDots(path, options, named).add(frame)
            return with_numbers(frame, options["decimal"], named)
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
        options, named = csv_options(path, form), form.decimal is not None
        late = LateDots(path, options, named)
        with pd.read_csv(path, chunksize=rows, **options) as pieces:
            for piece in pieces:
                late.add(piece)
                yield with_numbers(piece, options["decimal"], named)


def files_of(data: Path) -> tuple[Path, ...]:
    """Return a file, or the files of a directory or pattern such as ``2024*.csv``, sorted by name.

    ValueError when there are none, or they are not of one kind.
    """
    if data.is_file() and data.name.endswith(SUFFIXES):
        return (data,)
    paths = data.iterdir() if data.is_dir() else map(Path, glob.glob(str(data)))
    files = sorted(path for path in paths if path.is_file() and path.name[0] not in "._")
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
    rows = frame[keep].drop(columns=list(wanted))
    return rows.reset_index(drop=True) if numbered else rows


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file's name and the fix to an error that occurs while the file is read."""
    try:
        with warnings.catch_warnings():  # pandas warns where it leaves out values
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except pd.errors.ParserWarning as error:
        raise ValueError(
            f"path must hold a table, got {str(path)!r} (a row has more values than the first line "
            "has names); name every column in the first line"
        ) from error
    except (ValueError, OSError, EOFError, zlib.error) as error:
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


def require_names(frame: pd.DataFrame) -> None:
    """Refuse columns without a name, except the first, which may be a saved index."""
    names = [str(name) for name in frame.columns]
    nameless = [i for i, name in enumerate(names) if i and _UNNAMED.fullmatch(name)]
    if nameless:
        raise ValueError(
            f"columns must have names, got none for column {nameless[0] + 1}: name it in the first "
            f"line, or leave it out with drop={[names[i] for i in nameless[:8]]!r}"
        )


def require_heading(frame: pd.DataFrame, looks: Sequence[str]) -> None:
    """Refuse a file whose first line holds samples instead of names."""
    names = [str(name) for name in frame.columns]
    samples = all(_FRACTION.fullmatch(name) for name in names if name not in looks)
    samples |= all(_NUMBER.fullmatch(name) for name in names) and names not in (
        [str(i + first) for i in range(len(names))] for first in (0, 1)
    )
    if any(_DATE.match(str(name)) for name in looks[:1]) or (samples and len(names) > len(looks)):
        raise ValueError(
            f"columns must have names, got {listed(names)}: put a line of names before the first "
            "samples"
        )
