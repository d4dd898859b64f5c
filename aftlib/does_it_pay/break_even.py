"""The cost model's constants, and its predictions for recoveries with a limited read rate.

The constants come from the smallest case, at unlimited rate; every other point is predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.intervals import LEVELS, RESAMPLES
from aftlib.core.readlimit import SLICE_S
from aftlib.core.recovery_costs import RecoveryCosts, break_even_rate
from aftlib.does_it_pay.process_recoveries import (
    ADAPTIVE,
    EXACT_PROCESS,
    IN_PROCESS,
    PROPOSED,
)
from aftlib.does_it_pay.spark_recoveries import EXACT, GUARD, MODEL, ON_SPARK

COMPARED = {MODEL: EXACT, GUARD: EXACT, PROPOSED: EXACT_PROCESS, ADAPTIVE: EXACT_PROCESS}
"""Approximate schemes, and the exact one that loses the same memory."""
CASE = ["sensors", "window"]
RESOLUTION_S = SLICE_S
"""Shortest difference that is judged: the limit grants samples in slices of this length."""


def measured_costs(recoveries: pd.DataFrame) -> dict[str, RecoveryCosts]:
    """Return four constants of each scheme, from the unlimited recoveries.

    They are medians over the smallest case, except for the time per sample. That is the slope over
    all cases of D2's exact process, because all schemes use the same reader. On Spark the time of a
    checkpoint is the coordinator's part of an exact micro-batch. The time of an estimate is the
    additional time of D1's coordinator. The start is the rest, the same for all schemes on Spark.
    """
    free = recoveries[np.isinf(recoveries["rate"])]
    exact = free[free["scheme"] == EXACT_PROCESS]
    sample = 0.0
    if exact["again"].max() > exact["again"].min():
        sample = max(0.0, float(np.polyfit(exact["again"], exact["read_s"], 1)[0]))
    smallest = free[CASE].sort_values(CASE).iloc[0]
    rows = free[(free[CASE] == smallest).all(axis=1)]
    medians = rows.groupby("scheme").median(numeric_only=True)
    costs = {}
    on_spark = rows[rows["scheme"].isin(ON_SPARK)]
    start = (on_spark["seconds"] - on_spark["commit_s"] - sample * on_spark["again"]).median()
    for scheme in (name for name in ON_SPARK if name in medians.index):
        commit = float(medians["commit_s"][EXACT])
        estimate = max(0.0, float(medians["commit_s"][scheme] - commit))
        costs[scheme] = RecoveryCosts(max(0.0, float(start)), sample, estimate, commit)
    for scheme in (name for name in IN_PROCESS if name in medians.index):
        own = rows[rows["scheme"].isin(IN_PROCESS)]
        start, commit = float(own["start_s"].median()), float(own["commit_s"].median())
        work = medians["restore_s"] + medians["estimate_s"]
        estimate = max(0.0, float(work[scheme] - work[EXACT_PROCESS]))
        # restoring is part of every recovery
        start += float(work[EXACT_PROCESS])
        costs[scheme] = RecoveryCosts(start, sample, estimate, commit)
    return costs


def points_of(recoveries: pd.DataFrame, costs: Mapping[str, RecoveryCosts]) -> pd.DataFrame:
    """Measured and predicted times, one row per scheme, case and rate.

    Columns: scheme, sensors, window, rate; seconds, the median, with seconds_low and seconds_high,
    its interval; work_s, work_s_low and work_s_high: likewise, of the replacement's reading, the
    estimates and the commit alone; again, again_planned: samples; kills; predicted_s.
    """
    rows = []
    for keys, group in recoveries.groupby(["scheme", *CASE, "rate"], sort=False):
        key: Any = keys
        scheme, again = key[0], float(group["again"].median())
        low, high = median_interval(group["seconds"].to_numpy())
        seconds = {"seconds": group["seconds"].median(), "seconds_low": low, "seconds_high": high}
        work = group["work_s"].to_numpy()
        low, high = median_interval(work)
        seconds |= {"work_s": np.median(work), "work_s_low": low, "work_s_high": high}
        estimates = scheme in COMPARED
        predicted = costs[scheme].recovery_s(again, estimates, key[3])
        planned = float(group["planned"].iloc[0])
        samples = {"again": again, "again_planned": planned, "kills": len(group)}
        about = dict(zip(["scheme", *CASE, "rate"], key, strict=True))
        rows.append(about | seconds | samples | {"predicted_s": predicted})
    return pd.DataFrame(rows)


def median_interval(values: np.ndarray) -> tuple[float, float]:
    """Percentile interval at 95 % of a median, by resampling with a fixed seed."""
    rng = np.random.default_rng(1)
    medians = np.median(values[rng.integers(0, len(values), (RESAMPLES, len(values)))], axis=1)
    low, high = np.quantile(medians, LEVELS)
    return float(low), float(high)


def break_evens(recoveries: pd.DataFrame, costs: Mapping[str, RecoveryCosts]) -> pd.DataFrame:
    """Break-even rates, predicted and measured, one row per approximate scheme and case.

    The measured rate is the one at which the line fitted to the saved times over 1/rate is 0. The
    times contain only the work in which schemes differ: reading again, estimating, committing. The
    interval comes from resampled recoveries. Infinity means that the approximate scheme is faster
    at every rate, 0 that it is faster at none. At `resolved`, reading the saved samples takes
    `RESOLUTION_S`; rates above it are not distinguished.
    Columns: scheme, sensors, window, predicted, measured, measured_low, measured_high, resolved.
    """
    rows = []
    cases = recoveries[CASE].drop_duplicates().itertuples(index=False)
    for scheme, case in product(COMPARED, list(cases)):
        here = recoveries[(recoveries[CASE] == list(case)).all(axis=1)]
        mine, exact = (here[here["scheme"] == s] for s in (scheme, COMPARED[scheme]))
        if mine.empty or exact.empty:
            continue
        samples = float(exact["again"].median()), float(mine["again"].median())
        predicted = break_even_rate(costs[COMPARED[scheme]], samples[0], costs[scheme], samples[1])
        measured, low, high = measured_break_even(exact, mine)
        about = {"scheme": scheme, "sensors": case[0], "window": case[1], "predicted": predicted}
        ends = {"measured_low": low, "measured_high": high}
        saved = samples[0] - samples[1]
        ends["resolved"] = saved / RESOLUTION_S if saved > 0 else np.inf
        rows.append(about | {"measured": measured} | ends)
    return pd.DataFrame(rows)


def measured_break_even(exact: pd.DataFrame, mine: pd.DataFrame) -> tuple[float, float, float]:
    """Rate at which both median times without the start are equal, and its interval at 95 %."""
    rng = np.random.default_rng(1)
    rates = np.array(sorted(set(exact["rate"]) & set(mine["rate"])))
    saved = np.zeros((RESAMPLES + 1, len(rates)))
    for column, rate in enumerate(rates):
        for frame, sign in ((exact, 1), (mine, -1)):
            rows = frame[frame["rate"] == rate]
            times = rows["work_s"].to_numpy()
            drawn = times[rng.integers(0, len(times), (RESAMPLES, len(times)))]
            saved[0, column] += sign * np.median(times)
            saved[1:, column] += sign * np.median(drawn, axis=1)
    slope, intercept = np.polynomial.polynomial.polyfit(1 / rates, saved.T, 1)[::-1]
    # order the resamples by 1/rate, in which 0 means "faster at every rate"
    with np.errstate(divide="ignore"):
        inverse = np.where(slope > 0, np.maximum(0, -intercept / slope), np.inf)
        low, high = np.quantile(inverse[1:], LEVELS, method="nearest")
        return tuple(float(rate) for rate in 1 / np.array([inverse[0], high, low]))  # type: ignore[return-value]
