"""The guard beside online conformal prediction and D1's known model, on the same predictions.

python -m benchmarks guard_peers
AFT_DATASETS=FOLDER python -m benchmarks guard_peers    # more real sets, as Parquet files

All rules get the guard's shadow predictions, the same gaps, and outcomes with the same delay. Each
certifies a window if its interval lies within ε. "plain" intervals are of |error|, "scaled" ones of
|error| divided by the size that the guard predicts before the loss. The second half is scored.
Microseconds are processor time: the guard's include the predictions, the peers' do not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from aftlib import Guard
from aftlib.core.intervals import ratio_interval
from aftlib.core.paths import data_dir
from aftlib.guard import proposal
from benchmarks.online_conformal import RULES, SplitConformal
from benchmarks.timing import say

DELTA, HORIZONS = 0.05, 5
EPSILONS = (0.5, 0.75)
"""Limits, in standard deviations of the window means."""
SETS = {
    "beijing_pm25": (10, (2.4, 16.8)),
    "gefcom12_temp": (10, (2.4, 16.8)),
    "simbench_load": (10, (9.6, 67.2)),
    "irish_wind": (4, (91.3,)),
    "chicago_ridership": (2, (3.5,)),
    "intel50_temperature": (1, (48.0,)),
}
"""Real sets: samples of a window, and seasonal periods in windows."""
WEIGHTS = np.array([[5.0], [4.0], [3.0], [2.0], [1.0]])
"""Weights of the horizons: short outages are more frequent."""
SEGMENTS = 20
"""Parts of the scored rounds, between which an interval compares the share of errors."""
LEAST_CERTIFIED = 100
"""Certified windows of a sensor from which on its share of errors counts."""
KNOWN = "known model (D1)"
BOUNDS = {"guard": "certified rounds, any data, any time", KNOWN: "Gaussian data"}
BOUNDS |= {name: rule.bound for name, rule in RULES.items()}
"""For what a bound on a rule's errors existed beforehand."""
ADVERSARY_ROUNDS, QUIET, HIT = 3000, 500, 0.5
"""Rounds against an adversary, those before it begins, and its probability of a hit."""


@dataclass
class Race:
    """What each rule certified, by target window; arrays have shape (rounds, H, n)."""

    error: np.ndarray  # |error| of the shadow predictions, NaN where unknown
    certified: dict[str, np.ndarray]
    microseconds: dict[str, float]  # of processor time per window


