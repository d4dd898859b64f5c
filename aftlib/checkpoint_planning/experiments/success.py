"""D2 fig. 7: how often what a recovery restores is within ε of the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from aftlib.checkpoint_planning.experiments.cases import Case
from aftlib.checkpoint_planning.plan import CheckpointPlan
from aftlib.core.generators import draw
from aftlib.core.intervals import bootstrap_interval, t_interval

MEASURES = ("worst", "single", "restored")
_SCHEMA = (
    "part long, row long, worst double, single double, restored double, "
    "document_low double, document_high double"
)
_EQUAL = 1e-9


def success_rates(spark: SparkSession, case: Case) -> pd.DataFrame:
    """Share of |restored − true| ≤ ε at every planned checkpoint of the grid (D2 fig. 7).

    Every window of every part is recovered from each checkpoint of the plan "proposed". Counted
    are the sensors that (12) takes its minimum over: those estimated with the largest variance.

    Parameters
    ----------
    spark : SparkSession
        One job; a task draws one part, sums it up and recovers it under all plans.
    case : Case
        Part 0 is its log, the document's experiment; the others are `replications` more.

    Returns
    -------
    DataFrame
        One row a planned interval: epsilon, delta, t_sla_ms, interval, time: τ_k, until: τ_{k+1},
        end: the window's; sensors: |O|.

        worst: the window's result when all intervals after τ_k fail, as in (12); single: when this
        one fails; restored: the running aggregate at τ_{k+1} itself, which is promised nothing.
        Each is the mean over all parts, with a t interval …_low, …_high over parts and the
        probability …_expected that the plan gives. 1 where every sensor is replayed.

        document, document_low, document_high: `worst` in part 0 alone, with the interval from
        resampling disjoint windows (NaN where there is one only); windows: those of one part.

    Raises
    ------
    ValueError
        When the case has no replications or its log holds no window.
    """
    _check(case)
    plans = [(p, case.plan(*p)) for p in case.points.itertuples(index=False, name=None)]
    table = pd.concat([_planned(point, plan) for point, plan in plans], ignore_index=True)
    asked = [replay.sensors for _, plan in plans for replay in plan.replay]
    spans = table[["epsilon", "time", "until"]].to_numpy()
    parts = 1 + case.replications
    tasks = min(parts, 4 * spark.sparkContext.defaultParallelism)
    work = _Recoveries(case, asked, spans)
    found = spark.range(0, parts, 1, tasks).mapInPandas(work, _SCHEMA).toPandas()
    return table.assign(**_summary(found), windows=len(work.starts))


@dataclass(frozen=True)
class _Recoveries:
    """What a task of the grid does; pickled to the tasks."""

    case: Case
    asked: Sequence[tuple[int, ...]]
    spans: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """First steps of a part's windows."""
        windows, rows = self.case.windows, self.case.log.steps
        return np.array(windows.ending_in(0, rows)) * windows.slide

    def __call__(self, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        estimators = {sensors: _Estimator(self.case, sensors) for sensors in set(self.asked)}
        for frame in frames:
            for part in frame["id"]:
                yield self._part(int(part), estimators)

    def _part(self, part: int, estimators: dict) -> pd.DataFrame:
        totals = _running_totals(self._samples(part) - self.case.model.mean)
        shares = np.array(
            [
                self._shares(totals, estimators[sensors], epsilon, int(begin), int(end))
                for sensors, (epsilon, begin, end) in zip(self.asked, self.spans, strict=True)
            ]
        )
        found = dict(zip(MEASURES, shares.mean(axis=2).T, strict=True))
        low, high = self._resampled(shares[:, 0]) if part == 0 else (np.nan, np.nan)
        interval = {"document_low": low, "document_high": high}
        return pd.DataFrame({"part": part, "row": np.arange(len(shares))} | found | interval)

    def _resampled(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Intervals from resampling disjoint windows; NaN when there is one only."""
        windows, rng = self.case.windows, np.random.default_rng(self.case.seed)
        block = -(-windows.width // windows.slide)
        if len(self.starts) < 2 * block:
            return np.full(len(shares), np.nan), np.full(len(shares), np.nan)
        return bootstrap_interval(shares, block, rng)

    def _samples(self, part: int) -> np.ndarray:
        rows = self.case.log.steps
        if part == 0:
            return self.case.log.read(None, 0, rows)
        return draw(self.case.model, rows, self.case.seed, first=part * rows)

    def _shares(
        self, totals: np.ndarray, estimator: _Estimator, epsilon: float, begin: int, end: int
    ) -> np.ndarray:
        """Share of sensors within ε in each window, shape (measures, windows)."""
        width, origin = self.case.windows.width, totals[self.starts + begin]
        rest = estimator.errors(totals[self.starts + width] - origin)
        one = estimator.errors(totals[self.starts + end] - origin)
        scale = (width, width, end) if self.case.windows.query == "mean" else (1, 1, 1)
        off = zip((rest, one, one), scale, strict=True)
        return np.array([_share(np.abs(error) / s <= epsilon) for error, s in off])


class _Estimator:
    """Errors of the sensors that are estimated worst when O is replayed."""

    def __init__(self, case: Case, sensors: tuple[int, ...]) -> None:
        variance = case.model.posterior_variance(sensors)
        worst = variance >= variance.max() * (1 - _EQUAL)
        self.observed = list(sensors)
        self.hardest = np.flatnonzero(worst & (variance > 0))
        self.gain = case.model.gain(self.observed, self.hardest)

    def errors(self, sums: np.ndarray) -> np.ndarray:
        """Truth minus estimate, shape (windows, hardest); `sums` are about the mean."""
        return np.asarray(sums[:, self.hardest] - sums[:, self.observed] @ self.gain.T)


def _share(within: np.ndarray) -> np.ndarray:
    """Share of sensors in each window; 1 when none is estimated, for then nothing can be wrong."""
    return within.mean(axis=1) if within.shape[1] else np.ones(len(within))


def _running_totals(values: np.ndarray) -> np.ndarray:
    """Sums of the first 0 … rows steps, shape (rows + 1, n): any interval is a difference."""
    totals = np.zeros((len(values) + 1, values.shape[1]))
    np.cumsum(values, axis=0, out=totals[1:])
    return totals


def _planned(point: tuple[float, ...], plan: CheckpointPlan) -> pd.DataFrame:
    """Intervals of a plan with what is expected of them."""
    keeps, count = plan.requirement, range(len(plan.replay))
    single = keeps.reliability(plan.single_failure_variance).min(axis=1)
    restored = [float(keeps.reliability(plan.restored_variance(k)).min()) for k in count]
    return pd.DataFrame(
        {
            **dict(zip(("epsilon", "delta", "t_sla_ms"), point, strict=True)),
            "interval": count,
            "time": plan.times[:-1],
            "until": plan.times[1:],
            "end": plan.times[-1],
            "sensors": [len(replay.sensors) for replay in plan.replay],
            "worst_expected": plan.worst_case_reliability.min(axis=1),
            "single_expected": single,
            "restored_expected": restored,
        }
    )


def _summary(found: pd.DataFrame) -> dict[str, np.ndarray]:
    columns: dict[str, np.ndarray] = {}
    for measure in MEASURES:
        shares = found.pivot_table(index="row", columns="part", values=measure).to_numpy()
        centre, low, high = t_interval(shares)
        columns |= {measure: centre, f"{measure}_low": low, f"{measure}_high": high}
    first = found[found["part"] == 0].sort_values("row")
    names = {"worst": "document"} | {c: c for c in ("document_low", "document_high")}
    return columns | {to: first[column].to_numpy() for column, to in names.items()}


def _check(case: Case) -> None:
    if case.replications < 1:
        raise ValueError(
            f"replications must be at least 1, got {case.replications!r}; "
            "an interval over parts needs two of them"
        )
    if case.log.steps < case.windows.width:
        raise ValueError(
            f"log must hold a window of {case.windows.width} steps, got {case.log.steps} steps; "
            "give more rows or a shorter window"
        )
