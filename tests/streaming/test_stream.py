"""`recoverable` on Spark: rows of one guard per group, odd rows counted, the state checked."""

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from aftlib import GaussianModel, Promise, recoverable
from aftlib.core.windows import AGGREGATES
from aftlib.guard.known import KnownModel
from aftlib.sensor_plans.plan import plan
from aftlib.sensor_plans.question import Question
from aftlib.streaming.keyed import KeyedGuards
from aftlib.streaming.metrics import (
    metrics_table,
    micro_batches_waiting,
    record_metrics,
    record_of,
    sensor_table,
)
from aftlib.streaming.rows import SHADOW_AUDIT
from aftlib.streaming.stream import PROVIDER, REUSE, ROCKSDB, WATERMARK
from tests.core.test_windows import TWINS
from tests.plans import write_plan
from tests.streaming.test_coordinator import MODEL, rows_one_by_one
from tests.streaming.test_keyed import processed

NAMES = ["a", "b", "c", "d"]
WORKERS = [["a"], ["b"], ["c", "d"]]
START = pd.Timestamp("2026-01-01", tz="UTC")
NOW_IS = pd.Timestamp("2026-01-02", tz="UTC")
TERMS = {"workers": WORKERS, "epsilon": 0.5, "delta": 0.05, "window": "5min", "samples": 5}
SCHEMA = "time timestamp, sensor string, value double, site string"

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("query", AGGREGATES)
def test_spark_computes_the_aggregate(spark, query):
    samples = np.array([1.0, 4.0, 7.5])
    frame = spark.createDataFrame(pd.DataFrame({"value": samples}))
    (row,) = frame.agg(F.expr(AGGREGATES[query])).collect()
    assert row[0] == pytest.approx(TWINS[query](samples, axis=0))


def now():
    return F.lit(NOW_IS.to_pydatetime())


def minutes(rounds=200, seed=1):
    """Samples per minute of four sensors that share a slow common part, in steps of 1/1024.

    So their sums are exact in every order.
    """
    rng = np.random.default_rng(seed)
    common = 0.1 * rng.normal(size=(rounds * 5, 1)).cumsum(0)
    return np.round((common + 0.1 * rng.normal(size=(rounds * 5, 4))) * 1024) / 1024


def long(samples, site="s"):
    times = pd.date_range(START, periods=len(samples), freq="min", name="time")
    wide = pd.DataFrame(samples, times, NAMES).reset_index()
    rows = wide.melt("time", var_name="sensor").sort_values(["time", "sensor"])
    return rows.dropna().assign(site=site).reset_index(drop=True)


def put(directory, parts):
    """Write one file per part; Spark reads them in this order, one per micro-batch."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(parts):
        path = directory / f"{number}.parquet"
        part.to_parquet(path, coerce_timestamps="us")
        os.utime(path, (number, number))


def reader(spark, directory):
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return stream.parquet(str(directory))


def run(frame, place):
    """Write a streaming frame to Parquet; return all rows so far and the progress, as JSON."""
    writer = frame.writeStream.option("checkpointLocation", str(place / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(place / "rows"))
    assert query.awaitTermination(300)
    rows = frame.sparkSession.read.parquet(str(place / "rows")).toPandas()
    return rows, progress_of(query)


def progress_of(query):
    """The progress of each micro-batch, as a listener gets it."""
    return [as_reported(json.loads(each.json)) for each in query.recentProgress]


def as_reported(progress):
    """Spark Connect gives metrics as values with a schema, and no sum of the sources' rows."""
    observed = {name: named(row) for name, row in progress.get("observedMetrics", {}).items()}
    rows = sum(source["numInputRows"] for source in progress["sources"])
    return progress | {"observedMetrics": observed, "numInputRows": rows}


def named(row):
    """A row of values with a schema as a dictionary, and the rows in it; anything else as it is."""
    if not isinstance(row, dict) or {*row} != {"values", "schema"}:
        return row
    columns = [field["name"] for field in row["schema"]["fields"]]
    return dict(zip(columns, map(named, row["values"]), strict=True))


def complete_windows(rows, promise):
    """Means of the windows that have ended, by pandas."""
    width, step = pd.Timedelta(promise.window), pd.Timedelta(promise.slide or promise.window)
    first = rows["time"].dt.floor(step)
    each = pd.concat(rows.assign(start=first - back * step) for back in range(int(width / step)))
    grouped = each.groupby(["start", "sensor"])["value"]
    windows = grouped.agg(value="mean", samples="count", variance="var").reset_index()
    return windows[windows["start"] + width <= rows["time"].max()]


def in_microseconds(windows):
    start = windows["start"].astype("datetime64[us, UTC]").astype("int64")
    return windows.assign(start=start)


