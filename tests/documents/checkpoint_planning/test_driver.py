"""Drivers are killed and started again; a query has one identity in all of them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.storage import locked
from aftlib.documents.checkpoint_planning import drivers
from aftlib.documents.checkpoint_planning.operator import (
    ReplayQuery,
    bare_read,
    driver,
    open_operator,
)
from aftlib.documents.checkpoint_planning.plan import RecoveryTime

MODEL = GaussianModel([1 / 3, -2], [[0.1, 0.05], [0.05, 0.7]], names=["süd", "nord"])
QUERY = ReplayQuery(MODEL, 7, Requirement(0.3, 0.05), RecoveryTime(1 / 7, 0.1), 2 / 3)


NUMPY = {"window": np.int64(7), "recovery_time": RecoveryTime(np.float64(1 / 7), np.float64(0.1))}


def test_a_query_is_known_by_its_values_and_not_by_their_types():
    assert replace(QUERY, **NUMPY).fingerprint == QUERY.fingerprint
    others = [{"window": 8}, {"t_sla_ms": 0.7}, {"method": "exactly-once"}, {"query": "sum"}]
    others += [{"requirement": Requirement(0.3, 0.06)}, {"recovery_time": RecoveryTime(0, 0.1)}]
    others += [{"model": GaussianModel(MODEL.mean, MODEL.covariance, names=["a", "b"])}]
    others += [{"model": GaussianModel(MODEL.mean + 1e-15, MODEL.covariance, MODEL.names)}]
    fingerprints = {replace(QUERY, **change).fingerprint for change in others}
    assert len(fingerprints) == len(others)
    assert QUERY.fingerprint not in fingerprints


def test_a_driver_does_not_recover_from_one_that_still_runs(tmp_path):
    log = SensorLog.write(tmp_path / "log", np.zeros((14, 2)), list(MODEL.names))
    query = ReplayQuery(MODEL, 7, Requirement(0.3, 0.05), RecoveryTime(0.1, 0.01), 1)
    with locked(tmp_path / "task"):
        alive = open_operator(query, log, tmp_path / "task")
        alive.store.begin(0, alive.process_id)
        with pytest.raises(TimeoutError, match="is held by another driver, .*: wait"):
            driver(query, log, tmp_path / "task").__enter__()
        assert alive.store.records().empty
    with driver(query, log, tmp_path / "task") as operator:
        operator.finish(bare_read(log))
    assert alive.store.records()["recovered"][0]


def query(**changed):
    """Two groups of three sensors: some are replayed and some estimated."""
    model = block_model(6, 2, 4, 3)
    settings = {"requirement": Requirement(0.45, 0.05), "recovery_time": RecoveryTime(0, 1)}
    return ReplayQuery(**{"model": model, "window": 24, "t_sla_ms": 20} | settings | changed)


def test_one_chain_of_drivers_is_killed_in_window_after_window(tmp_path):
    """Each kill hits an interval of which some sensors are replayed and some estimated."""
    killed_query = query()
    values = draw(killed_query.model, 96, 1)
    log = SensorLog.write(tmp_path / "log", values, killed_query.model.names)
    frame = drivers.kill_drivers(killed_query, log, tmp_path / "killed", 3, 1)
    assert frame["recovered"].all() and frame["sensors"].between(1, 5).all()
    assert frame["batch"].is_monotonic_increasing and frame["batch"].is_unique
    assert (frame["tuples"] <= 20).all() and (frame["stop"] % 24 > 0).all()
    assert (frame[["res_ms", "rep_ms", "est_ms"]] > 0).all(axis=None)
    parts = frame[["res_ms", "rep_ms", "est_ms"]].sum(axis=1)
    np.testing.assert_allclose(parts, frame["total_ms"])
    np.testing.assert_allclose(frame["fitted_ms"], frame["tuples"] / 1.5)
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["0"]
    nothing = drivers.kill_drivers(
        query(requirement=Requirement(1e-6, 0.05)), log, tmp_path / "exact", 3, 1
    )
    assert nothing.empty


def test_t_sla_is_fixed_before_the_kills_that_are_judged(tmp_path, monkeypatch):
    asked = []

    def kill(pilot, log, scratch, count, seed):
        asked.append((pilot.t_sla_ms, count))
        return pd.DataFrame({"tuples": [10.0, 20.0], "total_ms": [3.0, 4.0]})

    monkeypatch.setattr(drivers, "kill_drivers", kill)
    fitted = drivers.query_from_pilots(query(window=100_000), None, tmp_path, 1)
    assert asked == [(10_000, 10), (100_000, 10)]
    assert fitted.t_sla_ms == pytest.approx(1.5 * (2 + 0.1 * 10_000))
    assert fitted.recovery_time(10_000) == fitted.t_sla_ms


def test_pilots_of_short_windows_are_killed_at_checkpoints_inside(tmp_path):
    short = query(window=64, requirement=Requirement(0.28, 0.05))
    log = SensorLog.write(tmp_path / "log", draw(short.model, 192, 1), short.model.names)
    fitted = drivers.query_from_pilots(short, log, tmp_path / "pilots", 1)
    assert fitted.recovery_time(24) == pytest.approx(fitted.t_sla_ms)
    unhit = query(requirement=Requirement(1e-6, 0.05))
    assert drivers.query_from_pilots(unhit, log, tmp_path / "unhit", 1) == unhit
    nothing = drivers.kill_drivers(unhit, log, tmp_path / "none", 3, 1)
    parts = nothing[["res_ms", "rep_ms", "est_ms", "total_ms", "t_sla_ms"]]
    assert parts.quantile([0.5, 0.95]).isna().all(axis=None)


def test_a_driver_that_ends_otherwise_is_an_error(tmp_path):
    log = SensorLog.write(tmp_path / "log", np.zeros((24, 6)), query().model.names)
    with pytest.raises(RuntimeError, match="must end with exit status -9 .*, got 0: see its"):
        drivers.run_driver(tmp_path / "task", query(), log, ("planned", 99))


def test_a_driver_reports_the_batches_that_it_committed_and_its_kill(tmp_path):
    log = SensorLog.write(tmp_path / "log", draw(query().model, 48, 1), query().model.names)
    first = drivers.run_driver(tmp_path / "task", query(), log, ("replayed", 0))
    assert first.batches == () and first.killed_at > 0
    with pytest.raises(ValueError, match="a driver must commit a batch, got none: kill it later"):
        first.first_batch  # noqa: B018
    second = drivers.run_driver(tmp_path / "task", query(), log, None)
    assert np.isnan(second.killed_at)
    assert [batch.batch for batch in second.batches] == [*range(len(second.batches))]
    number, *times = vars(second.first_batch).values()
    assert number == 0 and times == sorted(times) and times[0] > first.killed_at
