"""The plan: assignments, replay that passes its back-test, groupings, cautions, an outage."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_info

from aftlib.core.windows import AGGREGATES
from aftlib.sensor_plans import backtest
from aftlib.sensor_plans.cautions import data_cautions
from aftlib.sensor_plans.plan import plan as make_plan
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.sensor_file import SensorTable, read_sensors
from aftlib.sensor_plans.sensor_plan import SensorPlan, report_text
from aftlib.sensor_plans.window_results import aggregate, find_seasons
from aftlib.streaming.promise import Promise
from tests.core.test_windows import TWINS


def plan(frame, assignment=None, on_segment=lambda done, of: None, **question):
    return make_plan(frame, Question(**question), assignment=assignment, on_segment=on_segment)


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
    return pd.DataFrame(values, time, [f"s{i}" for i in range(n)])


QUESTION = {"epsilon_sd": 0.3, "workers": 3, "t_sla": "60s", "fixed_ms": 1e3}


@pytest.fixture(scope="module")
def made():
    return plan(sensors(), **QUESTION)


@pytest.fixture(scope="module")
def grouped():
    return plan(sensors(change=apart), epsilon_sd=0.3, assignment=GIVEN, read_rate=1.0)


@pytest.fixture
def short_back_test(monkeypatch):
    """Test few windows, where no guarantee is looked at."""
    monkeypatch.setattr(backtest, "WARM_UP", 20)
    monkeypatch.setattr(backtest, "MOST_SCORED", 200)
    monkeypatch.setattr("aftlib.sensor_plans.plan.REMEMBERED", 100)


def test_the_plan_comes_back_from_its_file(made, tmp_path):
    file = made.write(tmp_path / "plan.json")
    assert SensorPlan.read(file) == made
    assert made.backtest.score.certified > 0.9
    assert made.backtest.score.within >= 0.95
    assert sorted(sum(made.assignment, ())) == [f"s{i}" for i in range(7)]
    question = made.question
    assert question.window == question.slide == 10 and len(question.epsilon) == 7
    assert (question.horizons, made.data.step_seconds) == (5, 3600)
    words = file.read_text()
    assert [*json.loads(words)][-1] == "learned"  # a long line, after all that is read
    assert "declared" not in words and "promise" not in words


def test_a_stream_begins_with_what_the_guard_of_the_back_test_learned(tmp_path):
    """The sensors of the table are in another order than those of the plan's machines."""
    frame = sensors()
    assignment = {name: name[-1] in "036" for name in frame}
    made = plan(frame[:5000], epsilon_sd=0.3, assignment=assignment)
    promise = Promise.from_plan(made.write(tmp_path / "plan.json"))
    assert promise.sensors != list(frame) and sorted(promise.sensors) == sorted(frame)
    hour = 3_600_000_000
    guard = promise.guard(start=frame.index[5000].value // 1000)
    state = guard._guards.state
    assert (state.rounds, state.phase, state.seen) == (0, 500, 500)
    later = frame[promise.sensors].to_numpy()[5000:].reshape(-1, 10, 7).mean(1)
    guard.update(later[0])
    assert guard.recoverable[0].mean() > 0.8
    errors = np.abs(guard.replay(later[1:]).estimate[:, 0] - later[1:])
    assert (errors <= promise.limits).mean() > 0.95
    assert promise.guard(start=frame.index[5003].value // 1000)._guards.state.phase == 500.3
    assert promise.width == 10 * hour
    assert plan(frame[:400].reset_index(drop=True), epsilon_sd=0.3).learned is None


def places(value, path=()):
    """Yield the path of each field of a plan, first those of the first item of each list."""
    if isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))
    if isinstance(value, dict):
        for key, part in value.items():
            yield (*path, key)
            yield from places(part, (*path, key))


