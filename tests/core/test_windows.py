"""Windows: which exist, what they aggregate, and what they refuse."""

import numpy as np
import pytest

from aftlib.core.windows import Windows


def test_figure_8s_windows():
    windows = Windows(10, 5)
    assert list(windows.ending_in(0, 15)) == [0, 1]
    assert list(windows.ending_in(15, 20)) == [2]


def test_mean_counts_the_samples_present():
    values = np.array([[1.0, np.nan], [3.0, np.nan], [np.inf, 5.0], [7.0, 1.0]])
    aggregates, samples = Windows(2, 1).aggregate(values, 0, range(3))
    np.testing.assert_array_equal(aggregates, [[2, np.nan], [3, 5], [7, 3]])
    np.testing.assert_array_equal(samples, [[2, 0], [1, 1], [1, 2]])


def test_sum():
    aggregates, _ = Windows(3, 3, "sum").aggregate(np.arange(12.0).reshape(6, 2), 0, range(2))
    np.testing.assert_array_equal(aggregates, [[6, 9], [24, 27]])


@pytest.mark.parametrize(("query", "fold"), [("min", np.fmin), ("max", np.fmax)])
def test_extremes_are_of_the_samples_present(query, fold):
    values = np.random.default_rng(0).normal(size=(14, 3))
    values[2:7, 0] = values[9, 1] = np.nan
    windows = Windows(4, 2, query)
    aggregates, samples = windows.aggregate(values, 0, range(6))
    wanted = [fold.reduce(values[2 * j : 2 * j + 4]) for j in range(6)]
    np.testing.assert_array_equal(aggregates, wanted)
    assert samples[:, 0].tolist() == [2, 0, 1, 3, 4, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "width must be at least 1 step, got 0"),
        ((3, 0), "slide must lie in 1 … width = 3, got 0"),
        ((3, 4), "slide must lie in 1 … width = 3, got 4; a larger slide would leave steps out"),
        ((3, 1, "mode"), "query must be 'mean', 'sum', 'min' or 'max', got 'mode'"),
        ((3, 1, ["sum"]), r"query must be 'mean', 'sum', 'min' or 'max', got \['sum'\]"),
    ],
)
def test_bad_windows_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Windows(*arguments)


def test_steps_must_cover_the_windows():
    with pytest.raises(ValueError, match=r"values must cover the steps 0 … 9 of windows"):
        Windows(10, 5).aggregate(np.zeros((9, 1)), 0, range(1))
    with pytest.raises(ValueError, match="first_step must be a multiple of 5 steps, got 3"):
        Windows(10, 5).aggregate(np.zeros((20, 1)), 3, range(1))
