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
from aftlib.core.sensorplan import fitted
from aftlib.guard.accounts import CAP, POOL_CAP, Accounts, most_credits, pool_unit
from aftlib.sensor_plans.answer import answer
from aftlib.sensor_plans.backtest import BASELINE, GUARD, Walk, shares, walk_forward
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.sensor_file import read_sensors
from aftlib.sensor_plans.survey import answerable_windows, step_of

LEAST_ROUNDS = 600
SENSORS = 8
TROUBLES = ("drift", "stuck sensors", "change of regime")
EPSILON_SD = 0.5


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
    return {trouble: walk_through(trouble, rounds, delta, seed) for trouble in TROUBLES}


def troubled(trouble: str, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Window results of eight sensors, in order until the middle, shape (rounds, 8).

    They share a slow common part. "drift": two of them move away, further and further; "stuck
    sensors": two repeat their last value; "change of regime": their own noise triples. ValueError
    for any other.
    """
    common, own = np.empty(rounds), rng.normal(size=(rounds, SENSORS))
    at = 0.0
    for t, shock in enumerate(rng.normal(size=rounds)):
        at = 0.9 * at + shock
        common[t] = at
    half, noise = rounds // 2, np.full(rounds, 0.4)
    if trouble == "change of regime":
        noise[half:] *= 3
    values = common[:, None] + noise[:, None] * own
    if trouble == "drift":
        values[half:, :2] += 10 * np.linspace(0, 1, rounds - half)[:, None]
    elif trouble == "stuck sensors":
        values[half:, :2] = values[half - 1, :2]
    elif trouble != "change of regime":
        raise ValueError(f"trouble must be one of {', '.join(TROUBLES)}, got {trouble!r}")
    return values


def walk_through(trouble: str, rounds: int, delta: float, seed: int) -> Walk:
    """Walk forward through a troubled stream; everything is fitted before the trouble."""
    values = troubled(trouble, rounds, np.random.default_rng([seed, TROUBLES.index(trouble)]))
    first = values[: rounds // 2]
    plain = fitted(first, [f"X{i}" for i in range(1, SENSORS + 1)])
    workers = [[i] for i in range(SENSORS)]
    return walk_forward(values, workers, EPSILON_SD * first.std(axis=0), delta, plain)


def against_adversary(delta: float, struck: int, rounds: int = 4000) -> float:
    """Most errors beyond δN and what an interval allows, by one who sees what is promised.

    In the first half every promise comes true, so that the accounts are as full as they may be; in
    the second each promise of the `struck` sensors is broken, and each that was blocked would have
    come true, which earns loans. The theorem's part 2, and the same of all together: at most 0.
    """
    accounts, counts = Accounts(SENSORS, delta), np.zeros((SENSORS, 2))
    for t in range(rounds):
        said = accounts.declare(np.ones(SENSORS))
        wrong = (said == 2) & (np.arange(SENSORS) < struck) & (t >= rounds // 2)
        accounts.update(said, wrong)
        if t >= rounds // 2:
            counts += np.column_stack([said == 2, wrong])

    beyond, loans = counts[:, 1] - delta * counts[:, 0], most_credits(rounds)
    pool = pool_unit(SENSORS) * (POOL_CAP + loans) + SENSORS * (1 - delta)
    return float(max(beyond.max() - CAP - loans, beyond.sum() - pool))


def over_time(walks: dict[str, Walk]) -> pd.DataFrame:
    """Shares promised and kept of each stretch of time, with and without the guard.

    Rows of trouble, method, window, declared, within (NaN where nothing was promised).
    """
    parts = []
    for trouble, walk in walks.items():
        for method in (GUARD, BASELINE):
            declared, within = shares(walk.of(method).sum(axis=1))
            part = {"window": walk.edges[:-1], "declared": declared, "within": within}
            parts.append(pd.DataFrame({"trouble": trouble, "method": method} | part))
    return pd.concat(parts, ignore_index=True)


def sum_up_troubles(walks: dict[str, Walk]) -> pd.DataFrame:
    """The same over the whole time after the trouble began, a row a trouble and method."""
    rows = [
        (trouble, method, *shares(walk.of(method).sum(axis=(0, 1))))
        for trouble, walk in walks.items()
        for method in (GUARD, BASELINE)
    ]
    return pd.DataFrame(rows, columns=["trouble", "method", "declared", "within"])
