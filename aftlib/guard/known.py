"""Estimation with a known Gaussian model, as in D1, behind the interface of `Guard`."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.guard.estimator import Recovered, Rules, require_measured

MOST_BYTES = 2**26
"""Memory for the solved sets of missing sensors: some 800 of them with n = 200."""


class GainTable:
    """The gains and half-widths of a model, which several estimators may share.

    It solves D1 eqs (1) and (2) for a set of missing sensors, and keeps the results in at most
    `MOST_BYTES`; the set that was not needed for the longest time goes first. Nothing else in it
    changes, so copies of an estimator share it, and so may threads.
    """

    def __init__(self, model: GaussianModel, rules: Rules) -> None:
        self.model = model
        self.rules = rules
        limits = rules.epsilon
        self._requirement = Requirement(1.0, rules.delta)  # of errors in units of ε
        self.shadow_gain = np.zeros((model.size, model.size))  # of each sensor, from other workers'
        estimable = []
        for worker in range(rules.workers.max() + 1):
            own = np.flatnonzero(rules.workers == worker)
            others = np.flatnonzero(rules.workers != worker)
            gain, covariance = model.conditional(others, own)
            self.shadow_gain[np.ix_(own, others)] = gain
            variance = np.maximum(np.diag(covariance), 0) / limits[own] ** 2
            reliability = self._requirement.reliability(variance).min()
            estimable.append(bool(self._requirement.is_met_by(reliability)))
        self.estimable = np.array(estimable)[rules.workers]
        self._solved: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}
        self._bytes = 0
        self._lock = Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the same table, because a copy would compute the same."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the table without what it solved, which is computed again."""
        return vars(self) | {"_solved": {}, "_bytes": 0, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state | {"_lock": Lock()})

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays in memory."""
        return 2 * self.model.covariance.nbytes + self.shadow_gain.nbytes + self._bytes

    def recoverable_after(self, missing: np.ndarray) -> np.ndarray:
        """Return whether a loss of each sensor is certified while those are missing, (rounds, n).

        Its worker must be estimable, and no other worker may be away.
        """
        workers = self.rules.workers
        away = np.zeros((len(missing), workers.max() + 1), bool)
        rounds, sensors = np.nonzero(missing)
        away[rounds, workers[sensors]] = True
        others = away.sum(axis=1, keepdims=True) - away[:, workers]
        recoverable: np.ndarray = self.estimable & (others == 0)
        return recoverable

    def solve(self, missing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the gain from the other sensors to the `missing` ones, and their half-widths."""
        key = missing.tobytes()
        with self._lock:
            solved = self._solved.pop(key, None)
            if solved is not None:
                self._solved[key] = solved  # the newest again
                return solved
        gone = np.flatnonzero(missing)
        gain, covariance = self.model.conditional(np.flatnonzero(~missing), gone)
        limits = self.rules.epsilon[gone]
        variance = np.maximum(np.diag(covariance), 0) / limits**2
        solved = gain, limits * self._requirement.half_width(variance)
        self._keep(key, solved)
        return solved

    def _keep(self, key: bytes, solved: tuple[np.ndarray, np.ndarray]) -> None:
        """Store a result in place of the oldest ones; one that is too large is not stored."""
        size = sum(array.nbytes for array in solved)
        if size > MOST_BYTES:
            return
        with self._lock:
            if key in self._solved:
                return
            while self._bytes + size > MOST_BYTES:
                oldest = next(iter(self._solved))
                self._bytes -= sum(array.nbytes for array in self._solved.pop(oldest))
            self._solved[key] = solved
            self._bytes += size


class KnownModel:
    """Estimate missing windows from the others by D1 eqs (1) and (2); nothing is learned.

    Each missing sensor is estimated, certified or not. It is certified if all missing sensors
    belong to one worker A_i and that worker's reliability R(A_i), the least P(|error| ≤ ε) of its
    sensors given all other workers' (D1 eqs (3) and (7)), is at least 1 − δ. The length of the
    outage does not matter. An estimate's half-width is z·sqrt(variance) with z = Φ⁻¹(1 − δ/2). All
    this holds if the model does.

    Parameters
    ----------
    model : GaussianModel
        Model of the windows' results, with the n sensors in order.
    workers, epsilon, delta, horizons
        As of `Guard`. An outage may be longer than `horizons`.

    Raises
    ------
    ValueError
        When a sensor is missing or repeated, or a number is outside its range.

    Examples
    --------
    >>> model = GaussianModel([18, 19], [[4, 3], [3, 4]], ["kitchen", "hall"])
    >>> known = KnownModel(model, [[0], [1]], epsilon=3.0, delta=0.05)
    >>> lost = known.update([np.nan, 20])
    >>> lost.estimate[0, 0], lost.half_width[0, 0].round(2), lost.certified[0, 0]
    (np.float64(18.75), np.float64(2.59), np.True_)
    """

    def __init__(
        self,
        model: GaussianModel,
        workers: Sequence[Sequence[int]],
        epsilon: ArrayLike,
        delta: float,
        horizons: int = 5,
    ) -> None:
        rules = Rules.check(workers, epsilon, delta, horizons, names=model.names)
        self._begin(GainTable(model, rules))

    @classmethod
    def of_table(cls, table: GainTable) -> Self:
        """Return an estimator that shares a table with others."""
        known = cls.__new__(cls)
        known._begin(table)
        return known

    def _begin(self, table: GainTable) -> None:
        self.table = table
        self._missing = np.zeros(table.model.size, bool)  # of the last window
        self._counts = np.zeros((2, table.model.size))

    @property
    def model(self) -> GaussianModel:
        """The known model."""
        return self.table.model

    @property
    def horizons(self) -> int:
        """Largest number H of windows of an outage that a guarantee covers."""
        return self.table.rules.horizons

    @property
    def recoverable(self) -> np.ndarray:
        """Whether a loss that begins now would be certified, shape (H, n); any length is the same.

        A sensor is not recoverable while another worker is away.
        """
        return np.tile(self.table.recoverable_after(self._missing[None]), (self.horizons, 1))

    @property
    def outcomes(self) -> np.ndarray:
        """Estimates of windows that came, as if lost; the wrong ones; a slack of 0; (3, 1, n)."""
        return np.vstack([self._counts, np.zeros_like(self._counts[:1])])[:, None]

    def update(self, windows: ArrayLike) -> Recovered:
        """Estimate the missing values (NaN) of one window (n,), or of many, (rounds, n)."""
        table = self.table
        mean = table.model.mean
        rows = np.atleast_2d(np.asarray(windows, float))
        require_measured(rows)
        estimate = np.full(rows.shape, np.nan)
        half_width = np.full(rows.shape, np.nan)
        missing = np.isnan(rows)
        incomplete = missing.any(axis=1)
        for r in np.flatnonzero(incomplete):
            gone = missing[r]
            gain, half_width[r, gone] = table.solve(gone)
            estimate[r, gone] = mean[gone] + gain @ (rows[r] - mean)[~gone]
        whole = rows[~incomplete]
        shadow = mean + (whole - mean) @ table.shadow_gain.T
        wrong = (np.abs(shadow - whole) > table.rules.epsilon).sum(axis=0)
        self._counts += table.estimable * np.stack([np.full(wrong.size, len(whole)), wrong])
        self._missing = missing[-1] if len(rows) else self._missing
        return Recovered(estimate, half_width, missing & table.recoverable_after(missing))
