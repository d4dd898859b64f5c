"""The experiments' results are those of hand, NumPy, and files that are stored."""

import json

import pytest

from aftlib.shared_state import experiments
from aftlib.shared_state.experiments import NotebookParameters
from aftlib.shared_state.tuples import TupleStream
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


def test_flushes_merge_the_same_sums():
    flushes = experiments.flush_costs(50, 20, 1, 1)
    assert flushes["flush"].tolist() == ["at every merge", "at barriers", "never"]
    assert (flushes["per_s"] > 0).all()


def test_stored_runs_are_read(monkeypatch, tmp_path):
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    monkeypatch.setattr(experiments, "project_root", lambda: tmp_path)
    assert experiments.stored_engines().empty and experiments.stored_kills().empty
    one = {"flink late": {"1.4": [2, 1, 3]}}
    stored = {"tuples": 9, "runs": 5, "flink_million_tuples_a_second": "left out: no javac"}
    stored["flink_one_task_million_tuples_a_second"] = one
    (results / "merging.json").write_text(json.dumps(stored))
    (row,) = experiments.stored_engines().to_dict("records")
    assert row == {"engine": "flink late", "tasks": 1, "skew": 1.4, "tuples": 9, "runs": 5,
                   "throughput": pytest.approx(2e6)}  # fmt: skip


def test_the_stored_runs_of_this_project_have_flinks_prototype():
    engines = experiments.stored_engines()
    assert {"flink shared", "flink keyed", "flink late"} <= set(engines["engine"])
