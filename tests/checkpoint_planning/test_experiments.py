"""D2's experiments give the document's tables, and every number a slow twin's."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from aftlib.checkpoint_planning import figures
from aftlib.checkpoint_planning.experiments import cases, costs, kills
from aftlib.checkpoint_planning.experiments import recoveries as runs
from aftlib.checkpoint_planning.experiments.costs import equally_correlated, wide_log
from aftlib.checkpoint_planning.experiments.parameters import NotebookParameters
from aftlib.checkpoint_planning.operator import ReplayQuery, bare_read
from aftlib.checkpoint_planning.recovery_time import DOCUMENT_RECOVERY_TIME, RecoveryTime
from aftlib.checkpoint_planning.replay import select_replay
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def small(spark, directory, **changed):
    """Two groups of three sensors, windows of 24 steps, one step more than it takes to slide."""
    sizes = {"sensors": 6, "groups": 2, "variance": 4, "covariance": 3, "window": 24, "slide": 7}
    sizes |= {"rows": 600, "replications": 3, "budgets": [6]}
    case = NotebookParameters(**sizes | changed).case(spark, directory)
    grid = {"epsilons": (0.45, 0.55), "deltas": (0.05, 0.2), "t_slas": (20, 40)}
    return replace(case, recovery_time=RecoveryTime(0, 1), **grid)


@pytest.fixture(scope="module")
def case(spark, directory):
    return small(spark, directory)


@pytest.fixture(scope="module")
def document(spark, directory):
    """The document's sensors and grid, over one window of samples."""
    parameters = NotebookParameters(deltas=[0.01, 0.05], t_slas=[35, 50, 200], rows=10_000)
    return parameters.case(spark, directory)


@pytest.fixture(scope="module")
def counts(spark, document):
    frame = cases.checkpoint_counts(spark, document)
    return frame[frame["charging"] == cases.CHARGINGS[0]]


@pytest.fixture(scope="module")
def success(spark, case):
    return cases.success_rates(spark, case)


@pytest.fixture(scope="module")
def times(directory, tmp_path_factory):
    scratch = tmp_path_factory.mktemp("times") / "new"
    return costs.recovery_times(bare_read, directory, scratch, [4, 40], 3, (0.1, 0.5), tuples=2000)


def test_figure_1_replays_x1_and_estimates_the_others(tmp_path):
    three = runs.three_sensors(tmp_path, failure=5)
    assert three.plan.times == (0, 3, 7)
    assert [replay.sensors for replay in three.plan.replay] == [(0, 2), (0,)]
    states = three.cells.pivot_table(index="sensor", columns="step", values="state", aggfunc="max")
    assert (states.loc[:, :3] == "checkpointed").all(axis=None)
    assert (states.loc["X1", 4:] == "replayed").all()
    assert (states.loc[["X2", "X3"], 4:] == "estimated").all(axis=None)
    x1 = runs.FIGURE_1["X1"]
    by_hand = {
        "X2": (21 + 21 + 22 + 4 * 22 + 0.85 * (x1[3:].sum() - 4 * 22)) / 7,
        "X3": (19 + 20 + 20 + 4 * 20 + 0.40 * (x1[3:].sum() - 4 * 20 - 8)) / 7,
    }
    results = three.results.set_index("sensor")
    assert results.loc["X1", ["error", "half_width"]].tolist() == [0, 0]
    assert results["restored"][["X2", "X3"]].to_dict() == pytest.approx(by_hand)
    assert results["checkpoint"].tolist() == pytest.approx([65 / 3, 64 / 3, 59 / 3])
    assert results["half_width"]["X3"] == pytest.approx(1.959964 * np.sqrt(4 * 0.44) / 7)
    assert (results["error"] <= 0.44).all()


@pytest.mark.parametrize("failure", [0, 8])
def test_a_failure_outside_the_window_is_refused(tmp_path, failure):
    with pytest.raises(ValueError, match=f"failure must be .* at most 7, got {failure}"):
        runs.three_sensors(tmp_path, failure)


