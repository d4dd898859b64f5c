"""D2's experiments give the document's tables, and their numbers are a slow twin's."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.documents.checkpoint_planning import (
    captions,
    cases,
    drivers,
    experiments,
    figures,
    success_rates,
    timing,
)
from aftlib.documents.checkpoint_planning.cases import PlanningCase
from aftlib.documents.checkpoint_planning.experiments import NotebookParameters
from aftlib.documents.checkpoint_planning.operator import ReplayQuery
from aftlib.documents.checkpoint_planning.plan import RecoveryTime
from aftlib.documents.checkpoint_planning.replay import select_replay
from tests.refusals import refused


@pytest.fixture
def case(tmp_path, monkeypatch):
    """Two groups of three sensors, windows of 30 steps, sampled without Spark."""
    monkeypatch.setattr(
        success_rates, "sweep", lambda spark, work, points: [work(p) for p in points]
    )
    model = block_model(6, 2, 4, 3)
    return PlanningCase(
        model=model,
        log=SensorLog.write(tmp_path / "log", draw(model, 300, 1), model.names),
        window=30,
        points=[*product((0.4, 0.5), (0.05, 0.2), (20, 40))],
        replications=9,
        seed=1,
        recovery_time=RecoveryTime(0, 1),
        without_t_est=RecoveryTime(0, 1),
    )


def test_figure_1_replays_x1_and_estimates_the_others(tmp_path):
    cells, results = experiments.recover_three_sensors(tmp_path)
    states = cells.pivot_table(index="sensor", columns="step", values="state", aggfunc="max")
    assert (states.loc[:, :3] == "checkpointed").all(axis=None)
    assert (states.loc["X1", 4:] == "replayed").all()
    assert (states.loc[["X2", "X3"], 4:] == "estimated").all(axis=None)
    x1 = experiments.FIGURE_1["X1"]
    by_hand = {
        "X2": (21 + 21 + 22 + 4 * 22 + 0.85 * (x1[3:].sum() - 4 * 22)) / 7,
        "X3": (19 + 20 + 20 + 4 * 20 + 0.40 * (x1[3:].sum() - 4 * 20 - 8)) / 7,
    }
    results = results.set_index("sensor")
    assert results.loc["X1", ["error", "half_width"]].tolist() == [0, 0]
    assert results["restored"][["X2", "X3"]].to_dict() == pytest.approx(by_hand)
    assert results["half_width"]["X3"] == pytest.approx(1.959964 * np.sqrt(4 * 0.44) / 7)
    assert (results["error"] <= 0.44).all()
    shown = figures.three_sensors(cells, (0, 3, 7), 5)
    assert {trace.name: len(trace.x) for trace in shown.data} == {
        "checkpointed": 9, "replayed": 4, "estimated": 8,
    }  # fmt: skip


def test_counts_are_those_of_the_plans(case):
    counts = cases.checkpoint_counts(case)
    assert len(counts) == 8 * 5
    for row in counts.itertuples():
        plan = case.query(row.epsilon, row.delta, row.t_sla_ms, row.method).plan()
        assert row.checkpoints == len(plan.checkpoints)
    shown = figures.counts(counts, "epsilon", {"epsilon": 0.4, "delta": 0.05, "t_sla_ms": 20})
    chosen = counts.query("method == 'proposed' and delta == 0.05 and t_sla_ms == 20")
    (line,) = (trace for trace in shown.data if trace.name == "proposed")
    assert list(line.y) == chosen["checkpoints"].tolist()


def test_a_plan_is_drawn_with_its_checkpoints():
    query = experiments.FIGURE_1_QUERY
    (line,) = figures.plan({"proposed": query}).data
    assert (line.x, line.y) == ((0, 3, 7), (2, 1, 1))


def slow_errors(case, samples, tau, replay):
    """Errors of a window's estimated sensors, one by one, from the posterior of their sums."""
    sums = samples[tau:].sum(axis=0)
    over = case.model.aggregate(30 - tau, "sum")
    guess = over.condition({case.model.names[i]: sums[i] for i in replay.sensors})
    means = dict(zip(guess.names, guess.mean, strict=True))
    return [abs(means[case.model.names[i]] - sums[i]) / 30 for i in replay.estimated]


