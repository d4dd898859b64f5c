"""D2's data, the checkpoints of its plans (fig. 6) and the success of its recoveries (fig. 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning import plan
from aftlib.checkpoint_planning.plan import CheckpointPlan, plan_checkpoints
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.core.checks import require_number
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import draw
from aftlib.core.intervals import bootstrap_interval, t_interval
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.sweep import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AXES = ["epsilon", "delta", "t_sla_ms"]
METHODS = (*plan.METHODS[::-1], plan.ADAPTIVE)
CHARGINGS = (
    "every recovery pays T_est",
    "all but exactly-once pay T_est",
)
"""The recoveries whose time includes T_est, by interpretation; the document does not say."""
MEASURES = ("worst", "single", "restored", "every")
_EQUAL = 1e-9


@dataclass(frozen=True)
class PlanningCase:
    """Sensors with their samples and the grid (ε, δ, T_SLA) to plan for."""

    model: GaussianModel  # of the n sensors' values at one step
    log: SensorLog  # the document's experiment: the first rows of the sample that `seed` names
    windows: Windows  # all follow the same plan
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    t_slas: tuple[float, ...]  # ms
    recovery_time: RecoveryTime  # that the plans assume
    replications: int  # further segments of the sample, each as long as the log
    seed: int  # of the sample and of resampling
    estimate_ms: float = 0.0  # T_est, which is included in the recovery time's fixed part

    def plan(
        self,
        epsilon: float,
        delta: float,
        t_sla_ms: float,
        method: str = "proposed",
        charging: str = CHARGINGS[0],
    ) -> CheckpointPlan:
        """Plan of a window at one point of the grid."""
        apart = (charging, method) == (CHARGINGS[1], "exactly-once")
        return plan_checkpoints(
            self.model,
            self.windows.width,
            Requirement(epsilon, delta),
            self.estimate_apart if apart else self.recovery_time,
            t_sla_ms,
            method=method,
            query=self.windows.query,
        )

    @property
    def estimate_apart(self) -> RecoveryTime:
        """The case's `RecoveryTime`, with T_est charged to partial replays only."""
        fixed_ms = self.recovery_time.fixed_ms - self.estimate_ms
        return replace(self.recovery_time, fixed_ms=fixed_ms, estimate_ms=self.estimate_ms)

    @property
    def points(self) -> list[tuple[float, float, float]]:
        """The grid of (ε, δ, T_SLA)."""
        return list(product(self.epsilons, self.deltas, self.t_slas))


def checkpoint_counts(spark: SparkSession, case: PlanningCase) -> pd.DataFrame:
    """Checkpoints strictly inside a window for each method over the grid (D2 fig. 6).

    Columns: charging: one of `CHARGINGS`, method, epsilon, delta, t_sla_ms, checkpoints, and
    sensors: |O| at the window's beginning. ValueError when the shortest T_SLA does not suffice to
    replay all sensors over one step.
    """
    # the longest of all recoveries over one step: if T_SLA permits it, T_SLA permits all others
    case.plan(case.epsilons[0], case.deltas[0], min(case.t_slas), "exactly-once")

    def count(point: tuple[str, str, tuple[float, float, float]]) -> tuple:
        charging, method, cell = point
        schedule = case.plan(*cell, method, charging=charging)
        return charging, method, *cell, len(schedule.checkpoints), len(schedule.replay[0].sensors)

    rows = sweep(spark, count, list(product(CHARGINGS, METHODS, case.points)))
    frame = pd.DataFrame(rows, columns=["charging", "method", *AXES, "checkpoints", "sensors"])
    return frame.sort_values(["charging", "method", *AXES], ignore_index=True)


def counts_table(counts: pd.DataFrame, delta: float) -> pd.DataFrame:
    """Counts of all `METHODS` as text, one row per T_SLA and one column per ε.

    ValueError when the counts have no such δ.
    """
    chosen = counts[np.isclose(counts["delta"], delta)]
    if chosen.empty:
        known = ", ".join(f"{d:g}" for d in sorted(counts["delta"].unique()))
        raise ValueError(f"delta must be one of {known}, got {delta!r}")
    wide = chosen.pivot_table(index=["t_sla_ms", "epsilon"], columns="method", values="checkpoints")
    cells = wide[list(METHODS)].astype(int).astype(str).agg(" / ".join, axis=1)
    return cells.unstack("epsilon")


