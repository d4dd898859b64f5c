"""Awkward files: a right answer, or an error that names the fix; nothing is dropped silently."""

import datetime as dt
import decimal
import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aftlib.sensor_plans.sensor_file import read_sensors
from tests.refusals import refused

ROWS = 120
RNG = np.random.default_rng(3)
VALUES = np.round(20 + RNG.normal(size=(ROWS, 1)) + 0.1 * RNG.normal(size=(ROWS, 3)), 3)
TIMES = pd.date_range("2024-10-24", periods=ROWS, freq="h")
BERLIN = pd.date_range("2024-10-24", periods=ROWS, freq="h", tz="Europe/Berlin")  # back on the 27th


def lines(times=TIMES, values=VALUES, names=("time", "a", "b", "c"), sep=",", dec=".", end="\n"):
    cells = [
        [str(t), *(str(v).replace(".", dec) for v in row)]
        for t, row in zip(times, values, strict=False)
    ]
    return "".join(sep.join(row) + end for row in [names, *cells])


def read(tmp_path, text, name="file.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_sensors(path)


def parquet(tmp_path, **columns):
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"time": pa.array(TIMES.to_pydatetime())} | columns), path)
    return path


def with_column(tmp_path, values):
    names = ("a", "b")
    plain = {name: pa.array(VALUES[:, i]) for i, name in enumerate(names)}
    return parquet(tmp_path, **plain, c=values)


def alternating(text, ends):
    return "".join(line + ends[i % len(ends)] for i, line in enumerate(text.splitlines()))


RIGHT = {
    "offsets that change": lines(map(pd.Timestamp.isoformat, BERLIN)),
    "decimal commas": lines(sep=";", dec=","),
    "a byte order mark": "\ufeff" + lines(),
    "mixed line ends": alternating(lines(), ["\n", "\r\n"]),
    "other mixed line ends": alternating(lines(), ["\r", "\n"]),
    "no end of the last line": lines().rstrip("\n"),
    "spaces around the names": lines(names=("time", " a", "b ", " c ")),
    "quotes with newlines": lines(names=("time", '"a\nleft"', "b", "c")),
    "offsets of hours": lines([f"{t}+01" for t in TIMES]),
    "row names of R": "time,a,b,c\n"
    + "".join(f'"{i}",{row}\n' for i, row in enumerate(lines().splitlines()[1:], 1)),
    "from the last to the first": lines(TIMES[::-1], VALUES[::-1]),
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_these_are_read_as_they_are_meant(text, tmp_path):
    table = read(tmp_path, text)
    np.testing.assert_array_equal(table.values, VALUES)
    assert len(table.names) == 3 and table.time[1] - table.time[0] == pd.Timedelta("1h")


def test_whole_numbers_may_come_long_before_the_first_decimal_comma(tmp_path):
    values = np.vstack([np.round(VALUES), VALUES])
    texts = [[f"{v:g}".replace(".", ",") for v in row] for row in values]
    times = pd.date_range("2024-01-01", periods=len(values), freq="h")
    table = read(tmp_path, lines(times, np.array(texts, object), sep=";"))
    np.testing.assert_allclose(table.values, values)


REFUSED = {
    "an hour twice": (
        lines([t.tz_localize(None) for t in BERLIN]),
        "share the time 2024-10-27 02:00:00 .*clocks were set back, write the offset from UTC",
    ),
    "some offsets": (
        lines([t.isoformat() if i else str(TIMES[0]) for i, t in enumerate(BERLIN)]),
        "'time' must have an offset from UTC in every row or in none, got '2024-10-24 00:00:00'",
    ),
    "a name twice": (lines(names=("time", "a", "a", "c")), "got 'a' more than once; rename"),
    "a name twice, with semicolons": (
        lines(names=("time", "a", "b", "b"), sep=";"),
        "got 'b' more than once; rename",
    ),
    "nothing but names": ("time,a,b,c\n", r"got shape \(0, 4\): is it empty"),
    "one name missing": (
        lines(names=("time", "a", "", "c")),
        r"got none for column 3: name it in the first line, or leave it out with drop=\['Unnamed",
    ),
    "a name twice beside a space": (
        lines(names=("time", "a", " a", "c")),
        "got 'a' more than once",
    ),
    "no names": (lines().split("\n", 1)[1], "must have names, got '2024-10-24 00:00:00'"),
    "no names and no times": (
        "".join(",".join(map(str, row)) + "\n" for row in VALUES),
        "must have names, got .*: put a line of names before",
    ),
    "units below the names": (
        lines().replace("\n", "\n,°C,°C,°C\n", 1),
        "a time in every row, got an empty one in row 1; remove such rows",
    ),
    "one name less than values": (
        lines(names=("time", "a", "b")),
        "its rows have one value more than its first line has names: name every column",
    ),
    "a late value behind a separator": (
        "time,a,b\n"
        + "".join(
            f"{t},{i % 7},{i % 5}," + "9" * (i > 1100) + "\n"
            for i, t in enumerate(pd.date_range("2024", periods=1200, freq="h"))
        ),
        "a row has more values than the first line has names",
    ),
    "numbers instead of names": ("20240101,0,40\n20240102,1,41\n20240103,0,40\n", "must have na"),
    "fractions instead of names": ("20.13,40\n20.5,41\n20.1,40\n", "must have names"),
    "nan instead of a name": ("20.13,nan\n20.5,41\n20.1,40\n", "must have names"),
    "powers instead of names": ("5.0e-01,1.0e-01\n2e-01,3e-01\n1e-01,9e-01\n", "must have names"),
    "quoted groups between commas": (
        lines().replace("\n", ",x\n", 1).replace("\n2024", ',"1,160"\n2024'),
        "'x' must be numeric",
    ),
    "a spreadsheet's separator": ("sep=;\n" + lines(sep=";"), "'sep=;': remove that line"),
    "words before the names": (
        "# logger 7\n" + lines(),
        "values more than its first line has names: begin",
    ),
    "days of a spreadsheet": (
        lines([45292 + i / 24 for i in range(ROWS)]),
        "'time' must hold measurements, .* from 45292 .* no times since 1970; leave it out",
    ),
    "a tail of nothing": (lines() + "\0" * 500, r"got '.{0,80} in row 121"),
    "a packed file": (gzip.compress(lines().encode()), "it is packed: unpack it"),
}


test_these_are_refused_with_a_fix = refused(
    lambda text, tmp_path: read(tmp_path, text), *REFUSED.values()
)


def test_a_packed_files_name_shows_its_format(tmp_path):
    with pytest.raises(ValueError, match=r"got '.*file.csv.zip'; unpack it"):
        read(tmp_path, gzip.compress(b"a,b"), "file.csv.zip")
    with pytest.raises(ValueError, match=r"path must end in .csv or .csv.gz or .*; save it as CSV"):
        read(tmp_path, "a,b", "file.xlsx")
    with pytest.raises(ValueError, match=r"got '.*file.csv.gz' \(.*Not a gzipped file"):
        read(tmp_path, lines(), "file.csv.gz")


def test_times_from_a_start_are_taken_when_they_are_named(tmp_path):
    path = tmp_path / "file.csv"
    path.write_text(lines(range(0, 10 * ROWS, 10)))
    with pytest.raises(ValueError, match="take it as times with time='time'"):
        read_sensors(path)
    assert read_sensors(path, time="time").time[1].second == 10
    assert read_sensors(path, drop=["time"]).names == ("a", "b", "c")


def test_a_sensor_without_values_is_refused_by_name(tmp_path):
    texts = [[a, "", c] for a, _, c in VALUES.tolist()]
    with pytest.raises(ValueError, match=r"'b' must hold a finite value.*drop=\['b'\]"):
        read(tmp_path, lines(values=np.array(texts, object)))


EXACT = [decimal.Decimal(str(v)) for v in VALUES[:, 2]]
ONE = VALUES[:, 2]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(EXACT),
        pa.array(ONE).dictionary_encode(),
        pa.array(ONE.astype("f4")).cast(pa.float64()),
    ],
    ids=["decimal", "dictionary", "float"],
)
def test_parquet_stores_numbers_in_many_types(column, tmp_path):
    path = with_column(tmp_path, column)
    np.testing.assert_allclose(read_sensors(path).values, VALUES, rtol=1e-7)


