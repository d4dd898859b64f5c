"""Estimation with a known Gaussian model, as in D1, behind the interface of `Guard`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.guard.estimator import Recovered, Rules, require_measured


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
        self.model = model
        self.rules = Rules.check(workers, epsilon, delta, horizons, names=model.names)
        self._requirement = Requirement(1.0, self.rules.delta)  # of errors in units of ε
        # of each sensor, from other workers'
        self._shadow_gain = np.zeros(model.covariance.shape)
        self._estimable = np.zeros(model.size, bool)
        for worker in np.unique(self.rules.workers):
            lost = self.rules.workers == worker
            gain, variance = self._estimate_from(~lost)
            self._shadow_gain[np.ix_(lost, ~lost)] = gain
            reliability = self._requirement.reliability(variance).min()
            self._estimable[lost] = self._requirement.is_met_by(reliability)
        self._missing = np.zeros(model.size, bool)  # of the last window
        self._counts = np.zeros((2, model.size))

    def _estimate_from(self, observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the gain of the sensors that are not `observed`, (n,), from those that are.

        Also the variances of their errors, in units of ε².
        """
        lost = np.flatnonzero(~observed)
        gain, covariance = self.model.conditional(np.flatnonzero(observed), lost)
        return gain, np.maximum(np.diag(covariance), 0) / self.rules.epsilon[lost] ** 2

    @property
    def horizons(self) -> int:
        """Largest number H of windows of an outage that a guarantee covers."""
        return self.rules.horizons

    @property
    def recoverable(self) -> np.ndarray:
        """Whether a loss that begins now would be certified, shape (H, n); any length is the same.

        A sensor is not recoverable while another worker is away.
        """
        return np.tile(self.recoverable_after(self._missing[None]), (self.horizons, 1))

    def recoverable_after(self, missing: np.ndarray) -> np.ndarray:
        """Return whether a loss of each sensor is certified while those are missing, (rounds, n).

        Its worker must be estimable, and no other worker may be away.
        """
        workers = self.rules.workers
        of_others = np.not_equal.outer(workers, workers).astype(float)
        return np.asarray(self._estimable & (missing @ of_others == 0))

    @property
    def outcomes(self) -> np.ndarray:
        """Estimates of windows that came, as if lost; the wrong ones; a slack of 0; (3, 1, n)."""
        return np.vstack([self._counts, np.zeros_like(self._counts[:1])])[:, None]

    def update(self, windows: ArrayLike) -> Recovered:
        """Estimate the missing values (NaN) of one window (n,), or of many, (rounds, n)."""
        mean = self.model.mean
        rows = np.atleast_2d(np.asarray(windows, float))
        require_measured(rows)
        estimate = np.full(rows.shape, np.nan)
        half_width = np.full(rows.shape, np.nan)
        missing = np.isnan(rows)
        incomplete = missing.any(axis=1)
        alike: dict[bytes, list[int]] = {}  # rounds by the sensors that are missing
        for r in np.flatnonzero(incomplete).tolist():
            alike.setdefault(missing[r].tobytes(), []).append(r)
        for rounds in alike.values():
            gone = missing[rounds[0]]
            gain, variance = self._estimate_from(~gone)
            width = self.rules.epsilon[gone] * self._requirement.half_width(variance)
            half_width[np.ix_(rounds, gone)] = width
            for r in rounds:
                estimate[r, gone] = mean[gone] + gain @ (rows[r] - mean)[~gone]
        whole = rows[~incomplete]
        shadow = mean + (whole - mean) @ self._shadow_gain.T
        wrong = (np.abs(shadow - whole) > self.rules.epsilon).sum(axis=0)
        number = np.full(wrong.size, len(whole))
        self._counts = self._counts + self._estimable * np.stack([number, wrong])
        self._missing = missing[-1] if len(rows) else self._missing
        return Recovered(estimate, half_width, missing & self.recoverable_after(missing))