def expected_rows(rows, promise):
    """The rows of one guard of these windows."""
    table, _ = processed(KeyedGuards(promise), in_microseconds(complete_windows(rows, promise)))
    return table.assign(start=pd.to_datetime(table["start"], unit="us", utc=True))


def in_order(rows, *columns):
    start = rows["start"].dt.tz_localize("UTC") if rows["start"].dt.tz is None else rows["start"]
    rows = rows.assign(start=start.astype("datetime64[us, UTC]"))
    return rows.sort_values([*columns, "start", "sensor"]).reset_index(drop=True)


def require_equal(actual, expected):
    """Compare bit for bit, except half-widths from variances that Spark computes."""
    last = actual["window_time"].dt.tz_localize("UTC") + pd.Timedelta("1us")
    assert (last == actual["start"] + pd.Timedelta("5min")).all()
    exact = actual.drop(columns=["half_width", "window_time"])
    pd.testing.assert_frame_equal(
        exact, expected[exact.columns], check_dtype=False, check_exact=True
    )
    whole = (actual["samples"] == 0) | (actual["samples"] == 5)
    width, expected_width = actual["half_width"], expected["half_width"]
    np.testing.assert_array_equal(width[whole], expected_width[whole])
    np.testing.assert_allclose(width, expected_width, rtol=1e-9)


@pytest.mark.parametrize(
    ("slide", "partitions"),
    [pytest.param(None, "3", marks=pytest.mark.versions), ("1min", "1")],
)
def test_each_groups_rows_are_those_of_one_guard(rocksdb, tmp_path, slide, partitions):
    """In any number of partitions, and after a restart between two micro-batches."""
    promise, sites = Promise(**TERMS, slide=slide), {}
    for seed, site in enumerate(["north", "south"]):
        samples = minutes(seed=seed, rounds=120 if slide else 200)
        samples[-150:-138, 0] = np.nan  # a worker is away
        samples[-70:-40] = np.nan  # all are
        samples[-30:-28, 2] = np.nan  # some samples are missing
        sites[site] = long(samples, site)
    rows = pd.concat(sites.values()).sort_values(["time", "site"], kind="stable")
    parts = np.split(np.arange(len(rows)), [int(0.5 * len(rows)), int(0.9 * len(rows))])
    put(tmp_path / "in", [rows.iloc[part] for part in parts[:2]])
    before = rocksdb.conf.get("spark.sql.shuffle.partitions")
    rocksdb.conf.set("spark.sql.shuffle.partitions", partitions)
    try:
        frame = recoverable(reader(rocksdb, tmp_path / "in"), promise, group="site", now=now())
        run(frame, tmp_path)
        put(tmp_path / "in", [rows.iloc[part] for part in parts])
        output, _ = run(frame, tmp_path)
    finally:
        rocksdb.conf.set("spark.sql.shuffle.partitions", before)
    expected = pd.concat(
        expected_rows(part, promise).assign(site=site) for site, part in sites.items()
    )
    assert {"exact", "estimated", "lost"} == set(expected["state"])
    assert output.columns.tolist() == [
        "start", "site", "sensor", "state", "value", "half_width", "samples", "recoverable",
        "window_time",
    ]  # fmt: skip
    require_equal(in_order(output, "site"), in_order(expected, "site"))


def known_sites():
    """Samples of two sites, in which one worker is away, then another one, then two, then all."""
    sites = {}
    for seed, site in enumerate(["north", "south"]):
        samples = minutes(seed=seed, rounds=60)
        samples[50:62, 0] = np.nan
        samples[100 : 120 + 5 * seed, 2:] = np.nan
        samples[150:160, :2] = np.nan
        samples[200:230] = np.nan
        sites[site] = long(samples, site)
    return sites


