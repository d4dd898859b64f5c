"""The walk forward counts as documented, and the guard has the expected shares."""

from dataclasses import replace

import numpy as np
import pytest

from aftlib.guard.accounts import slack
from aftlib.guard.guard import Guard
from aftlib.sensor_plans import backtest
from aftlib.sensor_plans.backtest import (
    ALWAYS,
    BASELINE,
    GUARD,
    HINDSIGHT,
    HORIZONS,
    Counts,
    Walk,
    compare,
    hindsight,
    interval,
    walk_forward,
)
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.sensor_file import SensorTable
from aftlib.sensor_plans.sensor_plan import Score
from aftlib.sensor_plans.window_results import Survey

WORKERS, LIMITS, DELTA, H = [[0, 3], [1, 4], [2, 5]], np.linspace(0.6, 0.9, 6), 0.05, HORIZONS


def stream(rounds=900, gaps=0.03, seed=1):
    rng, at = np.random.default_rng(seed), 0.0
    common = np.empty(rounds)
    for t in range(rounds):
        at = 0.8 * at + rng.normal()
        common[t] = at
    values = common[:, None] + 0.3 * rng.normal(size=(rounds, 6)) + np.arange(6)
    values[rng.random(values.shape) < gaps] = np.nan
    return values


def survey_of(values):
    names = tuple(f"s{i}" for i in range(6))
    limits = dict(zip(names, LIMITS.tolist(), strict=True))
    return Survey.of(
        SensorTable(values, names, time=None), Question(epsilon=limits, delta=DELTA, window=1)
    )


@pytest.fixture(scope="module")
def example():
    survey = survey_of(stream())
    return survey, walk_forward(survey, WORKERS)


def count_slowly(values, certifies, estimate):
    """Count pairs, guarantees and wrong ones, window by window."""
    counts = np.zeros((3, H, 6), int)
    for t in range(450, 900):
        for h in range(H):
            for i in range(6):
                truth, guess = values[t, i], estimate(t, h, i)
                certified = certifies(t, h, i) and np.isfinite(truth - guess)
                wrong = certified and abs(truth - guess) > LIMITS[i]
                counts[:, h, i] += [np.isfinite(truth), certified, wrong]
    return counts


def test_every_method_is_counted_as_it_is_defined(example):
    survey, walk = example
    values = survey.values
    baseline = survey.baseline
    guard = Guard(WORKERS, LIMITS, DELTA, H)
    history = guard.replay(values)

    def own(t, h, i):
        return history.estimate[t, h, i]

    def conditional(t, h, i):
        worker = next(keys for keys in WORKERS if i in keys)
        others = [j for j in range(6) if j not in worker]
        known = np.where(np.isfinite(values[t, others]), values[t, others], baseline.mean[others])
        return baseline.mean[i] + (baseline.gain(others, [i]) @ (known - baseline.mean[others]))[0]

    def yes(t, h, i):
        return True

    expected = {
        GUARD: count_slowly(values, lambda t, h, i: history.decisions[t, h, i] == 2, own),
        ALWAYS: count_slowly(values, yes, conditional),
    }
    for method, counts in expected.items():
        actual = walk.counts[method].sum(0)
        np.testing.assert_array_equal(actual, counts, err_msg=method)
    guarantees, wrong, _ = guard.outcomes
    np.testing.assert_array_equal(walk.guarantees, guarantees)
    np.testing.assert_array_equal(walk.wrong, wrong)
    assert walk.rounds == guard.rounds == 900


def test_the_baseline_model_certifies_by_its_variance(example):
    survey, walk = example
    baseline = survey.baseline
    certified = walk.counts[BASELINE].certified.sum(axis=0)[0]
    estimable = [
        float(baseline.block_variance(keys)[k]) <= (LIMITS[i] / 1.95996) ** 2
        for keys in WORKERS
        for k, i in enumerate(keys)
    ]
    placed = [i for keys in WORKERS for i in keys]
    assert [bool(certified[i]) for i in placed] == estimable
    assert 0 < sum(estimable) < 6


