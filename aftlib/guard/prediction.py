"""Prediction of a lost window from the other workers' windows now and all windows before.

For each horizon h there is one Gaussian of [W_t, W_{t−h}, seasons]. It is fitted with forgetting to
the windows themselves, so it contains drifts, seasons and the correlation of samples in time. The
precision Λ predicts worker A from all known entries K of the rest: −(Λ_UU)⁻¹ Λ_UK z_K, where U
contains A and all missing entries. Beyond `JOINT` sensors the model only has the other workers'
windows now, and an AR(1) over h rounds on each sensor's residual.

Under gaps M the distribution of the rest has the precision Λ' = Λ − Λ_·M (Λ_MM)⁻¹ Λ_M· (Schur
complement). It is the same for all workers, so that m gaps cost O(m³ + m²n) once, not once per
worker.

A prediction for a failure h rounds ago must not know a window after it. So there are always two
fits, at least H rounds apart: predictions use the last but one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

JOINT = 150
"""Largest number of sensors with which the windows h rounds ago enter a prediction."""
LOADING = 0.01
"""Share of each variance that is added to it, so that a fit may have more sensors than rows."""
LEAST_VARIANCE = 1e-200
"""Variance from which on a column is no constant."""
FIRST_FIT = 60
"""Rounds before the first fit."""
FORGET = 1 / 600
"""Share of its memory that the model forgets per window: it remembers about 600."""
MOST_INFLATION = 1e6
"""Largest factor by which gaps may raise an error; an unknown factor is set to it."""


@dataclass
class Model:
    """State of the prediction of n sensors at H horizons, with k seasons.

    The axis `models` has a model per horizon h at index h − 1; beyond `JOINT` sensors it has one
    for all horizons. The axis d has the columns of a row z: the n windows now; up to `JOINT`
    sensors the n windows h rounds ago; 2k sines and cosines of the seasons. A ring has a slot per
    round.
    """

    moments: np.ndarray  # (models, d, d) forgetting sums of z zᵀ
    rows: np.ndarray  # (models, every, d) since the moments were last brought up to date
    weight: np.ndarray  # (models,)
    # the fit in use
    precision: np.ndarray  # (models, d, d)
    gain: np.ndarray  # (models, n, d)
    variance: np.ndarray  # (models, n) of each sensor, given all outside its worker
    scale: np.ndarray  # (n,) standard deviations; 0 before the first fit
    echo: np.ndarray  # (H + 1, n) `products` of this fit
    # the last fit, which replaces it at the next one
    next_precision: np.ndarray
    next_scale: np.ndarray
    next_echo: np.ndarray
    # of the AR(1) beyond `JOINT` sensors
    residual: np.ndarray  # (H + 1, n) ring of what the other workers' windows do not explain
    products: np.ndarray  # (H + 1, n) forgetting sums of r_t r_{t−h} at index h

    @classmethod
    def begin(cls, sensors: int, horizons: int, seasons: int, every: int) -> Self:
        """Return the state before the first round; `every` is the most rounds between two fits."""
        joint = sensors <= JOINT
        models = horizons if joint else 1
        d = (2 if joint else 1) * sensors + 2 * seasons
        ring = horizons + 1, sensors
        return cls(
            moments=np.zeros((models, d, d)),
            rows=np.zeros((models, every, d)),
            weight=np.zeros(models),
            precision=np.zeros((models, d, d)),
            gain=np.zeros((models, sensors, d)),
            variance=np.zeros((models, sensors)),
            scale=np.zeros(sensors),
            echo=np.zeros(ring),
            next_precision=np.zeros((models, d, d)),
            next_scale=np.zeros(sensors),
            next_echo=np.zeros(ring),
            residual=np.full(ring, np.nan),
            products=np.zeros(ring),
        )

    @property
    def joint(self) -> bool:
        """Whether a row contains the windows of earlier rounds."""
        return bool(self.moments.shape[1] >= 2 * self.scale.size)

    @property
    def fitted(self) -> bool:
        """Whether a fit is in use."""
        return bool(self.scale.max() != 0)

    def rows_of(
        self, now: np.ndarray, before: np.ndarray, level: np.ndarray, waves: np.ndarray
    ) -> np.ndarray:
        """Return a row z for each row of `before`: windows now and before, less level; seasons.

        Models that are not joint have no windows before; then only the number of rows counts.
        """
        n = now.size
        z = np.empty((len(before), self.moments.shape[1]))
        z[:, :n] = now - level
        if self.joint:
            z[:, n : 2 * n] = before - level
        z[:, z.shape[1] - waves.size :] = waves
        return z

    def learn_rows(self, place: int, z: np.ndarray, seen: np.ndarray) -> None:
        """Store a row z (models, d) of each model; a model that has not `seen` it only forgets.

        `absorb` adds the stored rows to the moments, many at once.
        """
        self.rows[seen, place] = z[seen]
        self.weight = (1 - FORGET) * self.weight + seen

    def learn_residual(self, residual: np.ndarray, slots: np.ndarray) -> None:
        """Learn the AR(1) from a round's residual; `slots` are those of this round and before."""
        self.residual[slots[0]] = residual
        with np.errstate(over="ignore"):  # a product that is too large is not added
            product = residual * self.residual[slots]
        sums = self.products[: len(slots)]
        faded = (1 - FORGET) * sums + product
        self.products[: len(slots)] = np.where(np.isfinite(product), faded, sums)

    def absorb(self, count: int) -> None:
        """Add the `count` stored rows to the moments; older rows weigh less."""
        rows = self.rows[:, :count]
        faded = rows * ((1 - FORGET) ** np.arange(count - 1, -1, -1))[:, np.newaxis]
        products = faded.swapaxes(1, 2) @ rows
        self.moments = (1 - FORGET) ** count * self.moments + products
        self.rows[:] = 0.0

    @np.errstate(divide="ignore", invalid="ignore")  # a model that has seen no row has weight 0
    def refit(self, workers: np.ndarray) -> None:
        """Use the last fit, and compute the next; `workers` has each sensor's worker."""
        self.precision = self.next_precision
        self.scale = self.next_scale
        self.echo = self.next_echo
        if self.fitted:
            self.gain, self.variance = gain_of(self.precision, workers)
        moments = self.moments / self.weight[:, np.newaxis, np.newaxis]
        self.next_precision = inverse(load(moments))
        self.next_scale = np.sqrt(np.diagonal(moments[0])[: workers.size])
        self.next_echo = self.products.copy()

    def fill(self, z: np.ndarray) -> np.ndarray:
        """Return a row of horizon 1 with its missing entries replaced by their mean."""
        if not self.fitted:
            return z
        missing = np.isnan(z)
        rows = self.precision[0, missing]
        filled = z.copy()
        filled[missing] = -inverse(rows[:, missing]) @ (rows[:, ~missing] @ z[~missing])
        return filled

    def echoes(self, slots: np.ndarray) -> np.ndarray:
        """Return what the residuals at `slots`, 1 … k rounds ago, add to predictions, (k, n)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            echo = self.echo[1 : len(slots) + 1] / self.echo[0] * self.residual[slots]
        return np.where(np.isfinite(echo), echo, 0.0)

    def predict(self, z: np.ndarray, workers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Predict each sensor's value from other workers' sensors; 0 before a fit.

        `z` is (horizons, d). Returns the values (horizons, n), and the factors by which gaps raise
        each error's standard deviation.
        """
        horizons = len(z)
        n = workers.size
        inflation = np.ones((horizons, n))
        if not self.fitted:
            return np.zeros((horizons, n)), inflation
        missing = np.isnan(z)
        gain = self.gain[:horizons]
        if not missing.any():
            return (gain @ z[..., np.newaxis])[..., 0], inflation
        out, variance = predict_among_gaps(self.precision[:horizons], z, missing, workers)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = variance / self.variance[:horizons]
        # rounding may make the ratio less than 1; it is NaN if nothing is known
        bounded = np.sqrt(np.maximum(ratio, 1.0))
        inflation = np.where(ratio < MOST_INFLATION**2, bounded, MOST_INFLATION)
        # equal bit for bit to the shadow prediction, without the failed worker's values
        alone = (gain @ np.where(missing, 0.0, z)[..., np.newaxis])[..., 0]
        failed = np.unique(workers[missing[0, :n]])
        usual = ~missing[:, n:].any(1)[:, np.newaxis] & (failed.size <= 1)
        usual = usual & (np.isin(workers, failed) | (failed.size == 0))
        return np.where(usual, alone, out), np.where(usual, 1.0, inflation)


