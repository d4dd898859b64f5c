"""The master: holds windows until all are done, estimates what is owed."""

import numpy as np
import pytest

from aftlib.approximately_once.assignment import assign_spread
from aftlib.approximately_once.master import Master
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement

MODEL = block_model(6, 2)
REQUIREMENT = Requirement(1.0, 0.05)


@pytest.fixture
def master():
    return Master(MODEL, assign_spread(MODEL, 3, REQUIREMENT), REQUIREMENT)


def test_finished_windows_are_dropped(master):
    for worker in range(3):
        assert list(master.damaged) == ([] if worker == 0 else [7])
        master.receive(7, worker, np.zeros(2))
    assert list(master.damaged) == []


def test_estimate_is_the_posterior_mean_with_its_half_width(master):
    values = np.array([0.5, -1.0, 2.0, 0.1, 1.2, -0.3])
    for worker in (0, 2):
        keys = list(master.assignment.workers[worker])
        master.receive(3, worker, values[keys])
    master.expect(3)
    (estimate,) = master.estimate(3)
    lost = master.assignment.workers[1]
    seen = {MODEL.names[i]: values[i] for i in range(6) if i not in lost}
    posterior = MODEL.condition(seen)
    np.testing.assert_allclose(estimate.value, posterior.mean)
    np.testing.assert_allclose(estimate.half_width, REQUIREMENT.half_width(posterior.variance))
    assert (estimate.window, estimate.worker, estimate.keys) == (3, 1, lost)
    assert list(master.damaged) == []


def test_two_lost_workers_and_a_missing_sample_widen_the_estimate(master):
    master.receive(0, 0, np.array([1.0, np.nan]))
    one, two = master.estimate(0)
    assert (one.worker, two.worker) == (1, 2)
    seen = MODEL.condition({MODEL.names[master.assignment.workers[0][0]]: 1.0})
    by_name = dict(zip(seen.names, seen.mean, strict=True))
    np.testing.assert_allclose(one.value, [by_name[MODEL.names[k]] for k in one.keys])
    assert one.half_width.max() == pytest.approx(float(REQUIREMENT.half_width(1.0)))


def test_everything_lost_is_the_prior(master):
    master.expect(0)
    assert all((e.value == 0).all() for e in master.estimate(0))
