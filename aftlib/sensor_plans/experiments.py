"""Notebook 06's experiments: plans for files, real or generated sensors, disturbed streams."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from pydantic import model_validator
from scipy.signal import lfilter

from aftlib.core.checks import require_choice
from aftlib.core.datasets import Reading, even_grid
from aftlib.core.paths import beijing_pm25
from aftlib.core.planfile import fitted, read_plan
from aftlib.core.sensortable import SensorTable
from aftlib.guard.accounts import CAP, POOL_CAP, Accounts, most_credits, pool_unit
from aftlib.sensor_plans.answer import answer
from aftlib.sensor_plans.backtest import (
    BASELINE,
    GUARD,
    Walk,
    shares,
    walk_forward,
)
from aftlib.sensor_plans.sensor_file import read_sensors, step_of
from aftlib.sensor_plans.survey import Question
from aftlib.workbench.parameters import ParameterModel, parameter

SENSORS = 8
TROUBLES = ("drift", "stuck sensors", "change of regime")
EPSILON_SD = 0.5
BEIJING = "Beijing's stations"


class NotebookParameters(ParameterModel):
    """Parameters of notebook 06."""

    data: str | list[str] | None = parameter(
        None, "CSV or Parquet files; null: Beijing's and generated sensors"
    )
    plan: str | None = parameter(None, "a plan.json of `aft plan`, shown instead")
    epsilon: float | None = parameter(
        None, "largest error ε, in the sensors' units; then epsilon_sd is null"
    )
    epsilon_sd: float | None = parameter(
        0.5, "ε in standard deviations of each sensor's window results"
    )
    delta: float = parameter(0.05, "share δ of the guarantees that may be wrong")
    t_sla: str = parameter("2s", "longest recovery permitted")
    window: int | str = parameter(10, "samples, or a duration such as 6h")
    slide: int | str | None = parameter(None, "samples, or a duration; null: the window")
    query: str = parameter("mean", "or sum")
    workers: int | None = parameter(None, "machines; null: one per sensor")
    horizons: int = parameter(5, "most windows that an outage may last")
    fixed_ms: float = parameter(
        28.33, "of each recovery, ms; the default is document D2's measurement"
    )
    per_tuple_ms: float = parameter(
        9.332e-4, "of each sample read again, ms; the default is D2's measurement"
    )
    long: list[str] | None = parameter(
        None, "columns [time, sensor, value] of a file with one sample per row"
    )
    time: str | None = parameter(None, "column of times; null: found by its values")
    resample: str | None = parameter(
        None, "period of the grid, such as 10min; null: the commonest distance"
    )
    drop: list[str] = parameter([], "columns to leave out")
    missing: list[float] | None = parameter(
        None, "values that mark missing samples, such as -999.25; []: none"
    )
    decimal: str | None = parameter(None, "decimal sign of a CSV file; null: found in it")
    rows: int = parameter(20_000, "hours of the generated sets", smoke=8_000, full=60_000, least=2)
    rounds: int = parameter(
        3_000,
        "windows of the streams in which something goes wrong",
        smoke=1_200,
        full=10_000,
        least=600,
    )
    seed: int = parameter(1, "of everything generated", least=0)

    @property
    def question(self) -> Question:
        """The question that the parameters ask."""
        names = {"epsilon", "epsilon_sd", "delta", "t_sla", "window", "slide", "query", "workers"}
        return Question.of(
            **self.model_dump(include=names | {"horizons", "fixed_ms", "per_tuple_ms"})
        )

    def tables(self) -> dict[str, SensorTable]:
        """The table of each file, or of Beijing's stations and generated air, by name.

        ValueError when a file cannot be read as sensors (the message begins with its name), two
        files have the same name, or there are none.
        """
        reading = self.model_dump(include={*Reading.__dataclass_fields__})
        given = {name: value for name, value in reading.items() if value}
        if self.data is None and given:
            raise ValueError(
                f"{', '.join(given)} must be given with data, got {given} without: give data=FILE"
            )
        if self.data is None:
            return {
                BEIJING: read_sensors(beijing_pm25()),
                "air": generate_air(self.rows, self.seed),
            }
        if not self.data:
            raise ValueError(f"data must name at least one file, got {self.data!r}")
        tables: dict[str, SensorTable] = {}
        for file in [self.data] if isinstance(self.data, str) else self.data:
            name = Path(file).name
            if name in tables:
                raise ValueError(f"data must hold files of different names, got {name} twice")
            try:
                tables[name] = read_sensors(file, **reading)
            except ValueError as error:
                raise ValueError(f"{file}: {error}") from error
        return tables

    @model_validator(mode="after")
    def require_plans(self) -> Self:
        """Read the files, and refuse those for which no plan can be made."""
        if self.plan is not None and self.data is not None:
            raise ValueError(
                f"plan must not be given with data, got {self.plan!r} and {self.data!r}: leave one "
                "out"
            )
        if self.plan is not None:
            read_plan(self.plan)
            return self
        for table in self.tables().values():
            self.question.windows(table.names, len(table.values), step_of(table))
        return self


def plans(parameters: NotebookParameters) -> dict[str, dict]:
    """The plan of each table, by the table's name; or only the given plan."""
    if parameters.plan is not None:
        plan = read_plan(parameters.plan).model_dump(by_alias=True)
        return {plan["data"]["name"]: plan}
    question = parameters.question
    return {name: answer(table, question, name) for name, table in parameters.tables().items()}


