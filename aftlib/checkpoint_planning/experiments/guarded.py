"""D2's guarantee, and the guard's, on data whose steps depend on earlier steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
from scipy.signal import lfilter

from aftlib.checkpoint_planning.experiments.recoveries import (
    fail_and_recover,
    planned_query,
    require_planned,
    score_results,
)
from aftlib.checkpoint_planning.guarded_replay import plan_guarded, replay_guard
from aftlib.checkpoint_planning.operator import ReplayQuery, bare_read, prepare
from aftlib.checkpoint_planning.pipeline import replay_in_process
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.replay import select_replay
from aftlib.core.datasets import read_table
from aftlib.core.gaussian import GaussianModel
from aftlib.core.intervals import bootstrap_share
from aftlib.core.paths import beijing_pm25
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.guard.accounts import Audit, slack

SENSORS, WINDOW, GRID = 12, 30, tuple(range(0, 30, 5))
"""The generated example's n, w, and the times τ at which a checkpoint may be taken."""
EPSILON, BUDGET = 0.5, 60
"""The example's ε in standard deviations of a window's mean, and the tuples that T_SLA permits."""
DAY = 24
"""Steps of a window of the real sensors, which report each hour."""
LOOSE = 0.75
"""Share of the example after which its last sensor is independent of the others."""
LEAST_ESTIMATED = 100
"""Fewest estimated windows of a sensor for which its share within ε is computed."""


def wandering(windows: int, memory: float, seed: int) -> np.ndarray:
    """Samples (steps, n) of correlated sensors with autocorrelation memory^lag.

    Each sensor is √.97 times a common series plus √.03 times its own, all AR(1) of variance 1.
    """
    rng, steps = np.random.default_rng(seed), windows * WINDOW
    common, own, apart = (rng.standard_normal((steps, k)) for k in (1, SENSORS, 1))
    shocks = np.sqrt(0.97) * common + np.sqrt(0.03) * own
    late = int(LOOSE * windows) * WINDOW
    shocks[late:, -1:] = apart[late:]
    return np.asarray(lfilter([np.sqrt(1 - memory**2)], [1, -memory], shocks, axis=0))


