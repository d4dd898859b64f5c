"""One stream of sensors with its guarantee, and the schedule of the kills in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.documents.approximately_once.assignment import Assignment, assign_spread


@dataclass(frozen=True)
class Kill:
    """One SIGKILL in a window, and the rate at which the replacement reads again."""

    window: int
    worker: int
    rate: float  # samples per second; infinite if reading is not limited
    emitted: bool = False  # whether it hits after the window is emitted, or just before its end


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


def streamed_windows(schedule: Sequence[Kill]) -> int:
    """Return how many windows a schedule needs: one without a kill follows the last."""
    return schedule[-1].window + 2


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

    @property
    def streamed(self) -> np.ndarray:
        """Samples of the streamed windows, shape (steps, n)."""
        return self.values[self.learned * self.windows.width :]

    @cached_property
    def history(self) -> np.ndarray:
        """Means of the learned windows, shape (learned, n), NaN where all samples are missing."""
        return self.windows.aggregate(self.values, 0, range(self.learned))[0]

    @cached_property
    def truth(self) -> np.ndarray:
        """Means of the streamed windows, shape (windows, n)."""
        return self.streamed.reshape(-1, self.windows.width, self.model.size).mean(axis=1)

    def write_log(self, directory: Path) -> SensorLog:
        """Write the samples of the streamed windows, from which replacements read again."""
        return SensorLog.write(directory, self.streamed, self.model.names)
