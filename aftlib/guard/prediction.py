"""Prediction of a lost window from the other workers' windows now and all windows before.

For each horizon h there is one Gaussian of [W_t, W_{t−h}, seasons]. It is fitted with forgetting to
the windows themselves, so it contains drifts, seasons and the correlation of samples in time. The
precision Λ predicts worker A from all known entries K of the rest: −(Λ_UU)⁻¹ Λ_UK z_K, where U
contains A and all missing entries. Beyond `JOINT` sensors the model only has the other workers'
windows now, and an AR(1) over h rounds on each sensor's residual.

Under gaps M the distribution of the rest has the precision Λ' = Λ − Λ_·M (Λ_MM)⁻¹ Λ_M· (Schur
complement). It is the same for all workers, so that m gaps cost O(m³ + m²n) once, not once per
worker.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

JOINT = 150
"""Largest number of sensors with which the windows h rounds ago enter a prediction."""
LOADING = 0.01
"""Share of each variance that is added to it, so that a fit may have more sensors than rows."""
LEAST_VARIANCE = 1e-200
"""Variance from which on a column is no constant."""
FIRST_FIT = 60
"""Rounds before the first fit."""
MOST_INFLATION = 1e6
"""Largest factor by which gaps may raise an error; an unknown factor is set to it."""
IN_USE, NEXT = 0, 1
"""Fits; the one in use is the last but one, so that it has no round after a failure."""


@dataclass
class Model:
    """State of the prediction; d = 2n + 2k columns (n + 2k beyond `JOINT`), k seasons.

    There is one model per horizon, or beyond `JOINT` sensors one for all.
    """

    moments: np.ndarray  # (models, d, d), forgetting sums of z zᵀ
    rows: np.ndarray  # (models, every, d) since the moments were last brought up to date
    weight: np.ndarray  # (models,)
    precision: np.ndarray  # (2, models, d, d) of both fits
    gain: np.ndarray  # (2, models, n, d)
    variance: np.ndarray  # (2, models, n) of each sensor, given all outside its worker
    scale: np.ndarray  # (2, n) standard deviations; 0 before the first fit
    residual: np.ndarray  # (H + 1, n) of the last rounds
    echo: np.ndarray  # (2, H + 1, n) products of both fits
    products: np.ndarray  # (H + 1, n) forgetting sums of r_t r_{t−h}


def new_model(sensors: int, horizons: int, seasons: int, every: int) -> Model:
    """Return the state before the first round."""
    models, d = (horizons, 2 * sensors) if sensors <= JOINT else (1, sensors)
    d += 2 * seasons
    ring = horizons + 1, sensors
    return Model(
        moments=np.zeros((models, d, d)), rows=np.zeros((models, every, d)),
        weight=np.zeros(models), precision=np.zeros((2, models, d, d)),
        gain=np.zeros((2, models, sensors, d)), variance=np.zeros((2, models, sensors)),
        scale=np.zeros((2, sensors)), residual=np.full(ring, np.nan), echo=np.zeros((2, *ring)),
        products=np.zeros(ring),
    )  # fmt: skip


def units_of(matrices: np.ndarray) -> np.ndarray:
    """Powers of two near the square roots of diagonals; dividing by them loses no digit."""
    return np.asarray(2.0 ** np.round(0.5 * np.log2(np.diagonal(matrices, axis1=-2, axis2=-1))))


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


def learn_rows(model: Model, place: int, z: np.ndarray, seen: np.ndarray, forget: float) -> None:
    """Store a row z (models, d) of each model; `absorb` adds the rows to the moments, many at once.

    A model that has not `seen` its row only forgets.
    """
    model.rows[seen, place] = z[seen]
    model.weight = (1 - forget) * model.weight + seen


def absorb(model: Model, forget: float, count: int) -> None:
    """Add the `count` stored rows to the moments; older rows weigh less."""
    rows = model.rows[:, :count]
    faded = rows * ((1 - forget) ** np.arange(count - 1, -1, -1))[:, np.newaxis]
    products = faded.swapaxes(1, 2) @ rows
    model.moments = (1 - forget) ** count * model.moments + products
    model.rows[:] = 0.0


def load(moments: np.ndarray) -> np.ndarray:
    """Return moments with a larger diagonal; constant columns become independent of the others."""
    loaded, diagonal = moments.copy(), np.diagonal(moments, axis1=-2, axis2=-1)
    # tell a constant from a variable in small units
    larger = np.where(diagonal > LEAST_VARIANCE, (1 + LOADING) * diagonal, 1.0)
    at = np.arange(diagonal.shape[-1])
    loaded[..., at, at] = larger
    return loaded


def refit(model: Model, workers: np.ndarray) -> None:
    """Use the next fit, and compute the fit after that; `workers` has each sensor's worker."""
    for fits in (model.precision, model.gain, model.variance, model.scale, model.echo):
        fits[IN_USE] = fits[NEXT]
    model.echo[NEXT] = model.products
    moments = model.moments / model.weight[:, np.newaxis, np.newaxis]
    model.scale[NEXT] = np.sqrt(np.diagonal(moments[0])[: workers.size])
    model.precision[NEXT] = inverse(load(moments))
    fit_gain(model, NEXT, workers)