def test_counts_are_those_of_the_plans(counts, document):
    table = cases.counts_table(counts, 0.05)
    assert table.loc[50, 0.12] == "43 / 8 / 3 / 1"
    for point in [(0.05, 0.05, 35), (0.12, 0.01, 50), (0.15, 0.05, 200)]:
        for method in cases.METHODS:
            plan, at = document.plan(*point, method), dict(zip(cases.AXES, point, strict=True))
            row = counts.query(f"method == {method!r}").merge(pd.DataFrame([at]))
            expected = [len(plan.checkpoints), len(plan.replay[0].sensors)]
            assert row[["checkpoints", "sensors"]].to_numpy().tolist() == [expected]
    wide = counts.pivot_table(index=cases.AXES, columns="method", values="checkpoints")
    assert (wide["adaptive"] <= wide["proposed"]).all()


def test_counts_of_an_unknown_delta_are_refused(counts):
    with pytest.raises(ValueError, match=r"delta must be one of 0\.01, 0\.05, got 0\.3"):
        cases.counts_table(counts, 0.3)


def slow_success(case, part, plan, k, epsilon):
    """(12) window by window and sensor by sensor, from the posterior of the sums."""
    samples, replay = draw(case.model, 600, case.seed, first=600 * part), plan.replay[k]
    begin, end = plan.times[k : k + 2]
    names, o = case.model.names, list(replay.sensors)
    variance = case.model.posterior_variance(o)
    hardest = [i for i in range(6) if variance[i] > variance.max() - 1e-9 and i not in o]
    shares = []
    for start in range(0, 600 - 24 + 1, 7):
        window = samples[start : start + 24]
        within = []
        for until, divisor in ((24, 24), (end, 24), (end, end)):
            sums = window[begin:until].sum(axis=0)
            over = case.model.aggregate(until - begin, "sum")
            guess = over.condition({names[i]: sums[i] for i in o})
            means = dict(zip(guess.names, guess.mean, strict=True))
            off = {i: abs(means[names[i]] - sums[i]) / divisor for i in range(6) if i not in o}
            within.append(np.mean([off[i] <= epsilon for i in hardest]) if hardest else 1.0)
            if divisor == until == 24:
                every = np.mean([off.get(i, 0) <= epsilon for i in range(6)])
        shares.append([*within, every])
    return np.mean(shares, axis=0)


def test_success_is_the_slow_twins(case, success):
    chosen = success.query("delta == 0.05 and t_sla_ms == 20")
    assert set(chosen["sensors"]) >= {2, 4}
    for row in chosen.itertuples():
        plan = case.plan(row.epsilon, 0.05, 20)
        expected = [slow_success(case, part, plan, row.interval, row.epsilon) for part in range(4)]
        shares = [row.worst, row.single, row.restored, row.every]
        assert shares == pytest.approx(np.mean(expected, axis=0))
        assert row.document == pytest.approx(expected[0][0])
        assert row.document_low <= row.document <= row.document_high
        assert plan.times[row.interval] == row.time
        assert row.windows == 83


def test_success_is_what_the_plan_expects(success):
    for measure in ("worst", "single", "every"):
        gap = (success[measure] - success[f"{measure}_expected"]).abs()
        assert gap.max() < 0.06
    assert (success["single_expected"] >= success["worst_expected"] - 1e-12).all()
    assert (success["worst_expected"] > 1 - success["delta"]).all()
    assert (success["restored_expected"] < 1 - success["delta"]).any()


def test_replaying_every_sensor_always_succeeds(spark, case):
    table = cases.success_rates(spark, replace(case, epsilons=(0.01,)))
    everything = table[table["sensors"] == 6]
    assert len(everything) > 1
    assert (everything[["worst", "single", "restored", "worst_low"]] == 1).all(axis=None)


def test_one_disjoint_window_is_not_resampled(spark, directory):
    few = replace(small(spark, directory, rows=30), epsilons=(0.45,), t_slas=(20,))
    table = cases.success_rates(spark, few)
    assert table[["document_low", "document_high"]].isna().all(axis=None)
    assert table["document"].notna().all()


def test_success_needs_replications_and_a_window(spark, case):
    with pytest.raises(ValueError, match="replications must be at least 1, got 0"):
        cases.success_rates(spark, replace(case, replications=0))
    short = replace(case, log=replace(case.log, steps=10))
    with pytest.raises(ValueError, match="log must hold a window of 24 steps, got 10 steps"):
        cases.success_rates(spark, short)


