"""The one process beside the workers dies, and the next one goes on where it had come to."""

import signal
from subprocess import TimeoutExpired
from unittest.mock import MagicMock

import numpy as np
import pytest

from aftlib.failure_drill import coordinators
from aftlib.failure_drill.drill import tallied
from tests.failure_drill.in_process import Died, all_here


def lives(directory, status):
    """A driver in this process."""
    if status == -signal.SIGKILL:
        with pytest.raises(Died):
            coordinators.go_on(None, directory)
    else:
        coordinators.go_on(None, directory)


def test_the_next_driver_runs_the_micro_batch_again_that_was_not_known(
    small, tmp_path, monkeypatch
):
    all_here(monkeypatch)
    found = coordinators.kill_driver(small, tmp_path, lives)
    tally = tallied(found.part, found.came, np.random.default_rng(1))
    assert tally.due == found.part.truth.size == coordinators.BATCHES * 5 * 12
    assert (tally.lost, tally.doubled, tally.wrong, tally.estimated) == (0, 0, 0, 0)
    assert found.rows_again == small.every * 12 and found.fallen == 1
    assert (found.recoveries[["restart_ms", "rework_ms"]] > 0).all(axis=None)


def test_a_driver_that_ends_otherwise_is_told_of(small, tmp_path, monkeypatch):
    process = MagicMock(returncode=1)
    process.communicate.return_value = None, b"no Java"
    monkeypatch.setattr(coordinators.subprocess, "Popen", MagicMock(return_value=process))
    with pytest.raises(RuntimeError, match="driver must end with status -9, got 1; .* no Java"):
        coordinators.kill_driver(small, tmp_path)
    process.communicate.side_effect = TimeoutExpired("driver", 1), (None, b"no cores")
    process.returncode = -signal.SIGKILL  # by us, not by its fault
    with pytest.raises(RuntimeError, match=r"got -9 when it was killed after 300 s; .* no cores"):
        coordinators.kill_driver(small, tmp_path / "late")


def test_a_supervisor_dies_when_it_has_started_the_first_of_the_dead_again(small, monkeypatch):
    asked = MagicMock()
    monkeypatch.setattr(coordinators, "share", asked)
    coordinators.kill_supervisor(small, "place")
    (struck, place), named = asked.call_args
    assert (struck.strikes, place) == (small.strikes[:1], "place")
    assert struck.strikes[0].kills and named == {"supervisor": True}
