"""Text tables as pandas reads them: encoding, separator, decimal sign, comments, gzip.

Our own code decides only what pandas cannot: separator, decimal sign and grouped thousands. A file
that would fill the memory is refused.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, cast

import pandas as pd

LONGEST_LINE = 2**20
"""A line of up to this many bytes is accepted; a line of twice as many is always refused."""
HEAD_ROWS = 1000
"""Rows that are read to see whether every row ends with a separator."""
HEAD = 2**22
"""Characters that are searched for the decimal sign; many, because whole numbers may come first."""
_GZIP = b"\x1f\x8b"
_PACKED = (_GZIP, b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_DOTS = re.compile(r"[-+]?\d*(\.\d+)+")
_GROUPS = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+")
_PLAIN = re.compile(r"[-+]?[1-9]\d{3,}")
_SMALL = re.compile(r"[-+]?\d{1,3}")
_GROUPED = {
    ",": r"[-+]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?",
    ".": r"[-+]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?",
}
_SWAPPED = str.maketrans(",.", ".,")
# 31.1.2024: with dots the day always comes first.
DOTTED = re.compile(r"^(\d{1,2})\.(\d{1,2})\.(\d{4})(?!\d)")


@dataclass(frozen=True)
class TextFormat:
    """Properties of a text table's format that its first lines do not show."""

    decimal: str | None = None  # decimal sign; None: found in the file
    encoding: str | None = None  # None: UTF-8
    comment: str | None = None  # a character: the rest of a line after it is left out
    na: Sequence[str] = ()  # texts that stand for a missing value, besides pandas' own


