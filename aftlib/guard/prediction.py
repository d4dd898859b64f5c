"""Prediction of a lost window from the other workers' windows now and all windows before.

For each horizon h there is one Gaussian of [W_t, W_{t−h}, seasons]. It is fitted with forgetting to
the windows themselves, so it contains drifts, seasons and the correlation of samples in time. The
precision Λ predicts worker A from all known entries K of the rest: −(Λ_UU)⁻¹ Λ_UK z_K, where U
contains A and all missing entries. Beyond `JOINT` sensors the model only has the other workers'
windows now, and an AR(1) over h rounds on each sensor's residual.

Under gaps M the distribution of the rest has the precision Λ' = Λ − Λ_·M (Λ_MM)⁻¹ Λ_M· (Schur
complement). It is the same for all workers, so that m gaps cost O(m³ + m²n) once, not once per
worker.

A sensor whose first window comes late, such as one that joins, has few rows of its own. Its moments
come from its regression on the others in the rows since then, and from the others' moments in all
rows: the maximum likelihood of monotone missing data (Anderson, JASA 52, 1957).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from aftlib.core.compiling import jit

JOINT = 150
"""Largest number of sensors with which the windows h rounds ago enter a prediction."""
LOADING = 0.01
"""Share of each variance that is added to it, so that a fit may have more sensors than rows."""
LEAST_VARIANCE = 1e-200
FIRST_FIT = 60
"""Rounds before the first fit."""
LATE_USED, LATE_STORED, LATE_EQUAL = 50.0, 150.0, 0.9
"""Limits on the weight of the rows since the last late first window. From the first on, a late
sensor is predicted. When another sensor comes, its regression is stored from the second on, and
else learned again. From the third on, a share of all weight, the sensor is treated as the others.
"""
MOST_INFLATION = 1e6
"""Largest factor by which gaps may raise an error; an unknown factor is set to it."""


class Model(NamedTuple):
    """State of the prediction; d = 2n + 2k columns (n + 2k beyond `JOINT`), k seasons.

    The fit in use is the last but one, so that it contains no round after the failure.
    """

    moments: np.ndarray  # (models, d, d), forgetting sums of z zᵀ
    rows: np.ndarray  # (models, every, d) since the moments were last brought up to date
    weight: np.ndarray  # (models,)
    recent: np.ndarray  # (models, d, d) as the moments, since the last first window of a sensor
    recent_weight: np.ndarray  # (models,)
    late: np.ndarray  # (d,) columns of sensors whose first window came late
    precision: np.ndarray  # (2, models, d, d): in use, and the next one
    gain: np.ndarray  # (2, models, n, d)
    variance: np.ndarray  # (2, models, n) of each sensor, given all outside its worker
    scale: np.ndarray  # (2, n) standard deviations; 0 before the first fit
    residual: np.ndarray  # (H + 1, n) of the last rounds
    products: np.ndarray  # (3, H + 1, n) forgetting sums of r_t r_{t−h}; in use, next, now


def new_model(sensors: int, horizons: int, seasons: int, every: int) -> Model:
    """Return the state before the first round."""
    models, d = (horizons, 2 * sensors) if sensors <= JOINT else (1, sensors)
    d += 2 * seasons
    ring = horizons + 1, sensors
    return Model(
        moments=np.zeros((models, d, d)),
        rows=np.zeros((models, every, d)),
        weight=np.zeros(models),
        recent=np.zeros((models, d, d)),
        recent_weight=np.zeros(models),
        late=np.zeros(d, np.bool_),
        precision=np.zeros((2, models, d, d)),
        gain=np.zeros((2, models, sensors, d)),
        variance=np.zeros((2, models, sensors)),
        scale=np.zeros((2, sensors)),
        residual=np.full(ring, np.nan),
        products=np.zeros((3, *ring)),
    )


@jit()
def units_of(matrix: Any) -> Any:
    """Powers of two near the square roots of a diagonal; dividing by them loses no digit."""
    return 2.0 ** np.round(0.5 * np.log2(np.diag(matrix)))


@jit()
def solve_in_units(matrix: Any, right: Any) -> Any:
    """Solve with a covariance or precision whose variables may differ by many powers of ten.

    LU chooses its pivots by size, so variables of size 1e5 would get none next to variables of size
    1e90.
    """
    units = units_of(matrix)
    scaled = (right.T / units).T
    return (np.linalg.solve(matrix / units / units.reshape(-1, 1), scaled).T / units).T


@jit()
def learn_moments(model: Any, index: int, place: int, z: Any, forget: float) -> None:
    """Store one row z of a model; `absorb` adds the rows to the moments, many at once."""
    model.rows[index, place] = z
    model.weight[index] = (1 - forget) * model.weight[index] + 1
    model.recent_weight[index] = (1 - forget) * model.recent_weight[index] + 1


@jit()
def absorb(model: Any, forget: float, count: int) -> None:
    """Add the `count` stored rows to the moments; older rows weigh less."""
    if not count:
        return
    for m in range(model.weight.size):
        rows = model.rows[m, :count]
        faded = rows.copy()
        for k in range(count):
            faded[k] *= (1 - forget) ** (count - 1 - k)
        products = np.dot(faded.T, rows)
        model.moments[m] *= (1 - forget) ** count
        model.moments[m] += products
        model.recent[m] *= (1 - forget) ** count
        model.recent[m] += products
        model.rows[m] = 0.0


@jit()
def begin_late(model: Any, sensors: Any) -> None:
    """Count the following rows separately, because some sensors have their first windows there.

    Sensors that were late before stay late if they have too few rows; if not, they count like the
    others.
    """
    if model.recent_weight[0] >= LATE_STORED:
        end_late(model)
    for i in np.flatnonzero(sensors):
        model.late[i] = True
        if len(model.late) >= 2 * sensors.size:  # its windows of earlier rounds, too
            model.late[sensors.size + i] = True
    model.recent[:] = 0.0
    model.recent_weight[:] = 0.0


@jit()
def end_late(model: Any) -> None:
    """Replace the moments of late sensors' own rows by the moments from the regression."""
    for m in range(model.weight.size):
        model.moments[m] = complete_moments(model, m) * model.weight[m]
    model.late[:] = False


