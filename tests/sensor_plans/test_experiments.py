"""Parameters that pass can be run to the end; troubles disturb the streams as documented."""

import numpy as np
import pandas as pd
import pytest

from aftlib.sensor_plans.experiments import (
    BEIJING,
    TROUBLES,
    NotebookParameters,
    draw_trouble,
    plan_sensors,
    read_table,
    stored_peers,
)
from aftlib.sensor_plans.plan import plan
from benchmarks import evidence
from tests.refusals import refused

test_parameters_that_cannot_be_run_are_refused = refused(
    lambda change: NotebookParameters(**change),
    ({"seed": -1}, "seed must be at least 0, got -1"),
    ({"rounds": 599}, "rounds must be at least 600, got 599"),
    ({"data": 7}, "data must fit .*got 7: give .*a CSV or Parquet file"),
)


def shown(**given):
    p = NotebookParameters(**given)
    return plan_sensors(p, read_table(p))


def test_a_file_alone_and_a_plan_alone(tmp_path):
    rng = np.random.default_rng(1)
    values = rng.normal(size=(2000, 1)) + 0.2 * rng.normal(size=(2000, 4))
    frame = pd.DataFrame(values, pd.date_range("2026-01-01", periods=2000, freq="h"), [*"abcd"])
    frame.to_csv(tmp_path / "one.csv", index_label="time")
    made = shown(data=str(tmp_path / "one.csv"))
    made.write(tmp_path / "plan.json")
    stored = shown(plan=str(tmp_path / "plan.json"))
    assert stored == made and stored.data.name == "one.csv"
    assert made.backtest == plan(frame).backtest


def test_without_a_file_the_plan_is_for_beijings_stations():
    made = shown(window=50)
    assert (made.data.name, made.data.steps) == (BEIJING, 35_064)
    assert made.sensors[0].name == "Aotizhongxin"


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


def test_the_package_has_the_stored_run_of_the_guard_and_its_peers():
    """After a new run: python -m benchmarks.evidence."""
    tabulated = evidence.tabulate_peers(evidence.read_result("guard_peers"))
    pd.testing.assert_frame_equal(stored_peers(), tabulated)
