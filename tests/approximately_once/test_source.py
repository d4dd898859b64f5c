"""Input splits of a sensor log: where micro-batches end, and what each worker reads."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from aftlib.approximately_once.operator import SensorSplits, Worker
from aftlib.approximately_once.sink import Outage, WindowSink
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.faults import Injector

VALUES = np.arange(200.0).reshape(50, 4)


@pytest.fixture
def splits(tmp_path):
    SensorLog.write(tmp_path / "log", VALUES, "abcd")
    return SensorSplits(
        log=str(tmp_path / "log"),
        sink=str(tmp_path / "sink.sqlite"),
        worker=Worker(Windows(10, 5), Injector(tmp_path / "faults"), tmp_path / "messages"),
        every=20,
        workers=[[0, 2], [1, 3]],
        approximate=[True, False],
        outages=[(0, 25, 31), (1, 26, 30)],
        end=50,
    )


def test_batches_end_at_multiples_and_at_the_end(splits):
    assert [splits.next_boundary(at) for at in (0, 20, 40, 50)] == [20, 40, 50, 50]


def test_a_split_begins_with_the_first_window_that_is_due(splits):
    assert [s.begin for s in splits.partitions(0, 20)] == [0, 0]
    assert [s.begin for s in splits.partitions(20, 40)] == [15, 15]
    assert [s.resume for s in splits.partitions(0, 20)] == [20, None]
    assert [s.resume for s in splits.partitions(20, 40)] == [31, None]


def test_what_an_outage_took_is_not_read_again(splits):
    WindowSink(splits.sink).write([], [Outage(0, 25, 31)])
    assert [s.begin for s in splits.partitions(40, 50)] == [35, 35]
    assert [s.begin for s in splits.partitions(20, 40)] == [31, 15]


def test_while_lost_windows_are_due_nobody_else_is_estimated(splits):
    both = replace(splits, approximate=[True, True])
    assert [s.resume for s in both.partitions(20, 40)] == [31, 30]
    WindowSink(splits.sink).write([], [Outage(0, 25, 31)])
    assert [s.resume for s in both.partitions(20, 40)] == [31, None]
    assert [s.resume for s in both.partitions(40, 50)] == [50, 50]


def test_the_process_of_a_source_starts_quickly():
    """One starts with every stream, and loads neither the models nor the tables of the driver."""
    script = "import sys, aftlib.approximately_once.operator as s; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "aftlib.approximately_once.operator" in loaded.stdout.split()
    assert not {"scipy", "pandas", "aftlib.core.gaussian"} & set(loaded.stdout.split())
