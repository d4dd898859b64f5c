"""Files that look like measurements and are not: fill values, counters, stamps, grouped digits."""

import json
from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from tests.tiny_project import aft

from aftlib.core.fillvalues import find_fill_values, mark_missing, shown
from aftlib.sensor_plans.sensor_file import Inventory, read_sensors

ROWS = 2000
TIMES = pd.date_range("2024-01-01", periods=ROWS, freq="10min", name="time")
HOURS = np.arange(ROWS)


def draw(seed=1):
    return np.random.default_rng(seed)


ROOM = 20 + 2 * np.sin(HOURS / 200)[:, None] + 0.5 * draw().normal(size=(ROWS, 3))
OUTDOOR = np.round(12.5 + 28 * np.sin(HOURS / 300)[:, None] + draw().normal(size=(ROWS, 3)), 2)
DUST = np.round(np.exp(4 + draw().normal(size=(ROWS, 3))), 1)


def frame(values=ROOM, times=TIMES):
    return pd.DataFrame(values, times, list("abc")).rename_axis("time")


def with_code(values, code, share):
    codes = draw(7).random(ROWS) < share
    return frame(np.where(codes[:, None] & [True, False, False], code, values)), int(codes.sum())


def read(tmp_path, given, **how):
    path = tmp_path / "f.csv"
    path.write_text(given) if isinstance(given, str) else given.to_csv(path, index="time" in how)
    return read_sensors(path, **how)


def plan(tmp_path, given, *options):
    given.to_csv(tmp_path / "f.csv")
    more = ("--epsilon-sd", 0.5, "--no-report", "--output", tmp_path / "p.json")
    return aft("plan", tmp_path / "f.csv", *more, *options).output


CODES = [9.97e36, 3.4e38, 1e20, 1e9, -9.99e8, -127, 85.0, -999.25, -6999, -100]


@pytest.mark.parametrize("share", [0.005, 0.03, 0.3])
@pytest.mark.parametrize("code", CODES)
def test_fill_values_are_refused_however_many_there_are(code, share, tmp_path):
    given, count = with_code(ROOM, code, share)
    given.to_csv(tmp_path / "f.csv")
    with pytest.raises(
        ValueError, match=rf"column 'a' must hold .*\({count} such.* missing="
    ) as info:
        read_sensors(tmp_path / "f.csv")
    marked = json.loads(str(info.value).partition("missing=")[2].partition(",")[0])
    table = read_sensors(tmp_path / "f.csv", missing=marked)
    assert table.quality.marked == count == np.isnan(table.values).sum()
    assert f"values marked as missing: {count:,}" in Inventory.of(table).summary_lines


DEGREES = np.round(ROOM)
SEVERAL = {
    "seven levels": (DEGREES, [9.97e36]),
    "a switch": (1.0 * (ROOM > 20), [-9.99e8]),
    "a dry gauge": (0 * ROOM, [-999]),
    "a closed valve": (0 * ROOM, [9.97e36]),
    "seven codes of a satellite": (ROOM, range(32761, 32768)),
    "five codes of a logger": (ROOM, range(-1005, -1000)),
}


@pytest.mark.parametrize(("values", "codes"), SEVERAL.values(), ids=SEVERAL)
def test_fill_values_of_few_levels_and_many_codes_are_refused(values, codes, tmp_path):
    chosen = draw(7).choice(list(codes), ROWS)
    given = frame(np.where((draw(8).random(ROWS) < 0.03)[:, None] & [True, False, False],
                           chosen[:, None], values)).assign(d=ROOM[:, 0], e=ROOM[:, 1])  # fmt: skip
    given = given[["a", "d", "e"]]
    with pytest.raises(ValueError, match="column 'a' must hold measurements, got") as refused:
        read(tmp_path, given)
    marked = json.loads("[" + str(refused.value).partition("missing=[")[2].partition("]")[0] + "]")
    assert sorted(marked) == sorted(codes)
    if values.any():
        assert np.isnan(read(tmp_path, given, missing=marked).values).any()


