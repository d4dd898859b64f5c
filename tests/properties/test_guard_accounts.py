"""The theorem of `guard.accounts`, over streams that an adversary chooses."""

import copy
from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aftlib.guard.accounts import (
    CAP,
    POOL_CAP,
    POOL_START,
    START,
    Accounts,
    most_credits,
    pool_unit,
    pooled_slack,
    slack,
)
from aftlib.guard.estimator import Rules
from aftlib.guard.guard import Guard
from aftlib.guard.learned import change_rules
from aftlib.guard.proposal import allowed_risk

STREAMS = 4
"""Streams that are played at the same time, in place of a guard's horizons."""


def play(accounts, horizon, propose, outcome, rounds):
    """Certify, and learn `horizon` rounds later; certified and wrong by round, stream, sensor."""
    shape = (rounds, *accounts.single.shape)
    decisions = np.zeros(shape, int)
    wrong = np.zeros(shape)
    for t in range(rounds):
        if t >= horizon:
            accounts.book(decisions[t - horizon], wrong[t - horizon])
        decisions[t] = accounts.certify(propose(t))
        wrong[t] = outcome(t, decisions[t])
    return decisions == 2, wrong


def book(accounts, decision, wrong):
    """Book one decision of one sensor."""
    accounts.book(np.array([[decision]]), np.array([[float(wrong)]]))


def excess(certified, wrong, delta):
    """Errors minus δN after each round, of known outcomes, one column per sensor."""
    known = certified & ~np.isnan(wrong)
    return np.cumsum(np.where(known, np.nan_to_num(wrong) - delta, 0), axis=0)


def check(certified, wrong, delta, h):
    """Compare the errors with the theorem's four parts; return errors minus δN."""
    n = certified.shape[2]
    sums = excess(certified, wrong, delta)
    bound = np.array([[[slack(t + 1, delta, h)]] for t in range(len(sums))])
    assert (sums <= bound + 1e-9).all()
    assert (most_in_an_interval(sums) <= bound - START + CAP + 1e-9).all()
    pooled = np.array([[pooled_slack(t + 1, delta, n, h)] for t in range(len(sums))])
    together = sums.sum(axis=2)
    assert (together <= pooled + 1e-9).all()
    higher = (POOL_CAP - POOL_START) * pool_unit(n)
    assert (most_in_an_interval(together) <= pooled + higher + 1e-9).all()
    return sums


def most_in_an_interval(sums):
    """The most that cumulative sums rise in an interval that ends at each round."""
    before = np.vstack([0 * sums[:1], sums[:-1]])
    return sums - np.minimum.accumulate(before, axis=0)


