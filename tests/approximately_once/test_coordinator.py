"""The coordinator: holds windows until all are done, estimates the missing ones."""

import numpy as np
import pytest

from aftlib.approximately_once.assignment import assign_spread
from aftlib.approximately_once.coordinator import Coordinator
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.windows import Windows

MODEL = block_model(6, 2)
REQUIREMENT = Requirement(1.0, 0.05)


@pytest.fixture
def coordinator():
    return Coordinator(MODEL, assign_spread(MODEL, 3, REQUIREMENT), REQUIREMENT)


def test_finished_windows_are_dropped(coordinator):
    for worker in range(3):
        assert list(coordinator.damaged) == ([] if worker == 0 else [7])
        coordinator.receive(7, worker, np.zeros(2))
    assert list(coordinator.damaged) == []


def test_estimate_is_the_posterior_mean_with_its_half_width(coordinator):
    values = np.array([0.5, -1.0, 2.0, 0.1, 1.2, -0.3])
    for worker in (0, 2):
        keys = list(coordinator.assignment.workers[worker])
        coordinator.receive(3, worker, values[keys])
    coordinator.expect(3)
    (estimate,) = coordinator.estimate(3)
    lost = coordinator.assignment.workers[1]
    seen = {MODEL.names[i]: values[i] for i in range(6) if i not in lost}
    posterior = MODEL.condition(seen)
    np.testing.assert_allclose(estimate.value, posterior.mean)
    np.testing.assert_allclose(estimate.half_width, REQUIREMENT.half_width(posterior.variance))
    assert (estimate.worker, estimate.keys) == (1, lost)
    assert list(coordinator.damaged) == []


def test_two_lost_workers_and_a_missing_sample_widen_the_estimate(coordinator):
    coordinator.receive(0, 0, np.array([1.0, np.nan]))
    one, two = coordinator.estimate(0)
    assert (one.worker, two.worker) == (1, 2)
    seen = MODEL.condition({MODEL.names[coordinator.assignment.workers[0][0]]: 1.0})
    by_name = dict(zip(seen.names, seen.mean, strict=True))
    np.testing.assert_allclose(one.value, [by_name[MODEL.names[k]] for k in one.keys])
    assert one.half_width.max() == pytest.approx(float(REQUIREMENT.half_width(1.0)))


WIDTH = 30


def missed(rng, share, together):
    """Which samples of the peers are there: each missing by itself, or whole steps of all."""
    present = rng.random((WIDTH, 6)) >= share
    return present[:, :1].repeat(6, axis=1) if together else present


@pytest.mark.parametrize(
    ("query", "together", "share"),
    [("mean", False, 0), ("mean", True, 0.5), ("sum", False, 0.9), ("mean", True, 0.97)],
)
def test_half_widths_hold_when_samples_are_missing(share, together, query):
    rng, windows = np.random.default_rng(7), Windows(WIDTH, WIDTH, query)
    model, trials = MODEL.aggregate(WIDTH, query), 1500
    coordinator = Coordinator(model, assign_spread(model, 3, REQUIREMENT), REQUIREMENT, windows)
    lost = list(coordinator.assignment.workers[0])
    within = 0
    for window in range(trials):
        samples = rng.standard_normal((WIDTH, 6)) @ MODEL.cholesky.T
        present = missed(rng, share, together)
        count = present.sum(axis=0)
        values = np.where(count, (samples * present).sum(axis=0), np.nan)
        if query == "mean":
            values = values / np.maximum(count, 1)
        for worker in (1, 2):
            keys = list(coordinator.assignment.workers[worker])
            coordinator.receive(window, worker, values[keys], count[keys])
        (estimate,) = coordinator.estimate(window)
        true = samples[:, lost].mean(axis=0) * (1 if query == "mean" else WIDTH)
        within += (np.abs(estimate.value - true) <= estimate.half_width).sum()
    assert 0.95 - 3 * np.sqrt(0.95 * 0.05 / trials) <= within / (2 * trials)


def by_complement(model, windows, keys, observed, samples):
    """Gain and variance by one solve over everything observed, as equations (1), (2) stand."""
    sigma, width = model.covariance, windows.width
    among, across = sigma[np.ix_(observed, observed)], sigma[np.ix_(keys, observed)]
    either, both = np.maximum.outer(samples, samples), np.multiply.outer(samples, samples)
    together = among * (width / either - 1)
    gain = np.linalg.solve(among + together, across.T).T
    least = np.maximum(0, np.add.outer(samples, samples) - width)
    np.fill_diagonal(least, samples)
    apart = among * (width * least / both - 1)
    noise = [np.maximum(np.outer(g, g) * together, np.outer(g, g) * apart).sum() for g in gain]
    error = sigma[np.ix_(keys, keys)] - 2 * gain @ across.T + gain @ among @ gain.T
    return gain, np.diag(error) + noise


@pytest.mark.parametrize("missing", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("gone", [0, 3])
def test_gain_and_variance_are_those_of_one_solve_over_the_complement(missing, gone):
    rng, windows = np.random.default_rng(2), Windows(WIDTH, WIDTH)
    spread = rng.normal(size=(24, 30))
    model = GaussianModel(np.zeros(24), spread @ spread.T)
    assignment = assign_spread(model, 6, REQUIREMENT)
    coordinator = Coordinator(model, assignment, REQUIREMENT, windows)
    keys = list(assignment.workers[1])
    observed = np.array([i for i in range(24) if i not in keys])[gone:]
    lacks = rng.random(len(observed)) < missing
    samples = np.where(lacks, rng.integers(1, WIDTH, len(observed)), WIDTH)
    values, counts = rng.normal(size=24), np.zeros(24, dtype=np.int64)
    counts[observed] = samples
    for worker, mine in enumerate(map(list, assignment.workers)):
        if worker != 1:
            given = np.where(counts[mine] > 0, values[mine], np.nan)
            coordinator.receive(0, worker, given, counts[mine])
    (estimate,) = coordinator.estimate(0)
    gain, variance = by_complement(model, windows, keys, observed, samples)
    np.testing.assert_allclose(estimate.value, gain @ values[observed], atol=1e-9)
    np.testing.assert_allclose(estimate.half_width, REQUIREMENT.half_width(variance), atol=1e-9)