@pytest.mark.parametrize(
    ("values", "code"),
    [(OUTDOOR, 85.0), (OUTDOOR, -100), (DUST, -100), (ROOM, 0), (DEGREES, -100)],
)
def test_repeated_values_that_a_sensor_might_measure_are_a_warning(values, code, tmp_path):
    given, count = with_code(values, code, 0.03)
    output = plan(tmp_path, given)
    warning = f"! Possible fill value: {code:g} ({count} times) in a, whose other values lie from"
    assert warning in output and f"give --missing {code:g}." in output
    assert "fill value" not in plan(tmp_path, given, "--missing", f"{code:g}")


def test_several_fill_values_are_named_at_once_and_marked_by_the_command(tmp_path):
    given, _ = with_code(ROOM, -127, 0.01)
    given.iloc[500:520, 1] = 85.0
    assert "and such values in 1 more columns, " in plan(tmp_path, given)
    assert "mark it with --missing -127,85, or leave" in plan(tmp_path, given)
    assert "values marked as missing: " in plan(tmp_path, given, "--missing", "-127,85")
    assert "Back-test" in plan(tmp_path, given, "--missing", "none")
    assert "--missing must be numbers separated by commas, or the word none" in plan(
        tmp_path, given, "--missing", "x"
    )


MEASURED = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy tails": lambda rng, n: rng.standard_cauchy(n),
    "rounded heavy tail": lambda rng, n: np.round(rng.pareto(1, n), 1),
    "rain": lambda rng, n: np.where(rng.random(n) < 0.9, 0, np.round(rng.exponential(2, n), 1)),
    "counts": lambda rng, n: rng.negative_binomial(0.5, 0.01, n),
    "switch": lambda rng, n: rng.random(n) < 0.1,
    "fan levels": lambda rng, n: rng.choice([0, 30, 60, 100], n),
    "clipped": lambda rng, n: np.minimum(100, np.round(85 + 10 * rng.normal(size=n), 1)),
    "two modes": lambda rng, n: rng.normal(size=n) + np.where(rng.random(n) < 0.5, 20, 80),
    "spikes": lambda rng, n: np.where(rng.random(n) < 0.001, rng.uniform(0, 999, n), 5),
    "standby": lambda rng, n: np.where(np.arange(n) % 270 < 180, 3.2, rng.normal(1500, 12, n)),
    "off at 1 bar": lambda rng, n: np.where(np.arange(n) % 500 < 90, 1.0, rng.normal(7, 0.1, n)),
    "boiler": lambda rng, n: np.round(
        rng.normal(0, 0.3, n) + np.where(np.arange(n) % 400 < 90, 85, 20), 1
    ),
    "drift of zero": lambda rng, n: np.maximum(-0.1, np.round(rng.exponential(3, n) - 0.4, 1)),
    "frozen": lambda rng, n: np.where(np.arange(n) < n // 2, 20.25, rng.normal(20, 1, n)),
}


@pytest.mark.parametrize("values", MEASURED.values(), ids=MEASURED)
def test_measurements_are_no_fill_values(values):
    candidates = find_fill_values(["a"], np.asarray(values(draw(3), 20_000), float)[:, None])
    assert [one for one in candidates if one.certain or one.value not in (1.0, 3.2)] == []


def test_values_that_occur_twice_are_no_fill_values_of_a_short_record():
    values = np.array([*np.round(7.8 + draw().normal(size=46) / 5, 3), 0.914, 0.914, 1.2, 1.2])
    assert find_fill_values(["a"], values[:, None]) == ()


