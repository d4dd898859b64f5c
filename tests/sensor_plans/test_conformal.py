"""Adaptive conformal inference equals its definition."""

import numpy as np

from aftlib.sensor_plans.backtest import LEAST, MEMORY, PACE, Conformal


def defined(errors, limit, delta, horizon):
    """The same, sensor by sensor, from sorted lists."""
    level, seen, pending, said = delta, [], [np.inf] * horizon, []
    for error in errors:
        width = pending.pop(0)
        said.append(width <= limit)
        if not np.isnan(error):
            level += PACE * (delta - (error > width))
            seen = [*seen, error][-MEMORY:]
        rank = int(np.ceil((1 - level) * (len(seen) + 1)))
        enough = len(seen) >= LEAST and rank <= len(seen)
        pending.append(sorted(seen)[max(rank, 1) - 1] if enough else np.inf)
    return said


def test_it_is_its_definition_in_any_pieces():
    rng = np.random.default_rng(1)
    errors = np.abs(rng.normal(size=(900, 3, 2))) * np.linspace(0.3, 1.2, 900)[:, None, None]
    errors[rng.random(errors.shape) < 0.05] = np.nan
    limits = np.array([1.0, 1.5])
    conformal = Conformal(limits, 0.1, 3)
    said = np.concatenate([conformal.replay(part) for part in np.split(errors, [100, 101, 640])])
    for h in range(3):
        for i in range(2):
            expected = defined(errors[:, h, i], limits[i], 0.1, h + 1)
            np.testing.assert_array_equal(said[:, h, i], expected)
    assert 0.2 < said.mean() < 0.8


def test_over_all_windows_it_covers_what_it_says():
    errors = np.abs(np.random.default_rng(2).normal(size=(4000, 1, 1)))
    said = Conformal(np.array([1.5]), 0.05, 1).replay(errors)
    assert said[1000:].mean() < 0.01  # the 95 % quantile of |N(0, 1)| is 1.96
    assert Conformal(np.array([2.3]), 0.05, 1).replay(errors)[1000:].mean() > 0.95