def memory_bytes() -> int:
    """Return the memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def require_distinct(names: Iterable[str]) -> None:
    """Refuse columns of the same name, which pandas renames silently; empty names may repeat."""
    counts = Counter(name.strip() for name in names)
    repeated = [name for name, count in counts.items() if count > 1 and name]
    if repeated:
        raise ValueError(f"columns must differ, got {repeated[0]!r} more than once; rename them")


def csv_options(path: Path, form: TextFormat) -> dict[str, Any]:
    """Arguments with which pandas reads a text table: separator, decimal sign and index.

    ValueError when two columns have the same name, a dot may group thousands, or the table would
    fill the memory.
    """
    _require_format(form)
    decimal, encoding = form.decimal, form.encoding or "utf-8-sig"
    with _open_unpacked(path) as file:
        _require_lines(file)
    with _open_unpacked(path) as file:
        text = io.TextIOWrapper(file, encoding, errors="replace")
        first = text.readline(LONGEST_LINE)
        while form.comment and first.lstrip().startswith(form.comment):
            first = text.readline(LONGEST_LINE)
        rest = text.read(HEAD)
    if re.fullmatch(r"\W?sep=.\s*", first):
        raise ValueError(f"its first line is {first.strip()!r}: remove that line")
    separator = max(",;\t", key=first.count)
    with suppress(csv.Error):  # pandas reports it
        require_distinct(next(csv.reader(io.StringIO(first + rest), delimiter=separator), []))
    if decimal is None:
        field = rf"(?:^|[{separator}])\s*[-+]?\d+,\d+\s*(?:[{separator}]|$)"
        decimal = "," if separator != "," and re.search(field, rest, re.M) else "."
        _require_plain_dots(first + rest, separator, decimal)
    options: dict[str, Any] = {"sep": separator, "decimal": decimal, "encoding": encoding}
    options |= {"comment": form.comment, "na_values": list(form.na)}
    head = pd.read_csv(path, nrows=HEAD_ROWS, **options)
    if head.index.nlevels > 1:
        raise ValueError(
            f"its rows have {head.index.nlevels} values more than its first line has names: begin "
            "the file with the line that names all columns"
        )
    if not isinstance(head.index, pd.RangeIndex) and len(head):
        if head.iloc[:, -1].isna().all():
            # every row ends with a separator, after which pandas reads a further column
            options["index_col"] = False
        elif not any(list(head.index) == list(range(i, i + len(head))) for i in (0, 1)):
            raise ValueError(
                "its rows have one value more than its first line has names: name every column "
                "in the first line"
            )
    return options


def _require_format(form: TextFormat) -> None:
    """Refuse a decimal sign, comment or encoding that pandas cannot use."""
    if form.decimal not in (None, ",", "."):
        raise ValueError(f"decimal must be ',' or '.', got {form.decimal!r}")
    if form.comment is not None and len(str(form.comment)) != 1:
        raise ValueError(f"comment must be one character, got {form.comment!r}")
    try:
        "x".encode(form.encoding or "utf-8")
    except LookupError:
        raise ValueError(
            f"encoding must be one of Python's, such as 'cp1252', got {form.encoding!r}"
        ) from None


def _open_unpacked(path: Path) -> BinaryIO:
    """Open a file, unpacked if its name ends in .gz; ValueError when it is packed otherwise."""
    with path.open("rb") as file:
        packed = file.read(4).startswith(_PACKED)
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path))
    if packed:
        raise ValueError("it is packed: unpack it, or name it .csv.gz")
    return path.open("rb")


def _require_lines(file: BinaryIO) -> None:
    """Refuse a text whose lines are too long, or which would fill the memory."""
    size, most = 0, memory_bytes() // 2
    while len(block := file.read(LONGEST_LINE)) == LONGEST_LINE:
        size += len(block)
        if b"\n" not in block and b"\r" not in block:
            raise ValueError(f"a line is longer than {LONGEST_LINE:,} bytes: is this a table?")
        if size > most and isinstance(file, gzip.GzipFile):
            raise ValueError(
                f"it unpacks to more than {most / 1e9:,.1f} GB, half of the memory: unpack it, so "
                "that it is read in pieces"
            )


def _require_plain_dots(text: str, separator: str, sign: str) -> None:
    """Refuse a table in which every "1.160" may mean 1160: no column has "1.5" or "0.820".

    With commas between the columns, decimals are refused only beside "820" or as "1.160.000".
    With the decimal sign ",", the same holds for "1,160".
    """
    text = text.translate(_SWAPPED) if sign == "," else text
    try:
        names, *rows = csv.reader(io.StringIO(text), delimiter=separator)
    except (csv.Error, ValueError):
        return
    dotted_dates = any(DOTTED.match(cell.strip()) for row in rows[:1] for cell in row)
    plain = any(_PLAIN.fullmatch(cell.strip()) for row in rows for cell in row[1:])
    ambiguous = ""
    for name, *column in zip_longest(names, *rows[:-1] or rows, fillvalue=""):
        cells = [cell.strip() for cell in column if cell.strip()]
        dotted = [cell for cell in cells if _DOTS.fullmatch(cell)]
        if not dotted or DOTTED.match(dotted[0]):
            continue
        whole = [cell for cell in cells if "." not in cell]
        small = all(_SMALL.fullmatch(cell) for cell in whole)
        if not small or not all(_GROUPS.fullmatch(cell) for cell in dotted):
            return
        grouped = whole or dotted_dates or any(cell.count(".") > 1 for cell in dotted)
        if grouped or not (plain or separator == "," or sign == ","):
            texts = [*whole[:1], dotted[0].replace(".", sign)]
            examples = " and ".join(map(repr, texts))
            ambiguous = ambiguous or f"column {name!r} holds {examples}"
    if ambiguous:
        raise ValueError(_two_meanings(ambiguous, sign))


def _two_meanings(ambiguous: str, sign: str) -> str:
    """The message for a column in which "1.160" may mean 1160."""
    return (
        f"{ambiguous}, whose {'dot' if sign == '.' else 'comma'} may group thousands or begin "
        f"decimals; give decimal={sign.translate(_SWAPPED)!r} where it groups, or else "
        f"decimal={sign!r}"
    )


class LateDots:
    """Refuse numbers such as "1.160" if a column holds only whole numbers before them.

    `_require_plain_dots` sees the first `HEAD` characters. The rows come in consecutive pieces. A
    column whose first fraction comes later is read once more, as texts.
    """

    def __init__(self, path: Path, options: dict[str, Any], named: bool) -> None:
        self.path, self.options = path, options
        self.known: set[str] = set()  # columns with fractions
        self.first = True
        self.off = named or (path.suffix != ".gz" and path.stat().st_size <= HEAD)

    def add(self, frame: pd.DataFrame) -> None:
        """Check the next rows; ValueError for a column whose first fractions look like groups."""
        if self.off:
            return
        numbers = frame.select_dtypes("number")
        self.off = self.first and _fractions(numbers[:HEAD_ROWS]).any()
        self.first = False
        if not self.off:
            for name in numbers.columns[_fractions(numbers)].difference(self.known):
                self.known.add(name)
                self._require_plain(name)

    def _require_plain(self, name: str) -> None:
        """Refuse a column of numbers such as "820" and "1.160"."""
        sign, whole, groups = self.options["decimal"], "", ""
        how = self.options | {"dtype": str, "chunksize": 100 * HEAD_ROWS}
        with pd.read_csv(self.path, **how) as pieces:
            for piece in pieces:
                texts = piece[name].dropna().str.strip()
                dotted = texts.str.contains(sign, regex=False)
                plain = texts.str.replace(sign, ".", regex=False)
                if not plain.str.fullmatch(f"{_GROUPS.pattern}|{_SMALL.pattern}").all():
                    return
                whole = whole or next(iter(texts[~dotted]), "")
                groups = groups or next(iter(texts[dotted]), "")
        examples = f"{whole!r} and {groups!r}"
        raise ValueError(_two_meanings(f"column {name!r} holds {examples}", sign))


def _fractions(numbers: pd.DataFrame) -> Any:
    """Whether each column of numbers has one with a fraction."""
    return (numbers.notna() & (numbers % 1 != 0)).any().to_numpy()


def with_numbers(frame: pd.DataFrame, decimal: str, named: bool) -> pd.DataFrame:
    """Strip the names; convert texts such as "1.160,5", or "1,160.5", by the decimal sign.

    Commas group thousands only where the user `named` the decimal sign.
    """
    frame = frame.rename(columns=lambda name: str(name).strip())
    group = decimal.translate(_SWAPPED)
    sure = named or decimal == ","
    for name in frame.select_dtypes(exclude=["number", "bool"]) if sure else ():
        texts = frame[name].astype("string").str.strip()
        if texts.notna().any() and texts.str.fullmatch(_GROUPED[decimal]).fillna(True).all():
            plain = texts.str.replace(group, "", regex=False).str.replace(decimal, ".", regex=False)
            frame[name] = plain.astype("Float64").astype(float)
    return frame