def test_a_walk_is_the_same_with_a_short_warm_up_and_over_the_last_windows(example, monkeypatch):
    survey, whole = example

    def walk(name, value):
        with monkeypatch.context() as patch:
            patch.setattr(backtest, name, value)
            return walk_forward(survey, WORKERS)

    short = walk("WARM_UP", 300)
    assert short.rounds == 750
    np.testing.assert_array_equal(short.counts[GUARD].known, whole.counts[GUARD].known)
    last = walk("MOST_SCORED", 6 * 200)
    assert (last.edges[0], last.edges[-1], last.rounds) == (700, 900, 900)
    np.testing.assert_array_equal(last.guarantees, whole.guarantees)
    assert last.counts[GUARD].known.sum() < 0.5 * whole.counts[GUARD].known.sum()


def test_the_summary_weighs_horizons(example):
    walk = example[1]
    counts = walk.counts[GUARD].sum(0, 2)
    known, certified, wrong = (np.array([5, 4, 3, 2, 1]) / 15 @ each for each in counts)
    score = walk.score(GUARD)
    assert score.certified == pytest.approx(certified / known)
    assert score.within == pytest.approx(1 - wrong / certified)
    assert score.interval[0] <= score.within <= score.interval[1]
    assert walk.share_of_bound <= 1


def test_a_guard_that_certifies_every_sensor_exceeds_the_bound(monkeypatch):
    class Gullible(Guard):
        def replay(self, windows):
            history = super().replay(windows)
            history.decisions[:] = 2
            return history

    monkeypatch.setattr(backtest, "Guard", Gullible)
    walk = walk_forward(survey_of(np.random.default_rng(1).normal(size=(900, 6))), WORKERS)
    assert walk.share_of_bound > 3


def test_one_sensor_alone_can_exceed_the_bound_and_all_together():
    guarantees = np.full((1, 100), 1000)  # 50 of each may be wrong, and what the slack allows
    wrong = np.zeros((1, 100))
    wrong[0, 7] = 200
    guard = Guard([[0]], 1.0, DELTA)
    walk = Walk({}, np.zeros(0), guarantees, wrong, 1000, np.zeros(0), DELTA, guard)
    own = slack(1000, DELTA, 1)
    assert walk.share_of_bound == pytest.approx(200 / (50 + own)) and walk.share_of_bound > 1
    each_within_its_own = replace(walk, wrong=np.full((1, 100), 50 + 0.9 * own))
    assert each_within_its_own.share_of_bound > 1


def test_intervals_hold_the_share_and_are_cautious_without_errors():
    rng = np.random.default_rng(3)
    held = []
    for _ in range(200):
        counts = Counts(np.full(40, 30), np.full(40, 20), rng.binomial(20, 0.05, 40))
        low, high = interval(counts)
        held.append(low <= 0.95 <= high)
    assert np.mean(held) > 0.88
    low, high = interval(Counts(np.full(50, 30), np.full(50, 20), np.zeros(50)))
    assert (round(low, 3), high) == (0.929, 1.0)


# the fourth sensor is predicted best by the others, then the second, the first and the third


def walk_with_errors(wrong):
    nothing = np.zeros((2, 1, 4))
    counts = dict.fromkeys(backtest.METHODS, Counts(nothing, nothing, nothing))
    counts[ALWAYS] = Counts(nothing + 100, nothing + 100, nothing + wrong)
    guard = Guard([[0]], 1.0, 0.05)
    return Walk(counts, np.arange(3), nothing[0], nothing[0], 0, np.zeros((1, 4)), 0.05, guard)


@pytest.mark.parametrize(
    ("wrong", "certified", "within"),
    [
        ([50, 10, 90, 0], 0.5, 0.95),
        ([50, 11, 90, 0], 0.25, 1.0),
        ([0, 0, 50, 10], 0.75, 29 / 30),  # the order of the sensors does not matter
        ([0, 10, 0, 0], 1.0, 0.975),  # a worse sensor is made up for by later ones
        ([90, 90, 90, 90], 0.0, None),
    ],
)
def test_the_most_sensors_with_which_the_guarantee_holds(wrong, certified, within):
    line = hindsight(walk_with_errors(wrong))
    assert (line.certified, line.within) == (certified, pytest.approx(within))


def test_every_method_has_its_line():
    lines = compare(walk_with_errors([0, 0, 0, 0]))
    assert [line.method for line in lines][-1] == HINDSIGHT
    assert len({line.method for line in lines}) == 4
    assert lines[0] == Score("guard", 0.0, None)
