"""The schemes of recovery, by name, and the `Case` that each gets; `SCHEMES` takes further ones.

D1's workers recover nothing, replay exactly, or estimate by one of `SCHEMES`. D2's process reads
few sensors again; the exact process takes the same checkpoints, but reads all sensors again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.documents.approximately_once.assignment import Assignment, assign_spread
from aftlib.guard.guard import Guard
from aftlib.guard.known import KnownModel

NOTHING = "nothing"
EXACT = "exact replay"
MODEL = "D1 by model"
GUARD = "D1 by guard"
LAST = "last value"
EXACT_PROCESS = "exact replay, D2's checkpoints"
PARTIAL = "D2"
BY_PROCESS = (EXACT_PROCESS, PARTIAL)
"""Schemes of D2's process; the others run in D1's workers."""


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


class SchemeEstimator(Protocol):
    """An object by which a scheme of D1's workers estimates lost windows."""

    @property
    def recoverable(self) -> np.ndarray:
        """Whether a loss that begins now is estimated, shape (H, n); row 0 decides."""

    def update(self, windows: np.ndarray) -> Any:
        """Learn one window, shape (n,), NaN where a result is lost.

        Return an object whose `estimate`, shape (1, n), has a number for each lost result.
        """


class LastValue:
    """Estimate a lost result by the sensor's last one, without a model.

    It certifies every sensor and guarantees nothing.

    Parameters
    ----------
    history
        Results of earlier windows, shape (windows, n), NaN where one is missing.
    """

    def __init__(self, history: np.ndarray) -> None:
        self.recoverable = np.ones((1, history.shape[1]), bool)
        self.last = np.nanmean(history, axis=0)
        self.update(history[-1])

    def update(self, windows: np.ndarray) -> LastValue:
        """Keep a window's results, shape (n,); those that are missing stay the last ones."""
        self.last = np.where(np.isnan(windows), self.last, windows)
        return self

    @property
    def estimate(self) -> np.ndarray:
        """The last results, shape (1, n)."""
        return self.last[None, :]


def known_model(case: Case) -> KnownModel:
    """Return D1's estimator, which knows the model of the learned windows."""
    requirement = case.requirement
    workers = case.assignment.workers
    return KnownModel(case.model, workers, requirement.epsilon, requirement.delta)


def learned_guard(case: Case) -> Guard:
    """Return a guard that has seen the learned windows."""
    guard = Guard(case.assignment.workers, case.requirement.epsilon, case.requirement.delta)
    guard.update(case.history)
    return guard


SCHEMES: dict[str, Callable[[Case], SchemeEstimator]] = {
    MODEL: known_model,
    GUARD: learned_guard,
    LAST: lambda case: LastValue(case.history),
}
"""The schemes that estimate in D1's workers, each with a function from a case to its estimator.

A scheme that is added, also in a notebook, is killed, timed, scored and drawn like the others.
"""


def all_schemes() -> list[str]:
    """Return the names of all schemes: those of D1's workers, then those of D2's process."""
    return [NOTHING, EXACT, *SCHEMES, *BY_PROCESS]


def exact_of(scheme: str) -> str | None:
    """Return the exact scheme that loses the same memory; None if `scheme` estimates nothing."""
    if scheme == PARTIAL:
        return EXACT_PROCESS
    return None if scheme in (NOTHING, EXACT, EXACT_PROCESS) else EXACT