def units_of(matrices: np.ndarray) -> np.ndarray:
    """Powers of two near the square roots of diagonals; dividing by them loses no digit."""
    return np.asarray(2.0 ** np.round(0.5 * np.log2(np.diagonal(matrices, axis1=-2, axis2=-1))))


@np.errstate(divide="ignore", invalid="ignore")  # of what nothing is known yet
def inverse(matrices: np.ndarray) -> np.ndarray:
    """Invert covariances or precisions whose variables may differ by many powers of ten.

    LU chooses its pivots by size, so variables of size 1e5 would get none next to variables of size
    1e90.
    """
    if matrices.shape[-1] <= 1:
        return 1 / matrices
    units = units_of(matrices)
    both = units[..., np.newaxis, :] * units[..., np.newaxis]
    return np.asarray(np.linalg.inv(matrices / both) / both)


def blocks_of(workers: np.ndarray, sensors: np.ndarray) -> list[np.ndarray]:
    """Return `sensors` by worker: for each number s of sensors, those of its workers, (…, s)."""
    ordered = sensors[np.argsort(workers[sensors], kind="stable")]
    size = np.bincount(workers[ordered])[workers[ordered]]
    return [ordered[size == s].reshape(-1, s) for s in np.unique(size)]


def load(moments: np.ndarray) -> np.ndarray:
    """Return moments with a larger diagonal; constant columns become independent of the others."""
    loaded = moments.copy()
    diagonal = np.diagonal(moments, axis1=-2, axis2=-1)
    # tell a constant from a variable in small units
    larger = np.where(diagonal > LEAST_VARIANCE, (1 + LOADING) * diagonal, 1.0)
    at = np.arange(diagonal.shape[-1])
    loaded[..., at, at] = larger
    return loaded


