"""Rules of online conformal prediction against slow formulas of one stream, and the benchmark."""

import numpy as np
import pytest

from benchmarks import guard_peers
from benchmarks.online_conformal import LEAST, MEMORY, RULES

DELTA = 0.05


def scores_of(seed, rounds=700, missing=0.0):
    """Scores of one stream, whose size changes; NaN where the window did not come."""
    rng = np.random.default_rng(seed)
    scores = rng.exponential(size=rounds) * np.where(np.arange(rounds) // 150 % 2, 3.0, 1.0)
    return np.where(rng.random(rounds) < missing, np.nan, scores)


def play(rule, scores):
    """Half-widths before each score, which is known one round later."""
    widths = []
    issued = []
    for score in scores:
        widths.append(rule.half_width()[0, 0])
        issued.append(rule.issue())
        rule.learn(np.array([[score]]), issued[-1])
    return np.array(widths)


def quantile(past, alpha):
    """The quantile of the last scores that a share α should exceed."""
    past = sorted(past[-MEMORY:])
    rank = int(np.ceil((1 - alpha) * (len(past) + 1)))
    if len(past) < LEAST or rank > len(past):
        return np.inf
    return -np.inf if rank < 1 else past[rank - 1]


def split_conformal(scores):
    past = []
    for score in scores:
        yield quantile(past, DELTA)
        if not np.isnan(score):
            past.append(score)


def level(past, score):
    """The level at which the score would just be covered."""
    past = past[-MEMORY:]
    return (sum(each >= score for each in past) + 1) / (len(past) + 1)


def dtaci(scores, steps):
    """Gibbs and Candès, Algorithm 1; ACI with a single step."""
    spread = (1 - DELTA) ** 2 * DELTA**3 + DELTA**2 * (1 - DELTA) ** 3
    eta = np.sqrt(3 / 500 * (np.log(500 * len(steps)) + 2) / spread)
    past = []
    alphas = [DELTA] * len(steps)
    weights = [1.0] * len(steps)
    for score in scores:
        yield quantile(past, np.dot(weights, alphas) / sum(weights))
        if np.isnan(score):
            continue
        if len(past) >= LEAST:
            beta = level(past, score)
            for k, step in enumerate(steps):
                loss = DELTA * (beta - alphas[k]) - min(0, beta - alphas[k])
                weights[k] *= np.exp(-eta * loss)
                alphas[k] += step * (DELTA - (beta <= alphas[k]))
            total = sum(weights)
            weights = [each / total * (1 - 1 / 1000) + 1 / 1000 / len(steps) for each in weights]
        past.append(score)


def sf_ogd(scores):
    """Bhatnagar et al., Algorithm 2, from the quantile of the first scores on."""
    past = []
    radius = np.inf
    squares = 0.0
    for score in scores:
        yield radius
        if np.isnan(score):
            continue
        past.append(score)
        if len(past) == LEAST:
            radius = quantile(past, DELTA)
            step = max(past)
        elif len(past) > LEAST:
            gradient = DELTA - (score > radius)
            squares += gradient**2
            radius -= step * gradient / np.sqrt(squares)


FORMULAS = {
    "split conformal": split_conformal,
    "ACI": lambda scores: dtaci(scores, [0.005]),
    "DtACI": lambda scores: dtaci(scores, 0.001 * 2.0 ** np.arange(8)),
    "SF-OGD": sf_ogd,
}


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", FORMULAS)
def test_a_rule_gives_the_half_widths_of_the_slow_formula(name, missing):
    scores = scores_of(3, missing=missing)
    widths = play(RULES[name](1, 1, DELTA), scores)
    np.testing.assert_allclose(widths, list(FORMULAS[name](scores)))
    assert np.isfinite(widths).mean() > 0.7


def test_half_widths_cover_as_often_as_they_should():
    scores = scores_of(5, rounds=3000)
    for name, rule in RULES.items():
        widths = play(rule(1, 1, DELTA), scores)
        assert 0.9 < (scores <= widths)[500:].mean() < 0.985, name


def test_an_expert_of_saocp_ends_after_its_lifetime():
    rule = RULES["SAOCP"](1, 1, DELTA)
    play(rule, scores_of(1, rounds=300))
    expected = [t for t in range(1, 301) if 300 - t < 8 * (t & -t)]
    assert rule.born.tolist() == expected


def test_scores_of_a_race_are_those_that_one_counts_by_hand():
    error = np.array([2.0, 0.5, 2.0, 2.0, np.nan, 0.1])[:, None, None] * np.ones((6, 5, 1))
    certified = np.ones((6, 5, 1), bool)
    certified[1] = False
    row = guard_peers.score(error, certified, np.array([1.0]), 0)
    assert row["certified"] == pytest.approx(4 / 5)
    assert row["wrong"] == pytest.approx(3 / 4)
    assert (row["longest_run"], row["errors"]) == (3, 15)
    assert row["most_beyond_delta"] == pytest.approx(3 - 0.05 * 4)
    assert row["all_sensors_beyond_delta"] == pytest.approx(3 - 0.05 * 3)
    later = guard_peers.score(error, certified, np.array([1.0]), 3)
    assert (later["longest_run"], later["errors"]) == (1, 5)
    assert later["all_sensors_beyond_delta"] == row["all_sensors_beyond_delta"]
    unknown = guard_peers.score(error[[4, 0, 0]], certified[[4, 0, 0]], np.array([1.0]), 0)
    assert unknown["all_sensors_beyond_delta"] == pytest.approx(2 - 0.05 * 2)


def test_a_peer_decides_before_it_knows_the_outcome():
    """A rule whose intervals follow the last score by h rounds has no earlier knowledge."""
    rng = np.random.default_rng(2)
    windows = guard_peers.stationary(rng, rounds=150, sensors=3)
    changed = windows.copy()
    changed[120:] += 50
    limits = np.full(3, 2.0)
    kinds = {"ACI": (RULES["ACI"], True)}
    races = [
        guard_peers.race(lambda t, _, rows=rows: rows[t], 150, limits, kinds=kinds)
        for rows in (windows, changed)
    ]
    for name in ("guard", "ACI"):
        first, second = (each.certified[name] for each in races)
        np.testing.assert_array_equal(first[:120], second[:120])
        for h in range(5):  # decided before round 120
            np.testing.assert_array_equal(first[: 121 + h, h], second[: 121 + h, h])
    assert races[0].certified["ACI"].any()


def test_against_an_adversary_the_guard_errs_less_than_a_peer(monkeypatch):
    monkeypatch.setattr(guard_peers, "ADVERSARY_ROUNDS", 900)
    monkeypatch.setattr(guard_peers, "QUIET", 300)
    kinds = {"ACI, plain": (RULES["ACI"], False)}
    guard = guard_peers.adversary("guard", kinds)
    peer = guard_peers.adversary("ACI, plain", kinds)
    assert 0 < guard["errors"] < peer["errors"]


def test_outages_that_begin_after_a_gap_are_not_scored():
    windows = np.ones((8, 2))
    windows[3, 0] = np.nan
    scored = guard_peers.after_a_window(np.ones((8, 5, 2)), windows)
    unscored = [(4, 0, 0), (5, 1, 0), (6, 2, 0), (7, 3, 0)]  # 1 … 4 rounds after the gap
    assert [tuple(place) for place in np.argwhere(np.isnan(scored))] == unscored
