"""The best assignment: never worse than the others, and no assignment passes its bound."""

from itertools import combinations

import numpy as np
import pytest

from aftlib import (
    GaussianModel,
    Requirement,
    assign_best,
    assign_greedy,
    assign_random,
    assign_spread,
)
from aftlib.core.generators import block_model
from aftlib.documents.approximately_once.assignment import assess


def some_model(seed, n=6, density=0.6):
    """A few keys with correlations of all kinds; some groups of some models are independent."""
    rng = np.random.default_rng(seed)
    loads = rng.normal(size=(n, 3)) * (rng.random((n, 3)) < density)
    covariance = loads @ loads.T + np.diag(rng.uniform(0.02, 0.5, n))
    return GaussianModel(np.zeros(n), covariance)


def every_assignment(keys, sizes, before=()):
    """Yield all assignments of the keys to workers of these sizes; equal workers in one order."""
    if not sizes:
        yield []
        return
    for mine in combinations(keys, sizes[0]):
        if len(mine) != len(before) or mine > before:
            rest = [key for key in keys if key not in mine]
            yield from ([mine, *others] for others in every_assignment(rest, sizes[1:], mine))


def optimum(model, sizes, requirement):
    assignments = every_assignment(range(model.size), sizes)
    return max(int(assess(model, workers, requirement).estimable.sum()) for workers in assignments)


@pytest.mark.parametrize("sizes", [[3, 3], [2, 2, 2], [2, 2, 1, 1], [1] * 6])
def test_the_bound_is_above_the_optimum_and_the_best_is_mostly_the_optimum(sizes):
    reached, tight, points = 0, 0, 0
    for seed in range(12):
        model = some_model(seed)
        for epsilon in (0.8, 1.3, 1.9):
            requirement = Requirement(epsilon, 0.05)
            best = assign_best(model, len(sizes), requirement, uneven=True)
            most = optimum(model, sizes, requirement)
            assert int(best.estimable.sum()) <= most <= best.bound
            assert sorted(map(len, best.workers), reverse=True) == sizes
            assert sorted(k for keys in best.workers for k in keys) == list(range(6))
            reached += int(best.estimable.sum()) == most
            tight += best.bound == most
            points += 1
    assert reached >= 0.8 * points
    assert tight >= 0.8 * points


@pytest.mark.parametrize("workers", [2, 3, 4, 6, 8, 12, 24])
@pytest.mark.parametrize("epsilon", [0.62, 0.66, 0.7, 0.9, 1.3])
def test_on_equal_blocks_the_bound_is_reached_and_is_the_pigeonholes(workers, epsilon):
    model, requirement = block_model(24, 4), Requirement(epsilon, 0.05)
    best = assign_best(model, workers, requirement)
    # a worker of c keys holds at least ⌈c/4⌉ of some block of 6
    lost = model.block_variance(range(-(-24 // workers // 4)))
    fits = lost.max() <= requirement.max_variance
    assert best.bound == int(best.estimable.sum()) == (workers if fits else 0)


def others(*problem):
    yield assign_greedy(*problem, uneven=True)
    yield assign_spread(*problem, uneven=True)
    for draw in range(3):
        yield assign_random(*problem, np.random.default_rng(draw), uneven=True)


@pytest.mark.parametrize("workers", [2, 3, 5, 7, 12])
def test_it_is_never_worse_than_the_others(workers):
    for model in (some_model(seed, 24) for seed in (0, 1, 3, 12, 26)):
        for epsilon in (0.7, 1.1):
            point = model, workers, Requirement(epsilon, 0.05)
            best = assign_best(*point, uneven=True)
            most = max(int(other.estimable.sum()) for other in others(*point))
            assert most <= best.estimable.sum() <= best.bound
            assert assign_best(*point, uneven=True).workers == best.workers
            worst = [model.block_variance(keys).max() for keys in best.workers]
            np.testing.assert_allclose(best.reliability, point[2].reliability(worst))
