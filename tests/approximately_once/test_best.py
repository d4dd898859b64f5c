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
from aftlib.approximately_once import best as best_module
from aftlib.approximately_once.assignment import assess
from aftlib.approximately_once.best import crash_together
from aftlib.core.extremes import DrawnWindows
from aftlib.core.generators import block_model


def some_model(seed, n=6, density=0.6):
    """A few keys with correlations of all kinds; some groups of some models are independent."""
    rng = np.random.default_rng(seed)
    loads = rng.normal(size=(n, 3)) * (rng.random((n, 3)) < density)
    covariance = loads @ loads.T + np.diag(rng.uniform(0.02, 0.5, n))
    return GaussianModel(np.zeros(n), covariance)


def every_assignment(keys, sizes):
    """Yield all assignments of the keys to workers of these sizes."""
    if not sizes:
        yield []
        return
    for mine in combinations(keys, sizes[0]):
        rest = [key for key in keys if key not in mine]
        yield from ([mine, *others] for others in every_assignment(rest, sizes[1:]))


def optimum(model, sizes, requirement):
    assignments = every_assignment(range(model.size), sizes)
    return max(int(assess(model, workers, requirement).estimable.sum()) for workers in assignments)


@pytest.mark.parametrize("sizes", [[3, 3], [2, 2, 2], [3, 1, 2], [1] * 6])
def test_the_bound_is_above_the_optimum_and_the_best_is_mostly_the_optimum(sizes):
    reached, tight, points = 0, 0, 0
    for seed in range(12):
        model = some_model(seed)
        for epsilon in (0.8, 1.3, 1.9):
            requirement = Requirement(epsilon, 0.05)
            best = assign_best(model, len(sizes), requirement, capacities=sizes)
            most = optimum(model, sizes, requirement)
            assert int(best.estimable.sum()) <= most <= best.bound
            assert [len(keys) for keys in best.workers] == sizes
            assert sorted(k for keys in best.workers for k in keys) == list(range(6))
            reached += int(best.estimable.sum()) == most
            tight += best.bound == most
            points += 1
    assert reached >= 0.9 * points
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


POINTS = [(w, Requirement(e, 0.05)) for w in (2, 3, 4, 6, 8, 12) for e in (0.7, 0.9, 1.1, 1.3)]


def others(*problem, **options):
    yield assign_greedy(*problem, **options)
    yield assign_spread(*problem, **options)
    for draw in range(3):
        yield assign_random(*problem, np.random.default_rng(draw), **options)


def test_it_is_never_worse_than_the_others_and_often_better():
    better = 0
    for model in (some_model(seed, 24) for seed in (0, 1, 3, 12, 26)):
        for point in POINTS:
            best = assign_best(model, *point)
            most = max(int(other.estimable.sum()) for other in others(model, *point))
            assert most <= best.estimable.sum() <= best.bound
            assert assign_best(model, *point).workers == best.workers
            better += best.estimable.sum() > most
    assert better >= 6  # 1 without swaps


@pytest.mark.parametrize("workers", [5, 7, 11])
def test_it_is_never_worse_where_sizes_differ_by_one(workers):
    for model in (some_model(seed, 24) for seed in (0, 12)):
        for epsilon in (0.7, 1.1):
            point = model, workers, Requirement(epsilon, 0.05)
            best = assign_best(*point, uneven=True)
            most = max(int(other.estimable.sum()) for other in others(*point, uneven=True))
            assert most <= best.estimable.sum() <= best.bound
            assert [len(keys) for keys in best.workers] == [
                len(range(i, 24, workers)) for i in range(workers)
            ]
            worst = [model.block_variance(keys).max() for keys in best.workers]
            np.testing.assert_allclose(best.reliability, point[2].reliability(worst))


@pytest.mark.parametrize(
    ("capacities", "sizes"),
    [
        ([9, 9, 9], [2, 2, 2]),
        ([1, 9, 2], [1, 3, 2]),
        ([4, 1, 4, 4], [2, 1, 2, 1]),
        ([3, 3], [3, 3]),
        ([1, 1, 1, 1, 1, 9], [1, 1, 1, 1, 1, 1]),
    ],
)
def test_capacities_hold_and_otherwise_workers_are_even(capacities, sizes):
    best = assign_best(
        some_model(0), len(capacities), Requirement(1.3, 0.05), capacities=capacities
    )
    assert [len(keys) for keys in best.workers] == sizes
    same = assign_best(some_model(0), len(sizes), Requirement(1.3, 0.05), capacities=sizes)
    assert best.workers == same.workers