@pytest.mark.versions
def test_a_known_models_rows_are_those_of_each_window_alone(rocksdb, tmp_path):
    """After a restart, too, on which the promise has another model and ε; audits are summed.

    A window in which no sensor of a group sent anything has no rows.
    """
    sites = known_sites()
    promise = Promise(**TERMS | {"epsilon": 0.55, "share": 1}, model=MODEL)
    rows = pd.concat(sites.values()).sort_values(["time", "site"], kind="stable")
    parts = np.split(np.arange(len(rows)), [int(0.5 * len(rows)), int(0.9 * len(rows))])
    put(tmp_path / "in", [rows.iloc[part] for part in parts[:2]])
    frame = recoverable(reader(rocksdb, tmp_path / "in"), promise, group="site", now=now())
    _, first = run(frame, tmp_path)
    put(tmp_path / "in", [rows.iloc[part] for part in parts])
    output, second = run(frame, tmp_path)
    windows = {site: complete_windows(part, promise) for site, part in sites.items()}
    expected = pd.concat(
        rows_one_by_one(part, promise).assign(site=site) for site, part in windows.items()
    )
    assert set(expected["state"]) == {"exact", "estimated", "lost"}
    assert len(expected) == 2 * 4 * (59 - 6)  # the group was silent for six windows
    require_equal(in_order(output, "site"), in_order(expected, "site"))

    whole = [
        each[each["samples"] == 5].pivot(index="start", columns="sensor", values="value")
        for each in windows.values()
    ]
    known = KnownModel(MODEL, [[0], [1], [2, 3]], 0.55, 0.05)
    known.update(pd.concat(whole).to_numpy())
    number, wrong, _ = known.outcomes[:, 0]
    metrics = [p["observedMetrics"]["windows"]["counts"] for p in first + second]
    audit = pd.DataFrame(metrics)[[*SHADOW_AUDIT]].sum()
    expected_audit = [number.sum(), wrong.sum(), 0.05 * number.sum()]
    np.testing.assert_allclose(audit, expected_audit, rtol=1e-12)
    assert number.sum() == 4 * 87


def test_a_known_models_query_that_goes_on_with_another_fixed_part_is_refused(rocksdb, tmp_path):
    """Set back, it goes on; and the model, ε and workers may change."""
    rows = long(minutes(rounds=60))
    put(tmp_path / "in", [rows[:478]])
    terms = TERMS | {"model": MODEL}
    stream = reader(rocksdb, tmp_path / "in")
    whole, _ = run(recoverable(stream, Promise(**terms), group="site", now=now()), tmp_path)
    put(tmp_path / "in", [rows[:478], rows[478:]])
    refused = {"window": "10min"}, {"horizons": 3}, {"group": None}, {"model": None}
    for change in refused:
        changed = Promise(**terms | {k: v for k, v in change.items() if k != "group"})
        other = recoverable(stream, changed, group=change.get("group", "site"), now=now())
        reason = "STATE_METADATA" if "model" in change else "KEY_SCHEMA_NOT_COMPATIBLE"
        with pytest.raises(Exception, match=reason):
            run(other, tmp_path)
        assert len(rocksdb.read.parquet(str(tmp_path / "rows")).toPandas()) == len(whole)
    model = GaussianModel(np.ones(4), 3 + 0.05 * np.eye(4), NAMES)
    after = Promise(**terms | {"model": model, "epsilon": 0.9, "workers": [["a", "b"], ["c", "d"]]})
    output, _ = run(recoverable(stream, after, group="site", now=now()), tmp_path)
    assert len(output) == 4 * 59


def test_odd_rows_are_counted_and_neither_end_the_stream_nor_move_its_watermark(rocksdb, tmp_path):
    rows = long(minutes(rounds=60))
    odd = pd.DataFrame({
        "time": [None, START, START, START, START, START + pd.Timedelta(days=3650),
                 NOW_IS + pd.Timedelta(minutes=61), pd.Timestamp(0, tz="UTC")],
        "sensor": ["a", None, "b", "b", "x", "a", "b", "c"],
        "value": [1.0, 2.0, np.inf, -1e100, 1.0, 1.0, 1.0, 1.0],
        "site": "s",
    }).astype({"time": rows["time"].dtype})  # fmt: skip
    parts = [pd.concat([odd, rows[:400]]), pd.concat([rows[400:800], odd]), rows[800:]]
    put(tmp_path / "in", parts)
    stream = reader(rocksdb, tmp_path / "in")
    output, progress = run(recoverable(stream, Promise(**TERMS), now=now()), tmp_path)
    expected = expected_rows(rows, Promise(**TERMS))
    require_equal(in_order(output), in_order(expected))
    metrics = [
        p["observedMetrics"]["rejected"] for p in progress if p["observedMetrics"].get("rejected")
    ]
    assert pd.DataFrame(metrics).sum().to_dict() == {
        "no_time": 2, "no_group": 0, "no_sensor": 2, "no_value": 4, "unknown_sensor": 2,
        "too_late": 4, "too_early": 2,
    }  # fmt: skip


