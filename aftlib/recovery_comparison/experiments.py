"""The experiments of notebook 07: every scheme under the same kills, and a user's own numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from pydantic import model_validator

from aftlib.core.gaussian import GaussianModel
from aftlib.core.paths import beijing_pm25
from aftlib.core.recovery_costs import Operation, RecoveryCosts
from aftlib.core.requirement import Requirement
from aftlib.core.windows import Windows
from aftlib.notebook.parameters import ParameterModel, parameter
from aftlib.recovery_comparison.accuracy import score_schemes, score_thresholds
from aftlib.recovery_comparison.break_even import (
    break_evens,
    compare_with_exact,
    compare_with_model,
    measured_costs,
)
from aftlib.recovery_comparison.normal import StoredSpark, normal_operation
from aftlib.recovery_comparison.recoveries import (
    Kill,
    draw_schedule,
    recover_partially,
    recover_workers,
    replay_query,
    streamed_windows,
)
from aftlib.recovery_comparison.schemes import (
    BY_PROCESS,
    EXACT_PROCESS,
    NOTHING,
    SCHEMES,
    Case,
    all_schemes,
)

SENSORS = 12
"""Stations in Beijing."""
STEPS = 35_064
"""Hours of their data."""
TURNS_PER_KILL = 2
"""Turns of the methods in normal operation, as a multiple of the kills of each kind."""
FEWER_WINDOWS = "give shorter windows, fewer learned ones, kills or rates"


class NotebookParameters(ParameterModel):
    """Parameters of notebook 07."""

    windows: list[int] = parameter(
        [6, 24], "tumbling, hours", least=2, smoke=[6, 12], full=[6, 12, 24]
    )
    rates: list[float] = parameter(
        [150.0, 1000.0, 6000.0],
        "of reading again, samples per second; no limit is added",
        above=0,
        smoke=[150.0],
        full=[50.0, 150.0, 1000.0, 6000.0],
    )
    kills: int = parameter(6, "per scheme, window and rate", least=2, smoke=3, full=20)
    workers: int = parameter(2, "of D1; one of them is killed", least=2, most=SENSORS)
    learned: int = parameter(600, "windows that model and guard learn from", least=20, most=700)
    epsilon_sd: float = parameter(
        0.7, "largest error ε, standard deviations of a window's mean", above=0
    )
    delta: float = parameter(0.05, "share δ of the estimates that may be wrong", above=0, below=1)
    budget: float = parameter(
        0.15, "share of a window's samples that D2 may read again", above=0, most=1
    )
    own_sensors: int = parameter(200, "of your stream", least=1)
    own_samples_per_s: float = parameter(20.0, "of all your sensors together", above=0)
    own_window_s: float = parameter(3600.0, "length of your windows, seconds", above=0)
    own_read_rate: float = parameter(
        100.0, "samples per second that your source hands out, live ones included", above=0
    )
    own_failures: float = parameter(10.0, "failures of your workers per month", least=0)
    own_t_sla_s: float = parameter(60.0, "longest outage that you accept, seconds", above=0)
    seed: int = parameter(1, "of the schedule of kills", least=0)

    @model_validator(mode="after")
    def fit_together(self) -> Self:
        """Refuse parameters with which the notebook could not run to its end."""
        for name in ("windows", "rates"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name} must differ, got {values}: give each once")
        if SENSORS % self.workers:
            raise ValueError(
                f"workers must divide the {SENSORS} sensors, got {self.workers}: give 2, 3, 4, 6 "
                "or 12"
            )
        needed = self.learned + streamed_windows(self.schedule)
        available = STEPS // max(self.windows)
        if needed > available:
            raise ValueError(
                f"the data have {available} windows of {max(self.windows)} hours, but learning and "
                f"the kills need {needed}: {FEWER_WINDOWS}"
            )
        return self

    @property
    def schedule(self) -> list[Kill]:
        """The kills, the same for every scheme and window."""
        return draw_schedule(self.rates, self.kills, self.workers, self.seed)

    def read_case(self, width: int, everything: bool = False) -> Case:
        """Return Beijing's PM2.5 as a case with windows of `width` hours.

        ε is `epsilon_sd` times the median standard deviation of the sensors' window means. The
        model is fitted to the first `learned` windows. Of the later ones, those without a gap are
        streamed: as many as the schedule needs, or all if `everything`. ValueError when there are
        too few.
        """
        table = pd.read_parquet(beijing_pm25())
        samples = table.to_numpy(dtype=float)
        every = samples[: len(samples) // width * width].reshape(-1, width, SENSORS)
        later = every[self.learned :]
        later = later[np.isfinite(later).all(axis=(1, 2))]
        needed = streamed_windows(self.schedule)
        if len(later) < needed:
            raise ValueError(
                f"the data have {len(later)} windows of {width} hours without a gap after the "
                f"first {self.learned}, but the kills need {needed}: {FEWER_WINDOWS}"
            )
        streamed = later if everything else later[:needed]
        values = np.concatenate([*every[: self.learned], *streamed])
        windows = Windows(width, width)
        means, _ = windows.aggregate(values, 0, range(self.learned))
        model = GaussianModel.fit(pd.DataFrame(means, columns=table.columns), missing="estimate")
        deviation = float(np.median(np.sqrt(model.covariance.diagonal())))
        requirement = Requirement(self.epsilon_sd * deviation, self.delta)
        return Case(values, model, windows, self.workers, requirement, self.learned, self.budget)

    @property
    def operation(self) -> Operation:
        """The user's own numbers."""
        return Operation(
            sensors=self.own_sensors,
            samples_per_s=self.own_samples_per_s,
            window_s=self.own_window_s,
            read_rate=self.own_read_rate,
            failures_per_month=self.own_failures,
        )


