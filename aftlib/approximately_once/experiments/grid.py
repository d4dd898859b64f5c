"""D1's grid: estimable workers and error rates over (ε, m), figs 10–13."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from aftlib.approximately_once.experiments.cases import SensorCase
from aftlib.core.checks import require_number
from aftlib.core.gaussian import GaussianModel
from aftlib.core.intervals import t_interval
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.sweep import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = ("greedy", "h-best", "h-worst")
"""The methods that the document compares."""
CHANCE = "greedy, ties by chance"
"""Greedy with a random order of equally reliable keys."""
# any number of workers: where m does not divide n, their sizes differ by one
ASSIGN: dict[str, Callable[..., Assignment]] = {
    "greedy": lambda *problem, rng: assign_greedy(*problem, uneven=True),
    "h-best": lambda *problem, rng: assign_spread(*problem, uneven=True),
    "h-worst": lambda *problem, rng: assign_packed(*problem, uneven=True),
    "random": lambda model, m, requirement, rng: assign_random(
        model, m, requirement, rng, uneven=True
    ),
    CHANCE: lambda *problem, rng: assign_greedy(*problem, uneven=True, rng=rng),
}
"""The assignments by method, called with model, m, requirement and `rng`.

A method that is added, also in a notebook, appears in `grid`, and so in figs 10–13.
"""
DRAWN = ("random", CHANCE)
"""Random methods, which are drawn several times per point."""
METHODS = (*DOCUMENT, "random", CHANCE)


def grid(
    spark: SparkSession,
    case: SensorCase,
    reading: str,
    seed: int,
    *,
    methods: Sequence[str] | None = None,
    draws: int = 5,
) -> pd.DataFrame:
    """Estimable workers and error rates over (ε, m) by assignment method (D1 figs 10–13).

    The case's log is cut into 1 + `replications` equal parts, the first of which is the document's
    experiment. `methods` are by default `METHODS` and those added to `ASSIGN`; ValueError for a
    method that is not in `ASSIGN`. `seed` seeds the `draws` random assignments per point.

    Columns: method, workers, epsilon, draw, estimable; windows: the number of counted windows,
    which miss no sample; error: the rate (9) in the first part; pooled, pooled_low, pooled_high:
    the mean rate of all parts, and its t interval over parts; by_part, all_by_part: the rates of
    each part, over the estimable keys and over all; expected: the rate that the model predicts for
    the estimable keys. Rates over estimable keys are NaN if there are none.
    """
    model, windows = case.readings[reading]
    methods = added_to(METHODS) if methods is None else methods
    if unknown := [method for method in methods if method not in ASSIGN]:
        raise ValueError(
            f"methods must be among {', '.join(ASSIGN)}, got {unknown[0]!r}: add it to ASSIGN"
        )
    parts = 1 + case.replications
    require_number("replications", case.replications, least=1)
    if case.log.steps // parts < windows.width:
        raise ValueError(
            f"log must hold a window of {windows.width} steps in each of {parts} parts, got "
            f"{case.log.steps} steps; give more rows or fewer replications"
        )
    points = GridPoints(model, case.log, windows, case.epsilons, case.delta, parts, seed)
    points = replace(points, assign={method: ASSIGN[method] for method in methods})
    often = {method: range(draws if method in DRAWN else 1) for method in methods}
    chosen = [(method, m, d) for m in case.workers for method in methods for d in often[method]]
    frame = pd.concat(sweep(spark, points, chosen))
    return frame.sort_values(["method", "workers", "epsilon", "draw"], ignore_index=True)


def added_to(methods: Sequence[str]) -> list[str]:
    """Return `methods` and the methods that a user has added to `ASSIGN`."""
    return [*methods, *(name for name in ASSIGN if name not in METHODS)]


@dataclass(frozen=True)
class GridPoints:
    """Function that a task runs at a point (method, m, draw) of the grid; Spark pickles it."""

    model: GaussianModel
    log: SensorLog
    windows: Windows
    epsilons: tuple[float, ...]
    delta: float
    parts: int
    seed: int
    assign: Mapping[str, Callable[..., Assignment]] = field(default_factory=lambda: ASSIGN)

    @cached_property
    def scaled(self) -> tuple[np.ndarray, np.ndarray]:
        """Λ (x − μ) of the whole windows of all parts, (n, windows), and the parts' bounds."""
        part = self.log.steps // self.parts
        due = self.windows.ending_in(0, part)
        samples = self.log.read(None, 0, part * self.parts)
        whole = []
        for values in samples.reshape(self.parts, part, -1):
            aggregates, count = self.windows.aggregate(values, 0, due)
            whole.append(aggregates[(count == self.windows.width).all(axis=1)])
        filled = [part for part in whole if len(part)]
        edges = np.cumsum([0, *map(len, filled)])
        return self.model.precision @ (np.concatenate(filled).T - self.model.mean[:, None]), edges

    def __call__(self, point: tuple[str, int, int]) -> pd.DataFrame:
        """Return one row per ε; equal assignments share their residuals."""
        method, workers, draw = point
        scaled, edges = self.scaled
        off, variance, last = np.empty(0), np.empty(self.model.size), None
        counted, everyone, rows = [], [], []
        for epsilon in self.epsilons:
            requirement = Requirement(epsilon, self.delta)
            rng = np.random.default_rng([self.seed, draw])
            assignment = self.assign[method](self.model, workers, requirement, rng=rng)
            if assignment.workers != last:
                off, last = np.abs(residuals(self.model, assignment, scaled)), assignment.workers
                for keys in map(list, last):
                    variance[keys] = self.model.block_variance(keys)
            wrong = (off > epsilon).view(np.uint8)
            counted.append(_share(wrong[assignment.estimable_keys]))
            everyone.append(_share(wrong))
            beyond = 1 - requirement.reliability(variance[assignment.estimable_keys])
            expected = beyond.mean() if len(beyond) else np.nan
            rows.append((epsilon, assignment.estimable.sum(), expected))

        means, all_means = (
            np.add.reduceat(np.array(each), edges[:-1], axis=1) / np.diff(edges)
            for each in (counted, everyone)
        )
        pooled, pooled_low, pooled_high = t_interval(means)
        return pd.DataFrame(rows, columns=["epsilon", "estimable", "expected"]).assign(
            method=method,
            workers=workers,
            draw=draw,
            windows=edges[-1],
            error=means[:, 0],
            pooled=pooled,
            pooled_low=pooled_low,
            pooled_high=pooled_high,
            by_part=list(means),
            all_by_part=list(all_means),
        )


