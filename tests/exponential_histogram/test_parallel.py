"""Histograms of partitions that merge keep their bound."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from aftlib.exponential_histogram.bits import BitStream
from aftlib.exponential_histogram.operator import HistogramQuery
from aftlib.exponential_histogram.pipeline import aggregate, count
from aftlib.exponential_histogram.source import Drawn


@pytest.mark.parametrize("tasks", [1, 5])
def test_partitions_merge_within_their_bound(spark, tasks):
    stream, size, window = BitStream(0.2, 50, 3), 1_000_000, 700_000
    drawn = Drawn(stream, size, tasks)
    merged = aggregate(drawn.frame(spark), HistogramQuery(window, 0.02, timed=True), drawn)
    bits = stream.draw(size)
    assert count(drawn.frame(spark), drawn) == (size, int(bits.sum()))
    assert (merged.events, merged.partitions, merged.histogram.now) == (size, tasks, size)
    assert merged.histogram.error_bound <= 0.02 + 0.02 + 0.02**2
    for last in (1000, window // 3, window):
        exact = int(bits[-last:].sum())
        assert abs(merged.histogram.estimate(last) - exact) <= merged.histogram.error_bound * exact


def test_rows_of_a_frame_merge(spark):
    bits = BitStream(0.3, None, 7).draw(3000)
    at = pd.DataFrame({"at": np.arange(5000), "event": bits.tolist() + [True] * 2000})
    query = HistogramQuery(3000, 0.05, timed=True)
    frame = spark.createDataFrame(at).repartition(3)
    merged = aggregate(frame.sortWithinPartitions("at"), query)
    exact = int(at["event"][-3000:].sum())
    assert merged.events == 5000
    assert abs(merged.histogram.estimate() - exact) <= merged.histogram.error_bound * exact
    assert count(frame) == (5000, int(at["event"].sum()))


def test_count_windows_are_not_merged(spark):
    with pytest.raises(ValueError, match="query must have timed=True to be merged, got False"):
        aggregate(spark.range(1), HistogramQuery(100, 0.1))


def test_a_frame_of_rows_reaches_the_tasks_in_large_batches(spark):
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    frame = spark.range(0, 30_000, 1, 1)
    assert count(frame, lambda batches: ((np.ones(1), np.ones(1)) for _ in batches)) == (1, 1)
    assert spark.conf.get(name) == before
