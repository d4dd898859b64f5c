"""What a guard learned: another one begins with it, and changed rules keep it."""

from dataclasses import replace

import numpy as np
import pytest

from aftlib.guard.accounts import START
from aftlib.guard.estimator import Rules
from aftlib.guard.guard import Guard
from aftlib.guard.guards import Guards
from aftlib.guard.learned import Learned, change_rules
from tests.guard.test_guard import stream, with_gaps
from tests.guard.test_predictor import Others

NAMES = list("abcdef")
WORKERS = [[0, 3], [1, 4], [2, 5]]


def rules_of(workers=WORKERS, epsilon=1.2, delta=0.05, horizons=5, seasons=()):
    return Rules.check(workers, epsilon, delta, horizons, seasons)


def trained(windows, **rules):
    guard = Guard.of_guards(Guards.begin(rules_of(**rules)), NAMES)
    guard.update(windows)
    return guard


def warm_guard(learned, rules, names=NAMES):
    return Guard.of_guards(learned.begin(rules, names), names)


def changed(guard, rules, names=NAMES):
    return Guard.of_guards(change_rules(guard._guards, NAMES, rules, names), names)


def test_a_guard_begins_with_what_another_learned_and_certifies_its_first_window():
    windows = stream(420)
    before = trained(windows[:300])
    learned = before.learned(NAMES, {})
    warm = warm_guard(learned, rules_of())
    cold = Guard(WORKERS, 1.2, 0.05)
    assert not warm.recoverable.any() and (warm.outcomes[:2] == 0).all()
    before._guards.risk.refit()  # with all windows, those since the last fit included
    np.testing.assert_array_equal(warm._guards.risk.weights, before._guards.risk.weights)
    for guard, certified in ((warm, True), (cold, False)):
        guard.update(windows[300])
        assert guard.recoverable.all() == certified == guard.recoverable.any()
    lost = windows[301].copy()
    lost[WORKERS[0]] = np.nan
    recovered = warm.update(lost)
    assert recovered.certified[0, WORKERS[0]].all()
    assert (np.abs(recovered.estimate - windows[301])[0, WORKERS[0]] < 1.2).all()
    assert (recovered.half_width[0, WORKERS[0]] < 1.5).all()
    warm.update(windows[302:])
    fits = warm._guards.state.absorbed
    assert fits > 400  # its own windows enter the model, too


@pytest.mark.parametrize("share", [0.0, 0.1])
@pytest.mark.parametrize("n", [6, 160])
def test_the_order_of_the_sensors_does_not_matter(n, share):
    """Beyond 150 sensors the model is another one."""
    windows = with_gaps(stream(260, n=n, noise=1.0), share)
    names = [f"s{i}" for i in range(n)]
    workers = [range(0, n, 2), range(1, n, 2)]
    epsilon = 3.0
    seasons = [24.0, 7.5]
    guard = Guard(workers, epsilon, 0.05, seasons=seasons)
    guard.update(windows[:200])
    learned = guard.learned(names, {})
    rules = rules_of(workers, epsilon, seasons=seasons)
    straight = warm_guard(learned, rules, names)
    order = np.random.default_rng(1).permutation(n)
    place = np.argsort(order)
    other = rules_of([place[worker] for worker in map(list, workers)], epsilon, seasons=seasons)
    turned = warm_guard(learned, other, [names[i] for i in order])
    history = straight.replay(windows[200:])
    again = turned.replay(windows[200:, order])
    assert (history.decisions == 2).mean() > 0.3
    agree = again.decisions == history.decisions[..., order]
    assert agree.mean() > 0.999  # a risk may lie on its limit
    np.testing.assert_allclose(again.estimate, history.estimate[..., order], rtol=1e-6)


def test_the_seasons_go_on_after_a_pause():
    """A wave of 24 windows; the guard that begins with it starts 100.5 windows later."""
    times = np.arange(500.0)
    rng = np.random.default_rng(1)

    def wave(times):
        both = np.sin(2 * np.pi * times / 24)[:, np.newaxis]
        return 5 * both * [1, -1] + 0.1 * rng.normal(size=(len(times), 2))

    rules = rules_of([[0, 1]], 1.0, seasons=[24])
    guard = Guard.of_guards(Guards.begin(rules), ["a", "b"])
    guard.update(wave(times[:300]))
    learned = guard.learned(["a", "b"], {})
    errors = {}
    for shift in (100.5, 112.5):
        warm = warm_guard(learned, rules, ["a", "b"])
        warm._guards.state.phase[...] += shift
        windows = wave(times[:40] + 400.5)
        errors[shift] = np.abs(warm.replay(windows).estimate[10:] - windows[10:, np.newaxis]).mean()
    assert errors[100.5] < 0.5 < 2 < errors[112.5]


@pytest.mark.parametrize("horizons", [2, 9])
def test_of_other_horizons_those_that_were_learned_begin_with_it(horizons):
    windows = stream(700)
    learned = trained(windows[:300]).learned(NAMES, {})
    guard = warm_guard(learned, rules_of(horizons=horizons))
    guard.update(windows[300])
    assert guard.recoverable[:5].all() and not guard.recoverable[5:].any()
    guard.update(windows[301:])
    assert guard.recoverable.all()


def test_nothing_is_certified_by_what_a_guard_of_few_windows_learned():
    windows = stream(400)
    learned = trained(windows[:40]).learned(NAMES, {})
    guard = warm_guard(learned, rules_of())
    first = next(t for t, row in enumerate(windows[40:]) if certifies(guard, row))
    assert 20 < first < 116  # a cold guard needs 116


