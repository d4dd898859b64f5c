"""Estimation with a known Gaussian model, as in D1, behind the interface of `Guard`."""

from __future__ import annotations

import copy
import zipfile
from collections.abc import Sequence
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.storage import pack_arrays, unpack_arrays
from aftlib.guard.estimator import Recovered, Rules, require_measured

MOST_BYTES = 2**26
"""Memory for the solved sets of missing sensors of a promise: some 800 of them with n = 200."""


class GainTable:
    """The gains and half-widths of a model, which all groups of a promise share.

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

    A missing sensor is certified if all missing sensors belong to one worker A_i and that worker's
    reliability R(A_i), the least P(|error| ≤ ε) of its sensors given all other workers' (D1 eqs (3)
    and (7)), is at least 1 − δ. The length of the outage does not matter. An estimate's half-width
    is z·sqrt(variance) with z = Φ⁻¹(1 − δ/2). All this holds if the model does.

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
        self._table = table
        self._missing = np.zeros(table.model.size, bool)  # of the last window
        self._counts = np.zeros((2, table.model.size))

    def __copy__(self) -> Self:
        """Return an estimator with a state of its own."""
        return copy.deepcopy(self)

    @property
    def model(self) -> GaussianModel:
        """The known model."""
        return self._table.model

    @property
    def horizons(self) -> int:
        """Largest number H of windows of an outage that a guarantee covers."""
        return self._table.rules.horizons

    @property
    def recoverable(self) -> np.ndarray:
        """Whether a loss that begins now would be estimated, shape (H, n); any length is the same.

        A sensor is not recoverable while another worker is away.
        """
        workers = self._table.rules.workers
        away = np.bincount(workers, self._missing) > 0
        others = away.sum() - away[workers]
        return np.tile(self._table.estimable & (others == 0), (self.horizons, 1))

    @property
    def outcomes(self) -> np.ndarray:
        """Estimates of windows that came, as if lost; the wrong ones; a slack of 0; (3, 1, n)."""
        return np.vstack([self._counts, np.zeros_like(self._counts[:1])])[:, None]

    def update(self, windows: ArrayLike) -> Recovered:
        """Estimate the missing values (NaN) of one window (n,), or of many, (rounds, n)."""
        table = self._table
        mean = table.model.mean
        rows = np.atleast_2d(np.asarray(windows, float))
        require_measured(rows)
        estimate = np.full(rows.shape, np.nan)
        half_width = np.full(rows.shape, np.nan)
        certified = np.zeros(rows.shape, bool)
        for r, row in enumerate(rows):
            missing = np.isnan(row)
            if missing.any():
                gain, half_width[r, missing] = table.solve(missing)
                estimate[r, missing] = mean[missing] + gain @ (row - mean)[~missing]
                one_worker = np.ptp(table.rules.workers[missing]) == 0
                certified[r] = missing & table.estimable & one_worker
            else:
                shadow = mean + table.shadow_gain @ (row - mean)
                wrong = np.abs(shadow - row) > table.rules.epsilon
                self._counts += np.stack([table.estimable, table.estimable & wrong])
            self._missing = missing
        return Recovered(estimate, half_width, certified)

    def skip(self, rounds: int) -> None:
        """Process `rounds` windows in which no sensor sent anything."""
        self._missing = self._missing | (rounds > 0)

    @property
    def nbytes(self) -> int:
        """Bytes of the state in memory."""
        return self._missing.nbytes + self._counts.nbytes

    @property
    def shared_nbytes(self) -> int:
        """Bytes of the model and of what was solved with it."""
        return self._table.nbytes

    def to_bytes(self) -> bytes:
        """Return the state; the model is not part of it."""
        return pack_arrays(missing=self._missing, counts=self._counts)

    def from_bytes(self, data: bytes) -> Self:
        """Return an estimator of the same model that continues from the bytes of `to_bytes`.

        ValueError when they hold no state of as many sensors.
        """
        try:
            fields = unpack_arrays(data)
            missing = fields["missing"]
            counts = fields["counts"]
        except (OSError, KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"data holds no known model's state ({error}): start again") from error
        if missing.shape != self._missing.shape:
            raise ValueError(
                f"data must be of {self._missing.size} sensors, got {missing.size}: start again"
            )
        known = self.of_table(self._table)
        known._missing = missing
        known._counts = counts
        return known
