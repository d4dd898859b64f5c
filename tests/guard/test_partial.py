"""The guard for partial replay: its estimates by hand, its accounts, gaps and losses."""

import numpy as np
import pandas as pd
import pytest

from aftlib.checkpoint_planning.guarded_replay import replay_guard
from aftlib.core.requirement import Requirement
from aftlib.guard.partial import FORGET, LOADING, PartialGuard
from tests.guard.test_guard import of_any_size

WIDTH, START = 6, 2


def samples(rounds, n=4, seed=1, noise=0.3, memory=0.9):
    """Sensors that share a slow common part; windows of six samples."""
    rng = np.random.default_rng(seed)
    common, at = np.empty(rounds * WIDTH), 0.0
    for t in range(rounds * WIDTH):
        at = memory * at + rng.normal()
        common[t] = at
    values = common[:, None] + noise * rng.normal(size=(rounds * WIDTH, n)) + np.arange(n)
    return values.reshape(rounds, WIDTH, n)


def first_open(covariance, target):
    """O is the first sensor and those that must be read."""
    return [0, *np.flatnonzero(target == 0)]


def guard(n=4, epsilon=1.0, select=first_open, intervals=((START, WIDTH),), **options):
    return PartialGuard(WIDTH, intervals, epsilon, 0.05, n, select, **options)


def check_bound(seen):
    """The theorem with h = 1."""
    number, wrong, slack = seen.outcomes
    assert (wrong <= 0.05 * number + slack).all()


def test_estimates_are_the_conditional_means_of_the_interval():
    """The prefix and O estimate all other sensors; those of O are estimated without themselves."""
    windows, seen = samples(80), guard(select=lambda c, t: [0, 2, *np.flatnonzero(t == 0)])
    seen.update(windows[:79])
    assert [list(o) for o in seen.replay] == [[0, 2]]
    history = seen.update(windows[79])

    again = guard()
    again.update(windows[:79])
    model = again.intervals[0]
    moments = model.moments / model.weight
    covariance = moments + np.diag(LOADING * moments.diagonal())
    z = np.concatenate([windows[79, :START].mean(axis=0), windows[79, START:].mean(axis=0)])
    for i in range(4):
        by = [*range(4), *(4 + j for j in (0, 2) if j != i)]
        gain = np.linalg.solve(covariance[np.ix_(by, by)], covariance[by, 4 + i])
        expected = model.level[4 + i] + gain @ (z - model.level)[by]
        assert history.estimate[0, 0, i] == pytest.approx(expected, rel=1e-6)


def test_the_guarantee_holds_where_samples_depend_on_earlier_ones():
    windows, seen = samples(600), guard(epsilon=0.5)
    history = seen.update(windows)
    certified = history.decisions[:, 0] == 2
    off = np.abs(windows[:, START:].mean(axis=1) - history.estimate[:, 0]) * (WIDTH - START) / WIDTH
    assert certified[300:].mean() > 0.7
    number, wrong, slack = seen.outcomes[:, 0]
    np.testing.assert_array_equal(number, certified.sum(axis=0))
    np.testing.assert_array_equal(wrong, (certified & (off > 0.5)).sum(axis=0))
    assert (wrong <= 0.05 * number + slack).all()
    assert wrong.sum() > 0


def test_a_sensor_whose_account_closes_joins_what_is_read_and_comes_back():
    windows, seen, read, blocked = samples(900), guard(), [], []
    shift = np.random.default_rng(3).choice([-3, 3], size=(30, 1))
    windows[300:330, START:, 3] += shift  # for thirty windows it deviates
    for window in windows:
        blocked.append(seen.update(window).decisions[0, 0, 3] == 1)
        read.append(3 in seen.replay[0])
        assert 1 not in seen.replay[0] or len(read) < 250
    assert not any(read[250:300])
    assert all(read[330:500])
    assert any(blocked)  # in quarantine, once the model would have it estimated again
    assert not any(read[650:])


