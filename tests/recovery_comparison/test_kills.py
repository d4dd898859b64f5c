"""Real kills: what each scheme loses, doubles, estimates and reads again, and broken controls."""

import numpy as np
import pandas as pd
import pytest

from aftlib.recovery_comparison import experiments, recoveries
from aftlib.recovery_comparison.experiments import (
    NotebookParameters,
    score_results,
    stream_case,
)
from aftlib.recovery_comparison.recoveries import Kill, draw_schedule, replay_query
from aftlib.recovery_comparison.schemes import (
    EXACT,
    EXACT_PROCESS,
    GUARD,
    LAST,
    MODEL,
    NOTHING,
    PARTIAL,
    SCHEMES,
    all_schemes,
)

WIDTH = 6
EPSILON_BETWEEN = 0.64
"""ε, in standard deviations, with which one of two workers is estimable."""
SCHEDULE = [
    Kill(0, 1, np.inf),
    Kill(2, 0, 1e5),
    Kill(4, 1, np.inf, emitted=True),
    Kill(6, 0, 2e3),
]


@pytest.fixture(scope="module")
def case():
    return NotebookParameters(windows=[WIDTH], rates=[150.0], kills=2).read_case(WIDTH)


@pytest.fixture(scope="module")
def streamed(case, tmp_path_factory):
    """Rows, results and score of each scheme."""
    directory = tmp_path_factory.mktemp("kills")
    streamed = {}
    for number, scheme in enumerate(all_schemes()):
        rows, results = stream_case(case, scheme, SCHEDULE, directory / str(number))
        streamed[scheme] = rows[rows["rate"].notna()], results, score_results(case, results)
    return streamed


@pytest.mark.parametrize("scheme", all_schemes())
def test_only_nothing_loses_and_no_scheme_doubles(streamed, scheme):
    _, _, score = streamed[scheme]
    assert score["lost"] == (18 if scheme == NOTHING else 0)  # three windows of six sensors
    assert score["doubled"] == score["wrong"] == 0


@pytest.mark.parametrize("scheme", all_schemes())
def test_results_are_estimates_only_where_a_scheme_estimates(streamed, scheme):
    _, results, score = streamed[scheme]
    estimated = results[results["estimated"]]
    if scheme in (NOTHING, EXACT, EXACT_PROCESS):
        assert estimated.empty
    else:
        assert score["estimated"] > 0 and score["within"] >= (0.5 if scheme == LAST else 0.8)
        assert {*estimated["window"]} <= {0, 2, 6}


@pytest.mark.parametrize("scheme", [NOTHING, EXACT, MODEL, LAST, EXACT_PROCESS, PARTIAL])
def test_the_planned_samples_are_read_again(case, streamed, scheme):
    rows, _, _ = streamed[scheme]
    before_end = rows[~rows["emitted"].astype(bool)]
    tuples, times = replay_query(case).first_plan.tuples, replay_query(case).first_plan.times
    worst = int(np.argmax(tuples))
    planned = {PARTIAL: tuples[worst], EXACT_PROCESS: 12 * (times[worst + 1] - times[worst])}
    planned |= {NOTHING: 0, EXACT: 6 * WIDTH, MODEL: 0, LAST: 0}
    assert (before_end["again"] == planned[scheme]).all()
    assert (rows.loc[rows["emitted"].astype(bool), "again"] == 0).all()


@pytest.mark.parametrize("scheme", all_schemes())
def test_a_limited_read_takes_its_time_and_parts_add_up(streamed, scheme):
    rows, _, _ = streamed[scheme]
    assert (rows["read_s"] >= rows["again"] / rows["rate"]).all()
    assert np.allclose(rows[recoveries.PARTS].sum(axis=1), rows["seconds"])


def test_guard_reads_again_what_it_has_not_certified(case, tmp_path, monkeypatch):
    class Half:
        """A guard that certifies every second sensor and estimates 0."""

        recoverable = np.arange(12)[None, :] % 2 == 0

        def update(self, values):
            return type("Recovered", (), {"estimate": np.zeros((1, values.size))})

    monkeypatch.setitem(SCHEMES, GUARD, lambda case: Half())
    rows, results = stream_case(case, GUARD, SCHEDULE, tmp_path / "half")
    lost = results[(results["window"] == 0) & results["sensor"].isin(case.assignment.workers[1])]
    assert (lost["estimated"] == (lost["sensor"] % 2 == 0)).all()
    score = score_results(case, results)
    assert score["lost"] == score["doubled"] == score["wrong"] == 0
    assert rows["again"].max() == WIDTH * (~lost["estimated"]).sum()


def test_a_crash_without_a_kill_is_recovered_too(case, tmp_path):
    log, sink = case.write_log(tmp_path / "log"), recoveries.Sink(tmp_path / "results.sqlite")
    with recoveries.Coordinator(case, log, sink) as coordinator:
        for worker in coordinator.workers:  # both crash, and both are replaced
            worker.kill()
        assert coordinator.process(0)["again"] == WIDTH * 12
    assert np.allclose(sink.results()["value"], case.truth[0])