@pytest.mark.versions
def test_metrics_on_disk_are_those_of_the_rows_and_of_the_guards(rocksdb, tmp_path, monkeypatch):
    """Over two groups, and a restart; also by sensor, and from another working directory."""
    promise, sites = Promise(**TERMS), {}
    for seed, site in enumerate(["north", "south"]):
        samples = minutes(seed=seed)
        samples[-150:-138, 0] = np.nan
        samples[-30:-28, 2] = np.nan
        sites[site] = long(samples, site)
    rows = pd.concat(sites.values()).sort_values(["time", "site"], kind="stable")
    rows = pd.concat([rows[:5].assign(sensor="x"), rows])
    parts = np.split(np.arange(len(rows)), [int(0.5 * len(rows)), int(0.9 * len(rows))])
    monkeypatch.chdir(tmp_path)
    listener = record_metrics(rocksdb, "metrics")
    monkeypatch.chdir(tmp_path.parent)
    try:
        for part in (parts[:2], parts):
            put(tmp_path / "in", [rows.iloc[one] for one in part])
            stream = reader(rocksdb, tmp_path / "in")
            output, _ = run(recoverable(stream, promise, group="site", now=now()), tmp_path)
        table = table_of(tmp_path / "metrics", len(output))
    finally:
        rocksdb.streams.removeListener(listener)
    guards = {site: KeyedGuards(promise) for site in sites}
    for site, guard in guards.items():
        processed(guard, in_microseconds(complete_windows(sites[site], promise)))
    audit = sum(guard.audit[:, 0] for guard in guards.values())
    assert audit[0].sum() > 500
    np.testing.assert_allclose(table[list(SHADOW_AUDIT)].astype(float), audit.sum(1), rtol=1e-12)
    states = output["state"].value_counts().to_dict()
    assert table[[*states]].to_dict() == states
    assert table["empty"] == (output["samples"] == 0).sum() > 0
    assert table["certified"] == (output["recoverable"] > 0).sum() > 0
    assert (table["rows"], table["rejected.unknown_sensor"], table["late"]) == (len(rows), 5, 0)
    by_sensor = sensor_table(tmp_path / "metrics").droplevel("query")
    np.testing.assert_array_equal(by_sensor[["audited", "wrong"]].T, audit[:2])
    assert by_sensor["windows"].to_dict() == output["sensor"].value_counts().to_dict()
    of_a = (output["sensor"] == "a") & (output["state"] == "estimated")
    assert by_sensor.loc["a", "estimated"] == of_a.sum() > 0


def require_metrics(directory, queries):
    """Wait until Spark has reported each query, which it does in a thread of its own."""
    for _ in range(600):
        recorded = sensor_table(directory).index if any(directory.glob("*.jsonl")) else None
        if recorded is not None and {*recorded.unique("query")} == queries:
            return
        time.sleep(0.1)
    raise AssertionError(f"no listener got the progress of {queries}")


def table_of(directory, rows):
    """Return the metrics of the only query, once Spark has reported all of them."""
    for _ in range(600):
        if any(directory.glob("*.jsonl")):
            (name,) = (table := metrics_table(directory)).columns
            if table.loc[["exact", "estimated", "lost"], name].sum() == rows:
                return table[name]
        time.sleep(0.1)
    raise AssertionError("no listener got the progress of the query")


def test_deduplication_before_and_a_roll_up_after_are_one_query(rocksdb, tmp_path):
    """With columns whose names have dots, blanks and backticks; samples come twice."""
    rows = long(minutes(rounds=60))
    twice = pd.concat([rows[:700], rows[650:700], rows[700:], rows[1100:]])
    put(tmp_path / "in", [twice[:700], twice[700:]])
    names = {"time": "read.at", "sensor": "device id", "value": "a`b.c", "site": "`site"}
    stream = reader(rocksdb, tmp_path / "in").withColumnsRenamed(names)
    stream = stream.withWatermark("`read.at`", "0 seconds")
    stream = stream.dropDuplicatesWithinWatermark(["read.at", "device id"])
    roles = {"time": "read.at", "sensor": "`device id`", "value": "a`b.c", "group": "`site"}
    windows = recoverable(stream, Promise(**TERMS), **roles, now=now())
    output, _ = run(windows, tmp_path / "windows")
    expected = expected_rows(rows, Promise(**TERMS)).assign(**{"`site": "s"})
    require_equal(in_order(output), in_order(expected))
    hour = F.window("window_time", "1 hour").alias("hour")
    hourly = windows.groupBy(hour, "sensor").agg(F.sum("samples").alias("samples"))
    rolled, progress = run(hourly.select("hour.start", "sensor", "samples"), tmp_path / "hourly")
    complete = expected.groupby([expected["start"].dt.floor("h"), "sensor"])["samples"].sum()
    complete = complete.reset_index().query("start < '2026-01-01 04:00Z'")
    pd.testing.assert_frame_equal(in_order(rolled), in_order(complete), check_dtype=False)
    late = [each["numRowsDroppedByWatermark"] for p in progress for each in p["stateOperators"]]
    assert sum(late) == 0


