"""The streams that are measured: sensors, workers, guarantee of estimates, schedule of kills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.approximately_once.assignment import Assignment, assign_spread
from aftlib.core.gaussian import GaussianModel
from aftlib.core.paths import beijing_pm25
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows


@dataclass(frozen=True)
class Kill:
    """One SIGKILL in a window, and the rate at which the replacement reads again."""

    window: int
    worker: int
    rate: float  # samples per second; infinite if reading is not limited
    emitted: bool = False  # whether it hits after the window is emitted, or just before its end


@dataclass(frozen=True, eq=False)
class Case:
    """One stream of sensors, its workers, and the guarantee of its estimates."""

    values: np.ndarray  # samples, shape (steps, n); after the learned windows none is missing
    model: GaussianModel  # of the windows' means
    windows: Windows  # tumbling
    workers: int
    requirement: Requirement
    learned: int  # windows before the first one that is streamed
    budget: float  # share of a window's samples that D2 may read again

    @cached_property
    def assignment(self) -> Assignment:
        """Sensors of each worker."""
        return assign_spread(self.model, self.workers, self.requirement)

    @cached_property
    def history(self) -> np.ndarray:
        """Means of the learned windows, shape (learned, n), NaN where all samples are missing."""
        return self.windows.aggregate(self.values, 0, range(self.learned))[0]

    @cached_property
    def truth(self) -> np.ndarray:
        """Means of the streamed windows, shape (windows, n)."""
        streamed = self.values[self.learned * self.windows.width :]
        return streamed.reshape(-1, self.windows.width, self.model.size).mean(axis=1)

    def write_log(self, directory: Path) -> SensorLog:
        """Write the samples of the streamed windows, from which replacements read again."""
        streamed = self.values[self.learned * self.windows.width :]
        return SensorLog.write(directory, streamed, self.model.names)


def read_case(
    width: int,
    *,
    workers: int,
    learned: int,
    streamed: int,
    epsilon_sd: float,
    delta: float,
    budget: float,
) -> Case:
    """Return Beijing's PM2.5 as a case with windows of `width` steps.

    ε is `epsilon_sd` times the median standard deviation of the sensors' window means. The model is
    fitted to the first `learned` windows. Of the later windows, the first `streamed` ones without a
    gap are streamed; nothing is filled in. ValueError when there are too few.
    """
    table = pd.read_parquet(beijing_pm25())
    samples, n = table.to_numpy(dtype=float), table.shape[1]
    every = samples[: len(samples) // width * width].reshape(-1, width, n)
    later = every[learned:]
    later = later[np.isfinite(later).all(axis=(1, 2))]
    if len(later) < streamed:
        raise ValueError(
            f"the data have {len(later)} windows of {width} steps without a gap after the first "
            f"{learned}, but the kills need {streamed}: give fewer kills or rates"
        )
    values = np.concatenate([*every[:learned], *later[:streamed]])
    windows = Windows(width, width)
    means, _ = windows.aggregate(values, 0, range(learned))
    model = GaussianModel.fit(pd.DataFrame(means, columns=table.columns), missing="estimate")
    deviation = float(np.median(np.sqrt(model.covariance.diagonal())))
    requirement = Requirement(epsilon_sd * deviation, delta)
    return Case(values, model, windows, workers, requirement, learned, budget)


def draw_schedule(rates: Sequence[float], kills: int, workers: int, seed: int) -> list[Kill]:
    """Draw the kills of a stream: `kills` per rate and without a limit, in random order.

    As many more hit after their window is emitted. Every second window has a kill; the first kill,
    which no result counts, warms up.
    """
    rng = np.random.default_rng(seed)
    points = [(rate, False) for rate in (*rates, np.inf)] + [(np.inf, True)]
    drawn = [(np.inf, False)]
    for _ in range(kills):
        drawn += [points[i] for i in rng.permutation(len(points))]
    return [
        Kill(2 * number, int(rng.integers(workers)), rate, emitted)
        for number, (rate, emitted) in enumerate(drawn)
    ]