@dataclass(frozen=True)
class Measurements:
    """All schemes under the same kills, and without any.

    Each frame has the columns scheme and width, the hours of a window. `recoveries` has one row per
    kill before a window's end: rate and the columns of `recoveries.Coordinator.process`. `outcomes`
    has one row per scheme and width: kills; lost, doubled; wrong: results that are not exact and
    not marked as estimates; estimated; within: the share of the estimates within ε; added_ms: the
    mean time that the scheme adds to a window while nothing fails; additions: the checkpoints or
    updates in it, for that time. `accuracy` has the rows of `accuracy.score_schemes`, `thresholds`
    those of `accuracy.score_thresholds`, and `normal` those of `normal.normal_operation` in the
    longest windows.
    """

    recoveries: pd.DataFrame
    outcomes: pd.DataFrame
    accuracy: pd.DataFrame
    thresholds: pd.DataFrame
    normal: pd.DataFrame
    sample_s: float
    case: Case  # of the longest windows
    checkpoints: int  # of D2 per window, in the longest windows

    @cached_property
    def costs(self) -> dict[str, RecoveryCosts]:
        """Constants of the cost model, by scheme."""
        return measured_costs(self.recoveries, self.sample_s)

    @cached_property
    def points(self) -> pd.DataFrame:
        """Measured and predicted time of each scheme, window and rate."""
        return compare_with_model(self.recoveries, self.costs)

    @cached_property
    def ratios(self) -> pd.DataFrame:
        """Time of each approximate recovery over that of the exact one; predicted, too."""
        return compare_with_exact(self.recoveries, self.points)

    @cached_property
    def break_even(self) -> pd.DataFrame:
        """Predicted and measured break-even rates."""
        return break_evens(self.recoveries)

    @cached_property
    def spark(self) -> StoredSpark | None:
        """The stored cost of D1 on Spark; None if nothing is stored."""
        return StoredSpark.read()