def test_the_pages_short_program_makes_its_tables(rocksdb, tmp_path, monkeypatch, capsys):
    """From a plan to windows, hours and estimates; all samples come twice, and some never."""
    page = (Path(__file__).parents[2] / "docs" / "any_stream.md").read_text()
    program, table = re.findall(r"^```python no-run\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for before, after in {
        '"incoming"': f'"{tmp_path}/incoming"',  # the JVM has another working directory
        'f"state/': f'f"{tmp_path}/state/',
        "start(name)": f'start(f"{tmp_path}/{{name}}")',
        "awaitAnyTermination()": "active[0].processAllAvailable()\n"
        "spark.streams.active[1].processAllAvailable()",
        '"windows")': f'"{tmp_path}/windows")',
    }.items():
        assert before in program + table
        program, table = program.replace(before, after), table.replace(before, after)
    changes = {"assignment": WORKERS, "question.epsilon": dict.fromkeys(NAMES, 0.5)}
    changes |= {"question.slide": 5, "data.step_seconds": 60, "data.seasons_in_windows": []}
    write_plan(tmp_path / "plan.json", None, [(0, 5, NAMES)], **changes)
    samples = minutes(rounds=260)
    samples[1150:1162, 0] = np.nan
    rows = long(samples)[["time", "sensor", "value"]]
    rows["time"] += pd.Timestamp.now("UTC").floor("D") - pd.Timedelta("2D") - START
    rows["time"] = rows["time"].dt.strftime("%Y-%m-%dT%H:%M:%S")
    (tmp_path / "incoming").mkdir()
    twice = rows.loc[rows.index.repeat(2)]
    twice.to_csv(tmp_path / "incoming" / "1.csv", header=False, index=False)
    monkeypatch.chdir(tmp_path)
    names = {each.__name__: each for each in (Promise, recoverable, record_metrics)}
    names |= {"spark": rocksdb, "F": F}
    try:
        exec(program, names)
    finally:
        for query in rocksdb.streams.active:
            query.stop()
    exec(table, names)
    printed = capsys.readouterr().out
    assert 2 <= printed.count("estimated") <= 3
    require_metrics(tmp_path / "metrics", {"windows", "hourly"})
    windows = rocksdb.read.parquet(str(tmp_path / "windows")).toPandas()
    assert len(windows) == 4 * (260 - 13) and set(windows["samples"]) <= {0, 2, 3, 5}
    hourly = rocksdb.read.parquet(str(tmp_path / "hourly")).toPandas()
    assert len(hourly) >= 4 * 18 and hourly["avg(value)"].notna().all()


@pytest.mark.versions
def test_a_watermark_on_another_column_is_refused(rocksdb, tmp_path):
    stream = reader(rocksdb, tmp_path)
    other = stream.withColumn("at", F.col("time")).withWatermark("at", "1 minute")
    with pytest.raises(ValueError, match=r"watermark on 'at': call withWatermark\('time'"):
        recoverable(other, Promise(**TERMS))
    without = other.withMetadata("at", {"comment": "no watermark"})
    assert recoverable(without, Promise(**TERMS)).isStreaming


def united(windows):
    """The windows of two kinds, by SQL on a view, which Spark makes a DataFrame of its own."""
    windows.createOrReplaceTempView("windows")
    of_a = "select * from windows where sensor = 'a'"
    others = "select * from windows where sensor <> 'a'"
    return windows.sparkSession.sql(f"{of_a} union all {others}")


def joined(windows):
    """Each window with the same one again."""
    columns = [F.col(name).alias(f"other_{name}") for name in ("window_time", "sensor")]
    other = windows.select(*columns)
    return windows.join(other, F.expr("window_time = other_window_time and sensor = other_sensor"))


@pytest.mark.parametrize(
    ("both", "times"),
    [(united, 1), (lambda windows: windows.union(windows), 2), (joined, 1)],
    ids=["view", "union", "join"],
)
def test_windows_united_or_joined_with_themselves_are_complete(rocksdb, tmp_path, both, times):
    """As a control, they are not where Spark reuses the part of the plan that has the guards."""
    rows = long(minutes(rounds=20))
    put(tmp_path / "in", [rows])
    windows = recoverable(reader(rocksdb, tmp_path / "in"), Promise(**TERMS), now=now())
    whole, _ = run(both(windows), tmp_path / "whole")
    assert len(whole) == times * 4 * 19
    rocksdb.conf.set(REUSE, "true")
    try:
        lacking, _ = run(both(windows), tmp_path / "lacking")
    finally:
        rocksdb.conf.set(REUSE, "false")
    assert len(lacking) < len(whole)