def test_each_missing_or_damaged_field_is_named(grouped):
    text = grouped.to_json()
    stored = json.loads(text)
    by_sensor = ("epsilon", "problems")
    fields = [path for path in places(stored) if not {*by_sensor} & {*path[:-1]}]
    assert len(fields) > 80
    for *path, last in fields:
        damaged = json.loads(text)
        part = damaged
        for key in path:
            part = part[key]
        name = f"{'.'.join(map(str, path))}.{last}".replace(".0", "[0]").strip(".")
        value = part.pop(last)
        with pytest.raises(ValueError, match="is missing|must be 4") as refused:
            SensorPlan.from_json(json.dumps(damaged))
        assert name in str(refused.value)
        part[last] = [[value]]
        with pytest.raises(ValueError, match="must be") as refused:
            SensorPlan.from_json(json.dumps(damaged))
        assert name in str(refused.value)


def test_progress_is_reported_while_one_thread_computes_the_small_products():
    progress, seen = [], []

    def on_segment(done, of):
        progress.append((done, of))
        seen.extend(p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas")

    plan(sensors(1000), epsilon_sd=0.3, on_segment=on_segment)
    assert progress[-1] == (100, 100) and progress == sorted(progress)
    assert seen and set(seen) == {1}


@pytest.mark.parametrize(
    ("query", "missing", "known"),
    [("mean", 2, 1), ("mean", 3, 0), *((query, 1, query == "mean") for query in AGGREGATES)],
)
def test_windows_with_too_few_samples_are_left_out(query, missing, known):
    values = np.random.default_rng(1).normal(size=(60, 3))
    values[8 : 8 + missing, 1] = np.nan
    results = aggregate(values, 4, query)
    assert np.isfinite(results).sum() == 45 - 1 + known
    assert np.isfinite(results[2, 1]) == known
    np.testing.assert_allclose(results[3], TWINS[query](values[12:16], axis=0))


def test_days_are_seasonal_periods_and_noise_has_none():
    hours = np.arange(3000)
    noise = np.random.default_rng(1).normal(size=(3000, 3))
    daily = aggregate(0.3 * noise + np.sin(2 * np.pi * hours / 24)[:, None], 5, "mean")
    assert find_seasons(daily, 5, pd.Timedelta("1h"))[0] == pytest.approx(24 / 5)
    assert find_seasons(daily, 5, None) == []
    assert find_seasons(aggregate(noise, 5, "mean"), 5, pd.Timedelta("1h")) == []


def test_a_replay_set_that_fails_its_back_test_is_not_offered(short_back_test):
    good = plan(sensors(), epsilon_sd=0.15)
    assert 1 <= len(good.replay[0].sensors) < 7
    assert good.replay_within >= 0.95 and not good.read_everything
    drifted = plan(sensors(change=lambda v: v[3000:, 1:].__iadd__(8)), epsilon_sd=0.15)
    assert {len(part.sensors) for part in drifted.replay} == {7}
    assert drifted.replay_within is None
    assert drifted.cautions[0].startswith("Replay: read everything again. With the planned sets")
    assert "Replay: read everything again" in report_text(drifted)


def test_all_parts_of_a_plan_have_one_recovery_time(short_back_test):
    made = plan(sensors(2000), epsilon_sd=0.3, workers=3, read_rate=1.0, t_sla="2h")
    per_sample = made.question.per_tuple_ms / 1e3
    assert per_sample == pytest.approx(9.332e-7 + 1 / (1 - 7 / 3600))
    exact, _ = made.worth.schemes
    largest = max(map(len, made.assignment))
    fixed = made.question.fixed_ms / 1e3
    assert exact.longest_s == pytest.approx(fixed + largest * 10 * per_sample)
    for part in made.replay:
        assert part.ms / 1e3 == pytest.approx(
            fixed + len(part.sensors) * (part.until - part.begin) * per_sample
        )
    with pytest.raises(ValueError, match="read_rate must be above 0.00194444, got 0.001"):
        plan(sensors(2000), epsilon_sd=0.3, read_rate=0.001)


def test_checkpoints_keep_the_limit(short_back_test):
    made = plan(
        sensors(2000), epsilon_sd=0.05, t_sla="20s", fixed_ms=0.0, window=12, read_rate=1.002
    )
    assert made.checkpoints and all(part.ms <= 20_000 for part in made.replay)
    assert f"checkpoints after step {made.checkpoints[0]}" in report_text(made)


def apart(values):
    """Sensors 3 … 6 are measured for themselves."""
    rng = np.random.default_rng(5)
    for i in range(3, 7):
        values[:, i] = 5 * rng.normal() + np.convolve(rng.normal(size=6019), np.ones(20), "valid")
    values[:, 4] = values[:, 3] + 0.3 * rng.normal(size=6000)
    values[:, 6] = values[:, 5] + 0.3 * rng.normal(size=6000)


GIVEN = {"s0": "hall", "s1": "hall", "s2": "roof", "s3": "A", "s4": "A", "s5": "B", "s6": "B"}


def test_a_given_grouping_is_tested_and_the_best_regrouping_beside_it(grouped):
    made = grouped
    assert made.assignment == (("s0", "s1"), ("s2",), ("s3", "s4"), ("s5", "s6"))
    assert [machine.name for machine in made.machines] == ["hall", "roof", "A", "B"]
    assert set(made.machines[2].problems) == {"s3", "s4"}
    for machine in made.machines:
        certified = {s.name: s.certified[0] for s in made.sensors}
        bad = {name for name in machine.sensors if certified[name] < 0.5}
        assert set(machine.problems) == bad
    better = made.regrouping.certified
    assert better > made.backtest.score.certified + 0.2
    for pair in (["s3", "s4"], ["s5", "s6"]):
        assert not any({*pair} <= {*names} for names in made.regrouping.assignment)
    text = report_text(made)
    assert "Your grouping, certified one window after the failure of a machine:" in text
    assert "below half: s" in text and f"certifies {100 * better:.1f} % instead of" in text


def test_the_permitted_number_of_wrong_guarantees_follows_from_the_printed_ones(made):
    """A bound of 70.65 errors permits 70, not 71."""
    test = replace(made.backtest, N=609, slack_errors=40.2)
    text = report_text(replace(made, backtest=test))
    assert "at most 70 are wrong: 0.05·N and a slack of 40.2\n" in text
    whole = replace(made.backtest, N=600, slack_errors=40.0)
    assert "at most 70 are wrong" in report_text(replace(made, backtest=whole))


def test_every_sensor_certified_below_half_is_listed():
    made = plan(sensors(n=40, change=lambda v: shuffle(v, 20)), epsilon_sd=0.2)
    text = report_text(made)
    for i in range(20):
        assert f"  s{i} " in text
    assert "… and 8 more, each certified at least half of the time" in text


def shuffle(values, count):
    values[:, :count] = np.random.default_rng(9).normal(size=(len(values), count))


def test_numbers_say_what_they_count(made):
    text = report_text(made)
    for expected in (
        "Share of the windows of the last 300 that were certified before they could be lost",
        "each as if its machine had failed 1 … 5 windows before (weights 5 : 4 : 3 : 2 : 1,",
        "guarantees one window ahead whose windows come, in all 600 windows and 7 sensors",
        "no checkpoint inside a window is needed",
        "Does it pay to estimate? Two criteria",
        "No warnings.",
    ):
        assert expected in text
    counted = sum(sensor.N for sensor in made.sensors)
    assert f"of the N = {counted:,} guarantees" in text


def test_one_outage_is_drawn_with_the_truth(made):
    outage = made.outage
    assert len(outage.lost) == 5 and set(outage.lost) < set(outage.times)
    for sensor in outage.sensors:
        assert sensor.name in made.assignment[outage.machine]
        truth = dict(zip(outage.times, sensor.truth, strict=True))
        for t, time in enumerate(outage.lost):
            off = abs(sensor.estimate[t] - truth[time])
            assert off <= 3 * sensor.half_width[t] and off != 0


def test_an_outlier_does_not_scale_epsilon(short_back_test):
    rows = sensors().iloc[:, 0].to_numpy()[:3000].reshape(-1, 10).mean(axis=1)
    wild_frame = sensors(change=lambda v: v.__setitem__((1024, 1), 1048))
    on_frame = sensors(change=lambda v: v[::80, 1].__iadd__(1000))  # another state, no outlier
    clean, scaled, on = (
        plan(frame, epsilon_sd=0.3).question.epsilon for frame in (sensors(), wild_frame, on_frame)
    )
    assert scaled["s1"] == pytest.approx(clean["s1"], rel=0.02)
    assert clean["s0"] == pytest.approx(0.3 * np.std(rows))
    assert on["s1"] > 10 * clean["s1"]


def cautions_of(frame):
    table = read_sensors(frame)
    return [*data_cautions(table, aggregate(table.values, 10, "mean"), 10)]


LIKE = "the sensors most like it"
CHANGES = {
    "Outlier: s1 is 1048 at 2026-02-12 16:00:00": lambda v: v.__setitem__((1024, 1), 1048),
    "Level shift: s2 moves by +8": lambda v: v[3000:, 2].__iadd__(8),
    f"Level shift: s2 moves by +0.993 against {LIKE} at 2026-06-16 16:00": lambda v: v[
        4000:, 2
    ].__iadd__(1.0),
    "Level shift: s3 moves by +3.02": lambda v: v[:, 3].__iadd__(np.linspace(0, 6, len(v))),
    "Near-copies: s0 and s5 (r = 1.000000)": lambda v: v.__setitem__(
        (slice(None), 5), 32 + 1.8 * v[:, 0]
    ),
    "Near-copies: s1 and s5 (r = 1.000000)": lambda v: v.__setitem__((slice(None), 5), -v[:, 1]),
    "Stuck on one value: s3 (300 samples)": lambda v: v.__setitem__((slice(4000, 4300), 3), 1.25),
    "Stuck on one value: s3 (270 samples)": lambda v: (
        v.__setitem__((slice(4000, 4300), 3), 1.25),
        v.__setitem__((slice(4000, 4300, 10), 3), np.nan),
    ),
    "Long silences: samples are missing in s1 (40 %)": lambda v: v.__setitem__(
        (slice(3600, None), 1), np.nan
    ),
}


@pytest.mark.parametrize("caution", CHANGES)
def test_cautions_name_the_sensor_and_the_time(caution):
    cautions = cautions_of(sensors(change=CHANGES[caution]))
    assert [line.startswith(caution) for line in cautions] == [True], cautions


@pytest.mark.parametrize("missing", [0.09, 0.4])
def test_copies_with_gaps_of_their_own_are_named(missing):
    def copy(values):
        values[:, 5] = values[:, 0]
        values[np.random.default_rng(3).random(values.shape) < missing] = np.nan

    cautions = cautions_of(sensors(change=copy))
    named = [line for line in cautions if line.startswith("Near-copies")]
    assert len(named) == 1 and named[0].startswith("Near-copies: s0 and s5 (r = 1.000000)")


@pytest.mark.parametrize("rows", [slice(1024, 1025), slice(5, None, 600)])
def test_a_fall_of_all_sensors_makes_no_copies(rows):
    cautions = cautions_of(sensors(change=lambda v: v[rows].__isub__(9000)))
    assert not any(line.startswith("Near-copies") for line in cautions), cautions


@pytest.mark.parametrize(
    ("n", "shifted", "height"), [(7, ["s1", "s2"], 3), (7, ["s1", "s2"], 30), (3, ["s1"], 3)]
)
def test_all_sensors_that_shift_are_named(n, shifted, height):
    """Two that shift together were, like each other and unlike the others, compared with nobody."""
    frame = sensors(n=n)
    frame.loc[frame.index[3000:], shifted] += height
    cautions = cautions_of(frame)
    named = [line.split()[2] for line in cautions if line.startswith("Level shift")]
    assert sorted(named) == shifted, cautions


def test_sensors_that_wander_together_do_not_shift():
    """Their units were medians of deviations, too uncertain to subtract one from another."""
    rng = np.random.default_rng(2)
    values = 0.1 * rng.normal(size=(8000, 1)).cumsum(axis=0) + 0.1 * rng.normal(size=(8000, 60))
    table = SensorTable(values, tuple(f"s{i}" for i in range(60)), None)
    assert not [*data_cautions(table, aggregate(values, 10, "mean"), 10)]


def test_a_sensor_like_no_other_is_not_compared_with_others_that_drift():
    frame = sensors(change=lambda v: v.__iadd__(np.linspace(0, 50, len(v))[:, None]))
    frame["s4"] = np.random.default_rng(9).normal(size=len(frame))
    cautions = cautions_of(frame)
    assert not any(line.startswith("Level shift") for line in cautions), cautions


def test_a_late_sensor_is_named_as_such_instead_of_a_larger_epsilon():
    late = sensors(change=lambda v: v.__setitem__((slice(2700), 3), np.nan))
    cautions = plan(late, epsilon_sd=0.3).cautions
    assert any(
        line.startswith("Too few windows before the back-test: s3 (30)") for line in cautions
    )
    assert not any(line.startswith("ε is too small") for line in cautions)


def test_a_guard_that_fails_its_back_test_is_not_recommended(made):
    def change(values):
        values[3000:] = 3 * np.random.default_rng(5).normal(size=(3000, 7))

    assert made.criteria.pays_below > 0
    bad = plan(sensors(change=change), **QUESTION, read_rate=0.9 * made.criteria.pays_below)
    assert bad.backtest.score.interval[1] < 0.95 and bad.backtest.score.certified > 0
    assert bad.worth.recommended == "exact recovery" and bad.criteria.pays_below == 0
    assert any(line.startswith("Back-test: only ") for line in bad.cautions)


@pytest.mark.parametrize(("gaps", "count"), [(0.0, 30), (0.3, 30), (0.3, 10)])
def test_what_the_others_explain_is_true_of_new_rows_too(short_back_test, gaps, count):
    """A fit to few windows explained five points more than is true, with gaps nine."""
    rng = np.random.default_rng(5)
    loadings = rng.normal(size=(count, 3))
    covariance = loadings @ loadings.T + 1.5 * np.eye(count)
    values = rng.multivariate_normal(np.zeros(count), covariance, 600)
    values[rng.random(values.shape) < gaps] = np.nan
    names = [f"s{i}" for i in range(count)]
    rows = plan(pd.DataFrame(values, columns=names), window=1).sensors
    truth = 1 - 1 / (np.diag(np.linalg.inv(covariance)) * np.diag(covariance))
    off = np.mean([row.explained for row in rows]) - truth.mean()
    assert -0.02 - gaps / 10 <= off <= 0.02


def test_few_windows_are_a_caution():
    made = plan(sensors(200, n=30), epsilon_sd=0.5)
    assert made.backtest.score.certified == 0
    assert "no window was certified" in report_text(made)
    (few,) = (line for line in made.cautions if line.startswith("Too few windows before the"))
    assert "s5 (10) and 24 more. The guard needs about 250" in few


def test_the_smallest_useful_epsilon_is_useful():
    def lonely(values):
        values[:, 4] = np.random.default_rng(9).normal(size=len(values))

    frame = sensors(8000, change=lonely)
    rows = plan(frame, epsilon_sd=0.2).sensors
    assert rows[4].certified[0] < 0.05
    enough = {sensor.name: 1.15 * sensor.least_epsilon for sensor in rows}
    assert plan(frame, epsilon=enough).sensors[4].certified[0] > 0.5


def test_a_sensor_must_have_windows_in_both_halves_and_vary_in_the_first():
    frame = sensors(400)
    frame.loc[frame.index[:300], "s2"] = 7
    with pytest.raises(ValueError, match="sensors must vary in the first half.* got 's2'"):
        plan(frame)
    frame = sensors(400)
    frame.loc[frame.index[190:], "s1"] = np.nan
    frame.loc[frame.index[200:230:3], "s1"] = 1.0
    frame.loc[frame.index[:190], "s1"] = np.arange(190) % 7
    with pytest.raises(ValueError, match="half"):
        plan(frame)


def test_a_doubtful_number_is_named_instead_of_a_larger_epsilon():
    rng = np.random.default_rng(4)
    counts = rng.poisson(1.0, size=(8000, 3)).astype(float)
    counts[rng.random(8000) < 0.1, 1] = -1
    times = pd.date_range("2026-01-01", periods=8000, freq="h")
    cautions = plan(pd.DataFrame(counts, times, [*"abc"]), epsilon_sd=0.2).cautions
    (doubtful,) = (line for line in cautions if line.startswith("Perhaps a fill value"))
    assert "the only negative number of b is -1, " in doubtful and "give --missing -1." in doubtful
    (small,) = (line for line in cautions if line.startswith("ε is too small"))
    assert "for 2 of 3 sensors" in small and " b " not in small
