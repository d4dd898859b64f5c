"""Minima, maxima and other results that are not Gaussian, and estimates of lost ones.

A minimum or maximum is taken over the steps of one sensor's window, never over sensors. Steps are
independent draws of the model, as for means and sums. An extreme is not Gaussian, and its
covariance has no closed form. Where no better solution is known, seeded draws represent its
distribution.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from aftlib.core.checks import require_choice, require_number
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.windows import AGGREGATES

EXTREMES = ("min", "max")
DRAWS = 4000
"""Windows drawn for the moments of results; the same number is drawn again to count errors."""
_POINTS = 32  # grid points per ε in the search for the likeliest value
_REACH = 2**15  # most grid points between the largest posterior mean and the end of its spread
_HALVINGS = 40


class DrawnWindows(GaussianModel):
    """Model of n keys' window results that are not Gaussian, such as minima and maxima (D1).

    Half of the drawn windows give the mean and covariance of the results. The best linear estimate
    of a lost result needs only these. Its errors are counted on the other half, the attribute
    `draws`, shape (draws, n).

    `model` is the model of one step; a window has `steps` independent steps. `rng` draws twice
    `draws` windows; `draws` must be at least 2n + 2. ValueError when a number is too small, or
    `query` is not an aggregate or is a linear one, whose model has a closed form.

    Examples
    --------
    >>> pair = GaussianModel([20, 20], [[1.0, 0.95], [0.95, 1.0]], ["kitchen", "hall"])
    >>> extremes = DrawnWindows(pair, 30, "max", np.random.default_rng(1))
    >>> extremes.mean.round(1), extremes.condition({"hall": 23}).mean.round(1)
    (array([22., 22.]), array([22.8]))
    >>> bool(extremes.half_width([0], [1], delta=0.05) < extremes.half_width([0], [], delta=0.05))
    True
    """

    draws: np.ndarray

    def __init__(
        self,
        model: GaussianModel,
        steps: int,
        query: str,
        rng: np.random.Generator,
        draws: int = DRAWS,
    ) -> None:
        require_choice("query", query, [n for n, each in AGGREGATES.items() if not each.gaussian])
        require_number("steps", steps, least=1, whole=True)
        require_number("draws", draws, least=2 * model.size + 2, whole=True)
        aggregate, results = AGGREGATES[query], np.empty((2 * draws, model.size))
        for window in range(2 * draws):
            noise = rng.standard_normal((steps, model.size)) @ model.cholesky.T
            results[window] = aggregate.finish(*aggregate.add(model.mean + noise))
        covariance = np.atleast_2d(np.cov(results[:draws].T))
        super().__init__(results[:draws].mean(axis=0), covariance, model.names)
        object.__setattr__(self, "draws", results[draws:])

    def errors(self, wanted: ArrayLike, observed: ArrayLike) -> np.ndarray:
        """|result − estimate| of wanted keys, given the observed keys, shape (draws, wanted)."""
        w, o = self.indices("wanted", wanted), self.indices("observed", observed)
        off, (gain, _) = self.draws - self.mean, self.conditional(o, w)
        return np.abs(off[:, w] - off[:, o] @ gain.T)

    def reliability(self, wanted: ArrayLike, observed: ArrayLike, epsilon: float) -> np.ndarray:
        """Share of draws in which each wanted key's estimate is within ε, shape (wanted,)."""
        return (self.errors(wanted, observed) <= epsilon).mean(axis=0)

    def half_width(self, wanted: ArrayLike, observed: ArrayLike, delta: float) -> np.ndarray:
        """Error not exceeded with probability 1 − δ, for each wanted key, shape (wanted,).

        It is the ⌈(d + 1)(1 − δ)⌉-th smallest of the errors of d draws. For any distribution, the
        error of a further draw exceeds it with probability at most δ. It is infinite if d is too
        small.
        """
        errors = np.sort(self.errors(wanted, observed), axis=0)
        rank = int(np.ceil((len(errors) + 1) * (1 - delta) - 1e-9))
        return errors[rank - 1] if rank <= len(errors) else np.full(errors.shape[1], np.inf)


