"""The coordinator: it holds windows and estimates lost ones, by model or by guard (D1 §4.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import InitVar, dataclass, field, replace

import numpy as np

from aftlib.approximately_once.assignment import Assignment
from aftlib.core.arrays import pack_arrays, unpack_arrays
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.windows import Windows
from aftlib.guard import Guard
from aftlib.guard.accounts import Audit, Estimates

Read = Callable[[int, Sequence[int]], tuple[np.ndarray, np.ndarray]]
"""Function that reads aggregates and numbers of samples of a window's keys from the log."""


@dataclass(frozen=True)
class Lost:
    """One worker's aggregates of a window that it lost, one per key, for the sink."""

    worker: int
    keys: tuple[int, ...]
    value: np.ndarray
    half_width: np.ndarray  # NaN where read again
    samples: np.ndarray
    estimated: np.ndarray  # bool; the others were read again

    def with_read(self, window: int, read: Read) -> Lost:
        """Return the results; those of keys that are not estimated are read again by `read`."""
        value, samples, again = self.value.copy(), self.samples.copy(), ~self.estimated
        if again.any():
            value[again], samples[again] = read(window, np.array(self.keys)[again].tolist())
        half_width = np.where(again, np.nan, self.half_width)
        return replace(self, value=value, half_width=half_width, samples=samples)


