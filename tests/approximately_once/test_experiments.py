"""D1's experiments give the document's tables, and every number a slow twin's."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

from aftlib.approximately_once import figures
from aftlib.approximately_once.assignment import assess, assign_greedy
from aftlib.approximately_once.claims import CLAIMS
from aftlib.approximately_once.experiments import grid as grids
from aftlib.approximately_once.experiments import streams
from aftlib.approximately_once.experiments.cases import (
    ROWS,
    UNSCALED,
    WINDOWS,
    NotebookParameters,
    fitted,
)
from aftlib.core.datasets import even_grid
from aftlib.core.generators import block_model
from aftlib.core.planfile import Source
from aftlib.core.requirement import Requirement
from tests.approximately_once import processes
from tests.judging import judge
from tests.plans import write_plan


def test_figure_8_comes_out_of_the_pipeline(spark, tmp_path):
    six = streams.six_sensors(spark, tmp_path, failure=16, recovery=19)
    lost = six.table[six.table["estimated"]]
    assert set(zip(lost["start"], lost["key"], strict=True)) == {
        (start, key) for start in (10, 15) for key in ("X4", "X5", "X6")
    }
    rest = six.table[~six.table["estimated"]]
    assert len(rest) == 24
    np.testing.assert_allclose(rest["value"], rest["truth"], atol=1e-12)
    assert (lost["half_width"] < 1).all()


def test_smallest_epsilons_are_the_digests():
    table = grids.smallest_epsilons(block_model(), [2, 12, 24, 60], 0.05)
    np.testing.assert_allclose(table["h-best"], [0.6686, 0.6471, 0.6471, 0.6471], atol=5e-5)
    np.testing.assert_allclose(table["h-worst"], [1.96, 0.7524, 0.6619, 0.6497], atol=5e-5)


SMALL = {"dimensions": 12, "blocks": 2, "rows": 300, "replications": 3}


@pytest.fixture(scope="module")
def case(spark, tmp_path_factory):
    parameters = NotebookParameters(**SMALL, workers=[3, 6], epsilons=[0.5, 0.75])
    return parameters.case(spark, tmp_path_factory.mktemp("data"))


def test_the_best_lies_between_the_others_and_the_bound(spark, case):
    bests = grids.bests(spark, case)
    wide = bests.pivot(index=["workers", "epsilon"], columns="method", values="estimable")
    assert wide.index.tolist() == [(m, e) for m in (3, 6) for e in (0.5, 0.75)]
    assert (wide["best"] >= wide[["greedy", "h-best"]].max(axis=1)).all()
    assert wide["bound"].tolist() == wide["best"].tolist() == [0, 3, 0, 6]
    figure = figures.sweep(bests, "workers", "estimable", "title", start=0.75)
    shown = {trace.name: list(trace.y) for trace in figure.data}
    assert list(shown) == ["greedy", "h-best", *grids.VARIANTS, "best", "bound"]
    assert shown["bound"] == [3, 6]


def test_an_added_assignment_is_in_every_figure_of_them(spark, case, monkeypatch):
    def mine(model, m, requirement, rng):  # as a notebook would: the tasks do not know this module
        return assess(model, [list(keys) for keys in np.array_split(np.arange(12), m)], requirement)

    monkeypatch.setitem(grids.ASSIGN, "mine", mine)
    grid, bests = grids.grid(spark, case, ROWS, seed=1), grids.bests(spark, case)
    shown = [
        figures.sweep(grid, "workers", "estimable", "fig. 10"),
        figures.sweep(grid, "epsilon", "estimable", "fig. 11"),
        figures.error_rates(grid, "workers", "fig. 12", 0.75, 0.05),
        figures.error_rates(grid, "epsilon", "fig. 13", 6, 0.05),
        figures.sweep(bests, "workers", "estimable", "bests"),
        figures.explore(case.samples, 3, 0.75, 0.05),
    ]
    for figure in shown:
        (trace,) = (trace for trace in figure.data if trace.name == "mine")
        assert len(trace.y)
    assert grids.added_to(["greedy"]) == ["greedy", "mine"]
    with pytest.raises(
        ValueError, match="methods must be among greedy, .*, mine, got 'lucky': add it"
    ):
        grids.grid(spark, case, ROWS, 1, methods=["lucky"])


def test_the_more_workers_crash_the_fewer_stay_estimable(spark, case):
    table = grids.crashes_survived(spark, case)
    wide = table.pivot(index=["workers", "epsilon"], columns="method", values="estimable")
    # blocks of 6 keys: f workers that crash take 2 f keys of each, or f where there are 6 workers
    left = {(3, f): 6 - 2 * f for f in (1, 2, 3)} | {(6, f): 6 - f for f in (1, 2, 3)}
    for (m, epsilon), row in wide.iterrows():
        for f, name in enumerate(["1 crash", "2 crashes", "3 crashes"], start=1):
            k = left[m, f]
            variance = 1 - 0.81 * k / (1 + 0.9 * (k - 1)) if k else 1
            estimable = Requirement(epsilon, 0.05).max_variance >= variance
            assert row[name] == (m if estimable else 0)
    figure = figures.sweep(table, "workers", "estimable", "title", start=0.75)
    assert [trace.name for trace in figure.data] == ["1 crash", "2 crashes", "3 crashes"]


def test_lost_maxima_are_estimated_less_well_than_means_but_as_often(spark, case):
    table = grids.other_aggregates(case, 5, 12, seed=1).set_index("query")
    assert (table["windows"] == 100).all()
    assert (table["half_width"] < table["prior"]).all()
    assert table.loc["mean", "half_width"] < 0.6 * table.loc[["min", "max"], "half_width"].min()
    assert table.loc["sum", "half_width"] == pytest.approx(12 * table.loc["mean", "half_width"])
    np.testing.assert_allclose(table["within"], 0.95, atol=0.03)
    assert ((table["low"] < table["within"]) & (table["within"] < table["high"])).all()


@pytest.mark.parametrize("reading", [ROWS, WINDOWS, UNSCALED])
def test_grid_is_the_slow_twins(spark, case, reading):
    grid = grids.grid(spark, case, reading, seed=1, draws=2)
    assert len(grid) == 2 * 2 * (4 + 2 * 2)  # four methods, and two draws of two more
    model, windows = case.readings[reading]
    rows, _ = windows.aggregate(case.log.read(None, 0, 300), 0, windows.ending_in(0, 300))
    for epsilon in case.epsilons:
        requirement = Requirement(epsilon, 0.05)
        assignment = assign_greedy(model, 3, requirement)
        wrong = np.zeros(rows.shape, dtype=bool)
        for i, row in enumerate(rows):
            for keys in assignment.workers:
                seen = {model.names[k]: row[k] for k in range(12) if k not in keys}
                wrong[i, keys] = np.abs(model.condition(seen).mean - row[list(keys)]) > epsilon
        point = grid.query("method == 'greedy' and workers == 3 and epsilon == @epsilon").iloc[0]
        assert point["estimable"] == assignment.estimable.sum()
        assert point["all_by_part"][0] == pytest.approx(wrong.mean())
        counted = wrong[:, assignment.estimable_keys]
        expected = counted.mean() if counted.size else np.nan
        assert point["error"] == pytest.approx(expected, nan_ok=True)


def test_grid_needs_replications_and_windows(spark, case):
    with pytest.raises(ValueError, match="replications must be at least 1, got 0"):
        grids.grid(spark, replace(case, replications=0), ROWS, 1)
    with pytest.raises(ValueError, match="log must hold a window of 3 steps in each of 1000 parts"):
        grids.grid(spark, replace(case, replications=999), WINDOWS, 1)


@pytest.fixture
def without_spark(monkeypatch):
    """Tasks are processes, which crash as Spark's do and start sooner."""
    monkeypatch.setattr(streams, "recover_stream", processes.recover_stream)


