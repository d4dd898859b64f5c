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

import numpy as np

from aftlib.guard.estimator import Rules
from aftlib.guard.state import axes

JOINT = 150
"""Largest number of sensors with which the windows h rounds ago enter a prediction."""
LOADING = 0.01
"""Share of each variance that is added to it, so that a fit may have more sensors than rows."""
LEAST_VARIANCE = 1e-200
"""Variance from which on a column is no constant."""
FIRST_FIT = 60
"""Windows that came before the first fit. Predictions begin with the second one, because the last
but one is in use."""
MODEL_FORGET = 1 / 600
"""Share of its memory that the model forgets per window: it remembers about 600."""
MOST_INFLATION = 1e6
"""Largest factor by which gaps may raise an error; an unknown factor is set to it."""


@dataclass(frozen=True)
class Model:
    """State of the prediction; the axes G, H and n are those of `guard.state.State`.

    The axis `models` has a model per horizon h at index h − 1; beyond `JOINT` sensors it has one
    for all horizons. The axis d has the columns of a row z: the n windows now; up to `JOINT`
    sensors the n windows h rounds ago; 2k sines and cosines of the k seasons. The axis `kept` has
    the rows z between two fits.
    """

    # forgetting sums of z zᵀ up to the last fit
    moments: np.ndarray = axes("models d d", learned=True)
    recent: np.ndarray = axes("models kept d")  # since then
    weight: np.ndarray = axes("models", learned=True)
    # the fit in use
    precision: np.ndarray = axes("models d d")
    gain: np.ndarray = axes("models n d")
    variance: np.ndarray = axes("models n")  # of each sensor, given all outside its worker
    scale: np.ndarray = axes("n")  # standard deviations; 0 before a fit is in use
    echo: np.ndarray = axes("H+1 n")  # `products` of this fit
    # the last fit: so far only `moments`, weights and products; the next refit inverts and uses it
    last_weight: np.ndarray = axes("models", first=np.inf)  # infinite before the first fit
    last_echo: np.ndarray = axes("H+1 n")
    # of the AR(1) beyond `JOINT` sensors
    # ring of what other workers' windows do not explain
    residual: np.ndarray = axes("age n", first=np.nan)
    # forgetting sums of r_t r_{t−h} at index h
    products: np.ndarray = axes("H+1 n", learned=True)

    @property
    def joint(self) -> bool:
        """Whether a row contains the windows of earlier rounds."""
        return bool(self.moments.shape[-1] >= 2 * self.scale.shape[-1])

    @property
    def fitted(self) -> np.ndarray:
        """Whether a fit is in use, shape (G,)."""
        return np.asarray(self.scale.max(-1) != 0)

    def rows_of(
        self, now: np.ndarray, before: np.ndarray, level: np.ndarray, waves: np.ndarray
    ) -> np.ndarray:
        """Return rows z (G, k, d): windows now and before, less level, and the seasons.

        `now` is (G, n), `before` (G, k, n), `level` (G, k, n) or (G, 1, n), and `waves` (G, 2k).
        Models that are not joint use only the number k of rows of `before`.
        """
        n = now.shape[-1]
        z = np.empty((*before.shape[:2], self.moments.shape[-1]))
        z[..., :n] = now[:, np.newaxis] - level
        if self.joint:
            z[..., n : 2 * n] = before - level
        z[..., z.shape[-1] - waves.shape[-1] :] = waves[:, np.newaxis]
        return z

    def learn_rows(
        self, place: np.ndarray, z: np.ndarray, there: np.ndarray, paired: np.ndarray
    ) -> None:
        """Store a row z (G, models, d) of each model at each guard's `place`.

        Without `paired` windows now and before, shape (G, models), a model only forgets, if a
        window is `there`, shape (G,). `absorb` adds the stored rows to the moments, many at once.
        """
        g, model = np.nonzero(paired)
        self.recent[g, model, place[g]] = z[paired]
        self.weight[there] = (1 - MODEL_FORGET) * self.weight[there] + paired[there]

    def learn_residual(self, residual: np.ndarray) -> None:
        """Learn the AR(1) from a round's residual, shape (G, n); NaN is not learned."""
        ages = np.concatenate([residual[:, np.newaxis], self.residual], axis=1)
        with np.errstate(over="ignore"):  # a product that is too large is not added
            product = residual[:, np.newaxis] * ages
        faded = (1 - MODEL_FORGET) * self.products + product
        self.products[...] = np.where(np.isfinite(product), faded, self.products)
        self.residual[...] = ages[:, :-1]

    def absorb(self, count: np.ndarray) -> None:
        """Add the `count` (G,) stored rows to the moments; older rows weigh less."""
        count = count[:, np.newaxis, np.newaxis, np.newaxis]
        # rows from `count` on are 0
        age = count - 1 - np.arange(self.recent.shape[2])[:, np.newaxis]
        faded = self.recent * (1 - MODEL_FORGET) ** age
        products = faded.swapaxes(-1, -2) @ self.recent
        self.moments[...] = (1 - MODEL_FORGET) ** count * self.moments + products
        self.recent[...] = 0.0

    @np.errstate(divide="ignore", invalid="ignore")  # a model that has seen no row has weight 0
    def refit(self, count: np.ndarray, enough: np.ndarray, workers: np.ndarray) -> None:
        """Invert the moments of the last fit and use it; then absorb the `count` rows since then.

        That makes a new last fit, if a guard has `enough` windows; both have shape (G,). `workers`
        has each sensor's worker.
        """
        moments = self.moments / self.last_weight[..., np.newaxis, np.newaxis]
        variances = np.diagonal(moments[:, 0], axis1=-2, axis2=-1)
        self.scale[...] = np.sqrt(variances[:, : workers.size])
        self.precision[...] = inverse(load(moments))
        self.gain[...], self.variance[...] = gain_of(self.precision, workers)
        self.echo[...] = self.last_echo
        self.absorb(count)
        self.last_weight[enough] = self.weight[enough]
        self.last_echo[enough] = self.products[enough]

    def fill(self, guard: int, z: np.ndarray) -> np.ndarray:
        """Return a guard's row of horizon 1 with its missing entries replaced by their mean."""
        if not self.fitted[guard]:
            return z
        missing = np.isnan(z)
        rows = self.precision[guard, 0, missing]
        filled = z.copy()
        filled[missing] = -inverse(rows[:, missing]) @ (rows[:, ~missing] @ z[~missing])
        return filled

    def echoes(self) -> np.ndarray:
        """Return what the residuals 1 … H rounds ago add to predictions, (G, H, n)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            echo = self.echo[:, 1:] / self.echo[:, :1] * self.residual
        return np.where(np.isfinite(echo), echo, 0.0)

    def predict(
        self, z: np.ndarray, past: np.ndarray, workers: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predict each sensor's deviation from its level by other workers' sensors; 0 before a fit.

        `z` is (G, H, d), of which a guard has the first `past` (G,). Returns the deviations
        (G, H, n), and the factors by which gaps raise each error's standard deviation.
        """
        missing = np.isnan(z)
        known = np.where(missing, 0.0, z)
        values = (self.gain @ known[..., np.newaxis])[..., 0]
        inflation = np.ones(values.shape)
        fitted = self.fitted
        values[~fitted] = 0.0
        there = np.arange(z.shape[1]) < past[:, np.newaxis]
        for g in np.flatnonzero(fitted & (there & missing.any(-1)).any(-1)).tolist():
            k = past[g]
            values[g, :k], inflation[g, :k] = self._predict_among_gaps(
                g, z[g, :k], values[g, :k], workers
            )
        return values, inflation

    def _predict_among_gaps(
        self, guard: int, z: np.ndarray, alone: np.ndarray, workers: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predict a guard's deviations, (horizons, n), where some of z (horizons, d) are missing.

        `alone` are the predictions with 0 in place of what is missing.
        """
        horizons = len(z)
        n = workers.size
        missing = np.isnan(z)
        precision = self.precision[guard, :horizons]
        out, variance = predict_among_gaps(precision, z, missing, workers)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = variance / self.variance[guard, :horizons]
        # rounding may make the ratio less than 1; it is NaN if nothing is known
        bounded = np.sqrt(np.maximum(ratio, 1.0))
        inflation = np.where(ratio < MOST_INFLATION**2, bounded, MOST_INFLATION)
        # If only sensors of the predicted worker are missing, the prediction is the one without
        # gaps, bit for bit, because that never uses them.
        failed = np.unique(workers[missing[0, :n]])
        usual = ~missing[:, n:].any(1)[:, np.newaxis] & (failed.size <= 1)
        usual = usual & (np.isin(workers, failed) | (failed.size == 0))
        return np.where(usual, alone, out), np.where(usual, 1.0, inflation)


@np.errstate(divide="ignore", invalid="ignore")  # of what nothing is known yet
def inverse(matrices: np.ndarray) -> np.ndarray:
    """Invert covariances or precisions whose variables may differ by many powers of ten.

    LU chooses its pivots by size, so variables of size 1e5 would get none next to variables of size
    1e90.
    """
    if matrices.shape[-1] <= 1:
        return 1 / matrices
    # powers of two near the square roots of the diagonal: dividing by them loses no digit
    units = 2.0 ** np.round(0.5 * np.log2(np.diagonal(matrices, axis1=-2, axis2=-1)))
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
    """Return the gain (…, n, d) of precisions (…, d, d) without gaps, and sensors' variances."""
    *models, d, _ = precision.shape
    gain = np.zeros((*models, workers.size, d))
    variance = np.zeros((*models, workers.size))
    for block in blocks_of(workers, np.arange(workers.size)):
        across = block[:, :, np.newaxis]
        along = block[:, np.newaxis]
        covariance = inverse(precision[..., across, along])
        gain[..., block, :] = -covariance @ precision[..., block, :]
        gain[..., across, along] = 0.0
        variance[..., block] = np.diagonal(covariance, axis1=-2, axis2=-1)
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
    horizon = np.arange(horizons)[:, np.newaxis]
    number = missing.sum(1)
    at = np.argsort(~missing, axis=1, kind="stable")[:, : number.max()]  # the gaps come first
    padding = np.arange(at.shape[1]) >= number[:, np.newaxis]
    precision = np.broadcast_to(precision, (horizons, *precision.shape[1:]))
    rows = np.where(padding[..., np.newaxis], 0.0, precision[horizon, at])  # Λ_M·
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


def most_between_fits(rules: Rules) -> int:
    """Return the most windows between two fits, of which the model stores the rows.

    A fit costs O(n³) and a window O(n²), so a guard of many sensors fits less often.
    """
    return max(rules.horizons, rules.workers.size // 3)
