from __future__ import annotations

import numpy as np
import pytest

from aftlib.checkpoint_planning.replay import ReplaySet, select_replay
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model

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


def test_document_counts_of_replayed_sensors():
    sizes = [len(select_replay(GROUPS, target).sensors) for target in (37.484, 42.4, 57.5, 60)]
    assert sizes == [20, 10, 5, 0]


def test_variance_is_that_of_the_posterior():
    model = kernel_model(60)
    chosen = select_replay(model, 0.3)
    assert 0 < len(chosen.sensors) < 60
    np.testing.assert_allclose(
        chosen.variance, model.posterior_variance(chosen.sensors), rtol=1e-10, atol=1e-14
    )
    assert chosen.variance.max() <= 0.3


def test_no_sensor_more_than_needed():
    model = kernel_model(60)
    chosen = select_replay(model, 0.3)
    assert model.posterior_variance(chosen.sensors[:-1]).max() > 0.3
    assert chosen.share[-2] > 1 >= chosen.share[-1]


@pytest.mark.parametrize("target", [0.2, 0.4, 2.0])
def test_gain_is_that_of_a_fresh_solve(target):
    model = kernel_model(60)
    chosen = select_replay(model, target)
    fresh = model.gain(chosen.sensors, chosen.estimated)
    assert chosen.gain().shape == (60 - len(chosen.sensors), len(chosen.sensors))
    np.testing.assert_allclose(chosen.gain(), fresh, atol=1e-10)


def test_gain_of_a_prefix_and_of_everything():
    model = kernel_model(40)
    fewer = select_replay(model, 0.1).loosened(3)
    np.testing.assert_allclose(fewer.gain(), model.gain(fewer.sensors, fewer.estimated), atol=1e-10)
    assert ReplaySet.everything(model).gain().shape == (0, 40)


def test_factor_reproduces_the_covariance_of_the_replayed():
    model = kernel_model(60)
    chosen = select_replay(model, 0.3)
    replayed = list(chosen.sensors)
    product = chosen.factor.T @ chosen.factor[:, replayed]
    np.testing.assert_allclose(product, model.covariance[:, replayed], atol=1e-12)
    assert not np.tril(chosen.factor[:, replayed], -1).any()


def test_a_sensor_that_meets_its_own_target_is_not_picked():
    model = GaussianModel([0, 0, 0], np.diag([100.0, 10.0, 1.0]))
    chosen = select_replay(model, [1000, 5, 0.5])
    assert chosen.sensors == (1, 2)
    assert chosen.variance.tolist() == [100, 0, 0]


def test_largest_factor_over_its_target_goes_first():
    model = GaussianModel([0, 0, 0], np.diag([100.0, 10.0, 1.0]))
    assert select_replay(model, [50, 4, 0.1]).sensors == (2, 1, 0)


def test_one_target_for_each_sensor_needs_fewer_than_the_literal_rule():
    model = kernel_model(60)
    target = np.random.default_rng(1).uniform(0.1, 1.1, 60) * np.diag(model.covariance)
    chosen = select_replay(model, target)
    literal = select_replay(model, 0.1).sensors
    size = next(k for k in range(61) if np.all(model.posterior_variance(literal[:k]) <= target))
    assert np.all(chosen.variance <= target)
    assert len(chosen.sensors) < size


def test_same_target_for_each_is_the_common_target():
    model = kernel_model(30)
    each = select_replay(model, np.full(30, 0.3))
    assert each.sensors == select_replay(model, 0.3).sensors


def test_zero_asks_for_all_and_infinity_for_nothing():
    model = GaussianModel([0, 0, 0], np.diag([1.0, 3.0, 2.0]))
    assert select_replay(model, 0).sensors == (1, 2, 0)
    assert select_replay(model, np.inf).sensors == ()
    assert select_replay(model, [0, np.inf, 0]).sensors == (2, 0)


def test_a_target_just_met_replays_nothing_more():
    assert select_replay(GROUPS, 60 * (1 - 1e-14)).sensors == ()
    assert len(select_replay(GROUPS, 60 * (1 - 1e-11)).sensors) == 5


def test_everything_is_never_loosened():
    everything = ReplaySet.everything(GROUPS)
    assert everything.loosened(1e9) is everything
    assert everything.sensors == tuple(range(100))
    assert not everything.variance.any()


def test_estimated_are_the_others():
    assert select_replay(GROUPS, 45).estimated.tolist() == [i for i in range(100) if i % 20]


def test_results_are_read_only():
    chosen = select_replay(GROUPS, 45)
    with pytest.raises(ValueError, match="read-only"):
        chosen.variance[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        chosen.factor[0, 0] = 1


@pytest.mark.parametrize("bad", [-1.0, np.nan])
def test_impossible_target_is_refused(bad):
    with pytest.raises(ValueError, match=rf"max_variance must be non-negative, got {bad};"):
        select_replay(GROUPS, bad)


def test_wrong_number_of_targets_is_refused():
    with pytest.raises(ValueError, match=r"one for each of the 100 sensors, got shape \(3,\)"):
        select_replay(GROUPS, [1, 2, 3])