class Peer:
    """A rule of `online_conformal` that certifies a window if its interval lies within ε."""

    def __init__(self, kind: type[SplitConformal], scaled: bool, limits: np.ndarray) -> None:
        self.rule = kind(HORIZONS, limits.size, DELTA)
        self.scaled = scaled
        self.limits = limits
        self.issued: list[np.ndarray] = []
        self.sizes: list[np.ndarray] = []

    def step(self, error: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Learn the errors (H, n) of a window; return what is certified from now on, (H, n)."""
        k = min(HORIZONS, len(self.issued))
        if k:
            score = error[:k] / np.array([self.sizes[-1 - h][h] for h in range(k)])
            self.rule.learn(score, np.array([self.issued[-1 - h][h] for h in range(k)]))
        self.issued = [*self.issued[1 - HORIZONS :], self.rule.issue()]
        here = size if self.scaled else np.ones(size.shape)
        self.sizes = [*self.sizes[1 - HORIZONS :], here]
        return np.asarray(self.rule.half_width() * here <= self.limits)


def predicted_size(guard: Guard) -> np.ndarray:
    """Return the |error| that the guard's regression expects now, (H, n); NaN where it has none."""
    guards = guard._guards
    risk = guards.risk
    features = proposal.joined(risk.common[:, :1], risk.own[:, 0])[0]  # of the newest round
    size = np.exp(np.einsum("hnf,hnf->hn", features, risk.weights[0]))
    usable = features[..., proposal.USABLE] == 1
    return np.where(usable, size * guards.model.scale[0], np.nan)


def race(
    rows: Callable[[int, np.ndarray], np.ndarray],
    rounds: int,
    limits: np.ndarray,
    seasons: tuple[float, ...] = (),
    kinds: dict[str, tuple[type[SplitConformal], bool]] | None = None,
    against: str = "guard",
) -> Race:
    """Play the guard and its peers; `rows` gets a round and what rule `against` certified for it.

    `kinds` are the peers by name, each with whether its intervals are scaled.
    """
    n = limits.size
    guard = Guard([[i] for i in range(n)], limits, DELTA, HORIZONS, seasons)
    peers = {name: Peer(kind, scaled, limits) for name, (kind, scaled) in (kinds or {}).items()}
    names = ["guard", *peers]
    errors = np.full((rounds, HORIZONS, n), np.nan)
    ahead = {name: np.zeros((rounds, HORIZONS, n), bool) for name in names}
    certified = {name: np.zeros((rounds, HORIZONS, n), bool) for name in names}
    seconds = dict.fromkeys(names, 0.0)
    for t in range(rounds):
        for name in peers:
            for h in range(min(HORIZONS, t)):
                certified[name][t, h] = ahead[name][t - 1 - h, h]
        row = rows(t, guard.recoverable[0] if against == "guard" else certified[against][t, 0])
        begin = time.process_time()
        history = guard.replay(row)
        seconds["guard"] += time.process_time() - begin
        errors[t] = np.abs(row - history.estimate[0])
        certified["guard"][t] = history.decisions[0] == 2
        size = predicted_size(guard)
        for name, peer in peers.items():
            begin = time.process_time()
            with np.errstate(invalid="ignore"):
                ahead[name][t] = peer.step(errors[t], size)
            seconds[name] += time.process_time() - begin
    return Race(errors, certified, {name: 1e6 * s / rounds for name, s in seconds.items()})


def score(
    error: np.ndarray, certified: np.ndarray, limits: np.ndarray, first: int
) -> dict[str, Any]:
    """Return shares of certified and of wrong windows from round `first` on, and the worst cases.

    Shares weigh the horizons; the longest run of errors counts a stream's certified windows alone.
    "all_sensors_beyond_delta" is the largest E − δN of a horizon at any time since round 0.
    """
    known = ~np.isnan(error[first:])
    given = certified[first:] & known
    wrong = given & (error[first:] > limits)
    number, errors = (given * WEIGHTS).sum((1, 2)), (wrong * WEIGHTS).sum((1, 2))
    parts = [part for part in np.array_split(np.arange(len(number)), SEGMENTS) if len(part)]
    result: dict[str, Any] = {
        "certified": float(number.sum() / (known * WEIGHTS).sum()),
        "wrong": None,
        "wrong_from": None,
        "wrong_to": None,
    }
    if number.sum() > 0:
        ratio, (low, high) = ratio_interval(
            np.array([errors[part].sum() for part in parts]),
            np.array([number[part].sum() for part in parts]),
            paired=True,
        )
        result |= {"wrong": ratio, "wrong_from": max(0.0, low), "wrong_to": high}
    by_sensor = given.sum((0, 1))
    share = wrong.sum((0, 1)) / np.maximum(by_sensor, 1)
    often = by_sensor >= LEAST_CERTIFIED
    excess = wrong.sum(0) - DELTA * given.sum(0)
    ever = certified & ~np.isnan(error)
    together = (ever * ((error > limits) - DELTA)).sum(2).cumsum(0)
    return result | {
        "longest_run": longest_run(wrong, given),
        "worst_sensor": float(share[often].max()) if often.any() else None,
        "most_beyond_delta": float(excess.max()),
        "all_sensors_beyond_delta": float(together.max()),
        "errors": int(wrong.sum()),
    }


def longest_run(wrong: np.ndarray, given: np.ndarray) -> int:
    """Return the most errors in a row among the certified windows of one stream."""
    most = 0
    for place in np.ndindex(wrong.shape[1:]):
        run = wrong[:, *place][given[:, *place]]
        ends = np.flatnonzero(np.diff(np.concatenate([[0], run, [0]])))
        most = max(most, int((ends[1::2] - ends[::2]).max(initial=0)))
    return most


def known_model(windows: np.ndarray, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the errors and certificates of D1's known model, fitted to the first half.

    A sensor is certified if P(|error| ≤ ε) ≥ 1 − δ by eqs (1) to (3); the outage's length does not
    matter. Windows with gaps are not scored.
    """
    past = windows[: len(windows) // 2]
    past = past[np.isfinite(past).all(1)]
    covariance = np.cov(past, rowvar=False)
    precision = np.linalg.inv(covariance + 1e-9 * np.diag(np.diag(covariance)))
    variance = 1 / np.diag(precision)
    error = np.abs((windows - past.mean(0)) @ precision * variance)
    certified = norm.isf(DELTA / 2) * np.sqrt(variance) <= limits
    shape = (len(windows), HORIZONS, limits.size)
    return (
        np.broadcast_to(error[:, np.newaxis], shape),
        np.broadcast_to(certified, shape),
    )


def all_peers() -> dict[str, tuple[type[SplitConformal], bool]]:
    """Return each rule of `online_conformal`, plain and scaled."""
    return {
        f"{name}, {'scaled' if scaled else 'plain'}": (kind, scaled)
        for name, kind in RULES.items()
        for scaled in (False, True)
    }


def measure(
    windows: np.ndarray, limits: np.ndarray, seasons: tuple[float, ...] = ()
) -> list[dict[str, Any]]:
    """Return a row per rule, for the largest error of each sensor."""
    half = len(windows) // 2
    result = race(lambda t, _: windows[t], len(windows), limits, seasons, all_peers())
    error = after_a_window(result.error, windows)
    rows = [
        {"rule": name, "bound": BOUNDS[name.partition(",")[0]]}
        | score(error, certified, limits, half)
        | {"microseconds": result.microseconds[name]}
        for name, certified in result.certified.items()
    ]
    error, certified = known_model(windows, limits)
    known = {"rule": KNOWN, "bound": BOUNDS[KNOWN]}
    return [*rows, known | score(after_a_window(error, windows), certified, limits, half)]


def after_a_window(error: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """Return the errors of outages that begin after a window that came, NaN for the others.

    After a gap an outage is longer by the gap, so it belongs to a longer horizon.
    """
    kept = error.copy()
    for h in range(HORIZONS):
        kept[h + 1 :, h][np.isnan(windows[: -h - 1])] = np.nan
    return kept


def read_sets(names: Iterable[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the samples of those of the named real sets whose files are there."""
    folders = [data_dir(), Path(os.environ.get("AFT_DATASETS", data_dir()))]
    for name in names:
        paths = [folder / f"{name}.parquet" for folder in folders]
        for path in [path for path in paths if path.exists()][:1]:
            yield name, pd.read_parquet(path).select_dtypes("number").astype(float)


def real_sets() -> dict[str, tuple[np.ndarray, tuple[float, ...]]]:
    """Return window means and seasons of the real sets."""
    sets = {}
    for name, frame in read_sets(SETS):
        samples, seasons = SETS[name]
        sets[name] = frame.groupby(np.arange(len(frame)) // samples).mean().to_numpy(), seasons
    return sets


def common_part(rng: np.random.Generator, rounds: int) -> np.ndarray:
    """Return an autoregressive series that all sensors share, (rounds, 1)."""
    common = np.zeros((rounds, 1))
    for t, shock in enumerate(rng.normal(size=rounds)):
        common[t] = 0.9 * common[t - 1] + shock
    return common


def stationary(rng: np.random.Generator, rounds: int = 3000, sensors: int = 8) -> np.ndarray:
    """Return the common part and noise of each sensor, (rounds, sensors)."""
    return common_part(rng, rounds) + 0.5 * rng.normal(size=(rounds, sensors))


def hard_streams() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return generated streams on which models and calibration are wrong from time to time.

    Each comes with its limits: half a standard deviation of the stream without the trouble.
    """
    rng = np.random.default_rng(11)
    quiet = stationary(rng)
    time_ = np.arange(len(quiet))[:, np.newaxis]
    one, *others = (5 * (rng.integers(0, len(quiet), 8) < time_) for _ in range(8))
    streams = {
        "drift": quiet + time_ / 100 * rng.normal(size=8),
        "a level shift per sensor": quiet + one,
        "eight level shifts per sensor": quiet + sum(others, one),
        "30 % missing": np.where(rng.random(quiet.shape) < 0.3, np.nan, quiet),
    }
    limits = 0.5 * quiet.std(axis=0)
    return {name: (windows, limits) for name, windows in streams.items()}


def adversary(name: str, kinds: dict[str, tuple[type[SplitConformal], bool]]) -> dict[str, Any]:
    """Return how rule `name` does against an adversary of its own.

    Where it certified the next window, a shift of ±9 comes with probability `HIT`, whose sign is
    drawn for each sensor, so that the sensors do not predict each other.
    """
    rng = np.random.default_rng(7)
    quiet = stationary(rng, ADVERSARY_ROUNDS)
    limits = np.full(quiet.shape[1], 1.2)

    def rows(t: int, certified: np.ndarray) -> np.ndarray:
        hit = certified & (rng.random(certified.size) < HIT) & (t >= QUIET)
        return np.asarray(quiet[t] + 9 * rng.choice([-1, 1], certified.size) * hit)

    mine = {name: kinds[name]} if name in kinds else {}
    result = race(rows, ADVERSARY_ROUNDS, limits, (), mine, against=name)
    # the adversary acts on the certificates of one window ahead
    given = result.certified[name][QUIET:, 0]
    wrong = given & (result.error[QUIET:, 0] > limits)
    return {
        "rule": name,
        "certified": int(given.sum()),
        "errors": int(wrong.sum()),
        "most_beyond_delta": float((wrong.sum(0) - DELTA * given.sum(0)).max()),
    }


def run() -> dict[str, Any]:
    """Measure all rules on real sets, on hard streams, and each against its own adversary."""
    real = []
    hard = []
    for name, (windows, seasons) in real_sets().items():
        for epsilon in EPSILONS:
            say(f"{name}, ε = {epsilon} sd")
            where = {"data": name, "epsilon": epsilon, "windows": len(windows)}
            limits = epsilon * np.nanstd(windows, axis=0)
            real += [where | row for row in measure(windows, limits, seasons)]
    for name, (windows, limits) in hard_streams().items():
        say(name)
        where = {"data": name, "epsilon": 0.5, "windows": len(windows)}
        hard += [where | row for row in measure(windows, limits)]
    kinds = all_peers()
    against = []
    for name in ["guard", *kinds]:
        say(f"adversary of {name}")
        against.append(adversary(name, kinds))
    return {"delta": DELTA, "real": real, "hard": hard, "adversary": against}
