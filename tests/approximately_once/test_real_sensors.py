"""Real sensors with gaps in nearly every row, or with few rows, still have a model."""

import numpy as np
import pandas as pd
import pytest

from aftlib.approximately_once.experiments.cases import fitted
from aftlib.core.datasets import even_grid


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
