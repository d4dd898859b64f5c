"""What becomes of D2's promise where steps depend on those before them, and the guard's answer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
from scipy.signal import lfilter

from aftlib.checkpoint_planning.guarded_plan import plan_guarded, replay_guard
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.replay import select_replay
from aftlib.core.checks import require_number
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.guard.accounts import slack

SENSORS, WINDOW, GRID = 12, 30, tuple(range(0, 30, 5))
"""Of the generated example: n, w, and the times τ at which a checkpoint may be taken."""
LOOSE = 0.75
"""Share of the example after which its last sensor goes its own way."""
LEAST_DECLARED = 100
"""Windows from which on a sensor's own share says something."""


def require_guarded(epsilon: float, windows: int, budget: int) -> None:
    """Refuse what the example cannot be guarded with; ValueError names the parameter, guard_…."""
    require_number("guard_epsilon", epsilon, above=0, below=1e50)
    require_number("guard_windows", windows, least=100, whole=True)
    require_number("guard_budget", budget, least=SENSORS * GRID[1], whole=True)


def wandering(windows: int, memory: float, seed: int) -> np.ndarray:
    """Samples of sensors that go together, correlated by memory^lag in time; (steps, n).

    Each is √.97 of a common and √.03 of a part of its own, all AR(1) of variance 1.
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
    """Lose every window of the second half after each τ of the grid, as D2 plans and as guarded.

    D2's own plan takes steps as independent, of the distribution of the first half's; the guard
    learns all the time. ε is so many standard deviations of the first half's window means.

    Promises: way: "Σ/L" or "guard", tau, window, sensor, estimated, wrong: the window's mean is
    more than ε off when only O is read from τ on; of sensors in O, estimated from the others of O.
    Plans: window, checkpoints, sensors and tuples: the most that a failure makes replay, total_ms.
    """
    n, rounds = values.shape[1], len(values) // window
    x = values[: rounds * window].reshape(rounds, window, n)
    half, asked = rounds // 2, Requirement(1, delta)
    limit = epsilon_sd * x[:half].mean(axis=1).std(axis=0)
    model = GaussianModel.fit(x[:half].reshape(-1, n))
    guard = replay_guard(window, grid, limit, delta, n, seasons)
    guard.update(x[:half])

    said, estimate = np.zeros((2, rounds - half, len(grid), n))
    plans = []
    for t, samples in enumerate(x[half:]):
        plan = plan_guarded(guard, recovery_time, t_sla_ms)
        most = {"sensors": max(map(len, plan.replay)), "tuples": max(plan.tuples)}
        row = {"window": half + t, "checkpoints": len(plan.times) - 2, **most}
        plans.append(row | {"total_ms": recovery_time(most["tuples"])})
        told = guard.update(samples)
        said[t], estimate[t] = told.said[0], told.estimate[0]

    index = [range(half, rounds), range(n)]
    found = []
    for k, tau in enumerate(grid):
        part, steps = x[half:, tau:].mean(axis=1), window - tau
        replay = select_replay(model, asked.max_variance * (limit * window) ** 2 / steps)
        o, others = list(replay.sensors), replay.estimated
        plain, means = part.copy(), model.mean
        plain[:, others] = means[others] + (part[:, o] - means[o]) @ replay.gain().T
        chosen = np.broadcast_to(~np.isin(np.arange(n), o), part.shape)
        ways = {"Σ/L": (chosen, plain), "guard": (said[:, k] == 2, estimate[:, k])}
        for way, (estimated, guess) in ways.items():
            wrong = np.abs(guess - part) * steps / window > limit
            about = pd.MultiIndex.from_product(index, names=["window", "sensor"]).to_frame(False)
            about = about.assign(estimated=estimated.ravel(), wrong=wrong.ravel())
            found.append(about.assign(way=way, tau=tau))
    return pd.concat(found, ignore_index=True), pd.DataFrame(plans)


def promise_table(promises: pd.DataFrame, delta: float) -> pd.DataFrame:
    """Of each way and τ: share estimated, share of those within ε, of the worst sensor, slack.

    `windows` is the median number of estimated ones a sensor, `slack` what the theorem allows
    beyond δ in so many, as a share of them; nothing is proved of "Σ/L".
    """
    rows = []
    ways, taus = promises["way"].unique(), promises["tau"].unique()
    for way, tau in product(ways, taus):
        chosen = promises[(promises["way"] == way) & (promises["tau"] == tau)]
        each = chosen[chosen["estimated"]].groupby("sensor")["wrong"].agg(["mean", "size"])
        number = each["size"].median() if len(each) else 0
        allowed = slack(int(chosen["window"].max()) + 1, delta) / number if number else np.nan
        within = 1 - chosen.loc[chosen["estimated"], "wrong"].mean()
        worst = 1 - each.loc[each["size"] >= LEAST_DECLARED, "mean"].max()
        shares = {"estimated": chosen["estimated"].mean(), "within": within, "worst_sensor": worst}
        kept = {"windows": number, "slack": allowed if way == "guard" else np.nan}
        rows.append({"way": way, "tau": tau, **shares, **kept})
    return pd.DataFrame(rows)
