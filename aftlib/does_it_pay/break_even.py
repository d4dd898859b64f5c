"""The cost model's constants, its predictions, and the break-even read rates.

The constants come from the shortest windows. Longer windows and limited rates are predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.intervals import RESAMPLES
from aftlib.core.recovery_costs import RecoveryCosts
from aftlib.does_it_pay.schemes import EXACT, EXACT_PROCESS, GUARD, MODEL, PARTIAL

COMPARED = {MODEL: EXACT, GUARD: EXACT, PARTIAL: EXACT_PROCESS}
"""Approximate schemes, and the exact one that loses the same memory."""
BY_PROCESS = (EXACT_PROCESS, PARTIAL)
"""Schemes of D2's process; the others run in D1's workers."""


def shortest_windows(recoveries: pd.DataFrame) -> pd.DataFrame:
    """Return the recoveries in the shortest windows."""
    return recoveries[recoveries["width"] == recoveries["width"].min()]


def measured_costs(recoveries: pd.DataFrame, sample_s: float) -> dict[str, RecoveryCosts]:
    """Return four constants of each scheme, from its recoveries in the shortest windows.

    The start is a median over all schemes with the same kind of process, because it varies most and
    they start in the same way. It includes the time to open the log where a scheme reads again.
    """
    costs, shortest = {}, shortest_windows(recoveries)
    by_process = shortest["scheme"].isin(BY_PROCESS)
    for scheme, rows in shortest.groupby("scheme", sort=False):
        alike = by_process if scheme in BY_PROCESS else ~by_process
        start = shortest.loc[alike, "start_s"].median()
        unlimited = rows[np.isinf(rows["rate"])]
        opening = (unlimited["read_s"] - sample_s * unlimited["again"]).median()
        costs[str(scheme)] = RecoveryCosts(
            start_s=float(start + max(0.0, opening)),
            sample_s=sample_s,
            estimate_s=float(rows["estimate_s"].median()),
            checkpoint_s=float(rows["commit_s"].median()),
        )
    return costs


def expected_again(recoveries: pd.DataFrame, scheme: str, width: int) -> float:
    """Return the samples that a scheme is planned to read again after a failure.

    The guard has no plan: it is expected to read the same share of the lost samples again as in the
    shortest windows.
    """
    case = recoveries[recoveries["width"] == width]
    if scheme != GUARD:
        return float(case.loc[case["scheme"] == scheme, "planned"].iloc[0])
    means = shortest_windows(recoveries).groupby("scheme")["again"].mean()
    lost = float(case.loc[case["scheme"] == EXACT, "planned"].iloc[0])
    return lost * float(means[GUARD] / means[EXACT])


def compare_with_model(
    recoveries: pd.DataFrame, costs: Mapping[str, RecoveryCosts]
) -> pd.DataFrame:
    """Return the measured and the predicted time, one row per scheme, window and rate.

    Columns: scheme, width, rate; seconds, the median, with seconds_low and seconds_high, its 95 %
    interval; predicted_s; fixed_s, the predicted part that does not depend on the rate; kills.
    """
    by_point = recoveries.groupby(["scheme", "width", "rate"], sort=False)["seconds"]
    points = by_point.agg(seconds="median", kills="size").reset_index()
    intervals = [resampled_interval(np.median, seconds.to_numpy()) for _, seconds in by_point]
    points[["seconds_low", "seconds_high"]] = intervals
    for i, scheme, width, rate in points[["scheme", "width", "rate"]].itertuples():
        again, estimates = expected_again(recoveries, scheme, width), scheme in COMPARED
        points.loc[i, "predicted_s"] = costs[scheme].recovery_s(again, estimates, rate)
        points.loc[i, "fixed_s"] = costs[scheme].fixed_s(again, estimates)
    return points


def resampled_interval(statistic: Callable[..., Any], *samples: np.ndarray) -> tuple[float, float]:
    """Return the percentile interval at 95 % of a statistic, by resampling with a fixed seed."""
    from scipy.stats import bootstrap  # imported here: it takes 0.4 s to load

    options: dict[str, Any] = {"method": "percentile", "rng": np.random.default_rng(1)}
    interval = bootstrap(samples, statistic, n_resamples=RESAMPLES, **options).confidence_interval
    return float(interval.low), float(interval.high)


def break_evens(recoveries: pd.DataFrame) -> pd.DataFrame:
    """Return predicted and measured break-even rates, one row per approximate scheme and window.

    The extra time of an approximate recovery is the difference of both schemes' mean work (reading,
    estimating, committing) without the wait for the read rate. Where it is not above 0, the
    break-even rate is infinite: the scheme is faster at every rate.

    Columns: scheme, width; saved: samples that it reads fewer; extra_ms with extra_low and
    extra_high, its 95 % interval; predicted, from the extra time in the shortest windows; measured;
    measured_low, the rate at the interval's high end.
    """
    rows = []
    shortest = int(recoveries["width"].min())
    for width in sorted(recoveries["width"].unique()):
        for scheme, exact in COMPARED.items():
            first, _ = _extra_times(recoveries, scheme, exact, shortest)
            extra, (low, high) = _extra_times(recoveries, scheme, exact, width)
            saved = expected_again(recoveries, exact, width)
            saved -= expected_again(recoveries, scheme, width)
            rows.append(
                {
                    "scheme": scheme,
                    "width": width,
                    "saved": saved,
                    "extra_ms": 1e3 * extra,
                    "extra_low": 1e3 * low,
                    "extra_high": 1e3 * high,
                    "predicted": _rate(saved, first),
                    "measured": _rate(saved, extra),
                    "measured_low": _rate(saved, high),
                }
            )
    return pd.DataFrame(rows)


def _extra_times(
    recoveries: pd.DataFrame, scheme: str, exact: str, width: int
) -> tuple[float, tuple[float, float]]:
    """Return the extra time of an approximate recovery, and its 95 % interval."""
    case = recoveries[recoveries["width"] == width]
    work = case["read_s"] + case["estimate_s"] + case["commit_s"] - case["again"] / case["rate"]
    mine, other = (work[case["scheme"] == name].to_numpy() for name in (scheme, exact))
    interval = resampled_interval(
        lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis), mine, other
    )
    return float(mine.mean() - other.mean()), interval


def _rate(saved: float, extra_s: float) -> float:
    """Return the read rate below which estimating is faster; 0 if no sample is saved."""
    if saved <= 0:
        return 0.0
    return saved / extra_s if extra_s > 0 else np.inf
