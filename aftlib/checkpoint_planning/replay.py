"""The choice of sensors to replay so that the others can be estimated (D2 section 4.2, fig. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpstrf

from aftlib.core.checks import require_instance
from aftlib.core.gaussian import GaussianModel
from aftlib.core.labels import ArrayRecord, as_numbers, frame_of_keys

if TYPE_CHECKING:
    import pandas as pd

COMPARED_TO = 1e-12
"""Scores (variance over target) closer than this, relatively, count as equal."""

_MET = 1 + COMPARED_TO
_FEW = 128
"""Number of choices up to which LAPACK is slower, because it factorises the whole matrix."""


@dataclass(frozen=True, eq=False, repr=False)
class ReplaySet(ArrayRecord):
    """Sensors O that are replayed after a failure, and the variances of all n sensors given O.

    Attributes
    ----------
    sensors : tuple of int
        Key indices in order of choice.
    variance : ndarray, shape (n,)
        Variance of every sensor's value at one time step given those of O; 0 in O.
    factor : ndarray, shape (|O|, n)
        Lᵀ of the pivoted Cholesky factor of Σ: Lᵀ[:, i]ᵀ Lᵀ[:, j] = Σ_ij for i or j in O, and
        Lᵀ[:, sensors] is upper triangular. The first k rows depend on the first k sensors only.
    share : ndarray, shape (|O| + 1,)
        Largest ratio of a sensor's variance to its permitted variance (target), after 0 … |O|
        choices. It never increases.
    names : tuple of str
        Names of the n sensors, as in the model.

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
    share: np.ndarray = field(repr=False)
    names: tuple[str, ...] = field(default=(), kw_only=True, repr=False)

    def __post_init__(self) -> None:
        for array in (self.variance, self.factor, self.share):
            array.flags.writeable = False

    @classmethod
    def everything(cls, model: GaussianModel) -> ReplaySet:
        """All n sensors, whatever the target, as for the method "exactly-once"."""
        n = model.size
        share = np.append(np.full(n, np.inf), 0.0)
        return cls(tuple(range(n)), np.zeros(n), model.cholesky.T, share, names=model.names)

    @classmethod
    def of(cls, model: GaussianModel, sensors: Sequence[int]) -> ReplaySet:
        """The given sensors, whatever the resulting variances of the others.

        ValueError when they are not different ones of 0 … n − 1.
        """
        o = list(sensors)
        if len(set(o)) < len(o) or not set(o) <= set(range(model.size)):
            raise ValueError(
                f"sensors must be different ones of 0 … {model.size - 1}, got {o!r}; give key "
                "indices"
            )
        root = np.linalg.cholesky(model.covariance[np.ix_(o, o)])
        factor = solve_triangular(root, model.covariance[o], lower=True, check_finite=False)
        variance = np.maximum(model.covariance.diagonal() - (factor**2).sum(axis=0), 0)
        variance[o] = 0
        return cls(tuple(o), variance, factor, np.full(len(o) + 1, np.nan), names=model.names)

    @property
    def estimated(self) -> np.ndarray:
        """Key indices of the sensors that are not replayed, ascending, shape (n − |O|,)."""
        return np.setdiff1d(np.arange(self.variance.size), self.sensors)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per sensor: turn (its place in O from 1 on, or missing) and variance."""
        import pandas as pd

        turns = pd.array([pd.NA] * self.variance.size, dtype="Int64")
        turns[np.array(self.sensors, dtype=np.intp)] = np.arange(1, len(self.sensors) + 1)
        return frame_of_keys({"turn": turns, "variance": self.variance}, self.names)

    def gain(self) -> np.ndarray:
        """Matrix that estimates the other sensors from the replayed ones (D2 eq. (6)).

        Returns
        -------
        ndarray, shape (n − |O|, |O|)
            Σ_YO Σ_OO⁻¹, rows as `estimated`, columns as `sensors`. The same matrix serves a single
            step and means or sums over any number of steps.

        Notes
        -----
        With Σ_YO = L_Y L_Oᵀ it is L_Y L_O⁻¹: one triangular solve, O((n − |O|)|O|²).
        """
        replayed, rest = self.factor[:, self.sensors], self.factor[:, self.estimated]
        return np.asarray(solve_triangular(replayed, rest, check_finite=False)).T

    def loosened(self, times: float) -> ReplaySet:
        """Return the set that suffices if every target is multiplied by `times` ≥ 1.

        A common factor keeps the order of choice, so the result is a prefix of this set. It costs
        O(n) per sensor left out instead of a new selection. ValueError for a set from `of`, because
        its targets are unknown.
        """
        if np.isnan(self.share).any():
            raise ValueError(
                f"the replay set of sensors {self.sensors} must come from select_replay, got a "
                "given set, whose targets are unknown; call select_replay"
            )
        size = int(np.argmax(self.share <= times * (1 + COMPARED_TO)))
        if size == len(self.sensors):
            return self
        dropped = self.factor[size:]
        variance = self.variance + np.einsum("ki,ki->i", dropped, dropped)
        prefix = self.factor[:size], self.share[: size + 1]
        return ReplaySet(self.sensors[:size], variance, *prefix, names=self.names)


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
    variance exceeds its target by the largest factor. All scaled targets are then 1, as in the
    document. A sensor that meets its target is never picked while another does not. Targets that
    grow by a common factor keep the order of choice. Scores are compared to 1e-12; ties go to the
    lowest index in the first `_FEW` choices.

    The first `_FEW` choices are left-looking, O(n|O|²): only their rows of Σ are read. LAPACK's
    `pstrf` makes the others, O(n²|O|) but in blocks that stay in the cache. Independent groups of
    sensors are factorised separately, so that g equal groups reduce the cost to 1/g².

    Examples
    --------
    >>> from aftlib import GaussianModel, select_replay
    >>> model = GaussianModel([20, 20, 9], [[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 0.1]])
    >>> replay = select_replay(model, max_variance=0.5)
    >>> replay.sensors, replay.variance.round(2)
    ((0,), array([0.  , 0.36, 0.1 ]))
    """
    require_instance("model", model, GaussianModel)
    target = as_numbers("max_variance", max_variance)
    if target.shape not in ((), (model.size,)):
        raise ValueError(
            f"max_variance must be one number or one for each of the {model.size} sensors, "
            f"got shape {target.shape}"
        )
    if not np.all(target >= 0):
        raise ValueError(
            f"max_variance must be non-negative, got {float(target[~(target >= 0)].flat[0])}; "
            "give 0 for a sensor that must be known exactly"
        )
    # scores and units stay finite
    extremes = model.covariance.diagonal().max() * np.array([1e-100, 1e100])
    target = np.clip(np.broadcast_to(target, model.size), *extremes)

    groups = model.groups
    if len(groups) == 1:
        return replace(_factorise(model.covariance, target), names=model.names)
    parts = [_factorise(model.covariance[np.ix_(g, g)], target[g]) for g in groups]
    return replace(_merged(groups, parts), names=model.names)


