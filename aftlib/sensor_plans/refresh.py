"""Compare a plan that is made again every k windows with a plan that stays.

Sensors change, and a plan is made from one past. Here the second half of the windows is walked
through twice: with the plan of the first half, and with one that is made again from the latest
windows. State moves with its sensor, at a window's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from aftlib.approximately_once.assignment import Assignment, assess
from aftlib.checkpoint_planning.plan import CheckpointPlan
from aftlib.core.checks import require_number
from aftlib.core.gaussian import GaussianModel
from aftlib.core.intervals import LEVELS, RESAMPLES
from aftlib.core.planfile import fitted
from aftlib.core.requirement import Requirement
from aftlib.sensor_plans.answer import assign_sensors, plan_window
from aftlib.sensor_plans.survey import Question, WindowResults

NEVER, MODEL_ONLY, REFRESHED = "never", "model only", "model and assignment"
WAYS = (NEVER, MODEL_ONLY, REFRESHED)
"""Parts that are made again; replay sets belong to the model."""
PARTS = 20
"""Segments of time, which are resampled as a whole."""


@dataclass(frozen=True, eq=False)
class _Plan:
    """What holds until the next refresh, for window results in units of ε."""

    model: GaussianModel
    assignment: Assignment
    checkpoints: CheckpointPlan


def refresh(
    results: WindowResults, question: Question, every: int, past: int, seed: int
) -> pd.DataFrame:
    """Compare plans that are made again every so many windows with those of one past.

    Parameters
    ----------
    results : WindowResults
    question : Question
        With ε, δ and the machines.
    every : int
        k, windows between two refreshes, at least 1.
    past : int
        Latest windows that a refreshed model is fitted to; at least the sensors.
    seed : int
        Of the intervals.

    Returns
    -------
    DataFrame
        One row per way of `WAYS`: certified, the share of results on estimable workers; within, the
        share of these within ε, with low and high of its interval over segments of time; replayed,
        the share of sensors in the first replay set; replay_within, the share of the other sensors'
        results within ε; moved, sensors per refresh whose state moves.

    Raises
    ------
    ValueError
        When every or past is outside its range.
    """
    n = len(results.names)
    require_number("every", every, least=1)
    if not n <= past <= results.half:
        raise ValueError(
            f"past must lie between the {n} sensors and the {results.half} windows of the first "
            f"half, got {past!r}"
        )
    first = results.values[: results.half]
    scaled = results.values / question.limits(results.names, np.nanstd(first, axis=0))
    rows = []
    for way in WAYS:
        counts = np.array(list(_walk(way, scaled, results, question, every, past)))
        refreshes = (len(counts) - 1) // every
        rows.append({"way": way} | _shares(counts, n, refreshes, seed))
    return pd.DataFrame(rows)


def _walk(
    way: str,
    scaled: np.ndarray,
    results: WindowResults,
    question: Question,
    every: int,
    past: int,
) -> Iterator[np.ndarray]:
    """Yield for each window what `_judged` counts, and the sensors that moved before it."""
    unit = Requirement(1.0, question.delta)
    workers = question.workers or scaled.shape[1]

    def made(rows: np.ndarray, assignment: Assignment | None = None) -> _Plan:
        model = fitted(rows, results.names)
        if assignment is None:
            assignment = assign_sensors(model, workers, unit)
        else:
            assignment = assess(model, assignment.workers, unit)
        return _Plan(model, assignment, plan_window(model, results.windows, unit, question))

    plan = made(scaled[: results.half])
    bounds = [*range(results.half, len(scaled), every), len(scaled)]
    for begin, end in pairwise(bounds):
        moved = 0
        if way != NEVER and begin > results.half:
            before = plan.assignment
            kept = before if way == MODEL_ONLY else None
            plan = made(scaled[begin - past : begin], kept)
            moved = sensors_moved(before.workers, plan.assignment.workers)
        for window in scaled[begin:end]:
            yield np.array([*_judged(plan, window), moved])
            moved = 0


def _judged(plan: _Plan, window: np.ndarray) -> tuple[float, ...]:
    """Results, certified ones, those within ε; replayed sensors, the others' results, within ε."""
    model, there = plan.model, np.isfinite(window)
    certified, within = 0, 0
    for keys, estimable in zip(plan.assignment.workers, plan.assignment.estimable, strict=True):
        lost = [i for i in keys if there[i]]
        if estimable and lost:
            seen = np.flatnonzero(there & ~np.isin(np.arange(model.size), keys))
            certified += len(lost)
            within += int((_off(model, window, seen, np.array(lost)) <= 1).sum())
    replay = list(plan.checkpoints.replay[0].sensors)
    seen = np.array([i for i in replay if there[i]], int)
    others = np.flatnonzero(there & ~np.isin(np.arange(model.size), replay))
    kept = int((_off(model, window, seen, others) <= 1).sum()) if len(others) else 0
    return int(there.sum()), certified, within, len(replay), len(others), kept


def _off(
    model: GaussianModel, window: np.ndarray, seen: np.ndarray, lost: np.ndarray
) -> np.ndarray:
    """Error of each lost result, in units of ε, estimated from the seen ones."""
    gain, _ = model.conditional(seen, lost)
    return np.abs(window[lost] - model.mean[lost] - gain @ (window[seen] - model.mean[seen]))


def _shares(counts: np.ndarray, n: int, refreshes: int, seed: int) -> dict[str, Any]:
    total, certified, within, replayed, others, kept, moved = counts.sum(axis=0)
    parts = np.array([part[:, 1:3].sum(axis=0) for part in np.array_split(counts, PARTS)])
    drawn = np.random.default_rng(seed).integers(0, PARTS, (RESAMPLES, PARTS))
    good = parts[drawn].sum(axis=1)
    good = good[good[:, 0] > 0]
    low, high = np.quantile(good[:, 1] / good[:, 0], LEVELS) if len(good) else (np.nan, np.nan)
    return {
        "certified": certified / total,
        "within": within / certified if certified else np.nan,
        "low": float(low),
        "high": float(high),
        "replayed": replayed / (n * len(counts)),
        "replay_within": kept / others if others else np.nan,
        "moved": moved / refreshes if refreshes else 0.0,
    }


def sensors_moved(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> int:
    """Fewest sensors that change their worker, however the new groups are named."""
    shared = np.array([[len({*one} & {*other}) for other in after] for one in before])
    stay = shared[linear_sum_assignment(-shared)].sum()
    return int(sum(map(len, before)) - stay)