def gain_of(precision: np.ndarray, workers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the gain (models, n, d) of a precision without gaps, and each sensor's variance."""
    models, d, _ = precision.shape
    gain = np.zeros((models, workers.size, d))
    variance = np.zeros((models, workers.size))
    for block in blocks_of(workers, np.arange(workers.size)):
        across = block[:, :, np.newaxis]
        along = block[:, np.newaxis]
        covariance = inverse(precision[:, across, along])
        gain[:, block] = -covariance @ precision[:, block]
        gain[:, across, along] = 0.0
        variance[:, block] = np.diagonal(covariance, axis1=-2, axis2=-1)
    return gain, variance


def predict_among_gaps(
    precision: np.ndarray, z: np.ndarray, missing: np.ndarray, workers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of each sensor given the values of z outside its worker.

    The sensors without a window now are the same for all horizons; earlier gaps differ. So each
    horizon's list of gaps M is padded to the longest with independent variables.
    """
    horizons = len(z)
    n = workers.size
    every = np.arange(horizons)[:, np.newaxis]
    number = missing.sum(1)
    at = np.argsort(~missing, axis=1, kind="stable")[:, : number.max()]  # the gaps come first
    padding = np.arange(at.shape[1]) >= number[:, np.newaxis]
    precision = np.broadcast_to(precision, (horizons, *precision.shape[1:]))
    rows = np.where(padding[..., np.newaxis], 0.0, precision[every, at])  # Λ_M·
    among = np.take_along_axis(rows, at[:, np.newaxis], 2)
    among = np.where(padding[:, np.newaxis] | padding[..., np.newaxis], 0.0, among)
    diagonal = np.arange(at.shape[1])
    among[:, diagonal, diagonal] += padding
    solved = inverse(among)
    known = np.where(missing, 0.0, z)
    across = rows[..., :n].swapaxes(1, 2)  # Λ_·M
    passed = across @ solved  # Λ_·M Λ_MM⁻¹
    of_gaps = (solved @ (rows @ known[..., np.newaxis]))[..., 0]
    weighted = precision[:, :n] @ known[..., np.newaxis] - across @ of_gaps[..., np.newaxis]  # Λ' z

    gone = np.flatnonzero(missing[0, :n])
    there = np.flatnonzero(~missing[0, :n])
    mean = np.empty((horizons, n))
    variance = np.empty((horizons, n))
    mean[:, gone] = -of_gaps[:, : gone.size]
    variance[:, gone] = np.diagonal(solved, axis1=1, axis2=2)[:, : gone.size]
    for block in blocks_of(workers, there):
        of_block = across[:, block] @ passed[:, block].swapaxes(-1, -2)
        own = precision[:, block[:, :, np.newaxis], block[:, np.newaxis]] - of_block  # Λ'
        covariance = inverse(own)
        shift = covariance @ weighted[:, block]
        mean[:, block] = z[:, block] - shift[..., 0]
        variance[:, block] = np.diagonal(covariance, axis1=-2, axis2=-1)
        # sensors that are gone from these workers: also without the rest of the worker
        place, worker = np.nonzero(workers[gone][:, np.newaxis] == workers[block[:, 0]])
        if place.size:
            part = passed[:, block[worker], place[:, np.newaxis]]
            mean[:, gone[place]] += (part * shift[..., 0][:, worker]).sum(-1)
            spread = (covariance[:, worker] @ part[..., np.newaxis])[..., 0]
            variance[:, gone[place]] += (part * spread).sum(-1)
    return mean, variance
