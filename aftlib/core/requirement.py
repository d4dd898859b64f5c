"""The requirement on an estimate: at most ε away, with probability at least 1 − δ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf, ndtri

from aftlib.core.checks import require_number

COMPARED_TO = 1e-12
"""Reliabilities closer than this count as equal (reading of D1 fig. 9)."""


@dataclass(frozen=True)
class Requirement:
    """Tolerance ε and permitted failure probability δ of an estimate.

    Parameters
    ----------
    epsilon : float
        Largest error accepted, in the unit of the sensors; positive and finite.
    delta : float
        Probability with which a larger error is accepted; inside (0, 1).

    Raises
    ------
    ValueError
        When ε is not positive and finite, or δ is outside (0, 1).

    Notes
    -----
    An estimate of variance v errs by at most ε with probability R = erf(ε / sqrt(2v)) (D1 eq. (3)).
    R is at least 1 − δ if v ≤ (ε / z)² with z = Φ⁻¹(1 − δ/2) (D2 eq. (21)).

    Examples
    --------
    >>> from aftlib import Requirement
    >>> half_a_degree = Requirement(epsilon=0.5, delta=0.05)
    >>> round(half_a_degree.max_variance, 4)
    0.0651
    >>> half_a_degree.reliability([0.01, 0.0651, 1]).round(3)
    array([1.   , 0.95 , 0.383])
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        fix = "give the largest error you accept, in the unit of your sensors"
        require_number("epsilon", self.epsilon, above=0, fix=fix)
        fix = "use 0.05 to accept a larger error in one case of twenty"
        require_number("delta", self.delta, above=0, below=1, fix=fix)

    @property
    def z(self) -> float:
        """Two-sided standard normal quantile z of probability 1 − δ/2."""
        return float(-ndtri(self.delta / 2))

    @property
    def max_variance(self) -> float:
        """Largest posterior variance σ* = (ε / z)² that meets the requirement (D2 eq. (21))."""
        largest = float(self.epsilon) / self.z
        return largest * largest  # infinite rather than an OverflowError

    def reliability(self, variance: ArrayLike) -> np.ndarray:
        """Probability R that a Gaussian of this variance lies within ε of its mean (D1 eq. (3)).

        Parameters
        ----------
        variance : array_like
            Posterior variances, any shape, squared sensor units; 0 gives 1.

        Returns
        -------
        ndarray
            R = erf(ε / sqrt(2 variance)), elementwise.

        Raises
        ------
        ValueError
            When a variance is negative or NaN.
        """
        v = np.asarray(variance, dtype=float)
        if not np.all(v >= 0):
            raise ValueError(
                f"variance must be non-negative, got {v[~(v >= 0)].flat[0]!r}; "
                "compute it from a positive definite GaussianModel"
            )
        with np.errstate(divide="ignore"):
            return np.asarray(erf(self.epsilon / np.sqrt(2 * v)))

    def is_met_by(self, reliability: ArrayLike) -> np.ndarray:
        """Whether each reliability is at least 1 − δ, with a tolerance of 1e-12 (D1 eq. (8))."""
        return np.asarray(reliability) >= 1 - self.delta - COMPARED_TO

    def half_width(self, variance: ArrayLike) -> np.ndarray:
        """Half-width z·σ of the central interval of probability 1 − δ, in sensor units."""
        return np.asarray(self.z * np.sqrt(np.asarray(variance, dtype=float)))