def residuals(model: GaussianModel, assignment: Assignment, scaled: np.ndarray) -> np.ndarray:
    """Truth minus estimate of every key from the other workers' keys, shape (n, windows).

    x_A − E[x_A | rest] = (Λ_AA)⁻¹ (Λ (x − μ))_A, and `scaled` is Λ (x − μ).
    """
    off = np.empty_like(scaled)
    for keys in map(list, assignment.workers):
        off[keys] = np.linalg.inv(model.precision[np.ix_(keys, keys)]) @ scaled[keys]
    return off


def _share(wrong: np.ndarray) -> np.ndarray:
    """Share of wrong keys in each window, shape (windows,); NaN when there are no keys."""
    if not len(wrong):
        return np.full(wrong.shape[1], np.nan)
    return wrong.sum(axis=0, dtype=np.uint32) / len(wrong)


def coverage(grids: Mapping[str, pd.DataFrame], method: str, workers: int) -> pd.DataFrame:
    """Share of estimable keys' estimates within ε, per reading; omits points without such keys."""
    both = pd.concat(grids, names=["reading"]).reset_index("reading")
    chosen = both[(both["method"] == method) & (both["workers"] == workers)]
    bounds = {"share": "pooled", "low": "pooled_high", "high": "pooled_low"}
    shares = {name: (1 - chosen[column]).clip(0, 1) for name, column in bounds.items()}
    columns = ["reading", "epsilon", "estimable", *shares, "windows"]
    return chosen.assign(**shares)[columns].dropna().reset_index(drop=True)


def smallest_epsilons(model: GaussianModel, workers: Sequence[int], delta: float) -> pd.DataFrame:
    """Smallest ε, sensor units, at which all m workers are estimable by h-best and h-worst."""
    one = Requirement(1.0, delta)
    columns = {}
    for name in ("h-best", "h-worst"):
        assigned = [ASSIGN[name](model, m, one, rng=None).workers for m in workers]
        worst = [max(model.block_variance(w).max() for w in ws) for ws in assigned]
        columns[name] = one.half_width(worst)
    return pd.DataFrame(columns, index=pd.Index(workers, name="m"))
