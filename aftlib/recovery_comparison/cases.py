"""One stream of sensors with its guarantee, and the kills in it."""

from __future__ import annotations

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
