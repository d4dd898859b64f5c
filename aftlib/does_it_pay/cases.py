"""The streams that are measured: sensors, windows, workers, and the guarantee of estimates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.approximately_once.assignment import Assignment, assign_spread
from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.plan import RecoveryTime
from aftlib.core.datasets import read_table
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model, draw
from aftlib.core.paths import beijing_pm25
from aftlib.core.readlimit import ReadLimit
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows

BLOCKS, COVARIANCE = 3, 0.9
REAL, GENERATED = "beijing", "generated"
SAMPLES = RecoveryTime(0, 1)
"""Counts samples instead of milliseconds: T_SLA is then the number that may be read again."""


CREDIT_S = 1e-3
"""Credit of the limit: enough for a thread that wakes late, too little to hide other work."""


def slow_archive(rate: float) -> ReadLimit:
    """Limit repeated reads only; reads unused while a replacement starts are not granted later."""
    return ReadLimit(rate, again_only=True, burst_s=CREDIT_S)


@dataclass(frozen=True, eq=False)
class Case:
    """One stream, its workers, and the guarantee of its estimates."""

    values: np.ndarray  # samples, shape (steps, n), NaN where one is missing
    model: GaussianModel  # of the windows' means
    windows: Windows  # tumbling
    workers: int
    requirement: Requirement
    learned: int  # windows before the first failure: the guard learns from them
    budget: float  # share of a window's samples that D2 may read again

    @cached_property
    def assignment(self) -> Assignment:
        """Sensors of each worker."""
        return assign_spread(self.model, self.workers, self.requirement)

    @property
    def lost_samples(self) -> int:
        """Samples of one window that the last worker has in its memory."""
        return self.windows.width * len(self.assignment.workers[-1])

    @cached_property
    def truth(self) -> np.ndarray:
        """Means of the windows' samples, shape (windows, n)."""
        return self.windows.aggregate(self.values, 0, self._all_windows)[0]

    @property
    def _all_windows(self) -> range:
        return self.windows.ending_in(0, len(self.values))

    def write_log(self, directory: Path) -> SensorLog:
        """Write the samples as a separate log, whose reads are limited and counted."""
        return SensorLog.write(directory, self.values, self.model.names)

    def replay_query(self, method: str) -> ReplayQuery:
        """Return D2's query by a method; "exactly-once" gets the checkpoints of "proposed".

        So these two differ only in the samples that they read again and estimate. The model of one
        step is chosen so that windows have the case's model, even if steps depend on each other.
        """
        width, model = self.windows.width, self.model
        step = GaussianModel(model.mean, model.covariance * width, model.names)
        common = step, width, self.requirement, SAMPLES
        if method == "exactly-once":
            times = self.replay_query("proposed").first_plan.times
            return ReplayQuery(*common, width * model.size, method, times=times)
        budget = max(model.size, int(self.budget * width * model.size))
        return ReplayQuery(*common, budget, method)

    def after_learning(self) -> Case:
        """The same stream without the windows that the guard learns from."""
        return replace(self, values=self.values[self.learned * self.windows.width :], learned=0)


def make_case(
    data: str,
    *,
    sensors: int,
    width: int,
    workers: int,
    learned: int,
    measured: int,
    epsilon_sd: float,
    delta: float,
    budget: float,
    seed: int,
) -> Case:
    """Return a stream of `learned` + `measured` windows, with its workers and guarantee.

    `data` is "beijing", "generated", or a file of sensors with one row per time and one column per
    sensor. Each sensor's window means have a standard deviation; ε is `epsilon_sd` times its median
    over the sensors. The model of real sensors is fitted to the first `learned` windows. ValueError
    when there is no such file, or the stream is too short.
    """
    windows = Windows(width, width)
    if data == GENERATED:
        step = block_model(sensors, BLOCKS, covariance=COVARIANCE)
        values, model = draw(step, (learned + measured) * width, seed), step.aggregate(width)
    else:
        if data != REAL and not Path(data).is_file():
            raise ValueError(
                f"data must be {REAL!r}, {GENERATED!r} or a CSV or Parquet file, got {data!r}"
            )
        table = read_table(beijing_pm25() if data == REAL else data)
        if sensors > len(table.names):
            raise ValueError(
                f"sensors must be at most the {len(table.names)} of data = {data!r}, got {sensors}"
            )
        values = whole_windows(table.values[:, :sensors], width, learned, measured)
        means, _ = windows.aggregate(values, 0, range(learned))
        frame = pd.DataFrame(means, columns=table.names[:sensors])
        model = GaussianModel.fit(frame, missing="estimate")
    deviation = float(np.median(np.sqrt(model.covariance.diagonal())))
    requirement = Requirement(epsilon_sd * deviation, delta)
    return Case(values, model, windows, workers, requirement, learned, budget)


def whole_windows(values: np.ndarray, width: int, learned: int, measured: int) -> np.ndarray:
    """Samples of the first `learned` windows, and of the next `measured` ones without a gap.

    Nothing is filled in: later windows in which a sample is missing are left out. ValueError when
    there are too few.
    """
    windows = values[: len(values) // width * width].reshape(-1, width, values.shape[1])
    later = windows[learned:]
    later = later[np.isfinite(later).all(axis=(1, 2))]
    if len(later) < measured:
        raise ValueError(
            f"data must hold {measured} windows of {width} steps without a gap after the first "
            f"{learned}, got {len(later)}: take fewer repeats or calm windows, shorter windows, or "
            f"data={GENERATED!r}"
        )
    return np.concatenate([*windows[:learned], *later[:measured]])
