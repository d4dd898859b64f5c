"""A file is read right, or refused with the options that read it right, which are tried here."""

import gzip
import re
import shlex

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aftlib.command.cli import parse_reading
from aftlib.command.cli import plan as command
from aftlib.sensor_plans.sensor_file import read_sensors
from tests.refusals import refused

TIMES = pd.date_range("2024-01-01", periods=400, freq="h", name="time")
RNG = np.random.default_rng(1)
WIDE = pd.DataFrame(
    np.round(20 + RNG.normal(size=(400, 1)) + 0.3 * RNG.normal(size=(400, 3)), 2),
    TIMES,
    ["a", "b", "c"],
)
LONG = WIDE.reset_index().melt("time", var_name="station", value_name="v")
CODED = LONG.assign(station=LONG["station"].map({"a": "0071", "b": "0113", "c": "0114"}))
LINES = WIDE.to_csv().splitlines()
SAMPLES = [line.partition(",")[2] for line in LINES[1:]]


def text(*lines):
    return "\n".join(lines) + "\n"


def timed(stamps, heading=LINES[0]):
    return text(heading, *(f"{t},{row}" for t, row in zip(stamps, SAMPLES, strict=True)))


def european(frame, form=",.2f"):
    swap = str.maketrans(",.", ".,")
    return frame.map(lambda v: format(v, form).translate(swap)).to_csv(sep=";")


def read(path, options=""):
    """Read a file with options as a user types them."""
    given = command.make_context("plan", [str(path), *shlex.split(options)]).params
    names = ("time", "time_format", "time_unit", "tz", "long", "resample", "drop", "missing", "csv")
    return read_sensors(path, **parse_reading({name: given[name] for name in names}))


def write(folder, content, name="f.csv", encoding="utf-8"):
    path = folder / name
    if isinstance(content, str):
        path.write_bytes(content.encode(encoding))
    else:
        content.to_parquet(path)
    return path


def same(table, scale=1.0, names=("a", "b", "c")):
    assert table.names == names
    assert table.values.shape == (400, 3)
    np.testing.assert_allclose(table.values * scale, WIDE.to_numpy())
    if table.time is not None:
        np.testing.assert_array_equal(np.diff(table.time), np.timedelta64(1, "h"))


TOA5 = (
    '"TOA5","Farm7","CR1000","1234"',
    '"TIMESTAMP","a","b","c"',
    '"TS","Deg C","Deg C","Deg C"',
    '"","Avg","Avg","Avg"',
)
SPLIT = [f"{t:%Y-%m-%d},{t:%H:%M}" for t in TIMES]
READ_RIGHT = {
    "plain": (text(*LINES), "f.csv"),
    "P1 codes with leading zeros": (CODED.to_csv(index=False), "f.csv"),
    "P9 a repeated line of names": (text(*LINES[:200], LINES[0], *LINES[200:]), "f.csv"),
    "P11 capitals": (text(*LINES), "LOG0001.CSV"),
    "P11 another suffix": (text(*LINES), "logger.dat"),
    "P12 time as index": (CODED.set_index("time"), "l.parquet"),
    "P12 time and sensor as index": (CODED.set_index(["time", "station"]), "l.parquet"),
    "wide Parquet": (WIDE, "w.parquet"),
    "wide Parquet without a suffix": (WIDE.reset_index(), "w"),
    "P16 UTC": (timed(f"{t} UTC" for t in TIMES), "f.csv"),
    "offsets": (timed(f"{t:%Y-%m-%dT%H:%M:%S}+01:00" for t in TIMES), "f.csv"),
    "offset in hours": (timed(f"{t}-05" for t in TIMES), "f.csv"),
    "with slashes": (timed(f"{t:%Y-%m-%d %H:%M:%S.%f}" for t in TIMES), "f.csv"),
    "trailing separators": (text(LINES[0], *(line + "," for line in LINES[1:])), "f.csv"),
    "no name for the times": (text(*LINES).replace("time", "", 1), "f.csv"),
    "no times": (WIDE.to_csv(index=False), "f.csv"),
    "out of order": (text(LINES[0], *LINES[200:], *LINES[1:200]), "f.csv"),
    "repeated rows": (text(*LINES[:50], *LINES[40:]), "f.csv"),
    "comments": (text("# logger 7", "# x,y", *LINES), "f.csv"),
    "blank lines": (text(*LINES[:5], "", ",,,", *LINES[5:]), "f.csv"),
    "quoted": (text(*(",".join(f'"{c}"' for c in line.split(",")) for line in LINES)), "f.csv"),
}