def generate_air(rows: int, seed: int) -> SensorTable:
    """Twelve generated stations, hourly: skewed readings with episodes and gaps."""
    rng = np.random.default_rng(seed)
    episodes = slow(rng, rows, 1, 0.97) + 0.36 * slow(rng, rows, 12, 0.9)
    air = 60 * np.exp(0.8 * episodes)
    air[rng.random(air.shape) < 0.02] = np.nan
    time = pd.date_range("2024-01-01", periods=rows, freq="h", name="time")
    return even_grid(pd.DataFrame(air, time, [f"ai{i + 1}" for i in range(12)]))


def slow(rng: np.random.Generator, rows: int, n: int, memory: float) -> np.ndarray:
    """Independent AR(1) series of unit variance, shape (rows, n)."""
    shocks = rng.normal(size=(rows, n)) * np.sqrt(1 - memory**2)
    before = memory * rng.normal(size=(1, n))
    return np.asarray(lfilter([1], [1, -memory], shocks, axis=0, zi=before)[0])


def troubles(rounds: int, delta: float, seed: int) -> dict[str, Walk]:
    """The back-test of each stream with trouble."""
    return {trouble: walk_through(trouble, rounds, delta, seed) for trouble in TROUBLES}


def draw_trouble(trouble: str, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Window results of eight sensors, undisturbed until the middle, shape (rounds, 8).

    They share a slow common part. "drift": two sensors drift away steadily; "stuck sensors": two
    sensors repeat their last value; "change of regime": the noise of each sensor triples.
    ValueError for any other.
    """
    own = rng.normal(size=(rounds, SENSORS))
    common = lfilter([1], [1, -0.9], rng.normal(size=rounds))
    half, noise = rounds // 2, np.full(rounds, 0.4)
    if trouble == "change of regime":
        noise[half:] *= 3
    values = common[:, None] + noise[:, None] * own
    require_choice("trouble", trouble, TROUBLES)
    if trouble == "drift":
        values[half:, :2] += 10 * np.linspace(0, 1, rounds - half)[:, None]
    elif trouble == "stuck sensors":
        values[half:, :2] = values[half - 1, :2]
    return values


def walk_through(trouble: str, rounds: int, delta: float, seed: int) -> Walk:
    """Back-test a stream with trouble; everything is fitted before the trouble."""
    values = draw_trouble(trouble, rounds, np.random.default_rng([seed, TROUBLES.index(trouble)]))
    first = values[: rounds // 2]
    baseline = fitted(first, [f"X{i}" for i in range(1, SENSORS + 1)])
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
