"""Notebook 06's experiments: the plan that it shows, and disturbed streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from aftlib.core.paths import DATA_SETS, TITLES, beijing_pm25, data_set
from aftlib.guard.accounts import CAP, CERTIFIED, POOL_CAP, Accounts, most_credits, pool_unit
from aftlib.notebook.parameters import parameter
from aftlib.sensor_plans.backtest import (
    ALWAYS,
    BASELINE,
    GUARD,
    HINDSIGHT,
    Walk,
    compare,
    walk_forward,
)
from aftlib.sensor_plans.plan import plan
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.sensor_file import SensorTable, read_sensors
from aftlib.sensor_plans.sensor_plan import Score, SensorPlan
from aftlib.sensor_plans.window_results import Survey

SENSORS = 8
TROUBLES = ("drift", "stuck sensors", "change of regime")
EPSILON_SD = 0.5
BEIJING = TITLES["beijing_pm25"]
#: Samples of a window of the real sets.
SAMPLES = 10
#: The stored run of ``python -m benchmarks guard_peers``, which `benchmarks.evidence` writes.
STORED_PEERS = Path(__file__).parent / "stored" / "guard_peers.csv"


class NotebookParameters(Question):
    """Parameters of notebook 06: the question, and the sensors to which it is put."""

    data: str | None = parameter(None, "a CSV or Parquet file; null: Beijing's stations")
    plan: str | None = parameter(None, "a plan.json of `aft plan`, shown instead")
    rounds: int = parameter(
        3_000, "windows of the streams with trouble", smoke=1_200, full=10_000, least=600
    )
    seed: int = parameter(1, "of the streams with trouble", least=0)


def stored_peers() -> pd.DataFrame:
    """Return what the guard and other rules certified on the same predictions, in a stored run.

    Columns data (a real set or a generated stream), epsilon (standard deviations), rule, certified
    (share of the windows), wrong (share of these, NaN if none), commit and date of the run.
    """
    return pd.read_csv(STORED_PEERS, dtype={"commit": str})


def read_table(parameters: NotebookParameters) -> SensorTable | None:
    """Return the sensors of the parameters, by default Beijing's stations; None for a stored plan.

    A stored plan has no samples.
    """
    if parameters.plan is not None:
        return None
    return read_sensors(parameters.data or beijing_pm25())


def plan_sensors(parameters: NotebookParameters, table: SensorTable | None) -> SensorPlan:
    """Return the plan of a table that `read_table` read, or the stored plan."""
    if table is None:
        return SensorPlan.read(str(parameters.plan))
    name = Path(parameters.data).name if parameters.data else BEIJING
    return plan(table, parameters, name=name)


def unit_of(parameters: NotebookParameters) -> str:
    """Return the unit of the sensors, in which ε and errors are."""
    own = parameters.data is not None or parameters.plan is not None
    return "the sensors' unit" if own else DATA_SETS["beijing_pm25"]


@dataclass(frozen=True)
class SetBacktest:
    """The back-test of one real set, and the comparison with other methods on its windows."""

    title: str
    samples: int  # of a window
    walk: Walk
    lines: Mapping[str, Score]  # of `compare`, by method

    @property
    def price(self) -> float:
        """Share of the windows that the guard certifies fewer than the baseline in hindsight.

        Negative where the guard certifies more.
        """
        return self.lines[HINDSIGHT].certified - self.lines[GUARD].certified

    @property
    def always_suffices(self) -> bool:
        """Whether estimating every window with the baseline model is right often enough."""
        within = self.lines[ALWAYS].within
        return within is not None and within >= 1 - self.walk.delta

    @property
    def guarantees(self) -> int:
        """Certified windows of the second half, all horizons."""
        return int(self.walk.counts[GUARD].certified.sum())

    @property
    def within_below(self) -> float | None:
        """Share within ε of what the guard certified, if below 1 − δ, as the slack permits."""
        within = self.lines[GUARD].within
        return within if within is not None and within < 1 - self.walk.delta else None


# The guard's products are small: several threads wait for each other longer than they compute.
@threadpool_limits.wrap(limits=1, user_api="blas")
def backtest_set(name: str, delta: float, samples: int = SAMPLES) -> SetBacktest:
    """Back-test one of the `DATA_SETS` with one sensor per machine.

    A window has `samples` samples, and ε is `EPSILON_SD` standard deviations of each sensor's
    window results.
    """
    question = Question(epsilon_sd=EPSILON_SD, delta=delta, window=samples)
    survey = Survey.of(read_sensors(data_set(name)), question)
    workers = [[i] for i in range(len(survey.names))]
    walk = walk_forward(survey, workers)
    lines = {line.method: line for line in compare(walk)}
    return SetBacktest(TITLES[name], samples, walk, lines)


def backtest_sets(delta: float, samples: int = SAMPLES) -> dict[str, SetBacktest]:
    """Back-test all real sets, by their names."""
    return {name: backtest_set(name, delta, samples) for name in DATA_SETS}


def draw_trouble(trouble: str, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Window results of eight sensors, undisturbed until the middle, shape (rounds, 8).

    They share a slow common part. "drift": two sensors drift away steadily; "stuck sensors": two
    sensors repeat their last value; "change of regime": the noise of each sensor triples.
    """
    own = rng.normal(size=(rounds, SENSORS))
    shocks = rng.normal(size=rounds).tolist()
    common = np.array([*accumulate(shocks, lambda last, shock: 0.9 * last + shock)])
    half = rounds // 2
    noise = np.full(rounds, 0.4)
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
    walks = {}
    question = Question(epsilon_sd=EPSILON_SD, delta=delta, window=1)
    names = tuple(f"X{i}" for i in range(1, SENSORS + 1))
    for number, trouble in enumerate(TROUBLES):
        values = draw_trouble(trouble, rounds, np.random.default_rng([seed, number]))
        survey = Survey.of(SensorTable(values, names, time=None), question)
        walks[trouble] = walk_forward(survey, [[i] for i in range(SENSORS)])
    return walks