@dataclass
class Coordinator:
    """The coordinator: it holds windows of all workers until each window is finished.

    (1) … (5) are the steps of the document's recovery protocol. Invariant: `held` has a window
    only while some worker has not sent it.

    Notes
    -----
    An aggregate over c of a window's L samples is the window's aggregate plus noise. Steps are
    independent, so the noise of keys i and j has the covariance Σ_ij (L o / (c_i c_j) − 1), where o
    counts the steps at which both have samples. The noise is not correlated with the aggregates.
    The gain is optimal for o = min(c_i, c_j), which is the case if samples go missing together. The
    half-width holds for every o.
    """

    model: GaussianModel  # of the n keys' window aggregates
    assignment: Assignment
    requirement: Requirement
    windows: Windows = Windows(1, 1)  # a window is complete with as many samples as their width
    held: dict[int, np.ndarray] = field(default_factory=dict)
    _samples: dict[int, np.ndarray] = field(default_factory=dict)
    _missing: dict[int, set[int]] = field(default_factory=dict)
    _solved: dict[tuple[int, bytes], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def receive(
        self, window: int, worker: int, values: np.ndarray, samples: np.ndarray | None = None
    ) -> None:
        """(1) Store a worker's results, here and in the sink; (2) drop complete windows.

        `values` has one aggregate per key of the worker, NaN where none could be computed.
        `samples` has the number of samples of each; by default no sample is missing.
        """
        self.expect(window)
        keys = list(self.assignment.workers[worker])
        self.held[window][keys] = values
        self._samples[window][keys] = self.windows.width if samples is None else samples
        self._missing[window].discard(worker)
        if not self._missing[window]:
            self._take(window)

    def expect(self, window: int) -> None:
        """(3) Expect a window that a replacement reports as lost."""
        self.held.setdefault(window, np.full(self.model.size, np.nan))
        self._samples.setdefault(window, np.zeros(self.model.size, dtype=np.int64))
        self._missing.setdefault(window, set(range(len(self.assignment.workers))))

    def estimate(self, window: int) -> list[Lost]:
        """(4) Estimate the lost results of workers that have not sent the window, from all others.

        Values are posterior means, and their errors are within the half-widths with probability
        1 − δ. A worker's estimates are used if every half-width is at most ε. A half-width is
        larger if the other workers' windows miss too many samples. The estimated window is dropped.
        (5) Recovery ends with the last such window.
        """
        row, samples, missing = self._take(window)
        samples = np.where(np.isfinite(row), samples, 0)
        observed = np.flatnonzero(samples)
        row = self.windows.aggregation.extrapolate(row, samples, self.windows.width)

        estimates = []
        for worker in sorted(missing):
            keys, pattern = self.assignment.workers[worker], (worker, samples.tobytes())
            if pattern not in self._solved:  # most windows lack the same samples
                self._solved[pattern] = self._solve(keys, observed, samples[observed])
            gain, half_width = self._solved[pattern]
            value = self.model.mean[list(keys)] + gain @ (row - self.model.mean)[observed]
            good = np.full(len(keys), (half_width <= self.requirement.epsilon).all())
            estimates.append(Lost(worker, keys, value, half_width, np.zeros(len(keys), int), good))
        return estimates

    def recover(self, window: int, read: Read) -> list[Lost]:
        """(4) As `estimate`, but read the results of workers with a half-width above ε again."""
        return [lost.with_read(window, read) for lost in self.estimate(window)]

    def settle(self) -> None:
        """Finish a micro-batch, all of whose windows were received or recovered."""

    def audit(self, read: Read) -> None:
        """Compare earlier estimates with the log; without a guard nothing is compared."""

    def to_bytes(self) -> bytes:
        """State that must be stored with a micro-batch: none."""
        return b""

    @property
    def next(self) -> int:
        """First window that is not settled; earlier ones are not received again."""
        return 0

    @property
    def audited(self) -> Audit | None:
        """Result of the audit."""
        return None

    @property
    def damaged(self) -> Sequence[int]:
        """Windows that some worker has not sent, oldest first."""
        return sorted(self.held)

    def _take(self, window: int) -> tuple[np.ndarray, np.ndarray, set[int]]:
        return self.held.pop(window), self._samples.pop(window), self._missing.pop(window)

    def _solve(
        self, keys: Sequence[int], observed: np.ndarray, samples: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gain and half-width of estimates, given the number of samples of each observed key.

        Complete windows have no noise, so `GaussianModel.conditional` conditions on them first.
        Then only the windows that miss samples are left to be solved for.
        """
        w, width, full = len(keys), self.windows.width, samples == self.windows.width
        partial, counts = observed[~full], samples[~full]
        by_full, left = self.model.conditional(observed[full], [*keys, *partial])
        known, across, among = left[:w, :w], left[:w, w:], left[w:, w:]

        sigma = self.model.covariance[np.ix_(partial, partial)]
        either, both = np.maximum.outer(counts, counts), np.multiply.outer(counts, counts)
        together = sigma * (width / either - 1)
        by_partial = np.linalg.solve(among + together, across.T).T
        gain = np.empty((w, len(observed)))
        gain[:, full], gain[:, ~full] = by_full[:w] - by_partial @ by_full[w:], by_partial
        explained = np.einsum("ij,ij->i", 2 * across - by_partial @ among, by_partial)

        # take the larger noise of the fewest and the most steps that two keys may have in common
        least = np.maximum(0, np.add.outer(counts, counts) - width)
        np.fill_diagonal(least, counts)
        apart = sigma * (width * least / both - 1)
        worse = (np.maximum(np.outer(g, g) * together, np.outer(g, g) * apart) for g in by_partial)
        noise = [terms.sum() for terms in worse]
        variance = np.maximum(np.diag(known) - explained + noise, 0)
        return gain, self.requirement.half_width(variance)


@dataclass
class GuardedCoordinator(Coordinator):
    """A coordinator that estimates the sensors that were certified before they were lost.

    Windows go to the guard in order, one per round, as soon as all earlier windows are whole. A
    lost sensor is estimated if the guard had certified it for an outage of this length; the guard
    gets no value for it. Any other lost sensor is read again, and the guard gets its value, so that
    its next window may be certified again.

    Estimates after real failures have an audited account of their own (`guard.accounts`). A sensor
    is only estimated while that account permits it, too.
    """

    seasons: Sequence[float] = ()
    state: InitVar[bytes] = b""
    _whole: dict[int, np.ndarray] = field(default_factory=dict)  # not yet fed to the guard

    def __post_init__(self, state: bytes) -> None:
        """Restore the coordinator that wrote `state`, or begin without a state."""
        epsilon, delta = self.requirement.epsilon, self.requirement.delta
        self.guard = Guard(self.assignment.workers, epsilon, delta, seasons=self.seasons)
        self.estimates = Estimates(self.model.size, delta, "windows")
        if state:
            fields = unpack_arrays(state)
            self.guard = Guard.from_bytes(fields["guard"].tobytes())
            self.estimates.restore(fields)

    @property
    def next(self) -> int:
        """First window that is not settled: all windows before it went to the guard."""
        return self.guard.rounds

    def recover(self, window: int, read: Read) -> list[Lost]:
        """(4) Return every lost aggregate of the window: estimated if certified, or read again."""
        row, _, missing = self._take(window)
        self._feed(window)
        lost = np.isin(self.assignment.worker_of, list(missing))
        trial = deepcopy(self.guard)  # the guard itself gets this window after lost keys are read
        history = trial.update(row)
        certified = lost & history.declared[0]
        estimated = self.estimates.certify((window,), certified, history.estimate[0])

        results = []
        for worker in sorted(missing):
            keys = self.assignment.workers[worker]
            here = np.array(keys)
            value, half_width = history.estimate[0, here], history.half_width[0, here]
            part = Lost(worker, keys, value, half_width, np.zeros(len(keys), int), estimated[here])
            results.append(part := part.with_read(window, read))
            row[here] = np.where(part.estimated, np.nan, part.value)
        self._whole[window] = row
        return results

    def settle(self) -> None:
        """Feed the guard all windows of the micro-batch."""
        self._feed(max(self._whole, default=self.next - 1) + 1)

    def audit(self, read: Read) -> None:
        """Compare the estimates with the log, and enter the errors into the account, in order."""

        def off(place: tuple[int, ...], keys: list[int], estimate: np.ndarray) -> np.ndarray:
            return np.abs(estimate - read(place[0], keys)[0])

        self.estimates.audit(off, np.full(self.model.size, self.requirement.epsilon))

    @property
    def audited(self) -> Audit:
        """The account of real failures so far."""
        return self.estimates.audited

    def to_bytes(self) -> bytes:
        """Guard, account and open estimates, to be committed with the windows."""
        guard = np.frombuffer(self.guard.to_bytes(), np.uint8)
        return pack_arrays(guard=guard, **self.estimates.arrays())

    def _feed(self, until: int) -> None:
        """Give the guard the windows before `until` in order; all of them are whole."""
        rows = [self._whole.pop(window) for window in range(self.next, until)]
        if rows:
            self.guard.update(np.array(rows))

    def _take(self, window: int) -> tuple[np.ndarray, np.ndarray, set[int]]:
        taken = super()._take(window)
        if not taken[2]:
            self._whole[window] = taken[0]
        return taken