@jit()
def complete_moments(model: Any, index: int) -> Any:
    """Return the moments divided by the weight of their rows.

    Those of sensors that came late are regressed on the others, or 0 while they have too few rows.
    """
    moments = model.moments[index] / model.weight[index]
    late, others = np.flatnonzero(model.late), np.flatnonzero(~model.late)
    if late.size == 0:
        return moments
    if model.recent_weight[index] < LATE_USED or others.size == 0:
        moments[late] = 0.0
        moments[:, late] = 0.0
        return moments
    recent = model.recent[index] / model.recent_weight[index]
    across = np.ascontiguousarray(recent[others][:, late])
    own = recent[others][:, others]
    load(own)
    slope = solve_in_units(own, across)
    moved = np.dot(np.ascontiguousarray(moments[others][:, others]), slope)
    rest = recent[late][:, late] - np.dot(slope.T, across)
    explained = np.dot(slope.T, moved)
    for b in range(late.size):
        for a in range(others.size):
            moments[others[a], late[b]] = moments[late[b], others[a]] = moved[a, b]
        for a in range(late.size):
            left = max(rest[a, b], 0.0) if a == b else (rest[a, b] + rest[b, a]) / 2
            moments[late[a], late[b]] = left + (explained[a, b] + explained[b, a]) / 2
    return moments


@jit()
def load(moments: Any) -> None:
    """Add `LOADING` to the diagonal; a column without variance is independent of the others."""
    for a in range(len(moments)):
        # tell a constant from a variable in small units
        varies = moments[a, a] > LEAST_VARIANCE
        moments[a, a] = (1 + LOADING) * moments[a, a] if varies else 1.0


@jit()
def refit(model: Any, workers: Any) -> None:
    """Use the next fit, and compute the fit after that; `workers` has each sensor's worker."""
    model.precision[0], model.gain[0] = model.precision[1], model.gain[1]
    model.variance[0] = model.variance[1]
    model.scale[0], model.products[0] = model.scale[1], model.products[1]
    model.products[1] = model.products[2]
    if model.late.any() and model.recent_weight[0] > LATE_EQUAL * model.weight[0]:
        end_late(model)
    for m in range(model.weight.size):
        moments = complete_moments(model, m)
        for i in range(workers.size if m == 0 else 0):
            model.scale[1, i] = np.sqrt(moments[i, i])
        load(moments)
        units = units_of(moments)
        precision = np.linalg.inv(moments / units / units.reshape(-1, 1))
        model.precision[1, m] = precision / units / units.reshape(-1, 1)
        fit_gain(model, 1, m, workers)