STEPS = draw(4).random(ROWS)
RISING = np.cumsum(STEPS)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("Jahr", 2023 + HOURS // 1200),
        ("ts", 600 * HOURS),
        ("timestamp_s", -(10**9) + 600 * HOURS),
        ("id", 1000 + 7 * HOURS),
        ("newest_first", 600 * HOURS[::-1]),
        ("kWh", np.cumsum(draw().integers(0, 3, ROWS)) / 10),
        ("counter_u8", HOURS % 256),
        ("hour", HOURS % 24),
        ("row_id", HOURS + (HOURS > 900)),
        ("reset_once", np.cumsum(draw().random(ROWS)) % 600),
        ("reset_daily", np.where(HOURS % 144, np.cumsum(draw().random(ROWS)), 0.0)),
        ("kWh_of_day", RISING - (RISING - STEPS)[HOURS - HOURS % 24]),
        ("glitch", np.cumsum(draw().random(ROWS)) - 700 * (HOURS == 777)),
        ("weekday", HOURS // 144 % 7),
        ("day_index", HOURS // 144 % 30),
        ("rounded_stamp", 2.02401e11 + 1e6 * (HOURS > 1200)),
        ("shuffled_id", draw().permutation(ROWS)),
        ("time", np.sin(HOURS)),
    ],
)
def test_clocks_and_counters_are_no_sensors(name, column, tmp_path):
    for given, advice in (
        (frame().reset_index(names="stamp"), rf"leave it out with drop=\['{name}'\]"),
        (frame(), rf"(take it as times with time='{name}', )?leave it out"),
    ):
        given = given.assign(**{name: column})
        refusal = f"column '{name}' must hold measurements, got values of a clock, a counter.*"
        with pytest.raises(ValueError, match=refusal + advice):
            read(tmp_path, given)
        assert read(tmp_path, given, drop=[name]).names == ("a", "b", "c")


SAWTOOTH = (HOURS % 25) / 25 + 0.05 * draw().random(ROWS)


@pytest.mark.parametrize("column", [SAWTOOTH, HOURS // 50 % 2, np.round(OUTDOOR[:, 0] / 5)])
def test_sensors_that_rise_for_long_are_no_counters(column, tmp_path):
    assert read(tmp_path, frame().assign(d=column)).names == ("a", "b", "c", "d")


def write(tmp_path, given):
    given.to_csv(tmp_path / "f.csv", index=False)
    return tmp_path / "f.csv"


WALKS = np.cumsum(draw(5).normal(size=(ROWS, 2)), axis=0)


def walks(column, name="t"):
    """The column, and two random walks of as many rows."""
    column = np.asarray(column)
    return pd.DataFrame({name: column, "a": WALKS[: len(column), 0], "b": WALKS[: len(column), 1]})


DATES = {
    "year": lambda times: {"Year": times.year, "month": times.month, "day": times.day},
    "Jahr": lambda times: {"Jahr": times.year, "Monat": times.month, "Tag": times.day},
    "année": lambda times: {"Année": times.year, "Mois": times.month, "Jour": times.day},
    "clock": lambda times: {"Date": times.strftime("%Y-%m-%d"), "Time": times.strftime("%H:%M")},
    "clock of 12": lambda times: {"d": times.strftime("%Y-%m-%d"), "t": times.strftime("%I:%M %p")},
}


@pytest.mark.parametrize("parts", DATES.values(), ids=DATES)
def test_dates_in_several_columns_are_to_be_joined(parts, tmp_path):
    given = pd.DataFrame(parts(TIMES)).assign(a=ROOM[:, 0], b=ROOM[:, 1])
    with pytest.raises(ValueError, match="join date and time in one column, as in 2024-01-31"):
        read_sensors(write(tmp_path, given))


def ticks(year):
    """Counts of 100 ns since a year."""
    since = (TIMES.to_pydatetime() - datetime(year, 1, 1)).astype("timedelta64[us]")
    return 10 * since.astype(int)


def stamps(layout):
    return pd.date_range("2024-10-11", periods=ROWS, freq="10min").strftime(layout).astype("int64")


STEP = 600 * HOURS
UNIT, PARTS = "have another unit or first year", "digits of a date or another unit"
STAMPS = {  # 2401010010 was once read as a second of the year 2046
    "%y%m%d%H%M": "yymmddHHMM",
    "%y%m%d%H%M%S": "yymmddHHMMSS",
    "%d%m%Y%H%M": "ddmmyyyyHHMM",
    "%d%m%Y%H%M%S": "ddmmyyyyHHMMSS",
    "%d%m%y%H%M": "(yymmdd|ddmmyy)HHMM",
    "%m%d%H%M%S": "mmddHHMMSS",
    "%Y%j%H%M": "yyyyjjjHHMM",
    "%Y%m%d%H%M%S000": "yyyymmddHHMMSSfff",
    "%Y%m%d%H%M%S00": "yyyymmddHHMMSSff",
    "%Y%m%d%H%M%S0000": "yyyymmddHHMMSSffff",
    "%y%m%d%H%M%S000": "yymmddHHMMSSfff",
}
NO_SECONDS = {
    **{form: (stamps(form), f"may also be {letters}; write") for form, letters in STAMPS.items()},
    "an hour 24": (
        TIMES.strftime("%Y%m%d%H%M").str.replace("0000$", "2400", regex=True).astype("int64"),
        "column 't' must hold dates, got 202401012400 in row 1; write times as 2024-01-31",
    ),
    "days since 1899": (45292 + HOURS / 144, "seconds since 1970, got .* count days"),
    "days since year 1": (738000 + HOURS / 144, "seconds since 1970, got .* count days"),
    "days since 4713 BC": (2460310.5 + HOURS / 144, "seconds since 1970, got .* count days"),
    "100 ns since 1601": (ticks(1601), "may count 100 ns since year 1601; write times as"),
    "100 ns since 1": (ticks(1), "may count 100 ns since year 1; write times as"),
    "a stamp with a fraction": ([f"{t:%Y%m%d%H%M%S}.500" for t in TIMES], "a date's digits"),
    "s since 1904": (3_786_912_000 + STEP, "may count seconds since 1900 or 1904; write times"),
    "ms since 1904": (3_786_912_000_000 + STEP * 10**3, "may count ms since 1900 or 1904"),
    "µs since 1601": (13_348_540_800_000_000 + STEP * 10**6, UNIT),
    "ms since the year 1": (63_839_664_000_000 + STEP * 10**3, UNIT),
    "100 µs": (17_040_672_000_000 + STEP * 10**4, UNIT),
    "10 ms": (170_406_720_000 + STEP * 10**2, UNIT),
    "s since 1601": (13_348_540_800 + STEP, UNIT),
    "year and day": (2024001 + HOURS % 366 + HOURS // 366 * 1000, PARTS),
    "day, month and year": (1012024 + 1_000_000 * (HOURS % 28), PARTS),
    "minutes": (28_401_120 + 10 * HOURS, PARTS),
    "hour and minute": (100 * (HOURS[:100] // 6) + HOURS[:100] % 6 * 10, PARTS),
    "hour, minute and second": (10_000 * (HOURS[:100] // 60) + HOURS[:100] % 60 * 100, PARTS),
}


@pytest.mark.parametrize(("column", "message"), NO_SECONDS.values(), ids=NO_SECONDS)
def test_digits_and_other_units_are_no_seconds_even_if_named(column, message, tmp_path):
    path = write(tmp_path, walks(column))
    with pytest.raises(ValueError, match=message):
        read_sensors(path, time="t")
    with pytest.raises(ValueError, match="write (times|days) as 2024-01-31 14:00") as refused:
        read_sensors(path)
    assert "take it as times" not in str(refused.value)


@pytest.mark.parametrize("row", [0, 7])
def test_an_empty_stamp_is_named(row, tmp_path):
    column = np.where(row == HOURS, np.nan, stamps("%Y%m%d%H%M"))
    with pytest.raises(ValueError, match=f"time in every row, got an empty one in row {row + 1};"):
        read_sensors(write(tmp_path, walks(column)))


SINCE_1970 = [
    *((pd.Timestamp(first), step, 0) for first in ("2001-09-09", "2017-04-06", "2024", "2031-12-31")
      for step in ("1s", "1min", "10min", "1h", "1D")),
    *((pd.Timestamp(year), "10min", 1) for year in ("1981-05-01", "1999-05-01", "2050-05-01")),
]  # fmt: skip


@pytest.mark.parametrize(("first", "step", "unit"), SINCE_1970, ids=str)
def test_the_unit_of_numbers_since_1970_follows_from_their_size(first, step, unit, tmp_path):
    times = pd.date_range(first, periods=ROWS, freq=step)
    for name in ("s", "ms", "us", "ns")[unit:]:
        path = write(tmp_path, walks(times.as_unit(name).asi8))
        assert list(read_sensors(path).time) == list(times)


@pytest.mark.parametrize("rows", [3, 7, 40])
def test_few_numbers_since_1970_are_times(rows, tmp_path):
    for first in (1104537600, 1704067200):
        given = walks(first + 600 * np.arange(rows))
        assert read_sensors(write(tmp_path, given)).time[1].timestamp() == first + 600


@pytest.mark.parametrize(
    ("stamp", "step"),
    [("%Y%m%d%H%M", "10min"), ("%Y%m%d%H", "1h"), ("%Y%m%d%H%M%S", "10min"), ("%Y%m%d", "1D")],
)
def test_stamps_of_digits_are_times(stamp, step, tmp_path):
    times = pd.date_range("2023-11-30", periods=ROWS, freq=step)
    path = write(tmp_path, walks(times.strftime(stamp).astype("int64"))[["a", "t", "b"]])
    for named in (None, "t"):
        table = read_sensors(path, time=named)
        assert (table.names, list(table.time)) == (("a", "b"), list(times))


@pytest.mark.parametrize(
    "column", [TIMES[:30].asi8 // 10**6, TIMES[:30].strftime("%Y%m%d%H%M")], ids=["s", "stamps"]
)
def test_numbers_of_times_in_another_order_are_sorted(column, tmp_path):
    for order in (
        draw().permutation(30),
        np.arange(30).reshape(2, 15).T.ravel(),
        slice(29, None, -1),
    ):
        table = read_sensors(write(tmp_path, walks(column).iloc[order]))
        np.testing.assert_array_equal(table.values, walks(column)[["a", "b"]])
        assert list(table.time) == list(TIMES[:30])


def test_a_clock_is_taken_as_times_where_it_is_named(tmp_path):
    table = read_sensors(write(tmp_path, walks(-(10**9) + STEP)), time="t")
    assert table.names == ("a", "b")
    assert (table.time[0].year, table.time[1] - table.time[0]) == (1938, pd.Timedelta("10min"))


@pytest.mark.parametrize("day", ["MS", "ME", "QE", "YS"])
def test_calendar_months_are_no_irregular_times(day, tmp_path):
    """A step of 2678400s, 31 days, was once advised."""
    given = walks(pd.date_range("2010-01-01", periods=40, freq=day))
    with pytest.raises(ValueError, match="months differ in length: leave that column out"):
        read(tmp_path, given)
    assert read(tmp_path, given, drop=["t"]).values.shape == (40, 2)


def test_a_step_below_a_second_is_advised_as_it_is(tmp_path):
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(HOURS * 10 + HOURS % 2, unit="ms")
    with pytest.raises(ValueError, match="resample='9000us'|resample='11000us'|resample='10000us'"):
        read_sensors(write(tmp_path, frame(times=times).reset_index()))


@pytest.mark.parametrize("first", [0, 1, 500])
def test_a_column_that_counts_the_rows_becomes_their_number(first, tmp_path):
    for given in (frame().reset_index(), frame()):
        table = read_sensors(write(tmp_path, given.assign(sample=first + HOURS)))
        assert table.names == ("a", "b", "c")
        assert "row numbers: sample, left out of the sensors" in Inventory.of(table).summary_lines


def test_the_error_for_two_campaigns_names_the_gap_between_them(tmp_path):
    times = TIMES + pd.to_timedelta(np.where(HOURS < ROWS // 2, 0, 400), unit="D")
    with pytest.raises(ValueError) as refused:
        read_sensors(write(tmp_path, frame(times=times).reset_index()))
    assert "at 57,600 of 59,600 steps, of which the longest gap has 57,600;" in str(refused.value)
    assert "rows before that gap or after it" in str(refused.value)
    assert "longer step" not in str(refused.value)


@pytest.mark.parametrize("offsets", [(0, 37, 74), (0, 30, 60), (3, 10, 200)])
def test_the_error_for_sensors_at_offsets_names_a_step_that_works(offsets, tmp_path):
    late = frame().reset_index().melt("time", var_name="id", value_name="v")
    late["time"] += pd.to_timedelta(late["id"].map(dict(zip("abc", offsets, strict=True))), "s")
    path = write(tmp_path, late.sort_values("time"))
    with pytest.raises(ValueError, match="resample='10min'"):
        read_sensors(path, long=("time", "id", "v"))
    table = read_sensors(path, long=("time", "id", "v"), resample="10min")
    np.testing.assert_allclose(table.values, ROOM)


@pytest.mark.parametrize(
    ("first", "step", "late"),
    [("00:05", "10min", 0), ("00:30", "1h", 0), ("00:05", "10min", 3), ("00:00", "10min", 3)],
)
def test_stamps_in_the_middle_of_a_step_leave_no_step_empty(first, step, late, tmp_path):
    """Every second step was once empty, and the others means of two rows."""
    times = pd.date_range(f"2024-01-01 {first}", periods=ROWS, freq=step)
    times += pd.to_timedelta(draw().integers(-late, late + 1, ROWS), "s")
    table = read(tmp_path, frame(times=times).reset_index(names="time"), resample=step)
    assert table.time[0] == pd.Timestamp("2024-01-01") and table.quality.averaged == 0
    np.testing.assert_allclose(table.values, ROOM)


def test_rows_twice_as_often_as_the_step_meet_in_pairs(tmp_path):
    times = pd.date_range("2024-01-01", periods=ROWS, freq="5min")
    table = read(tmp_path, frame(times=times).reset_index(names="time"), resample="10min")
    pairs = ROOM[1:-1].reshape(-1, 2, 3).mean(axis=1)
    np.testing.assert_allclose(table.values[1:-1], pairs)


FEW = [
    -283996800 + 86400 * np.arange(10),
    1012024 + 1_000_000 * np.arange(10),
    240101 + np.arange(10),
    100 * (np.arange(10) // 6) + np.arange(10) % 6 * 10,
    45292 + np.arange(10),
    10 * np.arange(3),
    2000 + np.arange(5),
]
LAST = [45292 + np.arange(10), 60 * np.arange(4), 1.5 * np.arange(5)]


@pytest.mark.parametrize(
    ("column", "names"), [(c, "tab") for c in FEW] + [(c, "abt") for c in LAST]
)
def test_a_clock_of_few_rows_is_no_sensor(column, names, tmp_path):
    path = write(tmp_path, walks(column)[[*names]])
    with pytest.raises(ValueError, match=r"'t' must hold measurements, .*drop=\['t'\]"):
        read_sensors(path)
    assert read_sensors(path, drop=["t"]).names == ("a", "b")
    assert read_sensors(path, measured=["t"]).names == (*names,)


def test_sensors_that_fall_or_are_named_as_measured_are_read(tmp_path):
    battery = np.round(100 - np.cumsum(draw().random(ROWS)) / 30, 1)
    assert read(tmp_path, frame().assign(d=battery)).names == ("a", "b", "c", "d")
    level = frame().assign(d=np.cumsum(draw().random(ROWS)))
    with pytest.raises(ValueError, match=r"or, if it is measured, give measured=\['d'\]"):
        read(tmp_path, level)
    assert read(tmp_path, level, measured=["d"]).names == ("a", "b", "c", "d")
    assert "or, if it is measured, give --measured 'd', or replace" in plan(tmp_path, level)
    for how in ((), ("--pieces",)):
        assert "Back-test" in plan(tmp_path, level, "--measured", "d", *how)
    large = frame().assign(d=3e8 + 7.0 * HOURS**2).reset_index()
    with pytest.raises(ValueError, match="if they are measured, give measured="):
        read_sensors(write(tmp_path, large))
    for how in ({"measured": ["d"]}, {"drop": ["d"]}):
        assert read_sensors(tmp_path / "f.csv", **how).names[:3] == ("a", "b", "c")
    with pytest.raises(ValueError, match=r"measured must be a list of columns, got \['x'\]"):
        read_sensors(tmp_path / "f.csv", measured=["x"])


COUNTS = draw(2).integers(400, 20_000, (200, 2))


def semicolons(cells):
    rows = (f"{t:%Y-%m-%d %H:%M};{a};{b}\n" for t, (a, b) in zip(TIMES, cells, strict=False))
    return "time;x;y\n" + "".join(rows)


def dotted(numbers):
    return np.vectorize(lambda number: f"{number:,}".replace(",", "."))(numbers).tolist()


DOTS, COMMAS = semicolons(dotted(COUNTS)), semicolons([[f"{n:,}" for n in row] for row in COUNTS])
GROUPED = {
    "dots": (DOTS, ",", COUNTS, r"'x' holds '\d+' and '\d+\.\d{3}', whose dot may .*decimal=','"),
    "three digits": (
        semicolons(dotted(COUNTS + 2000)),
        *(",", COUNTS + 2000, r"column 'x' holds '\d+\.\d{3}', whose dot may group"),
    ),
    # 1.022 was once advised to be marked as a fill value of a column with 992
    "dots between commas": (
        DOTS.replace(";", ","),
        *(",", COUNTS, r"column 'x' holds '\d+' and '\d+\.\d{3}', whose dot may"),
    ),
    "commas": (COMMAS, ".", COUNTS, "whose comma may group .*give decimal='.' where"),
    "commas between tabs": (COMMAS.replace(";", "\t"), ".", COUNTS, "whose comma may group"),
}


@pytest.mark.parametrize(("text", "sign", "counts", "message"), GROUPED.values(), ids=GROUPED)
def test_grouped_thousands_need_an_option_and_are_read(text, sign, counts, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text)
    np.testing.assert_array_equal(read(tmp_path, text, decimal=sign).values, counts)
    as_decimals = read(tmp_path, text, decimal="," if sign == "." else ".").values
    assert np.where(counts < 1000, counts, counts / 1000) == pytest.approx(as_decimals)


def test_the_command_names_the_option_for_grouped_thousands(tmp_path):
    (tmp_path / "f.csv").write_text(DOTS)
    done = aft("plan", tmp_path / "f.csv", "--epsilon-sd", 1)
    assert "give --decimal ',' where it groups, or else --decimal '.'" in done.output


@pytest.mark.parametrize("how", [(), ("--pieces",)])
@pytest.mark.parametrize("separator", [";", ","])
def test_late_grouped_thousands_need_an_option(separator, how, tmp_path, monkeypatch):
    """They were read as 1.160, if all before them were below 1000."""
    monkeypatch.setattr("aftlib.core.textfile.HEAD", 2**15)
    counts = np.vstack([np.tile(COUNTS % 900, (9, 1)), COUNTS])
    path, more = tmp_path / "f.csv", ("--epsilon-sd", 1, "--no-report", *how)
    path.write_text(semicolons(dotted(counts)).replace(";", separator))
    done = aft("plan", path, *more)
    assert "give --decimal ',' where it groups, or else --decimal '.'" in done.output
    np.testing.assert_array_equal(read_sensors(path, decimal=",").values, counts)
    small = np.where(counts < 1000, counts, counts / 7)
    path.write_text(semicolons(small.tolist()).replace(";", separator))
    np.testing.assert_array_equal(read_sensors(path).values, small)


FIRST = COUNTS[:, 0].tolist()
DECIMALS = {
    "always three decimals": [[f"{n / 1000:.3f}" for n in row] for row in COUNTS.tolist()],
    "one decimal beside": [[str(n / 10), dotted(n)] for n in FIRST],
    "ungrouped thousands beside": [[str(n), f"{n / 1000 + 1:.3f}"] for n in FIRST],
}


@pytest.mark.parametrize("cells", DECIMALS.values(), ids=DECIMALS)
def test_decimal_points_behind_semicolons_stay_decimal_points(cells, tmp_path):
    table = read(tmp_path, semicolons(cells))
    np.testing.assert_allclose(table.values, np.array(cells, float))


NO_NUMBERS = {  # the fix named only to leave out the cells
    "16 816,5": r"write numbers without spaces or signs between the thousands",
    "16\u202f816": r"write numbers without spaces or signs between the thousands",
    "1,682E+04": "if its comma begins decimals, give decimal=','",
}


@pytest.mark.parametrize(("cell", "fix"), NO_NUMBERS.items())
def test_cells_that_are_no_numbers_name_the_fix(cell, fix, tmp_path):
    with pytest.raises(ValueError, match=rf"'x' must be numeric, .*drop=\['x'\], or, {fix}|{fix}"):
        read(tmp_path, semicolons([[cell, i] for i in FIRST]))


def test_a_text_that_stands_for_missing_is_named(tmp_path):
    cells = [["#WERT!" if i % 50 == 1 else a, b] for i, (a, b) in enumerate(COUNTS.tolist())]
    with pytest.raises(ValueError, match=r"if that stands for missing, give na=\['#WERT!'\]"):
        read(tmp_path, semicolons(cells))
    assert read(tmp_path, semicolons(cells), na=["#WERT!"]).quality.missing_values == 4
    (tmp_path / "f.csv").write_text(semicolons(cells))
    done = aft("plan", tmp_path / "f.csv", "--epsilon-sd", 1)
    assert "give --na '#WERT!'" in done.output


def test_grouped_thousands_beside_decimal_commas_are_read(tmp_path):
    table = read(tmp_path, semicolons([[dotted(n), f"{dotted(n)},5"] for n in FIRST]))
    np.testing.assert_array_equal(table.values, np.array([FIRST, FIRST]).T + [0, 0.5])


def test_control_characters_of_names_are_printed_as_escapes(tmp_path):
    names = ["a\x1b[31mred", "b\u202etfel", "c\x07c"]
    output = plan(tmp_path, frame().set_axis(names, axis=1), "--workers", "2")
    assert "Back-test" in output
    assert all(c.isprintable() or c == "\n" for c in output)
    assert "a\\x1b[31mred, b\\u202etfel, c\\x07c" in output
    refused = plan(tmp_path, frame().set_axis(names, axis=1).assign(**{names[0]: "x"}))
    assert all(c.isprintable() or c == "\n" for c in refused)


@pytest.mark.parametrize(
    "value", [2147483647.0, 99999999.0, -999.123456789, 9.96921e36, -127.0, 1.797e308]
)
def test_a_fill_value_is_shown_as_the_text_that_removes_it(value):
    column = np.array([[value], [1.0]])
    assert mark_missing(column, [float(shown(value))]) == 1 and np.isnan(column[0, 0])
