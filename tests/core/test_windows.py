"""Windows: their numbers, refused arguments, and one contract for every aggregate."""

import numpy as np
import pytest

from aftlib.core.gaussian import GaussianModel
from aftlib.core.windows import AGGREGATES, Aggregate, Windows
from tests.refusals import refused

test_bad_windows_are_refused = refused(
    lambda arguments: Windows(*arguments),
    ((0, 1), "width must be at least 1, got 0"),
    ((3, 0), "slide must be at least 1 and at most 3, got 0"),
    ((3, 4), "slide must be at least 1 and at most 3, got 4"),
    ((3, 1, "mode"), "query must be one of mean, sum, got 'mode'"),
    ((3, 1, ["sum"]), r"query must be one of mean, sum, got \['sum'\]"),
)


test_steps_must_cover_the_windows = refused(
    lambda steps, first: Windows(10, 5).aggregate(np.zeros((steps, 1)), first, range(1)),
    (9, 0, "values must cover the steps 0 … 9 of windows"),
    (20, 3, "first_step must be a multiple of 5 steps, got 3"),
)


TWINS = {"mean": np.nanmean, "sum": np.nansum}
STEP = GaussianModel([1.0, 2.0], [[1.0, 0.5], [0.5, 2.0]])


@pytest.fixture(params=AGGREGATES)
def name(request):
    return request.param


def test_parts_of_any_cut_are_the_whole_and_gaps_are_left_out(name):
    rng, aggregate = np.random.default_rng(1), AGGREGATES[name]
    values = rng.normal(size=(50, 3))
    values[rng.random(values.shape) < 0.3] = np.nan
    values[:, 2] = np.nan
    part, samples = np.full(3, aggregate.initial), np.zeros(3, int)
    for block in np.split(values, [0, 7, 7, 31]):
        added, number = aggregate.add(block)
        part, samples = aggregate.merge(part, added), samples + number
    results = aggregate.finish(part, samples)
    np.testing.assert_allclose(results[:2], TWINS[name](values[:, :2], axis=0))
    assert np.isnan(results[2]) and samples[2] == 0


def test_the_model_is_that_of_the_results(name):
    rng = np.random.default_rng(2)
    model = STEP.aggregate(4, name)
    windows = rng.multivariate_normal(STEP.mean, STEP.covariance, size=(20_000, 4))
    results = TWINS[name](windows, axis=1)
    off = (model.mean - results.mean(axis=0)) / results.std(axis=0)
    np.testing.assert_allclose(off, 0, atol=0.08)  # five standard errors of 4,000 draws
    np.testing.assert_allclose(model.covariance, np.cov(results.T), rtol=0.15)


@pytest.mark.parametrize(("name", "scale"), [("mean", 7), ("sum", 1)])
def test_a_linear_result_is_the_sum_over_its_divisor(name, scale):
    aggregate, values = AGGREGATES[name], np.arange(7.0)
    assert aggregate.divisor(7) == scale
    assert aggregate.of_mean(3.0, 7) == aggregate.finish(np.array([21.0]), np.array([7]))[0]
    whole = aggregate.extrapolate(TWINS[name](values[:3], keepdims=True), np.array([3]), 7)
    assert whole == 1.0 * 7 / scale


class Largest(Aggregate):
    """The maximum of the absolute values; a new aggregate needs no more than this."""

    initial, merge = 0.0, np.maximum

    def add(self, values, axis=0):
        return super().add(np.abs(values), axis)


def test_a_new_aggregate_is_one_class(monkeypatch):
    """Windows use it as soon as `AGGREGATES` has it."""
    monkeypatch.setitem(AGGREGATES, "largest", Largest())
    values = np.array([[1.0], [-4.0], [np.nan], [-2.0]])
    results, samples = Windows(2, 2, "largest").aggregate(values, 0, range(2))
    assert results.tolist() == [[4.0], [2.0]] and samples.tolist() == [[2], [1]]
