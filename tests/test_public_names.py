"""The names that other people's code may import, and what they promise at a glance."""

import numpy as np

import aftlib


def test_public_names_are_sorted_and_there():
    assert aftlib.__all__ == sorted(aftlib.__all__)
    assert all(getattr(aftlib, name) for name in aftlib.__all__)


def test_readme_example():
    rng = np.random.default_rng(0)
    past = 20 + rng.normal(size=(200, 1)) + 0.2 * rng.normal(size=(200, 8))
    model = aftlib.GaussianModel.fit(past)
    requirement = aftlib.Requirement(epsilon=0.6, delta=0.05)
    assignment = aftlib.assign_greedy(model, workers=4, requirement=requirement)
    assert assignment.estimable.all()
    assert model.condition({"X1": 20.3, "X2": 19.8}).mean.shape == (6,)
    plan = aftlib.plan_checkpoints(
        model, 10_000, aftlib.Requirement(0.01, 0.05), aftlib.RecoveryTime(28.33, 9.332e-4), 50
    )
    assert plan.times[0] == 0
    assert plan.times[-1] == 10_000
