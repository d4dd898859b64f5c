"""Histograms in a stream: the same answers however Spark cuts the events."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from aftlib.exponential_histogram import ExponentialHistogram
from aftlib.exponential_histogram.bits import BitStream
from aftlib.exponential_histogram.operator import HistogramQuery, unpacked
from aftlib.exponential_histogram.pipeline import estimates, rejects, require_in_step, run
from aftlib.exponential_histogram.source import BitEvents

STOP, KEYS = 3000, 2
STREAMS = [BitStream(0.3, None, 7 + key).draw(STOP) for key in range(KEYS)]


def bit_events(spark, every, tasks):
    return BitEvents(0.3, None, 7, KEYS, STOP, every, tasks).stream(spark)


class FakeState:
    """As Spark's `GroupState`, for one group of keys."""

    def __init__(self):
        self.value, self.watermark, self.due = None, 0, None

    def getCurrentWatermarkMs(self):  # noqa: N802
        return self.watermark

    def setTimeoutTimestamp(self, due):  # noqa: N802
        assert due > self.watermark
        self.due = due

    def remove(self):
        self.value = self.due = None

    @property
    def exists(self):
        return self.value is not None

    @property
    def get(self):
        return self.value

    def update(self, value):
        self.value = value


KEY = '{"key":7}'


def frame(at, event, key=KEY):
    """Rows as the operator gets them; each row has passed the checks of single rows."""
    return pd.DataFrame({"key": key, "at": at, "event": event}).assign(reason=None)


def called(query, frames, state):
    """Answers and rejects of one micro-batch of a group of keys."""
    output = pd.concat([frame([], []).assign(estimate=[]), *query((5,), iter(frames), state)])
    good = output["reason"].isna()
    return output[good], output[~good]


def played(query, rows, batches, rng):
    """Answers of the operator to rows in micro-batches, each shuffled and cut at random."""
    state, output = FakeState(), []
    for batch in np.array_split(np.arange(len(rows)), batches):
        shuffled = rows.iloc[rng.permutation(batch)]
        cuts = np.array_split(np.arange(len(shuffled)), rng.integers(1, 5))
        output.extend(query((5,), iter([shuffled.iloc[cut] for cut in cuts]), state))
    table = pd.concat(output)
    assert (table["key"] == KEY).all()
    return table, unpacked(*state.value)[KEY]


@pytest.mark.parametrize("values", ["bits", "integers"])
@pytest.mark.parametrize("timed", [False, True])
def test_order_and_cut_of_a_micro_batch_do_not_matter(timed, values):
    rng = np.random.default_rng(1)
    query = HistogramQuery(50, 0.1, timed, values)
    for _ in range(20):
        event = rng.integers(0, 2 if values == "bits" else 9, 300)
        steps = rng.integers(0, 3, 300) if timed else np.ones(300, int)
        rows = frame(np.cumsum(steps), event).sort_values(["at", "event"])
        histogram = query.histogram()
        at = rows["at"].to_numpy()
        expected = histogram.estimates(rows["event"].to_numpy(), at if timed else None)
        last = np.append(np.flatnonzero(np.diff(at)), at.size - 1)  # ties may span micro-batches
        table, (stopped, data, *_) = played(query, rows, int(rng.integers(1, 8)), rng)
        assert table["estimate"].to_numpy()[last].tolist() == expected[last].tolist()
        assert (stopped, data) == (at[-1], histogram.to_bytes())


