"""A driver reads its task from disk as it was written, and unpickles nothing."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from aftlib.checkpoint_planning import driver
from aftlib.checkpoint_planning.driver import read_task, write_task
from aftlib.checkpoint_planning.operator import ReplayQuery, prepare
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.spark.checkpoint import QueryDirectory

MODEL = GaussianModel([1 / 3, -2], [[0.1, 0.05], [0.05, 0.7]], names=["süd", "nord"])
QUERY = ReplayQuery(MODEL, 7, Requirement(0.3, 0.05), RecoveryTime(1 / 7, 0.1), 2 / 3)


NUMPY = {"window": np.int64(7), "recovery_time": RecoveryTime(np.float64(1 / 7), np.float64(0.1))}


@pytest.mark.parametrize(
    "query",
    [QUERY, replace(QUERY, method="no-relaxation", query="sum"), replace(QUERY, **NUMPY)],
)
def test_a_task_comes_back_to_the_last_bit(tmp_path, query):
    log = SensorLog.write(tmp_path / "log", np.zeros((7, 2)), list(MODEL.names))
    write_task(tmp_path / "task", query, log)
    task_query, again = read_task(tmp_path / "task")
    assert task_query.fingerprint == query.fingerprint
    assert (again.path, again.names) == (log.path.absolute(), log.names)


def test_a_pickle_in_a_tasks_place_is_refused(tmp_path):
    np.savez(tmp_path / "task.npz", rest=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_task(tmp_path)


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
    write_task(tmp_path / "task", query, log)
    with QueryDirectory(tmp_path / "task").locked():
        alive = prepare(query, log, tmp_path / "task")
        alive.store.begin(0, 0, alive.process_id)
        with pytest.raises(TimeoutError, match="is held by process .*: wait until it has ended"):
            driver.main(str(tmp_path / "task"), "bare")
        assert alive.store.records() == []
    driver.main(str(tmp_path / "task"), "bare")
    assert [record.recovered for record in alive.store.records()][0]


def test_a_recovery_loads_no_pandas(tmp_path):
    """It takes longer to load than the recovery itself."""
    log = SensorLog.write(tmp_path / "log", np.zeros((14, 2)), list(MODEL.names))
    query = ReplayQuery(MODEL, 7, Requirement(0.3, 0.05), RecoveryTime(0.1, 0.01), 1)
    write_task(tmp_path / "task", query, log)
    prepare(query, log, tmp_path / "task").store.begin(0, 0, "a crashed one")
    code = (
        "import sys; from pathlib import Path; from aftlib.checkpoint_planning import driver; "
        "place = Path(sys.argv[1]); print(driver.prepare(*driver.read_task(place), place)"
        ".recover(), 'pandas' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "task")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False"], done.stderr
