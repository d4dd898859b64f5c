"""The cost model's constants, and its predictions for recoveries with a limited read rate.

All constants but the time per sample come from the shortest windows, for each number of sensors.
Longer windows are predicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.intervals import LEVELS, RESAMPLES
from aftlib.core.recovery_costs import RecoveryCosts
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
Costs = Mapping[tuple[str, int], RecoveryCosts]
"""Constants of the cost model by scheme and number of sensors."""


def measured_costs(recoveries: pd.DataFrame) -> dict[tuple[str, int], RecoveryCosts]:
    """Return four constants of each scheme and number of sensors.

    Start, checkpoint and estimate come from the shortest windows. Start and checkpoint come from
    unlimited recoveries: the start as a median, because it varies most. On Spark the start is the
    same for all schemes: the time without the coordinator's part and without reading. The time of
    an estimate is the `additional_time`. The time per sample is the same for all schemes, because
    all use the same reader. It is the slope of a line through the unlimited reads of D2's exact
    process, in windows of all lengths.
    """
    free = recoveries[np.isinf(recoveries["rate"])]
    exact = free[free["scheme"] == EXACT_PROCESS]
    sample, costs = 0.0, {}
    if exact["again"].max() > exact["again"].min():
        sample = max(0.0, float(np.polyfit(exact["again"], exact["read_s"], 1)[0]))
    for sensors, rows in shortest_windows(recoveries).groupby("sensors"):
        unlimited = rows[np.isinf(rows["rate"])]
        on_spark = unlimited[unlimited["scheme"].isin(ON_SPARK)]
        rest = on_spark["seconds"] - on_spark["commit_s"] - sample * on_spark["again"]
        starts = {EXACT: rest}
        own = unlimited[unlimited["scheme"].isin(IN_PROCESS)]
        if len(own):
            read = own["read_s"] - sample * own["again"]
            starts[EXACT_PROCESS] = own["start_s"] + own["restore_s"] + read
        for scheme in rows["scheme"].unique():
            base = COMPARED.get(scheme, scheme)
            commits = unlimited.loc[unlimited["scheme"] == base, "commit_s"]
            extra = 0.0 if base == scheme else additional_time(*pair_of(rows, scheme))
            costs[scheme, int(str(sensors))] = RecoveryCosts(
                start_s=max(0.0, float(starts[base].median())),
                sample_s=sample,
                estimate_s=max(0.0, extra),
                checkpoint_s=float(commits.mean()),
            )
    return costs


def shortest_windows(recoveries: pd.DataFrame) -> pd.DataFrame:
    """The recoveries in the shortest windows."""
    return recoveries[recoveries["window"] == recoveries["window"].min()]


def pair_of(case: pd.DataFrame, scheme: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the recoveries of a scheme's exact counterpart, and of the scheme itself."""
    exact, mine = (case[case["scheme"] == name] for name in (COMPARED[scheme], scheme))
    return exact, mine


def additional_time(exact: pd.DataFrame, mine: pd.DataFrame) -> float:
    """Mean additional time of an approximate recovery over exact ones, without start and reads."""
    return float(_fits((exact, mine), 0)[0, 0])


def predicted_again(recoveries: pd.DataFrame, scheme: str, sensors: int, window: int) -> float:
    """Predict the samples that a scheme reads again in a case: the planned number.

    The guard has no plan. It is expected to read the same share of the lost samples again as in the
    shortest windows of as many sensors.
    """
    rows = recoveries[recoveries["sensors"] == sensors]
    case = rows[rows["window"] == window]
    if scheme != GUARD:
        return float(case.loc[case["scheme"] == scheme, "planned"].iloc[0])
    lost = float(case.loc[case["scheme"] == EXACT, "planned"].iloc[0])
    return lost * guard_share(shortest_windows(rows))


def guard_share(case: pd.DataFrame) -> float:
    """Share of the lost samples that the guard reads again, as a mean over a case's recoveries."""
    again = case.groupby("scheme")["again"].mean()
    return float(again[GUARD] / again[EXACT])


def points_of(recoveries: pd.DataFrame, costs: Costs) -> pd.DataFrame:
    """Measured and predicted times, one row per scheme, case and rate.

    Columns: scheme, sensors, window, rate; seconds, the median, with seconds_low and seconds_high,
    its interval; again, again_planned: samples read again; kills; predicted_s.
    """
    rows = []
    for keys, group in recoveries.groupby(["scheme", *CASE, "rate"], sort=False):
        key: Any = keys
        scheme, sensors, window, rate = key
        low, high = median_interval(group["seconds"].to_numpy())
        again = predicted_again(recoveries, scheme, sensors, window)
        rows.append(
            {
                "scheme": scheme,
                "sensors": sensors,
                "window": window,
                "rate": rate,
                "seconds": group["seconds"].median(),
                "seconds_low": low,
                "seconds_high": high,
                "again": float(group["again"].median()),
                "again_planned": float(group["planned"].iloc[0]),
                "kills": len(group),
                "predicted_s": costs[scheme, sensors].recovery_s(again, scheme in COMPARED, rate),
            }
        )
    return pd.DataFrame(rows)