@pytest.mark.parametrize("timed", [False, True])
def test_keys_of_a_group_are_answered_as_if_each_were_alone(timed):
    rng, keys = np.random.default_rng(3), [f'{{"key":{key}}}' for key in range(12)]
    query = HistogramQuery(20, 0.1, timed, bad="keep", lateness=9 if timed else None)
    together, alone = FakeState(), {key: FakeState() for key in keys}
    combined, apart = [], []
    for first in range(0, 80, 10):
        at = first + rng.integers(-8, 12, 90)
        rows = frame(at, rng.integers(0, 2, 90), rng.choice(keys[: 4 + first // 8], 90))
        together.watermark = first - 9 if first < 70 else 200
        combined += query((5,), iter([rows[:50], rows[50:]]), together)
        for key, state in alone.items():
            state.watermark = together.watermark
            apart += query((5,), iter([rows[rows["key"] == key]]), state)
    one, other = (
        pd.concat(each).astype(object).sort_values(["key", "at", "estimate"], kind="stable")
        for each in (combined, apart)
    )
    assert one["reason"].notna().any() and one["estimate"].notna().sum() > 300
    assert one.reset_index(drop=True).equals(other.reset_index(drop=True))
    left = [unpacked(*state.value) for state in alone.values() if state.value]
    states = unpacked(*together.value) if together.value else {}
    assert states == {key: each for one in left for key, each in one.items()}
    assert len(states) == (0 if timed else len(keys))


LATE = [
    (False, [4, 5], "at does not rise", 4),
    (False, [3, 7], "at does not rise", 3),
    (False, [6, 6], "at does not rise", 6),
    (True, [3, 9], "at goes back", 3),
]


@pytest.mark.parametrize(("timed", "second", "reason", "at"), LATE)
@pytest.mark.parametrize("bad", ["refuse", "drop", "keep"])
def test_late_or_repeated_events_meet_the_policy_and_change_nothing(timed, second, reason, at, bad):
    query, state, twin = HistogramQuery(10, 0.1, timed, bad=bad), FakeState(), FakeState()
    for each in (state, twin):
        called(query, [frame([2, 4], [1, 1])], each)
    if bad == "refuse":
        message = rf"key 7 has a row whose {reason}, got at={at}, event=1"
        with pytest.raises(ValueError, match=message):
            called(query, [frame(second, [1, 1])], state)
    else:
        answers, rejects = called(query, [frame(second, [1, 1])], state)
        assert answers["at"].tolist() == [second[1]]
        assert (rejects["reason"].tolist(), rejects["number"].tolist()) == ([reason], [1])
        assert rejects["at"].tolist() == ([at] if bad == "keep" else [None])
        called(query, [frame(second[1:], [1])], twin)
    assert state.value == twin.value


def test_a_key_with_rejects_only_keeps_no_state():
    state = FakeState()
    rows = frame([0, 5], [1, 0]).assign(reason=["at is null", "event is null"])
    answers, rejects = called(HistogramQuery(10, 0.1, bad="keep"), [rows], state)
    assert answers.empty and state.value is None
    assert rejects[["at", "event"]].values.tolist() == [[None, 1], [5, None]]


def test_events_wait_for_their_predecessors_and_an_empty_window_answers_0_and_goes():
    query, state = HistogramQuery(10, 0.1, timed=True, lateness=5), FakeState()
    answers, _ = called(query, [frame([20, 14], [1, 1])], state)
    assert answers.empty and state.due == 14
    state.watermark = 15
    answers, _ = called(query, [frame([16, 15], [1, 1])], state)
    assert answers[["at", "estimate"]].values.tolist() == [[14, 1]]
    state.watermark = 21
    answers, _ = called(query, [], state)
    assert answers[["at", "estimate"]].values.tolist() == [[15, 2], [16, 3], [20, 4]]
    assert state.due == 30
    state.watermark = 30
    answers, _ = called(query, [], state)
    assert answers.empty and state.value is not None, "an event may yet come at 30"
    state.watermark = 31
    answers, _ = called(query, [], state)
    assert answers[["at", "estimate"]].values.tolist() == [[30, 0]]
    assert state.value is None and state.due is None


def test_what_waits_keeps_its_key_while_its_window_empties():
    query, state = HistogramQuery(10, 0.1, timed=True, lateness=50), FakeState()
    called(query, [frame([20, 60], [1, 1])], state)
    answers = []
    for state.watermark in (21, 31, 40, 61, 71):
        answers += called(query, [], state)[0][["at", "estimate"]].values.tolist()
    assert answers == [[20, 1], [30, 0], [60, 1], [70, 0]]
    assert state.value is None


@pytest.mark.parametrize("cuts", [1, 4])
def test_events_within_the_lateness_are_answered_as_if_they_had_come_in_order(cuts):
    rng = np.random.default_rng(cuts)
    query, state = HistogramQuery(200, 0.1, timed=True, lateness=40), FakeState()
    at = np.sort(rng.integers(0, 2000, 1000))
    event = rng.integers(0, 2, 1000)
    came = np.argsort(at + rng.integers(0, 41, 1000), kind="stable")
    answers = []
    for part in np.array_split(came, 4 * cuts):
        answers.append(called(query, [frame(at[part], event[part])], state)[0])
        state.watermark = max(state.watermark, int(at[part].max()) - 40)
    state.watermark = 2100
    answers.append(called(query, [], state)[0])
    order = np.lexsort((event, at))
    expected = query.histogram().estimates(event[order], at[order])
    table = pd.concat(answers)
    assert table["at"].tolist() == at[order].tolist()
    last = np.append(np.flatnonzero(np.diff(at)), at.size - 1)
    assert table["estimate"].to_numpy(float)[last].tolist() == expected[last].tolist()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"window": 0}, "window must be a whole number from 1 to .*, got 0"),
        ({"groups": 0}, "groups must be a whole number at least 1 .*, got 0"),
        ({"bad": "ignore"}, "bad must be one of refuse, drop, keep, got 'ignore'"),
        ({"lateness": 5}, "lateness must be left out with timed=False, got 5"),
        ({"lateness": -1, "timed": True}, "lateness must be .*at least 0.*, got -1"),
        ({"lateness": 0.5, "timed": True}, "lateness must be a whole number .*, got 0.5"),
    ],
)
def test_policies_that_are_none_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        HistogramQuery(**{"window": 10, "epsilon": 0.1} | parameters).check()