def certifies(guard, row):
    guard.update(row)
    return guard.recoverable.any()


def test_the_text_comes_back_and_damage_is_found():
    learned = trained(stream(100)).learned(NAMES, {"window": 60})
    text = learned.to_text()
    again = Learned.from_text(text)
    assert again.to_text() == text == learned.to_text()
    assert (again.names, again.terms, again.seen, again.phase) == (NAMES, {"window": 60}, 100, 100)
    for place in np.linspace(0, len(text) - 5, 40).astype(int):
        letter = "A" if text[place] != "A" else "B"
        with pytest.raises(ValueError, match="checksum|padding|base64"):
            Learned.from_text(text[:place] + letter + text[place + 1 :])
    with pytest.raises(ValueError, match="checksum"):
        Learned.from_text(text[: len(text) // 2 // 4 * 4])


@pytest.mark.parametrize("change", ["more", "fewer"])
def test_a_text_with_other_parts_is_refused(change):
    """It is not damaged: a version with more or fewer arrays wrote it."""
    learned = trained(stream(20)).learned(NAMES, {})
    arrays = dict(learned.arrays)
    if change == "more":
        arrays["other"] = np.zeros(1)
    else:
        del arrays["level"]
    text = replace(learned, arrays=arrays).to_text()
    with pytest.raises(ValueError, match="its parts are those of another version.: make a new"):
        Learned.from_text(text)


def test_what_was_learned_does_not_change_with_the_guard():
    windows = stream(300)
    guard = trained(windows[:200])
    before = guard.to_bytes()
    learned = guard.learned(NAMES, {})
    text = learned.to_text()
    assert guard.to_bytes() == before
    guard.update(windows[200:])
    assert learned.to_text() == text


def test_changed_rules_keep_model_and_risk_and_the_accounts_of_unchanged_sensors():
    """Sensor a has another ε; e leaves the worker of b; c and f stay as they were."""
    windows = stream(400)
    guard = trained(windows[:300], epsilon=0.8)
    names = ["f", "a", "d", "b", "e", "c"]
    workers = [[0, 5], [1, 2], [3], [4]]
    limits = [0.8, 1.4, 0.8, 0.8, 0.8, 0.8]
    after = changed(guard, rules_of(workers, limits), names)
    number, errors, allowed = guard.outcomes
    kept = [names.index(name) for name in "cdf"]
    there = [NAMES.index(name) for name in "cdf"]
    for own, old in zip(after.outcomes, (number, errors, allowed), strict=True):
        np.testing.assert_array_equal(own[:, kept], old[:, there])
    single = after._guards.accounts.single["budget"][0]
    before = guard._guards.accounts.single["budget"][0]
    np.testing.assert_array_equal(single[:, kept], before[:, there])
    renewed = [names.index(name) for name in "abe"]
    assert (single[:, renewed] == START).all() and (after.outcomes[:2, :, renewed] == 0).all()
    assert (before[:, [NAMES.index(name) for name in "abe"]] != START).any()
    pools = [each._guards.accounts.pools.tolist() for each in (after, guard)]
    assert pools[0] == pools[1]
    outside = [each._guards.state.outside[0] for each in (after, guard)]
    order = [NAMES.index(name) for name in names]
    np.testing.assert_array_equal(outside[0], outside[1][:, order])
    assert after.rounds == 300 == guard.rounds
    assert after._guards.state.phase == 0
    after.update(windows[300, order])
    assert after.recoverable[0].mean() > 0.5


@pytest.mark.parametrize("change", [{"epsilon": 1.4}, {"delta": 0.1}])
def test_all_accounts_begin_anew_with_another_epsilon_or_delta(change):
    guard = trained(stream(300), epsilon=0.8)
    after = changed(guard, rules_of(**{"epsilon": 0.8} | change))
    fresh = Guard.of_guards(Guards.begin(rules_of(**{"epsilon": 0.8} | change)), NAMES)
    for name in ("single", "pools", "delta"):
        own, new = (getattr(each._guards.accounts, name) for each in (after, fresh))
        np.testing.assert_array_equal(own, new)
    np.testing.assert_array_equal(after.outcomes, fresh.outcomes)
    assert (after.rounds, after._guards.state.phase) == (0, 300)


def test_unchanged_rules_change_nothing():
    guard = trained(stream(50))
    guards = guard._guards
    assert change_rules(guards, NAMES, rules_of(), NAMES) is guards
    assert change_rules(guards, NAMES, rules_of(epsilon=1.4), NAMES) is not guards


@pytest.mark.parametrize(
    ("before", "change", "message"),
    [
        (1, {"horizons": 7}, "horizons must stay 1, got 7: leave them, or begin a new guard"),
        (5, {"horizons": 1}, "horizons must stay 5, got 1: leave them"),
        (5, {"seasons": [24]}, r"seasons must stay \[\], got \[24.\]: leave them"),
    ],
)
def test_changed_horizons_and_seasons_are_refused(before, change, message):
    """Accounts of one horizon would otherwise be copied to seven."""
    guard = trained(stream(80), horizons=before)
    with pytest.raises(ValueError, match=message):
        changed(guard, rules_of(**{"horizons": before} | change))


def test_changed_rules_are_refused_with_a_predictor():
    predictor = Others()
    guard = Guard.of_guards(Guards.begin(rules_of(), predictors=[predictor]), NAMES)
    with pytest.raises(ValueError, match="predictor must be None when rules change, got Others: b"):
        changed(guard, rules_of(epsilon=1.4))
    assert change_rules(guard._guards, NAMES, rules_of(), NAMES).predictors == [predictor]
