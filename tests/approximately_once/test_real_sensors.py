"""Real sensors with gaps in nearly every row, or with few rows, still have a model."""

import numpy as np
import pandas as pd
import pytest

from aftlib.approximately_once import experiments
from aftlib.approximately_once.experiments.cases import fitted
from aftlib.core.datasets import even_grid
from aftlib.core.windows import Windows


def table(rows, gaps):
    rng = np.random.default_rng(4)
    values = rng.normal(size=(rows, 1)) + 0.3 * rng.normal(size=(rows, 60))
    values[rng.random(values.shape) < gaps] = np.nan
    return even_grid(pd.DataFrame(values, columns=[f"s{i}" for i in range(60)]))


def test_gaps_in_nearly_every_row_leave_no_row_out():
    model, test, left_out = fitted(table(400, gaps=0.05))
    assert (model.size, len(test.values), left_out) == (60, 200, 0)
    assert model.covariance[0, 1] == pytest.approx(1, abs=0.35)


def test_fewer_rows_than_sensors_are_enough():
    model, test, left_out = fitted(table(40, gaps=0))
    assert (model.size, len(test.values), left_out) == (60, 20, 0)
    assert 0.4 < model.covariance[0, 1] < 1.6


def test_complete_rows_serve_alone_where_they_are_many():
    assert fitted(table(60_000, gaps=0.02))[2] > 10_000


def test_how_a_file_is_read_is_told_by_parameters(tmp_path):
    rng = np.random.default_rng(4)
    values = rng.normal(size=(400, 1)) + 0.3 * rng.normal(size=(400, 4))
    frame = pd.DataFrame(values, columns=list("abcd"))
    late = np.cumsum(rng.integers(58, 63, 400))  # jitter that only resampling bears
    frame.insert(0, "at", pd.Timestamp("2026-01-01") + pd.to_timedelta(late, unit="s"))
    frame["note"] = "text"
    frame.to_csv(file := tmp_path / "jitter.csv", index=False)
    reading = {"time": "at", "resample": "5min", "drop": ["note"]}
    cases = [
        experiments.sensor_case(file, tmp_path, Windows(3, 3), **(reading | more))
        for more in ({}, {"resample": "10min"}, {"drop": ["note", "a"]})
    ]
    assert [case.log.steps for case in cases] == pytest.approx([40, 20, 40], abs=1)
    assert [len(case.log.names) for case in cases] == [4, 4, 3]
    with pytest.raises(ValueError, match="note"):
        experiments.sensor_case(file, tmp_path, Windows(3, 3), time="at", resample="5min")
