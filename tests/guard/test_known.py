"""The known model behind the guard's interface: D1's equations, alone and by group of a stream."""

import copy
import itertools
import pickle

import numpy as np
import pytest

from aftlib import GaussianModel, Promise, Requirement
from aftlib.guard.known import KnownModel

NAMES = ["a", "b", "c", "d"]
WORKERS = [[0], [1], [2, 3]]


def model(weak=False):
    """Four sensors that share a common part; d has much noise if `weak`."""
    noise = np.diag([0.05, 0.05, 0.05, 1.0 if weak else 0.05])
    return GaussianModel([1.0, 2, 3, 4], np.ones((4, 4)) + noise, NAMES)


def windows(rounds=50, lost=()):
    values = np.random.default_rng(1).multivariate_normal(model().mean, model().covariance, rounds)
    for row, sensors in lost:
        values[row, sensors] = np.nan
    return values


def test_estimates_are_the_posterior_of_the_documents_equations():
    rows = windows(lost=[(3, [2, 3]), (4, [0]), (5, [3]), (6, [0, 2])])
    recovered = KnownModel(model(), WORKERS, 0.6, 0.05).update(rows)
    for row in (3, 4, 5, 6):
        there = ~np.isnan(rows[row])
        observed = {name: rows[row, i] for i, name in enumerate(NAMES) if there[i]}
        posterior = model().condition(observed)
        np.testing.assert_allclose(recovered.estimate[row, ~there], posterior.mean, rtol=1e-9)
        half_width = Requirement(0.6, 0.05).half_width(posterior.variance)
        np.testing.assert_allclose(recovered.half_width[row, ~there], half_width, rtol=1e-9)
    assert recovered.certified[[3, 4, 5]].sum(axis=1).tolist() == [2, 1, 1]
    assert not recovered.certified[6].any()  # two workers are away
    assert np.isnan(recovered.estimate[~np.isnan(rows)]).all()


def test_a_worker_whose_least_reliability_is_too_low_is_not_certified():
    """Sensor d can hardly be estimated, so neither it nor c of the same worker is certified."""
    weak = KnownModel(model(weak=True), WORKERS, 0.6, 0.05)
    assert weak.recoverable[0].tolist() == [True, True, False, False]
    assert not weak.update(windows(1, [(0, [2, 3])])).certified.any()
    assert weak.recoverable.sum() == 0  # another worker is away already
    assert KnownModel(model(weak=True), WORKERS, [0.6, 0.6, 0.6, 2.5], 0.05).recoverable.all()


def test_the_outcomes_are_those_of_the_shadow_estimates():
    shadowed = KnownModel(model(), WORKERS, 0.3, 0.3)
    shadowed.update(windows(400, [(7, [1])]))
    number, wrong, slack = shadowed.outcomes[:, 0]
    assert number.tolist() == [399] * 4 and slack.tolist() == [0] * 4
    variance = np.concatenate([model().block_variance(worker) for worker in WORKERS])
    rate = 1 - Requirement(0.3, 0.3).reliability(variance)
    np.testing.assert_allclose(wrong / 399, rate, atol=0.06)


def test_of_many_windows_each_set_of_missing_sensors_is_solved_once(monkeypatch):
    """Every two of four sensors are missing in turn; estimates are those of single windows.

    In the weak model sensors differ, else two pairs of them would have the same solution.
    """
    pairs = list(itertools.combinations(range(4), 2))
    rows = windows(13, [(place, pair) for place, pair in enumerate(pairs * 2)])
    known = KnownModel(model(weak=True), WORKERS, 0.6, 0.05)
    single = [known.update(row) for row in rows]
    solved = []
    conditional = GaussianModel.conditional

    def record(self, observed, wanted):
        solved.append(tuple(wanted))
        return conditional(self, observed, wanted)

    monkeypatch.setattr(GaussianModel, "conditional", record)
    recovered = known.update(rows)
    assert sorted(solved) == pairs
    for name in ("estimate", "half_width", "certified"):
        one_by_one = np.concatenate([getattr(each, name) for each in single])
        np.testing.assert_array_equal(getattr(recovered, name), one_by_one)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizons": -1}, "horizons must be a whole number .*, got -1"),
        ({"horizons": 2.5}, "horizons must be a whole number .*, got 2.5"),
        ({"horizons": 10**6}, "horizons must be .* at most 1000, got 1000000"),
        ({"seasons": ["rubbish"]}, "each of seasons must be a duration .*, got 'rubbish'"),
        ({"seasons": ["0s"]}, "each of seasons must be above 0, got 0"),
        ({"delta": 1.5}, "delta must be above 0 and below 1, got 1.5"),
        ({"epsilon": -1}, "epsilon must be above 0"),
    ],
)
@pytest.mark.parametrize("given", [None, model()])
def test_a_promise_is_checked_with_and_without_a_model(given, change, message):
    terms = {"epsilon": 0.6, "delta": 0.05, "window": "5min", "model": given}
    with pytest.raises(ValueError, match=message):
        Promise([["a"], ["b"], ["c", "d"]], **terms | change)


def test_a_copy_counts_for_itself():
    first = KnownModel(model(), WORKERS, 0.6, 0.05)
    first.update(windows(3))
    before = first.outcomes
    for twin in (copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        np.testing.assert_array_equal(twin.outcomes, before)
        twin.update(windows(5))
        assert (twin.outcomes[0] == before[0] + 5).all()
    np.testing.assert_array_equal(first.outcomes, before)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            GaussianModel([0, 0], np.eye(2)),
            "model must have the sensors of the workers",
        ),
        (np.eye(4), "model must be a GaussianModel, got array"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Promise([["a"], ["b"]], 0.5, 0.05, "5min", model=given)
