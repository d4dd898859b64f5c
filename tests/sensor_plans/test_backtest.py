"""The walk forward counts what it says, and the guard's shares are those that were hoped for."""

import numpy as np
import pytest

from aftlib.core.gaussian import GaussianModel
from aftlib.core.planfile import fitted
from aftlib.guard import Guard
from aftlib.sensor_plans import backtest
from aftlib.sensor_plans.backtest import (
    ALWAYS,
    BASELINE,
    BASELINE_ALL,
    GUARD,
    HINDSIGHT,
    LAST,
    LEAST,
    LINEAR,
    MEMORY,
    METHODS,
    PACE,
    PAIRS,
    Conformal,
    Walk,
    compared,
    hindsight,
    interval,
    walk_forward,
)

WORKERS, LIMITS, DELTA, H = [[0, 3], [1, 4], [2, 5]], np.linspace(0.6, 0.9, 6), 0.05, 3


def stream(rounds=900, gaps=0.03, seed=1):
    rng, at = np.random.default_rng(seed), 0.0
    common = np.empty(rounds)
    for t in range(rounds):
        at = 0.8 * at + rng.normal()
        common[t] = at
    values = common[:, None] + 0.3 * rng.normal(size=(rounds, 6)) + np.arange(6)
    values[rng.random(values.shape) < gaps] = np.nan
    return values


@pytest.fixture(scope="module")
def walked():
    values = stream()
    plain = fitted(values[:450], [f"s{i}" for i in range(6)])
    return values, plain, walk_forward(values, WORKERS, LIMITS, DELTA, plain, horizons=H)


def slowly(values, said, estimate):
    """Pairs, promises and broken ones, window by window."""
    counts = np.zeros((H, 6, 3), int)
    for t in range(450, 900):
        for h in range(H):
            for i in range(6):
                truth, guess = values[t, i], estimate(t, h, i)
                declared = said(t, h, i) and np.isfinite(truth - guess)
                wrong = declared and abs(truth - guess) > LIMITS[i]
                counts[h, i] += [np.isfinite(truth), declared, wrong]
    return counts


def test_every_method_is_counted_as_it_is_defined(walked):
    values, plain, walk = walked
    guard = Guard(WORKERS, LIMITS, DELTA, H)
    told = guard.replay(values)

    def own(t, h, i):
        return told.estimate[t, h, i]

    def conditional(t, h, i):
        worker = next(keys for keys in WORKERS if i in keys)
        others = [j for j in range(6) if j not in worker]
        known = np.where(np.isfinite(values[t, others]), values[t, others], plain.mean[others])
        return plain.mean[i] + (plain.gain(others, [i]) @ (known - plain.mean[others]))[0]

    def last(t, h, i):
        return values[t - h - 1, i]

    def line(t, h, i):
        after = values[t + 1, i] if t + 1 < 900 else np.nan
        return np.interp(h + 1, [0, h + 2], [last(t, h, i), after])

    def yes(t, h, i):
        return True

    expected = {
        GUARD: slowly(values, lambda t, h, i: told.decisions[t, h, i] == 2, own),
        ALWAYS: slowly(values, yes, own),
        BASELINE_ALL: slowly(values, yes, conditional),
        LAST: slowly(values, yes, last),
        LINEAR: slowly(values, yes, line),
    }
    for method, counts in expected.items():
        found = walk.tallies[METHODS.index(method)].sum(axis=0)
        np.testing.assert_array_equal(found, counts, err_msg=method)
    promised, wrong, _ = guard.outcomes
    np.testing.assert_array_equal(walk.books, np.stack([promised, wrong], axis=-1))
    assert walk.rounds == guard.rounds == 900


def test_the_plain_model_promises_by_its_variance(walked):
    _, plain, walk = walked
    counts = walk.tallies[METHODS.index(BASELINE)].sum(axis=0)[0]
    trusted = [
        float(plain.block_variance(keys)[k]) <= (LIMITS[i] / 1.95996) ** 2
        for keys in WORKERS
        for k, i in enumerate(keys)
    ]
    placed = [i for keys in WORKERS for i in keys]
    assert [bool(counts[i, 1]) for i in placed] == trusted
    assert 0 < sum(trusted) < 6


def test_a_walk_is_the_same_in_pieces_with_a_short_warm_up_and_over_the_last_windows(
    walked, monkeypatch
):
    values, plain, whole = walked

    def walk(name, value):
        with monkeypatch.context() as patch:
            patch.setattr(backtest, name, value)
            return walk_forward(values, WORKERS, LIMITS, DELTA, plain, horizons=H)

    spans = backtest._spans
    pieces = walk("_spans", lambda first, edges: spans(first, edges, 7))
    np.testing.assert_array_equal(pieces.tallies, whole.tallies)
    np.testing.assert_array_equal(pieces.books, whole.books)
    short = walk("WARM_UP", 300)
    assert short.rounds == 750
    np.testing.assert_array_equal(short.tallies[..., PAIRS], whole.tallies[..., PAIRS])
    last = walk("MOST_SCORED", 6 * 200)
    assert (last.edges[0], last.edges[-1], last.rounds) == (700, 900, 900)
    np.testing.assert_array_equal(last.books, whole.books)
    assert last.tallies[..., PAIRS].sum() < 0.5 * whole.tallies[..., PAIRS].sum()


