"""Sensors that join and leave a running guard, a changed ε or δ: what stays, begins and holds."""

import numpy as np
import pytest

from aftlib.guard.accounts import pooled_slack, slack
from aftlib.guard.guard import Guard
from tests.guard.test_guard import stream

ALONE = [[i] for i in range(6)]
NAMES = list("abcdef")


def learned(windows, names=NAMES, epsilon=0.9, workers=None):
    guard = Guard(workers or [[i] for i in range(len(names))], epsilon, 0.05, names=names)
    guard.update(windows)
    return guard


def estimates(guard, windows):
    """Shadow predictions two windows after a failure."""
    return guard.replay(windows).estimate[:, 1]


@pytest.mark.parametrize("n", [6, 161])
def test_without_a_sensor_the_guard_predicts_as_if_it_had_never_had_it(n):
    """Before and after the next fits; the moments of the others, and the marginal of the fit."""
    windows, names = stream(330, n=n), [str(i) for i in range(n)]
    less = np.delete(np.arange(n), [1, 4])
    rest, workers = [names[i] for i in less], [[i] for i in range(n - 2)]
    guard, never = learned(windows[:263], names), learned(windows[:263, less], rest)
    before = guard.to_bytes()
    changed = guard.continue_with(workers, 0.9, 0.05, rest)
    assert guard.to_bytes() == before
    actual, expected = (estimates(each, windows[263:, less]) for each in (changed, never))
    atol = 0 if n == 6 else 0.1  # the residuals of many are from predictions with those that left
    np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=atol)


@pytest.mark.parametrize("n", [6, 161])
def test_a_sensor_that_joins_is_as_one_that_never_sent_a_window(n):
    windows, names = stream(330, n=n), [str(i) for i in range(n)]
    absent = windows.copy()
    absent[:263, 1] = absent[:280, 2] = np.nan
    less, workers = np.delete(np.arange(n), [1, 2]), [[i] for i in range(n)]
    guard = learned(windows[:263, less], [names[i] for i in less])
    joined = guard.continue_with(workers, 0.9, 0.05, names)
    never = learned(absent[:263], names)
    actual, expected = (estimates(each, absent[263:]) for each in (joined, never))
    np.testing.assert_allclose(actual, expected, rtol=1e-7)


@pytest.mark.parametrize(("before", "after"), [(151, 150), (150, 151)])
def test_the_model_of_many_sensors_becomes_that_of_few_and_back(before, after):
    windows, names = stream(420, n=151), [str(i) for i in range(151)]
    guard = learned(windows[:240, :before], names[:before])
    workers = [[i] for i in range(after)]
    changed = guard.continue_with(workers, 0.9, 0.05, names[:after])
    off = np.abs(estimates(changed, windows[240:, :after]) - windows[240:, :after])[:, :150]
    assert off[1:100].mean() < 0.4 and off[100:].mean() < 0.4
    assert changed.recoverable[0, :150].mean() > 0.9


def test_a_sensor_that_joins_is_certified_almost_as_soon_as_in_a_new_guard():
    """Although the model has 2,000 windows in which it was not there."""
    windows = stream(2400)
    guard, new = learned(windows[:2000, :5], NAMES[:5]), Guard(ALONE, 0.9, 0.05)
    joined = guard.continue_with(ALONE, 0.9, 0.05, NAMES)
    late = learned(np.where(np.arange(6) == 5, np.nan, windows[:2000]))
    decisions = [each.replay(windows[2000:]).decisions[:, 0, 5] for each in (joined, late, new)]
    first = [int(np.argmax(each == 2)) for each in decisions]
    assert first[0] <= first[2] + 30 and first[1] <= first[2] + 30
    assert (decisions[0][200:] == 2).mean() > 0.9
    assert joined.recoverable[0, :5].all()


def test_accounts_go_on_begin_and_end():
    windows = stream(1000)
    windows[500:900:25] += 2 * np.random.default_rng(3).normal(size=(16, 6))
    guard = learned(windows)
    counts, accounts = guard.outcomes, guard._all.state.accounts
    assert (counts[1] > 5).all() and guard.recoverable[0].all()
    limits = [0.9, 1.2, 0.9, 0.9, 0.9]  # that of d
    changed = guard.continue_with([[0], [1], [2], [3], [4]], limits, 0.05, list("bdxac"))
    stayed, fresh, before = [0, 3, 4], [1, 2], [1, 0, 2]
    np.testing.assert_array_equal(changed.outcomes[..., stayed], counts[..., before])
    np.testing.assert_array_equal(changed._all.state.accounts[:, stayed], accounts[:, before])
    assert changed.recoverable[0].tolist() == [True, False, False, True, True]
    assert not changed.outcomes[:2, :, fresh].any()
    np.testing.assert_array_equal(
        changed.outcomes[2, :, fresh], [[slack(0, 0.05, h) for h in range(1, 6)]] * 2
    )
    changed.update(stream(1001)[1000, [1, 3, 5, 0, 2]])
    assert changed.recoverable[0].tolist() == [True, True, False, True, True]
    stricter = guard.continue_with(ALONE, 0.9, 0.02)
    assert not stricter.outcomes[:2].any() and not stricter.recoverable.any()
    np.testing.assert_array_equal(
        stricter._all.state.pools, Guard(ALONE, 0.9, 0.02)._all.state.pools
    )


