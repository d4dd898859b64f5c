"""The account of real failures ends estimates that go wrong, and goes on from its arrays."""

import numpy as np

from aftlib.guard.accounts import Audit, Estimates, pooled_slack

DELTA, LIMIT = 0.05, np.array([1.0, 1.0, 1.0])
EVERYONE = np.ones(3, bool)


def off(place, keys, estimate):
    """The first sensor is always wrong, the second one right, the third has no truth."""
    return np.array([2.0, 0.5, np.nan])[keys] + 0 * estimate


def failing(estimates, rounds):
    """Return the sensors estimated after a failure in each round; audits come a round later."""
    allowed = []
    for window in rounds:
        allowed.append(estimates.certify((window, 7), EVERYONE, window / 2))
        estimates.audit(off, LIMIT, window - 1)
    return np.array(allowed)


def test_a_sensor_that_is_wrong_is_not_estimated_for_long_and_the_bound_holds():
    estimates = Estimates(3, DELTA, "windows", "intervals")
    allowed = failing(estimates, range(100))
    assert 1 < allowed[:, 0].sum() < 10
    assert allowed[:, 2].all()  # an estimate without a truth counts as no error
    audited = estimates.audited
    assert audited.estimates == allowed[:99, :2].sum() and audited.wrong == allowed[:99, 0].sum()
    at_once = allowed[:-1].sum(axis=1) + allowed[1:].sum(axis=1)  # two failures, before the audit
    slack = pooled_slack(100, DELTA, 3, 0) + at_once.max() * (1 - DELTA)
    assert audited == Audit(audited.estimates, audited.wrong, DELTA * audited.estimates + slack)
    assert audited.wrong <= audited.bound


def test_it_goes_on_from_its_arrays():
    one, other = (Estimates(3, DELTA, "windows", "intervals") for _ in range(2))
    failing(one, range(5))
    stored = {name: array.copy() for name, array in one.arrays().items()}
    assert (stored["windows"].tolist(), stored["intervals"].tolist()) == ([4], [7])
    assert stored["estimates"].tolist() == [[2.0, 2.0, 2.0]]
    other.restore(stored)
    assert (failing(one, range(5, 30)) == failing(other, range(5, 30))).all()
    assert one.audited == other.audited


def test_arrays_of_nothing_have_their_shapes():
    stored = Estimates(3, DELTA, "windows").arrays()
    shapes = stored["decisions"].shape, stored["estimates"].shape, stored["windows"].shape
    assert shapes == ((0, 3), (0, 3), (0,))
