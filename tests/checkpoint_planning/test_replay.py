"""What is replayed: the slow rule's choice, LAPACK's numbers, and a gain like a fresh solve's."""

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


def blocks(n: int, groups: int, jitter: float = 0.0) -> GaussianModel:
    """Groups of sensors equally correlated among each other."""
    scale = 1 + jitter * np.random.default_rng(0).random(n)
    covariance = block_model(n, groups, 1.0, 0.5).covariance * scale[:, None] * scale
    return GaussianModel(np.zeros(n), covariance)


def trailing(model: GaussianModel, target: np.ndarray) -> list[int]:
    """Slow twin: the whole posterior covariance after every choice, ties by lowest index."""
    left, chosen = model.covariance.copy(), []
    while True:
        score = left.diagonal() / target
        if score.max() <= 1 + 1e-12:
            return chosen
        i = int(np.flatnonzero(score >= score.max() * (1 - 1e-12))[0])
        left = left - np.outer(left[:, i], left[i]) / left[i, i]
        left[i] = left[:, i] = 0
        chosen.append(i)


# larger than what is chosen row by row, so that LAPACK chooses the rest
CASES = {
    "scattered": kernel_model(400),
    "one group": blocks(400, 1),
    "five groups": blocks(400, 5),
    "fifty groups": blocks(400, 50),
    "unequal groups": blocks(400, 10, 0.3),
    "independent": GaussianModel(np.zeros(400), np.diag(np.linspace(1, 2, 400))),
}


@pytest.mark.parametrize("part", [0.9, 0.7, 0.52, 0.4, 0.1])
@pytest.mark.parametrize("name", CASES)
def test_choice_is_that_of_the_trailing_matrix(name, part):
    """Sensors that tie may stand for each other, so then only their number is compared."""
    model = CASES[name]
    target = np.full(400, part * model.covariance.max())
    chosen, expected = select_replay(model, target), trailing(model, target)
    assert len(chosen.sensors) == len(expected)
    np.testing.assert_allclose(
        chosen.variance, model.posterior_variance(chosen.sensors), atol=1e-11
    )
    if name in ("scattered", "unequal groups", "independent"):
        assert list(chosen.sensors) == expected


@pytest.mark.parametrize("low", [0.3, 0.05, 0.01])
def test_choice_with_a_target_for_each(low):
    model = CASES["scattered"]
    target = np.random.default_rng(3).uniform(low, 0.8, 400)
    target[7] = np.inf
    assert list(select_replay(model, target).sensors) == trailing(model, target)


@pytest.mark.parametrize("name", CASES)
def test_share_falls_to_the_target_and_not_further_than_needed(name):
    model = CASES[name]
    chosen = select_replay(model, 0.52 * model.covariance.max())
    assert chosen.share.size == len(chosen.sensors) + 1
    assert np.all(np.diff(chosen.share) <= 1e-12)
    assert chosen.share[-2] > 1 >= chosen.share[-1] - 1e-12
    fewer = chosen.loosened(1.2)
    fresh = select_replay(model, 1.2 * 0.52 * model.covariance.max())
    assert len(fewer.sensors) == len(fresh.sensors)
    np.testing.assert_allclose(fewer.variance, model.posterior_variance(fewer.sensors), atol=1e-11)


def test_a_sensor_of_each_group_in_turn_and_ties_by_lowest_index():
    chosen = select_replay(GROUPS, 45)
    assert chosen.sensors == (0, 20, 40, 60, 80)
    assert chosen.variance[[0, 1, 99]] == pytest.approx([0, 45, 45])


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


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (-1.0, r"max_variance must be non-negative, got -1\.0;"),
        (np.nan, "max_variance must be non-negative, got nan;"),
        ([1, 2, 3], r"one for each of the 100 sensors, got shape \(3,\)"),
    ],
)
def test_impossible_targets_are_refused(target, message):
    with pytest.raises(ValueError, match=message):
        select_replay(GROUPS, target)