def most_likely_within(
    means: np.ndarray,
    variance: ArrayLike,
    requirement: Requirement,
    known: ArrayLike | None = None,
    query: str = "max",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Estimate windows' extremes from the posteriors of their lost steps.

    `means` (steps, k) and `variance` (k,) or (steps, k) are the posteriors of k sensors at the
    steps that were lost (D2 eq. (5)); `known` (k,) has the extremes of the windows' other steps,
    such as a checkpoint's, where there are any.

    Returns three arrays (k,) for the extreme Y of each window: the value v with the largest
    P(|Y − v| ≤ ε), this probability, and the least half-width h with P(|Y − v| ≤ h) ≥ 1 − δ.
    ValueError when the query is neither "min" nor "max", or there is no step or no sensor.

    Given the observed values the steps are independent. So the maximum Y of the lost steps and of
    the known extreme c has P(Y ≤ x) = Π_t Φ((x − m_t) / √v_t) for x ≥ c, and 0 for x < c. The
    search for v begins at max(c, max_t m_t) − ε and goes up in steps of ε/32, or wider ones if ε is
    tiny. No other value in this range is noticeably better. For a value below it, the probability
    is at most one half, because Y < max_t m_t has probability at most one half. So such a value can
    be better only if the returned probability is below one half.
    """
    require_choice("query", query, EXTREMES)
    if means.ndim != 2 or 0 in means.shape:
        raise ValueError(
            f"means must have shape (steps, k) with at least one of each, got {means.shape}"
        )
    sign, count = (1.0 if query == "max" else -1.0), means.shape[1]
    lost, epsilon = sign * np.asarray(means, float), requirement.epsilon
    deviations = np.maximum(np.sqrt(np.broadcast_to(variance, lost.shape)), 1e-12)
    deviation = deviations.max(axis=0)
    least = np.full(count, -np.inf) if known is None else sign * np.asarray(known, float)
    top = np.maximum(lost.max(axis=0), least)

    def below(x: np.ndarray) -> np.ndarray:
        """P(Y ≤ x) of each sensor for each of its values, shape (points, k)."""
        chance = np.where(x >= least, 1.0, 0.0)
        for row, spread in zip(lost, deviations, strict=True):
            chance *= ndtr((x - row) / spread)
        return chance

    def within(x: np.ndarray, half: np.ndarray | float) -> np.ndarray:
        return below(x + half) - below(np.nextafter(x - half, -np.inf))

    reach = deviation * (2 + np.sqrt(2 * np.log(max(len(lost), 2))))
    step = np.maximum(epsilon / _POINTS, reach / _REACH)  # per sensor, because units may differ
    ends = np.ceil(epsilon / step).max(), np.ceil((reach + epsilon) / step).max()
    points = top + np.arange(-ends[0], ends[1] + 1)[:, None] * step
    chances = within(points, epsilon * (1 - 1e-9))  # the known extreme never lies just at the edge
    reliability = chances.max(axis=0)
    equal = chances >= reliability * (1 - 1e-9)
    best = (equal.argmax(axis=0) + len(points) - 1 - equal[::-1].argmax(axis=0)) // 2
    value = points[best, np.arange(count)]
    low, high = np.zeros(count), reach + np.abs(value - top) + 10 * deviation
    for _ in range(_HALVINGS):
        half = (low + high) / 2
        enough = within(value[None], half)[0] >= 1 - requirement.delta
        low, high = np.where(enough, low, half), np.where(enough, half, high)
    return sign * value, reliability, high


def extreme_max_variance(requirement: Requirement, steps: int) -> float:
    """Posterior variance v per step with which extremes over `steps` lost steps meet (ε, δ).

    The maxima of two series differ by at most the largest difference at a step. The steps' errors
    are independent, so that v = (ε / z)² suffices if (2Φ(z) − 1)^steps = 1 − δ. Larger variances
    may suffice, too, because the error of an extreme is mostly below the largest error of a step.
    """
    require_number("steps", steps, least=1, whole=True)
    outside = -np.expm1(np.log1p(-requirement.delta) / steps)  # of each step
    largest = float(requirement.epsilon) / -float(ndtri(outside / 2))
    return largest * largest


def extreme_reliability(requirement: Requirement, variance: ArrayLike, steps: int) -> np.ndarray:
    """Least probability that an extreme is within ε: (2Φ(ε/√v) − 1)^steps, elementwise."""
    return np.asarray(requirement.reliability(variance) ** steps)