@pytest.mark.versions
def test_a_recoverable_of_windows_is_refused_and_an_own_observe_is_not(rocksdb, tmp_path):
    promise, stream = Promise(**TERMS), reader(rocksdb, tmp_path)
    windows = recoverable(stream, promise)
    rolled = windows.groupBy("sensor", F.window("window_time", "1 hour")).avg("value")
    rolled = rolled.select("sensor", F.col("avg(value)").alias("value"), F.window_time("window"))
    for given, column in ((windows, "window_time"), (rolled, "window_time(window)")):
        with pytest.raises(ValueError, match="stream must be without recoverable, and without an"):
            recoverable(given, promise, time=column)
    count = F.count(F.lit(1)).alias("rows")
    assert recoverable(stream.observe("rejected_rows", count), promise).isStreaming
    with pytest.raises(ValueError, match="an observe named 'rejected', got one: rename your own"):
        recoverable(stream.observe("rejected", count), promise)


def test_a_second_query_reads_the_table_of_the_windows(rocksdb, tmp_path):
    """The table's schema keeps the mark of a watermark, but a reader of it has none."""
    put(tmp_path / "in", [long(minutes(rounds=60))])
    run(recoverable(reader(rocksdb, tmp_path / "in"), Promise(**TERMS), now=now()), tmp_path)
    schema = rocksdb.read.parquet(str(tmp_path / "rows")).schema
    stream = rocksdb.readStream.schema(schema).parquet(str(tmp_path / "rows"))
    assert WATERMARK in stream.schema["window_time"].metadata
    terms = TERMS | {"window": "30min", "samples": 6}
    again = recoverable(stream, Promise(**terms), time="window_time", now=now())
    output, _ = run(again, tmp_path / "again")
    assert len(output) == 4 * 9  # of 59 windows; the last one waits for its end
    assert set(output["state"]) == {"exact"}


@pytest.mark.parametrize(("named", "unknown"), [(NAMES, 0), (["a ", "b", "c", "d"], 1)])
def test_names_that_a_database_padded_are_those_of_the_promise(rocksdb, tmp_path, named, unknown):
    """Unless the promise has such names itself: then the others are unknown, and counted."""
    rows = long(minutes(rounds=4))
    rows["sensor"] = rows["sensor"].str.ljust(10)
    put(tmp_path / "in", [rows])
    workers = [[named[0]], [named[1]], named[2:]]
    windows = recoverable(
        reader(rocksdb, tmp_path / "in"), Promise(**TERMS | {"workers": workers}), now=now()
    )
    output, progress = run(windows, tmp_path)
    assert len(output) == (0 if unknown else 3 * 4)
    rejected = sum(p["observedMetrics"]["rejected"]["unknown_sensor"] for p in progress)
    assert rejected == unknown * len(rows)


def test_a_query_that_waits_for_ever_shows_it_in_its_metrics(rocksdb, tmp_path):
    """Spark accepts a second watermark and then writes nothing, also behind a view."""
    rows = long(minutes(rounds=20))
    put(tmp_path / "in", [rows[:200], rows[200:300], rows[300:]])
    recoverable(
        reader(rocksdb, tmp_path / "in"), Promise(**TERMS), now=now()
    ).createOrReplaceTempView("windows")
    for name, frame, rounds in (
        ("once", rocksdb.table("windows"), 0),
        ("twice", rocksdb.table("windows").withWatermark("start", "1 hour"), 3),
    ):
        output, progress = run(frame, tmp_path / name)
        assert (len(output) == 0) == (name == "twice")
        records = pd.DataFrame([record_of(each) for each in progress])
        assert micro_batches_waiting(records) == rounds


def test_a_row_without_its_group_is_counted(rocksdb, tmp_path):
    rows = long(minutes(rounds=4))
    put(tmp_path / "in", [pd.concat([rows, rows[:3].assign(site=None)])])
    stream = reader(rocksdb, tmp_path / "in")
    output, progress = run(recoverable(stream, Promise(**TERMS), group="site", now=now()), tmp_path)
    assert set(output["site"]) == {"s"} and len(output) == 3 * 4
    assert sum(p["observedMetrics"]["rejected"]["no_group"] for p in progress) == 3


