"""D1's experiments give the document's tables, and every number a slow twin's."""

import json
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

from aftlib.approximately_once import experiments, figures
from aftlib.approximately_once.assignment import assign_greedy
from aftlib.approximately_once.claims import CLAIMS
from aftlib.approximately_once.experiments import cases
from aftlib.approximately_once.sink import Outage
from aftlib.core.generators import block_model
from aftlib.core.paths import notebooks_dir
from aftlib.core.planfile import SCHEMA, VERSION
from aftlib.core.requirement import Requirement
from aftlib.core.sensorplan import source_of
from aftlib.core.windows import Windows
from tests.approximately_once import processes
from tests.judging import judged


def test_figure_8_comes_out_of_the_pipeline(spark, tmp_path):
    six = experiments.six_sensors(spark, tmp_path, failure=16, recovery=19)
    lost = six.table[six.table["estimated"]]
    assert set(zip(lost["start"], lost["key"], strict=True)) == {
        (start, key) for start in (10, 15) for key in ("X4", "X5", "X6")
    }
    rest = six.table[~six.table["estimated"]]
    assert len(rest) == 24
    np.testing.assert_allclose(rest["value"], rest["truth"], atol=1e-12)
    assert (lost["half_width"] < 1).all()


def test_smallest_epsilons_are_the_digests():
    table = experiments.smallest_epsilons(block_model(), [2, 12, 24, 60], 0.05)
    np.testing.assert_allclose(table["h-best"], [0.6686, 0.6471, 0.6471, 0.6471], atol=5e-5)
    np.testing.assert_allclose(table["h-worst"], [1.96, 0.7524, 0.6619, 0.6497], atol=5e-5)


@pytest.fixture(scope="module")
def case(spark, tmp_path_factory):
    sizes = {"dimensions": 12, "blocks": 2, "rows": 300, "replications": 3, "seed": 1}
    lists = {"windows": Windows(3, 1), "workers": [3, 6], "epsilons": [0.5, 0.75]}
    return experiments.block_case(spark, tmp_path_factory.mktemp("data"), **sizes, **lists)


def test_the_best_lies_between_the_others_and_the_bound(spark, case):
    found = experiments.bests(spark, case, experiments.ROWS, 0.05)
    wide = found.pivot(index=["workers", "epsilon"], columns="method", values="estimable")
    assert wide.index.tolist() == [(m, e) for m in (3, 6) for e in (0.5, 0.75)]
    assert (wide["best"] >= wide[["greedy", "h-best"]].max(axis=1)).all()
    assert wide["bound"].tolist() == wide["best"].tolist() == [0, 3, 0, 6]
    figure = figures.sweep(found, "workers", "estimable", "title", start=0.75)
    shown = {trace.name: list(trace.y) for trace in figure.data}
    assert list(shown) == ["greedy", "h-best", "best", "bound"]
    assert shown["bound"] == [3, 6]


def test_the_more_die_at_once_the_fewer_stay_estimable(spark, case):
    found = experiments.crashes_survived(spark, case, experiments.ROWS, 0.05)
    wide = found.pivot(index=["workers", "epsilon"], columns="method", values="estimable")
    # blocks of 6 keys: f workers that crash take 2 f keys of each, or f where there are 6 workers
    live = {(3, f): 6 - 2 * f for f in (1, 2, 3)} | {(6, f): 6 - f for f in (1, 2, 3)}
    for (m, epsilon), row in wide.iterrows():
        for f, name in enumerate(["1 crash", "2 crashes", "3 crashes"], start=1):
            k = live[m, f]
            variance = 1 - 0.81 * k / (1 + 0.9 * (k - 1)) if k else 1
            kept = Requirement(epsilon, 0.05).max_variance >= variance
            assert row[name] == (m if kept else 0)
    figure = figures.sweep(found, "workers", "estimable", "title", start=0.75)
    assert [trace.name for trace in figure.data] == ["1 crash", "2 crashes", "3 crashes"]


def test_lost_maxima_are_told_less_well_than_means_and_as_often(spark, case):
    found = experiments.maxima(case, 5, 12, 0.05, seed=1).set_index("query")
    assert (found["windows"] == 100).all()
    assert (found["half_width"] < found["prior"]).all()
    assert found.loc["mean", "half_width"] < 0.6 * found.loc[["min", "max"], "half_width"].min()
    np.testing.assert_allclose(found["within"], 0.95, atol=0.03)