def slow_failures(case, part, point):
    """(12) window by window and sensor by sensor."""
    samples = draw(case.model, 300, 1, first=300 * part)
    plan = case.query(*point).plan()
    shares = []
    for start in range(0, 300 - 30 + 1, 3):
        window = samples[start : start + 30]
        errors = [slow_errors(case, window, plan.times[k], plan.replay[k]) for k in plan.estimating]
        shares.append(np.mean([sum(e > point[0] for e in each) / 6 for each in errors]))
    return np.array(shares)


def test_sampled_failures_are_the_slow_twins_and_agree_with_the_formula(case):
    rates = success_rates.failure_rates(case)
    sampled = success_rates.sampled_failures(None, case, rates)
    assert (rates["failed"] < rates["delta"]).all() and (rates["failed"] <= rates["hardest"]).all()
    assert sampled["z"].abs().max() < 4.5
    row = sampled.query("epsilon == 0.4 and delta == 0.05 and t_sla_ms == 20").iloc[0]
    twin = np.stack([slow_failures(case, part, (0.4, 0.05, 20)) for part in range(10)])
    disjoint = twin[:, ::10].ravel()
    assert row["sampled"] == pytest.approx(disjoint.mean())
    half = 1.96 * disjoint.std(ddof=1) / np.sqrt(len(disjoint))
    assert row["high"] == pytest.approx(disjoint.mean() + half)
    assert 1 <= row["missed"] <= row["parts"] == 10
    assert row["missed"] >= (twin.mean(axis=1) > 0.05).sum()
    shown = figures.success(sampled, "epsilon", {"epsilon": 0.4, "delta": 0.05, "t_sla_ms": 20})
    assert [trace.name for trace in shown.data][0] == "guaranteed 1 − δ"
    at = sampled.query("delta == 0.05 and t_sla_ms == 20").sort_values("epsilon")
    assert list(shown.data[1].y) == pytest.approx((1 - at["failed"]).tolist())


def test_a_sample_without_failures_is_not_far_from_a_small_rate(case, monkeypatch):
    """The spread of such a sample is 0, although the rate is not."""
    monkeypatch.setattr(success_rates, "draw_failures", lambda *given: np.zeros((91, 8)))
    rates = success_rates.failure_rates(case).assign(failed=1e-3)
    sampled = success_rates.sampled_failures(None, case, rates)
    assert (sampled["sampled"] == 0).all() and sampled["z"].abs().max() < 1


def test_plans_that_estimate_nothing_have_no_failure_rate(case):
    assert success_rates.failure_rates(replace(case, points=[(1e-6, 0.05, 20)])).empty


def test_real_stations_break_the_guarantee_of_independent_steps():
    table = success_rates.beijing_failures(0.05)
    assert (table["within"] < table["guaranteed"]).all()
    assert table["within"].iloc[0] < 0.5 and (table["worst_sensor"] <= table["within"]).all()


def test_equally_correlated_is_what_select_replay_selects():
    model = GaussianModel(np.zeros(7), 0.5 * np.eye(7) + 0.5)
    chosen = select_replay(model, 0.62)
    closed = timing.equally_correlated(7, len(chosen.sensors))
    assert closed.sensors.tolist() == [*chosen.sensors] == [0, 1, 2, 3]
    np.testing.assert_allclose(closed.step_variance, chosen.variance, atol=1e-12)
    np.testing.assert_allclose(closed.gain, chosen.gain(), atol=1e-12)


def test_recovery_times_cover_every_size_and_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "FEWER_TURNS_ABOVE", 20)
    times = timing.recovery_times(tmp_path, tmp_path / "new", [4, 40], turns=30, rows=2000)
    sizes = times.groupby("n")["sensors"].unique().map(list).to_dict()
    assert sizes == {4: [1, 2, 3, 4], 40: [4, 12, 20, 28, 36, 40]}
    assert times.groupby("n")["turn"].nunique().to_dict() == {4: 30, 40: 3}
    assert (times["tuples"] == times["sensors"] * 2000).all()
    parts = times[["state_ms", "gain_ms", "rep_ms", "est_ms"]]
    np.testing.assert_allclose(parts.sum(axis=1), times["total_ms"])
    solved = times[["state_ms", "rep_ms", "solve_ms"]].sum(axis=1)
    np.testing.assert_allclose(solved, times["solved_ms"])
    assert ((times["solve_ms"] > 0) == (times["sensors"] < times["n"])).all()
    assert list((tmp_path / "new").iterdir()) == []  # gains may be large
    shown = figures.recovery_times(times, start=40)
    median = times.query("n == 40 and sensors < 40").groupby("sensors")["rep_ms"].median()
    (line,) = (trace for trace in shown.data if trace.name == "T_rep: replay")
    assert list(line.y) == pytest.approx(median.tolist())
    (half,) = (line for line in figures.solving_times(times).data if line.name == "|O| = 0.5 n")
    assert list(half.x) == [4, 40]
    prepared, _ = figures.recovery_surface(times).data
    assert list(prepared.y) == ["4", "40"]
    full = times.query("n == 40 and sensors == 40")["total_ms"].median()
    ratio = times.query("n == 40 and sensors == 36")["total_ms"].median() / full
    assert prepared.z[1][-1] == pytest.approx(ratio)