def test_equally_correlated_is_what_select_replay_finds():
    model = GaussianModel(np.zeros(7), 0.5 * np.eye(7) + 0.5)
    chosen = select_replay(model, 0.62)
    closed = equally_correlated(7, len(chosen.sensors))
    assert closed.sensors == chosen.sensors == (0, 1, 2, 3)
    np.testing.assert_allclose(closed.factor, chosen.factor, atol=1e-12)
    np.testing.assert_allclose(closed.variance, chosen.variance, atol=1e-12)
    np.testing.assert_allclose(closed.gain(), 0.2, atol=1e-12)


def test_wide_log_holds_a_row_group_at_least(directory):
    assert wide_log(directory, 4, 8000, seed=1).steps == 2000
    log = wide_log(directory, 40, 8000, seed=1)
    assert (log.steps, len(log.names)) == (1024, 40)
    assert wide_log(directory, 40, 8000, seed=1).path == log.path


def test_recovery_times_cover_every_size(times):
    assert times.groupby(["n", "sensors"]).size().to_dict() == {
        (4, 1): 3, (4, 2): 3, (4, 4): 3, (40, 4): 3, (40, 20): 3, (40, 40): 3,
    }  # fmt: skip
    assert (times["tuples"] == times["sensors"] * 1024).all()
    parts = times[["res_ms", "rep_ms", "est_ms"]]
    assert (parts >= 0).all(axis=None)
    np.testing.assert_allclose(parts.sum(axis=1), times["total_ms"])
    least = costs.fastest(times)
    one = times.query("n == 40 and sensors == 20")["rep_ms"]
    assert least.query("n == 40 and sensors == 20")["rep_ms"].item() == one.min()


def test_rates_are_of_whole_windows_with_the_plans_checkpoints(case, tmp_path):
    charged = replace(case, recovery_time=RecoveryTime(4, 1), estimate_ms=3)
    plans = runs.rate_queries(charged, 0.45, 0.05, 20)
    rates = costs.stream_rates(plans, case.log, tmp_path, windows=2, repeats=3)
    assert rates.groupby("plan").size().to_dict() == dict.fromkeys(plans, 3)
    np.testing.assert_allclose(rates["rate"] * rates["seconds"], 2 * 24 * 6)
    # two of 6 sensors' steps in 16 ms, three in 19
    taken = rates.groupby("plan")["checkpoints"].first()
    assert taken[["exactly-once", "exactly-once, no T_est"]].tolist() == [11, 7]
    assert taken["proposed"] == len(plans["proposed"].first_plan.checkpoints) < 11


def test_a_line_is_fitted_and_stragglers_do_not_bend_it():
    tuples = np.arange(0, 100_000, 1000)
    exact = 5 + 2e-3 * tuples
    total = exact * np.where(np.arange(100) % 10 == 3, 4, 1)
    fit = costs.fit_recovery_time(
        pd.DataFrame({"tuples": tuples, "total_ms": total}), quantile=0.95
    )
    assert fit.line.per_tuple_ms == pytest.approx(2e-3, rel=1e-2)
    assert fit.line.fixed_ms == pytest.approx(5, abs=1)
    assert fit.reserve == pytest.approx(4, rel=0.05)
    assert fit.recovery_time(70_000) == pytest.approx(fit.reserve * fit.line(70_000))
    np.testing.assert_allclose(fit.points["fitted_ms"], [fit.line(m) for m in tuples])


@pytest.mark.parametrize(("tuples", "total"), [([5, 5], [1, 2]), ([0, 100, 200], [3, 2, 1])])
def test_a_cost_that_cannot_be_seen_is_taken_to_be_just_too_small(tuples, total):
    fit = costs.fit_recovery_time(pd.DataFrame({"tuples": tuples, "total_ms": total}))
    assert fit.line(max(tuples)) - fit.line(0) == pytest.approx(0.01 * np.median(total))


def test_recoveries_that_replay_nothing_are_refused():
    nothing = pd.DataFrame({"tuples": [0, 0], "total_ms": [1, 2]})
    with pytest.raises(ValueError, match="times must hold recoveries that replay tuples, got 2"):
        costs.fit_recovery_time(nothing)


def test_queries_have_the_t_sla_of_their_budget(case):
    (query,) = runs.queries(case, 0.45, 0.05, [30], RecoveryTime(7, 2))
    assert query.t_sla_ms == 67
    assert runs.queries(case, 0.45, 0.05, [30])[0].t_sla_ms == DOCUMENT_RECOVERY_TIME(30)
    assert query.window == 24


