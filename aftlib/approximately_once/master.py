"""The master of approximately-once recovery: it holds windows and estimates lost ones (D1 §4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from aftlib.approximately_once.assignment import Assignment
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement


@dataclass(frozen=True)
class Outage:
    """A worker that was down: its input of the steps [failure, recovery) is gone.

    Attributes
    ----------
    worker : int
        Index in the assignment.
    failure, recovery : int
        Steps.
    dead_pid, substitute_pid : int or None
        Processes before and after.
    """

    worker: int
    failure: int
    recovery: int
    dead_pid: int | None = None
    substitute_pid: int | None = None


@dataclass(frozen=True)
class Estimate:
    """Estimated aggregates of one worker in one window.

    Attributes
    ----------
    window, worker : int
    keys : tuple of int
        Key indices.
    value, half_width : ndarray, shape (len(keys),)
        Posterior means and the half-widths that hold with probability 1 − δ, sensor units.
    """

    window: int
    worker: int
    keys: tuple[int, ...]
    value: np.ndarray
    half_width: np.ndarray


@dataclass
class Master:
    """Windows of all workers, until each is finished.

    The numbers are the steps of the document's recovery protocol. Invariant: `held` has a window
    only while some worker owes it.

    Parameters
    ----------
    model : GaussianModel
        Model of the n keys' window aggregates.
    assignment : Assignment
    requirement : Requirement
    """

    model: GaussianModel
    assignment: Assignment
    requirement: Requirement
    held: dict[int, np.ndarray] = field(default_factory=dict)
    _owing: dict[int, set[int]] = field(default_factory=dict)
    _solved: dict[tuple[int, bytes], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def receive(self, window: int, worker: int, values: np.ndarray) -> None:
        """(1) Take what a worker sent to the sink as well; (2) drop the window when all are done.

        `values` has one aggregate a key of the worker, NaN where none could be computed.
        """
        self.expect(window)
        self.held[window][list(self.assignment.workers[worker])] = values
        self._owing[window].discard(worker)
        if not self._owing[window]:
            del self.held[window], self._owing[window]

    def expect(self, window: int) -> None:
        """(3) A substitute tells of a window that its predecessor took with it: it stays owed."""
        self.held.setdefault(window, np.full(self.model.size, np.nan))
        self._owing.setdefault(window, set(range(len(self.assignment.workers))))

    def estimate(self, window: int) -> list[Estimate]:
        """(4) Estimate what the workers that still owe the window lost, from all the others.

        The window is finished by that and dropped; (5) recovery ends with the last such window.
        """
        row, estimates = self.held.pop(window), []
        seen = np.isfinite(row)
        observed, pattern = np.flatnonzero(seen), seen.tobytes()
        for worker in sorted(self._owing.pop(window)):
            keys = self.assignment.workers[worker]
            if (worker, pattern) not in self._solved:  # most windows lack the same keys
                variance = self.model.posterior_variance(observed)[list(keys)]
                gain = self.model.gain(observed, keys)
                self._solved[worker, pattern] = gain, self.requirement.half_width(variance)
            gain, half_width = self._solved[worker, pattern]
            value = self.model.mean[list(keys)] + gain @ (row - self.model.mean)[observed]
            estimates.append(Estimate(window, worker, keys, value, half_width))
        return estimates

    @property
    def damaged(self) -> Sequence[int]:
        """Windows that some worker owes, oldest first."""
        return sorted(self.held)