def _factorise(covariance: np.ndarray, target: np.ndarray) -> ReplaySet:
    """Choose sensors: left-looking, which reads only their rows of Σ; after `_FEW`, by LAPACK."""
    n = len(covariance)
    variance, factor = covariance.diagonal().copy(), np.empty((min(n, _FEW), n))
    sensors: list[int] = []
    share = [float(np.max(variance / target))]
    while share[-1] > _MET and len(sensors) < len(factor):
        pivot = int(np.argmax(variance / target >= share[-1] * (1 - COMPARED_TO)))
        known, row = factor[: len(sensors)], factor[len(sensors)]
        row[:] = (covariance[pivot] - known[:, pivot] @ known) / np.sqrt(variance[pivot])
        row[sensors], row[pivot] = 0, np.sqrt(variance[pivot])
        sensors.append(pivot)
        variance = np.maximum(variance - row**2, 0)
        variance[sensors] = 0
        share.append(float(np.max(variance / target)))
    factor = factor[: len(sensors)]
    if share[-1] <= _MET:
        return ReplaySet(tuple(sensors), variance, factor, np.array(share))

    rest, unit = np.setdiff1d(np.arange(n), sensors), 1 / np.sqrt(target)
    scaled = covariance[np.ix_(rest, rest)] * unit[rest] * unit[rest, None]
    known = factor[:, rest] * unit[rest]
    scaled = dsyrk(-1, known, beta=1, c=scaled.T, trans=1, lower=1, overwrite_c=1)
    columns, order, rank, _ = dpstrf(scaled, tol=_MET, lower=1, overwrite_a=1)
    more, rest = np.zeros((rank, n)), rest[order - 1]
    more[:, rest] = np.tril(columns[:, :rank]).T / unit[rest]
    sensors += rest[:rank].tolist()
    variance = np.maximum(variance - np.einsum("ki,ki->i", more, more), 0)
    variance[sensors] = 0
    share += [*(columns.diagonal()[1:rank] ** 2), min(1, float(np.max(variance / target)))]
    return ReplaySet(tuple(sensors), variance, np.concatenate([factor, more]), np.array(share))


def _merged(groups: Sequence[np.ndarray], parts: list[ReplaySet]) -> ReplaySet:
    """Merge the choices of independent groups into one, in the order of falling share."""
    n = sum(group.size for group in groups)
    factor, variance = np.zeros((sum(len(p.sensors) for p in parts), n)), np.empty(n)
    sensors, share, row = [], [], 0
    for group, part in zip(groups, parts, strict=True):
        factor[row : row + len(part.sensors), group] = part.factor
        variance[group] = part.variance
        sensors += group[list(part.sensors)].tolist()
        share += np.minimum.accumulate(part.share[:-1]).tolist()
        row += len(part.sensors)
    order = np.argsort(-np.array(share), kind="stable")
    last = max(part.share[-1] for part in parts)
    chosen = tuple(sensors[i] for i in order)
    return ReplaySet(chosen, variance, factor[order], np.append(np.array(share)[order], last))
