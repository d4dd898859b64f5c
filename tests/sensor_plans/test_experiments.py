"""Parameters that pass can be run to the end; troubles disturb the streams as documented."""

import numpy as np
import pandas as pd
import pytest

from aftlib.sensor_plans.experiments import (
    AIR,
    BEIJING,
    TROUBLES,
    NotebookParameters,
    draw_trouble,
    generate_air,
    over_time,
    plans,
    troubles,
)
from aftlib.sensor_plans.plan import plan
from aftlib.sensor_plans.planfile import write_plan
from tests.refusals import refused

test_parameters_that_cannot_be_run_are_refused = refused(
    lambda change: NotebookParameters(**change),
    ({"seed": -1}, "seed must be at least 0, got -1"),
    ({"rounds": 599}, "rounds must be at least 600, got 599"),
    ({"plan": "p.json", "data": "f.csv"}, "plan must not be given with data, got 'p.json'"),
    ({"data": 7}, "data must fit .*got 7: give a CSV or Parquet file"),
    ({"plan": "none.json"}, "plan must name a file that this version of aft plan wrote, got 'none"),
)


def test_a_file_alone_and_a_plan_alone(tmp_path):
    generate_air(2000, 1).to_csv(tmp_path / "one.csv")
    (made,) = plans(NotebookParameters(data=str(tmp_path / "one.csv"))).values()
    write_plan(made, tmp_path / "plan.json")
    (stored,) = plans(NotebookParameters(plan=str(tmp_path / "plan.json"))).values()
    assert stored["data"]["name"] == "one.csv"
    assert stored["backtest"] == made["backtest"]
    assert stored["backtest"] == plan(generate_air(2000, 1))["backtest"]


def test_without_files_the_first_set_is_real():
    made = plans(NotebookParameters(rows=2000, window=50))
    assert list(made) == [BEIJING, AIR]
    assert made[BEIJING]["data"]["steps"] == 35_064
    assert made[BEIJING]["sensors"][0]["name"] == "Aotizhongxin"


def test_the_generated_set_is_the_same_for_a_seed():
    one = generate_air(500, 1)
    pd.testing.assert_frame_equal(one, generate_air(500, 1))
    assert 0.005 < one.isna().mean().mean() < 0.04
    assert not np.array_equal(generate_air(500, 2), one)


def test_troubles_begin_in_the_middle():
    calm = {trouble: draw_trouble(trouble, 1000, np.random.default_rng(1)) for trouble in TROUBLES}
    drift, stuck, noisy = (calm[trouble] for trouble in TROUBLES)
    np.testing.assert_array_equal(drift[:500], stuck[:500])
    np.testing.assert_array_equal(drift[:500], noisy[:500])
    assert (stuck[500:, :2] == stuck[499, :2]).all()
    assert not (stuck[500:, 2:] == stuck[499, 2:]).any()
    assert (drift[-100:, :2] - drift[-100:, 2:4]).mean() > 8
    apart = noisy - noisy.mean(axis=1, keepdims=True)
    assert apart[500:].std() == pytest.approx(3 * apart[:500].std(), rel=0.1)
    with pytest.raises(ValueError, match="trouble must be one of drift, stuck sensors"):
        draw_trouble("fire", 1000, np.random.default_rng(1))


def test_the_guard_withdraws_where_the_baseline_model_goes_on():
    walks = troubles(1200, 0.05, 1)
    parts = over_time(walks)
    assert set(parts["trouble"]) == set(TROUBLES) and parts["window"].min() == 600
    late = parts[parts["window"] > 700].drop(columns="window")
    late = late.groupby(["trouble", "method"]).mean()
    for trouble in TROUBLES:
        assert late.loc[(trouble, "baseline model Σ/w"), "within"] < 0.75
        assert walks[trouble].excess <= 0
    assert late.loc[("drift", "guard"), "within"] > 0.95
    assert late.loc[("change of regime", "guard"), "declared"] < 0.1
