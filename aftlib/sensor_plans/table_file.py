"""Files of sensors as tables: Parquet, and CSV as texts, with advice where it needs options."""

from __future__ import annotations

import glob
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from aftlib.core.checks import listed
from aftlib.sensor_plans.sensor_checks import IN_PYTHON, require_plain_dots
from aftlib.sensor_plans.time_columns import CLOCK, looks_like_time

BYTES_IN_MEMORY = 8
"""Bytes of memory per byte of CSV, roughly."""
HEAD = 30
"""Lines that are searched for the line of names."""
_GZIP, _PARQUET, _PACKED = b"\x1f\x8b", b"PAR1", (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_NUMBER = re.compile(r"[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?|nan", re.I)


def read_files(data: Path, options: Mapping[str, Any]) -> pd.DataFrame:
    """Read the files of a path, directory or pattern as one table, in order of their names."""
    files = [data]
    if not data.is_file():
        paths = data.iterdir() if data.is_dir() else map(Path, glob.glob(str(data)))
        files = sorted(path for path in paths if path.is_file() and path.name[0] not in "._")
    if not files:
        raise ValueError(f"FILE must be a file, a directory or a pattern, got {str(data)!r}")
    _require_memory(files)
    frames = [_read_file(file, options) for file in files]
    for file, frame in zip(files, frames, strict=True):
        if list(frame.columns) != list(frames[0].columns):
            raise ValueError(
                f"files must have the same columns, got {listed(frame.columns)} in {file.name!r} "
                f"and {listed(frames[0].columns)} in {files[0].name!r}; plan for files of one kind"
            )
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def _require_memory(files: Sequence[Path]) -> None:
    size = 0
    for file in files:
        with file.open("rb") as opened:
            parquet = opened.read(4) == _PARQUET
        size += BYTES_IN_MEMORY * file.stat().st_size
        if parquet and (about := pq.read_metadata(file)):
            size += 8 * about.num_rows * about.num_columns
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory / 2:
        raise ValueError(
            f"FILE takes about {size / 1e9:,.1f} GB of {memory / 1e9:,.1f} GB of memory: aggregate "
            "it to windows with Spark, and plan with --window 1"
        )


def _read_file(path: Path, options: Mapping[str, Any]) -> pd.DataFrame:
    with path.open("rb") as file:
        start = file.read(4)
    if start.startswith(_PACKED):
        raise ValueError(f"{path.name!r} is a spreadsheet or an archive: save it as CSV")
    try:
        if start == _PARQUET:
            frame = pd.read_parquet(path)
            return frame.reset_index(drop=isinstance(frame.index, pd.RangeIndex))
        return _read_csv(path, start, {**options})
    except (OSError, EOFError, pa.ArrowInvalid) as error:
        raise ValueError(f"{path.name!r} cannot be read: {error}") from error


def _read_csv(path: Path, start: bytes, options: dict[str, Any]) -> pd.DataFrame:
    """Read a CSV file as texts, or refuse it with the option that reads it."""
    wide = start[:2] in (b"\xff\xfe", b"\xfe\xff")
    options = {"encoding": "utf-16" if wide else "utf-8-sig", "index_col": False} | options
    options["compression"] = "gzip" if start.startswith(_GZIP) else "infer"
    if len(str(options.get("sep", ","))) > 1:
        options.setdefault("engine", "python")  # a regular expression
    signs = {name: options.pop(name) for name in ("decimal", "thousands") if name in options}
    reason = "its rows have more cells than its line of names"
    try:
        head = _read_head(path, options)
        if fix := _advise_head(head, options):
            raise ValueError(f"{path.name!r} needs {fix}")
        with warnings.catch_warnings():  # pandas warns where it leaves out cells
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame: Any = pd.read_csv(path, dtype=str, **options)
    except UnicodeError as error:
        fix = "name its encoding, such as --csv encoding=cp1252"
        raise ValueError(f"{path.name!r} is not in {options['encoding']}: {fix}") from error
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"{path.name!r} is empty: is it the right file?") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        if isinstance(error, pd.errors.ParserError):
            reason = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        fix = f"give each line as many cells as the line of names, or {IN_PYTHON}"
        raise ValueError(f"{path.name!r} is no table ({reason}): {fix}") from error
    except TypeError as error:
        raise ValueError(f"--csv takes options of pandas.read_csv, got {error}") from error
    names = list(frame.columns)
    for row in head:  # pandas numbers columns of the same name silently
        twice = [name for name in row if name and row.count(name) > 1]
        if twice and len(row) == len(names) and row[0] == str(names[0]):
            raise ValueError(f"columns must differ, got {twice[0]!r} more than once; rename them")
    if not signs:
        require_plain_dots(frame, options.get("sep", ","))
    return frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()


def _read_head(path: Path, options: Mapping[str, Any]) -> list[list[str]]:
    """Cells of the first lines, as pandas separates them."""
    passed = ("sep", "delimiter", "quotechar", "comment", "encoding", "compression", "engine")
    same = {name: options[name] for name in passed if name in options}
    rows = pd.read_csv(
        path,
        header=None,
        names=range(1000),
        nrows=HEAD,
        dtype=str,
        keep_default_na=False,
        skip_blank_lines=False,
        **same,
    )
    rows = rows.fillna("")  # the python engine leaves short lines so
    filled = (rows != "").to_numpy()
    widths = np.where(filled.any(axis=1), 1000 - filled[:, ::-1].argmax(axis=1), 0)
    return [row[:width] for row, width in zip(rows.to_numpy().tolist(), widths, strict=True)]


def _advise_head(head: list[list[str]], options: Mapping[str, Any]) -> str:
    """The option that finds the columns and their names; "" if pandas' defaults do."""
    if not head:
        raise pd.errors.EmptyDataError
    text = "".join(head[0])
    best = max(";\t|", key=text.count)
    if "sep" not in options and text.count(best) >= max(1, len(head[0]) - 1):
        shown = "\\t" if best == "\t" else best
        return f"--csv {quote(f'sep={shown}')}"
    if {"header", "names", "skiprows"} & {*options}:
        return ""
    scores = [[bool(_NUMBER.fullmatch(c.strip())) or looks_like_time(c) for c in r] for r in head]
    first = next((i for i, row in enumerate(scores) if sum(row) >= max(2, len(row) / 2)), None)
    if first is None:
        return ""
    fractions = [bool(re.fullmatch(r"[-+]?\d*\.\d+", cell.strip())) for cell in head[0]]
    if not first and (looks_like_time(head[0][0]) or all(fractions)):
        return "a line of names: give --csv header=None" + " --time 0" * looks_like_time(head[0][0])
    whole = [i for i in range(first) if len({*head[i]} - {""}) == len(head[i]) == len(head[first])]
    timed = [i for i in whole if any(CLOCK.fullmatch(cell.strip()) for cell in head[i])]
    names = next(iter(timed or whole), 0)
    skipped = [i for i in range(first) if i != names]
    if not whole or not skipped or any(map(any, scores[names + 1 : first])):
        return ""
    return f"--csv {quote(f'skiprows={skipped}')}, which skips lines without samples"
