"""Normal operation: the checkpoints are real, and methods differ in fault tolerance alone."""

import json

import numpy as np
import pytest

from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.documents.approximately_once.worker import Checkpoints, Worker
from aftlib.recovery_comparison import normal
from aftlib.recovery_comparison.experiments import NotebookParameters
from aftlib.recovery_comparison.normal import (
    UNPROTECTED,
    StoredSpark,
    checkpoints_name,
    normal_operation,
    protections,
)
from aftlib.recovery_comparison.recoveries import Coordinator, Sink
from aftlib.recovery_comparison.schemes import MODEL

WIDTH = 6


@pytest.mark.parametrize(("step", "first", "steps"), [(5, 0, 4), (6, 6, 0), (11, 6, 4), (13, 6, 6)])
def test_a_worker_stores_its_running_window_at_each_checkpoint(tmp_path, step, first, steps):
    values = np.arange(48.0).reshape(24, 2)
    log = SensorLog.write(tmp_path / "log", values, ["a", "b"])
    stored = Checkpoints(tmp_path / "state.sqlite", every=2)
    worker = Worker(log, [1], Windows(WIDTH, WIDTH), checkpoints=stored)
    try:
        worker.wait()
        for until in range(1, step + 1, 2) if step % 2 else [step]:
            worker.advance(until)
            worker.receive()
        worker.advance(step)  # its answer comes after the checkpoint before
        worker.receive()
    finally:
        worker.stop()
    begin, samples = stored.load()
    assert begin == first
    assert samples.ravel().tolist() == values[first : first + steps, 1].tolist()


def test_checkpoints_are_due_strictly_between_two_steps():
    every = Checkpoints(None, every=4)
    assert [*every.inside(0, 12)] == [4, 8]
    assert [*every.inside(4, 9)] == [8]
    assert [*every.inside(3, 4)] == []


def test_intervals_divide_the_window_and_reach_each_step():
    assert [method.checkpoints for method in protections(24)][:4] == [0, 1, 4, 24]
    assert [method.checkpoints for method in protections(6)][:4] == [0, 1, 6, 0]


@pytest.fixture(scope="module")
def case():
    p = NotebookParameters(windows=[WIDTH], rates=[150.0], kills=2)
    return p.read_case(WIDTH)


def test_all_methods_emit_every_window_exactly_once_in_each_turn(case, tmp_path, monkeypatch):
    sinks = []
    intervals = []

    def coordinator(*given, **named):
        intervals.append(named["checkpoint_folder"] and named["checkpoint_every"])
        return Coordinator(*given, **named)

    monkeypatch.setattr(normal, "PORTION", 10)
    monkeypatch.setattr(normal, "Coordinator", coordinator)
    monkeypatch.setattr(normal, "Sink", lambda path: sinks.append(Sink(path)) or sinks[-1])
    frame = normal_operation(case, tmp_path / "normal", turns=2)
    names = [method.name for method in protections(WIDTH)]
    assert intervals == [None, 6, 1, None, None, None]
    assert frame["method"].unique().tolist() == names
    assert frame["turn"].tolist() == [1, 2] * len(names)
    assert (frame["per_s"] > 0).all() and (frame["latency_s"] > 0).all()
    assert {UNPROTECTED, checkpoints_name(1), MODEL} <= {*names}
    for sink in sinks:
        results = sink.results().pivot(index="window", columns="sensor", values="value")
        assert np.allclose(results, normal.repeated(case, 30).truth)
        assert (sink.results()["writes"] == 1).all()
    last, _ = Checkpoints(tmp_path / "normal" / "2" / "1.sqlite", 1).load()
    assert last == 30 * WIDTH
    stored = sorted(path.name for path in (tmp_path / "normal").glob("*/[0-9].sqlite"))
    assert (
        stored == ["0.sqlite"] * 2 + ["1.sqlite"] * 2
    )  # two methods with checkpoints, two workers


def test_a_stream_that_is_longer_than_the_data_begins_again(case):
    longer = normal.repeated(case, 2 * len(case.truth) + 1)
    assert np.array_equal(longer.truth, np.concatenate([case.truth, case.truth, case.truth[:1]]))
    assert np.array_equal(longer.history, case.history, equal_nan=True)


def test_the_stored_runs_on_spark_are_read_if_they_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(normal, "project_root", lambda: tmp_path)
    assert StoredSpark.read() is None
    folder = tmp_path / "benchmarks" / "results"
    folder.mkdir(parents=True)
    run = {"speed_to_plain_spark": 0.4}
    (folder / "pipeline.json").write_text(json.dumps({"date": "2026-01-02", "known_model": [run]}))
    assert StoredSpark.read() == StoredSpark("2026-01-02", (0.4,))