@pytest.mark.parametrize(
    "other", [HistogramQuery(80, 0.1), HistogramQuery(10, 0.01), HistogramQuery(10, 0.1, True)]
)
def test_a_stream_goes_on_with_its_own_query_only(other):
    state = FakeState()
    called(HistogramQuery(10, 0.1), [frame([1, 2], [1, 1])], state)
    with pytest.raises(ValueError, match="query must be the one that the stream began with"):
        called(other, [frame([3, 4], [1, 1])], state)


def test_a_stream_without_events_has_no_answers(spark, tmp_path):
    nothing = spark.readStream.schema("key int, at long, event int").parquet(str(tmp_path))
    assert run(spark, nothing, HistogramQuery(10, 0.1), tmp_path / "state").count() == 0
    assert rejects(spark, tmp_path / "state").count() == 0


def test_stream_answers_each_event_of_each_key_whatever_the_partitions(spark, tmp_path):
    query = HistogramQuery(500, 0.05)
    expected = [ExponentialHistogram(500, 0.05).estimates(bits) for bits in STREAMS]
    for name, every, tasks, partitions in (("a", 1600, 3, 3), ("b", STOP, 1, 1)):
        events = bit_events(spark, every, tasks)
        result = run(spark, events, query, tmp_path / name, partitions)
        table = result.toPandas().sort_values(["key", "at"])
        assert len(table) == KEYS * STOP
        for key, answers in enumerate(expected):
            of_key = table[table["key"] == key]
            assert of_key["at"].tolist() == list(range(1, STOP + 1))
            assert of_key["estimate"].tolist() == answers.tolist()


