"""The choice of a replay set at its limits, and a gain like a fresh solve's.

The rule itself, candidate by candidate, is in tests/properties/test_replay_rule.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.documents.checkpoint_planning.replay import ReplaySet, select_replay
from tests.refusals import refused

GROUPS = block_model(100, 5, 60, 30)


def kernel_model(n: int, seed: int = 0) -> GaussianModel:
    """Sensors scattered over the unit square, correlated by distance."""
    at = np.random.default_rng(seed).random((n, 2))
    distance = np.linalg.norm(at[:, None] - at[None], axis=2)
    return GaussianModel(np.zeros(n), np.exp(-distance / 0.3) + 0.05 * np.eye(n))


def test_a_sensor_of_each_group_in_turn_and_ties_by_lowest_index():
    chosen = select_replay(GROUPS, 45)
    assert chosen.sensors == (0, 20, 40, 60, 80)
    assert chosen.variance[[0, 1, 99]] == pytest.approx([0, 45, 45])


def test_gain_of_a_prefix_and_of_everything():
    model = kernel_model(40)
    fewer = select_replay(model, 0.1).loosened(3)
    np.testing.assert_allclose(fewer.gain(), model.gain(fewer.sensors, fewer.estimated), atol=1e-10)
    assert ReplaySet.everything(40).gain().shape == (0, 40)


def test_zero_asks_for_all_and_infinity_for_nothing():
    model = GaussianModel([0, 0, 0], np.diag([1.0, 3.0, 2.0]))
    assert select_replay(model, 0).sensors == (1, 2, 0)
    assert select_replay(model, np.inf).sensors == ()
    assert select_replay(model, [0, np.inf, 0]).sensors == (2, 0)


def test_a_target_just_met_replays_nothing_more():
    assert select_replay(GROUPS, 60 * (1 - 1e-14)).sensors == ()
    assert len(select_replay(GROUPS, 60 * (1 - 1e-11)).sensors) == 5


def test_everything_is_never_loosened():
    everything = ReplaySet.everything(100)
    assert everything.loosened(1e9) is everything
    assert everything.sensors == tuple(range(100))
    assert not everything.variance.any()


def test_results_are_read_only():
    chosen = select_replay(GROUPS, 45)
    with pytest.raises(ValueError, match="read-only"):
        chosen.variance[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        chosen.factor[0, 0] = 1


test_impossible_targets_are_refused = refused(
    lambda target: select_replay(GROUPS, target),
    (-1.0, r"max_variance must be one number or 100, .* with \[-1\.0\] out of bounds"),
    (np.nan, r"max_variance must be one number or 100, .* with \[nan\] out of bounds"),
    ([1, 2, 3], r"or 100, one per sensor, .* got shape \(3,\)"),
)
