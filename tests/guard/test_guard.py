"""The guard: single windows and many, its bytes, its estimates, its guarantees, odd input."""

import copy
import io

import numpy as np
import pandas as pd
import pytest

from aftlib.core.storage import pack_arrays, unpack_arrays
from aftlib.guard import guards
from aftlib.guard.accounts import CAP, START, slack
from aftlib.guard.estimator import Rules
from aftlib.guard.guard import VERSION, Guard
from aftlib.guard.guards import WIDTH_STEP, Guards

WORKERS = [[0, 3], [1, 4], [2, 5]]


def stream(rounds, n=6, seed=1, noise=0.3, memory=0.9):
    """Sensors that share a slow common part."""
    rng = np.random.default_rng(seed)
    common, at = np.empty(rounds), 0.0
    for t in range(rounds):
        at = memory * at + rng.normal()
        common[t] = at
    return common[:, None] + noise * rng.normal(size=(rounds, n)) + np.arange(n)


def with_gaps(windows, share, seed=2):
    gaps = np.random.default_rng(seed).random(windows.shape) < share
    return np.where(gaps, np.nan, windows)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_single_windows_many_and_a_restart_give_the_same(share):
    windows = with_gaps(stream(300), share)
    bulk, single, cut = (Guard(WORKERS, 0.8, 0.05, seasons=[24]) for _ in range(3))
    recovered = bulk.update(windows)
    rows = [single.update(row) for row in windows]
    cut.update(windows[:117])
    cut = Guard.from_bytes(cut.to_bytes())
    cut.replay(windows[117:])
    assert bulk.to_bytes() == single.to_bytes() == cut.to_bytes()
    for name in ("estimate", "half_width", "certified"):
        one = np.concatenate([getattr(row, name) for row in rows])
        np.testing.assert_array_equal(one, getattr(recovered, name))


@pytest.mark.parametrize("gap", [None, 1])
def test_estimates_are_those_of_the_definition(gap):
    windows = stream(161)
    guard = Guard(WORKERS, 0.8, 0.05)
    guard.update(windows[:160])
    now = windows[160].copy()
    now[WORKERS[0]] = np.nan
    if gap is not None:
        now[gap] = np.nan
    # fitted every 5 rounds, and in use one refit later: the model of round 155
    guard_model = naive_of_fit(windows, 155, now)[WORKERS[0]]
    np.testing.assert_allclose(guard.update(now).estimate[0, WORKERS[0]], guard_model, rtol=1e-9)


@pytest.mark.parametrize("workers", [WORKERS, [[i] for i in range(6)]])
def test_shadow_predictions_among_gaps_are_those_of_the_definition(workers):
    windows = stream(161)
    guard = Guard(workers, 0.8, 0.05)
    guard.update(windows[:159])
    windows[159, 4] = windows[160, [1, 2]] = np.nan
    guard.update(windows[159])
    shadow = guard.replay(windows[160]).estimate[0, 0]
    for worker in workers:
        now = windows[160].copy()
        now[worker] = np.nan
        naive = naive_of_fit(windows, 155, now)
        np.testing.assert_allclose(shadow[worker], naive[worker], rtol=1e-9)


def naive_of_fit(windows, fitted, now):
    """The same from the definition: sums over all rounds, the covariance of an earlier one."""
    n = windows.shape[1]
    level, forget = 1 / 100, 1 / 600
    levels = np.empty_like(windows[:160])
    for t in range(160):
        weight = (1 - level) ** np.arange(t, -1, -1)[:, None] * np.isfinite(windows[: t + 1])
        levels[t] = (weight * np.nan_to_num(windows[: t + 1])).sum(0) / weight.sum(0)
    rows = np.hstack(
        [windows[1:fitted] - levels[1:fitted], windows[: fitted - 1] - levels[1:fitted]]
    )
    weight = (1 - forget) ** np.arange(len(rows) - 1, -1, -1)
    covariance = (rows * weight[:, None]).T @ rows / weight.sum()
    covariance += np.diag(0.01 * np.diag(covariance) + 1e-12)
    z = np.concatenate([now - levels[-1], windows[159] - levels[-1]])
    unknown = np.isnan(z)
    cross = covariance[np.ix_(unknown, ~unknown)]
    filled = np.full(2 * n, np.nan)
    filled[unknown] = cross @ np.linalg.solve(covariance[np.ix_(~unknown, ~unknown)], z[~unknown])
    return filled[:n] + levels[-1]