def test_checkpoints_are_those_of_the_longest_windows_in_any_order(tmp_path, monkeypatch):
    rows = {"window": [0, 2, 3], "rate": [np.inf, np.inf, np.nan], "emitted": False}
    streamed = pd.DataFrame(rows | {"estimate_s": 0.0, "commit_s": 0.0})
    result = pd.DataFrame({"window": [0], "sensor": [0], "value": [0.0], "estimated": [True]})
    result["writes"] = 1
    monkeypatch.setattr(experiments, "stream_case", lambda *_: (streamed, result))
    monkeypatch.setattr(experiments, "score_schemes", lambda *_: pd.DataFrame())
    monkeypatch.setattr(experiments, "normal_operation", lambda *_: pd.DataFrame())
    p = NotebookParameters(windows=[24, WIDTH], rates=[150.0], kills=2, budget=0.03)
    plans = [replay_query(p.read_case(width)).first_plan for width in p.windows]
    checkpoints = [len(plan.times) - 1 for plan in plans]
    measured = experiments.measure(p, tmp_path)
    assert measured.checkpoints == checkpoints[0] != checkpoints[1]
    assert measured.case.windows.width == 24


def test_control_a_replacement_that_repeats_an_emitted_window_doubles_it(
    case, tmp_path, monkeypatch
):
    process = recoveries.Coordinator.process

    def twice(self, window, kill=None):
        if kill and kill.emitted:
            self.sink.commit(window, case.truth[window], np.zeros(12, bool))
        return process(self, window, kill)

    monkeypatch.setattr(recoveries.Coordinator, "process", twice)
    _, results = stream_case(case, EXACT, SCHEDULE, tmp_path / "twice")
    assert score_results(case, results)["doubled"] == 12


def test_a_repeated_result_replaces_the_first_one_and_is_counted(tmp_path):
    sink = recoveries.Sink(tmp_path / "results.sqlite")
    sink.commit(3, np.array([1.0, np.nan]), np.array([True, False]))
    sink.commit(3, np.array([2.0, 5.0]), np.array([False, False]))
    results = sink.results().set_index("sensor")
    assert results["value"].tolist() == [2.0, 5.0] and not results["estimated"].any()
    assert results["writes"].tolist() == [2, 1]


def test_a_worker_that_is_not_estimable_is_replayed_exactly(tmp_path):
    p = NotebookParameters(windows=[WIDTH], rates=[150.0], kills=2, epsilon_sd=EPSILON_BETWEEN)
    uneven = p.read_case(WIDTH)
    estimable = uneven.assignment.estimable
    assert estimable.tolist().count(True) == 1
    kills = [Kill(2 * worker, worker, np.inf) for worker in range(2)]
    rows, results = stream_case(uneven, MODEL, kills, tmp_path / "uneven")
    again = rows.loc[rows["rate"].notna(), "again"].to_numpy()
    assert again.tolist() == np.where(estimable, 0, 6 * WIDTH).tolist()
    score = score_results(uneven, results)
    assert score["estimated"] == 6 and score["lost"] == score["wrong"] == 0


def test_control_a_lost_replay_is_counted(case, tmp_path, monkeypatch):
    monkeypatch.setattr(
        recoveries.Coordinator, "_replace", lambda self, crashed, *_: _resume(self, crashed)
    )
    _, results = stream_case(case, EXACT, SCHEDULE[:1], tmp_path / "lost")
    assert score_results(case, results)["lost"] >= 6


def _resume(coordinator, crashed):
    for index in crashed:
        sensors = coordinator.workers[index].sensors
        begin = WIDTH
        worker = recoveries.Worker(coordinator.log, sensors, coordinator.case.windows, begin)
        worker.wait()
        coordinator.workers[index] = worker
    return []


def test_the_exact_process_has_the_checkpoints_of_d2(streamed):
    exact, ours = (streamed[name][0] for name in (EXACT_PROCESS, PARTIAL))
    assert len(exact) == len(ours) and (exact["again"] >= ours["again"]).all()


def test_a_schedule_is_seeded_and_has_every_point_equally_often():
    schedule = draw_schedule([100.0, 200.0], kills=3, workers=2, seed=1)
    assert schedule == draw_schedule([100.0, 200.0], kills=3, workers=2, seed=1)
    assert schedule != draw_schedule([100.0, 200.0], kills=3, workers=2, seed=2)
    points = [(kill.rate, kill.emitted) for kill in schedule[1:]]
    assert all(points.count(point) == 3 for point in {*points}) and len({*points}) == 4
    assert [kill.window for kill in schedule] == [*range(0, 2 * len(schedule), 2)]


def test_d2_plans_for_the_budget(case):
    plan = replay_query(case).first_plan
    assert max(plan.tuples) <= max(12, int(0.15 * WIDTH * 12))
