"""D1's grid: estimable workers and error rates over (ε, m), figs 10–13."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.approximately_once.assignment import (
    Assignment,
    assign_greedy,
    assign_packed,
    assign_random,
    assign_spread,
)
from aftlib.approximately_once.best import assign_best
from aftlib.approximately_once.deaths import die_together
from aftlib.approximately_once.experiments.cases import SensorCase
from aftlib.core.gaussian import GaussianModel
from aftlib.core.intervals import bootstrap_interval, t_interval
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.sweep import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# any number of workers: where m does not divide n, their sizes differ by one
ASSIGN: Mapping[str, Callable[..., Assignment]] = {
    "greedy": lambda *asked, rng: assign_greedy(*asked, uneven=True),
    "h-best": lambda *asked, rng: assign_spread(*asked, uneven=True),
    "h-worst": lambda *asked, rng: assign_packed(*asked, uneven=True),
    "random": lambda model, m, asked, rng: assign_random(model, m, asked, rng, uneven=True),
}
METHODS = tuple(ASSIGN)
_COUNTS = ("method", "workers", "epsilon", "estimable")


def grid(
    spark: SparkSession, case: SensorCase, reading: str, delta: float, seed: int, draws: int = 5
) -> pd.DataFrame:
    """Estimable workers and error rates over (ε, m) for each way to assign (D1 figs 10–13).

    One Spark job, in which a task takes some (method, m). The case's log is cut into
    1 + `replications` equal parts, the first of which is the document's experiment. `seed` is of
    the `draws` random assignments a point and of resampling.

    method, workers, epsilon, draw, estimable; windows: those counted, which miss no sample; error,
    error_low, error_high: rate of (9) in the first part with its bootstrap interval over whole
    windows; pooled, pooled_low, pooled_high: mean over all parts with a t interval over parts;
    error_all, pooled_all: the same over all keys, estimable or not; expected: the rate that the
    model foresees for the keys counted. NaN where no key counts.
    """
    model, windows = case.readings[reading].model, case.readings[reading].windows
    parts, part = 1 + case.replications, case.log.steps // (1 + case.replications)
    if case.replications < 1:
        raise ValueError(f"replications must be at least 1, got {case.replications!r}")
    if part < windows.width:
        raise ValueError(
            f"log must hold a window of {windows.width} steps in each of {parts} parts, got "
            f"{case.log.steps} steps; give more rows or fewer replications"
        )
    block = case.block or -(-windows.width // windows.slide)
    points = GridPoints(model, case.log, windows, case.epsilons, delta, part, parts, seed, block)
    often = {method: range(draws if method == "random" else 1) for method in METHODS}
    chosen = [(method, m, d) for m in case.workers for method in METHODS for d in often[method]]
    frame = pd.concat(sweep(spark, points, chosen))
    return frame.sort_values(["method", "workers", "epsilon", "draw"], ignore_index=True)


@dataclass(frozen=True)
class GridPoints:
    """What a task of the grid does at each point; pickled to the tasks."""

    model: GaussianModel
    log: SensorLog
    windows: Windows
    epsilons: tuple[float, ...]
    delta: float
    part: int
    parts: int
    seed: int
    block: int

    @cached_property
    def scaled(self) -> tuple[np.ndarray, np.ndarray]:
        """Λ (x − μ) of the whole windows of all parts, (n, windows), and where each part begins."""
        due = self.windows.ending_in(0, self.part)
        samples = self.log.read(None, 0, self.part * self.parts)
        whole = []
        for values in samples.reshape(self.parts, self.part, -1):
            aggregates, count = self.windows.aggregate(values, 0, due)
            whole.append(aggregates[(count == self.windows.width).all(axis=1)])
        kept = [part for part in whole if len(part)]
        edges = np.cumsum([0, *map(len, kept)])
        return self.model.precision @ (np.concatenate(kept).T - self.model.mean[:, None]), edges

    def __call__(self, point: tuple[str, int, int]) -> pd.DataFrame:
        """Row of every ε at one (method, m, draw); equal assignments share their residuals."""
        method, workers, draw = point
        scaled, edges = self.scaled
        off, variance, last = np.empty(0), np.empty(self.model.size), None
        counted, everyone, estimable, expected = [], [], [], []
        for epsilon in self.epsilons:
            requirement = Requirement(epsilon, self.delta)
            rng = np.random.default_rng([self.seed, draw])
            assignment = ASSIGN[method](self.model, workers, requirement, rng=rng)
            if assignment.workers != last:
                off, last = np.abs(residuals(self.model, assignment, scaled)), assignment.workers
                for keys in map(list, last):
                    variance[keys] = self.model.block_variance(keys)
            wrong = (off > epsilon).view(np.uint8)
            counted.append(_share(wrong[assignment.estimable_keys]))
            everyone.append(_share(wrong))
            estimable.append(assignment.estimable.sum())
            beyond = 1 - requirement.reliability(variance[assignment.estimable_keys])
            expected.append(beyond.mean() if len(beyond) else np.nan)

        shares, all_shares = np.array(counted), np.array(everyone)
        first = shares[:, : edges[1]]
        low, high = bootstrap_interval(first, self.block, np.random.default_rng(self.seed))
        means = np.add.reduceat(shares, edges[:-1], axis=1) / np.diff(edges)
        pooled, pooled_low, pooled_high = t_interval(means)
        return pd.DataFrame(
            {
                "method": method,
                "workers": workers,
                "epsilon": self.epsilons,
                "draw": draw,
                "estimable": estimable,
                "windows": edges[-1],
                "error": first.mean(axis=1),
                "error_low": low,
                "error_high": high,
                "pooled": pooled,
                "pooled_low": pooled_low,
                "pooled_high": pooled_high,
                "error_all": all_shares[:, : edges[1]].mean(axis=1),
                "pooled_all": all_shares.mean(axis=1),
                "expected": expected,
            }
        )


def residuals(model: GaussianModel, assignment: Assignment, scaled: np.ndarray) -> np.ndarray:
    """Truth minus estimate of every key from the other workers' keys, shape (n, windows).

    x_A − E[x_A | rest] = (Λ_AA)⁻¹ (Λ (x − μ))_A, and `scaled` is Λ (x − μ).
    """
    found = np.empty_like(scaled)
    for keys in map(list, assignment.workers):
        found[keys] = np.linalg.inv(model.precision[np.ix_(keys, keys)]) @ scaled[keys]
    return found


def _share(wrong: np.ndarray) -> np.ndarray:
    """Share of wrong keys in each window, shape (windows,); NaN when no key counts."""
    if not len(wrong):
        return np.full(wrong.shape[1], np.nan)
    return wrong.sum(axis=0, dtype=np.uint32) / len(wrong)


def coverage(grids: Mapping[str, pd.DataFrame], method: str, workers: int) -> pd.DataFrame:
    """Share of estimates within ε of estimable keys by reading; only points where a key counts."""
    rows = []
    for reading, frame in grids.items():
        chosen = frame[(frame["method"] == method) & (frame["workers"] == workers)]
        shares = {"share": "pooled", "low": "pooled_high", "high": "pooled_low"}
        named = {name: (1 - chosen[column]).clip(0, 1) for name, column in shares.items()}
        kept = chosen[["epsilon", "estimable", "windows"]].assign(reading=reading, **named)
        rows.append(kept.dropna())
    columns = ["reading", "epsilon", "estimable", "share", "low", "high", "windows"]
    return pd.concat(rows, ignore_index=True)[columns]


def bests(spark: SparkSession, case: SensorCase, reading: str, delta: float) -> pd.DataFrame:
    """Estimable workers of each way to assign, of the best one, and the bound on all of them.

    method: "greedy", "h-best", "best" or "bound"; workers, epsilon, estimable.
    """
    model = case.readings[reading].model

    def count(m: int) -> pd.DataFrame:
        rows = []
        for epsilon in case.epsilons:
            asked = model, m, Requirement(epsilon, delta)
            found = {method: ASSIGN[method](*asked, rng=None) for method in ("greedy", "h-best")}
            found["best"] = best = assign_best(*asked, uneven=True)
            rows += [(method, m, epsilon, int(a.estimable.sum())) for method, a in found.items()]
            rows.append(("bound", m, epsilon, best.bound))
        return pd.DataFrame(rows, columns=_COUNTS)

    return pd.concat(sweep(spark, count, case.workers), ignore_index=True)


def deaths_survived(
    spark: SparkSession, case: SensorCase, reading: str, delta: float, most: int = 3
) -> pd.DataFrame:
    """Workers of h-best that stay estimable whichever f of them die at once, for f = 1 … `most`.

    method: "1 dies", "2 die" …; workers, epsilon, estimable: as many as are proven to be.
    """
    model = case.readings[reading].model

    def count(m: int) -> pd.DataFrame:
        requirements = [Requirement(epsilon, delta) for epsilon in case.epsilons]
        assignment, rows = assign_spread(model, m, requirements[0], uneven=True), []
        for f in range(1, min(m, most) + 1):
            deaths = die_together(model, assignment, f)
            for asked in requirements:
                kept = int(asked.is_met_by(deaths.reliability(asked)).sum())
                rows.append((f"{f} die{'s' if f == 1 else ''}", m, asked.epsilon, kept))
        return pd.DataFrame(rows, columns=_COUNTS)

    return pd.concat(sweep(spark, count, case.workers), ignore_index=True)


def smallest_epsilons(model: GaussianModel, workers: Sequence[int], delta: float) -> pd.DataFrame:
    """Smallest ε, sensor units, at which all m workers are estimable by h-best and h-worst."""
    one = Requirement(1.0, delta)
    columns = {}
    for name, assign in (("h-best", assign_spread), ("h-worst", assign_packed)):
        assigned = [assign(model, m, one, uneven=True).workers for m in workers]
        worst = [max(model.block_variance(w).max() for w in ws) for ws in assigned]
        columns[name] = one.half_width(worst)
    return pd.DataFrame(columns, index=pd.Index(workers, name="m"))
