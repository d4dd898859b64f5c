"""Which sensors to replay so that the others can be estimated (D2 section 4.2, fig. 3)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from aftlib.checkpoint_planning.cholesky import COMPARED_TO, pivoted_cholesky
from aftlib.core.gaussian import GaussianModel

_SMALLEST_TARGET = 1e-100


@dataclass(frozen=True, eq=False)
class ReplaySet:
    """Sensors O that are replayed after a failure, and what is then known of all n sensors.

    Attributes
    ----------
    sensors : tuple of int
        Key indices in order of choice.
    variance : ndarray, shape (n,)
        Variance of every sensor's value at one time step given those of O; 0 in O.
    factor : ndarray, shape (|O|, n)
        Lᵀ of the pivoted Cholesky factor of Σ: Lᵀ[:, i]ᵀ Lᵀ[:, j] = Σ_ij for i or j in O, and
        Lᵀ[:, sensors] is upper triangular. The first rows belong to the first sensors alone.
    share : ndarray, shape (|O| + 1,)
        max_i variance_i / target_i after 0 … |O| choices; never increases.
    """

    sensors: tuple[int, ...]
    variance: np.ndarray
    factor: np.ndarray = field(repr=False)
    share: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        for array in (self.variance, self.factor, self.share):
            array.flags.writeable = False

    @classmethod
    def everything(cls, model: GaussianModel) -> ReplaySet:
        """All n sensors, whatever the target: what exactly-once replays."""
        n = model.size
        share = np.append(np.full(n, np.inf), 0.0)
        return cls(tuple(range(n)), np.zeros(n), model.cholesky.T, share)

    @property
    def estimated(self) -> np.ndarray:
        """Key indices of the sensors that are not replayed, ascending, shape (n − |O|,)."""
        return np.setdiff1d(np.arange(self.variance.size), self.sensors)

    def gain(self) -> np.ndarray:
        """Matrix that estimates the other sensors from the replayed ones (D2 eq. (6)).

        Returns
        -------
        ndarray, shape (n − |O|, |O|)
            Σ_YO Σ_OO⁻¹, rows as `estimated`, columns as `sensors`. It serves a single step and
            means or sums over any number of steps alike.

        Notes
        -----
        With Σ_YO = L_Y L_Oᵀ it is L_Y L_O⁻¹: one triangular solve, O((n − |O|)|O|²).
        """
        replayed, rest = self.factor[:, self.sensors], self.factor[:, self.estimated]
        return np.asarray(solve_triangular(replayed, rest, check_finite=False)).T

    def loosened(self, times: float) -> ReplaySet:
        """Set that suffices once every target has grown to `times` ≥ 1 times the given one.

        Growing all targets alike keeps the order of choice, so that set is a prefix of this one:
        O(n) for each sensor dropped instead of a new selection.
        """
        size = int(np.argmax(self.share <= times * (1 + COMPARED_TO)))
        if size == len(self.sensors):
            return self
        dropped = self.factor[size:]
        variance = self.variance + np.einsum("ki,ki->i", dropped, dropped)
        return ReplaySet(self.sensors[:size], variance, self.factor[:size], self.share[: size + 1])


def select_replay(model: GaussianModel, max_variance: ArrayLike) -> ReplaySet:
    """Choose few sensors so that every sensor's variance given them meets its target (D2 fig. 3).

    Parameters
    ----------
    model : GaussianModel
        Distribution of the n sensors' values at one time step.
    max_variance : float or array_like, shape (n,)
        Target of every sensor, or one for each, at least 0: variance of one time step, in squared
        sensor units. Infinity asks nothing of a sensor.

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
    target fig. 3 is Cholesky's factorisation with diagonal pivots. With a target for each sensor
    the same rule is applied to sensors measured in units of what each tolerates,
    X_i / sqrt(target_i): the pivot is the sensor whose variance exceeds its target by the largest
    factor. All scaled targets are then 1, as in the document; a sensor that meets its target is
    never picked while another does not; and targets that grow alike keep the order of choice.
    Scores are compared to 1e-12, ties go to the lowest index.

    Left-looking, O(n|O|²) and O(n|O|) memory: no covariance is solved for a candidate, and the
    columns of sensors that are not needed are not updated.
    """
    found = pivoted_cholesky(model.covariance, _targets(model, max_variance))
    return ReplaySet(found.pivots, found.variance, found.rows, found.share)


def _targets(model: GaussianModel, max_variance: ArrayLike) -> np.ndarray:
    """Targets of all sensors, kept above 0 so that scores stay finite."""
    target = np.asarray(max_variance, dtype=float)
    if target.shape not in ((), (model.size,)):
        raise ValueError(
            f"max_variance must be one number or one for each of the {model.size} sensors, "
            f"got shape {target.shape}"
        )
    if not np.all(target >= 0):
        raise ValueError(
            f"max_variance must be non-negative, got {float(target[~(target >= 0)].flat[0])}; "
            "0 asks for a sensor to be known exactly"
        )
    smallest = _SMALLEST_TARGET * model.covariance.diagonal().max()
    return np.asarray(np.maximum(np.broadcast_to(target, model.size), smallest))