def against_adversary(delta: float, attacked: int, rounds: int = 4000) -> float:
    """Largest share of the permitted wrong guarantees that an adversary makes wrong.

    The adversary sees the certified sensors. In the first half every estimate is right, so that the
    budgets are as large as they can be. In the second half each certified estimate of the
    `attacked` sensors is wrong, and each blocked one would have been right, which earns credit. By
    parts 2 and 4 of the theorem, for each sensor and for all together, the result is at most 1.
    """
    accounts = Accounts.open(SENSORS, delta)
    counts = np.zeros((SENSORS, 2))
    for t in range(rounds):
        decisions = accounts.certify(np.ones((1, SENSORS), bool))
        certified = decisions[0] == CERTIFIED
        wrong = certified & (np.arange(SENSORS) < attacked) & (t >= rounds // 2)
        accounts.book(decisions, wrong[np.newaxis].astype(float))
        if t >= rounds // 2:
            counts += np.column_stack([certified, wrong])
    guarantees, wrong_ones = counts.T
    credit = most_credits(rounds)
    single = delta * guarantees + CAP + credit
    pool = pool_unit(SENSORS) * (POOL_CAP + credit) + SENSORS * (1 - delta)
    together = delta * guarantees.sum() + pool
    return float(max((wrong_ones / single).max(), wrong_ones.sum() / together))


def trouble_shares(walks: dict[str, Walk]) -> pd.DataFrame:
    """Shares certified, and of these within ε, in each segment of time, with and without the guard.

    Columns: trouble, method, window, certified, within (NaN where nothing was certified).
    """
    parts = []
    for trouble, walk in walks.items():
        for method in (GUARD, BASELINE):
            certified, within = walk.weighted_counts(method).sum(1).shares
            part = {"window": walk.edges[:-1], "certified": certified, "within": within}
            parts.append(pd.DataFrame({"trouble": trouble, "method": method} | part))
    return pd.concat(parts, ignore_index=True)