@pytest.mark.parametrize("reading", [experiments.ROWS, experiments.WINDOWS])
def test_grid_is_the_slow_twins(spark, case, reading):
    grid = experiments.grid(spark, case, reading, 0.05, seed=1, draws=2)
    assert len(grid) == 2 * 2 * (3 + 2)
    model, windows = case.readings[reading].model, case.readings[reading].windows
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
        assert point["error_all"] == pytest.approx(wrong.mean())
        counted = wrong[:, assignment.estimable_keys]
        expected = counted.mean() if counted.size else np.nan
        assert point["error"] == pytest.approx(expected, nan_ok=True)


def test_grid_keeps_its_promise_on_the_documents_model(spark, case):
    grid = experiments.grid(spark, case, experiments.ROWS, 0.05, seed=1)
    counted = grid.dropna(subset="pooled")
    assert (counted["pooled_low"] <= 0.05).all()
    assert (counted["pooled_low"] <= counted["pooled"]).all()


def test_grid_needs_replications_and_windows(spark, case):
    none = experiments.SensorCase(**{**vars(case), "replications": 0})
    with pytest.raises(ValueError, match="replications must be at least 1, got 0"):
        experiments.grid(spark, none, experiments.ROWS, 0.05, 1)
    many = experiments.SensorCase(**{**vars(case), "replications": 999})
    with pytest.raises(ValueError, match="log must hold a window of 3 steps in each of 1000 parts"):
        experiments.grid(spark, many, experiments.WINDOWS, 0.05, 1)


@pytest.fixture
def without_spark(monkeypatch):
    """Tasks are processes, which crash as Spark's do and start sooner."""
    streams = import_module("aftlib.approximately_once.experiments.streams")
    monkeypatch.setattr(streams, "recover_stream", processes.recover_stream)


def test_recovery_cost_compares_three_runs(without_spark, case, tmp_path):
    query = case.query(6, 0.75, 0.05, 120)
    table, streams = experiments.recovery_cost(None, query, tmp_path, [Outage(0, 50, 60)])
    by = table.set_index("recovery")
    assert by.loc["none", "aggregates_estimated"] == by.loc["exact", "aggregates_estimated"] == 0
    assert by.loc["model", "aggregates_estimated"] > 0
    assert by.loc["exact", "samples_read_again"] > by.loc["model", "samples_read_again"]
    assert (by["largest_other_difference"] == 0).all()
    assert streams["exact"].outages == []


def test_three_ways_to_recover_on_sensors_that_drift(without_spark, tmp_path):
    case = experiments.drifting_case(tmp_path, Windows(3, 1), 2400, seed=1)
    by = experiments.ways_to_recover(None, case, tmp_path / "ways", 0.05, 2400)
    by = by.set_index("recovery")
    assert by.loc["guard", "within_epsilon"] > by.loc["model", "within_epsilon"]
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
    file = tmp_path / "sensors.csv"
    real_table().to_csv(file, index=False)
    case = experiments.sensor_case(file, tmp_path / "data", Windows(5, 5), None, None)
    assert case.workers == (2, 3, 4)
    assert case.about["incomplete rows left out of the fit"] == 1
    assert case.log.steps == 200
    grids = {name: experiments.grid(spark, case, name, 0.05, seed=1) for name in case.readings}
    assert (grids[experiments.ROWS]["windows"] == 199).all()  # one row misses a sample
    assert (grids[experiments.WINDOWS]["windows"] == 39).all()
    coverage = experiments.coverage(grids, "greedy", 4)
    assert ((coverage["low"] <= coverage["share"]) & (coverage["share"] <= coverage["high"])).all()
    again = experiments.sensor_case(file, tmp_path / "data", Windows(5, 5), None, None)
    assert again.log.path == case.log.path


def test_seven_sensors_may_have_three_workers(spark, tmp_path):
    frame = real_table().assign(**{name: lambda t, x=x: t["a"] + x for name, x in seven()})
    frame.to_csv(file := tmp_path / "seven.csv", index=False)
    experiments.check_parameters(**USUAL | {"data": str(file), "workers": [3]})
    case = experiments.sensor_case(file, tmp_path / "data", Windows(3, 1), [3], [0.5, 1.0])
    grid = experiments.grid(spark, case, experiments.ROWS, 0.05, seed=1)
    found = experiments.bests(spark, case, experiments.ROWS, 0.05)
    assert grid["workers"].tolist() == [3] * 16
    model = case.readings[experiments.ROWS].model
    greedy = assign_greedy(model, 3, Requirement(1.0, 0.05), uneven=True)
    at = (grid["method"] == "greedy") & (grid["epsilon"] == 1.0)
    assert grid.loc[at, "estimable"].tolist() == [greedy.estimable.sum()]
    assert sorted(map(len, greedy.workers)) == [2, 2, 3]
    assert found[found["method"] == "best"]["estimable"].max() == 3
    assert experiments.smallest_epsilons(model, [3], 0.05).loc[3, "h-best"] < 1.0
    assert sorted(map(len, case.query(3, 1.0, 0.05, 60).assignment.workers)) == [2, 2, 3]


