"""Awkward files: a right answer, or an error that names the way out; nothing dropped in silence."""

import datetime as dt
import decimal
import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aftlib.sensor_plans import layout as layouts
from aftlib.sensor_plans.layout import layout_of, stretches_of
from aftlib.sensor_plans.sensor_file import read_sensors

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
    "old line ends": lines(end="\r"),
    "no end of the last line": lines().rstrip("\n"),
    "quotes with newlines": lines(names=("time", '"a\nleft"', "b", "c")),
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
    "one value": (lines(values=np.where([0, 1, 0], 5.0, VALUES)), "'b' must vary.* drop="),
    "nothing but names": ("time,a,b,c\n", r"got shape \(0, 4\): is it empty"),
    "no names": (lines().split("\n", 1)[1], "must have names, got '2024-10-24 00:00:00'"),
    "no names and no times": (
        "".join(",".join(map(str, row)) + "\n" for row in VALUES),
        "must have names, got .*: put a line of names before",
    ),
    "units below the names": (
        lines().replace("\n", "\n,°C,°C,°C\n", 1),
        "a time in every row, got an empty one in row 1; remove such rows",
    ),
    "words before the names": (
        "# logger 7\n" + lines(),
        "values more than its first line, which names the columns",
    ),
    "days of a spreadsheet": (
        lines([45292 + i / 24 for i in range(ROWS)]),
        "'time' only grows, .* holds no times since 1970, from 45292 .*drop=",
    ),
    "a tail of nothing": (lines() + "\0" * 500, r"got '.{0,80} in row 121"),
    "a packed file": (gzip.compress(lines().encode()), "it is packed: unpack it"),
    "one row": (lines(TIMES[:1]), "at least two rows, got 1"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_these_are_refused_with_the_way_out(text, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        read(tmp_path, text)


def test_a_packed_files_name_tells(tmp_path):
    with pytest.raises(ValueError, match=r"got '.*file.csv.gz'; unpack it"):
        read(tmp_path, gzip.compress(b"a,b"), "file.csv.gz")


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
def test_parquet_keeps_numbers_in_many_ways(column, tmp_path):
    path = with_column(tmp_path, column)
    np.testing.assert_allclose(read_sensors(path).values, VALUES, rtol=1e-7)


def test_decimals_are_read_through_spark_too(tmp_path):
    layout = layout_of(with_column(tmp_path, pa.array([None, *EXACT[1:]])))
    (stretch,) = stretches_of(layout, 10**6)
    ((_, values, *_),) = layout.read(stretch)
    np.testing.assert_allclose(values[1:], VALUES[1:])
    assert np.isnan(values[0, 2])


def test_through_spark_times_may_be_decimals_and_row_groups_empty(tmp_path):
    seconds = [decimal.Decimal(int(t.timestamp())) for t in TIMES]
    table = pa.table({"time": pa.array(seconds)} | dict(zip("abc", VALUES.T, strict=True)))
    with pq.ParquetWriter(tmp_path / "file.parquet", table.schema) as file:
        for rows in (table, table[:0]):
            file.write_table(rows)
    found = layout_of(tmp_path / "file.parquet", time="time")
    assert (found.first, found.steps) == (TIMES[0], ROWS)


@pytest.mark.parametrize("ends", [["\r"], ["\r", "\n"]])
def test_through_spark_a_heading_must_end_as_other_systems_lines_do(ends, tmp_path):
    """Or the rows up to the first newline would be taken for its rest."""
    path = tmp_path / "file.csv"
    path.write_bytes(alternating(lines(), ends).encode())
    with pytest.raises(ValueError, match="its first line ends with a carriage return alone"):
        layout_of(path)


@pytest.mark.parametrize("more", [",7", ",,7", ",7,7"])
@pytest.mark.parametrize("row", [1, 60])
def test_through_spark_no_cell_is_left_out(row, more, tmp_path, monkeypatch):
    monkeypatch.setattr(layouts, "HEAD", 20)
    said = lines().splitlines()
    said[row] += more
    path = tmp_path / "file.csv"
    path.write_text("\n".join(said))
    with pytest.raises(ValueError, match="a line has more cells than the first, which names"):
        samples_of(path, 5)


@pytest.mark.parametrize(
    ("end", "head", "said"),
    [
        (",7", 200, r"file.csv' \(Expected 4 fields in line 33, saw 5: a line has more cells"),
        (",7", 20, "^a line has more cells than the first"),
        (",7,7", 20, "^a line has more cells than the first"),
        (',"7', 200, r"file.csv' \(.*EOF inside string starting at row 32\)"),
        (',"7', 20, "EOF inside string$"),
    ],
)
def test_through_spark_the_reason_is_told_and_the_line_where_it_is_known(
    end, head, said, tmp_path, monkeypatch
):
    monkeypatch.setattr(layouts, "HEAD", head)
    rows = lines().splitlines()
    rows[32] = (rows[32].rpartition(",")[0] if '"' in end else rows[32]) + end
    path = tmp_path / "file.csv"
    path.write_text("\n".join(rows))
    with pytest.raises(ValueError, match=said) as refused:
        samples_of(path, 10**6)
    assert ("more cells" in str(refused.value)) == ('"' not in end)


def test_through_spark_the_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(layouts, "HEAD", 20)
    rows = lines().splitlines()
    (tmp_path / "a.csv").write_text("\n".join(rows[:60]))
    (tmp_path / "b.csv").write_text("\n".join([rows[0], *rows[60:]]) + ",7")
    with pytest.raises(ValueError, match=r"must hold a table, got '.*b\.csv' \(a line has more"):
        layout_of(tmp_path)
    (tmp_path / "b.csv").write_text(lines(names=("time", "a", "a", "c")))
    with pytest.raises(ValueError, match=r"a table, got '.*b\.csv' \(columns must differ, got 'a'"):
        layout_of(tmp_path)


def test_through_spark_a_later_parquet_file_is_named_too(tmp_path):
    columns = [pa.array(TIMES.to_pydatetime()), *(pa.array(v) for v in VALUES.T)]
    for name, names in (("1", ["time", "a", "b", "c"]), ("2", ["time", "a", "a", "c"])):
        rows = pa.Table.from_arrays(columns, names=names)
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    with pytest.raises(ValueError, match=r"got '.*2\.parquet' \(columns must differ, got 'a'"):
        layout_of(tmp_path)


@pytest.mark.parametrize("end", ["", ","])
def test_through_spark_a_short_line_is_filled_however_it_is_cut(end, tmp_path):
    said = lines().splitlines()
    said[60] = said[60].rpartition(",")[0]
    path = tmp_path / "file.csv"
    path.write_text("\n".join([said[0], *(line + end for line in said[1:])]))
    expected = VALUES.copy()
    expected[59, 2] = np.nan
    for cells in (3, 10**6):
        np.testing.assert_array_equal(samples_of(path, cells), expected)


def samples_of(path, cells):
    layout = layout_of(path)
    parts = [part for one in stretches_of(layout, cells) for _, part, *_ in layout.read(one)]
    return np.concatenate(parts)


def test_through_spark_a_heading_is_one_line(tmp_path):
    path = tmp_path / "file.csv"
    for end in ("\nleft", "\n" * 10**6):
        path.write_text(lines(names=("time", f'"a{end}"', "b", "c")))
        with pytest.raises(ValueError, match="its first line ends within a name: rename that col"):
            layout_of(path)
    path.write_text(lines(names=("time", 'pipe of 5"', "b", "c")))
    assert layout_of(path).names == ('pipe of 5"', "b", "c")


@pytest.mark.parametrize("text", [lines(names=("time", "a", "a", "c")), "time,a,b,c\n"])
def test_through_spark_the_same_is_refused(text, tmp_path):
    path = tmp_path / "file.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match="more than once; rename|is it empty"):
        layout_of(path)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([{"x": 1.0}] * ROWS), "'c' must be numeric, .*drop="),
        (pa.array([[1.0, 2.0]] * ROWS), "'c' must be numeric, .*drop="),
        (pa.array(["x", "y"] * (ROWS // 2)).dictionary_encode(), "'c' must be numeric, .*'x'"),
        (pa.array((TIMES + pd.Timedelta("1s")).to_pydatetime()), "'c' must be numeric, .*drop="),
        (pa.array([dt.time(1)] * ROWS), "'c' must be numeric, .*drop="),
    ],
    ids=["struct", "list", "words", "times", "clock"],
)
def test_parquet_columns_that_are_no_sensors_are_refused(column, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        read_sensors(with_column(tmp_path, column))


def test_parquet_columns_of_one_name_and_empty_files_are_refused(tmp_path):
    path = tmp_path / "file.parquet"
    columns = [pa.array(TIMES.to_pydatetime()), *(pa.array(v) for v in VALUES.T)]
    pq.write_table(pa.Table.from_arrays(columns, names=["time", "a", "a", "c"]), path)
    for read in (read_sensors, layout_of):
        with pytest.raises(ValueError, match="columns must differ, got 'a' more than once; rename"):
            read(path)
    pq.write_table(pa.Table.from_arrays(columns, names=["time", "a", "b", "c"])[:0], path)
    with pytest.raises(ValueError, match="is it empty"):
        read_sensors(path)


def test_many_sensors_and_few_rows(tmp_path):
    values = RNG.normal(size=(50, 3000))
    names = ("time", *(f"s{i}" for i in range(3000)))
    table = read(tmp_path, lines(TIMES[:50], values, names))
    np.testing.assert_array_equal(table.values, values)
