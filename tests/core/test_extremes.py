"""Extremes of windows: estimates and half-widths hold on new windows."""

import numpy as np
import pytest
from scipy.stats import norm

from aftlib.core.extremes import (
    DrawnWindows,
    extreme_max_variance,
    extreme_reliability,
    most_likely_within,
)
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from tests.refusals import refused

MODEL = block_model(6, 2, 4.0, 3.6, mean=5.0)
REQUIREMENT = Requirement(0.6, 0.1)


def extreme_of(windows, query):
    return windows.max(axis=1) if query == "max" else windows.min(axis=1)


def some_windows(count, steps, seed):
    rng = np.random.default_rng(seed)
    return MODEL.mean + rng.standard_normal((count, steps, 6)) @ MODEL.cholesky.T


@pytest.fixture(scope="module", params=["min", "max"])
def extremes(request):
    return request.param, DrawnWindows(MODEL, 20, request.param, np.random.default_rng(1))


def test_moments_and_half_widths_are_those_of_new_windows(extremes):
    query, extremes = extremes
    results = extreme_of(some_windows(4000, 20, seed=2), query)
    np.testing.assert_allclose(extremes.mean, results.mean(axis=0), atol=0.08)
    np.testing.assert_allclose(extremes.covariance, np.cov(results.T), atol=0.12)
    for observed in ([1, 2, 3], [3], []):
        gain = extremes.gain(observed, [0])
        off = results - extremes.mean
        error = np.abs(off[:, 0] - (gain @ off[:, observed].T)[0])
        for delta in (0.5, 0.1, 0.02):
            half = extremes.half_width([0], observed, delta)[0]
            assert (error <= half).mean() == pytest.approx(1 - delta, abs=0.03)
        within = extremes.reliability([0], observed, 0.6)[0]
        assert within == pytest.approx((error <= 0.6).mean(), abs=0.04)


def test_peers_of_the_group_narrow_the_estimate_and_others_do_not(extremes):
    _, extremes = extremes
    near, far, none = (extremes.half_width([0], o, 0.1)[0] for o in ([1, 2], [3, 4, 5], []))
    assert extremes.half_width([0], [1], 1e-5)[0] == np.inf  # 4000 draws cannot tell
    assert near < 0.8 * none
    assert far == pytest.approx(none, rel=0.05)


@pytest.mark.parametrize("query", ["min", "max"])
@pytest.mark.parametrize("tau", [0, 8])
def test_the_likeliest_value_is_within_epsilon_as_often_as_its_reliability(query, tau):
    windows, observed, rest = some_windows(400, 12, seed=3), [0, 3], [1, 2, 4, 5]
    gain, variance = MODEL.gain(observed, rest), MODEL.posterior_variance(observed)[rest]
    truth = extreme_of(windows[:, :, rest], query)
    within, reliabilities, inside = [], [], []
    for window, true in zip(windows, truth, strict=True):
        means = MODEL.mean[rest] + (window[tau:, observed] - MODEL.mean[observed]) @ gain.T
        known = extreme_of(window[None, :tau, rest], query)[0] if tau else None
        value, reliability, half = most_likely_within(means, variance, REQUIREMENT, known, query)
        within.append(np.abs(value - true) <= REQUIREMENT.epsilon)
        inside.append(np.abs(value - true) <= half * (1 + 1e-9))
        reliabilities.append(reliability)
    assert np.mean(within) == pytest.approx(np.mean(reliabilities), abs=0.03)
    assert np.mean(inside) >= 1 - REQUIREMENT.delta - 0.02
    if tau == 0:  # a known extreme may be the answer for sure: then no width has exactly 1 − δ
        assert np.mean(inside) == pytest.approx(1 - REQUIREMENT.delta, abs=0.03)
    assert np.mean(within) >= extreme_reliability(REQUIREMENT, variance, 12 - tau).mean()


def test_no_other_value_is_likelier():
    rng = np.random.default_rng(4)
    means, requirement = rng.normal(size=(10, 1)), Requirement(0.3, 0.1)
    value, reliability, _ = most_likely_within(means, [0.25], requirement)
    maxima = (means[:, 0] + 0.5 * rng.standard_normal((60_000, 10))).max(axis=1)
    shares = [(np.abs(maxima - x) <= 0.3).mean() for x in np.linspace(-1, 4, 201)]
    assert reliability[0] == pytest.approx((np.abs(maxima - value) <= 0.3).mean(), abs=0.01)
    assert reliability[0] >= max(shares) - 0.01


def test_the_smaller_epsilon_the_nearer_is_the_likeliest_value_to_the_mode():
    x = np.linspace(0, 2, 200_001)
    density = 3 * norm.cdf(x) ** 2 * norm.pdf(x)  # of the maximum of three
    value, reliability, _ = most_likely_within(np.zeros((3, 1)), 1.0, Requirement(1e-9, 0.05))
    assert value[0] == pytest.approx(x[density.argmax()], abs=0.01)
    assert reliability[0] == pytest.approx(2e-9 * density.max(), rel=1e-3)


def test_a_sensor_is_looked_at_in_its_own_unit_whatever_the_others():
    """A sensor with large values once widened the search steps of all other sensors."""
    means, scale = np.random.default_rng(4).normal(size=(10, 2)), np.array([1, 1e5])
    both = most_likely_within(means * scale, 0.25 * scale**2, Requirement(0.3, 0.1))
    alone = most_likely_within(means[:, :1], [0.25], Requirement(0.3, 0.1))
    for joint, own in zip(both, alone, strict=True):
        assert joint[0] == pytest.approx(own[0], rel=1e-9)


def test_a_checkpoint_beyond_reach_is_the_answer():
    value, reliability, half = most_likely_within(np.zeros((5, 1)), [0.01], REQUIREMENT, [9.0])
    assert value[0] == pytest.approx(9, abs=REQUIREMENT.epsilon)
    assert reliability[0] == pytest.approx(1)
    assert half[0] <= REQUIREMENT.epsilon


@pytest.mark.parametrize("steps", [1, 10, 10_000])
def test_the_variance_of_a_step_that_suffices_is_exactly_so_by_the_bound(steps):
    variance = extreme_max_variance(REQUIREMENT, steps)
    assert extreme_reliability(REQUIREMENT, variance, steps) == pytest.approx(1 - REQUIREMENT.delta)
    assert variance <= extreme_max_variance(REQUIREMENT, 1) * (1 + 1e-12)
    assert extreme_max_variance(REQUIREMENT, 1) == pytest.approx(REQUIREMENT.max_variance)


test_what_cannot_be_drawn_is_refused = refused(
    lambda steps, query, draws: DrawnWindows(MODEL, steps, query, np.random.default_rng(0), draws),
    (0, "max", 100, "steps must be a whole number at least 1, got 0"),
    (5, "mean", 100, "query must be one of min, max.* got 'mean'"),
    (5, "max", 12, "draws must be a whole number at least 14, got 12"),
)
test_no_step_that_was_lost_is_no_question = refused(
    lambda n, query: most_likely_within(np.zeros((n, 3)), np.ones(3), REQUIREMENT, query=query),
    (0, "max", r"means must have shape \(steps, k\) .* got \(0, 3\)"),
    (1, "sum", "query must be one of min, max, got 'sum'"),
)
