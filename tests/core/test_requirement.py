"""Requirement: variance and reliability express the same condition."""

import numpy as np
import pytest
from scipy.stats import norm

from aftlib.core.requirement import Requirement
from tests.refusals import refused


def test_max_variance_is_where_reliability_is_one_minus_delta():
    requirement = Requirement(0.65, 0.05)
    assert requirement.max_variance == pytest.approx((0.65 / norm.ppf(0.975)) ** 2)
    assert requirement.reliability(requirement.max_variance) == pytest.approx(0.95, abs=1e-14)


def test_reliability_is_elementwise_and_one_without_variance():
    reliability = Requirement(1.0, 0.1).reliability([[0.0, 1.0], [4.0, 1e300]])
    assert reliability.shape == (2, 2)
    assert reliability[0, 0] == 1
    assert reliability[0, 1] == pytest.approx(norm.cdf(1) - norm.cdf(-1))
    assert reliability[1, 1] < 1e-100


def test_any_epsilon_has_a_largest_variance():
    assert Requirement(1e200, 0.05).max_variance == np.inf
    assert Requirement(1e-200, 0.05).max_variance == 0


LARGEST, INSIDE = "epsilon must be .*above 0, got {}; give the largest", "above 0 and below 1, got"

test_a_requirement_or_a_variance_that_is_none_is_refused = refused(
    lambda epsilon, delta, variance: Requirement(epsilon, delta).reliability([1.0, variance]),
    *((epsilon, 0.05, 1, LARGEST.format(epsilon)) for epsilon in (0, -1.0, np.nan, np.inf)),
    ("1", 0.05, 1, LARGEST.format("'1'")),
    *((1.0, delta, 1, f"delta must be .*{INSIDE}") for delta in (0, 1, -0.1, 1.5, np.nan, ".05")),
    *((1.0, 0.05, variance, "variance must be non-negative") for variance in (-1e-9, np.nan)),
)