@pytest.mark.versions
def test_a_query_with_a_changed_promise_begins_anew(rocksdb, tmp_path):
    """Sensor d leaves while its window is open, and e joins; other changes are refused."""
    rows = long(minutes(rounds=60))
    first, second = rows[:478], rows[478:].replace({"sensor": {"d": "e"}})
    before = Promise(**TERMS)
    after = Promise(**TERMS | {"workers": [["a"], ["e"], ["b", "c"]]})
    put(tmp_path / "in", [first])
    stream = reader(rocksdb, tmp_path / "in")
    run(recoverable(stream, before, now=now()), tmp_path)
    put(tmp_path / "in", [first, second])
    other = replace(after, horizons=3)
    with pytest.raises(Exception, match=r"(?s)KEY_SCHEMA_NOT_COMPATIBLE.*horizons_5"):
        run(recoverable(stream, other, now=now()), tmp_path)
    output, _ = run(recoverable(stream, after, now=now()), tmp_path)

    windows = complete_windows(pd.concat([first, second]), before)
    complete = windows["start"] + pd.Timedelta("5min") <= first["time"].max()
    rest = windows[~complete & windows["sensor"].isin(after.sensors)]
    parts = [(before, windows[complete]), (after, rest)]
    tables = [processed(KeyedGuards(promise), in_microseconds(part))[0] for promise, part in parts]
    expected = pd.concat(tables)
    expected["start"] = pd.to_datetime(expected["start"], unit="us", utc=True)
    require_equal(in_order(output), in_order(expected))


def test_a_stream_that_begins_from_a_plan_certifies_its_first_window(rocksdb, tmp_path):
    """A plan of the samples before; a worker is away in the second window, and at a restart."""
    samples = minutes(rounds=640)
    before = pd.date_range(end=START, periods=3000, freq="min", inclusive="left")
    earlier = pd.DataFrame(samples[: len(before)], before, NAMES)
    question = Question(epsilon=0.5, window=5)
    made = plan(earlier, question, assignment={name: name for name in NAMES})
    promise = Promise.from_plan(made.write(tmp_path / "plan.json"))
    later = samples[3000:]
    later[5:10, 0] = np.nan
    later[60:70, 1] = np.nan
    rows = long(later)
    put(tmp_path / "in", [rows[:250]])
    frame = recoverable(reader(rocksdb, tmp_path / "in"), promise, group="site", now=now())
    run(frame, tmp_path)
    put(tmp_path / "in", [rows[:250], rows[250:]])
    output, _ = run(frame, tmp_path)
    expected = expected_rows(rows, promise)
    require_equal(in_order(output), in_order(expected.assign(site="s")))
    first = in_order(output)[:8]
    assert (first["recoverable"] > 0).all()
    assert first["state"].tolist() == ["exact"] * 4 + ["estimated"] + ["exact"] * 3
    truth = minutes(rounds=640)[3005:3010, 0].mean()
    assert abs(first["value"][4] - truth) < 0.5


@pytest.mark.parametrize(
    ("before", "others"),
    [pytest.param(None, ["site"], marks=pytest.mark.versions), ("site", [None, "room", "code"])],
)
def test_a_query_that_goes_on_with_other_groups_is_refused(rocksdb, tmp_path, before, others):
    """It would mix the guards of both kinds of groups; set back, it goes on."""
    promise, rows = Promise(**TERMS), long(minutes(rounds=60))
    put(tmp_path / "in", [rows[:478]])
    columns = {"room": F.lit("cellar"), "code": F.lit(7)}
    stream = reader(rocksdb, tmp_path / "in").withColumns(columns)
    right = recoverable(stream, promise, group=before, now=now())
    whole, _ = run(right, tmp_path)
    put(tmp_path / "in", [rows[:478], rows[478:]])
    for other in others:
        wrong = recoverable(stream, promise, group=other, now=now())
        with pytest.raises(Exception, match="STATE_STORE_.*NOT_COMPATIBLE"):
            run(wrong, tmp_path)
        assert len(rocksdb.read.parquet(str(tmp_path / "rows")).toPandas()) == len(whole)
    output, _ = run(right, tmp_path)
    expected = expected_rows(rows, promise)
    require_equal(in_order(output), in_order(expected.assign(**{before: "s"} if before else {})))


@pytest.mark.parametrize("policy", ["min", "max"])
def test_an_input_without_rows_stops_the_windows_unless_the_fastest_ends_them(
    rocksdb, tmp_path, policy
):
    """As the page says of inputs that each have a watermark of their own."""
    rows, setting = long(minutes(rounds=20)), "spark.sql.streaming.multipleWatermarkPolicy"
    (tmp_path / "idle").mkdir()
    put(tmp_path / "in", [rows])
    stream, idle = (reader(rocksdb, tmp_path / name) for name in ("in", "idle"))
    both = stream.withWatermark("time", "1 minute").union(idle.withWatermark("time", "1 minute"))
    rocksdb.conf.set(setting, policy)
    try:
        windows = recoverable(both, Promise(**TERMS), now=now())
        writer = windows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).format("noop").start()
        assert query.awaitTermination(300)
    finally:
        rocksdb.conf.unset(setting)
    metrics = [each["observedMetrics"]["windows"]["counts"] for each in progress_of(query)]
    assert sum(each["exact"] for each in metrics) == {"min": 0, "max": 4 * 19}[policy]