@pytest.mark.parametrize("case", READ_RIGHT)
def test_what_is_certain_is_read_right(case, tmp_path):
    content, name = READ_RIGHT[case]
    long = not isinstance(content, str) or "station" in content
    long = long and "v" in (content if isinstance(content, str) else content.columns)
    options = "--csv 'comment=#'" * (case == "comments")
    table = read(write(tmp_path, content, name), "--long time,station,v" if long else options)
    same(table, names=("0071", "0113", "0114") if long else ("a", "b", "c"))


def test_separators_may_be_regular_expressions(tmp_path):
    path = write(tmp_path, text(*LINES).replace(",", "   "))
    same(read(path, r"--csv 'sep=\s\s+' --csv engine=python"))


def test_byte_order_marks_are_no_part_of_a_name(tmp_path):
    same(read(write(tmp_path, text(*LINES), encoding="utf-8-sig")))
    path = write(tmp_path, text(*LINES), encoding="utf-16")
    with pytest.raises(ValueError, match="--csv encoding=utf-16"):
        read(path)
    same(read(path, "--csv encoding=utf-16"))


def test_p18_a_line_break_in_a_name_is_kept(tmp_path):
    table = read(write(tmp_path, text(*LINES).replace(",a", ',"Flow\n[m³/h]"', 1)))
    assert table.names[0] == "Flow\n[m³/h]"


def test_packed_files_directories_and_patterns(tmp_path):
    tmp_path /= "field [1]"
    (tmp_path / "figures").mkdir(parents=True)
    (tmp_path / "2024-1.csv.gz").write_bytes(gzip.compress(text(*LINES[:101]).encode()))
    (tmp_path / "2024-2.csv").write_text(text(LINES[0], *LINES[101:]))
    same(read(tmp_path))
    same(read(tmp_path.with_name("field ?1?") / "2024-*"))
    later = WIDE[-100:].shift(100, freq="h").rename(columns={"c": "d"})
    (tmp_path / "2024-3.csv").write_text(later.to_csv())
    table = read(tmp_path, "--drop d")
    assert len(table.values) == 500 and np.isnan(table.values[400:, 2]).all()
    (tmp_path / "2024-3.csv").write_text("time,x\n2024-01-01,1\n")
    with pytest.raises(ValueError, match="rows must differ in time, got two at 2024-01-01"):
        read(tmp_path)