def success_rates(spark: SparkSession, case: PlanningCase) -> pd.DataFrame:
    """Share of |restored − true| ≤ ε at every planned checkpoint of the grid (D2 fig. 7).

    Every window of every part is recovered from each checkpoint of the plan "proposed". Only the
    sensors with the largest variance are counted, because they give the minimum in (12). Part 0 is
    the case's log, the document's experiment; `replications` further parts are drawn.

    One row per planned interval. Its columns are epsilon, delta, t_sla_ms, interval (its number),
    time (τ_k), until (τ_{k+1}), end (the window's end) and sensors (|O|). Then come shares. worst:
    the window's result when all intervals after τ_k fail, as in (12); single: when only this
    interval fails; restored: the running aggregate at τ_{k+1} itself, for which nothing is
    guaranteed; every: as worst, of all n sensors. Each share is the mean over all parts, with a t
    interval …_low, …_high over parts and the probability …_expected that the plan gives. Shares and
    probabilities are 1 where every sensor is replayed. document, document_low, document_high:
    `worst` in part 0 alone, with the interval from resampling disjoint windows (NaN where there is
    only one); windows: their number in one part.
    """
    width, rows = case.windows.width, case.log.steps
    require_number("replications", case.replications, least=1)  # an interval needs two parts
    if rows < width:
        raise ValueError(
            f"log must hold a window of {width} steps, got {rows} steps; "
            "give more rows or a shorter window"
        )
    plans = {point: case.plan(*point) for point in case.points}
    table = pd.concat([_expected(*pair) for pair in plans.items()], ignore_index=True)
    replayed = [replay.sensors for schedule in plans.values() for replay in schedule.replay]
    spans = list(table[["epsilon", "time", "until"]].itertuples(index=False, name=None))
    parts = _Parts(case, replayed, spans)
    shares = np.stack(sweep(spark, parts, range(1 + case.replications)))
    for i, measure in enumerate(MEASURES):
        bounds = zip(("", "_low", "_high"), t_interval(shares[:, :, i].T), strict=True)
        table = table.assign(**{f"{measure}{end}": column for end, column in bounds})
    document = dict(zip(("", "_low", "_high"), shares[0, :, [0, -2, -1]], strict=True))
    table = table.assign(**{f"document{end}": column for end, column in document.items()})
    return table.assign(windows=len(parts.starts))


def _expected(point: tuple[float, float, float], schedule: CheckpointPlan) -> pd.DataFrame:
    reliability, count = schedule.requirement.reliability, range(len(schedule.replay))
    restored = [float(reliability(schedule.restored_variance(k)).min()) for k in count]
    return pd.DataFrame(
        {
            "interval": count,
            "time": schedule.times[:-1],
            "until": schedule.times[1:],
            **dict(zip(AXES, point, strict=True)),
            "end": schedule.times[-1],
            "sensors": [len(replay.sensors) for replay in schedule.replay],
            "worst_expected": schedule.worst_case_reliability.min(axis=1),
            "single_expected": reliability(schedule.single_failure_variance).min(axis=1),
            "restored_expected": restored,
            "every_expected": schedule.worst_case_reliability.mean(axis=1),
        }
    )


@dataclass(frozen=True)
class _Parts:
    """Function that a task runs: draw a part, and recover all its windows under all plans."""

    case: PlanningCase
    replayed: Sequence[tuple[int, ...]]
    spans: Sequence[tuple[float, int, int]]

    @property
    def starts(self) -> np.ndarray:
        """First steps of the windows of a part."""
        windows = self.case.windows
        return np.array(windows.ending_in(0, self.case.log.steps)) * windows.slide

    @cached_property
    def estimators(self) -> dict[tuple[int, ...], tuple[np.ndarray, int, np.ndarray]]:
        """For each replay set: the sensors outside it, the number of hardest ones, and the gain.

        The hardest sensors, which have the largest variance, come first.
        """
        model, estimators = self.case.model, {}
        for sensors in set(self.replayed):
            variance = model.posterior_variance(sensors)
            worst = variance >= variance.max() * (1 - _EQUAL)
            hardest = np.flatnonzero(worst & (variance > 0))
            others = np.flatnonzero(~worst & (variance > 0))
            estimated = np.concatenate([hardest, others])
            estimators[sensors] = estimated, len(hardest), model.gain(sensors, estimated)
        return estimators

    def __call__(self, part: int) -> np.ndarray:
        """Shares of `MEASURES`, and bounds of the first in part 0, shape (intervals, 6)."""
        case, starts = self.case, self.starts
        rows, width, slide = case.log.steps, case.windows.width, case.windows.slide
        first = part * rows
        samples = draw(case.model, rows, case.seed, first) if part else case.log.read(None, 0, rows)
        # sums of the first 0 … rows steps: any interval is a difference
        totals = np.zeros((rows + 1, case.model.size))
        np.cumsum(samples - case.model.mean, axis=0, out=totals[1:])

        shares = np.ones((len(self.replayed), len(MEASURES), len(starts)))
        for share, sensors, (epsilon, begin, end) in zip(
            shares, self.replayed, self.spans, strict=True
        ):
            estimated, hardest, gain = self.estimators[sensors]
            if not hardest:  # none is estimated, and nothing can be wrong
                continue
            rest, one = (totals[starts + u] - totals[starts + begin] for u in (width, end))
            for i, (sums, steps) in enumerate(((rest, width), (one, width), (one, end))):
                error = sums[:, estimated] - sums[:, sensors] @ gain.T
                within = np.abs(error) / case.windows.aggregation.divisor(steps) <= epsilon
                share[i] = within[:, :hardest].mean(axis=1)
                if i == 0:  # replayed sensors are exact
                    share[-1] = 1 - (~within).sum(axis=1) / case.model.size

        bounds = np.full((2, len(shares)), np.nan)
        block = -(-width // slide)
        if part == 0 and len(starts) >= 2 * block:
            rng = np.random.default_rng(case.seed)
            bounds = np.array(bootstrap_interval(shares[:, 0], block, rng))
        return np.column_stack([shares.mean(axis=2), *bounds])
