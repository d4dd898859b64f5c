"""Intervals: they cover what they should, and widen when values err together."""

import numpy as np
import pytest

from aftlib.core.intervals import (
    bootstrap_share,
    clustered_share_interval,
    ratio_interval,
    share_interval,
    t_interval,
)
from tests.refusals import refused


def test_t_interval_by_hand():
    centre, low, high = t_interval(np.array([1.0, 2.0, 3.0]))
    assert centre == 2
    assert (low, high) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))


def test_bootstrap_covers_the_truth_about_as_often_as_its_level():
    rng = np.random.default_rng(0)
    hits, covered = rng.binomial(1, 0.3, size=(400, 100)), 0
    for row in hits:
        low, high = bootstrap_share(row, np.ones(100), rng)
        covered += low <= 0.3 <= high
    assert 0.91 <= covered / 400 <= 0.98


def test_a_share_is_resampled_by_whole_units():
    rng = np.random.default_rng(0)
    hits = rng.binomial(1, 0.3, 100)
    interval = bootstrap_share(hits, np.ones(100), np.random.default_rng(1))
    heavy = bootstrap_share(7 * hits, np.full(100, 7), np.random.default_rng(1))
    assert heavy == pytest.approx(interval)  # samples of one unit err together
    assert bootstrap_share(np.array([0, 9]), np.array([1, 9]), rng) == (0, 1)


def test_a_share_of_outages_is_covered_even_if_all_windows_of_an_outage_err_together():
    """An interval that took the windows as independent is not wide enough."""
    rng = np.random.default_rng(0)
    covered = {"outages": 0, "windows": 0}
    for _ in range(1000):
        windows = rng.integers(1, 6, 40)
        wrong = windows * (rng.random(40) < 0.1)
        for name, (low, high) in {
            "outages": clustered_share_interval(wrong, windows),
            "windows": share_interval(int(wrong.sum()), int(windows.sum())),
        }.items():
            covered[name] += low <= 0.1 <= high
    assert covered["outages"] >= 940 > 900 > covered["windows"]
    ones = np.ones(30)
    for hits in (0, 3, 30):
        each = np.arange(30) < hits
        assert clustered_share_interval(each, ones) == pytest.approx(share_interval(hits, 30))


def test_intervals_that_hold_together_are_wider():
    missed = {1: 0, 5: 0}
    for samples in np.random.default_rng(0).normal(1, 1, size=(200, 5, 8)):
        for family in missed:
            each = [ratio_interval(x, np.ones(8), True, family)[1] for x in samples]
            missed[family] += not all(low <= 1 <= high for low, high in each)
    assert missed[1] > 24 and missed[5] <= 14


@pytest.mark.parametrize("paired", [True, False])
def test_ratios_cover_the_truth_about_as_often_as_they_should(paired):
    rng, covered = np.random.default_rng(0), 0
    for _ in range(400):
        size = rng.uniform(5, 15, 30)
        x = 0.5 * (size if paired else rng.uniform(5, 15, 30)) + rng.normal(0, 0.5, 30)
        ratio, (low, high) = ratio_interval(x, size, paired)
        assert low < ratio < high
        covered += low <= 0.5 <= high
    assert 0.91 <= covered / 400 <= 0.98


def test_a_share_has_its_exact_interval():
    assert share_interval(20, 20) == pytest.approx((0.025 ** (1 / 20), 1))
    assert share_interval(0, 5) == pytest.approx((0, 1 - 0.025 ** (1 / 5)))


test_too_few_values_are_refused = refused(
    lambda call: call(),
    (lambda: t_interval(np.zeros(1)), "means must come from at least 2 parts, got 1"),
    (lambda: ratio_interval(np.ones(1), np.ones(3)), "x and y must have 2 trials or more, and"),
    (lambda: ratio_interval(np.ones(3), np.zeros(3)), "x and y must have 2 trials"),
)
