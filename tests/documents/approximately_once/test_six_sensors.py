"""Fig. 8 as a stream: a worker process is killed, and Spark estimates what it lost."""

import multiprocessing

import numpy as np
import pytest

from aftlib.core.requirement import Requirement
from aftlib.documents.approximately_once import six_sensors as module
from aftlib.documents.approximately_once.six_sensors import (
    FIGURE_8,
    MODEL,
    WINDOWS,
    six_sensors,
    write_log,
)


def test_the_log_has_the_windows_of_the_figure(tmp_path):
    log = write_log(tmp_path / "log")
    means, _ = WINDOWS.aggregate(log.read(None, 0, 30), 0, range(5))
    np.testing.assert_allclose(means, FIGURE_8, atol=1e-12)


def test_the_killed_workers_windows_are_estimated_by_equation_1(spark, tmp_path):
    table = six_sensors(spark, tmp_path, failure=16, recovery=19)
    assert not table.duplicated(["start", "sensor"]).any() and len(table) == FIGURE_8.size
    lost = table[table["state"] == "estimated"]
    assert lost["start"].tolist() == [10] * 3 + [15] * 3
    assert lost["sensor"].tolist() == ["X4", "X5", "X6"] * 2
    rest = table[table["state"] == "exact"]
    assert len(rest) == 24 and (rest["samples"] == 1).all()
    np.testing.assert_allclose(rest["value"], rest["truth"], atol=1e-12)
    for start, rows in lost.groupby("start"):
        posterior = MODEL.condition(FIGURE_8.loc[start, ["X1", "X2", "X3"]])
        np.testing.assert_allclose(rows["value"], posterior.mean, atol=1e-9)
        half_width = Requirement(1.0, 0.05).half_width(posterior.variance)
        np.testing.assert_allclose(rows["half_width"], half_width, atol=1e-9)
        assert (np.abs(rows["value"] - rows["truth"]) <= rows["half_width"]).all()


@pytest.mark.parametrize("failing", [0, 2])  # before the injected failure, and after it
def test_an_error_leaves_neither_workers_nor_a_query(spark, tmp_path, monkeypatch, failing):
    true = module.advance
    calls = []

    def advance(workers, steps):
        calls.append(workers)
        if len(calls) > failing:
            raise RuntimeError("injected")
        true(workers, steps)

    monkeypatch.setattr(module, "advance", advance)
    with pytest.raises(RuntimeError, match="injected"):
        six_sensors(spark, tmp_path, failure=16, recovery=19)
    assert not any(worker.process.is_alive() for workers in calls for worker in workers)
    assert not multiprocessing.active_children()
    assert not spark.streams.active