def seven():
    rng = np.random.default_rng(5)
    return [(name, 0.3 * rng.normal(size=400)) for name in "efg"]


USUAL = {
    "workers": None,
    "epsilons": None,
    "delta": 0.05,
    "dimensions": 120,
    "blocks": 10,
    "rows": 1000,
    "replications": 20,
    "width": 3,
    "slide": 1,
    "seed": 1,
    "data": None,
    "pipeline_steps": 3000,
    "recover": None,
    "plan": None,
}
AWKWARD = [0, -1, np.nan, np.inf, 2.5, [], "x", [0], [-1], ["x"], [np.nan], [7], True, 10**6]
FINE = {
    "epsilons": [[7]],
    "rows": [10**6],
    "replications": [10**6],
    "seed": [0, 10**6],
    "pipeline_steps": [10**6],
}


def test_the_notebooks_parameters_are_fine():
    cell = json.loads((notebooks_dir() / "01_approximately_once.ipynb").read_text())["cells"][2]
    values = {}
    exec("".join(cell["source"]), values)  # a plan refuses what is not as in the notebook
    assert {name: values[name] for name in cases.DOCUMENT} == cases.DOCUMENT
    experiments.check_parameters(**USUAL)
    experiments.check_parameters(**USUAL | {"workers": [60, 2, 2], "epsilons": [0.5, 0.1]})


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.parametrize("value", AWKWARD, ids=str)
def test_awkward_parameters_are_refused_by_name(name, value):
    if value in FINE.get(name, []):
        experiments.check_parameters(**USUAL | {name: value})
    else:
        with pytest.raises(ValueError, match=name):
            experiments.check_parameters(**USUAL | {name: value})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"workers": [7]}, r"workers must divide the 120 sensors, got 7; choose from \[1, 2"),
        ({"width": 4, "rows": 3}, "rows must hold a window of width = 4 steps, got 3"),
        ({"pipeline_steps": 2}, "pipeline_steps must hold a window of width = 3 steps, got 2"),
        ({"recover": "luck"}, "recover must be one of model, guard, exact, got 'luck'"),
        ({"slide": 4}, "slide must be a whole number at least 1 and at most 3, got 4"),
        ({"data": "missing.csv"}, "data must name a wide CSV or Parquet file, got 'missing.csv'"),
    ],
)
def test_parameters_that_do_not_go_together_are_refused(other, message):
    with pytest.raises(ValueError, match=message):
        experiments.check_parameters(**USUAL | other)


def test_parameters_are_checked_against_a_users_file(tmp_path):
    file = tmp_path / "sensors.csv"
    real_table().to_csv(file, index=False)
    own = USUAL | {"data": str(file)}
    experiments.check_parameters(**own | {"workers": [2, 3, 4]})
    with pytest.raises(ValueError, match="each of workers must be .* at most 4, got 5"):
        experiments.check_parameters(**own | {"workers": [5]})
    with pytest.raises(
        ValueError, match="a 10th of data must hold a window of width = 21 steps, got 20"
    ):
        experiments.check_parameters(**own | {"width": 21, "slide": 21})


