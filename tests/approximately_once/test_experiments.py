"""D1's experiments give the document's tables, and every number a slow twin's."""

import numpy as np
import pandas as pd
import pytest

from aftlib.approximately_once import experiments as d1
from aftlib.approximately_once.assignment import assign_greedy
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.windows import Windows


def test_two_variables_by_hand():
    model = GaussianModel([18.0, 19.0], [[4.0, 3.0], [3.0, 4.0]])
    curves = d1.two_variables(model, 20.0).set_index("curve")
    peak = curves.loc["X1 given X2"].set_index("x")["density"]
    assert peak.idxmax() == pytest.approx(18.75, abs=0.05)
    assert peak.max() == pytest.approx(1 / np.sqrt(2 * np.pi * 1.75), rel=1e-3)
    assert curves.loc["X1"]["density"].max() == pytest.approx(1 / np.sqrt(8 * np.pi), rel=1e-3)


def test_figure_8_comes_out_of_the_pipeline(spark, tmp_path):
    six = d1.six_sensors(spark, tmp_path, failure=16, recovery=19)
    lost = six.table[six.table["estimated"]]
    assert set(zip(lost["start"], lost["key"], strict=True)) == {
        (start, key) for start in (10, 15) for key in ("X4", "X5", "X6")
    }
    rest = six.table[~six.table["estimated"]]
    assert len(rest) == 24
    np.testing.assert_allclose(rest["value"], rest["truth"], atol=1e-12)
    assert (lost["half_width"] < 1).all()


def test_smallest_epsilons_are_the_digests():
    case_model = d1.cases.block_model()
    table = d1.smallest_epsilons(case_model, [2, 12, 24, 60], 0.05)
    np.testing.assert_allclose(table["h-best"], [0.6686, 0.6471, 0.6471, 0.6471], atol=5e-5)
    np.testing.assert_allclose(table["h-worst"], [1.96, 0.7524, 0.6619, 0.6497], atol=5e-5)


@pytest.fixture(scope="module")
def case(spark, tmp_path_factory):
    sizes = {"dimensions": 12, "blocks": 2, "rows": 300, "replications": 3, "seed": 1}
    lists = {"windows": Windows(3, 1), "workers": [3, 6], "epsilons": [0.5, 0.75]}
    return d1.block_case(spark, tmp_path_factory.mktemp("data"), **sizes, **lists)


@pytest.mark.parametrize("reading", [d1.ROWS, d1.WINDOWS])
def test_grid_is_the_slow_twins(spark, case, reading):
    grid = d1.grid(spark, case, reading, 0.05, seed=1, draws=2)
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
    grid = d1.grid(spark, case, d1.ROWS, 0.05, seed=1)
    counted = grid.dropna(subset="pooled")
    assert (counted["pooled_low"] <= 0.05).all()
    assert (counted["pooled_low"] <= counted["pooled"]).all()


def test_grid_needs_replications_and_windows(spark, case):
    none = d1.Case(**{**vars(case), "replications": 0})
    with pytest.raises(ValueError, match="replications must be at least 1, got 0"):
        d1.grid(spark, none, d1.ROWS, 0.05, 1)
    many = d1.Case(**{**vars(case), "replications": 999})
    with pytest.raises(ValueError, match="log must hold a window of 3 steps in each of 1000 parts"):
        d1.grid(spark, many, d1.WINDOWS, 0.05, 1)


def test_recovery_cost_compares_three_runs(spark, case, tmp_path):
    query = case.query(6, 0.75, 0.05, 120)
    table, runs = d1.recovery_cost(spark, query, tmp_path, d1.recovery.Outage(0, 50, 60))
    by = table.set_index("recovery")
    assert by.loc["none", "aggregates_estimated"] == by.loc["exact", "aggregates_estimated"] == 0
    assert by.loc["approximate", "aggregates_estimated"] > 0
    assert by.loc["exact", "samples_read_again"] > by.loc["approximate", "samples_read_again"]
    assert (by["largest_other_difference"] == 0).all()
    assert runs["exact"].outages == []


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
    case = d1.sensor_case(file, tmp_path / "data", Windows(5, 5), None, None, parts=4)
    assert case.workers == (2, 4)
    assert case.about["incomplete rows left out of the fit"] == 1
    assert case.log.steps == 200
    grids = {name: d1.grid(spark, case, name, 0.05, seed=1) for name in case.readings}
    assert (grids[d1.ROWS]["windows"] == 199).all()  # one row misses a sample
    assert (grids[d1.WINDOWS]["windows"] == 39).all()
    coverage = d1.coverage(grids, "greedy", 4)
    assert ((coverage["low"] <= coverage["share"]) & (coverage["share"] <= coverage["high"])).all()
    again = d1.sensor_case(file, tmp_path / "data", Windows(5, 5), None, None)
    assert again.log.path == case.log.path


def test_verdicts_settle_all_five_claims(spark, case):
    grid = d1.grid(spark, case, d1.ROWS, 0.05, seed=1)
    settled = d1.verdicts(grid, 0.05, case.replications)
    assert [s.id for s in settled] == [f"D1-{i}" for i in range(1, 6)]
    promise = settled[2]
    assert promise.verdict == "holds"
    broken = grid.assign(pooled=0.5, pooled_low=0.49, pooled_high=0.51)
    assert d1.verdicts(broken, 0.05, case.replications)[2].verdict == "deviates"
