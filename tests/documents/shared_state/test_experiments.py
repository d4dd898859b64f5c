"""The experiments' results are those by hand, and those that are stored."""

import pandas as pd
import pytest

from aftlib.documents.shared_state import experiments
from aftlib.documents.shared_state.experiments import (
    NotebookParameters,
    stored_engines,
    stored_kills,
)
from aftlib.documents.shared_state.throughput import STRATEGIES
from benchmarks import evidence
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
    assert set(evidence.tabulate_engines(left_out)["engine"]) == set(STRATEGIES)
