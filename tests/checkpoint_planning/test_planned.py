"""A plan.json streams with its own checkpoint times and replay sets, and is refused in time."""

import os

import numpy as np
import pandas as pd
import pytest

from aftlib.checkpoint_planning.driver import read_task, write_task
from aftlib.checkpoint_planning.experiments import guarded
from aftlib.checkpoint_planning.experiments import recoveries as runs
from aftlib.checkpoint_planning.experiments.recoveries import planned_query, require_planned
from aftlib.checkpoint_planning.replay import ReplaySet, select_replay
from aftlib.core.generators import block_model
from aftlib.core.planfile import Source
from aftlib.core.sensorlog import SensorLog
from tests.plans import write_plan


@pytest.fixture
def plan(tmp_path):
    rng = np.random.default_rng(2)
    values = rng.normal(size=(1200, 1)) + 0.2 * rng.normal(size=(1200, 4))
    frame = pd.DataFrame(values * [1, 2, 3, 4], columns=list("abcd"))
    frame.to_csv(tmp_path / "sensors.csv", index=False)
    settings = {"delta": 0.05, "t_sla_ms": 20, "fixed_ms": 0}
    settings["epsilon"] = dict(zip("abcd", [0.3, 0.6, 0.9, 1.2], strict=True))

    def write(**question):
        return write_plan(
            tmp_path / "plan.json",
            Source.of(tmp_path / "sensors.csv"),
            [(0, 4, ["c", "a", "d"]), (4, 10, ["d"])],
            assignment=[["b"], ["d", "a", "c"]],
            **{f"question.{name}": value for name, value in (settings | question).items()},
        )

    return write


@pytest.mark.parametrize("target", [0.3, 0.9, 5.0, 0.0])
def test_a_given_replay_set_is_the_chosen_one(target):
    model = block_model(12, 3)
    chosen = select_replay(model, target)
    given = ReplaySet.of(model, chosen.sensors)
    assert given.sensors == chosen.sensors
    np.testing.assert_allclose(given.variance, chosen.variance, atol=1e-12)
    np.testing.assert_allclose(given.gain(), chosen.gain(), atol=1e-12)


@pytest.mark.parametrize("query", ["mean", "sum"])
def test_a_query_has_the_plans_times_sets_and_variances(plan, query):
    sensor_plan = require_planned(plan(query=query))
    replay_query = planned_query(sensor_plan)
    first = replay_query.first_plan
    assert (first.times, [r.sensors for r in first.replay]) == ((0, 4, 10), [(2, 0, 3), (3,)])
    window = replay_query.model.aggregate(10, query)
    np.testing.assert_allclose(window.mean, sensor_plan.model.mean)
    np.testing.assert_allclose(window.covariance, sensor_plan.model.covariance)


def test_another_plan_is_another_stream(plan, tmp_path):
    query = planned_query(require_planned(plan()))
    log = SensorLog.write(tmp_path / "log", np.zeros((10, 4)), list("abcd"))
    write_task(tmp_path / "task", query, log)
    again, _ = read_task(tmp_path / "task")
    assert again.fingerprint == query.fingerprint
    assert again.first_plan.times == (0, 4, 10)
    text = (
        (plan()).read_text().replace('"until": 4', '"until": 3').replace('"from": 4', '"from": 3')
    )
    plan().write_text(text.replace('"checkpoints": [4]', '"checkpoints": [3]'))
    other = planned_query(require_planned(tmp_path / "plan.json"))
    assert other.fingerprint != query.fingerprint


def test_a_plan_that_leaves_no_time_for_exact_replay_is_refused(plan):
    with pytest.raises(
        ValueError, match="must have a T_SLA of at least 4 ms, .* 4 sensors, got 3. After"
    ):
        require_planned(plan(t_sla_ms=3))


def test_a_plans_data_stream_with_a_guard(plan, tmp_path):
    stream = guarded.planned_stream(plan())  # 5 steps of all four within T_SLA
    assert (stream.query.grid, stream.query.recover) == ((0, 2, 4, 6, 8), "guard")
    assert stream.values.shape == (1200, 4) and stream.query.planned is None
    pairs, audited = guarded.failing_streams(stream, tmp_path / "s", seed=1)
    assert set(pairs["part"]) == {"all"} and pairs["window"].min() >= 60
    assert (pairs.loc[~pairs["estimated"], "off"] < 1e-9).all()
    assert (pairs.loc[pairs["estimated"], "off"] <= 1).mean() > 0.8
    assert audited.estimates == (pairs["estimated"] & (pairs["method"] == "guard")).sum()
    assert guarded.planned_stream(plan(t_sla_ms=4)).query.grid == tuple(range(10))


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.skipif(
    os.environ.get("AFT_TRIALS") != "full", reason="starts Spark several times: full trials"
)
def test_killed_drivers_follow_the_plan(plan, spark, tmp_path):
    recoveries = runs.planned_recoveries(
        spark, plan(), tmp_path / "data", tmp_path / "scratch", kills=1, seed=1
    )
    assert len(recoveries) == 1
    for row in recoveries.itertuples():
        reads = {0: 3, 4: 1}[row.start % 10]
        assert (row.sensors, row.until - row.start) == (reads, {3: 4, 1: 6}[reads])
        assert row.estimated == 4 - reads
    assert (recoveries["within"] >= 0.5).all()