def fit_gain(model: Model, fit: int, workers: np.ndarray) -> None:
    """Compute gain and variance of a fit from its precision."""
    precision = model.precision[fit]
    for block in blocks_of(workers, np.arange(workers.size)):
        across, along = block[:, :, np.newaxis], block[:, np.newaxis]
        covariance = inverse(precision[:, across, along])
        gain = -covariance @ precision[:, block]
        model.gain[fit][:, block] = gain
        model.gain[fit][:, across, along] = 0.0
        model.variance[fit][:, block] = np.diagonal(covariance, axis1=-2, axis2=-1)


def conditional(precision: np.ndarray, z: np.ndarray, unknown: np.ndarray) -> np.ndarray:
    """Return z with the unknown entries replaced by their mean given the others."""
    filled, rows = z.copy(), precision[unknown]
    filled[unknown] = -inverse(rows[:, unknown]) @ (rows[:, ~unknown] @ z[~unknown])
    return filled


def predict(model: Model, z: np.ndarray, workers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predict each sensor's value from other workers' sensors; 0 before a fit.

    `z` is (horizons, d). Returns the values (horizons, n), and the factors by which gaps raise each
    error's standard deviation.
    """
    horizons, n = len(z), workers.size
    missing = np.isnan(z)
    inflation = np.ones((horizons, n))
    if model.scale[IN_USE].max() == 0:
        return np.zeros((horizons, n)), inflation
    gain = model.gain[IN_USE, :horizons]
    if not missing.any():
        return (gain @ z[..., np.newaxis])[..., 0], inflation
    out, variance = predict_among_gaps(model.precision[IN_USE, :horizons], z, missing, workers)
    ratio = variance / model.variance[IN_USE, :horizons]
    # rounding may make the ratio less than 1; it is NaN if nothing is known
    bounded = np.sqrt(np.maximum(ratio, 1.0))
    inflation = np.where(ratio < MOST_INFLATION**2, bounded, MOST_INFLATION)
    # equal bit for bit to the shadow prediction, without the failed worker's values
    alone = (gain @ np.where(missing, 0.0, z)[..., np.newaxis])[..., 0]
    failed = np.unique(workers[missing[0, :n]])
    usual = ~missing[:, n:].any(1)[:, np.newaxis] & (failed.size <= 1)
    usual = usual & (np.isin(workers, failed) | (failed.size == 0))
    return np.where(usual, alone, out), np.where(usual, 1.0, inflation)


def predict_among_gaps(
    precision: np.ndarray, z: np.ndarray, missing: np.ndarray, workers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of each sensor given the values of z outside its worker.

    The sensors without a window now are the same for all horizons; earlier gaps differ.
    """
    horizons, n = len(z), workers.size
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
    known, across = np.where(missing, 0.0, z), rows[..., :n].swapaxes(1, 2)
    passed = across @ solved  # Λ_·M Λ_MM⁻¹
    of_gaps = (solved @ (rows @ known[..., np.newaxis]))[..., 0]
    weighted = precision[:, :n] @ known[..., np.newaxis] - across @ of_gaps[..., np.newaxis]  # Λ' z

    gone, there = np.flatnonzero(missing[0, :n]), np.flatnonzero(~missing[0, :n])
    out, variance = np.empty((2, horizons, n))
    out[:, gone] = -of_gaps[:, : gone.size]
    variance[:, gone] = np.diagonal(solved, axis1=1, axis2=2)[:, : gone.size]
    for block in blocks_of(workers, there):
        of_block = across[:, block] @ passed[:, block].swapaxes(-1, -2)
        own = precision[:, block[:, :, np.newaxis], block[:, np.newaxis]] - of_block  # Λ'
        covariance = inverse(own)
        shift = covariance @ weighted[:, block]
        out[:, block] = z[:, block] - shift[..., 0]
        variance[:, block] = np.diagonal(covariance, axis1=-2, axis2=-1)
        # sensors that are gone from these workers: also without the rest of the worker
        place, worker = np.nonzero(workers[gone][:, np.newaxis] == workers[block[:, 0]])
        if place.size:
            part = passed[:, block[worker], place[:, np.newaxis]]
            out[:, gone[place]] += (part * shift[..., 0][:, worker]).sum(-1)
            spread = (covariance[:, worker] @ part[..., np.newaxis])[..., 0]
            variance[:, gone[place]] += (part * spread).sum(-1)
    return out, variance
