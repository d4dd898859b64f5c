"""Reasons to trust a plan less, in words that name the sensor and the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from aftlib.sensor_plans.backtest import Walk, percent
from aftlib.sensor_plans.sensor_checks import find_doubtful_number
from aftlib.sensor_plans.sensor_file import SensorTable
from aftlib.sensor_plans.window_results import Survey, bounds, outliers

#: Windows of a sensor that the guard needs before it certifies anything.
LEARNING = 250
#: Least ε in 1 − δ quantiles of the errors at which the guard certifies most windows.
EASED = 1.2
#: Fewest consecutive samples of one value that count as stuck.
STILL = 30
#: Share of a sensor's samples that may be missing without a caution.
QUIET = 0.1
#: Correlation of the changes from which two sensors are one source.
COPIES = 0.9999
#: Least correlation of sensors that are compared.
RELATED = 0.5
#: Fewest rows with both of two sensors that are compared.
FEW = 30
#: The last rows in which copies are looked for: at least so many, or most cells of all sensors.
LEAST_ROWS, MOST_CELLS = 512, 200_000
#: Share of the variance of a sensor's difference from its neighbours that a level shift explains,
#: and that one which ends must explain besides.
SHIFT, RETURN = 0.65, 0.1
#: Fewest windows of a shift that ends.
BRIEFEST = 10
#: Parts of the time, in whose deviations from the median a shift does not hide who is alike.
PARTS = 20
#: Most sensors with which a sensor is compared.
NEIGHBOURS = 5
#: Most sensors that a caution names, the worst first.
NAMED = 6


def fails(walk: Walk) -> bool:
    """Whether the guard missed its guarantee in the back-test, by more than chance explains."""
    interval = walk.score().interval
    return interval is not None and interval[1] < 1 - walk.delta


def guarantee_cautions(survey: Survey, walk: Walk) -> Iterator[str]:
    """Yield warnings about the value of the guarantee."""
    names = survey.names
    limits = survey.limits
    within = walk.score().within
    if within is not None and fails(walk):
        yield (
            f"Back-test: only {percent(within, 1)} of what was certified in the "
            f"second half was within ε (guaranteed: {percent(1 - walk.delta)}, up to the slack). "
            "Estimating is not recommended: recover exactly, or plan from the data after the "
            "change."
        )
    learned = np.isfinite(survey.values[: walk.edges[0]]).sum(axis=0)
    if (few := learned < LEARNING).any():
        texts = [f"{names[i]} ({learned[i]})" for i in np.argsort(learned) if few[i]]
        yield (
            f"Too few windows before the back-test: {list_first(texts)}. The guard needs about "
            f"{LEARNING} before it certifies a sensor. Give a longer record or smaller windows."
        )
    eased = EASED * walk.least_epsilon
    doubtful = np.array([find_doubtful_number(c) is not None for c in survey.table.values.T])
    never = (walk.shares[0][0] < 0.05) & ~few & ~doubtful
    if never.any():
        texts = [
            f"{names[i]} {eased[i]:.4g} (asked {limits[i]:.4g})"
            for i in np.argsort(-eased / limits)
            if never[i]
        ]
        yield (
            f"ε is too small for {len(texts)} of {len(names)} sensors: they are hardly ever "
            f"certified. The smallest ε that would be worth it: {list_first(texts)}."
        )


def data_cautions(table: SensorTable, values: np.ndarray, width: int) -> Iterator[str]:
    """Yield warnings about the samples, and about `values`, the windows' results, (N, n)."""
    names = table.names
    for i in np.flatnonzero((wild := outliers(table.values)).any(axis=0)):
        first, *others = np.flatnonzero(wild[:, i]).tolist()
        more = f" and {len(others)} more such" if others else ""
        yield (
            f"Outlier: {names[i]} is {table.values[first, i]:g} at {table.at(first)}{more}. "
            "Windows far out of the others are left out of the spread that scales ε."
        )
    for name, column in zip(names, table.values.T, strict=True):
        if doubtful := find_doubtful_number(column):
            number, often = doubtful
            yield (
                f"Perhaps a fill value: the only negative number of {name} is {number:g}, "
                f"{often:,} times. If it stands for missing samples, give --missing {number:g}."
            )
    yield from _copies(names, table.values)
    yield from _shifts(table, values, width)
    columns = [pd.Series(column).dropna() for column in table.values.T]
    runs = np.array([c.groupby(c.diff().ne(0).cumsum()).size().max() for c in columns])
    stuck = [i for i in np.argsort(-runs) if runs[i] >= max(STILL, 3 * width)]
    if worst := [f"{names[i]} ({runs[i]:,} samples)" for i in stuck]:
        yield f"Stuck on one value: {list_first(worst)}. Such a sensor is easy to certify."
    missing = np.isnan(table.values).mean(axis=0)
    silent = [i for i in np.argsort(-missing) if missing[i] > QUIET]
    if quiet := [f"{names[i]} ({percent(missing[i])})" for i in silent]:
        yield f"Long silences: samples are missing in {list_first(quiet)}."