@pytest.mark.parametrize("parts", [0, 1])
def test_sensors_that_are_hardly_ever_all_there_are_refused(tmp_path, parts):
    """No window would be whole, or those of one part only, which has no interval."""
    frame, file = real_table(), tmp_path / "sensors.csv"
    gaps = slice(len(frame) // 2 + parts * (len(frame) // 2 // 10), None, 3)
    frame.iloc[gaps, 2] = np.nan
    frame.to_csv(file, index=False)
    own = USUAL | {"data": str(file)}
    with pytest.raises(ValueError, match=f"data must have windows of 3 .* {frame.columns[2]!r} mi"):
        experiments.check_parameters(**own)
    experiments.check_parameters(**own | {"width": 2})


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """A plan whose workers have one and three sensors, each of its own ε."""
    place = tmp_path_factory.mktemp("plan")
    rng = np.random.default_rng(2)
    slow = lfilter([0.2], [1, -0.98], rng.normal(size=(6000, 1)), axis=0)
    values = 20 + [1, 2, 3, 4] * (slow + 0.05 * rng.normal(size=(6000, 4)))
    pd.DataFrame(values, columns=list("abcd")).to_csv(place / "sensors.csv", index=False)
    kept = dict.fromkeys(SCHEMA["required"]) | {"version": VERSION}
    kept["data"] = {"source": source_of(place / "sensors.csv")}
    kept["question"] = {
        "epsilon": dict(zip("abcd", [0.3, 0.6, 0.9, 1.2], strict=True)),
        **{"delta": 0.1, "window": 5, "slide": 5, "query": "mean"},
        **{"t_sla_ms": 100, "fixed_ms": 0, "per_tuple_ms": 1},
    }
    kept["assignment"], kept["checkpoints"] = [["b"], ["d", "a", "c"]], []
    kept["replay"] = [{"from": 0, "until": 5, "sensors": ["a"]}]
    (place / "plan.json").write_text(json.dumps(kept))
    return place / "plan.json"


def test_a_plan_streams_with_its_guard_and_a_killed_worker(spark, plan, tmp_path):
    experiments.check_parameters(**USUAL | {"plan": str(plan)})
    case = experiments.planned_case(plan, tmp_path)
    with pytest.raises(ValueError, match=r"workers, epsilon and delta are the plan's, got 2, 7\.0"):
        case.query(2, 7.0, 0.01, 100)
    query = case.planned_query(100)
    assert query.assignment.workers == ((1,), (0, 2, 3))
    assert query.requirement == Requirement(1.0, 0.1)
    assert query.steps == case.log.steps == 3000  # a thousand windows at least, where there are
    outage = Outage(1, 2100, 2110)
    table, streams = experiments.recovery_cost(spark, query, tmp_path / "s", [outage], ["guard"])
    row = table.iloc[0]
    assert row["aggregates_estimated"] == row["audited"] == 3 * 2
    assert row["within_epsilon"] >= 0.8
    assert row["largest_other_difference"] == 0
    assert [o.worker for o in streams["guard"].outages] == [1]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"data": "f.csv"}, "plan must not go with data, got '.*plan.json': it has its own"),
        ({"workers": [2], "epsilons": [1.0]}, "plan must not go with workers, epsilons"),
        ({"delta": 0.01, "slide": 2}, "plan must not go with delta, slide, got .*: it has its own"),
        ({"blocks": 2, "rows": 10}, "plan must not go with blocks, rows"),
        ({"plan": "none.json"}, "plan must name a file that aft plan wrote, got 'none.json'"),
        ({"plan": "long.json"}, "a 20th holds a window of 400 steps, got 6000 steps; plan for m"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(plan, monkeypatch, other, message):
    monkeypatch.chdir(plan.parent)
    kept = json.loads(plan.read_text())
    kept["question"] |= {"window": 400, "slide": 400}
    kept["replay"][0]["until"] = 400
    (plan.parent / "long.json").write_text(json.dumps(kept))
    with pytest.raises(ValueError, match=message):
        experiments.check_parameters(**USUAL | {"plan": str(plan)} | other)


@pytest.mark.parametrize(
    "odd",
    [
        {"dimensions": 7, "blocks": 7},  # no m of the document's, and nothing to estimate from
        {"epsilons": [0.01]},  # no worker is estimable
        {"workers": [1], "epsilons": [2.5]},  # one worker, estimated from nothing
        {"workers": [12, 12], "epsilons": [1e6], "rows": 3, "replications": 1},
    ],
    ids=str,
)
def test_odd_parameters_work_to_the_end(spark, without_spark, tmp_path, odd):
    sizes = {"dimensions": 12, "blocks": 2, "rows": 60, "replications": 3} | odd
    pipeline_steps = 12
    experiments.check_parameters(**USUAL | sizes | {"pipeline_steps": pipeline_steps})
    case = experiments.block_case(spark, tmp_path, seed=1, windows=Windows(3, 1), **sizes)
    grids = {name: experiments.grid(spark, case, name, 0.05, seed=1) for name in case.readings}
    grid = grids[experiments.ROWS]
    assert len(experiments.smallest_epsilons(block_model(12, 2), [2], 0.05)) == 1
    for axis in ("workers", "epsilon"):
        for value in ("estimable", "pooled"):
            figures.sweep(grid, axis, value, "title", start=0.65)
    coverage = experiments.coverage(grids, "greedy", case.workers[-1])
    figures.coverage(coverage, 0.05, case.workers[-1])
    shown = coverage.pivot(index="epsilon", columns="reading", values=["share", "low", "high"])
    shown.style.format(precision=4, na_rep="–").format_index("{:g}").to_html()
    settings = {"grid": grid, "delta": 0.05, "replications": case.replications}
    settings |= {name: sizes[name] for name in ("dimensions", "blocks")}
    assert len(judged(CLAIMS, settings)) == len(CLAIMS)

    query = case.query(case.workers[0], case.epsilons[-1], 0.05, pipeline_steps)
    outage = Outage(0, failure := int(0.7 * query.steps), failure + 6)
    cost, _ = experiments.recovery_cost(spark, query, tmp_path / "cost", [outage], ["model"])
    assert (cost["largest_other_difference"].fillna(0) == 0).all()