def test_fewer_rows_are_scaled_to_the_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "MOST_READINGS", 40 * 1024)
    steps = []
    clock = [0.0]

    def reader(log):
        def read(keys, start, stop):
            steps.append(stop - start)
            clock[0] += 1e-6 * len(keys) * (stop - start)
            return np.zeros(len(keys)), np.zeros(len(keys))

        return read

    monkeypatch.setattr(timing, "bare_read", reader)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    times = timing.recovery_times(tmp_path, tmp_path / "new", [40], turns=5, rows=10_000)
    assert set(steps) == {1024}
    assert times["rep_ms"].to_numpy() == pytest.approx(1e-3 * times["sensors"] * 10_000)


def test_a_wide_log_has_at_most_ten_million_samples(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "MOST_READINGS", 60_000)
    assert timing.wide_log(tmp_path, 4, 3000, seed=1).steps == 3000
    assert timing.wide_log(tmp_path, 40, 3000, seed=1).steps == 1500


def test_rates_are_of_whole_windows_with_the_plans_checkpoints(case, tmp_path):
    queries = {m: case.query(0.4, 0.05, 20, m) for m in ("exactly-once", "proposed")}
    rates = timing.stream_rates(queries, case.log, tmp_path, turns=3)
    assert rates.groupby("plan").size().to_dict() == dict.fromkeys(queries, 3)
    assert (rates["rate"] > 0).all()
    taken = rates.groupby("plan")["checkpoints"].first()
    assert taken["exactly-once"] == 9 > taken["proposed"]
    (bars,) = figures.throughput(rates).data
    assert bars.y == ("exactly-once, 9 checkpoints", f"proposed, {taken['proposed']} checkpoints")
    assert bars.x == pytest.approx(rates.groupby("plan")["rate"].median() / 1e6)


def test_a_line_is_fitted_and_stragglers_do_not_bend_it():
    tuples = np.arange(0, 100_000, 1000)
    total = (5 + 2e-3 * tuples) * np.where(np.arange(100) % 10 == 3, 4, 1)
    line = drivers.fit_recovery_time(pd.DataFrame({"tuples": tuples, "total_ms": total}))
    assert line.per_tuple_ms == pytest.approx(2e-3, rel=1e-2)
    assert line.fixed_ms == pytest.approx(5, abs=1)


@pytest.mark.parametrize(("tuples", "total"), [([5, 5], [1, 2]), ([0, 100, 200], [3, 2, 1])])
def test_a_cost_that_cannot_be_seen_is_taken_to_be_as_small_as_can_be(tuples, total):
    line = drivers.fit_recovery_time(pd.DataFrame({"tuples": tuples, "total_ms": total}))
    assert line.per_tuple_ms == 1e-7 and line.fixed_ms == pytest.approx(np.median(total), rel=1e-4)


def test_no_recoveries_are_refused():
    with pytest.raises(ValueError, match="times must hold recoveries, got none; choose"):
        drivers.fit_recovery_time(pd.DataFrame())


test_parameters_that_do_not_fit_are_refused = refused(
    lambda changed: NotebookParameters(**changed),
    ({"groups": 7}, "groups must divide sensors = 100, got 7"),
    ({"ns": [10, 30_000]}, "each of ns must be .* at most 10000, got 30000"),
    ({"epsilons": []}, "epsilons must hold at least one value, got none"),
)


