"""The plan: assignments that do not divide evenly, variances as measured, a file as documented."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_info

from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.core.datasets import even_grid
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.core.planfile import VERSION, Plan, read_plan, write_plan
from aftlib.core.requirement import Requirement
from aftlib.core.windows import Windows
from aftlib.sensor_plans.answer import answer, assign_sensors, measure_replay, plan_window
from aftlib.sensor_plans.command import report_text
from aftlib.sensor_plans.survey import Question


def sensors(rows=6000, n=7, seed=1, change=None, noise=0.5):
    rng, at = np.random.default_rng(seed), 0.0
    common = np.empty(rows)
    for t in range(rows):
        at = 0.95 * at + rng.normal()
        common[t] = at
    values = common[:, None] + noise * rng.normal(size=(rows, n))
    if change is not None:
        change(values)
    time = pd.date_range("2026-01-01", periods=rows, freq="h", name="time")
    return even_grid(pd.DataFrame(values, time, [f"s{i}" for i in range(n)]))


@pytest.fixture(scope="module")
def plan():
    return answer(sensors(), Question(epsilon_sd=0.3, workers=3), "sensors.csv")


def test_the_plan_is_as_documented_and_comes_back(plan, tmp_path):
    file = write_plan(plan, tmp_path / "plan.json")
    stored = read_plan(file).model_dump(by_alias=True)
    assert stored == json.loads(json.dumps(plan)) == json.loads(file.read_text())
    test = stored["backtest"]
    assert test["declared_recoverable"] > 0.9
    assert test["within_epsilon"] >= 0.95
    assert sum(stored["assignment"], []) != [] and stored["version"] == VERSION
    assert sorted(sum(stored["assignment"], [])) == [f"s{i}" for i in range(7)]


def test_progress_is_reported_while_one_thread_computes_the_small_products():
    progress, seen = [], []

    def on_segment(done, of):
        progress.append((done, of))
        seen.extend(p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas")

    answer(sensors(1000), Question(epsilon_sd=0.3), "x", on_segment)
    assert progress[-1] == (100, 100) and progress == sorted(progress)
    assert seen and set(seen) == {1}


@pytest.mark.parametrize("workers", [1, 2, 5, 7, 12])
def test_any_number_of_workers_has_its_fair_share(workers):
    model = block_model(12, 3)
    sizes = sorted(len(k) for k in assign_sensors(model, workers, Requirement(0.9, 0.05)).workers)
    assert sum(sizes) == 12 and sizes[-1] - sizes[0] <= 1 and len(sizes) == workers


def test_sensors_that_predict_each_other_get_different_workers():
    for workers in (4, 5):
        dealt = assign_sensors(block_model(12, 3), workers, Requirement(0.9, 0.05))
        for keys in dealt.workers:
            assert len({key // 4 for key in keys}) == len(keys)


@pytest.mark.parametrize("query", ["mean", "sum"])
def test_the_planner_sees_the_variance_that_windows_have(query):
    model = block_model(6, 2)
    question = Question(epsilon=1, t_sla_ms=12, query=query, recovery_time=RecoveryTime(0, 1))
    plan = plan_window(model, Windows(10, 10, query), Requirement(1.0, 0.05), question)
    read = plan.replay[0]
    assert plan.times[-1] == 10 and plan.checkpoints
    everything_lost = plan.worst_case_variance[0]
    np.testing.assert_allclose(
        everything_lost, model.posterior_variance(list(read.sensors)), atol=1e-9
    )


def test_a_replay_set_is_scored_by_the_windows_within_epsilon_of_its_estimates():
    model = GaussianModel(np.zeros(3), [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]])
    plan = SimpleNamespace(replay=[SimpleNamespace(sensors=(0,))])
    scaled = np.array([[0, 0.5, 0.2], [0, 1.5, 0.1], [2, 1.5, 0], [np.nan, 0, 9], [2, np.nan, 1]])
    scores = measure_replay(model, plan, scaled)
    assert scores == {"replay_within": 6 / 7, "replay_worst_sensor": 2 / 3}


def test_the_replay_sets_guarantee_is_tested_too():
    plan = answer(sensors(), Question(epsilon_sd=0.15), "x")
    test = plan["backtest"]
    assert 1 <= len(plan["replay"][0]["sensors"]) < 7
    assert test["replay_worst_sensor"] >= 0.93
    assert test["replay_worst_sensor"] <= test["replay_within"] <= 1
    drifted = answer(sensors(change=drifting), Question(epsilon_sd=0.15), "x")["backtest"]
    assert drifted["replay_worst_sensor"] < 0.1
    everything = answer(sensors(), Question(epsilon_sd=0.001), "x")
    assert len(everything["replay"][0]["sensors"]) == 7
    assert everything["backtest"]["replay_within"] is None


def test_what_may_be_lost_now_is_the_guards_last_decision(plan):
    now = np.array([sensor["now"] for sensor in plan["sensors"]])
    assert now.shape == (7, 5) and now[:, 0].all()
    late = answer(
        sensors(change=lambda values: values[5000:].__iadd__(noisy(values[5000:].shape))),
        Question(epsilon_sd=0.3),
        "x",
    )
    assert not any(sensor["now"][0] for sensor in late["sensors"])


def noisy(shape):
    return 30 * np.random.default_rng(4).normal(size=shape)


def test_fewer_windows_than_sensors_still_have_a_plan():
    plan = answer(sensors(200, n=30), Question(epsilon_sd=0.5), "x")
    Plan.model_validate(plan)
    assert plan["backtest"]["declared_recoverable"] == 0
    assert "no window was certified" in report_text(plan)
    assert plan["cautions"][0].startswith("Too few windows: 10 before the back-test")


def drifting(values):
    values[3000:, 2] += 8


def stuck(values):
    values[4000:4300, 3] = 1.25


def dark(values):
    values[2000:2100] = np.nan


def often_silent(values):
    values[3600:, 1] = np.nan


def lonely(values):
    values[:, 4] = np.random.default_rng(9).normal(size=len(values))


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (drifting, "Drift between the halves: level moved by more than a standard deviation in s2"),
        (stuck, "Stuck for up to 300 steps on one value: s3."),
        (dark, "Clock gaps: 100 of 6,000 steps have no sample of any sensor, the longest gap 100"),
        (often_silent, "Long silences: s1 misses more than a tenth of its samples."),
        (lonely, "ε is too small for 1 of 7 sensors: they are hardly ever certified."),
        (lambda values: None, None),
    ],
)
def test_warnings(change, warning):
    cautions = answer(sensors(change=change), Question(epsilon_sd=0.3), "x")["cautions"]
    assert [line.startswith(warning) for line in cautions] == [True] if warning else cautions == []


def test_few_guarantees_are_a_warning():
    cautions = answer(sensors(2400, n=3), Question(epsilon_sd=0.3), "x")["cautions"]
    assert any(line.startswith("Few guarantees: of N = ") for line in cautions)


def test_the_warning_bounds_what_all_sensors_need():
    plan = answer(sensors(5000), Question(epsilon_sd=0.02), "x")
    (line,) = [line for line in plan["cautions"] if line.startswith("ε is too small for 7 of 7")]
    (factor,) = re.findall(r"and 1 more\. All are at most ([\d.]+) times the ε asked\.$", line)
    most = max(sensor["least_epsilon"] / sensor["epsilon"] for sensor in plan["sensors"])
    assert most <= float(factor) < most + 0.011


def test_the_smallest_useful_epsilon_is_useful():
    table = sensors(12_000, change=lonely)
    rows = answer(table, Question(epsilon_sd=0.2), "x")["sensors"]
    assert rows[4]["declared"][0] < 0.05
    enough = {sensor["name"]: 1.15 * sensor["least_epsilon"] for sensor in rows}
    again = answer(table, Question(epsilon=enough), "x")["sensors"]
    assert again[4]["declared"][0] > 0.5


def test_the_text_of_a_plan(plan):
    text = report_text(plan)
    for expected in (
        "Share of each sensor's variance that the other machines' sensors explain",
        "by how many windows the outage lasts (1 … 5)",
        "after the last window of the file: 7 of 7 sensors",
        "Machines: 3, sensors assigned so that each has predictors on other machines:",
        "Recovery within 2000 ms, assumed to take 28.33 ms and 0.0009332 ms per sample read again",
        "no checkpoint inside a window is needed",
        "Back-test on the second half, 300 windows, each as if it had been lost:",
        "of these within ε",
        "one-window-ahead guarantees are wrong: 0.05·N and a slack of ",
        "linear interpolation",
        "No warnings.",
    ):
        assert expected in text
    alone = answer(sensors(2000), Question(epsilon_sd=0.3), "x")
    assert "Machines: 7, one sensor each" in report_text(alone)
    tight = Question(epsilon_sd=0.05, t_sla_ms=20, recovery_time=RecoveryTime(0, 1), window=12)
    checkpoints = answer(sensors(2000), tight, "x")
    assert "checkpoints after step 2, 4, 6" in report_text(checkpoints)
    assert all(part["ms"] <= 20 for part in checkpoints["replay"])