def _copies(names: Sequence[str], samples: np.ndarray) -> Iterator[str]:
    """Yield a warning for two sensors of which one repeats the other, at once or later."""
    changes = np.diff(samples[-max(LEAST_ROWS, MOST_CELLS // len(names)) :], axis=0)
    changes = np.clip(changes, *bounds(changes)).T  # a fall of all sensors makes no copies
    share = np.isfinite(changes).mean(axis=1)  # with gaps, fewer changes can be alike
    known = np.nan_to_num(changes)
    known /= np.maximum(np.linalg.norm(known, axis=1, keepdims=True), 1e-300)
    spectra = np.fft.rfft(known, 2 * known.shape[1])
    for i, spectrum in enumerate(spectra):
        cross = np.abs(np.fft.irfft(spectra * spectrum.conj()))[:, : known.shape[1] // 2]
        lags = cross.argmax(axis=1)
        for j in np.flatnonzero(cross.max(axis=1) > RELATED * share[i]).tolist():
            lag = int(lags[j])
            pair = np.stack([changes[i, : changes.shape[1] - lag], changes[j, lag:]])
            pair = pair[:, np.isfinite(pair).all(axis=0)]
            if not (lag or i < j) or pair.shape[1] < FEW:
                continue
            if (r := abs(np.corrcoef(pair)[0, 1])) > COPIES:
                delay = f", which repeats it {lag} steps later" if lag else ""
                yield (
                    f"Near-copies: {names[i]} and {names[j]}{delay} (r = {r:.6f}). If these are "
                    "two names for one source they are no redundancy: leave one out by --drop."
                )


def _shifts(table: SensorTable, values: np.ndarray, width: int) -> Iterator[str]:
    """Yield a warning for each sensor that moves away from its neighbours, for good or a while."""
    results, parts = pd.DataFrame(values), np.arange(len(values)) * PARTS // len(values)
    local = results - results.groupby(parts).transform("median")
    scale = local.clip(*map(pd.Series, bounds(local.to_numpy())), axis=1).std().replace(0, np.nan)
    z, related = results / scale, local.rank().corr(min_periods=FEW)
    related = related.where((related > RELATED) & ~np.eye(len(related), dtype=bool))

    def fit(i: int) -> tuple[int, int, float] | None:
        nearest = related[i].dropna().nlargest(NEIGHBOURS).index
        difference = (z[i] - z[nearest].median(axis=1)).dropna()
        if len(nearest) < 2 or len(difference) < FEW or not (shift := _fit_shift(difference)):
            return None
        at = [*difference.index, len(values)]
        return at[shift[0]], at[shift[1]], shift[2]

    heights = {i: abs(shift[2]) for i in range(len(table.names)) if (shift := fit(i))}
    for i in sorted(heights, key=lambda i: -heights[i]):
        if (shift := fit(i)) is None:  # it was a neighbour that moved
            continue
        related.loc[i] = np.nan
        begin, end, height = shift
        until = f" until {table.at(end * width)}" if end < len(values) else ""
        yield (
            f"Level shift: {table.names[i]} moves by {height * scale[i]:+.3g} against the sensors "
            f"most like it at {table.at(begin * width)}{until}. Was it replaced or moved, or does "
            "it drift?"
        )


def _fit_shift(difference: pd.Series) -> tuple[int, int, float] | None:
    """Begin, end and height of the shift that explains most of the variance, if that is enough.

    It ends before the series only if that explains clearly more.
    """
    n, variance = len(difference), max(float(difference.var(ddof=0)), 1e-300)
    sums = np.append(0.0, np.cumsum(difference - difference.mean()))

    def explain(begin: int, end: int) -> tuple[float, tuple[int, int, float]]:
        length, jump = end - begin, float(sums[end] - sums[begin])
        height = jump * n / (length * (n - length))
        return height * jump / (n * variance), (begin, end, height)

    cuts = np.arange(n // 20, n - n // 20 + 1)  # a shift at the very end is an outage
    cut = int(cuts[(sums[cuts] ** 2 / (cuts * (n - cuts))).argmax()])
    share, shift = explain(cut, n)
    first, last = sorted((int(sums.argmin()), int(sums.argmax())))
    if BRIEFEST <= first <= last - BRIEFEST <= n - 2 * BRIEFEST:
        brief_share, brief = explain(first, last)
        if brief_share > share + RETURN:
            share, shift = brief_share, brief
    return shift if share >= SHIFT else None


def list_first(texts: Sequence[str]) -> str:
    """The first few texts, and how many more there are."""
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return ", ".join(texts[:NAMED]) + more
