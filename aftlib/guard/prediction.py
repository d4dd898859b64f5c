"""What a sensor's window would have been: from the others' now, and from all before a failure.

One Gaussian of [W_t, W_{t−h}, season] a horizon h, fitted to the windows themselves with
forgetting, so that a drift, a rhythm and samples that hang together in time are in it. Worker A is
predicted from what is known of the rest by the precision Λ: −(Λ_UU)⁻¹ Λ_UK z_K, where U is A and
whatever else is missing. Beyond `JOINT` sensors: the others' windows now, and on each sensor's
residual an AR(1) over h rounds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from aftlib.core.compiling import jit

JOINT = 150
"""Most sensors whose windows h rounds ago all enter a prediction."""
LOADING = 0.01
"""Share of each variance that is added to it, which makes more sensors than rows bearable."""
LEAST_VARIANCE = 1e-200
FIRST_FIT = 60
"""Rounds before the first fit."""


class Model(NamedTuple):
    """State of the prediction; d = 2n + 2k columns (n + 2k beyond `JOINT`), k seasons.

    The fit in use is one refit behind, so that it never knew a round after the failure.
    """

    moments: np.ndarray  # (models, d, d), forgetting sums of z zᵀ
    rows: np.ndarray  # (models, every, d) since the moments were last brought up to date
    weight: np.ndarray  # (models,)
    precision: np.ndarray  # (2, models, d, d): in use, and the next one
    gain: np.ndarray  # (2, models, n, d)
    scale: np.ndarray  # (2, n) standard deviations; 0 before the first fit
    residual: np.ndarray  # (horizons + 1, n) of the last rounds
    products: np.ndarray  # (3, horizons + 1, n) forgetting sums of r_t r_{t−h}; in use, next, now


def new_model(sensors: int, horizons: int, seasons: int, every: int) -> Model:
    """Return the state before the first round."""
    joint = sensors <= JOINT
    models, d = (horizons, 2 * sensors) if joint else (1, sensors)
    d += 2 * seasons
    return Model(
        np.zeros((models, d, d)),
        np.zeros((models, every, d)),
        np.zeros(models),
        np.zeros((2, models, d, d)),
        np.zeros((2, models, sensors, d)),
        np.zeros((2, sensors)),
        np.full((horizons + 1, sensors), np.nan),
        np.zeros((3, horizons + 1, sensors)),
    )


@jit()
def units_of(matrix: Any) -> Any:
    """Powers of two near the square roots of a diagonal: to divide by them costs no digit."""
    return 2.0 ** np.round(0.5 * np.log2(np.diag(matrix)))


@jit()
def solve_in_units(matrix: Any, right: Any) -> Any:
    """Solve with a covariance or precision whose variables may differ by many powers of ten.

    LU chooses its pivots by size, so that units of 1e90 beside 1e5 would leave none for the small.
    """
    units = units_of(matrix)
    scaled = (right.T / units).T
    return (np.linalg.solve(matrix / units / units.reshape(-1, 1), scaled).T / units).T


@jit()
def learn_moments(model: Any, index: int, place: int, z: Any, forget: float) -> None:
    """Note one row z of a model; `absorb` takes the rows into the moments, many at once."""
    model.rows[index, place] = z
    model.weight[index] = (1 - forget) * model.weight[index] + 1


@jit()
def absorb(model: Any, forget: float) -> None:
    """Take the noted rows into the moments, the older the less."""
    every = model.rows.shape[1]
    for m in range(model.weight.size):
        faded = model.rows[m].copy()
        for k in range(every):
            faded[k] *= (1 - forget) ** (every - 1 - k)
        model.moments[m] *= (1 - forget) ** every
        model.moments[m] += np.dot(faded.T, model.rows[m])
        model.rows[m] = 0.0


@jit()
def refit(model: Any, workers: Any) -> None:
    """Put the next fit to use, and fit the one after it; `workers` tells each sensor's worker."""
    n = workers.size
    for m in range(model.weight.size):
        model.precision[0, m] = model.precision[1, m]
        model.gain[0, m] = model.gain[1, m]
        covariance = model.moments[m] / model.weight[m]
        d = len(covariance)
        for a in range(d):
            # what never varied is told apart from what does so in small units
            known = covariance[a, a] > LEAST_VARIANCE
            covariance[a, a] = (1 + LOADING) * covariance[a, a] if known else 1.0
        units = units_of(covariance)
        precision = np.linalg.inv(covariance / units / units.reshape(-1, 1))
        precision = precision / units / units.reshape(-1, 1)
        model.precision[1, m] = precision
        model.gain[1, m] = 0.0
        for worker in range(workers.max() + 1):
            own = np.flatnonzero(workers == worker)
            rest = np.ones(d, np.bool_)
            rest[own] = False
            others = np.flatnonzero(rest)
            block = np.empty((own.size, own.size))
            cross = np.empty((own.size, others.size))
            for a in range(own.size):
                block[a] = precision[own[a]][own]
                cross[a] = precision[own[a]][others]
            solved = solve_in_units(block, cross)
            for a in range(own.size):
                for b in range(others.size):
                    model.gain[1, m, own[a], others[b]] = -solved[a, b]
    model.products[0] = model.products[1]
    model.products[1] = model.products[2]
    model.scale[0] = model.scale[1]
    for i in range(n):
        model.scale[1, i] = np.sqrt(model.moments[0, i, i] / model.weight[0])


@jit()
def conditional(precision: Any, z: Any, unknown: Any) -> Any:
    """Mean of the unknown entries of z given the others; the known ones as they are."""
    u, k = np.flatnonzero(unknown), np.flatnonzero(~unknown)
    block = np.empty((u.size, u.size))
    right = np.empty(u.size)
    for a in range(u.size):
        row = precision[u[a]]
        block[a] = row[u]
        right[a] = -np.dot(row[k], z[k])
    filled = z.copy()
    filled[u] = solve_in_units(block, right)
    return filled


@jit()
def predict(model: Any, index: int, z: Any, workers: Any, out: Any) -> None:
    """Fill `out` with each sensor's value from what is known outside its worker; 0 before a fit."""
    missing = np.isnan(z)
    if model.scale[0].max() == 0:
        out[:] = 0.0
        return
    if not missing.any():
        out[:] = np.dot(model.gain[0, index], z)
        return
    precision = model.precision[0, index]
    for worker in range(workers.max() + 1):
        unknown = missing.copy()
        for i in range(workers.size):
            if workers[i] == worker:
                unknown[i] = True
        filled = conditional(precision, z, unknown)
        for i in range(workers.size):
            if workers[i] == worker:
                out[i] = filled[i]