def test_recovery_cost_compares_three_runs(without_spark, case, tmp_path):
    table = streams.recoveries(None, case, tmp_path, 120, None, crashes=2)
    assert table["recovery"].tolist() == ["none", "model", "exact", "model"]
    assert table["seconds"].map(len).tolist() == [2] * 4
    by = table.iloc[:3].set_index("recovery")
    assert by.loc["none", "aggregates_estimated"] == by.loc["exact", "aggregates_estimated"] == 0
    assert by.loc["model", "aggregates_estimated"] > 0
    assert by.loc["exact", "samples_read_again"] > by.loc["model", "samples_read_again"]
    assert (by["largest_other_difference"] == 0).all()


def test_three_methods_of_recovery_on_real_sensors(without_spark, tmp_path):
    parameters = NotebookParameters()
    case = parameters.real(None, tmp_path)
    assert case.samples.names[0] == "Aotizhongxin" and case.workers[-1] == 12
    by = streams.repeated_crashes(None, case, tmp_path / "methods", 2400)
    by = by.set_index("recovery")
    assert by.loc["guard", "aggregates_estimated"] < by.loc["model", "aggregates_estimated"]
    assert by.loc["guard", "audited"] == by.loc["guard", "aggregates_estimated"] > 0
    wrong = round((1 - by.loc["guard", "within_epsilon"]) * by.loc["guard", "audited"])
    assert by.loc["guard", "wrong"] == wrong <= by.loc["guard", "bound"]
    assert np.isnan(by.loc["model", "audited"])
    assert 0 < by.loc["guard", "samples_read_again"] < by.loc["exact", "samples_read_again"]
    assert (by["largest_other_difference"] == 0).all()