def test_the_summary_weighs_horizons(walked):
    walk = walked[2]
    counts = walk.tallies[METHODS.index(GUARD)].sum(axis=(0, 2))
    pairs, declared, wrong = np.array([3, 2, 1]) / 6 @ counts
    found = walk.summary(GUARD)
    assert found["declared"] == pytest.approx(declared / pairs)
    assert found["within"] == pytest.approx(1 - wrong / declared)
    assert found["interval"][0] <= found["within"] <= found["interval"][1]
    assert found["promises"] == counts[:, 1].sum()
    assert walk.excess <= 0


def test_a_guard_that_trusts_everybody_passes_the_bound(monkeypatch):
    class Gullible(Guard):
        def replay(self, windows):
            told = super().replay(windows)
            told.decisions[:] = 2
            return told

    monkeypatch.setattr(backtest, "Guard", Gullible)
    rng = np.random.default_rng(1)
    values = rng.normal(size=(900, 6))
    plain = GaussianModel(np.zeros(6), np.eye(6))
    walk = walk_forward(values, WORKERS, LIMITS, DELTA, plain, horizons=H)
    assert walk.excess > 100


def test_one_sensor_alone_can_pass_the_bound():
    books = np.zeros((1, 100, 2))
    books[..., 0] = 1000  # of each sensor 50 may be wrong, and as many as the slack allows
    books[0, 7, 1] = 200
    walk = Walk(*[np.zeros(0)] * 2, books, 1000, *[np.zeros(0)] * 2, delta=DELTA)
    assert walk.excess == pytest.approx(200 - 50 - walk.allowed[0]) and walk.excess > 0


def test_intervals_hold_the_share_and_are_cautious_without_errors():
    rng = np.random.default_rng(3)
    held = []
    for _ in range(200):
        counts = np.column_stack([np.full(40, 30), np.full(40, 20), rng.binomial(20, 0.05, 40)])
        low, high = interval(counts)
        held.append(low <= 0.95 <= high)
    assert np.mean(held) > 0.88
    low, high = interval(np.tile([30, 20, 0], (50, 1)))
    assert (round(low, 3), high) == (0.929, 1.0)
    assert interval(np.zeros((50, 3))) == (0.0, 1.0)


# the fourth sensor is told best by the others, then the second, the first and the third
MODEL = GaussianModel(np.zeros(4), np.eye(4) + 0.2 * np.outer([1, 1.5, 0, 2], [1, 1.5, 0, 2]))
ALONE = [[0], [1], [2], [3]]


def counted(wrong):
    tallies = np.zeros((len(METHODS), 2, 1, 4, 3), int)
    tallies[METHODS.index(BASELINE_ALL), ..., :2] = 100
    tallies[METHODS.index(BASELINE_ALL), ..., 2] = wrong
    nothing = np.zeros((1, 4, 2), int)
    return Walk(tallies, np.arange(3), nothing, 0, np.zeros((1, 4), bool), np.zeros((1, 4)), 0.05)


@pytest.mark.parametrize(
    ("wrong", "declared", "within"),
    [
        ([50, 10, 90, 0], 0.5, 0.95),
        ([50, 11, 90, 0], 0.25, 1.0),
        ([0, 10, 0, 0], 1.0, 0.975),  # a worse sensor is made up for by later ones
        ([0, 0, 0, 90], 0.0, None),
    ],
)
def test_the_most_sensors_with_which_the_promise_is_kept(wrong, declared, within):
    found = hindsight(counted(wrong), MODEL, ALONE)
    assert (found["declared"], found["within"]) == (declared, pytest.approx(within))


def test_every_method_has_its_line():
    lines = compared(counted([0, 0, 0, 0]), MODEL, ALONE)
    assert [line["method"] for line in lines][-1] == HINDSIGHT
    assert len({line["method"] for line in lines}) == 7
    assert lines[0] == {"method": "guard", "declared": 0.0, "within": None, "interval": None}


def defined(errors, limit, delta, horizon):
    """The same, sensor by sensor, from sorted lists."""
    level, seen, pending, said = delta, [], [np.inf] * horizon, []
    for error in errors:
        width = pending.pop(0)
        said.append(width <= limit)
        if not np.isnan(error):
            level += PACE * (delta - (error > width))
            seen = [*seen, error][-MEMORY:]
        rank = int(np.ceil((1 - level) * (len(seen) + 1)))
        enough = len(seen) >= LEAST and rank <= len(seen)
        pending.append(sorted(seen)[max(rank, 1) - 1] if enough else np.inf)
    return said


def test_it_is_its_definition_in_any_pieces():
    rng = np.random.default_rng(1)
    errors = np.abs(rng.normal(size=(900, 3, 2))) * np.linspace(0.3, 1.2, 900)[:, None, None]
    errors[rng.random(errors.shape) < 0.05] = np.nan
    limits = np.array([1.0, 1.5])
    conformal = Conformal(limits, 0.1, 3)
    said = np.concatenate([conformal.replay(part) for part in np.split(errors, [100, 101, 640])])
    for h in range(3):
        for i in range(2):
            expected = defined(errors[:, h, i], limits[i], 0.1, h + 1)
            np.testing.assert_array_equal(said[:, h, i], expected)
    assert 0.2 < said.mean() < 0.8


def test_over_all_windows_it_covers_what_it_says():
    errors = np.abs(np.random.default_rng(2).normal(size=(4000, 1, 1)))
    said = Conformal(np.array([1.5]), 0.05, 1).replay(errors)
    assert said[1000:].mean() < 0.01  # the 95 % quantile of |N(0, 1)| is 1.96
    assert Conformal(np.array([2.3]), 0.05, 1).replay(errors)[1000:].mean() > 0.95