def guarded_windows(
    values: np.ndarray,
    window: int,
    grid: Sequence[int],
    epsilon_sd: float,
    delta: float,
    recovery_time: RecoveryTime,
    t_sla_ms: float,
    seasons: Sequence[float] = (),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Lose the rest of each window of the second half after each τ, under D2's plan and the guard.

    D2's own plan assumes independent steps with the distribution of the first half; the guard
    learns from every window. ε is given in standard deviations of the first half's window means.

    Returns two frames. Columns of the guarantees: method ("Σ/L" or "guard"), tau, window,
    sensor, estimated, and wrong: whether the window's mean errs by more than ε if only O is read
    from τ on. For the guard, a sensor in O is estimated from the other sensors of O. Columns of the
    plans: window, checkpoints, the most sensors and tuples that a failure replays, and total_ms.
    """
    n, rounds = values.shape[1], len(values) // window
    x = values[: rounds * window].reshape(rounds, window, n)
    half, requirement = rounds // 2, Requirement(1, delta)
    limit = epsilon_sd * x[:half].mean(axis=1).std(axis=0)
    model = GaussianModel.fit(x[:half].reshape(-1, n))
    guard = replay_guard(window, grid, limit, delta, n, seasons)
    guard.update(x[:half])

    certified, estimate = np.zeros((2, rounds - half, len(grid), n))
    plans = []
    for t, samples in enumerate(x[half:]):
        plan = plan_guarded(guard, recovery_time, t_sla_ms)
        most = {"sensors": max(map(len, plan.replay)), "tuples": max(plan.tuples)}
        row = {"window": half + t, "checkpoints": len(plan.times) - 2, **most}
        plans.append(row | {"total_ms": recovery_time(most["tuples"])})
        updated = guard.update(samples)
        certified[t], estimate[t] = updated.decisions[0], updated.estimate[0]

    index = [range(half, rounds), range(n)]
    frames = []
    for k, tau in enumerate(grid):
        part, steps = x[half:, tau:].mean(axis=1), window - tau
        replay = select_replay(model, requirement.max_variance * (limit * window) ** 2 / steps)
        o, others = list(replay.sensors), replay.estimated
        baseline, means = part.copy(), model.mean
        baseline[:, others] = means[others] + (part[:, o] - means[o]) @ replay.gain().T
        chosen = np.broadcast_to(~np.isin(np.arange(n), o), part.shape)
        methods = {"Σ/L": (chosen, baseline), "guard": (certified[:, k] == 2, estimate[:, k])}
        for method, (estimated, guess) in methods.items():
            wrong = np.abs(guess - part) * steps / window > limit
            about = pd.MultiIndex.from_product(index, names=["window", "sensor"]).to_frame(False)
            about = about.assign(estimated=estimated.ravel(), wrong=wrong.ravel())
            frames.append(about.assign(method=method, tau=tau))
    return pd.concat(frames, ignore_index=True), pd.DataFrame(plans)


def guarantee_table(guarantees: pd.DataFrame, delta: float) -> pd.DataFrame:
    """Return the share estimated, and the share of these within ε, by method and τ.

    `worst_sensor` is the share within ε of the worst sensor. `windows` is the median number of
    estimated windows per sensor, and `slack` the share of them that the theorem permits beyond δ.
    The theorem does not cover "Σ/L".
    """
    rows = []
    methods, taus = guarantees["method"].unique(), guarantees["tau"].unique()
    for method, tau in product(methods, taus):
        chosen = guarantees[(guarantees["method"] == method) & (guarantees["tau"] == tau)]
        each = chosen[chosen["estimated"]].groupby("sensor")["wrong"].agg(["mean", "size"])
        number = each["size"].median() if len(each) else 0
        allowed = slack(int(chosen["window"].max()) + 1, delta) / number if number else np.nan
        within = 1 - chosen.loc[chosen["estimated"], "wrong"].mean()
        worst = 1 - each.loc[each["size"] >= LEAST_ESTIMATED, "mean"].max()
        shares = {"estimated": chosen["estimated"].mean(), "within": within, "worst_sensor": worst}
        bound = {"windows": number, "slack": allowed if method == "guard" else np.nan}
        rows.append({"method": method, "tau": tau, **shares, **bound})
    return pd.DataFrame(rows)


METHODS = {"Σ/L": "model", "guard": "guard"}
_SEGMENTS, _MOST_WINDOWS, _MOST_WORK = 6, 800, 2e10


@dataclass(frozen=True, eq=False)
class GuardedStream:
    """Samples (steps, n), a query with a guard for them, and parts of their windows.

    `parts` has the first window of each part, in ascending order.
    """

    query: ReplayQuery
    values: np.ndarray
    parts: dict[str, int]


def generated_stream(
    values: np.ndarray,
    epsilon_sd: float,
    delta: float,
    recovery_time: RecoveryTime,
    t_sla_ms: float,
) -> GuardedStream:
    """Return the stream of samples from `wandering`, with a model of their first half.

    ε is given in standard deviations of the sensors' window means.
    """
    windows = len(values) // WINDOW
    first = values[: windows // 2 * WINDOW]
    spread = first.reshape(-1, WINDOW, values.shape[1]).mean(axis=1).std(axis=0).mean()
    settings = Requirement(float(epsilon_sd * spread), delta), recovery_time, t_sla_ms
    query = ReplayQuery(GaussianModel.fit(first), WINDOW, *settings, recover="guard", grid=GRID)
    parts = {"all correlated": 0, "one independent": int(LOOSE * windows)}
    return GuardedStream(query, values, parts)


def real_stream(
    windows: int, epsilon_sd: float, delta: float, recovery_time: RecoveryTime, t_sla_ms: float
) -> GuardedStream:
    """Return the stream of PM2.5 at twelve stations in Beijing, in windows of a day.

    It has the last `windows` days of four years, in units of ε. The model is fitted to the first
    half's samples; ε is given in standard deviations of each sensor's window means in that half.
    """
    table = read_table(beijing_pm25())
    days = table.values.reshape(-1, DAY, len(table.names))[-windows:]
    half = len(days) // 2
    means, samples = Windows(DAY, DAY).aggregate(np.concatenate(days[:half]), 0, range(half))
    limit = epsilon_sd * np.where(samples > 0, means, np.nan)
    values = days / np.nanstd(limit, axis=0)
    past = pd.DataFrame(np.concatenate(values[:half]), columns=list(table.names))
    model = GaussianModel.fit(past, missing="pairwise")
    settings = Requirement(1.0, delta), recovery_time, t_sla_ms
    query = ReplayQuery(model, DAY, *settings, recover="guard", grid=tuple(range(0, DAY, 4)))
    return GuardedStream(query, np.concatenate(values), {"stations in Beijing": 0})


def planned_stream(file: Path | str) -> GuardedStream:
    """Return the stream of a plan's data in units of ε: the last 800 windows, fewer for large n.

    The grid has about six points in time per window, or more if T_SLA requires it.
    """
    plan = require_planned(file)
    query, n = planned_query(plan), len(plan.table.names)
    w, most = query.window, query.recovery_time.max_tuples(query.t_sla_ms)
    grid = tuple(range(0, w, max(1, min(-(-w // _SEGMENTS), most // n))))
    work = len(grid) * (2 * n) ** 3  # of the guard, for a window
    windows = min(len(plan.table.values) // w, _MOST_WINDOWS, max(4, int(_MOST_WORK / work)))
    values = plan.table.values[len(plan.table.values) // w * w - windows * w :][: windows * w]
    guarded = replace(query, planned=None, recover="guard", grid=grid)
    return GuardedStream(guarded, values, {"all": 0})


def failing_streams(stream: GuardedStream, scratch: Path, seed: int) -> tuple[pd.DataFrame, Audit]:
    """Stream samples by the model and by the guard, with failures in windows of the second half.

    Each of these windows fails with probability one half, at a random step, under both methods.

    Returns a frame and the guard's audit of its estimates. Columns: method, part, window,
    sensor, estimated, off: the error in units of ε. It has only windows with a failure and sensors
    with samples.
    """
    query, values, rng, frames = stream.query, stream.values, np.random.default_rng(seed), []
    w = query.window
    windows, names = len(values) // w, query.model.names
    failing = np.arange(windows // 2, windows)
    failing = failing[rng.random(len(failing)) < 0.5]
    steps = failing * w + rng.integers(w, size=len(failing))
    for method, recover in METHODS.items():
        # the guard learns while nothing fails
        first = 0 if recover == "guard" else windows // 2 * w
        log = SensorLog.write(scratch / recover / "log", values[first : windows * w], names)
        variant = replace(query, recover=recover, grid=query.grid if recover == "guard" else ())
        operator, begins = prepare(variant, log, scratch / recover), steps - first

        def fails(begin: int, end: int, begins: np.ndarray = begins) -> bool:
            return bool(((begin <= begins) & (begins < end)).any())

        list(fail_and_recover(operator, bare_read(log), fails))
        scores = score_results(operator.store.results(), values[first:], query)
        window = scores["window"] + first // w
        of = np.searchsorted(list(stream.parts.values()), window, side="right") - 1
        scores = scores.assign(method=method, part=np.array(list(stream.parts))[of], window=window)
        frames.append(scores[window.isin(failing)].dropna())
    audited = cast("Audit", replay_in_process(variant, log, scratch / "guard").audited)
    return pd.concat(frames, ignore_index=True), audited


def stream_table(pairs: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Share estimated, and share of these within ε, by method and part of the windows.

    `within` is the share of estimates within ε, and `low` … `high` is its interval by resampling
    whole windows, because sensors err together. `worst_sensor` is the share of the worst sensor.
    `exact` is the share of the other results that equal the truth up to rounding.
    """
    rows, rng = [], np.random.default_rng(seed)
    for (method, part), group in pairs.groupby(["method", "part"], sort=False):
        guessed = group[group["estimated"]].assign(good=lambda t: t["off"] <= 1)
        each = guessed.groupby("window")["good"].agg(["sum", "size"]).to_numpy()
        low, high = bootstrap_share(each[:, 0], each[:, 1], rng) if len(each) else (np.nan, np.nan)
        about = {"method": method, "part": part, "failures": group["window"].nunique()}
        shares = {"estimated": group["estimated"].mean(), "within": guessed["good"].mean()}
        worst = guessed.groupby("sensor")["good"].mean().min()
        exact = (group.loc[~group["estimated"], "off"] < 1e-6).mean()
        rows.append(
            about | shares | {"low": low, "high": high, "worst_sensor": worst, "exact": exact}
        )
    return pd.DataFrame(rows)
