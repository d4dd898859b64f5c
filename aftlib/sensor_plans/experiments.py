"""Notebook 06's experiments: the plan that it shows, and disturbed streams."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.paths import beijing_pm25
from aftlib.core.planfile import read_plan
from aftlib.guard.accounts import CAP, CERTIFIED, POOL_CAP, Accounts, most_credits, pool_unit
from aftlib.sensor_plans.backtest import BASELINE, GUARD, Walk, shares, walk_forward
from aftlib.sensor_plans.plan import plan
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.sensor_file import read_sensors
from aftlib.sensor_plans.window_results import fit_model
from aftlib.workbench.parameters import parameter

SENSORS = 8
TROUBLES = ("drift", "stuck sensors", "change of regime")
EPSILON_SD = 0.5
BEIJING = "Beijing's stations"


class NotebookParameters(Question):
    """Parameters of notebook 06: the question, and the sensors to which it is put."""

    data: str | None = parameter(None, "a CSV or Parquet file; null: Beijing's stations")
    plan: str | None = parameter(None, "a plan.json of `aft plan`, shown instead")
    rounds: int = parameter(
        3_000, "windows of the streams with trouble", smoke=1_200, full=10_000, least=600
    )
    seed: int = parameter(1, "of the streams with trouble", least=0)


def plan_sensors(parameters: NotebookParameters) -> dict[str, Any]:
    """Return the given plan, or a new one for the data or for Beijing's stations."""
    p = parameters
    if p.plan is not None:
        return read_plan(p.plan)
    question = p.model_dump(include=set(Question.model_fields))
    if p.data is not None:
        return plan(read_sensors(p.data), name=Path(p.data).name, **question)
    return plan(pd.read_parquet(beijing_pm25()), name=BEIJING, **question)


def draw_trouble(trouble: str, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Window results of eight sensors, undisturbed until the middle, shape (rounds, 8).

    They share a slow common part. "drift": two sensors drift away steadily; "stuck sensors": two
    sensors repeat their last value; "change of regime": the noise of each sensor triples.
    """
    own = rng.normal(size=(rounds, SENSORS))
    shocks = rng.normal(size=rounds).tolist()
    common = np.array([*accumulate(shocks, lambda last, shock: 0.9 * last + shock)])
    half, noise = rounds // 2, np.full(rounds, 0.4)
    if trouble == "change of regime":
        noise[half:] *= 3
    values = common[:, None] + noise[:, None] * own
    if trouble == "drift":
        values[half:, :2] += 10 * np.linspace(0, 1, rounds - half)[:, None]
    elif trouble == "stuck sensors":
        values[half:, :2] = values[half - 1, :2]
    return values


def troubles(rounds: int, delta: float, seed: int) -> dict[str, Walk]:
    """Back-test each stream with trouble; everything is fitted before the trouble."""
    walks, workers = {}, [[i] for i in range(SENSORS)]
    for number, trouble in enumerate(TROUBLES):
        values = draw_trouble(trouble, rounds, np.random.default_rng([seed, number]))
        first = values[: rounds // 2]
        baseline = fit_model(first, [f"X{i}" for i in range(1, SENSORS + 1)])
        limits = EPSILON_SD * first.std(axis=0)
        walks[trouble] = walk_forward(values, workers, limits, delta, baseline)
    return walks


def against_adversary(delta: float, attacked: int, rounds: int = 4000) -> float:
    """Most errors beyond δN and the slack, by an adversary who sees the certified sensors.

    In the first half every estimate is right, so that the budgets are as large as they can be. In
    the second half each certified estimate of the `attacked` sensors is wrong, and each blocked one
    would have been right, which earns credit. By part 2 of the theorem, and for all sensors
    together, the result is at most 0.
    """
    accounts, counts = Accounts(SENSORS, delta), np.zeros((SENSORS, 2))
    for t in range(rounds):
        decisions = accounts.certify(np.ones(SENSORS))
        certified = decisions == CERTIFIED
        wrong = certified & (np.arange(SENSORS) < attacked) & (t >= rounds // 2)
        accounts.update(decisions, wrong)
        if t >= rounds // 2:
            counts += np.column_stack([certified, wrong])
    beyond, credit = counts[:, 1] - delta * counts[:, 0], most_credits(rounds)
    pool = pool_unit(SENSORS) * (POOL_CAP + credit) + SENSORS * (1 - delta)
    return float(max(beyond.max() - CAP - credit, beyond.sum() - pool))


def over_time(walks: dict[str, Walk]) -> pd.DataFrame:
    """Shares certified, and of these within ε, in each segment of time, with and without the guard.

    Columns: trouble, method, window, declared, within (NaN where nothing was certified).
    """
    parts = []
    for trouble, walk in walks.items():
        for method in (GUARD, BASELINE):
            certified, within = shares(walk.weighted_counts(method).sum(axis=1))
            part = {"window": walk.edges[:-1], "declared": certified, "within": within}
            parts.append(pd.DataFrame({"trouble": trouble, "method": method} | part))
    return pd.concat(parts, ignore_index=True)
