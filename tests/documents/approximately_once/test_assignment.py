"""Assignments of D1: the digest's tables, fig. 9's readings, and every refusal."""

import numpy as np
import pytest

from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.documents.approximately_once.assignment import (
    assess,
    assign_greedy,
    assign_packed,
    assign_random,
    assign_spread,
)
from aftlib.documents.approximately_once.best import assign_best
from tests.refusals import refused

MODEL = block_model()
WORKERS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60)
SPREAD = dict(
    zip(WORKERS, [0.6686, 0.6569, 0.6529, 0.6529, *[0.6497] * 3, *[0.6471] * 7], strict=True)
)
PACKED = dict(
    zip(
        WORKERS,
        [*[1.96] * 7, 0.7524, 0.6911, 0.6686, 0.6619, 0.6569, 0.6529, 0.6497],
        strict=True,
    )
)


@pytest.mark.parametrize("m", WORKERS)
@pytest.mark.parametrize(("assign", "smallest"), [(assign_spread, SPREAD), (assign_packed, PACKED)])
def test_smallest_epsilon_at_which_all_workers_are_estimable(assign, smallest, m):
    above, below = smallest[m] + 1e-4, smallest[m] - 1e-4
    assert assign(MODEL, m, Requirement(above, 0.05)).estimable.all()
    assert not assign(MODEL, m, Requirement(below, 0.05)).estimable.all()


def test_chance_decides_between_equally_reliable_keys_alone():
    def assigned(model, m, seed=None):
        rng = None if seed is None else np.random.default_rng(seed)
        return assign_greedy(model, m, Requirement(0.65, 0.05), rng=rng)

    by_index, by_chance = assigned(MODEL, 24), assigned(MODEL, 24, 1)
    assert by_chance.workers == assigned(MODEL, 24, 1).workers != assigned(MODEL, 24, 2).workers
    assert by_chance.estimable.sum() > by_index.estimable.sum()  # blocks are no longer in a row
    different = GaussianModel(np.zeros(24), np.diag(np.linspace(1, 2, 24)) + 1)
    assert assigned(different, 4).workers == assigned(different, 4, 1).workers


def test_one_group_is_ordered_by_clustering_before_it_is_dealt():
    block = np.full((6, 6), 0.2)
    near = np.array([0, 1, 0, 1, 0, 1])
    block += 0.6 * (near[:, None] == near[None, :]) + 0.2 * np.eye(6)
    model = GaussianModel(np.zeros(6), block)
    packed = assign_packed(model, 2, Requirement(1.0, 0.05))
    assert set(packed.workers) == {(0, 2, 4), (1, 3, 5)}
    spread = assign_spread(model, 3, Requirement(1.0, 0.05))
    assert all(near[list(w)].sum() == 1 for w in spread.workers)


def test_random_depends_on_the_generator_alone():
    requirement = Requirement(0.7, 0.05)
    one = assign_random(MODEL, 10, requirement, np.random.default_rng(1))
    again = assign_random(MODEL, 10, requirement, np.random.default_rng(1))
    other = assign_random(MODEL, 10, requirement, np.random.default_rng(2))
    assert one.workers == again.workers != other.workers


@pytest.mark.parametrize("m", [0, -1, 7, 121, 2.5])
def test_workers_that_do_not_divide_the_keys_are_refused(m):
    refused = (
        r"must (divide the 120 keys, got 7; choose from \[1, 2, 3|be a whole number at least 1)"
    )
    for assign in (assign_greedy, assign_spread, assign_packed):
        with pytest.raises(ValueError, match=refused):
            assign(MODEL, m, Requirement(0.7, 0.05))
    with pytest.raises(ValueError, match=refused):
        assign_random(MODEL, m, Requirement(0.7, 0.05), np.random.default_rng(0))
    if m != 7:
        with pytest.raises(ValueError, match="workers must be a whole number .* at most 120, got"):
            assign_spread(MODEL, m, Requirement(0.7, 0.05), uneven=True)


def some_model(seed, n):
    rng = np.random.default_rng(seed)
    loads = rng.normal(size=(n, 3)) * (rng.random((n, 3)) < 0.6)
    return GaussianModel(np.zeros(n), loads @ loads.T + np.diag(rng.uniform(0.02, 0.5, n)))


