"""The choice of sensors to replay so that the others can be estimated (D2 section 4.2, fig. 3)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from aftlib.core.checks import require_instance
from aftlib.core.gaussian import GaussianModel

COMPARED_TO = 1e-12
"""Scores (variance over target) closer than this, relatively, count as equal."""


@dataclass(frozen=True, eq=False)
class ReplaySet:
    """Sensors O that are replayed after a failure, and the variances of all n sensors given O.

    Attributes
    ----------
    sensors : tuple of int
        Indices of the sensors of O, in order of choice.
    variance : ndarray, shape (n,)
        Variance of every sensor's value at one time step given those of O; 0 in O.
    factor : ndarray, shape (``|O|``, n)
        Lᵀ of the pivoted Cholesky factor of Σ: Lᵀ[:, i]ᵀ Lᵀ[:, j] = Σ_ij for i or j in O. The first
        k rows depend on the first k sensors only.
    excess : ndarray, shape (``|O|`` + 1,)
        Largest ratio of a sensor's variance to its target, the permitted variance, after 0 …
        ``|O|`` choices: above 1 until the choices suffice. It never increases.

    Examples
    --------
    The others are estimated from those of O by `gain`, Σ_YO Σ_OO⁻¹:

    >>> from aftlib import GaussianModel, select_replay
    >>> model = GaussianModel([20, 20, 9], [[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 0.1]])
    >>> replay = select_replay(model, max_variance=0.5)
    >>> replay.sensors, replay.estimated, replay.gain().round(2).tolist()
    ((0,), array([1, 2]), [[0.8], [0.0]])
    """

    sensors: tuple[int, ...]
    variance: np.ndarray
    factor: np.ndarray = field(repr=False)
    excess: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        for array in (self.variance, self.factor, self.excess):
            array.flags.writeable = False

    @classmethod
    def everything(cls, size: int) -> ReplaySet:
        """All `size` sensors whatever the target, without a factor (method "exactly-once")."""
        excess = np.append(np.full(size, np.inf), 0.0)
        return cls(tuple(range(size)), np.zeros(size), np.empty((0, size)), excess)

    @property
    def estimated(self) -> np.ndarray:
        """Indices of the sensors that are not replayed, ascending, shape (n − ``|O|``,)."""
        return np.setdiff1d(np.arange(self.variance.size), self.sensors)

    def gain(self) -> np.ndarray:
        """Matrix that estimates the other sensors from the replayed ones (D2 eq. (6)).

        Returns
        -------
        ndarray, shape (n − ``|O|``, ``|O|``)
            Σ_YO Σ_OO⁻¹, rows as `estimated`, columns as `sensors`. The same matrix serves a single
            step and means or sums over any number of steps.

        Notes
        -----
        With Σ_YO = L_Y L_Oᵀ it is L_Y L_O⁻¹: one triangular solve, O((n − o)o²) with o = ``|O|``.
        """
        if not self.estimated.size:
            return np.empty((0, len(self.sensors)))
        replayed = self.factor[:, self.sensors]
        rest = self.factor[:, self.estimated]
        return np.asarray(solve_triangular(replayed, rest, check_finite=False)).T

    def loosened(self, ratio: float) -> ReplaySet:
        """Return the set that suffices if every target is multiplied by `ratio` ≥ 1.

        A common factor keeps the order of choice, so the result is a prefix of this set. It costs
        O(n) per sensor left out instead of a new selection.
        """
        size = int(np.argmax(self.excess <= ratio * (1 + COMPARED_TO)))
        if size == len(self.sensors):
            return self
        dropped = self.factor[size:]
        variance = self.variance + np.einsum("ki,ki->i", dropped, dropped)
        return ReplaySet(self.sensors[:size], variance, self.factor[:size], self.excess[: size + 1])


def select_replay(model: GaussianModel, max_variance: ArrayLike) -> ReplaySet:
    """Choose few sensors to observe, so that each sensor's variance meets its target (D2 fig. 3).

    Parameters
    ----------
    model : GaussianModel
        Distribution of the n sensors' values at one time step.
    max_variance : float or array_like, shape (n,)
        Target of all sensors, or one per sensor, at least 0: variance of one time step, in squared
        sensor units. Every variance meets an infinite target.

    Returns
    -------
    ReplaySet

    Raises
    ------
    ValueError
        When a target is negative or NaN, or their number is neither 1 nor n.

    Notes
    -----
    Rule (22), (23) picks the sensor whose own posterior variance is largest, so for a common
    target fig. 3 is Cholesky's factorisation with diagonal pivots. With a target per sensor the
    same rule is applied to scaled sensors, X_i / sqrt(target_i): the pivot is the sensor whose
    variance exceeds its target by the largest factor. A sensor that meets its target is never
    picked while another does not. Targets that grow by a common factor keep the order of choice.
    Scores are compared to 1e-12; ties go to the lowest index.

    The factorisation is left-looking, O(n o²) with o = ``|O|``. It reads
    only the rows of chosen sensors from Σ.

    Examples
    --------
    >>> from aftlib import GaussianModel, select_replay
    >>> model = GaussianModel([20, 20, 9], [[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 0.1]])
    >>> replay = select_replay(model, max_variance=0.5)
    >>> replay.sensors, replay.variance.round(2)
    ((0,), array([0.  , 0.36, 0.1 ]))
    """
    require_instance("model", model, GaussianModel, "GaussianModel.fit(frame)")
    target = _checked_target(model, max_variance)
    variance = model.covariance.diagonal().copy()
    factor = np.empty((8, model.size))  # it grows with the choice
    sensors = list[int]()
    excess = [float(np.max(variance / target))]
    while excess[-1] > 1 + COMPARED_TO:
        pivot = int(np.argmax(variance / target >= excess[-1] * (1 - COMPARED_TO)))
        if len(sensors) == len(factor):
            factor = np.concatenate([factor, np.empty_like(factor)])
        known = factor[: len(sensors)]
        row = factor[len(sensors)]
        row[:] = (model.covariance[pivot] - known[:, pivot] @ known) / np.sqrt(variance[pivot])
        row[sensors] = 0
        row[pivot] = np.sqrt(variance[pivot])
        sensors.append(pivot)
        variance = np.maximum(variance - row**2, 0)
        variance[sensors] = 0
        excess.append(float(np.max(variance / target)))
    return ReplaySet(tuple(sensors), variance, factor[: len(sensors)], np.array(excess))


def _checked_target(model: GaussianModel, max_variance: ArrayLike) -> np.ndarray:
    target = np.asarray(max_variance, dtype=float)
    bad = target[~(target >= 0)]
    if target.shape not in ((), (model.size,)) or bad.size:
        raise ValueError(
            f"max_variance must be one number or {model.size}, one per sensor, each at least 0, "
            f"got shape {target.shape} with {bad[:5].tolist()} out of bounds; give 0 for a sensor "
            "that must be known exactly"
        )
    # scores and units stay finite
    limits = model.covariance.diagonal().max() * np.array([1e-100, 1e100])
    clipped: np.ndarray = np.clip(np.broadcast_to(target, model.size), limits[0], limits[1])
    return clipped