def test_stream_of_sums_over_time(spark, tmp_path):
    """Times with ties, integers, one answer per micro-batch; a second run has no work left."""
    query = HistogramQuery(200, 0.1, timed=True, values="integers", each=False)
    events = bit_events(spark, 1500, 2).select(
        F.concat(F.lit("sensor "), "key").alias("key"),
        F.expr("at div 2").alias("at"),
        (F.col("event").cast("long") * (F.col("at") % 5)).alias("event"),
    )
    provider = spark.conf.get("spark.sql.streaming.stateStore.providerClass")
    run(spark, events, query, tmp_path, partitions=2)
    table = run(spark, events, query, tmp_path).toPandas().sort_values(["key", "at"])
    at = np.arange(1, STOP + 1)
    for key, bits in enumerate(STREAMS):
        histogram = query.histogram()
        expected = []
        for part in (slice(0, 1500), slice(1500, STOP)):
            histogram.update((bits * (at % 5))[part], (at // 2)[part])
            expected.append(histogram.estimate())
        of_key = table[table["key"] == f"sensor {key}"]
        assert of_key["estimate"].tolist() == expected
        assert of_key["at"].tolist() == [750, 1500]
    parts = [path.name for path in (tmp_path / "checkpoint" / "state" / "0").iterdir()]
    assert sorted(name for name in parts if name.isdigit()) == ["0", "1"]
    offsets = (tmp_path / "checkpoint" / "offsets" / "0").read_text()
    assert "RocksDBStateStoreProvider" in offsets
    assert spark.conf.get("spark.sql.streaming.stateStore.providerClass") == provider
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"


KEY_OF_TYPES = (
    "struct<a: double, b: timestamp, c: date, d: decimal(30,2), e: binary, f: bigint, g: string,"
    "h: array<int>, i: timestamp_ntz>"
)
MOMENTS = datetime(2026, 10, 25, 0, 30, 0, 123456), datetime(1969, 1, 1)
KEYS_OF_TYPES = [
    (0.1, MOMENTS[0], date(1999, 12, 31), Decimal("12345678901234567890.12"), bytearray(b"\0\xff"),
     2**62 + 1, "null", [1, None], MOMENTS[0]),
    (float("inf"), MOMENTS[1], date(1, 1, 1), Decimal("-0.50"), bytearray(), 2**62 + 2, 'ä"\n\0{',
     [], MOMENTS[1]),
    (float("nan"), *8 * [None]),
    9 * (None,),
    None,
]  # fmt: skip


def test_keys_of_any_type_come_back_as_they_were(spark, tmp_path):
    rows = [(key, at, 1) for key in KEYS_OF_TYPES for at in (1, 2)]
    schema = f"key {KEY_OF_TYPES}, at long, event int"
    events = stream_of(spark, tmp_path / "in", rows, schema=schema)
    answers = run(spark, events, HistogramQuery(10, 0.1, each=False, groups=2), tmp_path / "out", 1)
    assert answers.schema["key"].dataType == events.schema["key"].dataType
    expected = spark.createDataFrame([(key, 2, 2.0) for key in KEYS_OF_TYPES], answers.schema)
    assert sorted(map(str, answers.collect())) == sorted(map(str, expected.collect()))


def test_a_key_is_the_same_in_every_time_zone(spark, tmp_path):
    """Once, a session in another zone began a second histogram for each timestamp."""
    schema, query = "key timestamp, at long, event int", HistogramQuery(10, 0.1)
    zone = spark.conf.get("spark.sql.session.timeZone")
    for at, name in enumerate((zone, "Asia/Kolkata")):
        events = stream_of(spark, tmp_path / "in", [(MOMENTS[0], at, 1)], schema=schema)
        spark.conf.set("spark.sql.session.timeZone", name)
        answers = run(spark, events, query, tmp_path / "out", 1)
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert listed(answers, "key", "at", "estimate") == [(MOMENTS[0], 0, 1.0), (MOMENTS[0], 1, 2.0)]


ROWS = "key string, at long, event int"
BAD = [
    ("a", 1, 1),
    ("a", None, 1),
    ("b", 1, 1),
    ("b", 2, None),
    ("b", 3, -1),
    ("b", 4, 2),
    ("b", 5, 0),
    (None, 1, 1),
]


def stream_of(spark, folder, *batches, schema=ROWS):
    """A stream of one micro-batch per list of rows; more can be added."""
    for rows in batches:
        spark.createDataFrame(rows, schema).coalesce(1).write.mode("append").parquet(str(folder))
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def listed(frame, *columns):
    return sorted(map(tuple, frame.select(*columns).collect()), key=str)


def test_bad_rows_end_the_stream_with_their_key_and_nothing_committed(spark, tmp_path):
    """And it continues with all rows once the policy is to drop or to keep bad ones."""
    events, place = stream_of(spark, tmp_path / "in", BAD), tmp_path / "out"
    with pytest.raises(StreamingQueryException, match=r"key '[ab]' has a row whose"):
        run(spark, events, HistogramQuery(10, 0.1), place, 2)
    assert not list(place.glob("estimates/_spark_metadata/*"))
    assert rejects(spark, place).count() == 0
    answers = run(spark, events, HistogramQuery(10, 0.1, bad="drop"), place, 2)
    expected = [("a", 1, 1.0), ("b", 1, 1.0), ("b", 5, 1.0), (None, 1, 1.0)]
    assert listed(answers, "key", "at", "estimate") == sorted(expected, key=str)
    counts = listed(rejects(spark, place), "key", "reason", "number")
    reasons = [("a", "at is null"), ("b", "event is negative"), ("b", "event is no bit")]
    reasons.append(("b", "event is null"))
    assert counts == [(*reason, 1) for reason in reasons]

    stream_of(spark, tmp_path / "in", [("b", 5, 1), ("b", 6, 1)])
    answers = run(spark, events, HistogramQuery(10, 0.1, bad="keep"), place, 2)
    assert listed(answers.filter("at > 5"), "key", "at", "estimate") == [("b", 6, 2.0)]
    late = rejects(spark, place).filter("at is not null")
    assert listed(late, "key", "at", "event", "reason") == [("b", 5, 1, "at does not rise")]


def test_late_events_meet_the_policy_and_state_goes_when_its_window_has_emptied(spark, tmp_path):
    """Spark itself would silently drop rows behind the watermark."""
    query = HistogramQuery(100, 0.1, timed=True, bad="keep", lateness=10)
    events = stream_of(
        spark, tmp_path / "in",
        [("a", 1000, 1), ("b", 1010, 1), ("b", 1005, 1), ("b", None, 1)],
        [("b", 1600, 1), ("a", 999, 1)],  # 999 lies before 1010 - 10
        [("b", 1595, 1), ("b", 2000, 1), ("c", 5, 1)],
    )  # fmt: skip
    answers = run(spark, events, query, tmp_path / "out", 2)
    assert listed(answers, "key", "at", "estimate") == [
        ("a", 1000, 1.0),
        ("a", 1100, 0.0),
        ("b", 1005, 1.0),
        ("b", 1010, 2.0),
        ("b", 1110, 0.0),
        ("b", 1595, 1.0),
        ("b", 1600, 2.0),
        ("b", 1700, 0.0),
    ]
    late = listed(rejects(spark, tmp_path / "out"), "key", "at", "event", "reason")
    reason = "at is behind the watermark"
    nothing = ("b", None, 1, "at is null")  # once, such a row came twice
    assert late == [("a", 999, 1, reason), nothing, ("c", 5, 1, reason)]


@pytest.mark.parametrize(("emitted", "fine"), [(0, False), (1, True), (2, True), (3, False)])
def test_a_checkpoint_and_estimates_of_two_moments_are_refused(tmp_path, emitted, fine):
    """Micro-batch 1 is committed, and 2 has begun."""
    checkpoint, log = tmp_path / "checkpoint", tmp_path / "estimates" / "_spark_metadata"
    for folder, numbers, text in (
        (checkpoint / "offsets", range(3), 'v1\n{}\n{"event": 5}\n'),
        (checkpoint / "commits", range(2), "v1\n{}\n"),
        (log, range(emitted + 1), "v1\n"),
    ):
        folder.mkdir(parents=True)
        for number in numbers:
            (folder / str(number)).write_text(text)
    (checkpoint / "metadata").write_text("{}")
    refused = pytest.raises(ValueError, match=rf"of one moment, got .* {emitted} that was emitted")
    with nullcontext() if fine else refused:
        require_in_step(tmp_path)


@pytest.mark.parametrize(
    "other",
    [
        {"window": 80},
        {"epsilon": 0.01},
        {"timed": True},
        {"values": "integers"},
        {"each": False},
        {"groups": 8},
        {"timed": True, "lateness": 3},
    ],
)
def test_another_query_is_refused_before_new_keys_take_it(spark, tmp_path, other):
    events = spark.readStream.schema(ROWS).parquet(str(tmp_path))
    types = {"key type": "string", "at type": "bigint", "event type": "int"}
    first, query = HistogramQuery(10, 0.1), {"window": 10, "epsilon": 0.1} | other
    (tmp_path / "query.json").write_text(json.dumps(first.identity | types))
    name = [*other][-1]
    with pytest.raises(
        ValueError, match=rf"query must be the one .* with, .*{name} = .*, got .*: go on"
    ):
        run(spark, events, HistogramQuery(**query), tmp_path)


def test_columns_of_other_types_are_refused_before_a_batch_is_committed(spark, tmp_path):
    """Once, batches were committed, after which all estimates were unreadable."""
    place, query = tmp_path / "out", HistogramQuery(10, 0.1)
    events = stream_of(spark, tmp_path / "in", [("a", 1, 1)])
    run(spark, events, query, place, 2)
    for schema, message in (
        ("key long, at long, event int", "key type = string, got bigint: go on with that one, or"),
        ("key string, at int, event int", "at type = bigint, got int: go on with that one, or"),
        ("key string, at long, event boolean", "event type = int, got boolean: go on with that"),
    ):
        other = spark.readStream.schema(schema).parquet(str(tmp_path / "in"))
        with pytest.raises(ValueError, match=f"query must be the one .* began with, {message}"):
            run(spark, other, query, place)
    stream_of(spark, tmp_path / "in", [("a", 2, 1)])
    answers = run(spark, events, query, place)
    assert listed(answers, "key", "at", "estimate") == [("a", 1, 1.0), ("a", 2, 2.0)]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("key int, at timestamp, event int", "a column at of type .*, got timestamp: cast it"),
        ("key int, at long, event double", "a column event of type .*, got double: cast it"),
        ("key int, at long", "one column event, got .*: add"),
        ("k int, at long, event int", r"one column key, got \['k', 'at', 'event'\]"),
        ("KEY int, at long, event int", r"one column key, got \['KEY', 'at', 'event'\]"),
    ],
)
def test_columns_of_another_type_are_refused_before_the_start(spark, tmp_path, schema, message):
    with pytest.raises(ValueError, match=message):
        estimates(spark.readStream.schema(schema).parquet(str(tmp_path)), HistogramQuery(10, 0.1))
