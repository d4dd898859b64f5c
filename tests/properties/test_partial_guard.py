"""The theorem of the accounts, over windows that an adversary chooses after each certification."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aftlib.guard.accounts import CAP, POOL_START, pool_unit, pooled_slack, slack
from aftlib.guard.partial import PartialGuard

WIDTH, INTERVALS = 4, [(0, 4), (1, 3), (3, 4)]


def play(seed, sensors, delta, rates, rounds):
    """Return certified and wrong, one row per window; certified sensors get faults, O is random."""
    rng = np.random.default_rng(seed)

    def select(covariance, target):
        return np.flatnonzero((target == 0) | (rng.random(sensors) < 0.2))

    guard = PartialGuard(WIDTH, INTERVALS, 1.0, delta, sensors, select)
    certified = np.zeros((rounds, len(INTERVALS), sensors), bool)
    wrong = np.zeros(certified.shape)
    for t in range(rounds):
        window = 0.05 * rng.normal(size=(WIDTH, sensors))
        for k, o in enumerate(guard.replay):
            certified[t, k] = True
            certified[t, k, o] = False
        faulty = certified[t].any(axis=0) & (rng.random(sensors) < rates[t // 23 % len(rates)])
        window[rng.integers(WIDTH), faulty] += 50 * rng.choice([-1, 1])
        estimate = guard.update(window).estimate[0]
        for k, (a, b) in enumerate(INTERVALS):
            off = np.abs(window[a:b].mean(axis=0) - estimate[k]) * (b - a) / WIDTH
            wrong[t, k] = off > 1.0
    return guard, certified, wrong


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    sensors=st.integers(1, 4),
    delta=st.sampled_from([0.02, 0.05, 0.3]),
    rates=st.lists(st.sampled_from([0.0, 0.1, 1.0]), min_size=1, max_size=5),
)
def test_errors_stay_within_the_theorem(seed, sensors, delta, rates):
    rounds = 160
    guard, certified, wrong = play(seed, sensors, delta, rates, rounds)
    sums = np.cumsum(np.where(certified, wrong - delta, 0), axis=0)
    bound = np.array([slack(t + 1, delta) for t in range(rounds)])[:, None, None]
    assert (sums <= bound + 1e-9).all()
    start = np.minimum.accumulate(np.concatenate([np.zeros((1, *sums.shape[1:])), sums[:-1]]))
    assert (sums - start <= bound - 5 + CAP + 1e-9).all()
    pooled = np.array([pooled_slack(t + 1, delta, sensors) for t in range(rounds)])[:, None]
    assert (sums.sum(axis=2) <= pooled + 1e-9).all()
    np.testing.assert_array_equal(guard.outcomes[0], certified.sum(axis=0))
    np.testing.assert_array_equal(guard.outcomes[1], (certified & (wrong == 1)).sum(axis=0))


def test_the_adversary_spends_what_the_accounts_began_with_and_no_more():
    """Faulty whenever certified, the sensors are soon all read."""
    _, certified, wrong = play(1, 3, 0.02, [1.0], 160)
    errors = (certified & (wrong == 1)).sum(axis=(0, 2))
    assert (errors >= POOL_START * pool_unit(3)).all()
    assert not certified[60:].all(axis=2).any()
