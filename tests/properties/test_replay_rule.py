"""D2 rule (22), (23) candidate by candidate, the slow twin of the pivoted factorisation."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aftlib.core.gaussian import GaussianModel
from aftlib.documents.checkpoint_planning.replay import select_replay


@st.composite
def models(draw, largest=9):
    """Factor models, some with sensors that repeat a pattern so that scores tie."""
    n = draw(st.integers(1, largest))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        group = rng.integers(0, 3, n)
        covariance = np.where(group[:, None] == group, 0.5, 0.0) + 0.5 * np.eye(n)
    else:
        loading = rng.standard_normal((n, draw(st.integers(1, 4))))
        covariance = loading @ loading.T + np.diag(rng.uniform(0.05, 1, n))
    return GaussianModel(np.zeros(n), covariance)


def scores(model: GaussianModel, observed: list[int], target: np.ndarray) -> dict[int, float]:
    """Largest reduction of any variance, in units of its target, by each candidate (22)."""
    before = model.posterior_variance(observed)
    return {
        i: float(np.max((before - model.posterior_variance([*observed, i])) / target))
        for i in range(model.size)
        if i not in observed
    }


def assert_follows_the_rule(model: GaussianModel, target: np.ndarray) -> None:
    chosen = select_replay(model, target)
    for k, sensor in enumerate(chosen.sensors):
        score = scores(model, list(chosen.sensors[:k]), target)
        assert score[sensor] >= max(score.values()) * (1 - 1e-9)
        assert np.any(model.posterior_variance(chosen.sensors[:k]) > target)
    assert np.all(chosen.variance <= target * (1 + 1e-9))


@settings(deadline=None)
@given(models(), st.floats(0.02, 1.2))
def test_common_target_follows_the_rule_at_every_step(model, part):
    assert_follows_the_rule(model, np.full(model.size, part * model.covariance.max()))


@settings(deadline=None)
@given(models(), st.data())
def test_own_targets_follow_the_rule_in_units_of_the_target(model, data):
    part = data.draw(st.lists(st.floats(0.05, 1.2), min_size=model.size, max_size=model.size))
    assert_follows_the_rule(model, np.array(part) * np.diag(model.covariance))


@settings(deadline=None)
@given(models(), st.floats(0.02, 1), st.floats(1, 30), st.booleans(), st.integers(0, 2**32 - 1))
def test_a_prefix_is_a_fresh_selection(model, part, growth, common, seed):
    target = np.full(model.size, part * model.covariance.max())
    if not common:
        target = target * np.random.default_rng(seed).uniform(0.3, 1, model.size)
    cut = select_replay(model, target).loosened(growth)
    fresh = select_replay(model, target * growth)
    assert cut.sensors == fresh.sensors
    np.testing.assert_allclose(cut.variance, fresh.variance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(cut.factor, fresh.factor, atol=1e-12)
    np.testing.assert_allclose(cut.gain(), fresh.gain(), atol=1e-9)


@settings(deadline=None)
@given(models(), st.floats(0.02, 1), st.floats(1, 5), st.floats(1, 5))
def test_loosening_twice_is_loosening_by_the_larger(model, part, once, more):
    first = select_replay(model, part * model.covariance.max())
    twice = first.loosened(once).loosened(once * more)
    assert twice.sensors == first.loosened(once * more).sensors


@settings(deadline=None)
@given(models(), st.floats(0.05, 1), st.integers(-30, 30))
def test_units_of_the_sensors_do_not_matter(model, part, power):
    unit = 2.0**power
    other = GaussianModel(model.mean, model.covariance * unit**2)
    target = part * model.covariance.max()
    assert select_replay(other, target * unit**2).sensors == select_replay(model, target).sensors
