"""Compare plans that are made again every k windows with a plan that stays.

Sensors change, but a plan is fitted to the past. The second half of the windows is processed with
the plan of the first half, and with plans that are made again from the latest windows: model only,
or model and assignment. A sensor's state moves to its new worker at a window's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from aftlib.approximately_once.assignment import Assignment, assess
from aftlib.core.checks import require_number
from aftlib.core.planfile import fitted
from aftlib.core.requirement import Requirement
from aftlib.sensor_plans.answer import assign_sensors, plan_window, replay_errors
from aftlib.sensor_plans.backtest import estimate_by_baseline, interval, shares
from aftlib.sensor_plans.survey import Question, Survey

NEVER, MODEL_ONLY, REFRESHED = "never", "model only", "model and assignment"
WAYS = (NEVER, MODEL_ONLY, REFRESHED)
"""Parts of a plan that are made again; replay sets are made again with the model."""
PARTS = 20
"""Segments of time, each of which is resampled as a whole."""


def refresh(survey: Survey, question: Question, every: int, past: int) -> pd.DataFrame:
    """Compare plans that are made again every `every` windows with one plan.

    Parameters
    ----------
    survey : Survey
    question : Question
        ε, δ and the number of workers.
    every : int
        k, windows between two refreshes, at least 1.
    past : int
        Number of latest windows to which a refreshed model is fitted; at least n.

    Returns
    -------
    DataFrame
        One row per method in `WAYS`: certified, the share of results on estimable workers; within,
        the share of these within ε, with low and high of its interval over segments of time;
        replayed, the share of sensors in the first replay set; replay_within, the share of the
        other sensors' results within ε; moved, sensors per refresh whose state moves.

    Raises
    ------
    ValueError
        When every or past is outside its range.
    """
    n = len(survey.names)
    require_number("every", every, least=1)
    if not n <= past <= survey.half:
        raise ValueError(
            f"past must be from {n}, the number of sensors, to {survey.half}, the windows of the "
            f"first half, got {past!r}"
        )
    first = survey.values[: survey.half]
    scaled = survey.values / question.limits(survey.names, np.nanstd(first, axis=0))
    rows = []
    for way in WAYS:
        steps = _walk(way, scaled, survey, question, every, past)
        counts, off, replayed, moved = map(np.concatenate, zip(*steps, strict=True))
        certified, within = shares(counts.sum(axis=0))
        low, high = interval(np.array([part.sum(axis=0) for part in np.array_split(counts, PARTS)]))
        row = {"way": way, "certified": certified, "within": within, "low": low, "high": high}
        row |= {
            "replayed": replayed.mean(),
            "replay_within": (off <= 1).mean() if len(off) else np.nan,
        }
        rows.append(row | {"moved": moved.sum() / max(1, len(moved) - 1)})
    return pd.DataFrame(rows)


def _walk(
    way: str, scaled: np.ndarray, survey: Survey, question: Question, every: int, past: int
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield for each plan counts (windows, 3) for `shares`, and the errors of `replay_errors`.

    Then the share of the sensors replayed, (windows,), and the number of sensors moved, (1,).
    """
    unit, moved = Requirement(1.0, question.delta), 0
    workers = question.workers or scaled.shape[1]
    assignment: Assignment | None = None
    bounds = [*range(survey.half, len(scaled), every), len(scaled)]
    for begin, end in pairwise(bounds):
        if assignment is None or way != NEVER:
            rows = scaled[: survey.half] if assignment is None else scaled[begin - past : begin]
            model, before = fitted(rows, survey.names), assignment
            if before is not None and way == MODEL_ONLY:
                assignment = assess(model, before.workers, unit)
            else:
                assignment = assign_sensors(model, workers, unit)
            moved = sensors_moved((before or assignment).workers, assignment.workers)
            checkpoints = plan_window(model, survey.windows, unit, question)
        windows = scaled[begin:end]
        off = np.abs(windows - estimate_by_baseline(model, windows, assignment.workers))
        known = np.isfinite(off)
        certified = known & assignment.estimable_keys
        counts = np.stack([known, certified, certified & (off > 1)], axis=-1).sum(axis=1)
        replay = replay_errors(model, checkpoints, windows)
        replayed = np.full(end - begin, 1 - replay.shape[1] / model.size)
        yield counts, replay[np.isfinite(replay)], replayed, np.array([moved])


def sensors_moved(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> int:
    """Fewest sensors that change their worker, over all matchings of new to old workers."""
    shared = np.array([[len({*one} & {*other}) for other in after] for one in before])
    stay = shared[linear_sum_assignment(-shared)].sum()
    return int(sum(map(len, before)) - stay)