def test_the_case_of_the_notebook_has_the_figures_values_in_its_grid(spark, tmp_path):
    small = {"sensors": 40, "groups": 2, "window": 20}
    small |= {"epsilon": 0.7, "delta": 0.3, "t_sla": 40}
    case = NotebookParameters(**small).case(spark, tmp_path)
    assert (0.7, 0.3, 40) in case.points and len(case.points) == 8 * 4 * 6
    assert (case.samples.steps, case.model.size) == (200, 40)
    partial = case.partial_query(0.05, 50).first_plan
    assert 0 < len(partial.replay[0].sensors) < 40


def test_the_restored_checkpoint_has_no_guarantee():
    """As recomputed by hand for the document's data at ε = .12, δ = .05 and T_SLA = 50 ms."""
    case = PlanningCase(block_model(100, 5, 60, 30), None, 10_000, [], 1, 1)
    plan = case.query(0.12, 0.05, 50).plan()
    rows = success_rates.restored_checkpoints(plan)
    assert rows["tau"].tolist() == [1161, 3483, 8127, 10_000]
    by_hand = plan.requirement.reliability(1161 * plan.replay[0].variance / 1161**2)
    of_estimated = by_hand[plan.replay[0].estimated].mean()
    assert rows["restored"][0] == pytest.approx(of_estimated) == pytest.approx(0.50, abs=0.01)
    assert rows["restored_all"][0] == pytest.approx(by_hand.mean()) == pytest.approx(0.60, abs=0.01)
    assert (rows["worst_case"] > 0.95).all()


def test_a_driver_killed_at_random_leaves_whole_windows(tmp_path):
    model = block_model(6, 2, 4, 3)
    query = ReplayQuery(model, 24, Requirement(0.45, 0.05), RecoveryTime(0, 1), 30, "adaptive")
    log = SensorLog.write(tmp_path / "log", draw(model, 50, 1), model.names)
    outcomes = drivers.kill_at_random(query, log, tmp_path / "killed", 8, seed=2)
    kills = outcomes.groupby("stream")["kills"].first()
    assert kills.tolist() == [6, 2]
    assert len(outcomes) == 3 and outcomes["recoveries"].sum() > 0
    assert outcomes["z"].max() < 5.5
    assert outcomes["error_probability"].max() <= 0.05 * (1 + 1e-6)


def test_a_killed_drivers_replacement_streams_on_spark(spark, tmp_path):
    model = block_model(6, 2, 4, 3)
    query = ReplayQuery(model, 24, Requirement(0.45, 0.05), RecoveryTime(0, 1), 30)
    log = SensorLog.write(tmp_path / "log", draw(model, 100, 1), model.names)
    rows = experiments.recover_on_spark(spark, query, log, tmp_path / "stream")
    intervals = len(query.first_plan.replay)
    assert rows["recoveries"].tolist() == [0, 1, 0]
    assert rows["intervals"].iloc[0] == intervals == rows["on_spark"].iloc[2]
    estimates = [bool(replay.estimated.size) for replay in query.first_plan.replay]
    left = rows["intervals"].iloc[1] - 1 - estimates.index(True)  # after the failed interval
    assert rows["on_spark"].tolist()[:2] == [0, left]
    first, second, third = rows["error_probability"]
    assert first == third == 0 < second <= 0.05
    assert rows["largest"].max() < 0.45 * 3


def test_a_files_first_half_is_learned_and_its_second_streamed(tmp_path):
    model = block_model(4, 2, 4, 3, mean=7.0)
    values = draw(model, 1000, 1)
    values[[3, 700], 1] = np.nan
    table = pd.DataFrame(values, columns=list("abcd"))
    learned, log = cases.split_samples(table, 100, tmp_path)
    whole = np.delete(values, [3, 700], axis=0)
    assert learned.names == log.names == ("a", "b", "c", "d")
    np.testing.assert_allclose(learned.mean, whole[:499].mean(axis=0))
    np.testing.assert_allclose(learned.covariance, np.cov(whole[:499].T))
    np.testing.assert_array_equal(log.read(None, 0, log.steps), whole[499:])
    assert log.about == {"rows": 1000, "whole": 998}
    again, same = cases.split_samples(table, 100, tmp_path)
    assert (again.digest().digest(), same.path) == (learned.digest().digest(), log.path)