@pytest.mark.parametrize("n", [6, 50, 400])
def test_the_first_guarantee_comes_after_140_windows_at_any_number_of_sensors(n):
    guard = Guard(np.array_split(np.arange(n), max(2, n // 10)), 1.2, 0.05)
    guard.update(stream(141, n=n))
    assert guard.recoverable[0].mean() > 0.8


def test_unrelated_sensors_are_not_certified():
    guard = Guard(WORKERS, 0.5, 0.05)
    history = guard.replay(np.random.default_rng(1).normal(size=(1500, 6)))
    assert not guard.recoverable.any()
    assert guard.outcomes[0].sum() < 300
    assert (history.decisions[500:] == 0).mean() > 0.95


def test_the_bound_holds_when_the_data_turn_against_it():
    """The stream becomes noise whenever the guard certifies it, and calm while it does not."""
    rng = np.random.default_rng(5)
    guard = Guard(WORKERS, 0.5, 0.05)
    guard.update(stream(300, noise=0.05))
    for t in range(1500):
        noise = 3.0 if guard.recoverable.mean() > 0.5 and t % 7 == 0 else 0.02
        guard.update(rng.normal() + noise * rng.normal(size=6))
    number, wrong, allowed = guard.outcomes
    assert wrong.sum() > 50
    assert (wrong <= 0.05 * number + allowed).all()
    assert allowed[0, 0] == slack(1800, 0.05)


def test_nothing_is_certified_from_almost_no_windows():
    guard = Guard(WORKERS, 0.5, 0.05)
    recovered = guard.update(with_gaps(stream(1500, noise=0.1, memory=0.5), 0.94))
    assert not recovered.certified.any()
    assert not guard.outcomes[0].any()


def outages(n, share, rounds):
    """Windows with gaps and an outage of one worker every 6 rounds; which windows these are."""
    whole = stream(rounds, n=n)
    given, lost = with_gaps(whole, share), np.zeros(whole.shape, bool)
    for number, start in enumerate(range(600, rounds - 3, 6)):
        lost[start : start + 3, number % n] = True
    given[lost] = np.nan
    return whole, given, lost


def test_random_gaps_leave_the_certified_share_and_its_validity():
    n, certified = 30, []
    for share in (0.0, 0.05):
        whole, given, lost = outages(n, share, rounds=1200)
        guard = Guard([[i] for i in range(n)], 0.9, 0.05)
        recovered = guard.update(given)
        certified.append(recovered.certified[lost].mean())
        wrong = np.abs(recovered.estimate - whole) > 0.9
        assert wrong[lost & recovered.certified].mean() <= 0.05
        number, errors, allowed = guard.outcomes
        assert (errors <= 0.05 * number + allowed).all()
    assert certified[0] > 0.99
    assert certified[1] >= 0.95 * certified[0]


def test_half_widths_hold_where_they_are_above_epsilon_and_where_they_are_below():
    """ε is a limit for all certified windows together, the half-width that of one window."""
    whole, given, lost = outages(10, 0.02, rounds=2500)
    noise = np.random.default_rng(1).choice([0.5, 1, 2], 250).repeat(10)[:, None]
    common = np.median(whole - np.arange(10), axis=1, keepdims=True)
    whole = common + np.arange(10) + noise * (whole - np.arange(10) - common)
    given = np.where(np.isnan(given), np.nan, whole)
    recovered = Guard([[i] for i in range(10)], 0.9, 0.05).update(given)
    certified = lost & recovered.certified
    off, half_width = np.abs(recovered.estimate - whole)[certified], recovered.half_width[certified]
    above = half_width > 0.9
    assert certified.sum() > 500 and 0.1 < above.mean() < 0.5
    # the guard spends all of δ here, so a sample of its rounds may err by a little more
    assert (off <= 0.9).mean() >= 0.94 > (off <= 0.9)[above].mean()
    assert (off <= half_width)[above].mean() >= 0.93
    assert (off <= half_width)[~above].mean() >= 0.93


def missed_half_widths(windows):
    """Windows of one sensor that an adversary puts above the half-width in a fifth of the rounds.

    Return how many half-widths there were, how many missed, and the guard.
    """
    rng = np.random.default_rng(4)
    guard = Guard([[0], [1], [2]], 1.0, 0.05, horizons=1)
    known = missed = 0
    for t, window in enumerate(windows):
        if t > 100:
            lost = np.append(np.nan, window[1:])
            recovered = copy.copy(guard).update(lost)
            estimate = recovered.estimate[0, 0]
            half_width = recovered.half_width[0, 0]
            if half_width < 20 and rng.random() < 0.2:
                window[0] = estimate + 1.01 * half_width * rng.choice([-1, 1])
            known += not np.isnan(half_width)
            missed += abs(window[0] - estimate) > half_width
        guard.update(window)
    return known, missed, guard


def test_half_widths_miss_few_errors_even_if_an_adversary_chooses_these(monkeypatch):
    known, missed, guard = missed_half_widths(stream(500, n=3))
    assert known > 300
    assert 0.05 * known < missed <= 0.05 * known + 0.05 / WIDTH_STEP + 1
    share = 0.05 + WIDTH_STEP * (0.05 * known - missed)
    np.testing.assert_allclose(guard._guards.state.outside[0, 0, 0], share, rtol=1e-9)
    monkeypatch.setattr(guards, "WIDTH_STEP", 0.0)  # the control
    known, missed, _ = missed_half_widths(stream(500, n=3))
    assert missed > 0.05 * known + 0.05 / WIDTH_STEP + 1


def test_the_bound_holds_when_gaps_and_errors_come_together():
    """Whenever the guard certifies, some sensors go missing and the others jump."""
    rng, guard = np.random.default_rng(6), Guard([[i] for i in range(6)], 0.5, 0.05)
    guard.update(with_gaps(stream(400, noise=0.05), 0.1))
    for t in range(1500):
        window = rng.normal() + 0.02 * rng.normal(size=6)
        if t % 3 == 0:
            window[rng.permutation(6)[: t % 4]] = np.nan
            window += (guard.recoverable.mean() > 0.5) * rng.choice([-3, 3], 6)
        guard.update(window)
    number, wrong, allowed = guard.outcomes
    assert wrong.sum() > 50
    assert (wrong <= 0.05 * number + allowed).all()


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_each_certified_round_is_counted_with_its_true_outcome(share):
    """The budgets are those that the definition gives from the windows that came."""
    windows = with_gaps(stream(1200), share)
    windows[700:900:9] += 2 * np.random.default_rng(3).normal(size=(23, 6))
    guard = Guard(WORKERS, 0.9, 0.05)
    history = guard.replay(windows)
    known = np.isfinite(windows)[:, None] & (history.decisions == 2)
    wrong = known & (np.abs(windows[:, None] - history.estimate) > 0.9)
    budgets = np.full(known.shape[1:], START)
    for certified, error in zip(known, wrong, strict=True):
        budgets = np.where(certified, np.minimum(CAP, budgets + 0.05 - error), budgets)
    np.testing.assert_array_equal(guard.outcomes[:2], [known.sum(0), wrong.sum(0)])
    np.testing.assert_allclose(guard._guards.accounts.single["budget"][0], budgets, rtol=1e-9)
    assert known.sum() > 5_000 and wrong.sum() > 100


@pytest.fixture(scope="module")
def learned():
    """A guard of the first 999 windows of `stream(1000)`."""
    guard = Guard(WORKERS, 0.9, 0.05)
    guard.update(stream(1000)[:-1])
    return guard


def test_nothing_is_learned_of_windows_from_before_a_gap_that_was_too_long(learned):
    windows, guard = stream(1000), copy.copy(learned)
    guard.skip(10)
    count = guard._guards.risk.residual_count.copy()
    guard.update(windows[-1])
    np.testing.assert_array_equal(guard._guards.risk.residual_count, count)
    guard.update(windows[-1])
    assert (guard._guards.risk.residual_count > count).any()


@pytest.mark.parametrize("usual", [False, True])
def test_a_guarantee_covers_usual_gaps_and_not_rare_ones(usual):
    """One worker fails while another one is away, as it is in every fifth window, or never."""
    windows = stream(1000)
    if usual:
        windows[300:999:5, [1, 4]] = np.nan
    guard = Guard(WORKERS, 1.2, 0.05)
    guard.update(windows[:-1])
    assert guard.recoverable[0].all()
    last = windows[-1].copy()
    last[[1, 4]] = np.nan
    shadow = Guard.from_bytes(guard.to_bytes()).replay(last)
    last[[0, 3]] = np.nan
    assert guard.update(last).certified[0, [0, 3]].tolist() == [usual, usual]
    assert (shadow.decisions[0, 0, [0, 3]] == (2 if usual else -1)).all()


@pytest.mark.parametrize("n", [6, 160])
def test_a_gap_of_all_sensors_costs_no_more_than_its_first_windows(n):
    windows = stream(118, n=n)
    before = Guard(np.arange(n).reshape(2, -1), 0.8, 0.05, seasons=[7])
    before.update(windows[:100])
    for rounds in (0, 1, 5, 6, 7, 50):
        skipped, updated = copy.copy(before), copy.copy(before)
        skipped.skip(rounds)
        updated.update(np.full((rounds, n), np.nan))
        assert skipped.rounds == updated.rounds == 100 + rounds
        assert skipped.to_bytes() == updated.to_bytes()
        for guard in (skipped, updated):
            guard.update(windows[100:])
        assert skipped.to_bytes() == updated.to_bytes()


def test_a_gap_may_have_as_many_windows_as_whole_numbers_count():
    skipped = Guard(WORKERS, 0.8, 0.05)
    skipped.update(stream(10))
    skipped.skip(10**12)  # which as rows would not fit into memory
    before = skipped.to_bytes()
    for wrong in (-1, 2**62, 1.0):
        with pytest.raises(
            ValueError, match="rounds must be a whole number at least 0 and at most"
        ):
            skipped.skip(wrong)
    assert skipped.to_bytes() == before
    skipped.skip(2**62 - 1 - skipped.rounds)
    with pytest.raises(ValueError, match="rounds must be .* at most 0, got 1"):
        skipped.skip(1)
    assert skipped.rounds == 2**62 - 1


def test_the_guard_still_has_its_model_after_a_long_gap(learned):
    guard = copy.copy(learned)
    guard.skip(10_000)
    guard.update(stream(10, seed=2))
    assert guard.recoverable[0].all()


def test_a_missing_sensor_is_recoverable_as_long_as_it_was_from_its_last_window(learned):
    windows, guard = stream(1000), copy.copy(learned)
    before = guard.recoverable
    assert before[:, 0].all()
    lost = np.where(np.arange(6) == 0, np.nan, windows[-1])
    for away in (1, 2):
        guard.update(lost)
        assert guard.recoverable[:, 0].tolist() == [True] * (5 - away) + [False] * away
        assert guard.recoverable[0, 1:].all()


def test_in_a_gap_of_all_sensors_as_many_windows_are_estimated_as_a_guarantee_covers():
    guard = Guard(WORKERS, 0.9, 0.05, horizons=2)
    guard.update(stream(100))
    estimate = guard.update(np.full((4, 6), np.nan)).estimate
    assert np.isfinite(estimate).all(1).tolist() == [True, True, False, False]
    assert np.isnan(estimate[2:]).all()


def test_two_workers_lost_at_once_are_estimated_but_not_certified(learned):
    windows, guard = stream(1000), copy.copy(learned)
    assert guard.recoverable[0].all()
    now = windows[-1].copy()
    now[[0, 3, 1, 4]] = np.nan
    recovered = guard.update(now)
    assert np.isfinite(recovered.estimate[0, [0, 1, 3, 4]]).all()
    assert not recovered.certified.any()


@pytest.mark.parametrize("share", [0.0, 0.2])
@pytest.mark.parametrize(("n", "seasons"), [(6, [24]), (6, []), (160, [24])])
def test_a_real_outage_gets_the_shadow_predictions(n, seasons, share):
    """They contain nothing that the worker itself sent after the failure, at any horizon."""
    lost, rounds = np.arange(n // 2), 230
    own = stream(rounds + 5, n=n, seed=3, noise=1.0, memory=0.5)
    own[1:] += 0.8 * own[:-1]
    own[:, n // 2 :] = with_gaps(own[:, n // 2 :], share)
    before = Guard([lost, np.arange(n // 2, n)], 2.0, 0.05, seasons=seasons)
    before.update(own[: rounds - 2])
    for start in range(rounds - 2, rounds + 1):
        shadow, real = copy.copy(before), Guard.from_bytes(before.to_bytes())
        before.update(own[start])
        history = shadow.replay(own[start : start + 5])
        outage = own[start : start + 5].copy()
        outage[:, lost] = np.nan
        recovered = real.update(outage)
        estimate, decisions = (
            each[np.arange(5), np.arange(5)][:, lost]
            for each in (history.estimate, history.decisions)
        )
        atol = 1e-12 if share else 0  # without other gaps they are the same bits
        np.testing.assert_allclose(recovered.estimate[:, lost], estimate, rtol=0, atol=atol)
        np.testing.assert_array_equal(recovered.certified[:, lost], decisions == 2)


@pytest.mark.parametrize("n", [6, 160])
def test_units_do_not_matter(n):
    windows, workers = stream(250, n=n), np.arange(n).reshape(3 if n == 6 else 16, -1)
    usual, scaled = (Guard(workers, 0.8 * unit, 0.05, horizons=2) for unit in (1, 2.0**-60))
    recovered, small = usual.replay(windows), scaled.replay(windows * 2.0**-60)
    assert (recovered.decisions == 2).any()
    np.testing.assert_array_equal(recovered.decisions, small.decisions)
    np.testing.assert_allclose(small.estimate * 2.0**60, recovered.estimate, rtol=1e-9)


@pytest.mark.parametrize("wild", [1e20, -9.96921e36])
def test_a_wild_value_costs_its_own_sensor_and_a_while(wild):
    """Some files write such a number for a missing value."""
    windows, guard = stream(1000), Guard(WORKERS, 0.9, 0.05)
    windows[200, 2] = wild
    guard.update(windows)
    assert guard.recoverable[0, [0, 1, 3, 4, 5]].all()
    number, wrong, allowed = guard.outcomes
    assert (wrong <= 0.05 * number + allowed).all()


def of_any_size(seed, shape):
    """Noise, values of 1e90, 1e50 and 1e5, gaps for odd seeds, a constant for every third."""
    rng = np.random.default_rng(seed)
    windows = rng.normal(size=shape)
    wild = rng.random(shape) < rng.choice([0.01, 0.1, 0.5])
    windows[wild] = rng.choice([1e90, -1e90, 1e50, 1e5, 1.0, 0.0], wild.sum())
    if seed % 2:
        windows[rng.random(shape) < 0.2] = np.nan
    if seed % 3 == 0:
        windows[..., 0] = 7.0
    return windows


SINGULAR = {3: [551], 4: [1021, 1841, 2558], 6: [280, 693, 890, 970], 16: [0, 1, 2], 151: [0]}
"""By the number of sensors, seeds most of which LU could not solve in the sensors' own units."""


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(("n", "seed"), [(n, seed) for n in SINGULAR for seed in SINGULAR[n]])
def test_values_of_any_size_beside_each_other_do_not_end_the_guard(n, seed, alone):
    windows = of_any_size(seed, (260 if n < 16 else 130, n))
    workers = [[i] for i in range(n)] if alone else [range(0, n, 2), range(1, n, 2)]
    guard = Guard(workers, 0.5, 0.05, horizons=2)
    assert np.isfinite(guard.replay(windows).estimate[2:]).all()
    number, wrong, allowed = guard.outcomes
    assert (wrong <= 0.05 * number + allowed).all()


LABELLED = pd.DataFrame(stream(120), columns=list("abcdef"))


@pytest.mark.parametrize("names", [None, list("abcdef")])
def test_labelled_windows_are_put_in_the_order_of_the_sensors(names):
    """By a dictionary, a Series or a frame, in any order, also after the state was stored."""
    expected, labelled = Guard(WORKERS, 0.8, 0.05), Guard(WORKERS, 0.8, 0.05, names=names)
    expected.update(LABELLED.to_numpy())
    labelled.update(LABELLED[:60])
    labelled = Guard.from_bytes(labelled.to_bytes())
    labelled.update(LABELLED[60:100].iloc[:, [3, 1, 0, 5, 4, 2]].astype("Float64"))
    labelled.update(LABELLED[100:110].to_dict("list"))
    labelled.update(LABELLED[110:111].to_numpy())
    for _, window in LABELLED[111:115].iterrows():
        labelled.update(window.sort_index(ascending=False))
    for row in LABELLED[115:].iloc[:, ::-1].itertuples(index=False):
        labelled.update(row)
    lost = {"f": 5.1, "e": 4.1, "d": np.nan, "c": 2.1, "b": 1.1, "a": np.nan}
    recovered, ours = expected.update([*reversed(lost.values())]), labelled.update(lost)
    np.testing.assert_array_equal(ours.estimate, recovered.estimate)
    assert np.isfinite(ours.estimate[0, [0, 3]]).all()
    np.testing.assert_array_equal(ours.certified, recovered.certified)


def test_labels_that_come_after_windows_without_any_are_refused():
    """Their order is unknown, because only the labels of the first window define it."""
    guard = Guard(WORKERS, 0.8, 0.05)
    guard.update(LABELLED.to_numpy())
    with pytest.raises(
        ValueError, match=r"of the 6 sensors, got 'f', 'e', .*, or give Guard names="
    ):
        guard.update(LABELLED.iloc[0, ::-1])
    with pytest.raises(ValueError, match=r"names must be 6 different ones, one per sensor, got"):
        Guard(WORKERS, 0.8, 0.05, names=list("aacdef"))
    refused = Guard(WORKERS, 0.8, 0.05)
    with pytest.raises(ValueError, match="windows must be below"):
        refused.update(LABELLED * np.inf)
    refused.update(LABELLED.iloc[:, ::-1])  # what was refused has named nothing
    assert refused.rounds == 120


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0], [0]], 1, 0.05), "workers must hold each sensor 0 … n − 1 once"),
        (([[0], [1]], 0, 0.05), "epsilon must be above 0 and finite, .* 2 sensors, got 0"),
        (([[0], [1]], [1, 2, 3], 0.05), "epsilon must .* one for each of the 2 sensors, got"),
        (([[0], [1]], 1, 1), "delta must be above 0 and below 1, got 1"),
        (([[0], [1]], 1, 0.05, 0), "horizons must be .* at least 1 and at most 1000, got 0"),
        (([[0], [1]], 1, 0.05, 2, [0]), "each of seasons must be above 0, got 0"),
        (([[0], ["a"]], 1, 0.05), r"workers must hold .* got \[\[0\], \['a'\]\]"),
        (([[0, 1, True]], 1, 0.05), r"workers must hold .* got \[\[0, 1, True\]\]"),
        (([[False], [True]], 1, 0.05), r"workers must hold .* got \[\[False\], \[True\]\]"),
        (([0, 1], 1, 0.05), r"as a list per worker such as \[\[0, 1\], \[2\]\], got \[0, 1\]"),
        (([[0], [1]], {"0": "x", "1": 2}, 0.05), r"epsilon must be numbers, got \['x', 2\]"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        Guard(*arguments)


NO_GUARD = io.BytesIO()
np.save(NO_GUARD, np.zeros(3))


@pytest.mark.parametrize("data", [b"", b"nonsense", b"PK\x03\x04", NO_GUARD.getvalue()])
def test_bytes_of_something_else_are_refused(data):
    with pytest.raises(ValueError, match="data holds no guard"):
        Guard.from_bytes(data)


def test_damaged_bytes_are_refused_whatever_reading_them_raises():
    data = bytearray(Guard(WORKERS, 0.8, 0.05).to_bytes())
    data[data.rindex(b"PK\x01\x02") + 6] = 109  # the version of zip that is needed to read it
    with pytest.raises(ValueError, match="data holds no guard .* zip file version 10.9"):
        Guard.from_bytes(bytes(data))


@pytest.mark.parametrize("part", ["names", "workers", "rows"])
def test_bytes_of_a_guard_without_a_part_are_refused(part):
    fields = unpack_arrays(Guard(WORKERS, 0.8, 0.05).to_bytes())
    del fields[part]
    with pytest.raises(ValueError, match=f"data holds no guard .*{part}"):
        Guard.from_bytes(pack_arrays(**fields))


def test_bytes_of_another_version_are_refused():
    fields = unpack_arrays(Guard(WORKERS, 0.8, 0.05).to_bytes())
    fields["version"] = np.array(VERSION - 1)
    match = f"no guard of version {VERSION}, got version {VERSION - 1}: use the version of aftlib"
    with pytest.raises(ValueError, match=match):
        Guard.from_bytes(pack_arrays(**fields))


@pytest.mark.parametrize("change", ["horizons", "name"])
def test_bytes_of_another_layout_are_refused(change):
    """As if the layout had changed without the version: a row of another size, or another part."""
    fields = unpack_arrays(Guard(WORKERS, 0.8, 0.05).to_bytes())
    if change == "horizons":
        fields["rows"] = unpack_arrays(Guard(WORKERS, 0.8, 0.05, horizons=2).to_bytes())["rows"]
    else:
        fields["rows"].dtype.names = ["other", *fields["rows"].dtype.names[1:]]
    with pytest.raises(ValueError, match=f"data holds no guard of version {VERSION}, got Cannot"):
        Guard.from_bytes(pack_arrays(**fields))


def test_a_copy_has_a_state_of_its_own():
    guard = Guard(WORKERS, 0.8, 0.05)
    guard.update(LABELLED[:50].to_numpy())
    for twin in (copy.copy(guard), copy.deepcopy(guard)):
        before = guard.to_bytes()
        assert twin.to_bytes() == before
        twin.update(LABELLED[50:60].to_numpy())
        assert guard.to_bytes() == before != twin.to_bytes()


def test_rounds_divide_by_nothing_known_without_a_warning(recwarn):
    """Also when they are used without a guard; gaps come before anything is known."""
    guards = Guards.begin(Rules.check(WORKERS, 0.8, 0.05, horizons=2))
    for row in np.where(np.eye(6), np.nan, LABELLED[:6].to_numpy()):
        guards.advance(row[np.newaxis])
    assert not recwarn.list


def test_limits_are_put_in_the_order_of_the_names():
    limits, names = [1.0, 2, 3, 4, 5, 6], list("abcdef")
    series = pd.Series(limits, names).sort_index(ascending=False)
    guards = [Guard(WORKERS, each, 0.05, names=names) for each in (limits, series, dict(series))]
    assert len({guard.to_bytes() for guard in guards}) == 1
    assert Guard(WORKERS, [0.5], 0.05).to_bytes() == Guard(WORKERS, 0.5, 0.05).to_bytes()
    with pytest.raises(ValueError, match="epsilon must have each of the 6 sensors once as label"):
        Guard(WORKERS, series, 0.05)


def test_missing_values_of_pandas_and_of_masked_arrays_are_missing():
    expected, given = (Guard(WORKERS, 0.8, 0.05, names=[*"012345"]) for _ in range(2))
    values = LABELLED.set_axis([*"012345"], axis=1).mask(LABELLED.to_numpy() > 1)
    expected.update(values.to_numpy())
    given.update(values[:40].astype("Float64"))
    for _, row in values[40:80].astype("Float64").astype(object).iterrows():
        given.update({name: cell for name, cell in row.items()})
    rest = values[80:].to_numpy()
    given.update(np.ma.masked_array(np.nan_to_num(rest, nan=9e9), np.isnan(rest)))
    assert given.to_bytes() == expected.to_bytes()


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        ({"a": 1, "b": 2}, "windows must have each of the 6 sensors .* got missing 'c', 'd'"),
        (
            dict.fromkeys("abcdefg", 1.0),
            r"got unknown 'g'; give missing ones a value .NaN if .*, drop",
        ),
        (pd.Series(1.0, list("abcdea")), "got repeated 'a'"),
        (["1.5"] * 6, "windows must be numbers, got"),
        (dict.fromkeys("abcdef", "x"), r"windows must be numbers, got \['x', "),
        (np.zeros((3, 5)), r"windows must have shape \(6,\) or \(rounds, 6\), got"),
        ([0.0, np.inf] * 3, r"windows must be below 1e\+100 .* got inf"),
        ([0.0, -1.7e308] * 3, r"windows must be below 1e\+100 .* got -1\.7e\+308"),
    ],
)
@pytest.mark.parametrize("names", [None, list("abcdef")])
def test_windows_that_do_not_fit_are_refused_and_change_nothing(windows, message, names):
    guard = Guard(WORKERS, 0.8, 0.05, names=names)
    guard.update(LABELLED[:50])
    before = guard.to_bytes()
    with pytest.raises(ValueError, match=message):
        guard.update(windows)
    assert guard.to_bytes() == before