FORM = "name their --time-format, such as .* or the --time-unit"
COLUMN = "it has one column, .*; give .* --csv 'sep=;'"
LENGTH = "does not match length of data"
LINES_TO_SKIP = "skip lines without samples, counted from 0, by --csv 'skiprows"
REFUSED = {  # content, what the message says, the options that a user gives then, one by one
    "semicolons": (WIDE.to_csv(sep=";"), COLUMN, "--csv 'sep=;'"),
    "decimal commas": (european(WIDE, ".2f"), LENGTH, "--csv 'sep=;'", "--csv decimal=,"),
    "P8 logger": (text(*TOA5, *LINES[1:]), LINES_TO_SKIP, "--csv skiprows=[0,2,3]"),
    "P8 title": (text("Farm 7", "", *LINES), LENGTH, "--csv skiprows=[0,1]"),
    "no names": (
        text(*LINES[1:]),
        "names must occur once, and not all be numbers, got .* --csv header=None",
        "--csv header=None",
    ),
    "names that repeat": (
        text(*LINES).replace("a,b,c", "a,b,a", 1),
        r"names must occur once, and not all be numbers, got 'a';",
        """--csv header=0 --csv "names=['time','a','b','c']" """,
    ),
    "saved index": (WIDE.reset_index().to_csv(), "'Unnamed: 0' must hold", "--drop 'Unnamed: 0'"),
    "No Data": (
        text(*LINES).replace(SAMPLES[7], "No Data,ERR,"),
        "'a', 'b' must hold numbers, got 'No Data';.*--csv 'na_values=No Data' --csv na_values=ERR",
        "--csv 'na_values=No Data' --csv na_values=ERR",
    ),
    "a total": (text(*LINES, "total,1,2,3"), "got 'total' in row 401", "--csv skiprows=[401]"),
    "-999.25": (text(*LINES).replace(SAMPLES[7], "-999.25,,"), "-999.25;", "--missing -999.25"),
    "85.0": (
        text(*LINES).replace(SAMPLES[7], "85.0,,").replace(SAMPLES[9], "85,,"),
        "--missing 85;",
        "--missing 85",
    ),
    "two fill values": (
        text(*LINES).replace(SAMPLES[7], "-999,9999,").replace(SAMPLES[9], "9.96921e36,,"),
        "--missing -999,9999,9.96921e\\+36;",
        "--missing -999,9999,9.96921e+36",
    ),
    "days first": (
        timed(f"{t:%d.%m.%Y %H:%M}" for t in TIMES),
        FORM,
        "--time-format '%d.%m.%Y %H:%M'",
    ),
    "seconds": (timed(int(t.timestamp()) for t in TIMES), FORM, "--time-unit s"),
    "milliseconds": (timed(int(t.timestamp()) * 1000 for t in TIMES), FORM, "--time-unit ms"),
    "Excel's days": (
        timed(f"{47882 + i / 24:.5f}" for i in range(400)),
        "got '47882.00000' in row 1 .400 such.*--time-unit excel would fit",
        "--time-unit excel",
    ),
    "MATLAB's days": (
        timed(f"{741842 + i / 24:.6f}" for i in range(400)),
        "got '741842.000000' in row 1 .400 such.*--time-unit matlab would fit",
        "--time-unit matlab",
    ),
    "days since 1970": (
        timed(f"{20000 + i / 24:.6f}" for i in range(400)),
        "got '20000.000000' in row 1 .400 such.*--time-unit D would fit",
        "--time-unit D",
    ),
    "stamps": (timed(f"{t:%Y%m%d%H%M}" for t in TIMES), FORM, "--time-format %Y%m%d%H%M"),
    "days and hours": (
        timed(SPLIT, "day,hour,a,b,c"),
        "--time DATE,HOUR if another column has the hour",
        "--time day,hour",
    ),
    "days and hours of samples": (
        text(
            "date,hour,station,v",
            *(
                f"{t:%Y-%m-%d},{t:%H:%M},{s},{v}"
                for t, s, v in LONG.itertuples(index=False, name=None)
            ),
        ),
        "must hold numbers, got 'a'|rows must differ in time.* --long TIME,SENSOR,VALUE",
        "--long date,station,v",
        "--time date,hour",
    ),
    "a date before the times": (
        timed((f"2030-06-01,{t}" for t in TIMES), "calibrated,timestamp,a,b,c"),
        "got two at 2030-06-01 00:00:00 in column 'calibrated' .*; give --time timestamp if",
        "--time timestamp",
        "--drop calibrated",
    ),
    "a date without end": (
        timed(t if i != 7 else "9999-12-31 23:59:59" for i, t in enumerate(TIMES)),
        r"column 'time' must hold times from 1678 to 2261, got 9999-12-31 23:59:59 in row 8 "
        r".*--csv 'skiprows=\[8\]'",
        "--csv 'skiprows=[8]'",
    ),
    "a date before all": (
        timed(t if i != 7 else "0001-01-01 00:00:00" for i, t in enumerate(TIMES)),
        r"got 0001-01-01 00:00:00 in row 8 .*--csv 'skiprows=\[8\]'",
        "--csv 'skiprows=[8]'",
    ),
    "parts of dates": (
        timed((f"{t:%Y,%m,%d,%H}" for t in TIMES), "year,month,day,hour,a,b,c"),
        "--time year,month,day,hour --time-format '%Y %m %d %H'",
        "--time year,month,day,hour --time-format '%Y %m %d %H'",
    ),
    "record numbers": (
        timed((f"{t},{5000 + i}" for i, t in enumerate(TIMES)), "time,RECORD,a,b,c"),
        "column 'RECORD' must hold measurements.* --drop RECORD",
        "--drop RECORD",
    ),
    "two text columns": (
        text("time,a,b,c,s,t", *(f"{x},ok,fine" for x in LINES[1:])),
        "must hold numbers, got 'ok'.*; leave out what is no sensor by --drop s,t, or",
        "--drop s,t",
    ),
    "one row per sample": (
        CODED.to_csv(index=False),
        "rows must differ in time.* --long TIME,SENSOR,VALUE if a row is one sample",
        "--long time,station,v",
    ),
    "dots that group": (
        (WIDE * 100).map(lambda v: f"{v:,.0f}".replace(",", ".")).to_csv(sep=";"),
        COLUMN,
        "--csv 'sep=;'",
        "--csv thousands=.",
    ),
    "grouped and decimal": (
        european(WIDE * 100),
        LENGTH,
        "--csv 'sep=;'",
        "--csv decimal=, --csv thousands=.",
    ),
    "commas that group": (
        (WIDE * 1000).map(lambda v: f"{v:,.1f}").to_csv(),
        "if commas or dots group digits, --csv thousands=,",
        "--csv thousands=,",
    ),
    "jitter": (
        timed(t + pd.Timedelta(seconds=i % 5 - 2) for i, t in enumerate(TIMES)),
        "rows must lie on even steps.*--resample 1h",
        "--resample 1h",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_options_that_a_refusal_names_read_the_file(case, tmp_path):
    if case in ("a date without end", "a date before all") and pd.__version__ < "3":
        pytest.skip("pandas 2 reads no such time: the refusal says that the text is no time")
    content, message, *steps = REFUSED[case]
    path = write(tmp_path, content)
    options = ""
    for step in steps:
        with pytest.raises(ValueError, match=message) as refusal:
            read(path, options)
        for option in re.findall(r"--csv ['\"]?(\w+=)|(--(?!csv)[\w-]+)", step):
            assert "".join(option) in str(refusal.value)
        message, options = "column|rows", f"{options} {step}"
    table = read(path, options)
    known = ~np.isnan(table.values)
    scale = np.nanmedian(table.values / WIDE.to_numpy())
    assert round(scale) in (1, 100, 1000)
    assert known.mean() > 0.99 and len(table.names) == 3
    np.testing.assert_allclose((table.values / round(scale))[known], WIDE.to_numpy()[known], 0.001)
    if table.time is not None:
        assert (table.time[1] - table.time[0]).total_seconds() == 3600


WITH_QUALITY = text(
    LINES[0], *(f'{t},"+{int(x * 10):04d},1",2,3' for t, x in zip(TIMES, WIDE.a, strict=True))
)
test_what_no_option_reads_is_refused_with_the_cause = refused(
    lambda content, options, tmp_path: read(write(tmp_path, content), options),
    # P6: a number and its quality
    (WITH_QUALITY, "", "if a code or unit follows numbers, change the table in Python"),
    (WITH_QUALITY, "--csv decimal=,", "if a code or unit follows numbers, change the table"),
    (
        text(*LINES[:50], LINES[50] + ",9,9"),
        "",
        "Expected 4 fields in line 51, saw 6; .* or change the table in Python",
    ),
    (
        text(LINES[0], *(x + ",5" for x in LINES[1:])),
        "",
        "does not match length of data.* or change the table in Python",
    ),
    ("PK\x03\x04", "", "is a spreadsheet or an archive: save it as CSV"),
    ("", "", "cannot be read: No columns to parse from file"),
    (text(LINES[0]), "", "FILE must hold two rows and two sensors, got \\(0, 3\\)"),
    (
        text(*LINES),
        "--time date",
        "must name columns, .* got \\['date'\\]; columns are 'time', 'a'",
    ),
    (
        CODED.replace("0071", "NA").to_csv(index=False),
        "--long time,station,v",
        "got none in 400; if one is called NA, give --csv keep_default_na=False",
    ),
    (WIDE.map("{}%".format).to_csv(), "", "got '.*%'; .* if a code or unit .*, change the table"),
    (text(*LINES), "--csv decimal=,", "must hold numbers, got '19.93'"),
    (text(*LINES), "--drop x", "--drop must name some of 'time', .*, got \\['x'\\]"),
    (text(*LINES), "--csv parse=1", "cannot be read: .*unexpected keyword argument 'parse'"),
    (
        WIDE.to_csv(index=False),
        "--resample 1h",
        "--time must name a column for --resample and --tz, got none",
    ),
    (
        text(*LINES[:50], LINES[49].split(",")[0] + ",1,2,3"),
        "",
        "rows must differ in time, got two at",
    ),
    (text(*LINES), "--drop a,b", "FILE must hold two rows and two sensors, got \\(400, 1\\)"),
    (WIDE.to_csv(), "--csv decimal=5", "--csv decimal= must be a mark of its own, got 5"),
    (WIDE.to_csv(), "--csv decimal=, --csv thousands=,", "must be a mark of its own, got ','"),
    (
        WIDE.assign(b=WIDE.b * 1e160).to_csv(),
        "--missing none",
        "sensors must be below 1e.100, got 'b'.*--drop b",
    ),
    (WIDE.assign(b=1).to_csv(), "", "sensors must vary, got 'b', which do not.*--drop b"),
    (
        WIDE.assign(b=WIDE.b.where(WIDE.index < TIMES[99])).to_csv(),
        "",
        "half of the steps.*--drop b",
    ),
    (timed(t if i else "soon" for i, t in enumerate(TIMES)), "", "got 'soon' in row 1"),
    (
        timed(f"{t}{'Z' * (i > 9)}" for i, t in enumerate(TIMES)),
        "",
        "all or none with an offset from UTC.* in every row",
    ),
    (
        timed(t if i else "" for i, t in enumerate(TIMES)),
        "",
        "in every row, got nan in row 1",
    ),
)


def test_ambiguous_dots_are_never_guessed(tmp_path):
    frame = (WIDE * 100).map(lambda v: f"{v:,.0f}".replace(",", "."))
    path = write(tmp_path, frame.to_csv(sep=";"))
    with pytest.raises(ValueError, match="whose dot may group thousands or begin decimals"):
        read(path, "--csv 'sep=;'")
    np.testing.assert_allclose(read(path, "--csv 'sep=;' --csv decimal=.").values * 10, WIDE, 0.01)
    np.testing.assert_allclose(
        read(path, "--csv 'sep=;' --csv thousands=.").values / 100, WIDE, 0.01
    )


def test_a_dot_that_groups_begins_no_decimals(tmp_path):
    with pytest.raises(ValueError, match="'a', 'b', 'c' must hold numbers, got '19.93'"):
        read(write(tmp_path, text(*LINES)), "--csv thousands=.")


@pytest.mark.parametrize(
    ("option", "message"),
    [("--csv compression=gzip", "'damaged.csv' cannot be read: CRC"), ("--tz ''", "--tz must")]
    + [("--csv chunksize=10", "'damaged.csv' cannot be read: 'TextFileReader'")],
)
def test_damaged_files_and_odd_options_are_refused(option, message, tmp_path):
    (tmp_path / "damaged.csv").write_text(text(*LINES))
    if "gzip" in option:
        packed = bytearray(gzip.compress(text(*LINES).encode()))
        packed[200:260] = bytes(60)
        (tmp_path / "damaged.csv").write_bytes(packed)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "damaged.csv", option)


def test_first_rows_without_samples_are_not_taken_for_lines_above_the_names(tmp_path):
    gaps = [f"{t},,," for t in TIMES[:3]]
    table = read(write(tmp_path, text(LINES[0], gaps[0], gaps[1], gaps[2], *LINES[4:])))
    assert len(table.values) == 400 and np.isnan(table.values[:3]).all()


def test_other_encodings_are_named(tmp_path):
    path = write(tmp_path, text(*LINES).replace(",a,", ",Außen °C,", 1), encoding="cp1252")
    with pytest.raises(ValueError, match="--csv encoding=cp1252"):
        read(path)
    assert read(path, "--csv encoding=cp1252").names[0] == "Außen °C"


def hours_of_the_night(order):
    """Local hours around the night in which clocks are set back, in an order of rows."""
    utc = pd.date_range("2024-10-26", periods=60, freq="h", tz="UTC")
    local = WIDE[:60].set_axis(utc.tz_convert("Europe/Berlin").tz_localize(None), axis=0)
    return utc, local.rename_axis("time").iloc[order]


def test_local_times_of_a_zone(tmp_path):
    utc, local = hours_of_the_night(np.arange(60))
    path = write(tmp_path, local.to_csv())
    with pytest.raises(ValueError, match="rows must differ in time.* --tz if clocks were set back"):
        read(path)
    assert list(read(path, "--tz Europe/Berlin").time) == list(utc)


def change_events():
    rows = []
    for sensor in "abc":
        value, time = 20.0, pd.Timestamp("2024-01-01")
        for _ in range(400):
            time += pd.Timedelta(seconds=int(RNG.exponential(1800)) + 1)
            value = round(value + RNG.choice([-0.2, -0.1, 0.1, 0.2]), 1)
            rows.append((time, sensor, value))
    return pd.DataFrame(rows, columns=["time", "sensor", "value"])


@pytest.mark.parametrize("resample", ["", "--resample 1h", "--resample 3h"])
def test_p20_samples_on_change_must_be_held(resample, tmp_path):
    events = change_events()
    path = write(tmp_path, events.to_csv(index=False))
    with pytest.raises(
        ValueError, match=r"when the value changes[:,] hold .*resample\('1min'\).ffill"
    ):
        read(path, f"--long time,sensor,value {resample}")
    wide = events.pivot(index="time", columns="sensor", values="value")
    held = read_sensors(wide.resample("1min").last().ffill().dropna())
    assert held.step == pd.Timedelta("1min") and not np.isnan(held.values).any()


def test_samples_that_come_apart_are_averaged(tmp_path):
    late = pd.Timedelta(seconds=7) * LONG["station"].map({"a": 0, "b": 1, "c": 2})
    path = write(tmp_path, LONG.assign(time=LONG["time"] + late).to_csv(index=False))
    with pytest.raises(ValueError, match="rows must lie on even steps.* --resample 1h"):
        read(path, "--long time,station,v")
    same(read(path, "--long time,station,v --resample 1h"))


def test_hours_in_their_middle_belong_to_the_hour(tmp_path):
    path = write(
        tmp_path, timed(t + pd.Timedelta(minutes=30, seconds=i % 3) for i, t in enumerate(TIMES))
    )
    table = read(path, "--resample 1h")
    same(table)
    assert table.time[0] == TIMES[0]


@pytest.mark.parametrize(
    "column",
    [
        np.cumsum(RNG.random(400)),
        np.arange(400) % 150 + 1.0,  # a counter that is reset
        np.arange(400.0)[::-1],
        RNG.permutation(400),
    ],
)
def test_counters_are_no_sensors(column, tmp_path):
    path = write(tmp_path, WIDE.assign(b=column).to_csv())
    with pytest.raises(ValueError, match="column 'b' must hold measurements.*--drop b,"):
        read(path)
    assert read(path, "--missing none").names == ("a", "b", "c")


@pytest.mark.parametrize(
    "column",
    [
        np.sin(np.arange(400) / 60),
        20 + 0.01 * np.arange(400) + 0.3 * RNG.normal(size=400),
        np.repeat([1.0, 2.0, 1.0, 3.0], 100),
        np.where(RNG.random(400) < 0.3, 0.0, 100 + RNG.normal(size=400)),  # a machine that is off
        np.where(np.arange(400) == 7, 1048.0, RNG.gamma(4, 2, 400).round(1)),  # one outlier
        np.where(RNG.random(400) < 0.9, 0.0, RNG.exponential(5, 400).round(1)),  # rain
        RNG.integers(0, 4, 400),  # states
        RNG.lognormal(4, 1, 400),
        np.random.default_rng(2).normal(12, 6, 400).round(0),  # whole degrees, some below 0
        np.random.default_rng(2).poisson(2, 400) - 1,
        np.where(np.random.default_rng(2).random(400) < 0.3, 150, 400 + 30 * RNG.normal(size=400)),
        np.minimum(np.random.default_rng(2).normal(95, 4, 400).round(1), 100),
        np.maximum(np.random.default_rng(2).normal(0, 20, 400).round(1), -30),
    ],
)
def test_measurements_are_neither_counters_nor_fill_values(column, tmp_path):
    assert read(write(tmp_path, WIDE.assign(b=column).to_csv())).names == ("a", "b", "c")


def test_what_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    path = write(tmp_path, WIDE, "w.parquet")
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    with pytest.raises(ValueError, match="aggregate it to windows with Spark"):
        read(path)


def test_a_frame_is_read_as_it_is():
    frame = WIDE.assign(b=WIDE["b"].astype("Float64").mask(WIDE.index == TIMES[5]))
    table = read_sensors(frame)
    assert np.isnan(table.values[5, 1]) and table.summary_lines[0] == "sensors: 3 ('a', 'b', 'c')"
    days = WIDE.set_axis(pd.period_range("2020-01", periods=400, freq="D"), axis=0)
    assert read_sensors(days).step == pd.Timedelta(days=1)
    pairs = pd.MultiIndex.from_tuples([("x", "a"), ("x", "b"), ("y", "a")])
    assert read_sensors(WIDE.set_axis(pairs, axis=1)).names[0] == "('x', 'a')"
    numbered = LONG.assign(station=LONG["station"].map({"a": 71.0, "b": 72.0, "c": 73.0}))
    same(read_sensors(numbered, long=["time", "station", "v"]), names=("71", "72", "73"))
    same(read_sensors(CODED, long=["time", "station", "v"]), names=("0071", "0113", "0114"))


def test_the_rows_after_a_long_gap_can_be_planned_as_the_refusal_says():
    times = pd.date_range("2026-01-01", periods=300, freq="h")
    times = times.append(times + pd.Timedelta("200D"))
    frame = pd.DataFrame(np.random.default_rng(1).normal(size=(600, 3)), times, list("abc"))
    with pytest.raises(ValueError, match=r"plan\(frame.loc\['2026-07':\]\)"):
        read_sensors(frame)
    assert len(read_sensors(frame.loc["2026-07":]).values) == 300


WIDE_RANGES = {
    "wide, positive": (np.random.default_rng(2).lognormal(4, 1, 400).round(2), -99),
    "wide, positive, small code": (np.random.default_rng(2).lognormal(0, 1, 400).round(3), -1),
    "wide, both signs": ((np.random.default_rng(2).normal(size=400) * 50).round(1), -200),
    "counts": (np.random.default_rng(2).poisson(1100, 400), -200),
    "counts, small code": (np.random.default_rng(2).poisson(1100, 400), -1),
    "rare counts": (np.random.default_rng(2).poisson(40, 400), -1),
    "a single nine": (np.random.default_rng(2).lognormal(1, 1, 400).round(2), -9),
    "nines above": (np.random.default_rng(2).lognormal(2, 0.7, 400).round(2), 99),
}


@pytest.mark.parametrize("case", WIDE_RANGES)
def test_fill_values_within_reach_of_a_wide_range_are_refused(case, tmp_path):
    measured, code = WIDE_RANGES[case]
    missing = np.random.default_rng(3).random(400) < 0.05
    path = write(tmp_path, WIDE.assign(b=np.where(missing, code, measured)).to_csv())
    with pytest.raises(ValueError, match=f"column 'b' .* got {code}, .* --missing {code};"):
        read(path)
    table = read(path, f"--missing {code}")
    np.testing.assert_array_equal(np.isnan(table.values[:, 1]), missing)
    assert not np.isnan(read(path, "--missing none").values).any()


def test_local_times_may_be_newest_first(tmp_path):
    utc, newest = hours_of_the_night(np.arange(60)[::-1])
    table = read(write(tmp_path, newest.to_csv()), "--tz Europe/Berlin")
    assert list(table.time) == list(utc)
    np.testing.assert_array_equal(table.values, WIDE[:60])
    long = newest.reset_index().melt("time", var_name="sensor", value_name="v")
    for name, rows in {
        "by_sensor": long,
        "by_time": long.sort_values("time", kind="stable"),
    }.items():
        path = write(tmp_path, rows.to_csv(index=False), f"{name}.csv")
        table = read(path, "--tz Europe/Berlin --long time,sensor,v")
        assert list(table.time) == list(utc)
        if name == "by_sensor":
            np.testing.assert_array_equal(table.values, WIDE[:60])


def test_a_repeated_hour_among_shuffled_rows_is_refused(tmp_path):
    _, shuffled = hours_of_the_night(np.random.default_rng(1).permutation(60))
    path = write(tmp_path, shuffled.to_csv())
    with pytest.raises(ValueError, match="in order of time for --tz.*02:00:00, which may.*sort"):
        read(path, "--tz Europe/Berlin")


def test_days_of_excel_are_read_to_the_second(tmp_path):
    stamps = [f"{47882 + i / 24:.5f}" for i in range(400)]
    table = read(write(tmp_path, timed(stamps)), "--time-unit excel")
    assert table.time[0] == pd.Timestamp("2031-02-03")
    same(table)
    with pytest.raises(ValueError, match="would be in 2101; give --time-unit excel"):
        read(write(tmp_path, timed(stamps)), "--time-unit D")


@pytest.mark.parametrize(
    "cell", [[1, 2], {"x": 1}, np.array([1.0, 2.0])], ids=["list", "record", "array"]
)
def test_columns_of_lists_are_named(cell, tmp_path):
    path = write(tmp_path, WIDE.assign(trace=[cell] * 400).reset_index())
    path.rename(tmp_path / "f.parquet")
    with pytest.raises(ValueError, match="column 'trace' must hold one number per row.*--drop tr"):
        read(tmp_path / "f.parquet")
    same(read(tmp_path / "f.parquet", "--drop trace"))


@pytest.mark.parametrize(("name", "content"), [("README.txt", "Sensors of the yard\n"), ("0", "")])
def test_other_files_in_a_directory_are_named_with_the_pattern_of_the_rest(name, content, tmp_path):
    (tmp_path / "1.csv").write_text(text(*LINES[:101]))
    (tmp_path / "2.csv").write_text(text(LINES[0], *LINES[101:]))
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=f"'{name}' cannot be read.*if '{name}' holds no") as error:
        read(tmp_path)
    pattern = re.search(r"in quotes, such as '(.*)'", str(error.value)).group(1)
    same(read_sensors(pattern))


