"""Several workers that crash at once: all choices tried one by one, and bounds around them."""

from itertools import combinations

import numpy as np
import pytest

from aftlib.approximately_once import crashes as deaths_module
from aftlib.approximately_once.assignment import assign_greedy, assign_random, assign_spread
from aftlib.approximately_once.crashes import crash_together
from aftlib.core.extremes import WindowExtremes
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement

ASKED = Requirement(0.9, 0.05)


def some_model(seed, n=9):
    rng = np.random.default_rng(seed)
    loads = rng.normal(size=(n, 3)) * (rng.random((n, 3)) < 0.5)
    return GaussianModel(np.zeros(n), loads @ loads.T + np.diag(rng.uniform(0.02, 0.5, n)))


def one_by_one(model, assignment, count):
    """Largest variance of a key of each worker, by equation (2) for every choice of the crashed."""
    worst = np.zeros(len(assignment.workers))
    for crashed in combinations(range(len(worst)), count):
        alive = [k for i, keys in enumerate(assignment.workers) if i not in crashed for k in keys]
        variance = model.posterior_variance(alive)
        for i in crashed:
            worst[i] = max(worst[i], variance[list(assignment.workers[i])].max())
    return worst


@pytest.mark.parametrize("m", [2, 4, 5, 9])
def test_all_choices_of_the_dead_are_tried(m):
    for seed in range(5):
        model, rng = some_model(seed), np.random.default_rng(seed)
        assignment = assign_random(model, m, ASKED, rng, uneven=True)
        for count in range(1, min(m, 4) + 1):
            found = crash_together(model, assignment, count)
            assert found.exact and found.count == count
            wanted = one_by_one(model, assignment, count)
            np.testing.assert_allclose(found.most, wanted, rtol=1e-9)
            np.testing.assert_allclose(found.reliability(ASKED), ASKED.reliability(wanted))


def test_one_death_is_the_assignments_reliability_and_all_are_the_prior():
    model = some_model(1)
    assignment = assign_greedy(model, 3, ASKED)
    one, every = (crash_together(model, assignment, count) for count in (1, 3))
    np.testing.assert_allclose(one.reliability(ASKED), assignment.reliability)
    prior = [np.diag(model.covariance)[list(keys)].max() for keys in assignment.workers]
    np.testing.assert_allclose(every.most, prior)


@pytest.mark.parametrize("effort", [0, 500, 2e3])
def test_where_too_many_choices_are_left_bounds_enclose_the_truth(monkeypatch, effort):
    monkeypatch.setattr(deaths_module, "EFFORT", effort)
    inexact = 0
    for seed in range(6):
        model = some_model(seed)
        assignment = assign_spread(model, 9, ASKED)
        for count in (2, 3, 4):
            found = crash_together(model, assignment, count)
            truth = one_by_one(model, assignment, count)
            assert (found.least <= truth * (1 + 1e-9)).all()
            assert (truth <= found.most * (1 + 1e-9)).all()
            promised, most = found.reliability(ASKED), ASKED.reliability(found.least)
            assert (promised <= most + 1e-12).all()
            inexact += not found.exact
    assert inexact >= 3


def test_a_hundred_and_twenty_sensors_and_three_deaths():
    model = block_model()
    assignment = assign_spread(model, 12, ASKED)  # a key of each block on every worker
    variances = [crash_together(model, assignment, count).most.max() for count in (1, 2, 3)]
    mates = np.array([11, 10, 9])
    np.testing.assert_allclose(variances, 1 - 0.81 * mates / (1 + 0.9 * (mates - 1)))


@pytest.mark.parametrize("count", [0, 4, 1.5])
def test_more_deaths_than_workers_are_refused(count):
    assignment = assign_greedy(some_model(1), 3, ASKED)
    with pytest.raises(ValueError, match="crashes must be .* at least 1 and at most 3, got"):
        crash_together(some_model(1), assignment, count)


def test_all_workers_of_a_group_that_is_too_large_to_try(monkeypatch):
    monkeypatch.setattr(deaths_module, "EFFORT", 1)
    model = some_model(1)
    assignment = assign_spread(model, 3, ASKED)
    found = crash_together(model, assignment, 3)
    np.testing.assert_allclose(found.most, one_by_one(model, assignment, 3))


def test_extremes_are_refused():
    model = WindowExtremes(some_model(0), 5, "max", np.random.default_rng(0), draws=64)
    assignment = assign_spread(model, 3, ASKED)
    with pytest.raises(ValueError, match="must be of means or sums, got WindowExtremes"):
        crash_together(model, assignment, 1)