def test_an_outage_goes_on_while_another_sensor_joins_or_leaves():
    windows = stream(1000)
    guard = learned(windows[:-1])
    assert guard.recoverable[:2].all()
    lost = windows[-1].copy()
    lost[0] = np.nan
    guard.update(lost)
    fewer = guard.continue_with(ALONE[:5], 0.9, 0.05, NAMES[:5])
    more = guard.continue_with([*ALONE, [6]], 0.9, 0.05, [*NAMES, "g"])
    assert fewer.update(lost[:5]).declared[0].tolist() == [True] + [False] * 4
    recovered = more.update([*lost, 7.0])
    assert recovered.declared[0, 0]
    assert recovered.estimate[0, 0] == pytest.approx(guard.update(lost).estimate[0, 0])
    stricter = Guard.from_bytes(guard.to_bytes()).continue_with(ALONE, 0.8, 0.05)
    assert not stricter.update(lost).declared.any()


def count_certified(guard, window, names, limits):
    """Certified windows with known outcome, and the errors among them, from estimates alone."""
    history = guard.replay(window)
    certified = (history.decisions[0] == 2) & np.isfinite(window)
    limits = np.array([limits[name] for name in names])
    return certified, certified & (np.abs(window - history.estimate[0]) > limits)


def changed_at_random(rng, names, limits, delta):
    """Other sensors, sometimes another ε of one, and rarely another δ."""
    names, limits, stays = list(names), dict(limits), rng.choice(names)
    for name in rng.permutation(list(limits))[: rng.integers(1, 5)]:
        if name not in names:
            names.append(name)
        elif name != stays:
            names.remove(name)
    if rng.random() < 0.3:
        limits[names[0]] = 0.9 - limits[names[0]]
    return names, limits, 0.07 - delta if rng.random() < 0.1 else delta


@pytest.mark.parametrize("seed", range(4))
def test_the_bounds_hold_over_joins_leaves_and_changed_limits(seed):
    """The stream errs whenever it is certified. Each account has its bound, and so has the pool."""
    rng, names, delta = np.random.default_rng(seed), NAMES, 0.05
    limits = dict.fromkeys("abcdefgh", 0.5)
    guard, books, pool, most = Guard(ALONE, 0.5, delta, 3, names=names), {}, np.zeros(3), 6
    for t in range(900):
        if t >= 200 and rng.random() < 0.08:
            ago, before = delta, dict(limits)
            left, (names, limits, delta) = names, changed_at_random(rng, names, limits, delta)
            stay = {n for n in names if n in left and limits[n] == before[n] and delta == ago}
            books = {name: book for name, book in books.items() if name in stay}
            if not stay:
                pool, most = np.zeros(3), 0
            chosen = [limits[name] for name in names]
            guard = guard.continue_with([[i] for i in range(len(names))], chosen, delta, names)
        noise = 3.0 if t > 200 and guard.recoverable[0].mean() > 0.3 and t % 5 < 3 else 0.02
        window = rng.normal() + noise * rng.normal(size=len(names))
        window[rng.random(len(names)) < 0.05] = np.nan
        certified, wrong = count_certified(guard, window, names, limits)
        pool += (wrong - delta * certified).sum(axis=1)
        most = max(most, len(names))
        assert all(pool[h] <= pooled_slack(t + 1, delta, most, h + 1) + 1e-9 for h in range(3))
        for i, name in enumerate(names):
            begun, number, errors = books.setdefault(name, (t, np.zeros(3), np.zeros(3)))
            number += certified[:, i]
            errors += wrong[:, i]
            bound = [slack(t + 1 - begun, delta, h) for h in (1, 2, 3)]
            np.testing.assert_array_equal(guard.outcomes[:, :, i], [number, errors, bound])
            assert (errors <= delta * number + bound + 1e-9).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((ALONE[:2], 0.9, 0.05), "names must be 2 different ones, one per sensor"),
        ((ALONE[:2], 0.9, 0.05, [*"xy"]), "names must hold a sensor of this guard, got 'x', 'y'"),
        ((ALONE[:2], 0.9, 0.05, ["a", "a"]), "names must be 2 different ones"),
        ((ALONE, 0.9, 0.05, set(NAMES)), "names must be a list such as"),
        ((ALONE, 0, 0.05), "epsilon must be above 0"),
        ((ALONE, 0.9, 1.5), "delta must be above 0 and below 1, got 1.5"),
    ],
)
def test_changes_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        learned(stream(10)).continue_with(*arguments)


def test_sensors_without_names_go_by_their_numbers():
    windows, guard = stream(400), Guard(ALONE, 0.9, 0.05)
    guard.update(windows[:300])
    fewer = guard.continue_with(ALONE[:2], 0.9, 0.05, ["5", "0"])
    named = learned(windows[:300]).continue_with(ALONE[:2], 0.9, 0.05, ["f", "a"])
    actual, expected = (estimates(each, windows[300:, [5, 0]]) for each in (fewer, named))
    np.testing.assert_array_equal(actual, expected)
    same = guard.continue_with(ALONE, 0.9, 0.05)
    np.testing.assert_allclose(
        estimates(same, windows[300:]), estimates(guard, windows[300:]), rtol=1e-9
    )
