"""Notebook 06's experiments: plans for files, real or generated sensors, disturbed streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from pydantic import model_validator
from scipy.optimize import linear_sum_assignment
from scipy.signal import lfilter

from aftlib.approximately_once.assignment import Assignment, assess
from aftlib.core.checks import require_choice, require_number
from aftlib.core.datasets import Reading, even_grid
from aftlib.core.paths import beijing_pm25
from aftlib.core.planfile import fitted, read_plan
from aftlib.core.requirement import Requirement
from aftlib.core.sensortable import SensorTable
from aftlib.guard.accounts import CAP, POOL_CAP, Accounts, most_credits, pool_unit
from aftlib.sensor_plans.answer import answer, assign_sensors, plan_window, replay_errors
from aftlib.sensor_plans.backtest import (
    BASELINE,
    GUARD,
    Walk,
    estimate_by_baseline,
    interval,
    shares,
    walk_forward,
)
from aftlib.sensor_plans.sensor_file import Inventory, read_sensors, step_of
from aftlib.sensor_plans.survey import Question, Survey, survey_table
from aftlib.workbench.parameters import ParameterModel, parameter

SENSORS = 8
TROUBLES = ("drift", "stuck sensors", "change of regime")
EPSILON_SD = 0.5
BEIJING = "Beijing's stations"
EVERY, PAST = 50, 300
"""Windows between two refreshes, and windows to which a refreshed model is fitted."""
NEVER, MODEL_ONLY, REFRESHED = "never", "model only", "model and assignment"
REFRESH_METHODS = (NEVER, MODEL_ONLY, REFRESHED)
"""The parts of a plan that each method computes again; replay sets follow the model."""
PARTS = 20
"""Segments of time, each of which is resampled as a whole."""


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
        """The table of each file, or of Beijing's stations and three generated sets, by name.

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
            return {BEIJING: read_sensors(beijing_pm25())} | generate_sets(self.rows, self.seed)
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


def refresh_sets(parameters: NotebookParameters) -> pd.DataFrame:
    """Results of `refresh` for each set, with `EVERY` and `PAST`; empty if a plan is given."""
    frames = {}
    for name, table in parameters.tables().items() if parameters.plan is None else ():
        question = parameters.question
        survey = survey_table(table, Inventory.of(table), question)
        past = min(PAST, survey.half)
        if len(table.names) <= past:
            frames[name] = refresh(survey, question, EVERY, past)
    if not frames:
        return pd.DataFrame(columns=["set"])
    return pd.concat(frames, names=["set"]).reset_index("set")


def refresh(survey: Survey, question: Question, every: int, past: int) -> pd.DataFrame:
    """Compare plans that are made again every `every` windows with one plan.

    Sensors change, but a plan is fitted to the past. The second half of the windows is processed
    with the plan of the first half, and with plans that are made again from the latest windows:
    model only, or model and assignment. A sensor's state moves to its new worker at a window's end.

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
        One row per method in `REFRESH_METHODS`: certified, the share of results on estimable
        workers; within, the share of these within ε, with low and high of its interval over
        segments of time; replayed, the share of sensors in the first replay set; replay_within, the
        share of the other sensors' results within ε; moved, sensors per refresh whose state moves.

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
    for method in REFRESH_METHODS:
        steps = _walk(method, scaled, survey, question, every, past)
        counts, off, replayed, moved = map(np.concatenate, zip(*steps, strict=True))
        certified, within = shares(counts.sum(axis=0))
        low, high = interval(np.array([part.sum(axis=0) for part in np.array_split(counts, PARTS)]))
        row = {"method": method, "certified": certified, "within": within, "low": low, "high": high}
        row |= {
            "replayed": replayed.mean(),
            "replay_within": (off <= 1).mean() if len(off) else np.nan,
        }
        rows.append(row | {"moved": moved.sum() / max(1, len(moved) - 1)})
    return pd.DataFrame(rows)


def _walk(
    method: str, scaled: np.ndarray, survey: Survey, question: Question, every: int, past: int
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield for each plan counts (windows, 3) for `shares`, and the errors of `replay_errors`.

    Then the share of the sensors replayed, (windows,), and the number of sensors moved, (1,).
    """
    unit, moved = Requirement(1.0, question.delta), 0
    workers = question.workers or scaled.shape[1]
    assignment: Assignment | None = None
    bounds = [*range(survey.half, len(scaled), every), len(scaled)]
    for begin, end in pairwise(bounds):
        if assignment is None or method != NEVER:
            rows = scaled[: survey.half] if assignment is None else scaled[begin - past : begin]
            model, before = fitted(rows, survey.names), assignment
            if before is not None and method == MODEL_ONLY:
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


def generate_sets(rows: int, seed: int) -> dict[str, SensorTable]:
    """Three sets of generated hourly sensors, with irregularities of real sensors.

    "rooms": 12 thermometers with a daily period and slow weather; "air": 12 stations whose readings
    are skewed, come in episodes and have gaps; "feeders": 15 loads with daily and weekly periods,
    groups that become less correlated, and a slow drift.
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


def sum_up_troubles(walks: dict[str, Walk]) -> pd.DataFrame:
    """Shares as in `over_time`, but over the whole time after the trouble began."""
    rows = [
        (trouble, method, *shares(walk.of(method).sum(axis=(0, 1))))
        for trouble, walk in walks.items()
        for method in (GUARD, BASELINE)
    ]
    return pd.DataFrame(rows, columns=["trouble", "method", "declared", "within"])
