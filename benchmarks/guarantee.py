"""The guard's theorem on streams that nobody tuned to, and the coverage of printed half-widths.

python -m benchmarks guarantee
AFT_DATASETS=FOLDER python -m benchmarks guarantee    # more real sets, as Parquet files
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from aftlib import GaussianModel, Guard, Promise
from aftlib.streaming.coordinator import coordinate
from aftlib.streaming.rows import Rounds, arrange, rows_of
from benchmarks.guard_peers import common_part, read_sets
from benchmarks.timing import say

N, WORKERS, HORIZONS, ROUNDS, DELTA = 20, 5, 5, 1200, 0.05
SEEDS = int(os.environ.get("AFT_GUARANTEE_SEEDS", "12"))
SAMPLES = {"beijing_pm25": 12, "gefcom12_temp": 12, "irish_wind": 4, "simbench_load": 12}
"""Real sets, and samples of a window, so that a set has some 1,600 to 3,300 windows."""
WARM = 300
"""Windows from which the guard learns before any is lost."""


def run() -> dict[str, Any]:
    """Accounts, violations of the bound, and shares of truths within the half-widths."""
    return {"theorem": theorem(), "coverage": list(coverage())}


def theorem() -> dict[str, Any]:
    """Play each kind of stream with `SEEDS` seeds; check every account every ten windows."""
    accounts = violated = 0
    closest: dict[str, float] = {}
    for kind, draw in STREAMS.items():
        say(f"theorem: {kind}")
        for seed in range(SEEDS):
            rng = np.random.default_rng([seed, len(kind)])
            windows, epsilon = with_gaps(draw(rng), rng), 0.5 + rng.random()
            for part in np.array_split(windows, 1 + (kind == "epsilon changes")):
                guard = Guard([range(w, N, WORKERS) for w in range(WORKERS)], epsilon, DELTA)
                left = least_left(guard, part, rng if kind == "adversary" else None)
                accounts, violated = accounts + left.size, violated + int((left < -1e-9).sum())
                closest[kind] = min(closest.get(kind, np.inf), float(left.min()))
                epsilon *= 0.6
    return {"accounts": accounts, "violated": violated, "least errors left": closest}


def least_left(guard: Guard, windows: np.ndarray, adversary: Any) -> np.ndarray:
    """Return the least δN + slack − E that each account ever had, shape (H, n)."""
    least = np.full((HORIZONS, N), np.inf)
    step = 10 if adversary is None else 1
    for begin in range(0, len(windows), step):
        part = windows[begin : begin + step].copy()
        if adversary is not None:  # what could be estimated is wrong, each sensor in its own way
            sign = adversary.choice([-9, 9], N)
            part[0] += sign * guard.recoverable[0] * (adversary.random() < 0.5)
        guard.update(part)
        number, wrong, slack = guard.outcomes
        least = np.minimum(least, DELTA * number + slack - wrong)
    return least


def common_and_own(rng: Any, own: Callable[..., np.ndarray], rounds: int = ROUNDS) -> np.ndarray:
    """Return a common autoregressive part and noise of each sensor, shape (rounds, N)."""
    return common_part(rng, rounds) + own(size=(rounds, N))


def mixed(rng: Any) -> np.ndarray:
    """Return sensors whose dependence on each other changes every 200 windows."""
    shape = (ROUNDS // 200, 3, N)
    parts = rng.normal(size=(shape[0], 200, 3)) @ rng.normal(size=shape)
    return parts.reshape(ROUNDS, N) + 0.2 * rng.normal(size=(ROUNDS, N))


def normal(rng: Any) -> np.ndarray:
    """Return the stream with normal noise."""
    return common_and_own(rng, lambda size: 0.3 * rng.normal(size=size))


T = np.arange(ROUNDS)[:, None]
STREAMS: dict[str, Callable[[Any], np.ndarray]] = {
    "autoregressive": normal,
    "heavy tails, t3": lambda rng: common_and_own(rng, lambda size: rng.standard_t(3, size) / 4),
    "drift": lambda rng: normal(rng) + T / 100 * rng.normal(size=N),
    "random walks": lambda rng: rng.normal(size=(ROUNDS, N)).cumsum(0) / 5 + normal(rng),
    "level shifts": lambda rng: normal(rng) + 5 * (rng.integers(0, ROUNDS, N) < T),
    "changes of regime": mixed,
    "season that changes": lambda rng: (
        normal(rng) + np.sin(T / np.where(T < 600, 7, 11)) * rng.normal(size=N)
    ),
    "noise that grows": lambda rng: normal(rng) * np.exp(T / 400),
    "join and leave": lambda rng: np.where(
        (rng.integers(0, 600, N) * (np.arange(N) % 3 == 0) > T) | (rng.integers(500, 3000, N) < T),
        np.nan,
        normal(rng),
    ),
    "epsilon changes": normal,
    "adversary": normal,
}


def with_gaps(windows: np.ndarray, rng: Any) -> np.ndarray:
    """Return windows with gaps of sensors, and losses of workers for one to six windows."""
    windows = np.where(rng.random(windows.shape) < 0.01, np.nan, windows)
    for begin in np.flatnonzero(rng.random(len(windows)) < 0.02):
        worker = rng.integers(WORKERS)
        windows[begin : begin + rng.integers(1, 7), worker::WORKERS] = np.nan
    return windows


def coverage() -> Iterator[dict[str, Any]]:
    """Share of the truths within the half-widths, by data, kind of estimate and kind of window."""
    for name, data, samples in sets():
        say(f"coverage: {name}")
        whole = data[: len(data) // samples * samples].reshape(-1, samples, data.shape[1])
        for known in (False, True):
            found = replay(whole, known)
            for kind, hits in found.items():
                share = float(np.mean(hits)) if hits else None
                by = "known model" if known else "guard"
                yield {"data": name, "by": by, "windows": kind, "n": len(hits), "covered": share}


def sets() -> Iterator[tuple[str, np.ndarray, int]]:
    """Samples of real sets, as far as their files are there, and of generated ones."""
    for name, frame in read_sets(SAMPLES):
        yield name, frame.to_numpy(), SAMPLES[name]
    rng, rounds = np.random.default_rng(5), 20_000
    yield "drift", common_and_own(rng, rng.normal, rounds) + np.arange(rounds)[:, None] / 2000, 10
    yield "t3", common_and_own(rng, lambda size: rng.standard_t(3, size), rounds), 10


def replay(whole: np.ndarray, known: bool) -> dict[str, list[bool]]:
    """Whether truths were within half-widths; a worker is lost, or only some of its samples come.

    The known model is fitted to the first half of the windows, and used on the others.
    """
    rng, (windows, samples, n) = np.random.default_rng(3), whole.shape
    names = [f"s{i}" for i in range(n)]
    with np.errstate(all="ignore"):
        means = np.nanmean(whole, axis=1)
    half = windows // 2
    history = means[:half][np.isfinite(means[:half]).all(1)]
    model = GaussianModel.fit(pd.DataFrame(history, columns=names)) if known else None
    workers = [names[w::4] for w in range(4)]
    limits = 3 * np.nanstd(means[:half], axis=0)  # wide, so that nearly all losses are certified
    epsilon = dict(zip(names, limits, strict=True))
    promise = Promise(
        workers, epsilon, DELTA, "60s", samples=samples, share=0.3, model=model, behind="1900-01-01"
    )
    guard = None if known else promise.guard()
    hits = {"lost": [], "some at random": [], "the first ones": []}
    for t in range(half if known else 0, windows):
        rows, kind, mine = whole[t].copy(), "", np.arange(rng.integers(4), n, 4)
        if t >= WARM and rng.random() < 0.6:
            kind = [*hits][rng.integers(3)]
            many = 0 if kind == "lost" else int(np.ceil(samples * rng.uniform(0.3, 0.8)))
            keep = rng.permutation(samples) if kind == "some at random" else np.arange(samples)
            rows[np.ix_(keep[many:], mine)] = np.nan
        window = frame(rows, names, t * promise.step).assign(key="")
        if guard is None:
            (columns,) = coordinate([window], promise.content)
        else:
            columns = rows_of(promise, answered(guard, promise, window))
        if kind:
            place = [promise.sensors.index(names[i]) - n for i in mine]
            half_width = np.asarray(columns["half_width"])[place]
            value = np.asarray(columns["value"])[place]
            truth = means[t][mine]
            told = np.isfinite(half_width) & np.isfinite(whole[t][:, mine]).all(0)
            hits[kind] += (np.abs(value - truth) <= half_width)[told].tolist()
    return hits


def answered(guard: Guard, promise: Promise, windows: pd.DataFrame) -> Rounds:
    """Give a frame of windows to a guard, and return them with its estimates."""
    arranged = arrange(windows, promise)
    recovered = guard.update(arranged.value)
    return Rounds(arranged, recovered, np.zeros(arranged.value.shape))


def frame(rows: np.ndarray, names: list[str], start: int) -> pd.DataFrame:
    """Return a window's samples as Spark aggregates them; shape (samples, n), NaN where missing."""
    there = np.isfinite(rows).sum(0)
    came = there > 0
    parts = rows[:, came]
    variance = np.full(parts.shape[1], np.nan)
    many = there[came] > 1
    variance[many] = np.nanvar(parts[:, many], axis=0, ddof=1)
    columns = {"sensor": np.array(names, object)[came], "value": np.nanmean(parts, axis=0)}
    return pd.DataFrame({"start": start, **columns, "samples": there[came], "variance": variance})
