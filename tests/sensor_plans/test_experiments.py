"""Parameters that pass can be run to the end; troubles disturb the streams as documented."""

import numpy as np
import pandas as pd
import pytest

from aftlib.core.planfile import write_plan
from aftlib.sensor_plans.experiments import (
    BEIJING,
    TROUBLES,
    NotebookParameters,
    draw_trouble,
    generate_air,
    over_time,
    plans,
    troubles,
)
from tests.refusals import refused

GOOD = {"rows": 3000, "rounds": 600}


test_parameters_that_cannot_be_run_are_refused = refused(
    lambda change: NotebookParameters(**(GOOD | change)),
    ({"rows": 50}, "window must leave at least 8 windows, got 5"),
    ({"seed": -1}, "seed must be at least 0, got -1"),
    ({"rounds": 599}, "rounds must be at least 600, got 599"),
    ({"plan": "p.json", "data": "f.csv"}, "plan must not be given with data, got 'p.json'"),
    ({"data": 7}, "data must fit .*got 7: give CSV or Parquet files"),
    ({"plan": "none.json"}, "plan must name a file that aft plan wrote, got 'none.json'"),
    ({"fixed_ms": -1}, "fixed_ms must be at least 0"),
    ({"time": "t"}, "time must be given with data, got {'time': 't'} without: give data=FILE"),
    ({"data": []}, r"data must name at least one file, got \[\]"),
    ({"data": "none.csv"}, "none.csv: path must be an existing file, got 'none.csv'"),
)


def test_files_by_name_and_a_plan_alone(tmp_path):
    table = generate_air(2000, 1)
    for name in ("one", "two"):
        frame = pd.DataFrame(table.values, table.time, table.names)
        frame.rename_axis("time").to_csv(tmp_path / f"{name}.csv")
    files = [str(tmp_path / f"{name}.csv") for name in ("one", "two")]
    one, two = plans(NotebookParameters(data=files)).values()
    assert (one["data"]["name"], two["data"]["name"]) == ("one.csv", "two.csv")
    assert one == two | {"data": one["data"]}
    write_plan(one, tmp_path / "plan.json")
    assert plans(NotebookParameters(plan=str(tmp_path / "plan.json"))) == {"one.csv": one}


def test_without_files_the_first_set_is_real():
    tables = NotebookParameters(**GOOD).tables()
    assert list(tables) == [BEIJING, "air"]
    real = tables[BEIJING]
    assert real.values.shape == (35_064, 12) and real.names[0] == "Aotizhongxin"
    assert np.isnan(real.values).mean() == pytest.approx(8_739 / real.values.size)


def test_two_files_of_one_name_are_refused(tmp_path):
    table = generate_air(300, 1)
    files = [tmp_path / part / "same.csv" for part in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        pd.DataFrame(table.values, table.time, table.names).rename_axis("time").to_csv(file)
    with pytest.raises(ValueError, match=r"files of different names, got .*same\.csv"):
        NotebookParameters(data=[str(file) for file in files])


def test_the_generated_set_is_the_same_for_a_seed():
    one, other = generate_air(500, 1).values, generate_air(500, 1).values
    np.testing.assert_array_equal(one, other)
    assert 0.005 < np.isnan(one).mean() < 0.04
    assert not np.array_equal(generate_air(500, 2).values, one)


def test_troubles_begin_in_the_middle():
    calm = {trouble: draw_trouble(trouble, 1000, np.random.default_rng(1)) for trouble in TROUBLES}
    drift, stuck, noisy = (calm[trouble] for trouble in TROUBLES)
    np.testing.assert_array_equal(drift[:500], stuck[:500])
    np.testing.assert_array_equal(drift[:500], noisy[:500])
    assert (stuck[500:, :2] == stuck[499, :2]).all() and not (
        stuck[500:, 2:] == stuck[499, 2:]
    ).any()
    assert (drift[-100:, :2] - drift[-100:, 2:4]).mean() > 8
    apart = noisy - noisy.mean(axis=1, keepdims=True)
    assert apart[500:].std() == pytest.approx(3 * apart[:500].std(), rel=0.1)
    with pytest.raises(ValueError, match="trouble must be one of drift, stuck sensors"):
        draw_trouble("fire", 1000, np.random.default_rng(1))


def test_the_guard_withdraws_where_the_baseline_model_goes_on():
    walks = troubles(1200, 0.05, 1)
    parts = over_time(walks)
    late = parts[parts["window"] > 700].groupby(["trouble", "method"]).mean()
    for trouble in TROUBLES:
        assert late.loc[(trouble, "baseline model Σ/w"), "within"] < 0.75
        assert walks[trouble].excess <= 0
    assert late.loc[("drift", "guard"), "within"] > 0.95
    assert late.loc[("change of regime", "guard"), "declared"] < 0.1
    assert set(parts["trouble"]) == set(TROUBLES)
    assert parts["window"].min() == 600
