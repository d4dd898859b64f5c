"""Workers are killed at the windows' ends: what is read again, and what is estimated."""

import numpy as np
import pytest

from aftlib.approximately_once.operator import SensorSplits
from aftlib.core.sensorlog import SensorLog
from aftlib.does_it_pay.spark_recoveries import (
    EXACT,
    GUARD,
    MODEL,
    estimates_of,
    spark_recoveries,
)
from tests.does_it_pay.in_process import all_here, small_case

RATES = [np.nan, 1e6, np.inf, np.nan, 2e5, np.nan]
KILLED = [1, 2, 4]


@pytest.fixture
def here(monkeypatch, tmp_path):
    all_here(monkeypatch)
    return tmp_path


@pytest.mark.parametrize("scheme", [EXACT, MODEL, GUARD])
def test_a_killed_workers_window_is_read_again_or_estimated(here, scheme):
    case = small_case()
    rows, estimates = spark_recoveries(None, case, scheme, here / "run", RATES)
    assert rows["batch"].tolist() == [*range(6)]
    np.testing.assert_array_equal(rows["rate"], RATES)
    estimated = scheme == MODEL
    # nothing was certified by so few windows
    again = np.isin(rows["batch"], KILLED) * (0 if estimated else case.lost_samples)
    assert rows["again"].tolist() == again.tolist()
    assert sorted(set(estimates["batch"])) == (KILLED if estimated else [])
    for times in ("start_s", "work_s"):
        assert rows.loc[KILLED, times].notna().all() and rows.loc[[0, 3, 5], times].isna().all()
    assert len(estimates) == (3 * 3 if estimated else 0)


def test_errors_are_those_of_the_conditional_means(here):
    case = small_case()
    _, estimates = spark_recoveries(None, case, MODEL, here / "run", RATES)
    lost = [*case.assignment.workers[-1]]
    others = np.setdiff1d(np.arange(6), lost)
    for batch, rows in estimates.groupby("batch"):
        truth = case.truth[case.learned + batch]
        seen = {case.model.names[i]: truth[i] for i in others}
        mean = case.model.condition(seen).mean
        off = np.abs(mean - truth[lost]) / case.requirement.epsilon
        np.testing.assert_allclose(rows.set_index("sensor")["off"].loc[lost], off, atol=1e-9)


def test_limits_change_between_micro_batches_and_repeated_reads_alone_are_limited(
    here, monkeypatch
):
    limits = []
    meter = type(SensorLog.meter.fget(SensorLog(here, ("a",), 1, {})))
    set_limit = meter.set_limit
    monkeypatch.setattr(
        meter, "set_limit", lambda self, limit: (limits.append(limit), set_limit(self, limit))
    )
    spark_recoveries(None, small_case(), EXACT, here / "run", RATES)
    expected = [np.inf, np.inf, 1e6, np.inf, np.inf, 2e5, np.inf]
    assert [limit.samples_per_s for limit in limits] == expected
    assert all(limit.again_only for limit in limits[1:])


def test_the_first_micro_batch_has_all_windows_that_are_learned_from(here):
    splits = SensorSplits.__new__(SensorSplits)
    for name, value in {"learned": 48, "every": 12, "end": 100}.items():
        object.__setattr__(splits, name, value)
    ends, start = [], 0
    while splits.next_boundary(start) > start:
        start = splits.next_boundary(start)
        ends.append(start)
    assert ends == [48, 60, 72, 84, 96, 100]


def test_on_spark_a_killed_task_is_recovered(spark, tmp_path):
    case, rates = small_case(), [np.nan, 5e4, np.nan]
    exact, none = spark_recoveries(spark, case, EXACT, tmp_path / "exact", rates)
    model, estimates = spark_recoveries(spark, case, MODEL, tmp_path / "model", rates)
    assert exact["again"].tolist() == [0, case.lost_samples, 0] and none.empty
    assert model["again"].tolist() == [0, 0, 0] and set(estimates["batch"]) == {1}
    for rows in (exact, model):
        assert 0 < rows["start_s"][1] < rows["seconds"][1]
        assert rows["commit_s"][1] < rows["work_s"][1] < rows["seconds"][1] - rows["start_s"][1]
        assert (rows["latency_s"] > 0).all() and (rows["commit_s"] > 0).all()


def test_estimates_need_a_sink_with_results(here):
    case = small_case()

    class Sink:
        def windows(self):
            import pandas as pd

            columns = ["start", "stop", "key", "value", "half_width", "estimated", "samples"]
            frame = pd.DataFrame([(48, 60, "X2", 9.0, 1.0, True, 0)], columns=columns)
            return frame

    rows = estimates_of(case, type("Handler", (), {"sink": Sink()})())
    off = abs(9.0 - case.truth[4, 1]) / case.requirement.epsilon
    assert rows.to_dict("records") == [{"batch": 0, "sensor": 1, "off": pytest.approx(off)}]