def test_one_chain_of_drivers_is_killed_in_window_after_window(case, tmp_path):
    """Each kill hits an interval of which some sensors are replayed and some estimated."""
    (query,) = runs.queries(case, 0.45, 0.05, [20], RecoveryTime(0, 1))
    frame = kills.restarts(query, case.log, tmp_path / "killed", 3, 1)
    assert (frame["trial"].tolist(), set(frame["n"])) == ([0, 1, 2], {6})
    assert set(frame["kind"]) == {"bare"}
    assert (frame[[*kills.PHASES]] >= 0).all(axis=None)
    np.testing.assert_allclose(frame[[*kills.PHASES[:-1]]].sum(axis=1), frame["all_ms"])
    median = frame[[*kills.PHASES]].median().tolist()
    assert [bar.x[0] for bar in figures.restarts(frame).data] == median
    assert frame["sensors"].between(1, 5).all()
    assert frame["batch"].is_monotonic_increasing and frame["batch"].is_unique
    assert (frame["tuples"] <= 20).all()
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["bare-0"]


def test_a_query_planned_from_kills_covers_them(case, tmp_path):
    queries = runs.queries(case, 0.45, 0.05, [10, 20], RecoveryTime(0, 1))
    query, start_ms = kills.query_from_kills(queries, case.log, tmp_path, 1, tuples=10, count=2)
    assert query.t_sla_ms == query.recovery_time(10) and start_ms > 0
    sizes = [len(replay.sensors) for replay in query.first_plan.replay]
    assert (sizes * np.diff(query.first_plan.times)).max() <= 10
    again, _ = kills.query_from_kills(queries, case.log, tmp_path / "again", 1, 1, count=2)
    assert again.t_sla_ms == again.recovery_time(6)  # no plan satisfies less


def test_pilot_kills_are_as_many_as_the_kills_that_follow(tmp_path, monkeypatch):
    numbers = []

    def killed(query, log, scratch, count, seed):
        numbers.append(count)
        return pd.DataFrame({"tuples": 10, "total_ms": [3.0] * count, "all_ms": 400.0})

    monkeypatch.setattr(kills, "restarts", killed)
    model, cost = block_model(6, 2, 4, 3), RecoveryTime(0, 1)
    queries = [ReplayQuery(model, 24, Requirement(0.45, 0.05), cost, t_sla) for t_sla in (10, 20)]
    for count in (2, 20, 101):
        kills.query_from_kills(queries, None, tmp_path, 1, tuples=10, count=count)
    assert numbers == [3, 3, 10, 10, 51, 51]


def test_a_driver_that_ends_otherwise_is_an_error(case, tmp_path):
    (query,) = runs.queries(case, 0.45, 0.05, [20], RecoveryTime(0, 1))
    with pytest.raises(RuntimeError, match="must end with status -9, got 1; .*"):
        kills.restarts(query, SensorLog(tmp_path, (), 0, {}), tmp_path / "killed", 1, 1)


@pytest.mark.parametrize("master", ["spark://head:7077", "local[2,4]", None])
def test_killed_drivers_never_wait_for_the_cores_of_this_session(monkeypatch, tmp_path, master):
    """Once they did, for ever, where a cluster's cores were all taken by the notebook itself."""
    seen = []
    acts = {"killExecutors": seen.append, "requestExecutors": seen.append}
    scala = SimpleNamespace(getExecutorIds=lambda: ["0", "1"], **acts)
    running = SimpleNamespace(master=master, _jsc=SimpleNamespace(sc=lambda: scala))

    def run(command, expected, env):
        seen.append("driver")
        raise KeyError("enough")

    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", running if master else None)
    monkeypatch.setattr(kills, "run_process", run)
    model = block_model(4, 2)
    query = ReplayQuery(model, 20, Requirement(0.3, 0.05), RecoveryTime(1.0, 0.01), 1.5)
    log = SensorLog.write(tmp_path / "log", draw(model, 40, 1), model.names)
    with pytest.raises(KeyError, match="enough"):
        kills.restarts(query, log, tmp_path / "killed", 1, 1)
    lent = (master or "").startswith("spark:")
    assert seen == ([["0", "1"], "driver", 10_000] if lent else ["driver"])
