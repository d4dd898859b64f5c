"""The schemes of recovery, by name; `SCHEMES` takes further ones.

D1's workers recover nothing, replay exactly, or estimate by one of `SCHEMES`. D2's process reads
few sensors again; the exact process takes the same checkpoints, but reads all sensors again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from aftlib.guard import Guard
from aftlib.guard.known import KnownModel
from aftlib.recovery_comparison.cases import Case

NOTHING = "nothing"
EXACT = "exact replay"
MODEL = "D1 by model"
GUARD = "D1 by guard"
LAST = "last value"
EXACT_PROCESS = "exact replay, D2's checkpoints"
PARTIAL = "D2"
BY_PROCESS = (EXACT_PROCESS, PARTIAL)
"""Schemes of D2's process; the others run in D1's workers."""


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