def median_interval(values: np.ndarray) -> tuple[float, float]:
    """Percentile interval at 95 % of a median, by resampling with a fixed seed."""
    rng = np.random.default_rng(1)
    medians = np.median(values[rng.integers(0, len(values), (RESAMPLES, len(values)))], axis=1)
    low, high = np.quantile(medians, LEVELS)
    return float(low), float(high)


def break_evens(recoveries: pd.DataFrame) -> pd.DataFrame:
    """Break-even rates, predicted and measured, one row per approximate scheme and case.

    The prediction uses the additional time in the shortest windows and `predicted_again`. The
    measurement uses the additional time and the samples read again in the case itself. Infinity
    means that the approximate scheme is faster at every rate, 0 that it is faster at none, NaN that
    nothing can be measured. Intervals at 95 % come from resampled recoveries.
    Columns: scheme, sensors, window; predicted and measured, each with _low and _high; ratio_low
    and ratio_high, the interval of measured over predicted; constants: whether the case gives the
    constants.
    """
    rows = []
    for key, case in recoveries.groupby(CASE):
        sensors, window = map(int, key)  # type: ignore[arg-type]
        shortest = shortest_windows(recoveries[recoveries["sensors"] == sensors])
        for scheme, exact in COMPARED.items():
            if not {scheme, exact} <= {*case["scheme"]}:
                continue
            extra, _, saved = _fits(pair_of(shortest, scheme), RESAMPLES, seed=1).T
            lost = predicted_again(recoveries, exact, sensors, window)
            expected = lost - predicted_again(recoveries, scheme, sensors, window)
            # of a planned scheme `saved` is a constant; of the guard it is resampled, too
            predicted = _inverse_rates(extra, expected * saved / saved[0])
            extra, slope, saved = _fits(pair_of(case, scheme), RESAMPLES, seed=2).T
            measured = _inverse_rates(extra, slope * saved)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = np.where(predicted == measured, 1.0, predicted / measured)
            low, high = np.quantile(ratios[1:], LEVELS, method="nearest")
            row = {"scheme": scheme, "sensors": sensors, "window": window}
            row |= _with_interval("predicted", predicted) | _with_interval("measured", measured)
            row |= {"ratio_low": low, "ratio_high": high}
            rows.append(row | {"constants": window == shortest["window"].iloc[0]})
    return pd.DataFrame(rows)


def _fits(pair: Sequence[pd.DataFrame], resamples: int, seed: int = 0) -> np.ndarray:
    """Additional time d, slope b, and mean saved samples: of the recoveries, then of resamples.

    The times without the start are fitted by least squares as f + d·[approximate] + b·S/R, with the
    samples S that a recovery read again at the rate R. Recoveries are resampled for each scheme and
    rate. All numbers are NaN where a time is missing, or the schemes share fewer than two rates.
    """
    rates = sorted(set(pair[0]["rate"]) & set(pair[1]["rate"]))
    both = pd.concat([frame.assign(own=own) for own, frame in enumerate(pair)])
    both = both[both["rate"].isin(rates)].sort_values(["own", "rate"])
    work, again, rate, own = both[["work_s", "again", "rate", "own"]].to_numpy(float).T
    if len(rates) < 2 or np.isnan(work + again).any():
        return np.full((resamples + 1, 3), np.nan)
    rng = np.random.default_rng(seed)
    counts = both.groupby(["own", "rate"]).size()
    drawn = [rng.multinomial(n, np.full(n, 1 / n), size=resamples) for n in counts]
    weights = np.concatenate([np.ones((1, len(both))), np.concatenate(drawn, axis=1)])
    design = np.column_stack([np.ones(len(both)), own, again / rate])
    products = design[:, :, None] * design[:, None, :]
    inverse = np.linalg.pinv(np.tensordot(weights, products, 1), hermitian=True)
    moments = weights @ (design * work[:, None])
    _, extra, slope = np.einsum("rij,rj->ir", inverse, moments)
    means = weights @ np.column_stack([again * (own == 0), again * (own == 1)])
    saved = means @ [1 / (own == 0).sum(), -1 / (own == 1).sum()]
    return np.column_stack([extra, slope, saved])


def _inverse_rates(extra: np.ndarray, saved: np.ndarray) -> np.ndarray:
    """Inverse break-even rates: 0 means "faster at every rate", infinity "at none"."""
    with np.errstate(divide="ignore", invalid="ignore"):
        crossed = np.maximum(0, extra / saved)
    never = np.where(np.isnan(extra), np.nan, np.where(extra < 0, 0.0, np.inf))
    return np.where(saved > 0, crossed, never)


def _with_interval(name: str, inverse: np.ndarray) -> dict[str, float]:
    """Return the first rate, and the interval of the others, as columns."""
    low, high = np.quantile(inverse[1:], LEVELS, method="nearest")
    with np.errstate(divide="ignore"):
        rates = 1 / np.array([inverse[0], high, low])
    return dict(zip((name, f"{name}_low", f"{name}_high"), rates.tolist(), strict=True))
