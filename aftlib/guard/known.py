"""Estimation with a known Gaussian model, as in D1, behind the interface of `Guard`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from aftlib.core.gaussian import GaussianModel
from aftlib.core.labels import pack_arrays, unpack_arrays
from aftlib.core.requirement import Requirement
from aftlib.guard.guard import Recovered, limits_of, require_measured, worker_of_each

MOST_PATTERNS = 1000
"""Solved sets of missing sensors that are kept."""


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

    Examples
    --------
    >>> model = GaussianModel([18, 19], [[4, 3], [3, 4]], ["kitchen", "hall"])
    >>> known = KnownModel(model, [[0], [1]], epsilon=3.0, delta=0.05)
    >>> lost = known.update([np.nan, 20])
    >>> lost.estimate[0, 0], lost.half_width[0, 0].round(2), lost.declared[0, 0]
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
        self.model, self.horizons = model, horizons
        self._worker = worker_of_each(workers)
        self._limits = limits_of(epsilon, model.size, model.names)
        self._requirement = Requirement(1.0, delta)  # of errors in units of ε
        self._gain = np.zeros((model.size, model.size))  # of each sensor, given other workers'
        estimable = []
        for worker in range(len(workers)):
            own = np.flatnonzero(self._worker == worker)
            others = np.flatnonzero(self._worker != worker)
            gain, covariance = model.conditional(others, own)
            self._gain[np.ix_(own, others)] = gain
            variance = np.maximum(np.diag(covariance), 0) / self._limits[own] ** 2
            reliability = self._requirement.reliability(variance).min()
            estimable.append(bool(self._requirement.is_met_by(reliability)))
        self._estimable = np.array(estimable)[self._worker]
        self._missing = np.zeros(model.size, bool)  # of the last window
        self._counts = np.zeros((2, model.size))
        self._solved = lru_cache(MOST_PATTERNS)(self._solve)

    @property
    def recoverable(self) -> np.ndarray:
        """Whether a loss that begins now would be estimated, shape (H, n); any length is the same.

        A sensor is not recoverable while another worker is away.
        """
        away = np.bincount(self._worker, self._missing) > 0
        others = away.sum() - away[self._worker]
        return np.tile(self._estimable & (others == 0), (self.horizons, 1))

    @property
    def outcomes(self) -> np.ndarray:
        """Estimates of windows that came, as if lost; the wrong ones; a slack of 0; (3, 1, n)."""
        return np.vstack([self._counts, np.zeros_like(self._counts[:1])])[:, None]

    def update(self, windows: ArrayLike) -> Recovered:
        """Estimate the missing values (NaN) of one window (n,), or of many, (rounds, n)."""
        rows = np.atleast_2d(np.asarray(windows, float))
        require_measured(rows)
        estimate = np.full(rows.shape, np.nan)
        half_width, certified = estimate.copy(), np.zeros(rows.shape, bool)
        for r, row in enumerate(rows):
            missing = np.isnan(row)
            if missing.any():
                gain, half_width[r, missing] = self._solved(missing.tobytes())
                deviation = (row - self.model.mean)[~missing]
                estimate[r, missing] = self.model.mean[missing] + gain @ deviation
                one_worker = np.ptp(self._worker[missing]) == 0
                certified[r] = missing & self._estimable & one_worker
            else:
                shadow = self.model.mean + self._gain @ (row - self.model.mean)
                wrong = np.abs(shadow - row) > self._limits
                self._counts += np.stack([self._estimable, self._estimable & wrong])
            self._missing = missing
        return Recovered(estimate, half_width, certified)

    def skip(self, rounds: int) -> None:
        """Process `rounds` windows in which no sensor sent anything."""
        self._missing = self._missing | (rounds > 0)

    def _solve(self, gaps: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Return the gain from the other sensors to the missing ones, and their half-widths."""
        missing = np.frombuffer(gaps, bool)
        there, gone = np.flatnonzero(~missing), np.flatnonzero(missing)
        gain, covariance = self.model.conditional(there, gone)
        return gain, self._requirement.half_width(np.maximum(np.diag(covariance), 0))

    @property
    def nbytes(self) -> int:
        """Bytes of the largest arrays in memory."""
        return 3 * self._gain.nbytes

    def to_bytes(self) -> bytes:
        """Return the state; the model is not part of it."""
        return pack_arrays(missing=self._missing, counts=self._counts)

    def restored(self, data: bytes) -> Self:
        """Continue from the state that `to_bytes` returned."""
        fields = unpack_arrays(data)
        self._missing, self._counts = fields["missing"], fields["counts"]
        return self
