"""Reasons to trust a plan less, in words that name the sensor and the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from aftlib.sensor_plans.backtest import GUARD, Walk
from aftlib.sensor_plans.sensor_file import SensorTable
from aftlib.sensor_plans.window_results import Survey, outliers

LEARNING = 250
"""Windows that the guard needs before it certifies anything."""
LATE, LATE_LEARNING = 50, 600
"""Windows by which a sensor starts after the first, and that it needs then, to count as late."""
EASED = 1.2
"""Least ε in 1 − δ quantiles of the errors at which the guard certifies most windows."""
STILL = 30
"""Fewest consecutive samples of one value that count as stuck."""
QUIET = 0.1
"""Share of a sensor's samples that may be missing without a caution."""
COPIES = 0.9999
"""Correlation, of results and of their changes, from which two sensors are one source."""
FEW, MOST_SAMPLES = 30, 50_000
"""Fewest rows with both of two sensors, and most samples, the last ones, that are compared."""
SHIFT = 0.5
"""Share of the variance of a sensor's difference from its neighbours that one shift explains."""
NEAR, LARGER = 3, 1.5
"""Most windows between two shifts of one time, and how much larger the other is then."""
NEIGHBOURS, RELATED = 5, 0.5
"""Most sensors with which a sensor is compared, and their least correlation."""
NAMED = 6
"""Most sensors that a caution names, the worst first."""


def fails(walk: Walk) -> bool:
    """Whether the guard missed its guarantee in the back-test, by more than chance explains."""
    interval = walk.summary(GUARD)["interval"]
    return interval is not None and interval[1] < 1 - walk.delta


def guarantee_cautions(survey: Survey, walk: Walk) -> Iterator[str]:
    """Yield warnings about the value of the guarantee."""
    names, limits = survey.names, survey.limits
    if fails(walk):
        yield (
            f"Back-test: only {walk.summary(GUARD)['within']:.1%} of what was certified in the "
            f"second half was within ε (guaranteed: {1 - walk.delta:.0%}, up to the slack). "
            "Estimating is not recommended: recover exactly, or plan from the data after the "
            "change."
        )
    if walk.edges[0] < LEARNING:
        yield (
            f"Too few windows: {walk.edges[0]} before the back-test, and the guard needs about "
            f"{LEARNING} before it certifies anything. Give a longer record or smaller windows."
        )
    guarantees, permitted = walk.guarantees, walk.pooled_allowance
    if guarantees and permitted > walk.delta * guarantees:
        yield (
            f"Few guarantees: of N = {guarantees:,} one window ahead the theorem permits "
            f"{permitted:.0f} errors beyond the share δ, more than δ itself. Rely on the "
            "back-test rather than on the bound."
        )
    known = np.isfinite(survey.values)
    late = known.argmax(axis=0) - known.any(axis=1).argmax()
    unlearned = (late >= LATE) & (len(known) - known.argmax(axis=0) < LATE_LEARNING)
    for i in np.flatnonzero(unlearned).tolist():
        yield (
            f"Late start: {names[i]} has no window before {survey.at(known[:, i].argmax())}; such "
            f"a sensor needs about {LATE_LEARNING} windows before it is certified."
        )
    never = np.flatnonzero((walk.certified_shares[0] < 0.05) & ~unlearned)
    if len(never) and walk.edges[0] >= LEARNING:
        worth = [
            f"{names[i]} {EASED * walk.least_epsilon[i]:.4g} (asked {limits[i]:.4g})"
            for i in sorted(never.tolist(), key=lambda i: -walk.least_epsilon[i] / limits[i])
        ]
        yield (
            f"ε is too small for {len(never)} of {len(names)} sensors: they are hardly ever "
            f"certified. The smallest ε that would be worth it: {listed(worth)}."
        )


def data_cautions(table: SensorTable, values: np.ndarray, width: int) -> Iterator[str]:
    """Yield warnings about the samples, and about `values`, the windows' results, (N, n)."""
    names, gone = table.names, np.isnan(table.values)
    for i in np.flatnonzero((wild := outliers(table.values)).any(axis=0)).tolist():
        steps = np.flatnonzero(wild[:, i])
        yield (
            f"Outlier: {names[i]} is {table.values[steps[0], i]:g} at {table.at(steps[0])}"
            + (f" and {len(steps) - 1} more such" if len(steps) > 1 else "")
            + "; it is left out of the spread that scales ε."
        )
    yield from _copies(names, values, table.values)
    yield from _shifts(table, values, width)
    runs = np.array([_longest_run(column) for column in table.values.T])
    if (stuck := runs >= max(STILL, 3 * width)).any():
        worst = [f"{names[i]} ({runs[i]:,} samples)" for i in np.argsort(-runs) if stuck[i]]
        yield f"Stuck on one value: {listed(worst)}. Such a sensor is easy to certify."
    silent = gone.all(axis=1)
    missing = (gone & ~silent[:, None]).sum(axis=0) / max(1, (~silent).sum())
    if (missing > QUIET).any():
        quiet = [
            f"{names[i]} ({missing[i]:.0%})" for i in np.argsort(-missing) if missing[i] > QUIET
        ]
        yield f"Long silences: samples are missing in {listed(quiet)}."
    if silent.any():
        yield (
            f"Clock gaps: {silent.sum():,} of {len(silent):,} steps have no sample of any sensor, "
            f"the first at {table.at(int(silent.argmax()))}."
        )