def test_settings_that_nobody_may_read_are_left_to_spark(rocksdb, tmp_path, monkeypatch):
    read = type(rocksdb.conf).get

    def refuse(conf, name, *default):
        if name in (PROVIDER, REUSE, "spark.sql.caseSensitive"):
            raise PySparkException(f"no right to read {name}")
        return read(conf, name, *default)

    put(tmp_path / "in", [long(minutes(rounds=2))])
    rocksdb.conf.set(PROVIDER, ROCKSDB.replace("RocksDB", "HDFSBacked"))
    stream = reader(rocksdb, tmp_path / "in")
    with monkeypatch.context() as patch:
        patch.setattr(type(rocksdb.conf), "get", refuse)
        windows = recoverable(stream, Promise(**TERMS), now=now())
    reason = "STORE_BACKEND_NOT_SUPPORTED_FOR_TWS|STATE_STORE_MULTIPLE_COLUMN_FAMILIES"
    with pytest.raises(Exception, match=reason):
        run(windows, tmp_path)


@pytest.mark.versions
def test_a_stream_that_does_not_fit_is_refused(rocksdb, tmp_path):
    promise = Promise(**TERMS)
    stream = rocksdb.readStream.schema("time timestamp, sensor string, value string").json(
        str(tmp_path)
    )
    with pytest.raises(
        ValueError, match="value must name one column of type tinyint .* 'value: string'"
    ):
        recoverable(stream, promise)
    with pytest.raises(ValueError, match="time must name one column .* got 'when' for none"):
        recoverable(stream, promise, time="when")
    with pytest.raises(ValueError, match="value must name one column .* 'value: string', 'value: "):
        recoverable(stream.select("*", "value"), promise)
    with pytest.raises(ValueError, match="stream must be streaming"):
        recoverable(rocksdb.range(3), promise)
    stream = stream.withColumn("value", stream["value"].cast("double"))
    with pytest.raises(ValueError, match="group must name one column .*, got 'site' for none"):
        recoverable(stream, promise, group="site")
    with pytest.raises(ValueError, match="not be named as a column of the result, got 'State'"):
        recoverable(stream.selectExpr("*", "sensor AS State"), promise, group="State")
    two = stream.select("*", F.col("value").alias("Value"))
    with pytest.raises(
        ValueError, match=r"got 'value' for 'value: double', 'Value: double': rename"
    ):
        recoverable(two, promise)
    with pytest.raises(ValueError, match="time must be a column's name, got Column"):
        recoverable(stream, promise, time=stream["time"])
    with pytest.raises(ValueError, match="promise must be a Promise, got {'workers'"):
        recoverable(stream, TERMS)
    for kind in ("double", "array<string>", "interval day", "string collate UTF8_LCASE"):
        other = stream.selectExpr("*", f"CAST(NULL AS {kind}) AS site")
        with pytest.raises(
            ValueError, match="group must name one column of names or whole numbers"
        ):
            recoverable(other, promise, group="site")
    zoneless = stream.withColumn("time", stream["time"].cast("timestamp_ntz"))
    with pytest.raises(ValueError, match="time must name .* 'time' for 'time: timestamp_ntz'"):
        recoverable(zoneless, promise)
    for query, problem in {
        "max(value": "PARSE_SYNTAX_ERROR",
        "value + 1": "GROUP_BY",
        "max(value) + max(site)": "UNRESOLVED_COLUMN",
        "nosuch(value)": "UNRESOLVED_ROUTINE",
        "collect_list(value)": "its type is array",
        "max(value) > 3": "its type is boolean",
    }.items():
        odd = Promise(**TERMS, query=query)
        with pytest.raises(ValueError, match=f"(?s)query must be an SQL aggregate .*{problem}"):
            recoverable(stream, odd)
    rocksdb.conf.set(REUSE, "true")
    with pytest.raises(ValueError, match=r'lose rows .* call spark.conf.set\("spark.sql.exchange'):
        recoverable(stream, promise)
    rocksdb.conf.set(REUSE, "false")
    rocksdb.conf.set(PROVIDER, ROCKSDB.replace("RocksDB", "HDFSBacked"))
    with pytest.raises(ValueError, match="be RocksDB, .*HDFSBacked.*parallelPartitionD"):
        recoverable(stream, promise)
    rocksdb.conf.set(PROVIDER, "com.platform.RocksDBStateStoreProviderOfACluster")
    assert recoverable(stream, promise).isStreaming