def all_methods(model, m, requirement, **options):
    yield from (f(model, m, requirement, **options) for f in (assign_greedy, assign_spread))
    yield assign_packed(model, m, requirement, **options)
    yield assign_random(model, m, requirement, np.random.default_rng(0), **options)


@pytest.mark.parametrize("n", [7, 12])
def test_any_number_of_workers_whose_sizes_differ_by_one(n):
    for seed, m, epsilon in [
        (s, m, e) for s in range(6) for m in range(1, n + 1) for e in (0.6, 2)
    ]:
        model, requirement = some_model(seed, n), Requirement(epsilon, 0.05)
        for result in all_methods(model, m, requirement, uneven=True):
            assert sorted(map(len, result.workers)) == sorted(len(range(i, n, m)) for i in range(m))
            assert sorted(sum(result.workers, ())) == list(range(n))
            worst = [model.block_variance(keys).max() for keys in result.workers]
            np.testing.assert_allclose(result.reliability, requirement.reliability(worst))
        if n % m == 0:
            both = zip(*(all_methods(model, m, requirement, uneven=u) for u in (0, 1)), strict=True)
            assert all(even.workers == uneven.workers for even, uneven in both)


def test_uneven_greedy_puts_a_key_where_it_costs_least():
    pairs = np.kron(np.eye(3), [[1, 0.95], [0.95, 1]])  # the model has no seventh key
    covariance = np.block([[pairs, np.zeros((6, 1))], [np.zeros((1, 6)), np.eye(1)]])
    assignment = assign_greedy(
        GaussianModel(np.zeros(7), covariance), 3, Requirement(1.0, 0.05), uneven=True
    )
    assert assignment.workers == ((0, 2, 4), (1, 3), (5, 6))
    assert assignment.estimable.tolist() == [True, True, False]


def test_given_key_sets_are_assessed_by_index_or_by_name():
    requirement, model = Requirement(0.7, 0.05), block_model(6, 3)
    spread = assign_spread(model, 2, requirement)
    named = [[model.names[i] for i in reversed(keys)] for keys in spread.workers]
    for given in (spread.workers, named):
        assessed = assess(model, given, requirement)
        assert assessed.workers == spread.workers
        assert assessed.reliability.tolist() == spread.reliability.tolist()


test_key_sets_that_are_no_assignment_are_refused = refused(
    lambda workers: assess(block_model(4, 2), workers, Requirement(0.7, 0.05)),
    (
        [[0, 1], [1, 2, 3]],
        "of the 4 keys once, got 'X2' missing or more than once: give each",
    ),
    ([[0, 1], [3]], "of the 4 keys once, got 'X3' missing or more than once"),
    ([[0, 0], [1, 2, 3]], r"each of workers must be different keys, .* got \[0, 0\]"),
    ([[0, 1], [2, 4]], r"each of workers must be different keys, as .* 0 … 3 .* got \[2, 4\]"),
    (
        [["X1", "X2"], ["X3", "X5"]],
        r"each of workers must be different keys, .* got \['X3', 'X5'\]",
    ),
)


def test_a_worker_without_keys_loses_nothing():
    assignment = assess(block_model(4, 2), [[0, 1, 2, 3], []], Requirement(0.7, 0.05))
    assert assignment.reliability[1] == 1 and assignment.estimable[1]


@pytest.mark.parametrize("assign", [assign_greedy, assign_spread, assign_packed, assign_best])
def test_what_is_no_model_or_requirement_is_refused(assign):
    model, requirement = block_model(4, 2), Requirement(0.7, 0.05)
    with pytest.raises(ValueError, match="model must be a GaussianModel, got ndarray .*: give Gau"):
        assign(model.covariance, 2, requirement)
    with pytest.raises(ValueError, match="requirement must be a Requirement, got float 0.05: give"):
        assign(model, 2, 0.05)
    with pytest.raises(ValueError, match="rng must be a Generator, got int 1: give numpy.random"):
        assign_random(model, 2, requirement, 1)
    with pytest.raises(ValueError, match="rng must be a Generator, got int 1: give numpy.random"):
        assign_greedy(model, 2, requirement, rng=1)
