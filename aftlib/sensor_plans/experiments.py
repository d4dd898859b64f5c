"""Notebook 06's experiments: plans of real or generated sensors, and disturbed streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from pydantic import model_validator

from aftlib.core.checks import require_choice
from aftlib.core.paths import beijing_pm25
from aftlib.guard.accounts import CAP, POOL_CAP, Accounts, most_credits, pool_unit
from aftlib.sensor_plans.backtest import BASELINE, GUARD, Walk, shares, walk_forward
from aftlib.sensor_plans.plan import plan
from aftlib.sensor_plans.planfile import read_plan
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.sensor_file import read_sensors
from aftlib.sensor_plans.window_results import fit_model
from aftlib.workbench.parameters import parameter

SENSORS = 8
TROUBLES = ("drift", "stuck sensors", "change of regime")
EPSILON_SD = 0.5
BEIJING, AIR = "Beijing's stations", "air, generated"


class NotebookParameters(Question):
    """Parameters of notebook 06: the question, and the sensors to which it is put."""

    data: str | None = parameter(None, "a CSV or Parquet file; null: Beijing's and generated air")
    plan: str | None = parameter(None, "a plan.json of `aft plan`, shown instead")
    rows: int = parameter(20_000, "hours of generated air", smoke=8_000, full=60_000, least=200)
    rounds: int = parameter(
        3_000, "windows of the streams with trouble", smoke=1_200, full=10_000, least=600
    )
    seed: int = parameter(1, "of everything generated", least=0)

    @model_validator(mode="after")
    def require_one(self) -> Self:
        """Refuse a plan besides data, and files that cannot be read."""
        if self.plan is not None and self.data is not None:
            raise ValueError(
                f"plan must not be given with data, got {self.plan!r} and {self.data!r}"
            )
        if self.plan is not None:
            read_plan(self.plan)
        return self


def plans(parameters: NotebookParameters) -> dict[str, dict[str, Any]]:
    """The given plan, or that of the data, or those of Beijing's and generated air, by name."""
    p = parameters
    if p.plan is not None:
        stored = read_plan(p.plan)
        return {stored["data"]["name"]: stored}
    question = p.model_dump(include=set(Question.model_fields))
    if p.data is not None:
        tables: dict[str, Any] = {Path(p.data).name: read_sensors(p.data)}
    else:
        tables = {BEIJING: pd.read_parquet(beijing_pm25()), AIR: generate_air(p.rows, p.seed)}
    return {name: plan(table, name=name, **question) for name, table in tables.items()}


def generate_air(rows: int, seed: int) -> pd.DataFrame:
    """Twelve generated stations, hourly: skewed readings with episodes and gaps."""
    rng = np.random.default_rng(seed)
    episodes = slow(rng, rows, 1, 0.97) + 0.36 * slow(rng, rows, 12, 0.9)
    air = 60 * np.exp(0.8 * episodes)
    air[rng.random(air.shape) < 0.02] = np.nan
    time = pd.date_range("2024-01-01", periods=rows, freq="h", name="time")
    return pd.DataFrame(air, time, [f"air {i + 1}" for i in range(12)])


def slow(rng: np.random.Generator, rows: int, n: int, memory: float) -> np.ndarray:
    """Independent AR(1) series of unit variance, shape (rows, n)."""
    shocks = rng.normal(size=(rows, n)) * np.sqrt(1 - memory**2)
    return follow(shocks, memory, memory * rng.normal(size=n))


def follow(shocks: np.ndarray, memory: float, carried: np.ndarray | float = 0.0) -> np.ndarray:
    """AR(1) series of shocks, (rows, …): each value is its shock and `memory` times the last."""
    values = np.empty_like(shocks)
    for row, shock in enumerate(shocks):
        values[row] = shock + carried
        carried = memory * values[row]
    return values


def troubles(rounds: int, delta: float, seed: int) -> dict[str, Walk]:
    """The back-test of each stream with trouble."""
    return {trouble: walk_through(trouble, rounds, delta, seed) for trouble in TROUBLES}


def draw_trouble(trouble: str, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Window results of eight sensors, undisturbed until the middle, shape (rounds, 8).

    They share a slow common part. "drift": two sensors drift away steadily; "stuck sensors": two
    sensors repeat their last value; "change of regime": the noise of each sensor triples.
    """
    require_choice("trouble", trouble, TROUBLES)
    own = rng.normal(size=(rounds, SENSORS))
    common = follow(rng.normal(size=rounds), 0.9)
    half, noise = rounds // 2, np.full(rounds, 0.4)
    if trouble == "change of regime":
        noise[half:] *= 3
    values = common[:, None] + noise[:, None] * own
    if trouble == "drift":
        values[half:, :2] += 10 * np.linspace(0, 1, rounds - half)[:, None]
    elif trouble == "stuck sensors":
        values[half:, :2] = values[half - 1, :2]
    return values


def walk_through(trouble: str, rounds: int, delta: float, seed: int) -> Walk:
    """Back-test a stream with trouble; everything is fitted before the trouble."""
    values = draw_trouble(trouble, rounds, np.random.default_rng([seed, TROUBLES.index(trouble)]))
    first = values[: rounds // 2]
    baseline = fit_model(first, [f"X{i}" for i in range(1, SENSORS + 1)])
    workers = [[i] for i in range(SENSORS)]
    return walk_forward(values, workers, EPSILON_SD * first.std(axis=0), delta, baseline)


def against_adversary(delta: float, attacked: int, rounds: int = 4000) -> float:
    """Most errors beyond δN and the slack, by an adversary who sees the certified sensors.

    In the first half every estimate is right, so that the budgets are as large as they can be. In
    the second half each certified estimate of the `attacked` sensors is wrong, and each blocked one
    would have been right, which earns credit. By part 2 of the theorem, and for all sensors
    together, the result is at most 0.
    """
    accounts, counts = Accounts(SENSORS, delta), np.zeros((SENSORS, 2))
    for t in range(rounds):
        certified = accounts.certify(np.ones(SENSORS))
        wrong = (certified == 2) & (np.arange(SENSORS) < attacked) & (t >= rounds // 2)
        accounts.update(certified, wrong)
        if t >= rounds // 2:
            counts += np.column_stack([certified == 2, wrong])
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
            certified, within = shares(walk.of(method).sum(axis=1))
            part = {"window": walk.edges[:-1], "declared": certified, "within": within}
            parts.append(pd.DataFrame({"trouble": trouble, "method": method} | part))
    return pd.concat(parts, ignore_index=True)
