"""What a driver is told to do comes back from disk as it was, and nothing on disk is unpickled."""

from dataclasses import replace

import numpy as np
import pytest

from aftlib.checkpoint_planning.driver import read_task, write_task
from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog

MODEL = GaussianModel([1 / 3, -2], [[0.1, 0.05], [0.05, 0.7]], names=["süd", "nord"])
QUERY = ReplayQuery(MODEL, 7, Requirement(0.3, 0.05), RecoveryTime(1 / 7, 0.1), 2 / 3)


@pytest.mark.parametrize("query", [QUERY, replace(QUERY, method="no-relaxation", query="sum")])
def test_a_task_comes_back_to_the_last_bit(tmp_path, query):
    log = SensorLog.write(tmp_path / "log", np.zeros((7, 2)), list(MODEL.names))
    write_task(tmp_path / "task", query, log)
    found, again = read_task(tmp_path / "task")
    assert found.fingerprint == query.fingerprint
    assert (again.path, again.names) == (log.path.absolute(), log.names)


def test_a_pickle_in_a_tasks_place_is_refused(tmp_path):
    np.savez(tmp_path / "task.npz", rest=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_task(tmp_path)
