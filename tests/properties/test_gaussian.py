"""Precision-matrix shortcuts equal equations (1) and (2) of D1 computed directly."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.documents.approximately_once.assignment import assign_greedy


@st.composite
def models(draw, sizes=tuple(range(2, 9))):
    n = draw(st.sampled_from(sizes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    factor = rng.normal(size=(n, n + 2))
    return GaussianModel(rng.normal(size=n), factor @ factor.T / n + 0.05 * np.eye(n))


def direct_block_variance(model, block):
    """Equation (2) for the whole block against its complement: one solve, no precision matrix."""
    rest = np.setdiff1d(np.arange(model.size), block)
    s = model.covariance
    solved = np.linalg.solve(s[np.ix_(rest, rest)], s[np.ix_(rest, block)])
    return np.diag(s[np.ix_(block, block)] - s[np.ix_(block, rest)] @ solved)


def direct_greedy(model, m, requirement):
    """Fig. 9 line by line, every reliability from equation (2) against the complement."""
    n, capacity = model.size, model.size // m

    def r(keys):
        return (
            float(requirement.reliability(direct_block_variance(model, keys).max()))
            if keys
            else 1.0
        )

    single = [r([i]) for i in range(n)]
    estimable = [i for i in range(n) if requirement.is_met_by(single[i])]
    done, overflow = [], []
    for i in (i for i in range(n) if i not in estimable):
        overflow.append(i)
        if len(overflow) == capacity:
            done.append(overflow)
            overflow = []
    workers = [[] for _ in range(max(0, m - len(done) - 1))]
    for x in sorted(estimable, key=lambda i: (-round(single[i], 12), i)):
        fits = [w for w in workers if requirement.is_met_by(r([*w, x]))]
        if fits:
            best = min(fits, key=lambda w: round(r(w) - r([*w, x]), 12))
            best.append(x)
            if len(best) == capacity:
                done.append(best)
                workers = [w for w in workers if w is not best]
        else:
            overflow.append(x)
            if len(overflow) == capacity:
                done.append(overflow)
                overflow = min(workers, key=lambda w: round(r(w), 12)) if workers else []
                workers = [w for w in workers if w is not overflow]
    return [tuple(sorted(w)) for w in [*done, *workers, overflow] if w]


@given(models(), st.randoms(use_true_random=False))
def test_block_variance_is_equation_2(model, random):
    block = random.sample(range(model.size), random.randint(1, model.size - 1))
    np.testing.assert_allclose(
        model.block_variance(block), direct_block_variance(model, block), rtol=1e-8
    )


@given(models(), st.randoms(use_true_random=False))
def test_condition_is_equations_1_and_2(model, random):
    observed = random.sample(range(model.size), random.randint(0, model.size))
    rest, names = np.setdiff1d(np.arange(model.size), observed), np.array(model.names)
    values = np.array([random.uniform(-9, 9) for _ in observed])
    s, o = model.covariance, np.array(observed, int)
    gain = s[np.ix_(rest, o)] @ np.linalg.inv(s[np.ix_(o, o)])
    covariance = s[np.ix_(rest, rest)] - gain @ s[np.ix_(o, rest)]

    posterior = model.condition(dict(zip(names[o], values, strict=True)))
    expected = model.mean[rest] + gain @ (values - model.mean[o])
    assert posterior.names == tuple(names[rest])
    np.testing.assert_allclose(posterior.mean, expected, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(posterior.covariance, covariance, rtol=1e-7, atol=1e-10)
    np.testing.assert_array_equal(posterior.variance, np.diag(posterior.covariance))
    variance = model.posterior_variance(names[o])
    np.testing.assert_allclose(variance[rest], posterior.variance, rtol=1e-7)
    assert not variance[o].any()

    every_other = np.arange(len(rest))[::-2]
    conditional = model.conditional(observed, rest[every_other])
    np.testing.assert_allclose(conditional[0], gain[every_other], rtol=1e-7, atol=1e-8)
    wanted = covariance[np.ix_(every_other, every_other)]
    np.testing.assert_allclose(conditional[1], wanted, rtol=1e-7, atol=1e-10)


@given(models((4, 6, 8)), st.sampled_from([1, 2]), st.floats(0.3, 3.0))
def test_greedy_is_figure_9_done_directly(model, halves, epsilon):
    m, requirement = model.size // halves, Requirement(epsilon, 0.1)
    assert list(assign_greedy(model, m, requirement).workers) == direct_greedy(
        model, m, requirement
    )
    assert list(assign_greedy(model, 2, requirement).workers) == direct_greedy(
        model, 2, requirement
    )