def real_table(rows=400):
    rng = np.random.default_rng(3)
    common = rng.normal(size=(rows, 1)).cumsum(axis=0) * 0.1
    values = 20 + common + 0.3 * rng.normal(size=(rows, 4))
    frame = pd.DataFrame(values, columns=list("abcd"))
    frame.loc[[7, 300], "b"] = np.nan
    return frame


def test_real_sensors_by_one_file(spark, tmp_path):
    real_table().to_csv(file := tmp_path / "sensors.csv", index=False)
    parameters = NotebookParameters(data=str(file), width=5, slide=5)
    case = parameters.case(spark, tmp_path / "data")
    assert case.workers == (2, 3, 4) and parameters.block is None
    assert case.about["incomplete rows left out of the fit"] == 1
    assert case.log.steps == 200
    both = {name: grids.grid(spark, case, name, seed=1) for name in case.readings}
    assert (both[ROWS]["windows"] == 199).all()  # one row misses a sample
    assert (both[WINDOWS]["windows"] == 39).all()
    coverage = grids.coverage(both, "greedy", 4)
    assert ((coverage["low"] <= coverage["share"]) & (coverage["share"] <= coverage["high"])).all()
    assert parameters.case(spark, tmp_path / "data").log.path == case.log.path


def test_seven_sensors_may_have_three_workers(spark, tmp_path):
    rng = np.random.default_rng(5)
    frame = real_table()
    for name in "efg":
        frame[name] = frame["a"] + 0.3 * rng.normal(size=400)
    frame.to_csv(file := tmp_path / "seven.csv", index=False)
    parameters = NotebookParameters(data=str(file), workers=[3], epsilons=[0.5, 1.0])
    case = parameters.case(spark, tmp_path / "data")
    grid, bests = grids.grid(spark, case, ROWS, seed=1), grids.bests(spark, case)
    assert grid["workers"].tolist() == [3] * 28
    greedy = assign_greedy(case.samples, 3, Requirement(1.0, 0.05), uneven=True)
    at = (grid["method"] == "greedy") & (grid["epsilon"] == 1.0)
    assert grid.loc[at, "estimable"].tolist() == [greedy.estimable.sum()]
    assert sorted(map(len, greedy.workers)) == [2, 2, 3]
    assert bests[bests["method"] == "best"]["estimable"].max() == 3
    assert grids.smallest_epsilons(case.samples, [3], 0.05).loc[3, "h-best"] < 1.0
    assert sorted(map(len, case.query(60, 3, 1.0).assignment.workers)) == [2, 2, 3]


def gappy(rows, gaps):
    rng = np.random.default_rng(4)
    values = rng.normal(size=(rows, 1)) + 0.3 * rng.normal(size=(rows, 60))
    values[rng.random(values.shape) < gaps] = np.nan
    return even_grid(pd.DataFrame(values, columns=[f"s{i}" for i in range(60)]))


def test_gaps_in_nearly_every_row_and_few_rows_leave_none_out():
    model, test, left_out = fitted(gappy(400, gaps=0.05))
    assert (model.size, len(test.values), left_out) == (60, 200, 0)
    assert model.covariance[0, 1] == pytest.approx(1, abs=0.35)
    model, test, left_out = fitted(gappy(40, gaps=0))
    assert (model.size, len(test.values), left_out) == (60, 20, 0)
    assert 0.4 < model.covariance[0, 1] < 1.6


def test_complete_rows_serve_alone_where_they_are_many():
    assert fitted(gappy(60_000, gaps=0.02))[2] > 10_000


def test_parameters_say_how_a_file_is_read(spark, tmp_path):
    rng = np.random.default_rng(4)
    values = rng.normal(size=(400, 1)) + 0.3 * rng.normal(size=(400, 4))
    frame = pd.DataFrame(values, columns=list("abcd"))
    late = np.cumsum(rng.integers(58, 63, 400))  # jitter that only resampling bears
    frame.insert(0, "at", pd.Timestamp("2026-01-01") + pd.to_timedelta(late, unit="s"))
    frame["note"] = "text"
    frame.to_csv(file := tmp_path / "jitter.csv", index=False)
    own = {"data": str(file), "time": "at", "resample": "5min", "width": 2, "slide": 2}
    shapes = []
    for changed in ({"drop": ["note"]}, {"drop": ["note", "a"]}):
        log = NotebookParameters(**own | changed).case(spark, tmp_path).log
        shapes.append((log.steps, len(log.names)))
    assert shapes == [(pytest.approx(40, abs=1), 4), (pytest.approx(40, abs=1), 3)]
    with pytest.raises(ValueError, match="note"):
        NotebookParameters(**own)


