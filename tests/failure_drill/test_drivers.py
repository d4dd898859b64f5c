"""D2's processes: how they end, and which batch has a step."""

import subprocess
import sys

import pytest

from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.failure_drill import drivers


def process(code):
    return subprocess.Popen([sys.executable, "-S", "-c", code], stderr=subprocess.PIPE)


def test_a_process_that_ends_otherwise_is_told_of():
    with pytest.raises(RuntimeError, match="driver must end with status 0, got 3; .* sorry"):
        drivers.ended(process("import os, sys; print('sorry', file=sys.stderr); os._exit(3)"), 0)


def test_a_process_without_end_is_ended(monkeypatch):
    monkeypatch.setattr(drivers, "PATIENCE_S", 0.2)
    with pytest.raises(RuntimeError, match="driver must end with status 0, got -9"):
        drivers.ended(process("import time; time.sleep(60)"), 0)


def test_what_has_ended_is_not_stalled(tmp_path):
    life = process("pass")
    life.wait()
    assert not drivers.stalled(life, tmp_path, 0, 0.1)
    life.communicate()


def test_a_step_lies_in_the_batch_of_its_interval(tmp_path):
    query = ReplayQuery(
        block_model(24, 3), 20, Requirement(0.8 / 20**0.5, 0.05), drivers.TUPLES, 72, "proposed"
    )
    assert query.first_plan.times == (0, 12, 20)
    batches = [drivers.batch_at(query, tmp_path, step) for step in range(60)]
    assert batches == [window * 2 + part for window in range(3) for part in [0] * 12 + [1] * 8]