@jit()
def fit_gain(model: Any, fit: int, index: int, workers: Any) -> None:
    """Compute gain and variance of a fit from its precision."""
    n, precision = workers.size, model.precision[fit, index]
    model.gain[fit, index] = 0.0
    for worker in range(workers.max() + 1):
        rest = np.ones(len(precision), np.bool_)
        rest[:n] = workers != worker
        own, others = np.flatnonzero(~rest), np.flatnonzero(rest)
        rows = precision[own]
        covariance = np.ascontiguousarray(solve_in_units(rows[:, own], np.eye(own.size)))
        solved = np.dot(covariance, np.ascontiguousarray(rows[:, others]))
        for a in range(own.size):
            model.gain[fit, index, own[a]][others] = -solved[a]
            model.variance[fit, index, own[a]] = covariance[a, a]


@jit()
def conditional(precision: Any, z: Any, unknown: Any) -> Any:
    """Return z with the unknown entries replaced by their mean given the others."""
    u, k = np.flatnonzero(unknown), np.flatnonzero(~unknown)
    right = np.empty(u.size)
    for a in range(u.size):
        right[a] = -np.dot(precision[u[a]][k], z[k])
    filled = z.copy()
    filled[u] = solve_in_units(precision[u][:, u], right)
    return filled


@jit()
def predict(model: Any, index: int, z: Any, workers: Any, out: Any, inflation: Any) -> None:
    """Fill `out` with each sensor's value, predicted from other workers' sensors; 0 before a fit.

    `inflation` (n,) receives the factor by which gaps raise each error's standard deviation.
    """
    missing = np.isnan(z)
    inflation[:] = 1.0
    if model.scale[0].max() == 0:
        out[:] = 0.0
    elif not missing.any():
        out[:] = np.dot(model.gain[0, index], z)
    else:
        variance = np.empty(out.size)
        predict_among_gaps(model.precision[0, index], z, missing, workers, out, variance)
        for i in range(out.size):
            ratio = variance[i] / model.variance[0, index, i]
            # rounding may make the ratio less than 1; it is NaN if nothing is known
            inflation[i] = np.sqrt(max(ratio, 1.0)) if ratio < MOST_INFLATION**2 else MOST_INFLATION
        failed = only_worker(missing, workers)
        if failed >= 0:  # equal bit for bit to the shadow prediction, without the worker's values
            alone = np.dot(model.gain[0, index], np.where(missing, 0.0, z))
            own = workers == failed
            out[own], inflation[own] = alone[own], 1.0


@jit()
def only_worker(missing: Any, workers: Any) -> int:
    """Return the worker that has all gaps; −1 if several have, or earlier windows are missing."""
    gaps = np.flatnonzero(missing)
    if gaps[-1] >= workers.size or (workers[gaps] != workers[gaps[0]]).any():
        return -1
    return workers[gaps[0]]


@jit()
def predict_among_gaps(
    precision: Any, z: Any, missing: Any, workers: Any, out: Any, variance: Any
) -> None:
    """Fill mean and variance of each sensor given the values of z outside its worker."""
    n, gaps = workers.size, np.flatnonzero(missing)
    place = np.full(n, -1)  # index of a missing sensor among the gaps
    for a in range(gaps.size):
        if gaps[a] < n:
            place[gaps[a]] = a
    known, rows = np.where(missing, 0.0, z), np.ascontiguousarray(precision[gaps])
    across = np.ascontiguousarray(rows[:, :n].T)  # (n, m)
    inverse = np.ascontiguousarray(solve_in_units(rows[:, gaps], np.eye(gaps.size)))
    passed = np.dot(across, inverse)  # Λ_·M Λ_MM⁻¹
    of_gaps = np.dot(inverse, np.dot(rows, known))
    weighted = np.dot(precision[:n], known) - np.dot(across, of_gaps)  # Λ' z
    for worker in range(workers.max() + 1):
        own = np.flatnonzero(workers == worker)
        here, gone = own[place[own] < 0], own[place[own] >= 0]
        covariance = np.empty((here.size, here.size))
        for a in range(here.size):
            for b in range(here.size):  # Λ'
                across_a, passed_b = across[here[a]], passed[here[b]]
                covariance[a, b] = precision[here[a], here[b]] - np.dot(across_a, passed_b)
        if here.size == 1:
            covariance[0, 0] = 1 / covariance[0, 0]
        elif here.size > 1:
            covariance[:] = solve_in_units(covariance, np.eye(here.size))
        shift = np.dot(covariance, weighted[here])
        for a in range(here.size):
            out[here[a]] = z[here[a]] - shift[a]
            variance[here[a]] = covariance[a, a]
        for i in gone:
            a = place[i]
            part = passed[here, a]
            out[i] = np.dot(part, shift) - of_gaps[a]
            variance[i] = inverse[a, a] + np.dot(part, np.dot(covariance, part))