DEFAULTS = {name: info.default for name, info in NotebookParameters.model_fields.items()}
AWKWARD = [0, -1, np.nan, np.inf, 2.5, [], "x", [0], [-1], ["x"], [np.nan], [7], True, 10**6]
FINE = {
    "epsilons": [[7]],
    "rows": [10**6],
    "replications": [10**6],
    "seed": [0, 10**6],
    "pipeline_steps": [10**6],
    "drop": [[]],
}


@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.parametrize("value", AWKWARD, ids=str)
def test_awkward_parameters_are_refused_by_name(name, value):
    if value in FINE.get(name, []):
        NotebookParameters(**DEFAULTS | {name: value})
    else:
        with pytest.raises(ValueError, match=name):
            NotebookParameters(**DEFAULTS | {name: value})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"workers": [7]}, r"workers must divide the 120 sensors, got 7; choose from \[1, 2"),
        (SMALL | {"workers": [7]}, r"got 7; choose from \[1, 2, 3, 4, 6, 12\]"),
        ({"width": 4, "rows": 3}, "rows must hold a window of width = 4 steps, got 3"),
        ({"pipeline_steps": 2}, "pipeline_steps must hold a window of width = 3 steps, got 2"),
        ({"recover": "luck"}, "recover must be one of model, guard, exact, got 'luck'"),
        ({"slide": 4}, "slide must be a whole number at least 1 and at most 3, got 4"),
        ({"data": "missing.csv"}, "data must name a wide CSV or Parquet file, got 'missing.csv'"),
    ],
)
def test_parameters_that_do_not_go_together_are_refused(other, message):
    with pytest.raises(ValueError, match=message):
        NotebookParameters(**other)


def test_parameters_are_checked_against_a_users_file(tmp_path):
    real_table().to_csv(file := tmp_path / "sensors.csv", index=False)
    NotebookParameters(data=str(file), workers=[1, 2, 3, 4])
    with pytest.raises(ValueError, match="each of workers must be .* at most 4, got 5"):
        NotebookParameters(data=str(file), workers=[5])
    with pytest.raises(
        ValueError, match="a 10th of data must hold a window of width = 21 steps, got 20"
    ):
        NotebookParameters(data=str(file), width=21, slide=21)


def test_a_file_has_two_to_all_workers_by_default_and_one_for_one_sensor(tmp_path):
    for names, workers in ((["a"], (1,)), (["a", "b"], (2,)), (["a", "b", "c", "d"], (2, 3, 4))):
        real_table()[names].to_csv(file := tmp_path / f"{len(names)}.csv", index=False)
        assert NotebookParameters(data=str(file)).case(None, tmp_path).workers == workers


