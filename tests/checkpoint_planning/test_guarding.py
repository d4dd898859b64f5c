"""D2's guarantee on dependent steps: broken by the model with Σ/L, kept by the guard."""

import numpy as np
import pandas as pd
import pytest

from aftlib.checkpoint_planning import figures
from aftlib.checkpoint_planning.experiments import guarded
from aftlib.checkpoint_planning.experiments.guarded import SENSORS, WINDOW
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.core.gaussian import GaussianModel

COST, GRID = RecoveryTime(0, 1), (0, 10, 20)


@pytest.fixture(scope="module")
def values():
    return guarded.wandering(500, memory=0.9, seed=1)


@pytest.fixture(scope="module")
def frames(values):
    return guarded.guarded_windows(values, WINDOW, GRID, 0.5, 0.05, COST, 120)


def test_the_guard_keeps_the_guarantee_that_the_model_breaks(frames):
    table = guarded.guarantee_table(frames[0], 0.05).set_index(["method", "tau"])
    baseline, guard = table.loc["Σ/L"], table.loc["guard"]
    assert (baseline.loc[[10, 20], "within"] < 0.9).all()
    assert (baseline["worst_sensor"] < 0.9).all()
    assert (guard["within"] >= 0.95).all()
    assert (guard["within"] >= 1 - 0.05 - guard["slack"]).all()
    assert guard.loc[10, "estimated"] > 0.5
    assert baseline["slack"].isna().all()


def test_d2s_own_plan_is_that_of_the_model(frames, values):
    """One window and τ by hand."""
    x = values.reshape(500, WINDOW, SENSORS)
    model = GaussianModel.fit(values[: 250 * WINDOW])
    rows = frames[0].query("method == 'Σ/L' and tau == 10 and window == 300")
    limit = 0.5 * x[:250].mean(axis=1).std(axis=0)
    part = x[300, 10:].mean(axis=0)
    read = np.flatnonzero(~rows["estimated"])
    posterior = model.condition({model.names[i]: part[i] for i in read})
    for name, mean in zip(posterior.names, posterior.mean, strict=True):
        i = model.names.index(name)
        assert rows["wrong"].iloc[i] == (abs(mean - part[i]) * 20 / WINDOW > limit[i])

    rows = frames[0].query("method == 'Σ/L' and tau == 0 and window == 300")
    read = np.flatnonzero(~rows["estimated"]).tolist()
    allowed = (limit * WINDOW / 1.959964) ** 2  # of the window's sum
    assert (WINDOW * model.posterior_variance(read) <= allowed).all()
    assert len(read) == 1
    assert (WINDOW * model.covariance.diagonal() > allowed).any()


def test_every_plan_keeps_t_sla(frames):
    guarantees, plans = frames
    assert plans["window"].tolist() == list(range(250, 500))
    assert (plans["total_ms"] <= 120).all()
    assert len(set(plans["sensors"])) > 1  # new plans as accounts close
    shown = figures.guarded_plans(plans)
    assert list(shown.data[0].y) == plans["checkpoints"].tolist()
    curves = {trace.name: trace for trace in figures.guarantees(guarantees, 0.05, 10, over=1).data}
    one = guarantees.query("method == 'guard' and tau == 10").groupby("window")["estimated"].mean()
    np.testing.assert_allclose(curves["guard: estimated"].y, one)


def test_both_streams_fail_in_the_same_windows_and_what_is_read_is_exact(tmp_path):
    stream = guarded.generated_stream(guarded.wandering(110, 0.9, 1), 0.5, 0.05, COST, 120)
    pairs, audited = guarded.failing_streams(stream, tmp_path, seed=1)
    failed = [set(pairs.loc[pairs["method"] == method, "window"]) for method in ("Σ/L", "guard")]
    assert failed[0] == failed[1] and 15 < len(failed[0]) < 40 and min(failed[0]) >= 55
    assert len(pairs) == 2 * len(failed[0]) * SENSORS
    assert (pairs.loc[~pairs["estimated"], "off"] < 1e-9).all()
    guessed = pairs[pairs["estimated"]]
    assert set(guessed["method"]) == {"Σ/L", "guard"} and (guessed["off"] > 0).all()
    ours = guessed[guessed["method"] == "guard"]
    assert (audited.estimates, audited.wrong) == (len(ours), (ours["off"] > 1).sum())
    assert set(pairs["part"]) == {"all correlated", "one independent"}
    assert (pairs["window"] < 82).equals(pairs["part"] == "all correlated")
    table = guarded.stream_table(pairs, seed=1).set_index(["method", "part"])
    assert (table["exact"].dropna() == 1).all()
    drifted = guessed.query("method == 'Σ/L' and sensor == 11 and window >= 82")["off"] <= 1
    assert table.loc[("Σ/L", "one independent"), "worst_sensor"] == drifted.mean() < 0.7


def test_real_sensors_stream_in_units_of_epsilon(tmp_path):
    stream = guarded.real_stream(60, 0.5, 0.05, COST, 120)
    assert stream.values.shape == (60 * guarded.DAY, 12)
    days = stream.values[: 30 * guarded.DAY].reshape(30, guarded.DAY, 12)
    np.testing.assert_allclose(np.nanstd(np.nanmean(days, axis=1), axis=0), 1 / 0.5)
    pairs, _ = guarded.failing_streams(stream, tmp_path, seed=1)
    assert set(pairs["part"]) == {"stations in Beijing"} and pairs["window"].min() >= 30
    assert (pairs.loc[~pairs["estimated"], "off"] < 1e-9).all()


def test_the_stream_table_by_hand():
    cells = {"window": [7, 7, 8, 8], "sensor": [0, 1, 0, 1], "off": [0.5, 2.0, 0.1, 0.0]}
    pairs = pd.DataFrame(cells).assign(
        method="guard", part="all", estimated=[True, True, True, False]
    )
    (row,) = guarded.stream_table(pairs, seed=1).to_dict("records")
    assert (row["failures"], row["estimated"], row["within"]) == (2, 0.75, pytest.approx(2 / 3))
    assert (row["low"], row["high"]) == (0.5, 1.0)  # of one window again and again
    assert (row["worst_sensor"], row["exact"]) == (0.0, 1.0)
    nothing = guarded.stream_table(pairs.assign(estimated=False), seed=1).iloc[0]
    assert nothing["estimated"] == 0 and np.isnan(nothing[["within", "low"]].astype(float)).all()


def test_the_table_by_hand():
    rows = pd.DataFrame({"window": [5, 5, 6, 6], "sensor": [0, 1, 0, 1]})
    rows = rows.assign(method="guard", tau=3, estimated=[True, True, True, False])
    frame = rows.assign(wrong=[False, True, False, True])
    (row,) = guarded.guarantee_table(frame, 0.05).to_dict("records")
    assert (row["estimated"], row["within"]) == (0.75, pytest.approx(2 / 3))
    assert row["windows"] == 1.5
    assert row["slack"] == pytest.approx(5 / 1.5)
    assert np.isnan(row["worst_sensor"])  # of two windows