def measure(p: NotebookParameters, directory: Path) -> Measurements:
    """Run every scheme over every window length; `directory` must be new.

    Processes are forked from a server, so a script must guard its main code by ``if __name__ ==
    "__main__":``, as `multiprocessing` requires.
    """
    recoveries = list[pd.DataFrame]()
    outcomes = list[dict[str, Any]]()
    accuracy = list[pd.DataFrame]()
    thresholds = list[pd.DataFrame]()
    for width in sorted(p.windows):
        case = p.read_case(width)
        for number, scheme in enumerate(all_schemes()):
            place = directory / f"{width}-{number}"
            kills, outcome = measure_scheme(case, scheme, p.schedule, place)
            recoveries.append(kills)
            outcomes.append(outcome)
        thresholds.append(score_thresholds(case, p.schedule))
        accuracy.append(score_schemes(p.read_case(width, everything=True), p.seed))
    longest = p.read_case(max(p.windows))
    return Measurements(
        recoveries=pd.concat(recoveries, ignore_index=True),
        outcomes=pd.DataFrame(outcomes),
        accuracy=pd.concat(accuracy, ignore_index=True),
        thresholds=pd.concat(thresholds, ignore_index=True),
        normal=normal_operation(longest, directory / "normal", TURNS_PER_KILL * p.kills),
        sample_s=time_sample(longest, directory / "log"),
        case=longest,
        checkpoints=len(replay_query(longest).first_plan.times) - 1,
    )


def measure_scheme(
    case: Case, scheme: str, schedule: Sequence[Kill], directory: Path
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Stream a case under a schedule; return its rows of `recoveries`, and that of `outcomes`."""
    rows, results = stream_case(case, scheme, schedule, directory)
    about: dict[str, Any] = {"scheme": scheme, "width": case.windows.width}
    kills = rows[rows["rate"].notna() & (rows["window"] > 0)]
    kills = kills[~kills["emitted"].astype(bool)].assign(**about)
    undisturbed = rows[rows["rate"].isna()]
    if scheme in BY_PROCESS:  # a window's last checkpoint has its result, and is not added
        additions = len(replay_query(case).first_plan.times) - 2
        added_s = undisturbed["commit_s"].mean() * additions
    else:
        additions = 1
        added_s = undisturbed["estimate_s"].mean()
    costs = {"added_ms": 1e3 * added_s, "additions": additions}
    return kills, about | costs | {"kills": len(schedule)} | score_results(case, results)


def stream_case(
    case: Case, scheme: str, schedule: Sequence[Kill], directory: Path
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Stream a case by one of `all_schemes` under a schedule of kills; `directory` must be new.

    Return the frames of `recoveries.recover_workers`.
    """
    if scheme in BY_PROCESS:
        replays_all = scheme == EXACT_PROCESS
        return recover_partially(case, directory, schedule, replays_all=replays_all)
    estimator = SCHEMES[scheme](case) if scheme in SCHEMES else None
    return recover_workers(
        case, directory, schedule, estimator=estimator, replays=scheme != NOTHING
    )


def time_sample(case: Case, directory: Path) -> float:
    """Return the seconds to read one sample of a case's log."""
    log = case.write_log(directory)
    begin = time.perf_counter()
    log.read(None, 0, log.steps)
    return (time.perf_counter() - begin) / case.truth.size / case.windows.width


def score_results(case: Case, results: pd.DataFrame) -> dict[str, float]:
    """Count the results that are lost, doubled (written again), wrong and estimated."""
    truth = case.truth[results["window"], results["sensor"]]
    off = np.abs(results["value"].to_numpy() - truth)
    estimated = results["estimated"].to_numpy(bool)
    distinct = len(results.drop_duplicates(["window", "sensor"]))
    within = off[estimated] <= case.requirement.epsilon
    return {
        "lost": case.truth.size - distinct,
        "doubled": int(results["writes"].sum()) - distinct,
        "wrong": int((off[~estimated] > 1e-9 * (1 + np.abs(truth[~estimated]))).sum()),
        "estimated": int(estimated.sum()),
        "within": float(within.mean()) if within.size else np.nan,
    }