@pytest.mark.parametrize(
    ("workers", "capacities", "message"),
    [
        (3, [2, 4], r"capacities must be one number for each of 3 workers, got \[2, 4\]"),
        (2, [3, 2], r"capacities must hold 6 keys, .* got \[3, 2\], which hold 5"),
        (7, [9] * 7, "capacities must hold 6 keys, at least one per worker"),
        (2, [0, 9], "each of capacities must be a whole number at least 1, got 0"),
    ],
)
def test_capacities_that_do_not_fit_are_refused(workers, capacities, message):
    with pytest.raises(ValueError, match=message):
        assign_best(some_model(1), workers, Requirement(1.0, 0.05), capacities=capacities)


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        (4, "workers must divide the 6 keys, got 4; choose one of 1, 2, 3, 6, or give uneven"),
        (0, "workers must divide the 6 keys, got 0"),
        (2.0, r"workers must divide the 6 keys, got 2\.0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(workers, message):
    with pytest.raises(ValueError, match=message):
        assign_best(some_model(1), workers, Requirement(1.0, 0.05))


@pytest.mark.parametrize("query", ["min", "max"])
def test_of_extremes_it_is_never_worse_either_and_counts_on_draws(query):
    better = 0
    for seed in (0, 12):
        maxima = DrawnWindows(some_model(seed, 24), 5, query, np.random.default_rng(seed), 200)
        for workers, epsilon in ((4, 0.9), (8, 0.9), (8, 1.3), (12, 1.1)):
            problem = maxima, workers, Requirement(epsilon, 0.05)
            best = assign_best(*problem)
            again = assess(maxima, best.workers, problem[-1])
            np.testing.assert_array_equal(best.reliability, again.reliability)
            for worker, reliability in zip(best.workers, best.reliability, strict=True):
                rest = [k for k in range(24) if k not in worker]
                assert reliability == (maxima.errors(worker, rest) <= epsilon).mean(axis=0).min()
            draws = np.random.default_rng(0).spawn(best_module.DRAWS)
            candidates = [assign_greedy(*problem), assign_spread(*problem)]
            candidates += [assign_random(*problem, draw) for draw in draws]
            most = max(int(other.estimable.sum()) for other in candidates)
            assert most <= best.estimable.sum() <= best.bound == workers
            better += best.estimable.sum() > most
    assert better > 0


REQUIREMENT = Requirement(0.9, 0.05)


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
def test_all_choices_of_the_crashed_are_tried(m):
    for seed in range(5):
        model, rng = some_model(seed, 9, 0.5), np.random.default_rng(seed)
        assignment = assign_random(model, m, REQUIREMENT, rng, uneven=True)
        for count in range(1, min(m, 4) + 1):
            bounds = crash_together(model, assignment, count)
            np.testing.assert_allclose(bounds, one_by_one(model, assignment, count), rtol=1e-9)


@pytest.mark.parametrize("effort", [0, 500, 2e3])
def test_where_too_many_choices_are_left_the_bound_lies_above(monkeypatch, effort):
    monkeypatch.setattr(best_module, "EFFORT", effort)
    inexact = 0
    for seed in range(6):
        model = some_model(seed, 9, 0.5)
        assignment = assign_spread(model, 9, REQUIREMENT)
        for count in (2, 3, 4):
            bounds = crash_together(model, assignment, count)
            truth = one_by_one(model, assignment, count)
            assert (truth <= bounds * (1 + 1e-9)).all()
            inexact += (bounds > truth * (1 + 1e-9)).any()
    assert inexact >= 3


@pytest.mark.parametrize("count", [0, 4, 1.5])
def test_more_crashes_than_workers_are_refused(count):
    assignment = assign_greedy(some_model(1, 9, 0.5), 3, REQUIREMENT)
    with pytest.raises(ValueError, match="crashes must be .* at least 1 and at most 3, got"):
        crash_together(some_model(1, 9, 0.5), assignment, count)


def test_all_workers_of_a_group_that_is_too_large_to_try(monkeypatch):
    monkeypatch.setattr(best_module, "EFFORT", 1)
    model = some_model(1, 9, 0.5)
    assignment = assign_spread(model, 3, REQUIREMENT)
    bounds = crash_together(model, assignment, 3)
    np.testing.assert_allclose(bounds, one_by_one(model, assignment, 3))


def test_extremes_are_refused():
    model = DrawnWindows(some_model(0, 9, 0.5), 5, "max", np.random.default_rng(0), draws=64)
    assignment = assign_spread(model, 3, REQUIREMENT)
    with pytest.raises(ValueError, match="must be of means or sums, got DrawnWindows"):
        crash_together(model, assignment, 1)


def test_variances_after_a_swap_are_those_of_the_new_worker():
    rng = np.random.default_rng(5)
    factor = rng.normal(size=(9, 9))
    precision = factor @ factor.T + np.eye(9)
    members, at, keys = np.array([0, 2, 5, 7]), np.array([0, 3, 1]), np.array([1, 8, 4])
    inverse = np.linalg.inv(precision[np.ix_(members, members)])
    variances = best_module._swapped(precision, members, inverse, at, keys)
    for swap in range(3):
        worker = members.copy()
        worker[at[swap]] = keys[swap]
        after = np.diag(np.linalg.inv(precision[np.ix_(worker, worker)]))
        np.testing.assert_allclose(variances[:, swap], after)