test_parquet_columns_that_are_no_sensors_are_refused = refused(
    lambda column, tmp_path: read_sensors(with_column(tmp_path, column)),
    (pa.array([{"x": 1.0}] * ROWS), "'c' must be numeric, .*drop="),
    (pa.array([[1.0, 2.0]] * ROWS), "'c' must be numeric, .*drop="),
    (pa.array(["x", "y"] * (ROWS // 2)).dictionary_encode(), "'c' must be numeric, .*'x'"),
    (pa.array((TIMES + pd.Timedelta("1s")).to_pydatetime()), "'c' must be numeric, .*drop="),
    (pa.nulls(ROWS), "'c' must be numeric, .*drop="),
    (pa.array([dt.time(1)] * ROWS), "'c' must hold whole times, .*drop="),
)


def test_parquet_columns_of_one_name_and_empty_files_are_refused(tmp_path):
    path = tmp_path / "file.parquet"
    columns = [pa.array(TIMES.to_pydatetime()), *(pa.array(v) for v in VALUES.T)]
    pq.write_table(pa.Table.from_arrays(columns, names=["time", "a", "a", "c"]), path)
    with pytest.raises(ValueError, match="columns must differ, got 'a' more than once; rename"):
        read_sensors(path)
    pq.write_table(pa.Table.from_arrays(columns, names=["time", "a", "b", "c"])[:0], path)
    with pytest.raises(ValueError, match="is it empty"):
        read_sensors(path)


def test_many_sensors_and_few_rows(tmp_path):
    values = RNG.normal(size=(50, 3000))
    names = ("time", *(f"s{i}" for i in range(3000)))
    table = read(tmp_path, lines(TIMES[:50], values, names))
    np.testing.assert_array_equal(table.values, values)


def test_a_file_that_ends_early_or_has_a_long_name_is_refused(tmp_path):
    packed = gzip.compress(lines().encode())
    with pytest.raises(ValueError, match="path must hold a table"):
        read(tmp_path, packed[: len(packed) // 2], "file.csv.gz")
    with pytest.raises(ValueError, match="path must hold a table, got .*too long"):
        read_sensors(tmp_path / ("x" * 300 + ".csv"))


WRONG = {
    **{"encoding": ["base64", 5], "tz": ["", 5], "missing": [5, "-999", ["x"]], "drop": [5, "a"]},
    **{"where": ["a=1", [1]], "long": ["a", [1, 2, 3]], "time": [5], "na": ["x", 5]},
    **{"comment": [12, ""], "measured": ["a"]},
}


def read_with(name, value, tmp_path):
    (tmp_path / "file.csv").write_text(lines())
    read_sensors(tmp_path / "file.csv", **{name: value})


test_options_of_another_type_are_refused = refused(
    read_with,
    *((name, value, f"{name} must be") for name, values in WRONG.items() for value in values),
)
