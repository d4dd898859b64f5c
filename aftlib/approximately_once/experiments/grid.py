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
from aftlib.approximately_once.crashes import crash_together
from aftlib.approximately_once.experiments.cases import ROWS, SensorCase
from aftlib.core.extremes import WindowExtremes
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


def crashes_survived(
    spark: SparkSession, case: SensorCase, reading: str, delta: float, most: int = 3
) -> pd.DataFrame:
    """Workers of h-best that stay estimable whichever f of them crash at once, for f = 1 … `most`.

    method: "1 crash", "2 crashes" …; workers, epsilon, estimable: as many as are proven to be.
    """
    model = case.readings[reading].model

    def count(m: int) -> pd.DataFrame:
        requirements = [Requirement(epsilon, delta) for epsilon in case.epsilons]
        assignment, rows = assign_spread(model, m, requirements[0], uneven=True), []
        for f in range(1, min(m, most) + 1):
            crashes = crash_together(model, assignment, f)
            for asked in requirements:
                kept = int(asked.is_met_by(crashes.reliability(asked)).sum())
                rows.append((f"{f} crash{'es' if f > 1 else ''}", m, asked.epsilon, kept))
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


STEPS = 30_000
"""Steps of the log, at most, that estimates are compared with."""


def maxima(case: SensorCase, workers: int, width: int, delta: float, seed: int) -> pd.DataFrame:
    """Half-widths of lost means, minima and maxima, and how often they held on the log.

    Rows are samples, windows tumbling ones of `width`; every worker of h-best is lost once from
    every whole window of the log. `seed` is of the draws of extremes.

    query; half_width and prior: with probability 1 − δ, of an estimate from the others and of one
    from nothing, medians over the keys; within: the share of estimates whose half-width held;
    windows.
    """
    step, samples = case.readings[ROWS].model, case.log.read(None, 0, min(case.log.steps, STEPS))
    groups = assign_spread(step, workers, Requirement(1.0, delta), uneven=True).workers
    everyone, rows = np.arange(step.size), []
    for query in ("mean", "min", "max"):
        windows = Windows(width, width, query)
        due = windows.ending_in(0, len(samples))
        truth, counts = windows.aggregate(samples, 0, due)
        truth = truth[(counts == width).all(axis=1)]
        model = windows.aggregation.model(step, width, np.random.default_rng(seed))
        off = truth - model.mean
        half, prior, held = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
        for keys in map(np.array, groups):
            others = np.setdiff1d(everyone, keys)
            for found, observed in ((half, others), (prior, others[:0])):
                if isinstance(model, WindowExtremes):
                    found.append(model.half_width(keys, observed, delta))
                else:
                    variance = model.conditional(observed, keys)[1].diagonal()
                    found.append(Requirement(1.0, delta).half_width(variance))
            gain, _ = model.conditional(others, keys)
            held.append(np.abs(off[:, keys] - off[:, others] @ gain.T) <= half[-1])
        widths = [float(np.median(np.concatenate(found))) for found in (half, prior)]
        rows.append((query, *widths, np.concatenate(held, axis=1).mean(), len(truth)))
    return pd.DataFrame(rows, columns=["query", "half_width", "prior", "within", "windows"])