@pytest.mark.parametrize("parts", [0, 1])
def test_sensors_that_are_hardly_ever_all_there_are_refused(tmp_path, parts):
    """No window would be whole, or those of one part only, which has no interval."""
    frame, file = real_table(), tmp_path / "sensors.csv"
    gaps = slice(len(frame) // 2 + parts * (len(frame) // 2 // 10), None, 3)
    frame.iloc[gaps, 2] = np.nan
    frame.to_csv(file, index=False)
    with pytest.raises(ValueError, match=f"fewer missing .* of 3 steps .* {frame.columns[2]!r} mi"):
        NotebookParameters(data=str(file))
    NotebookParameters(data=str(file), width=2)


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """A plan whose workers have one and three sensors, each of its own ε."""
    place = tmp_path_factory.mktemp("plan")
    rng = np.random.default_rng(2)
    slow = lfilter([0.2], [1, -0.98], rng.normal(size=(6000, 1)), axis=0)
    values = 20 + [1, 2, 3, 4] * (slow + 0.05 * rng.normal(size=(6000, 4)))
    pd.DataFrame(values, columns=list("abcd")).to_csv(place / "sensors.csv", index=False)
    return write_plan(
        place / "plan.json",
        Source.of(place / "sensors.csv"),
        [(0, 5, ["a"])],
        assignment=[["b"], ["d", "a", "c"]],
        **{"question.epsilon": dict(zip("abcd", [0.3, 0.6, 0.9, 1.2], strict=True))},
        **{"question.t_sla_ms": 100, "question.fixed_ms": 0},
    )


def test_a_plan_streams_with_its_guard_and_a_killed_worker(spark, plan, tmp_path):
    parameters = NotebookParameters(plan=str(plan), **NotebookParameters.profile("smoke"))
    case = parameters.case(spark, tmp_path)
    assert parameters.real(case, tmp_path) is case and parameters.block is None
    query = case.query(100, 2, 7.0)
    assert query.assignment.workers == ((1,), (0, 2, 3))
    assert query.requirement == Requirement(1.0, 0.1)
    assert query.steps == case.log.steps == 3000  # a thousand windows at least, where there are
    outage = streams.Outage(1, 2100, 2110)
    row = streams.recovery_cost(spark, query, tmp_path / "s", [outage], ["guard"]).iloc[0]
    assert row["aggregates_estimated"] == row["audited"] == 3 * 2
    assert row["within_epsilon"] >= 0.8
    assert row["largest_other_difference"] == 0


def test_a_plans_workers_are_the_divisors_of_its_sensors_above_one(plan, tmp_path):
    assert NotebookParameters(plan=str(plan)).case(None, tmp_path).workers == (2, 4)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"data": "f.csv"}, "data must be left out, because plan = '.*plan.json' replaces"),
        ({"workers": [2], "epsilons": [1.0]}, "epsilons, workers must be left out, because plan"),
        ({"delta": 0.01, "slide": 2, "width": 4}, "out, .*: remove delta, slide, width"),
        ({"blocks": 2, "rows": 10}, "blocks, rows must be left out, because plan"),
        ({"time": "t", "resample": "1h", "drop": ["a"]}, "drop, resample, time must be left out"),
        ({"plan": "none.json"}, "plan must name a file that aft plan wrote, got 'none.json'"),
        (
            {"plan": "long.json"},
            "at least 20 windows, each of 400 steps, got 6000 steps; plan for m",
        ),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(plan, monkeypatch, other, message):
    monkeypatch.chdir(plan.parent)
    long_plan = json.loads(plan.read_text())
    long_plan["question"] |= {"window": 400, "slide": 400}
    long_plan["replay"][0]["until"] = 400
    (plan.parent / "long.json").write_text(json.dumps(long_plan))
    with pytest.raises(ValueError, match=message):
        NotebookParameters(**{"plan": str(plan)} | other)


@pytest.mark.parametrize(
    "odd",
    [
        {"covariance": "factor", "workers": [2, 3, 6], "epsilons": [0.5, 1.0]},
        {"dimensions": 7, "blocks": 7},  # no m of the document's, and nothing to estimate from
        {"epsilons": [0.01]},  # no worker is estimable
        {"workers": [1], "epsilons": [2.5]},  # one worker, estimated from nothing
        {"workers": [12, 12], "epsilons": [1e6], "rows": 3, "replications": 1},
    ],
    ids=str,
)
def test_odd_parameters_work_to_the_end(spark, without_spark, tmp_path, odd):
    parameters = NotebookParameters(**SMALL | {"rows": 60, "pipeline_steps": 12} | odd)
    case = parameters.case(spark, tmp_path)
    both = {name: grids.grid(spark, case, name, seed=1) for name in case.readings}
    grid = both[ROWS]
    assert len(grids.smallest_epsilons(block_model(12, 2), [2], 0.05)) == 1
    for axis in ("workers", "epsilon"):
        figures.sweep(grid, axis, "estimable", "title", start=0.65)
        figures.error_rates(grid, axis, "title", 10, 0.05)
    coverage = grids.coverage(both, "greedy", case.workers[-1])
    figures.coverage(coverage, 0.05, case.workers[-1])
    shown = coverage.pivot(index="epsilon", columns="reading", values=["share", "low", "high"])
    shown.style.format(precision=4, na_rep="–").format_index("{:g}").to_html()
    frames = {"grid": grid, "samples_grid": both[WINDOWS], "unscaled_grid": both[UNSCALED]}
    frames["bests"] = grids.bests(spark, case)
    frames["aggregates"] = grids.other_aggregates(case, case.workers[-1], 3, seed=1)
    cost = streams.recoveries(spark, case, tmp_path / "cost", 12, "model", crashes=2)
    frames["cost"] = cost
    assert len(judge(CLAIMS, frames | parameters.model_dump())) == len(CLAIMS)
    assert (cost["largest_other_difference"].fillna(0) == 0).all()
