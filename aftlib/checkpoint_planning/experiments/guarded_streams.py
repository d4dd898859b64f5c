"""The stream with a guard beside the one that trusts its model, failing at the same steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.experiments.guarding import GRID, LOOSE, WINDOW, wandering
from aftlib.checkpoint_planning.experiments.planned import planned_query, require_planned
from aftlib.checkpoint_planning.operator import ReplayQuery, bare_read, prepare
from aftlib.checkpoint_planning.pipeline import replay_in_process
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.core.gaussian import GaussianModel
from aftlib.core.intervals import CONFIDENCE, RESAMPLES
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.guard.audit import Audit

WAYS = {"Σ/L": "model", "guard": "guard"}
_DEAD = "the process that died"
_STRETCHES, _MOST_WINDOWS, _MOST_WORK = 6, 800, 2e10


@dataclass(frozen=True, eq=False)
class GuardedStream:
    """Samples (steps, n), the query with a guard that streams them, and their windows in parts.

    `parts` has the first window of each part, rising.
    """

    query: ReplayQuery
    values: np.ndarray
    parts: dict[str, int]


def generated_stream(
    windows: int,
    memory: float,
    epsilon_sd: float,
    delta: float,
    recovery_time: RecoveryTime,
    t_sla_ms: float,
    seed: int,
) -> GuardedStream:
    """The samples of `wandering`; the model is that of their first half.

    ε is so many standard deviations of the sensors' window means.
    """
    values = wandering(windows, memory, seed)
    first = values[: windows // 2 * WINDOW]
    spread = first.reshape(-1, WINDOW, values.shape[1]).mean(axis=1).std(axis=0).mean()
    asked = Requirement(float(epsilon_sd * spread), delta), recovery_time, t_sla_ms
    query = ReplayQuery(GaussianModel.fit(first), WINDOW, *asked, recover="guard", grid=GRID)
    parts = {"all go together": 0, "one goes its own way": int(LOOSE * windows)}
    return GuardedStream(query, values, parts)


def planned_stream(file: Path | str) -> GuardedStream:
    """A plan's data, in units of ε: their last 800 windows, fewer of many sensors.

    A window may have its checkpoints at six places, or at more where T_SLA asks for them.
    """
    plan = require_planned(file)
    query, n = planned_query(plan), len(plan.table.names)
    w, most = query.window, query.recovery_time.max_tuples(query.t_sla_ms)
    grid = tuple(range(0, w, max(1, min(-(-w // _STRETCHES), most // n))))
    work = len(grid) * (2 * n) ** 3  # of the guard, for a window
    windows = min(len(plan.table.values) // w, _MOST_WINDOWS, max(4, int(_MOST_WORK / work)))
    values = plan.table.values[len(plan.table.values) // w * w - windows * w :][: windows * w]
    guarded = replace(query, planned=None, recover="guard", grid=grid)
    return GuardedStream(guarded, values, {"all": 0})


def failing_streams(stream: GuardedStream, scratch: Path, seed: int) -> tuple[pd.DataFrame, Audit]:
    """Stream samples by the model and by the guard; processes die in windows of the second half.

    In every other window, by chance, one dies at a step of nobody's choosing: the interval of that
    step is on record as begun by another process, and is recovered as it would be then.

    Pairs: way, part, window, sensor, estimated, off: distance from the truth in units of ε; those
    windows only in which one died, and no sensor whose samples are all missing. Beside them what
    the guard's stream found of its own estimates afterwards.
    """
    query, values, rng, frames = stream.query, stream.values, np.random.default_rng(seed), []
    w = query.window
    windows, names = len(values) // w, query.model.names
    struck = np.arange(windows // 2, windows)
    struck = struck[rng.random(len(struck)) < 0.5]
    steps = struck * w + rng.integers(w, size=len(struck))
    samples = values[: windows * w].reshape(windows, w, -1)
    number = np.isfinite(samples).sum(axis=1)
    sums = np.where(number > 0, np.nansum(samples, axis=1), np.nan)
    truth = sums / np.maximum(number, 1) if query.query == "mean" else sums
    for way, recover in WAYS.items():
        # the guard learns while nothing fails
        first = 0 if recover == "guard" else windows // 2 * w
        log = SensorLog.write(scratch / recover / "log", values[first : windows * w], names)
        asked = replace(query, recover=recover, grid=query.grid if recover == "guard" else ())
        operator, read = prepare(asked, log, scratch / recover), bare_read(log)
        batch = 0
        while (checkpoint := operator.checkpoint).position < log.steps:
            begin, end = checkpoint.position, checkpoint.next_boundary
            if ((first + begin <= steps) & (steps < first + end)).any():
                operator.store.begin(batch, begin, _DEAD)
            operator.process(batch, read)
            batch += 1
        found = pd.DataFrame(map(vars, operator.store.results()))
        window, sensor = (first + found["start"]) // w, found["key"].map(names.index)
        off = np.abs(found["value"] - truth[window, sensor]) / query.requirement.epsilon
        of = np.searchsorted(list(stream.parts.values()), window, side="right") - 1
        cells = {"way": way, "part": np.array(list(stream.parts))[of], "window": window}
        cells |= {"sensor": sensor, "estimated": found["half_width"] > 0, "off": off}
        frames.append(pd.DataFrame(cells)[window.isin(struck)].dropna())
    audited = cast("Audit", replay_in_process(asked, log, scratch / "guard").audited)
    return pd.concat(frames, ignore_index=True), audited


def stream_table(pairs: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Of each way, in each part of the windows: what was estimated, and whether it was within ε.

    `within` is the share of the estimates, `low` … `high` its interval by resampling whole windows,
    for sensors err together; `worst_sensor` the share of the worst; `exact` the share of the others
    that are the truth, but for rounding.
    """
    rows, rng = [], np.random.default_rng(seed)
    for (way, part), group in pairs.groupby(["way", "part"], sort=False):
        guessed = group[group["estimated"]].assign(good=lambda t: t["off"] <= 1)
        each = guessed.groupby("window")["good"].agg(["sum", "size"]).to_numpy()
        low = high = np.nan
        if len(each):
            again = rng.multinomial(len(each), np.full(len(each), 1 / len(each)), RESAMPLES) @ each
            levels = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
            low, high = np.quantile(again[:, 0] / again[:, 1], levels)
        about = {"way": way, "part": part, "failures": group["window"].nunique()}
        shares = {"estimated": group["estimated"].mean(), "within": guessed["good"].mean()}
        worst = guessed.groupby("sensor")["good"].mean().min()
        exact = (group.loc[~group["estimated"], "off"] < 1e-6).mean()
        rows.append(
            about | shares | {"low": low, "high": high, "worst_sensor": worst, "exact": exact}
        )
    return pd.DataFrame(rows)
