"""D1's grid: estimable workers and error rates over (ε, m), figs 10–13."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from aftlib.approximately_once.assignment import (
    Assignment,
    assign_greedy,
    assign_packed,
    assign_random,
    assign_spread,
)
from aftlib.approximately_once.best import assign_best, crash_together
from aftlib.approximately_once.experiments.cases import SensorCase
from aftlib.core.checks import require_number
from aftlib.core.extremes import DrawnWindows
from aftlib.core.gaussian import GaussianModel
from aftlib.core.intervals import bootstrap_interval, t_interval
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.sweep import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = ("greedy", "h-best", "h-worst")
"""The methods that the document compares."""
NO_DROP, NO_RESERVE, NEITHER = "greedy, no drop", "greedy, no reserve", "greedy, neither"
"""Greedy with a drop of 0 for empty workers, without a reserved worker, and with both changes."""
VARIANTS = (NO_DROP, NO_RESERVE, NEITHER)
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
    NO_DROP: lambda *problem, rng: assign_greedy(*problem, uneven=True, empty_drop="zero"),
    NO_RESERVE: lambda *problem, rng: assign_greedy(*problem, uneven=True, reserve=False),
    NEITHER: lambda *problem, rng: assign_greedy(
        *problem, uneven=True, empty_drop="zero", reserve=False
    ),
    CHANCE: lambda *problem, rng: assign_greedy(*problem, uneven=True, rng=rng),
}
"""The assignments by method, called with model, m, requirement and `rng`.

A method that is added, also in a notebook, appears in `grid` and `bests`, and so in figs 10–13.
"""
DRAWN = ("random", CHANCE)
"""Random methods, which are drawn several times per point."""
METHODS = (*DOCUMENT, "random", NO_DROP, CHANCE)
STEPS = 30_000
"""Most steps of the log on which `other_aggregates` checks half-widths."""


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
    return [*methods, *(name for name in ASSIGN if name not in {*METHODS, *VARIANTS})]


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


def bests(spark: SparkSession, case: SensorCase) -> pd.DataFrame:
    """Estimable workers of each method and the best assignment, and a bound for all assignments.

    Columns: method ("greedy" and its variants, "h-best", those added to `ASSIGN`, "best" or
    "bound"), workers, epsilon, estimable.
    """
    model, epsilons, delta = case.samples, case.epsilons, case.delta
    counted = {name: ASSIGN[name] for name in added_to(["greedy", *VARIANTS, "h-best"])}

    def count(m: int) -> Iterator[tuple[str, int, float, int]]:
        for epsilon in epsilons:
            problem = model, m, Requirement(epsilon, delta)
            best = assign_best(*problem, uneven=True)
            for method, assign in counted.items():
                assignment = assign(*problem, rng=np.random.default_rng(m))
                yield method, m, epsilon, int(assignment.estimable.sum())
            yield "best", m, epsilon, int(best.estimable.sum())
            yield "bound", m, epsilon, best.bound

    return _counted(spark, case, count)


def crashes_survived(spark: SparkSession, case: SensorCase, most: int = 3) -> pd.DataFrame:
    """Workers of h-best that the survivors estimate, whichever f workers crash; f = 1 … `most`.

    Columns: method ("1 crash", "2 crashes" …), workers, epsilon, estimable: the proven number of
    such workers.
    """
    model, delta, epsilons = case.samples, case.delta, case.epsilons

    def count(m: int) -> Iterator[tuple[str, int, float, int]]:
        requirements = [Requirement(epsilon, delta) for epsilon in epsilons]
        assignment = assign_spread(model, m, requirements[0], uneven=True)
        for f in range(1, min(m, most) + 1):
            variances = crash_together(model, assignment, f)
            for requirement in requirements:
                estimable = int(requirement.is_met_by(requirement.reliability(variances)).sum())
                yield f"{f} crash{'es' if f > 1 else ''}", m, requirement.epsilon, estimable

    return _counted(spark, case, count)


def _counted(
    spark: SparkSession, case: SensorCase, count: Callable[[int], Iterator[Any]]
) -> pd.DataFrame:
    rows = sweep(spark, lambda m: list(count(m)), case.workers)
    return pd.DataFrame(sum(rows, []), columns=["method", "workers", "epsilon", "estimable"])


def smallest_epsilons(model: GaussianModel, workers: Sequence[int], delta: float) -> pd.DataFrame:
    """Smallest ε, sensor units, at which all m workers are estimable by h-best and h-worst."""
    one = Requirement(1.0, delta)
    columns = {}
    for name in ("h-best", "h-worst"):
        assigned = [ASSIGN[name](model, m, one, rng=None).workers for m in workers]
        worst = [max(model.block_variance(w).max() for w in ws) for ws in assigned]
        columns[name] = one.half_width(worst)
    return pd.DataFrame(columns, index=pd.Index(workers, name="m"))


def other_aggregates(case: SensorCase, workers: int, width: int, seed: int) -> pd.DataFrame:
    """Half-widths of estimates of lost means, sums, minima and maxima, checked on the log.

    Rows are samples, and windows are tumbling with `width` steps. Each worker of h-best is lost
    once in every whole window of the log. `seed` seeds the draws of extremes.

    Columns: query; half_width: the median over the keys of the half-width at probability 1 − δ;
    prior: the same without other workers' results; within: the share of estimates that err by at
    most their half-width, with low and high of its interval over whole windows; windows; workers.
    """
    samples, requirement = (
        case.log.read(None, 0, min(case.log.steps, STEPS)),
        Requirement(1, case.delta),
    )
    groups = assign_spread(case.samples, workers, requirement, uneven=True).workers
    everyone, rows = np.arange(case.samples.size), []

    def half_width(model: GaussianModel, keys: np.ndarray, observed: np.ndarray) -> np.ndarray:
        if isinstance(model, DrawnWindows):
            return model.half_width(keys, observed, case.delta)
        return requirement.half_width(model.conditional(observed, keys)[1].diagonal())

    for query in ("mean", "sum", "min", "max"):
        windows = Windows(width, width, query)
        truth, counts = windows.aggregate(samples, 0, windows.ending_in(0, len(samples)))
        truth = truth[(counts == width).all(axis=1)]
        model = windows.aggregation.model(case.samples, width, np.random.default_rng(seed))
        off = truth - model.mean
        half, prior, held = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
        for keys in map(np.array, groups):
            others = np.setdiff1d(everyone, keys)
            half.append(half_width(model, keys, others))
            prior.append(half_width(model, keys, others[:0]))
            gain, _ = model.conditional(others, keys)
            held.append(np.abs(off[:, keys] - off[:, others] @ gain.T) <= half[-1])
        medians = [float(np.median(np.concatenate(widths))) for widths in (half, prior)]
        share = np.concatenate(held, axis=1).mean(axis=1)
        low, high = bootstrap_interval(share[None], case.block or 1, np.random.default_rng(seed))
        rows.append((query, *medians, share.mean(), low[0], high[0], len(truth)))
    columns = ["query", "half_width", "prior", "within", "low", "high", "windows"]
    return pd.DataFrame(rows, columns=columns).assign(workers=workers)