@settings(max_examples=100 // STREAMS)
@given(
    seed=st.integers(0, 2**32),
    sensors=st.integers(1, 6),
    horizon=st.integers(1, 5),
    delta=st.sampled_from([0.01, 0.05, 0.2, 0.5]),
    rates=st.lists(st.floats(0, 1), min_size=1, max_size=5),
    unknown=st.floats(0, 0.5),
)
def test_bounds_hold_when_errors_proposals_and_gaps_come_in_bursts(
    seed, sensors, horizon, delta, rates, unknown
):
    rng = np.random.default_rng(seed)

    def outcome(t, decisions):
        rate = np.take(rates, t // 97 + np.arange(STREAMS), mode="wrap")[:, None]
        wrong = (rng.random((STREAMS, sensors)) < rate).astype(float)
        return np.where(rng.random((STREAMS, sensors)) < unknown, np.nan, wrong)

    accounts = Accounts.open(sensors, delta, STREAMS)
    propose = lambda t: rng.random((STREAMS, sensors)) < 0.9  # noqa: E731
    check(*play(accounts, horizon, propose, outcome, 1500), delta, horizon)


@settings(max_examples=100 // STREAMS)
@given(
    sensors=st.integers(1, 4),
    horizon=st.integers(1, 5),
    delta=st.sampled_from([0.02, 0.05, 0.3]),
    patience=st.lists(st.integers(0, 400), min_size=STREAMS, max_size=STREAMS),
)
def test_bounds_hold_when_certified_estimates_are_wrong(sensors, horizon, delta, patience):
    """Right while blocked or patient, so that credit is earned; wrong when certified."""
    every = np.array(patience)[:, None] + 1
    accounts = Accounts.open(sensors, delta, STREAMS)
    all_of_them = np.ones((STREAMS, sensors), bool)
    errs = lambda t, decisions: (decisions == 2) & (t % every == 0)  # noqa: E731
    check(*play(accounts, horizon, lambda t: all_of_them, errs, 1500), delta, horizon)


@settings(max_examples=100 // STREAMS)
@given(
    seed=st.integers(0, 2**32),
    sensors=st.integers(1, 4),
    horizon=st.integers(1, 5),
    delta=st.sampled_from([0.02, 0.05, 0.3]),
    goals=st.lists(st.floats(0, 4), min_size=STREAMS, max_size=STREAMS),
)
def test_bounds_hold_when_an_adversary_knows_the_rule_of_proposing(
    seed, sensors, horizon, delta, goals
):
    """It keeps the risk just below the limit; it saves a budget, and then errs until it is gone."""
    rng = np.random.default_rng(seed)
    accounts = Accounts.open(sensors, delta, STREAMS)
    errs = np.zeros((STREAMS, sensors), bool)

    def propose(t):
        allowed = allowed_risk(accounts.relative_budget(), delta)
        risk = np.where(errs, allowed, rng.random(allowed.shape) * 2 * delta)
        return risk <= allowed

    def outcome(t, decisions):
        budget = accounts.relative_budget()
        errs[budget >= np.array(goals)[:, None]] = True
        errs[(budget <= 0.2) & (decisions != 2)] = False
        return errs & (decisions == 2)

    check(*play(accounts, horizon, propose, outcome, 1500), delta, horizon)


def test_more_risk_is_allowed_while_the_budget_is_large():
    """From .9 δ, which is always allowed, over 1.5 δ at the first budget to 6 δ at the largest."""
    budget = np.array([-1, 0, 0.6, 1, 2, 4])
    allowed = allowed_risk(budget, 0.05)
    np.testing.assert_allclose(allowed, 0.05 * np.array([0.9, 0.9, 0.9, 1.5, 3, 6]))


def test_the_emptier_of_account_and_pool_limits_the_risk():
    accounts = Accounts.open(10, 0.05)
    assert (accounts.relative_budget() == 1).all()
    first = np.arange(10) == 0
    accounts.book(np.where(first, 2, 0)[np.newaxis], np.where(first, 1.0, 0.0)[np.newaxis])
    np.testing.assert_allclose(accounts.relative_budget()[0, 0], 1 - 0.95 / 5)
    np.testing.assert_allclose(accounts.relative_budget()[0, 1:], 1 - 0.95 / 6)


def test_the_bound_is_reached():
    """With δ → 0 and errors only, an account permits exactly the errors of the theorem."""
    for horizon in (1, 3, 5):
        accounts = Accounts.open(20, 1e-6)
        errs = lambda t, decisions: np.arange(20) == 0  # noqa: E731
        certified, wrong = play(accounts, horizon, lambda t: np.ones((1, 20), bool), errs, 29)
        sums = check(certified, wrong, 1e-6, horizon)
        assert sums[-1, 0, 0] > slack(29, 1e-6, horizon) - 0.001


def test_sensors_that_saved_together_err_as_often_as_their_pool_permits():
    """Right for long, then always wrong: the pool's cap ends it before the accounts do."""
    accounts = Accounts.open(20, 0.5)
    errs = lambda t, decisions: np.full((1, 20), t >= 200)  # noqa: E731
    certified, wrong = play(accounts, 1, lambda t: np.ones((1, 20), bool), errs, 400)
    sums = check(certified, wrong, 0.5, 1)
    assert most_in_an_interval(sums.sum(axis=2))[-1, 0] > POOL_CAP * pool_unit(20)


def test_without_the_account_the_bound_is_passed():
    """The control: certifying all that is proposed breaks the guarantee."""
    certified = np.ones((100, 1), bool)
    wrong = np.ones((100, 1))
    assert excess(certified, wrong, 0.05)[-1, 0] > slack(100, 0.05) + CAP


def test_a_closed_account_comes_back_by_its_blocked_rounds():
    accounts = Accounts.open(1, 0.05)
    errs_first = lambda t, decisions: t < 60  # noqa: E731
    certified, _ = play(accounts, 1, lambda t: np.ones((1, 1), bool), errs_first, 200)
    assert not certified[6:80].any()
    assert certified[100:].all()


def test_credits_come_as_soon_as_the_theorem_counts_on_and_not_sooner():
    accounts = Accounts.open(1, 0.05)
    for rounds in range(1, 16_000):
        book(accounts, 1, 0)
        assert accounts.single["credits"] == accounts.pools["credits"] == most_credits(rounds)


def test_whoever_errs_in_more_than_delta_earns_no_credit():
    credits = {}
    for every in (15, 30):
        accounts = Accounts.open(1, 0.05)
        for rounds in range(2000):
            book(accounts, 1, rounds % every == 0)
        assert accounts.single["credits"] == accounts.pools["credits"]
        credits[every] = accounts.single["credits"].item()
    assert credits == {15: 0, 30: 6}


def test_a_credit_that_is_not_needed_is_repaid():
    accounts = Accounts.open(1, 0.05)
    for decision in [1] * 90 + [2]:
        book(accounts, decision, 0)
    assert accounts.single["credits"] == accounts.pools["credits"] == 0


def check_guard(guard, delta):
    """Compare a guard's errors with the theorem, by sensor and together."""
    number, wrong, allowed = guard.outcomes
    assert (wrong <= delta * number + allowed + 1e-9).all()
    for h in range(guard.horizons):
        pooled = pooled_slack(guard.rounds, delta, number.shape[1], h + 1)
        assert wrong[h].sum() <= delta * number[h].sum() + pooled + 1e-9


@cache
def learned_of(horizons, delta):
    """What a guard learned of four sensors that are nearly the same."""
    rng = np.random.default_rng(1)
    guard = Guard([[0], [1], [2, 3]], 1.0, delta, horizons)
    guard.update(rng.normal(size=(250, 1)) + 0.1 * rng.normal(size=(250, 4)))
    return guard.learned(list("abcd"), {})


def hostile(guard, rng, rounds, delta, calm):
    """Play windows like those that were learned; from `calm` on move what is certified."""
    for t in range(rounds):
        window = rng.normal() + 0.1 * rng.normal(size=4)
        attacked = guard.recoverable[0] & (t >= calm)
        window += np.where(attacked, rng.choice([-3.0, 3.0], 4), 0.0)
        guard.update(np.where(rng.random(4) < 0.05, np.nan, window))
        check_guard(guard, delta)


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    horizons=st.integers(1, 3),
    delta=st.sampled_from([0.05, 0.2]),
    calm=st.integers(0, 200),
)
def test_the_bounds_hold_for_a_guard_that_begins_with_what_was_learned_of_other_data(
    seed, horizons, delta, calm
):
    rules = Rules.check([[0], [1], [2, 3]], 1.0, delta, horizons)
    names = list("abcd")
    guard = Guard.of_guards(learned_of(horizons, delta).begin(rules, names), names)
    hostile(guard, np.random.default_rng(seed), 300, delta, calm)


def test_what_was_learned_of_other_data_uses_up_the_budgets():
    """The control of the property above: the first guarantees are wrong, and later many more."""
    rules = Rules.check([[0], [1], [2, 3]], 1.0, 0.05, 1)
    guard = Guard.of_guards(learned_of(1, 0.05).begin(rules, list("abcd")), list("abcd"))
    soon = copy.copy(guard)
    hostile(soon, np.random.default_rng(1), 60, 0.05, 0)
    number, wrong, _ = soon.outcomes.sum(-1)
    assert 0.4 * number < wrong and wrong > 4
    hostile(guard, np.random.default_rng(1), 200, 0.05, 50)
    assert guard.outcomes[1].sum() > 3 * START


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    delta=st.sampled_from([0.05, 0.2]),
    changes=st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=4),
)
def test_accounts_that_go_on_under_changed_rules_keep_one_bound(seed, delta, changes):
    """By sensor since its account began, and together since the pool began."""
    rng = np.random.default_rng(seed)
    names = list("abcd")
    rules = Rules.check([[0], [1], [2, 3]], 1.0, delta, 2)
    guard = Guard.of_guards(learned_of(2, delta).begin(rules, names), names)
    ended = np.zeros((2, 2))  # guarantees and errors of accounts that ended before the pool did
    for change in changes:
        hostile(guard, rng, 120, delta, calm=60)
        limits = 1.0 + np.array([change >> i & 1 for i in range(4)])
        workers = [[0], [1], [2, 3]] if change & 16 else [[0, 1], [2], [3]]
        order = np.random.default_rng(change).permutation(4)
        place = np.argsort(order)
        rules = Rules.check([place[worker].tolist() for worker in workers], limits[order], delta, 2)
        number, wrong = ended + guard.outcomes[:2].sum(-1)
        for h in range(2):
            pooled = pooled_slack(guard.rounds, delta, 4, h + 1)
            assert wrong[h] <= delta * number[h] + pooled + 1e-9
        moved = [names[i] for i in order]
        guard = Guard.of_guards(change_rules(guard._guards, names, rules, moved), moved)
        names = moved
        kept = guard.outcomes[:2].sum(-1)
        ended = np.stack([number, wrong]) - kept if guard.rounds else 0 * ended


class Foolish:
    """Predictions that are drawn, or NaN, without any regard to the data."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def learn(self, window):
        """Learn nothing."""

    def predict(self, windows):
        drawn = self.rng.normal(scale=2.0, size=windows.shape[1])
        return np.where(self.rng.random(drawn.size) < 0.1, np.nan, drawn)


class Adversary(Foolish):
    """It knows each window and the guard, and is wrong where that uses up most of the budgets.

    It is right to the last digit until `calm` rounds have passed, and wherever it has to earn
    credit. `sign` lets it be wrong in both directions.
    """

    guard = None
    truth = None
    calm = 0

    def predict(self, windows):
        attacked = self.guard.recoverable.any(axis=0) & (self.guard.rounds > self.calm)
        sign = self.rng.choice([-1, 1], attacked.size)
        return self.truth + np.where(attacked, 5.0 * sign, 0.0)


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    horizons=st.integers(1, 3),
    delta=st.sampled_from([0.05, 0.2]),
    calm=st.integers(0, 400),
    adversarial=st.booleans(),
)
def test_the_bounds_hold_for_a_guard_with_any_predictor(seed, horizons, delta, calm, adversarial):
    rng = np.random.default_rng(seed)
    predictor = (Adversary if adversarial else Foolish)(seed)
    guard = Guard([[0], [1], [2, 3]], 1.0, delta, horizons, predictor=predictor)
    predictor.guard = guard
    predictor.calm = calm
    for window in rng.normal(size=(400, 4)):
        predictor.truth = window
        guard.update(np.where(rng.random(4) < 0.05, np.nan, window))
        check_guard(guard, delta)


def test_an_adversarial_predictor_uses_up_the_budget():
    """The control of the property above: it attacks what is certified, and not in vain."""
    predictor = Adversary(1)
    guard = Guard([[0], [1], [2, 3]], 1.0, 0.05, 1, predictor=predictor)
    predictor.guard = guard
    predictor.calm = 300
    for window in np.random.default_rng(1).normal(size=(400, 4)):
        predictor.truth = window
        guard.update(window)
    number, wrong, allowed = guard.outcomes
    assert (number > 100).all()
    assert (wrong > START).all()
