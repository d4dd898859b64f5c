"""Histograms in a stream: the same answers however Spark cuts the events."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from aftlib.exponential_histogram import ExponentialHistogram
from aftlib.exponential_histogram.bits import BitStream
from aftlib.exponential_histogram.operator import HistogramQuery, estimates, run
from aftlib.exponential_histogram.source import BitEvents

STOP, KEYS = 3000, 2
STREAMS = [BitStream(0.3, None, 7 + key).draw(STOP) for key in range(KEYS)]


def bit_events(spark, every, tasks):
    return BitEvents(0.3, None, 7, KEYS, STOP, every, tasks).stream(spark)


class FakeState:
    """As Spark's `GroupState`, for one key."""

    def __init__(self):
        self.value = None

    @property
    def exists(self):
        return self.value is not None

    @property
    def get(self):
        return self.value

    def update(self, value):
        self.value = value


def played(query, rows, batches, rng):
    """Answers of the operator to rows in micro-batches, each shuffled and cut at random."""
    state, found = FakeState(), []
    for batch in np.array_split(np.arange(len(rows)), batches):
        shuffled = rows.iloc[rng.permutation(batch)]
        cuts = np.array_split(np.arange(len(shuffled)), rng.integers(1, 5))
        found.extend(query((3,), iter([shuffled.iloc[cut] for cut in cuts]), state))
    table = pd.concat(found)
    assert (table["key"] == 3).all()
    return table, state.value


@pytest.mark.parametrize("values", ["bits", "integers"])
@pytest.mark.parametrize("timed", [False, True])
def test_order_and_cut_of_a_micro_batch_do_not_matter(timed, values):
    rng = np.random.default_rng(1)
    query = HistogramQuery(50, 0.1, timed, values)
    for _ in range(20):
        event = rng.integers(0, 2 if values == "bits" else 9, 300)
        steps = rng.integers(0, 3, 300) if timed else np.ones(300, int)
        rows = pd.DataFrame({"at": np.cumsum(steps), "event": event}).sort_values(["at", "event"])
        histogram = query.histogram()
        at = rows["at"].to_numpy()
        expected = histogram.estimates(rows["event"].to_numpy(), at if timed else None)
        last = np.append(np.flatnonzero(np.diff(at)), at.size - 1)  # ties may span micro-batches
        table, (stopped, data) = played(query, rows, int(rng.integers(1, 8)), rng)
        assert table["estimate"].to_numpy()[last].tolist() == expected[last].tolist()
        assert (stopped, data) == (at[-1], histogram.to_bytes())


def test_one_answer_a_micro_batch_is_the_last_of_its_events():
    rows = pd.DataFrame({"at": np.arange(1, 301), "event": STREAMS[0][:300]})
    query = HistogramQuery(50, 0.1, each=False)
    table, _ = played(query, rows, 4, np.random.default_rng(2))
    expected = ExponentialHistogram(50, 0.1).estimates(STREAMS[0][:300])[74::75]
    assert table["at"].tolist() == [75, 150, 225, 300]
    assert table["estimate"].tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("timed", "second", "message"),
    [
        (False, [4, 5], "at must rise from event to event of a key, got 4 after 4: number"),
        (False, [3, 7], "at must rise from event to event of a key, got 3 after 4"),
        (False, [6, 6], "at must rise from event to event of a key, got 6 after 6"),
        (True, [3, 9], "timestamps must not go back, got 3 after 4: sort"),
    ],
)
def test_events_that_come_late_or_twice_are_refused(timed, second, message):
    query, state = HistogramQuery(10, 0.1, timed), FakeState()
    list(query((0,), iter([pd.DataFrame({"at": [2, 4], "event": [1, 1]})]), state))
    before = state.value
    with pytest.raises(ValueError, match=message):
        list(query((0,), iter([pd.DataFrame({"at": second, "event": [1, 1]})]), state))
    assert state.value == before


@pytest.mark.parametrize(
    ("values", "event", "message"),
    [
        ("bits", [1, None], "events must be bits .*, got type float64: convert them first"),
        ("bits", [0, 2], 'events must be bits, got 2 at position 1: .*values="integers"'),
        ("integers", [3, -1], "events must not be negative, got -1"),
        ("integers", [2**61, 0], "overflows the limit"),
    ],
)
def test_events_that_are_none_are_refused(values, event, message):
    rows = pd.DataFrame({"at": [1, 2], "event": event})
    with pytest.raises(ValueError, match=message):
        list(HistogramQuery(10, 0.1, values=values)((0,), iter([rows]), FakeState()))


def test_events_without_a_number_are_refused():
    rows = pd.DataFrame({"at": [1.0, None], "event": [1, 1]})
    with pytest.raises(ValueError, match=r"at must not be null, got null for key 7: number"):
        list(HistogramQuery(10, 0.1)((7,), iter([rows]), FakeState()))


@pytest.mark.parametrize(
    "other", [HistogramQuery(80, 0.1), HistogramQuery(10, 0.01), HistogramQuery(10, 0.1, True)]
)
def test_a_stream_goes_on_with_its_own_query_only(other):
    state, rows = FakeState(), pd.DataFrame({"at": [1, 2], "event": [1, 1]})
    list(HistogramQuery(10, 0.1)((0,), iter([rows]), state))
    with pytest.raises(ValueError, match="query must be the one that the stream began with"):
        list(other((0,), iter([rows + 2]), state))


def test_a_stream_without_events_has_no_answers(spark, tmp_path):
    nothing = spark.readStream.schema("key int, at long, event int").parquet(str(tmp_path))
    assert run(spark, nothing, HistogramQuery(10, 0.1), tmp_path / "state").count() == 0


def test_stream_answers_each_event_of_each_key_whatever_the_partitions(spark, tmp_path):
    query = HistogramQuery(500, 0.05)
    expected = [ExponentialHistogram(500, 0.05).estimates(bits) for bits in STREAMS]
    for name, every, tasks, partitions in (("a", 1100, 3, 3), ("b", STOP, 1, 1)):
        events = bit_events(spark, every, tasks)
        found = run(spark, events, query, tmp_path / name, partitions)
        table = found.toPandas().sort_values(["key", "at"])
        assert len(table) == KEYS * STOP
        for key, answers in enumerate(expected):
            of_key = table[table["key"] == key]
            assert of_key["at"].tolist() == list(range(1, STOP + 1))
            assert of_key["estimate"].tolist() == answers.tolist()


def test_stream_of_sums_over_time(spark, tmp_path):
    """Times with ties, integers, one answer a micro-batch; a second run has nothing left to do."""
    query = HistogramQuery(200, 0.1, timed=True, values="integers", each=False)
    events = bit_events(spark, 1500, 2).select(
        F.concat(F.lit("sensor "), "key").alias("key"),
        F.expr("at div 2").alias("at"),
        (F.col("event").cast("long") * (F.col("at") % 5)).alias("event"),
    )
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
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"


def test_stream_that_goes_back_is_refused(spark, tmp_path):
    events = bit_events(spark, 1500, 1).withColumn("at", F.expr("at % 1400"))
    with pytest.raises(StreamingQueryException, match="at must rise from event to event of a key"):
        run(spark, events, HistogramQuery(500, 0.05), tmp_path)


def test_parameters_are_refused_before_the_stream_starts(spark):
    with pytest.raises(ValueError, match=r"epsilon must lie in \(0, 1\), got 2"):
        estimates(bit_events(spark, 10, 1), HistogramQuery(500, 2))