def test_files_that_are_too_short_are_refused_with_advice_that_works(tmp_path):
    table = pd.DataFrame(draw(block_model(4, 2, 4, 3), 100, 1), columns=list("abcd"))
    with pytest.raises(ValueError, match=r"got 50 and 50 rows of 4 sensors: give -p window=16"):
        cases.split_samples(table, 17, tmp_path)
    _, log = cases.split_samples(table, 16, tmp_path)
    assert log.steps == 50
    with pytest.raises(ValueError, match="got 4 and 4 rows of 4 sensors: give more rows, or few"):
        cases.split_samples(table[:8], 2, tmp_path)
    with pytest.raises(ValueError, match="rows of 4 sensors: give more rows$"):
        cases.split_samples(table[:40], 10, tmp_path)


def test_the_case_of_a_file_is_made_of_its_samples(tmp_path):
    values = draw(block_model(6, 2, 4, 3), 600, 1)
    parameters = NotebookParameters(data="sensors.csv", window=30, epsilon=0.5)
    case = parameters.case(None, tmp_path, pd.DataFrame(values, columns=list("abcdef")))
    assert case.model.names == tuple("abcdef") and case.samples.steps == 300
    said = captions.setting(parameters, case)
    assert said.startswith(
        "There are 6 sensors of sensors.csv, with 600 rows, of which 0 with gaps"
    )
    with pytest.raises(ValueError, match="log must have samples, got None: give SensorLog.write"):
        replace(case, log=None).samples  # noqa: B018
    with pytest.raises(ValueError, match="own must be the table of .* data = 'sensors.csv'; pass"):
        parameters.case(None, tmp_path)


def test_measured_success_is_that_of_the_logs_windows(case):
    query = case.query(0.4, 0.05, 20)
    rows = success_rates.measured_success(case, query)
    assert (rows["windows"] == 10).all()
    samples = case.samples.read(None, 0, 300).reshape(10, 30, 6)
    estimating = [replay for replay in query.first_plan.replay if replay.estimated.size]
    for row, replay in zip(rows.itertuples(), estimating, strict=True):
        assert row.replayed == len(replay.sensors)
        errors = [slow_errors(case, window, row.from_tau, replay) for window in samples]
        inside = np.array(errors) <= 0.4
        assert row.measured == pytest.approx(np.mean(inside))
        assert row.predicted > 0.95
    assert captions.measured(rows, {"epsilon": 0.4, "delta": 0.05, "t_sla_ms": 20}).startswith(
        "In 10 windows of the log, "
    )


def test_the_true_success_of_a_learned_model_is_that_of_drawn_windows():
    """By simulation: windows of the true model, recovered with the learned one."""
    true = block_model(6, 2, 4, 3, mean=1.0)
    model = GaussianModel.fit(draw(true, 60, 5))
    query = ReplayQuery(model, 30, Requirement(0.5, 0.1), RecoveryTime(0, 1), 40)
    plan = query.first_plan
    success, predicted = success_rates.true_success(true, model, plan)
    windows = draw(true, 30 * 4000, 9).reshape(4000, 30, 6) - model.mean
    sampled = []
    for tau, replay in zip(plan.times, plan.replay, strict=False):
        error = success_rates.estimation_error(replay, windows[:, tau:].sum(axis=1)) / 30
        sampled.append((np.abs(error) <= 0.5).mean(axis=0))
    np.testing.assert_allclose(success, np.concatenate(sampled), atol=0.04)
    assert (predicted >= 0.9).all()
    exact, same = success_rates.true_success(model, model, plan)
    np.testing.assert_allclose(exact, same)


def test_few_rows_teach_the_mean_too_badly_for_a_guarantee():
    case = PlanningCase(block_model(20, 2, 60, 30), None, 10_000, [])
    point = {"epsilon": 0.12, "delta": 0.05, "t_sla_ms": 50}
    curve = success_rates.learning_curve(case, tuple(point.values()), 2, rows=(50, 5000))
    mean = curve.groupby(["curve", "rows"])["success"].mean()
    both, covariance = mean[success_rates.BOTH_LEARNED], mean[success_rates.SIGMA_LEARNED]
    assert both[50] < 0.5 < both[5000] and covariance[50] > 0.9
    shown = figures.learned_success(curve, 0.05)
    (line,) = (trace for trace in shown.data if trace.name == success_rates.BOTH_LEARNED)
    assert list(line.x) == [50, 5000] and list(line.y) == pytest.approx(both.tolist())
    said = captions.learned(curve, point)
    assert f"{success_rates.BOTH_LEARNED}: {both[50]:.0%} to".replace("%", " %") in said
    assert "mean and Σ learned" in said and "1 − δ is not met" in said
