"""What notebook 06 runs: plans for files or generated sensors, and streams with trouble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.checks import require_number
from aftlib.core.datasets import SensorTable, even_grid
from aftlib.core.planfile import read_plan
from aftlib.sensor_plans.answer import answer
from aftlib.sensor_plans.backtest import Walk
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.sensor_file import read_sensors
from aftlib.sensor_plans.survey import answerable_windows, step_of
from aftlib.sensor_plans.troubles import TROUBLES, over_time, summed_up, walked

__all__ = ["answers", "check_parameters", "over_time", "sets", "summed_up", "troubles"]

LEAST_ROUNDS = 600


def check_parameters(
    *,
    data: str | Sequence[str] | None,
    plan: str | None,
    long: Sequence[str] | None,
    time: str | None,
    resample: str | None,
    drop: Sequence[str],
    missing: Sequence[float] | None,
    decimal: str | None,
    rows: int,
    rounds: int,
    seed: int,
    **asked: Any,
) -> Question | None:
    """Refuse what the notebook could not run to its end with; return what is asked of the data.

    The parameters are the notebook's; None is asked of a plan. A ValueError says the parameter, its
    value and what is wanted.
    """
    require_number("seed", seed, least=0, whole=True)
    require_number("rows", rows, least=2, whole=True)
    require_number("rounds", rounds, least=LEAST_ROUNDS, whole=True)
    if plan is not None and data is not None:
        raise ValueError(f"plan must not go with data, got {plan!r} and {data!r}: it has its data")
    if plan is not None:
        read_plan(plan)
        return None
    question = Question.of(**asked)
    reading: dict[str, Any] = {"long": long, "time": time, "resample": resample, "drop": drop}
    reading |= {"missing": missing, "decimal": decimal}
    given = {name: value for name, value in reading.items() if value}
    if data is None and given:
        raise ValueError(f"{', '.join(given)} must go with a file, got {given}; name it by data")
    for table in sets(data, **reading, rows=rows, seed=seed).values():
        answerable_windows(table.names, len(table.values), step_of(table), question)
    return question


def answers(tables: Mapping[str, SensorTable], question: Question) -> dict[str, dict]:
    """The plan of each table that `sets` gave, by its name; ValueError when there can be none."""
    return {name: answer(table, question, name) for name, table in tables.items()}


def sets(
    data: str | Sequence[str] | None,
    *,
    long: Sequence[str] | None = None,
    time: str | None = None,
    resample: str | None = None,
    drop: Sequence[str] = (),
    missing: Sequence[float] | None = None,
    decimal: str | None = None,
    rows: int = 12_000,
    seed: int = 1,
) -> dict[str, SensorTable]:
    """The table of each file, or three generated ones, by name.

    ValueError when a file cannot be read as sensors (the message begins with its name), two files
    have the same name, or there are none.
    """
    if data is None:
        return generated(rows, seed)
    if not data:
        raise ValueError(f"data must name a file at least, got {data!r}; null: generated sets")
    reading: dict[str, Any] = {"long": long, "time": time, "resample": resample, "drop": drop}
    reading |= {"missing": missing, "decimal": decimal}
    found: dict[str, SensorTable] = {}
    for file in [data] if isinstance(data, str) else data:
        if Path(file).name in found:
            raise ValueError(f"data must hold files of different names, got {file} and another")
        try:
            table = read_sensors(file, **reading)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
        found[Path(file).name] = table
    return found


def generated(rows: int, seed: int) -> dict[str, SensorTable]:
    """Three sets of hourly sensors that misbehave as real ones do.

    "rooms": 12 thermometers with a rhythm of days and slow weather; "air": 12 stations whose
    readings are skewed, come in episodes and have gaps; "feeders": 15 loads with a rhythm of days
    and weeks, groups that go apart, and a slow drift.
    """
    rng, hours = np.random.default_rng(seed), np.arange(rows)
    time = pd.date_range("2024-01-01", periods=rows, freq="h", name="time")

    day = np.sin(2 * np.pi * hours / 24)
    weather = slow(rng, rows, 1, 0.995) * 4
    rooms = 20 + 2 * day[:, None] + weather * rng.uniform(0.7, 1.3, 12) + slow(rng, rows, 12, 0.98)

    episodes = slow(rng, rows, 1, 0.97) + 0.36 * slow(rng, rows, 12, 0.9)
    air = 60 * np.exp(0.8 * episodes)
    air[rng.random(air.shape) < 0.02] = np.nan

    week = np.where((hours // 24) % 7 >= 5, 0.6, 1.0)
    groups = np.repeat(slow(rng, rows, 3, 0.98), 5, axis=1) * 0.25
    trend = 1 + 0.3 * hours / rows
    feeders = (1.2 + 0.5 * day * week + 0.2 * week)[:, None] + groups
    feeders = feeders * trend[:, None] + 0.08 * slow(rng, rows, 15, 0.9)

    named = {"rooms": rooms, "air": air, "feeders": feeders}
    return {
        name: even_grid(
            pd.DataFrame(values, time, [f"{name[:-1]}{i + 1}" for i in range(values.shape[1])])
        )
        for name, values in named.items()
    }


def slow(rng: np.random.Generator, rows: int, n: int, memory: float) -> np.ndarray:
    """Independent AR(1) series of unit variance, shape (rows, n)."""
    shocks = rng.normal(size=(rows, n)) * np.sqrt(1 - memory**2)
    found, at = np.empty((rows, n)), rng.normal(size=n)
    for t in range(rows):
        at = memory * at + shocks[t]
        found[t] = at
    return found


def troubles(rounds: int, delta: float, seed: int) -> dict[str, Walk]:
    """A walk through each troubled stream."""
    return {trouble: walked(trouble, rounds, delta, seed) for trouble in TROUBLES}
