"""Reasons to trust a plan less, in words that name the sensor and the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

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
FEW = 30
"""Fewest rows with both of two sensors that are compared."""
LEAST_ROWS, MOST_CELLS = 512, 200_000
"""The last rows in which copies are looked for: at least so many, or most cells of all sensors."""
SHIFT = 0.5
"""Share of the variance of a sensor's difference from its neighbours that one shift explains."""
EDGE, ABRUPT = 10, 0.75
"""Windows beside an edge of a shift that ends, and the share of its height that they differ by."""
PARTS, WIDE = 20, 4
"""Parts of the time in which sensors are compared; deviations beyond which, in medians, are cut."""
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
            f"certified. The smallest ε that would be worth it: {list_first(worth)}."
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
        yield f"Stuck on one value: {list_first(worst)}. Such a sensor is easy to certify."
    silent = gone.all(axis=1)
    missing = (gone & ~silent[:, None]).sum(axis=0) / max(1, (~silent).sum())
    if (missing > QUIET).any():
        quiet = [
            f"{names[i]} ({missing[i]:.0%})" for i in np.argsort(-missing) if missing[i] > QUIET
        ]
        yield f"Long silences: samples are missing in {list_first(quiet)}."
    if silent.any():
        yield (
            f"Clock gaps: {silent.sum():,} of {len(silent):,} steps have no sample of any sensor, "
            f"the first at {table.at(int(silent.argmax()))}."
        )


def _copies(names: Sequence[str], values: np.ndarray, samples: np.ndarray) -> Iterator[str]:
    last = slice(-max(LEAST_ROWS, MOST_CELLS // len(names)), None)
    values, samples = values[last], samples[last]
    alike = np.fmax(_likeness(values), _likeness(samples))
    found = [(i, j, 0, alike[i, j]) for i, j in combinations(range(len(names)), 2)]
    for i, j, lag in _lags(samples):
        pair = np.column_stack([samples[:-lag, i], samples[lag:, j]])
        found.append((i, j, lag, _likeness(pair)[0, 1]))
    for i, j, lag, r in found:
        if r > COPIES:
            later = f", which repeats it {lag} steps later" if lag else ""
            yield (
                f"Near-copies: {names[i]} and {names[j]}{later} (r = {r:.6f}). If these are two "
                "names for one source they are no redundancy: leave one out by --drop."
            )


def _likeness(rows: np.ndarray) -> np.ndarray:
    """Correlation of each two columns, or that of their changes if it is nearer to 0."""
    frame = pd.DataFrame(rows)
    level, change = (part.corr(min_periods=FEW).to_numpy() for part in (frame, frame.diff()))
    return np.sign(level * change) * np.minimum(np.abs(level), np.abs(change))


def _lags(samples: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield two columns and a lag, by which the second seems to repeat the first later."""
    changes = np.nan_to_num(np.diff(samples, axis=0)).T
    changes /= np.maximum(np.linalg.norm(changes, axis=1, keepdims=True), 1e-300)
    spectra = np.fft.rfft(changes, 2 * changes.shape[1])
    for i, spectrum in enumerate(spectra):
        cross = np.abs(np.fft.irfft(spectra * spectrum.conj()))[:, : len(samples) // 2]
        lags = cross.argmax(axis=1)
        near = (lags > 0) & (cross.max(axis=1) > RELATED)
        yield from ((i, j, int(lags[j])) for j in np.flatnonzero(near).tolist())


def _shifts(table: SensorTable, values: np.ndarray, width: int) -> Iterator[str]:
    """Yield a warning for each sensor that moves away from its neighbours, for good or a while."""
    results, shifts = pd.DataFrame(values), dict[int, tuple[int, int, float, list[int]]]()
    # a large shift hides who is alike, but not in deviations from the median of a part of the time
    parts = np.arange(len(values)) * PARTS // len(values)
    local = results - results.groupby(parts).transform("median")
    usual, scale = results.std(), local.abs().median()
    scale = scale.where(scale > 0, usual)
    clipped = (local / scale).clip(-WIDE, WIDE)
    for units, rows, least in ((usual, results, -np.inf), (scale, clipped, ABRUPT)):
        related = rows.corr(min_periods=FEW).to_numpy(copy=True)
        np.fill_diagonal(related, np.nan)
        z = results / units
        for i in range(len(table.names)):
            nearest = np.argsort(-related[i])[:NEIGHBOURS].tolist()
            alike = [j for j in nearest if related[i, j] > RELATED]
            difference = (z[i] - z[alike].median(axis=1)).dropna()
            if i in shifts or len(alike) < 2 or len(difference) < FEW:
                continue
            begin, end, height, share, abrupt = _fit_shift(difference.to_numpy())
            if share >= SHIFT and abrupt > least:
                at = [*difference.index, len(values)]
                shifts[i] = at[begin], at[end], height * units[i] / scale[i], alike
    for i, (begin, end, height, alike) in sorted(shifts.items()):
        # a neighbour's shift, seen from here, is smaller and has the other sign
        if any(
            j in shifts and abs(shifts[j][0] - begin) <= NEAR and shifts[j][2] / height < -LARGER
            for j in alike
        ):
            continue
        until = f" until {table.at(end * width)}" if end < len(values) else ""
        yield (
            f"Level shift: {table.names[i]} moves by {height * scale[i]:+.3g} against the sensors "
            f"most like it at {table.at(begin * width)}{until}. Was it replaced or moved, or does "
            "it drift?"
        )


def _fit_shift(series: np.ndarray) -> tuple[int, int, float, float, float]:
    """The best shift: begin, end, height, its share of the variance, and how abrupt its edges are.

    It ends before the series if the sums of deviations turn at two abrupt edges. In a short series,
    such as a few days, no edge is abrupt.
    """
    n, sums = len(series), np.append(0.0, np.cumsum(series - series.mean()))
    margin = max(1, n // 20)  # a shift at the very end is an outage

    def shift(begin: int, end: int) -> tuple[int, int, float, float, float]:
        jump = float(sums[end] - sums[begin])
        height = jump * n / ((end - begin) * (n - end + begin)) or 1e-300
        turns = [
            sign * (sums[min(at + EDGE, n)] - 2 * sums[at] + sums[max(at - EDGE, 0)])
            for at, sign in ((begin, 1), (end, -1))
            if at < n
        ]
        share = height * jump / max(n * float(series.var()), 1e-300)
        abrupt = min(turn / height / EDGE for turn in turns) if margin >= EDGE else 0.0
        return begin, end, height, share, abrupt

    cuts = np.arange(margin, n - margin + 1)
    best = shift(int(cuts[(sums[cuts] ** 2 / (cuts * (n - cuts))).argmax()]), n)
    first, last = sorted((int(sums.argmin()), int(sums.argmax())))
    if EDGE <= first <= last - EDGE <= n - 2 * EDGE:
        brief = shift(first, last)
        best = brief if brief[-1] > ABRUPT else best
    return best


def _longest_run(column: np.ndarray) -> int:
    """Most consecutive samples of one value, whatever is missing between them."""
    column = column[np.isfinite(column)]
    ends = np.flatnonzero(np.append(column[1:] != column[:-1], True))
    return int(np.diff(np.append(-1, ends)).max())


def list_first(texts: Sequence[str]) -> str:
    """The first few texts, and how many more there are."""
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return ", ".join(texts[:NAMED]) + more
