"""D2 fig. 7: how often what a recovery restores is within ε of the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.experiments.cases import AXES, PlanningCase
from aftlib.core.generators import draw
from aftlib.core.intervals import bootstrap_interval, t_interval

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEASURES = ("worst", "single", "restored")
_SCHEMA = (
    "part long, row long, worst double, single double, restored double, "
    "document_low double, document_high double"
)
_EQUAL = 1e-9


def success_rates(spark: SparkSession, case: PlanningCase) -> pd.DataFrame:
    """Share of |restored − true| ≤ ε at every planned checkpoint of the grid (D2 fig. 7).

    Every window of every part is recovered from each checkpoint of the plan "proposed". Counted
    are the sensors that (12) takes its minimum over: those estimated with the largest variance.
    One Spark job; a task draws one part, sums it up and recovers it under all plans. Part 0 is the
    case's log, the document's experiment; the others are `replications` more.

    A row a planned interval: epsilon, delta, t_sla_ms, interval, time: τ_k, until: τ_{k+1}, end:
    the window's; sensors: |O|. worst: the window's result when all intervals after τ_k fail, as in
    (12); single: when this one fails; restored: the running aggregate at τ_{k+1} itself, which is
    promised nothing. Each is the mean over all parts, with a t interval …_low, …_high over parts
    and the probability …_expected that the plan gives. 1 where every sensor is replayed. document,
    document_low, document_high: `worst` in part 0 alone, with the interval from resampling disjoint
    windows (NaN where there is one only); windows: those of one part.
    """
    width, rows = case.windows.width, case.log.steps
    if case.replications < 1:
        raise ValueError(
            f"replications must be at least 1, got {case.replications!r}; "
            "an interval over parts needs two of them"
        )
    if rows < width:
        raise ValueError(
            f"log must hold a window of {width} steps, got {rows} steps; "
            "give more rows or a shorter window"
        )
    plans = [(p, case.plan(*p)) for p in case.points.itertuples(index=False, name=None)]
    tables = []
    for point, plan in plans:
        keeps, count = plan.requirement, range(len(plan.replay))
        restored = [float(keeps.reliability(plan.restored_variance(k)).min()) for k in count]
        intervals = {"interval": count, "time": plan.times[:-1], "until": plan.times[1:]}
        expected = pd.DataFrame(intervals).assign(
            **dict(zip(AXES, point, strict=True)),
            end=plan.times[-1],
            sensors=[len(replay.sensors) for replay in plan.replay],
            worst_expected=plan.worst_case_reliability.min(axis=1),
            single_expected=keeps.reliability(plan.single_failure_variance).min(axis=1),
            restored_expected=restored,
        )
        tables.append(expected)
    table = pd.concat(tables, ignore_index=True)
    asked = [replay.sensors for _, plan in plans for replay in plan.replay]
    spans = list(table[["epsilon", "time", "until"]].itertuples(index=False, name=None))
    starts = np.array(case.windows.ending_in(0, rows)) * case.windows.slide

    parts = 1 + case.replications
    tasks = min(parts, 4 * spark.sparkContext.defaultParallelism)
    work = _Recoveries(case, asked, spans, starts)
    found = spark.range(0, parts, 1, tasks).mapInPandas(work, _SCHEMA).toPandas()

    for measure in MEASURES:
        shares = found.pivot_table(index="row", columns="part", values=measure).to_numpy()
        ends = "", "_low", "_high"
        columns = zip(ends, t_interval(shares), strict=True)
        table = table.assign(**{f"{measure}{end}": column for end, column in columns})
    first = found[found["part"] == 0].sort_values("row")
    names = {"document": "worst"} | {c: c for c in ("document_low", "document_high")}
    shown = {to: first[column].to_numpy() for to, column in names.items()}
    return table.assign(**shown, windows=len(starts))


@dataclass(frozen=True)
class _Recoveries:
    """What a task of the grid does: draw a part, recover all its windows under all plans."""

    case: PlanningCase
    asked: Sequence[tuple[int, ...]]
    spans: Sequence[tuple[float, int, int]]
    starts: np.ndarray

    def __call__(self, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        model, estimators = self.case.model, {}
        for sensors in set(self.asked):
            variance = model.posterior_variance(sensors)
            worst = variance >= variance.max() * (1 - _EQUAL)
            hardest = np.flatnonzero(worst & (variance > 0))
            estimators[sensors] = hardest, model.gain(sensors, hardest)
        for frame in frames:
            for part in frame["id"]:
                yield self._part(int(part), estimators)

    def _part(self, part: int, estimators: dict) -> pd.DataFrame:
        case, starts = self.case, self.starts
        rows, width, slide = case.log.steps, case.windows.width, case.windows.slide
        first = part * rows
        samples = draw(case.model, rows, case.seed, first) if part else case.log.read(None, 0, rows)
        # sums of the first 0 … rows steps: any interval is a difference
        totals = np.zeros((rows + 1, case.model.size))
        np.cumsum(samples - case.model.mean, axis=0, out=totals[1:])

        shares = np.ones((len(self.asked), len(MEASURES), len(starts)))
        for share, sensors, (epsilon, begin, end) in zip(
            shares, self.asked, self.spans, strict=True
        ):
            hardest, gain = estimators[sensors]
            rest, one = (totals[starts + u] - totals[starts + begin] for u in (width, end))
            for i, (sums, steps) in enumerate(((rest, width), (one, width), (one, end))):
                error = sums[:, hardest] - sums[:, sensors] @ gain.T
                scale = case.windows.aggregation.divisor(steps)
                if hardest.size:  # else none is estimated, and nothing can be wrong
                    share[i] = (np.abs(error) / scale <= epsilon).mean(axis=1)

        low = high = np.full(len(shares), np.nan)
        block = -(-width // slide)
        if part == 0 and len(starts) >= 2 * block:
            low, high = bootstrap_interval(shares[:, 0], block, np.random.default_rng(case.seed))
        found = dict(zip(MEASURES, shares.mean(axis=2).T, strict=True))
        interval = {"document_low": low, "document_high": high}
        return pd.DataFrame({"part": part, "row": np.arange(len(shares))} | found | interval)