@pytest.mark.parametrize("words", [("off", "on"), ("False", "TRUE"), ("no", "yes")])
def test_words_for_off_and_on_are_0_and_1(words, tmp_path):
    pump = (np.arange(400) // 7) % 2
    path = write(tmp_path, WIDE.assign(b=np.array(words)[pump]).to_csv())
    np.testing.assert_array_equal(read(path).values[:, 1], pump)
    gaps = WIDE.assign(b=np.where(np.arange(400) == 9, "", np.array(words)[pump]))
    assert np.isnan(read(write(tmp_path, gaps.to_csv())).values[9, 1])
    boolean = WIDE.assign(b=pump.astype(bool)).reset_index()
    table = read(write(tmp_path, boolean, "f.parquet"))
    np.testing.assert_array_equal(table.values[:, 1], pump)


def test_other_states_are_not_called_missing(tmp_path):
    valve = np.array(["open", "closed", "fault"])[np.arange(400) % 3]
    path = write(tmp_path, WIDE.assign(b=valve).to_csv())
    with pytest.raises(ValueError, match="numbers for the states of 'b' in Python") as refusal:
        read(path)
    assert "na_values" not in str(refusal.value)
    assert read(path, "--drop b").names == ("a", "c")


def test_parquet_with_two_columns_of_one_name_says_how_to_rename_them(tmp_path):
    path = tmp_path / "twice.parquet"
    twice = pa.Table.from_pandas(WIDE.reset_index()).rename_columns(["time", "a", "b", "a"])
    pq.write_table(twice.replace_schema_metadata(), path)
    with pytest.raises(ValueError, match="columns of different names, got 'a' more than") as error:
        read(path)
    assert "--csv" not in str(error.value) and "rename_columns" in str(error.value)
    renamed = pq.ParquetFile(path).read().rename_columns(["time", "a", "b", "c"])
    same(read_sensors(renamed.to_pandas()))


def test_damaged_parquet_is_refused_without_options_of_csv(tmp_path):
    path = write(tmp_path, WIDE, "w.parquet")
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ValueError, match="'w.parquet' cannot be read") as error:
        read(path)
    assert "--csv" not in str(error.value)


@pytest.mark.parametrize(("rate", "step"), [(3, "1s"), (30, "100ms")])
def test_the_step_that_is_offered_fits_the_rate(rate, step, tmp_path):
    stamps = [
        f"{pd.Timestamp('2024-01-01') + pd.Timedelta(round(1000 * i / rate), 'ms')}"
        for i in range(400)
    ]
    path = write(tmp_path, timed(stamps))
    with pytest.raises(ValueError, match=f"such as --resample {step};"):
        read(path)
    assert read(path, f"--resample {step}").step == pd.Timedelta(step)


def test_leaving_out_every_sensor_is_not_advised(tmp_path):
    path = write(tmp_path, (WIDE * 0 + 1).to_csv())
    with pytest.raises(ValueError, match="sensors must vary.*longer record, or another") as error:
        read(path)
    assert "--drop" not in str(error.value)