def _copies(names: Sequence[str], values: np.ndarray, samples: np.ndarray) -> Iterator[str]:
    alike = np.full((len(names), len(names)), 0.0)
    for rows in (values, samples[-MOST_SAMPLES:]):
        level, change = _correlate(rows), _correlate(np.diff(rows, axis=0))
        same = np.sign(level) * np.sign(change)
        alike = np.fmax(alike, same * np.minimum(np.abs(level), np.abs(change)))
    for i, j in combinations(range(len(names)), 2):
        if alike[i, j] > COPIES:
            yield (
                f"Near-copies: {names[i]} and {names[j]} (r = {alike[i, j]:.6f}). If these are two "
                "names for one source they are no redundancy: leave one out by --drop."
            )


def _correlate(rows: np.ndarray) -> np.ndarray:
    """Correlation of each two columns over the rows that have both; NaN below `FEW` such rows."""
    present = np.isfinite(rows)
    ones, seen = present.astype(float), np.maximum(1, present.sum(axis=0))
    z = np.where(present, rows, 0.0)
    z = np.where(present, z - z.sum(axis=0) / seen, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = z / np.sqrt((z**2).sum(axis=0) / seen)
        counts, sums, squares = ones.T @ ones, z.T @ ones, (z**2).T @ ones
        variances = squares / counts - (sums / counts) ** 2
        covariances = z.T @ z / counts - sums * sums.T / counts**2
        related = covariances / np.sqrt(variances * variances.T)
    return np.where(counts >= FEW, related, np.nan)


def _shifts(table: SensorTable, values: np.ndarray, width: int) -> Iterator[str]:
    """Yield a warning for each sensor that moves away from its neighbours for good."""
    z = (values - np.nanmedian(values, axis=0)) / np.nanstd(values, axis=0)
    related = np.ma.corrcoef(np.ma.masked_invalid(z), rowvar=False).filled(0.0)
    shifts: dict[int, tuple[int, float, list[int]]] = {}
    for i in range(len(related)):
        others = np.argsort(-related[i] + 9 * (np.arange(len(related)) == i))[:NEIGHBOURS]
        alike = [j for j in others.tolist() if j != i and related[i, j] > RELATED]
        if len(alike) < 2:
            continue
        difference = z[:, i] - _median(z[:, alike])
        known = np.flatnonzero(np.isfinite(difference))
        at, shift, share = _fit_shift(difference[known])
        if share >= SHIFT:
            shifts[i] = int(known[at]), shift, alike
    for i, (at, shift, alike) in shifts.items():
        # a neighbour's shift, seen from here, is smaller and has the other sign
        if any(
            j in shifts and abs(shifts[j][0] - at) <= NEAR and shifts[j][1] / shift < -LARGER
            for j in alike
        ):
            continue
        yield (
            f"Level shift: {table.names[i]} moves by {shift * np.nanstd(values[:, i]):+.3g} "
            f"against the sensors most like it at {table.at(at * width)}. Was it replaced or "
            "moved, or does it drift?"
        )


def _median(rows: np.ndarray) -> np.ndarray:
    """Median of each row without its gaps; NaN where all are gaps."""
    return np.ma.median(np.ma.masked_invalid(rows), axis=1).filled(np.nan)


def _fit_shift(series: np.ndarray) -> tuple[int, float, float]:
    """The best single shift: its place, its height, and the share of the variance it explains."""
    n, centred = len(series), series - series.mean()
    counts = np.arange(1, n)
    gains = np.cumsum(centred)[:-1] ** 2 * n / (counts * (n - counts))
    margin = max(1, n // 20)  # a shift at the very end is an outage
    gains[:margin] = gains[n - 1 - margin :] = 0
    at = int(gains.argmax()) + 1
    height = float(series[at:].mean() - series[:at].mean())
    return at, height, float(gains.max() / max(float((centred**2).sum()), 1e-300))


def _longest_run(column: np.ndarray) -> int:
    """Most consecutive samples of one value, whatever is missing between them."""
    column = column[np.isfinite(column)]
    ends = np.flatnonzero(np.append(column[1:] != column[:-1], True))
    return int(np.diff(np.append(-1, ends)).max())


def listed(texts: Sequence[str]) -> str:
    """The first few texts, and how many more there are."""
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return ", ".join(texts[:NAMED]) + more
