"""The experiments' results are those of hand, NumPy, and files that are stored."""

import numpy as np
import pandas as pd
import pytest

from aftlib.documents.shared_state import experiments
from aftlib.documents.shared_state.experiments import NotebookParameters
from aftlib.documents.shared_state.stored import stored_engines, stored_kills
from aftlib.documents.shared_state.tuples import TupleStream
from benchmarks import evidence
from tests.documents.shared_state.slow import listed
from tests.refusals import refused

test_parameters_that_compare_nothing_are_refused = refused(
    lambda skews: NotebookParameters(skews=skews),
    ([1.4, 2.0], r"skews must hold 0 \(uniform\) and one of 1.4 or more, got \[1.4, 2.0\]"),
    ([0.0, 1.2], "skews must hold 0"),
    ([0.0, -1.0], "skews must be at least 0"),
)


def test_table_1_by_hand(spark, tmp_path):
    table = experiments.table_1(spark, tmp_path)
    assert table.to_numpy().tolist() == [
        ["[0, 10)", 0, 45], ["[0, 10)", 1, 61], ["[5, 15)", 0, 82], ["[5, 15)", 1, 44],
        ["[10, 20)", 0, 50], ["[10, 20)", 1, 9], ["[15, 25)", 1, 5],
    ]  # fmt: skip


def test_strategies_are_timed_in_turns(spark, tmp_path):
    streams = [TupleStream(20_000, 100, skew) for skew in (0.0, 1.4)]
    inputs = experiments.sources(spark, tmp_path, streams)
    measured = experiments.measure(spark, inputs, 2, 1)
    assert measured[["skew", "strategy"]].to_numpy().tolist() == [
        [skew, strategy] for skew in inputs for strategy in experiments.STRATEGIES
    ]
    assert set(measured["tuples"]) == {20_000}
    assert 0 < experiments.receivers_share(measured) < 1


def test_one_server_is_timed_with_one_task_and_with_more(spark, tmp_path):
    (source,) = experiments.sources(spark, tmp_path, [TupleStream(20_000, 100)]).values()
    grown = experiments.growth(spark, source, 20_000, 2, 1)
    assert grown["tasks"].tolist() == [1, 2] and (grown["throughput"] > 0).all()


def test_a_shuffle_is_timed_with_one_task_and_with_more(spark, tmp_path):
    inputs = experiments.sources(spark, tmp_path, [TupleStream(20_000, 100)])
    grown = experiments.shuffle_growth(spark, inputs, 2, 1)
    assert grown["tasks"].tolist() == [1, 2] and (grown["throughput"] > 0).all()


def test_flushes_merge_the_same_sums():
    flushes = experiments.flush_costs(50, 20, 1, 1)
    assert flushes["flush"].tolist() == list(experiments.FLUSHES)
    assert (flushes["per_s"] > 0).all()


def test_each_flush_leaves_the_same_table():
    rng = np.random.default_rng(1)
    batches = [experiments._batch(rng.choice(50, 20, replace=False)) for _ in range(10)]
    tables = []
    for flush in (experiments.TEN, experiments.ONE, experiments.BARRIER):
        with experiments.shared_table() as table, table() as shared:
            shared.prepare(0)
            experiments._merge_batches(shared, batches, flush)
            tables.append(listed(shared.read()))
    assert tables[0] == tables[1] == tables[2] and len(tables[0]) == 50


@pytest.mark.parametrize(
    ("name", "tabulate", "stored"),
    [
        ("merging", evidence.tabulate_engines, stored_engines),
        ("kills", evidence.tabulate_kills, stored_kills),
    ],
)
def test_the_package_has_the_stored_runs_of_the_benchmarks(name, tabulate, stored):
    """After a new run: python -m benchmarks.evidence."""
    pd.testing.assert_frame_equal(stored(), tabulate(evidence.read_result(name)))


def test_flink_that_was_left_out_has_no_rows():
    left_out = evidence.read_result("merging") | {
        "flink_million_tuples_a_second": "left out: no javac",
        "flink_one_task_million_tuples_a_second": "left out: no javac",
    }
    assert set(evidence.tabulate_engines(left_out)["engine"]) == set(experiments.STRATEGIES)