def test_single_windows_many_and_a_restart_give_the_same():
    windows, spans = samples(120), [(0, WIDTH), (2, 4), (START, WIDTH)]
    windows[np.random.default_rng(2).random(windows.shape) < 0.05] = np.nan
    bulk, single, first, cut = (guard(intervals=spans, seasons=[24, 12]) for _ in range(4))
    history = bulk.update(windows)
    rows = [single.update(window) for window in windows]
    for name in ("decisions", "estimate"):
        one = np.concatenate([getattr(row, name) for row in rows])
        np.testing.assert_array_equal(one, getattr(history, name))
    assert np.isfinite(history.estimate).all()
    for begin, end in ((0, 0), (0, 70), (70, 120)):
        first.update(windows[begin:end])
        cut.restore(first.to_bytes())
        first, cut = cut, first
    assert bulk.to_bytes() == single.to_bytes() == first.to_bytes()
    assert first.rounds == 120
    np.testing.assert_array_equal(first.outcomes, bulk.outcomes)
    for ours, theirs in zip(first.replay, bulk.replay, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_targets_leave_a_margin_for_the_variance_of_fitting():
    """If variables are the share q of windows, (1 − q) / (1 + q) of the variance is left."""
    targets = []
    seen = guard(select=lambda covariance, target: targets.append(target) or first_open(0, target))
    seen.update(samples(40))
    weight = sum((1 - FORGET) ** k for k in range(39))
    q = (4 + 1) / weight  # the means before the interval, and one
    limit = 1.0 * WIDTH / (WIDTH - START)
    expected = (limit / Requirement(1, 0.05).z) ** 2 * (1 - q) / (1 + q)
    np.testing.assert_allclose(targets[-1], expected)


def test_losses_are_estimated_from_what_is_read_and_settle_nothing():
    windows = samples(200)
    seen, blind = guard(), guard()
    for one in (seen, blind):
        one.update(windows[:199])
    lost = windows[199].copy()
    lost[START:, 1:] = np.nan
    booked = blind.intervals[0].accounts.accounts[1:].copy()
    estimate = blind.update(lost).estimate
    np.testing.assert_allclose(estimate[0, 0, 1:], seen.update(windows[199]).estimate[0, 0, 1:])
    np.testing.assert_array_equal(blind.intervals[0].accounts.accounts[1:], booked)
    number = [one.outcomes[0, 0] for one in (blind, seen)]
    np.testing.assert_array_equal(number[1] - number[0], [0, 1, 1, 1])


def test_what_is_lost_is_learned_as_the_model_expects_it():
    """A sensor that is lost in every third window has the same covariance as without losses."""
    windows, models = samples(600), []
    for lost in (False, True):
        seen, data = guard(), windows.copy()
        if lost:
            data[100::3, START:, 3] = np.nan
        seen.update(data)
        models.append(seen.intervals[0].covariance)
    np.testing.assert_allclose(models[1], models[0], rtol=0.1)


def test_a_mean_of_too_few_samples_counts_as_missing():
    windows, seen = samples(200), guard()
    seen.update(windows[:199])
    odd = windows[199].copy()
    odd[START:, 0] = [1000.0, np.nan, np.nan, np.nan]
    estimate = seen.update(odd).estimate[0, 0, 1:]
    np.testing.assert_allclose(estimate, windows[199, START:, 1:].mean(axis=0), atol=3)


def test_without_seasons_and_before_the_window_there_is_only_what_is_read():
    read_none = lambda c, t: np.flatnonzero(t == 0)  # noqa: E731
    seen = guard(intervals=[(0, WIDTH)], epsilon=100.0, select=read_none)
    history = seen.update(samples(50))
    level = seen.intervals[0].level
    assert seen.replay[0].size == 0
    assert np.isfinite(history.estimate).all()
    lost = seen.update(np.full((WIDTH, 4), np.nan)).estimate[0, 0]
    np.testing.assert_allclose(lost, level)  # without data the estimate is the level


def test_a_sensor_that_stands_still_is_known():
    windows = samples(100)
    windows[..., 2] = 7.0
    history = guard(select=lambda c, t: [0, 1, 3, *np.flatnonzero(t == 0)]).update(windows)
    assert history.estimate[-1, 0, 2] == pytest.approx(7.0)
    assert history.decisions[-1, 0, 2] == 2


def test_seasons_are_learned():
    rng = np.random.default_rng(1)
    steps = np.arange(300 * WIDTH)
    wave = 5 * np.sin(2 * np.pi * steps / 40)[:, None] + 0.1 * rng.normal(size=(steps.size, 2))
    errors = []
    for seasons in ((), (40,)):
        history = guard(2, select=first_open, seasons=seasons).update(wave.reshape(-1, WIDTH, 2))
        truth = wave.reshape(-1, WIDTH, 2)[:, START:].mean(axis=1)
        errors.append(np.abs(history.estimate[200:, 0, 0] - truth[200:, 0]).mean())
    assert errors[1] < errors[0] / 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"intervals": []}, r"intervals must hold \(a, b\) with .* window = 6, got \[\]"),
        ({"intervals": [(3, 3)]}, r"intervals must hold .* got \[\(3, 3\)\]"),
        ({"intervals": [(0, 7)]}, r"intervals must hold .* got \[\(0, 7\)\]"),
        ({"epsilon": 0}, "epsilon must be above 0 .* 4 sensors, got 0"),
        ({"seasons": [0]}, "each of seasons must be above 0, got 0"),
        ({"n": 0}, "sensors must be a whole number at least 1, got 0"),
    ],
)
def test_impossible_guards_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        guard(**change)


@pytest.mark.parametrize(("seed", "epsilon"), [(3, 0.5), (11, 1e-120), (18, 0.5), (24, 1e-120)])
def test_values_of_any_size_beside_each_other_do_not_end_the_guard(seed, epsilon):
    """In the sensors' own units no solution was symmetric; and a NaN would count as no error."""
    seen = replay_guard(WIDTH, (0, START), epsilon, 0.05, 12)
    assert np.isfinite(seen.update(of_any_size(seed, (100, WIDTH, 12))).estimate).all()
    check_bound(seen)


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        (pd.DataFrame(np.zeros((6, 4)), columns=list("dcba")), "windows must be an array, got a D"),
        (np.zeros(6), r"windows must have shape \(6, 4\) or"),
        (np.zeros((5, 4)), r"windows must have shape \(6, 4\) or"),
        (np.full((6, 4), np.inf), "windows must be below 1e.100 in size, got inf"),
        (np.full((6, 4), -1e100), "windows must be below 1e.100 in size, got -1e.100"),
    ],
)
def test_windows_that_do_not_fit_are_refused_and_leave_the_state(windows, message):
    seen = guard()
    with pytest.raises(ValueError, match=message):
        seen.update(windows)
    assert seen.rounds == 0


def test_more_sensors_than_the_memory_has_windows_are_certified_too(monkeypatch):
    """The case of 600 sensors and a memory of 600 windows, at a tenth of the size."""
    monkeypatch.setattr("aftlib.guard.partial.FORGET", 1 / 20)
    seen = guard(n=24)
    decisions = seen.update(samples(200, n=24)).decisions
    assert not decisions[:24].any()
    assert (decisions[120:] == 2).mean() > 0.7
    check_bound(seen)
