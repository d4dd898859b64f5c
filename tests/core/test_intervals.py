"""Intervals: they cover what they should, and widen when windows err together."""

import numpy as np
import pytest

from aftlib.core.intervals import (
    bootstrap_interval,
    bootstrap_share,
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
    rates = rng.binomial(1, 0.3, size=(400, 500)).astype(float)
    low, high = bootstrap_interval(rates, 1, np.random.default_rng(1))
    assert 0.91 <= np.mean((low <= 0.3) & (high >= 0.3)) <= 0.98


def test_blocks_widen_the_interval_of_windows_that_err_together():
    rates = np.repeat(np.random.default_rng(0).binomial(1, 0.3, size=100).astype(float), 10)
    narrow = np.ptp(bootstrap_interval(rates, 1, np.random.default_rng(1)))
    wide = np.ptp(bootstrap_interval(rates, 10, np.random.default_rng(1)))
    assert wide > 2 * narrow


def test_a_share_is_resampled_by_whole_units():
    rng = np.random.default_rng(0)
    hits = rng.binomial(1, 0.3, 100).astype(float)
    low, high = bootstrap_interval(hits, 1, np.random.default_rng(1))
    interval = bootstrap_share(hits, np.ones(100), np.random.default_rng(1))
    assert interval == pytest.approx((low, high))
    heavy = bootstrap_share(7 * hits, np.full(100, 7), np.random.default_rng(1))
    assert heavy == pytest.approx(interval)  # samples of one unit err together
    assert bootstrap_share(np.array([0, 9]), np.array([1, 9]), rng) == (0, 1)


def test_intervals_that_hold_together_are_wider():
    means = np.random.default_rng(0).normal(size=(200, 5, 8))
    alone, together = t_interval(means), t_interval(means, family=5)
    missed = [(np.abs(centre) > high - centre).any(axis=1) for centre, _, high in (alone, together)]
    assert missed[0].mean() > 0.12 and missed[1].mean() <= 0.07


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
    (
        lambda: bootstrap_interval(np.zeros(5), 0, np.random.default_rng(0)),
        "block and windows must be at least 1, got 0 and 5",
    ),
    (lambda: t_interval(np.zeros(1)), "means must come from at least 2 parts, got 1"),
    (lambda: ratio_interval(np.ones(1), np.ones(3)), "x and y must have 2 trials or more, and"),
    (lambda: ratio_interval(np.ones(3), np.zeros(3)), "x and y must have 2 trials"),
)
