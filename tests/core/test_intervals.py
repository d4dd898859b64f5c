"""Intervals: they cover what they should, and widen when windows err together."""

import numpy as np
import pytest

from aftlib.core.intervals import bootstrap_interval, t_interval


def test_t_interval_by_hand():
    centre, low, high = t_interval(np.array([1.0, 2.0, 3.0]))
    assert centre == 2
    assert (low, high) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))


def test_bootstrap_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    rates = rng.binomial(1, 0.3, size=(400, 500)).astype(float)
    low, high = bootstrap_interval(rates, 1, np.random.default_rng(1))
    assert 0.91 <= np.mean((low <= 0.3) & (high >= 0.3)) <= 0.98


def test_blocks_widen_the_interval_of_windows_that_err_together():
    rates = np.repeat(np.random.default_rng(0).binomial(1, 0.3, size=100).astype(float), 10)
    narrow = np.ptp(bootstrap_interval(rates, 1, np.random.default_rng(1)))
    wide = np.ptp(bootstrap_interval(rates, 10, np.random.default_rng(1)))
    assert wide > 2 * narrow


def test_refusals():
    with pytest.raises(ValueError, match="block and windows must be at least 1, got 0 and 5"):
        bootstrap_interval(np.zeros(5), 0, np.random.default_rng(0))
    with pytest.raises(ValueError, match="means must come from at least 2 parts, got 1"):
        t_interval(np.zeros(1))
