"""Reasons to trust a plan less, in words that name the sensor and the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from aftlib.notebook.texts import percent
from aftlib.sensor_plans.backtest import Walk
from aftlib.sensor_plans.sensor_checks import find_doubtful_number
from aftlib.sensor_plans.sensor_file import SensorTable
from aftlib.sensor_plans.window_results import Survey, bounds, outliers

#: Windows of a sensor that the guard needs before it certifies anything.
FIRST_CERTIFIED = 250
#: Least ε in 1 − δ quantiles of the errors at which the guard certifies most windows.
EASED = 1.2
#: Fewest consecutive samples of one value that count as stuck; ours: rounding repeats fewer.
STILL = 30
#: Share of a sensor's samples that may be missing without a caution; ours.
QUIET = 0.1
#: Correlation of the changes from which two sensors are one source; ours: two have own noise.
COPIES = 0.9999
#: Fewest rows with both of two sensors that are compared: fewer make a correlation of noise.
FEW = 30
#: The last rows in which copies are looked for are at least `LEAST_ROWS`, and at most so many that
#: all sensors have `MOST_CELLS` cells, which takes a second.
LEAST_ROWS = 512
MOST_CELLS = 200_000
#: Least rank correlation of a sensor and its neighbours; ours: others do not show where it moved.
RELATED = 0.5
#: Most neighbours, of which the median is taken, so that two that moved do not decide.
NEIGHBOURS = 5
#: Share of the variance of a sensor's difference from its neighbours that a level shift explains;
#: ours: of a steady drift, whose best step explains three quarters, it is to be named, too.
SHIFT = 0.65
#: Parts of the time, in whose deviations from the median a shift does not hide who is alike.
PARTS = 20
#: Most sensors that a caution names, the worst first, so that it fits three lines.
NAMED = 6


def guarantee_cautions(survey: Survey, walk: Walk) -> Iterator[str]:
    """Yield warnings about the value of the guarantee."""
    names = survey.names
    limits = survey.limits
    within = walk.score().within
    if within is not None and walk.missed_guarantee:
        yield (
            f"Back-test: only {percent(within, 1)} of what was certified in the "
            f"second half was within ε (guaranteed: {percent(1 - walk.delta)}, up to the slack). "
            "Estimating is not recommended: recover exactly, or plan from the data after the "
            "change."
        )
    windows = np.isfinite(survey.values[: walk.edges[0]]).sum(axis=0)
    if (few := windows < FIRST_CERTIFIED).any():
        texts = [f"{names[i]} ({windows[i]})" for i in np.argsort(windows) if few[i]]
        yield (
            f"Too few windows before the back-test: {list_first(texts)}. The guard needs about "
            f"{FIRST_CERTIFIED} before it certifies a sensor. Give a longer record or smaller "
            "windows."
        )
    eased = EASED * walk.least_epsilon
    doubtful = np.array([find_doubtful_number(c) is not None for c in survey.table.values.T])
    never = (walk.certified_next < 0.05) & ~few & ~doubtful
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
    """Yield a warning for two sensors of which one repeats the other, perhaps in another unit."""
    changes = np.diff(samples[-max(LEAST_ROWS, MOST_CELLS // len(names)) :], axis=0)
    changes = np.clip(changes, *bounds(changes))  # a fall of all sensors makes no copies
    alike = pd.DataFrame(changes).corr(min_periods=FEW).abs().to_numpy()
    for i, j in np.argwhere(np.triu(alike > COPIES, 1)):
        yield (
            f"Near-copies: {names[i]} and {names[j]} (r = {alike[i, j]:.6f}). If these are two "
            "names for one source they are no redundancy: leave one out by --drop."
        )


def _shifts(table: SensorTable, values: np.ndarray, width: int) -> Iterator[str]:
    """Yield a warning for each sensor that moves away from its neighbours for good."""
    results = pd.DataFrame(values)
    parts = np.arange(len(values)) * PARTS // len(values)
    local = results - results.groupby(parts).transform("median")
    scale = local.clip(*map(pd.Series, bounds(local.to_numpy())), axis=1).std().replace(0, np.nan)
    z = results / scale
    related = local.rank().corr(min_periods=FEW)
    related = related.where((related > RELATED) & ~np.eye(len(related), dtype=bool))

    def fit(i: int) -> tuple[int, float] | None:
        nearest = related[i].dropna().nlargest(NEIGHBOURS).index
        difference = (z[i] - z[nearest].median(axis=1)).dropna()
        enough = len(nearest) >= 2 and len(difference) >= FEW
        return _fit_shift(difference) if enough else None

    heights = {i: abs(shift[1]) for i in range(len(table.names)) if (shift := fit(i))}
    # the largest shift first; a sensor that was named is no neighbour of the others any more
    for i in sorted(heights, key=lambda i: -heights[i]):
        if (shift := fit(i)) is None:  # without the named neighbours no shift is left
            continue
        related.loc[i] = np.nan
        begin, height = shift
        yield (
            f"Level shift: {table.names[i]} moves by {height * scale[i]:+.3g} against the sensors "
            f"most like it at {table.at(begin * width)}. Was it replaced or moved, or does it "
            "drift?"
        )


def _fit_shift(difference: pd.Series) -> tuple[int, float] | None:
    """Begin and height of the shift that explains most of the variance; None if that is little."""
    n = len(difference)
    variance = max(float(difference.var(ddof=0)), 1e-300)
    sums = np.append(0.0, np.cumsum(difference - difference.mean()))
    cuts = np.arange(n // 20, n - n // 20 + 1)  # a shift at the very end is an outage
    explained = sums[cuts] ** 2 / (cuts * (n - cuts) * variance)
    if explained.max() < SHIFT:
        return None
    cut = int(cuts[explained.argmax()])
    height = float(difference.iloc[cut:].mean() - difference.iloc[:cut].mean())
    return int(difference.index[cut]), height


def list_first(texts: Sequence[str]) -> str:
    """The first few texts, and how many more there are."""
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return ", ".join(texts[:NAMED]) + more
