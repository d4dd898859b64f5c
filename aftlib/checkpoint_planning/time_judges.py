"""Judges of D2's claims on recovery times and throughput; `claims` lists the claims.

The parameters are results of experiments: `times` from `recovery_times`, `rates` from
`stream_rates`, and `killed` from `restarts`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from aftlib.checkpoint_planning.experiments.costs import LARGEST_N, SMALLEST_N
from aftlib.core.intervals import CONFIDENCE, share_interval, t_interval
from aftlib.workbench.old_claims import Finding, Threshold, nothing

RESTORED_MS = 2.0
"""Longest T_res in section 6.1."""
DECIDING = 72
"""If this many recoveries are all within T_SLA, Clopper and Pearson's interval is above 95 %."""
LEAST_REPLAY = 0.5
"""If T_rep of O is less than this share of |O|/n times a full replay's, O was not really read."""


def largest(means: pd.Series, half: pd.Series, parts: int) -> tuple[float, tuple[float, float]]:
    """Return the largest of several means over `parts`, and its interval.

    `half` has the half-widths of the means' t intervals. The upper bound is the largest upper end,
    because all means are below a threshold if every interval is. The lower ends are widened
    (Bonferroni), because the largest mean is selected among many.
    """
    level = 1 - (1 - CONFIDENCE) / 2 / len(means)
    wider = float(stdtrit(parts - 1, level) / stdtrit(parts - 1, (1 + CONFIDENCE) / 2))
    low, high = (means - half * wider).max(), (means + half).max()
    return float(means.max()), (float(low), float(high))


def beats_full_replay(times: pd.DataFrame) -> Finding:
    """D2-6: recovering takes less time than a full replay, for every |O| < n."""
    readings = {}
    if (many := times[times["n"] >= SMALLEST_N])["n"].min() <= LARGEST_N:
        readings[f"n ≥ {SMALLEST_N}"] = _slowest_recovery(many)
    return replace(_slowest_recovery(times), readings=readings)


def _slowest_recovery(times: pd.DataFrame) -> Finding:
    """Largest ratio of T_rec to a full replay's in the same turn, for n up to `LARGEST_N`."""
    rows = []
    for n, each in times[times["n"] <= LARGEST_N].groupby("n"):
        turns = each.pivot_table(index="repeat", columns="sensors", values=["total_ms", "rep_ms"])
        whole, quickest = turns["total_ms"][n], turns["rep_ms"].min()
        for size in turns["total_ms"].columns.drop(n):
            logs = np.log((turns["total_ms"][size] / whole).to_numpy())
            centre, _, high = (float(bound) for bound in t_interval(logs))
            read = float(quickest[size] / quickest[n] / (size / int(str(n))))
            rows.append((n, size, centre, high - centre, read))
    ratios = pd.DataFrame(rows, columns=["n", "sensors", "mean", "half", "read"])
    repeats = int(times["repeat"].nunique())
    value, interval = largest(ratios["mean"], ratios["half"], repeats)
    at = ratios.iloc[int(ratios["mean"].to_numpy().argmax())]
    shown = "; ".join(
        f"n = {n:,}: {', '.join(f'{v:.2f}' for v in np.exp(each['mean']))}"
        for n, each in ratios.groupby("n")
    )
    low, high = (float(np.exp(bound)) for bound in interval)
    return Finding(
        float(np.exp(value)),
        (low, high),
        n=repeats,
        counted="turns",
        control=bool((ratios["read"] >= LEAST_REPLAY).all()),
        note=f"The value is the largest ratio of T_rec to a full replay's, at n = {at['n']:.0f} "
        f"and |O| = {at['sensors']:.0f}. Mean ratios over turns, for every |O| < n measured: "
        f"{shown}. A full replay's T_rep times |O|/n is the expected T_rep. The measured one is at "
        f"least {ratios['read'].min():.2f} times that; less than {LEAST_REPLAY} would mean that O "
        "was not read.",
    )


def replays_in_proportion(times: pd.DataFrame) -> Finding:
    """D2-7: replay time is a line through 0 in |O|, and restoring takes at most 2 ms."""
    readings = {}
    if len(many := times[times["n"] >= LARGEST_N]):
        name = f"n ≥ {LARGEST_N:,}, T_res without our gain matrix"
        readings[name] = _proportion(many, gain=False)
    return replace(_proportion(times), readings=readings)


def _proportion(times: pd.DataFrame, gain: bool = True) -> Finding:
    """Smallest R² of a line through 0 and the replay times, and the longest T_res.

    With `gain`, T_res is of partial replays; otherwise of full replays, which load no gain matrix.
    """
    large, turns = times[times["n"] >= SMALLEST_N], int(times["repeat"].nunique())
    rows = []
    for (n, _), each in large.groupby(["n", "repeat"]):
        x, y = each["sensors"].to_numpy(float), each["rep_ms"].to_numpy(float)
        off = y - x * (x @ y) / (x @ x)
        rows.append((n, (off @ off) / ((y - y.mean()) ** 2).sum(), np.polyfit(x, y, 1)[1] / y[-1]))
    lines = pd.DataFrame(rows, columns=["n", "unexplained", "start"]).groupby("n")
    means, half = _turns(lines["unexplained"])
    value, (low, high) = largest(means, half, turns)
    loading = (large["sensors"] < large["n"]) == gain
    partial = large[loading].groupby(["n", "sensors"])["res_ms"]
    longest, interval = largest(*_turns(partial), turns)
    spans = partial.mean().groupby("n").agg(["min", "max"]).assign(r2=1 - means)
    shown = "; ".join(
        f"n = {r.Index:,}: R² {r.r2:.3f}, intercept {r.start:.0%} of full replay's T_rep, T_res "
        f"{r.min:.2f} … {r.max:.2f} ms"
        for r in spans.assign(start=lines["start"].mean()).itertuples()
    )
    restored = Finding(
        longest,
        interval,
        threshold=Threshold("section 6.1: at most 2 ms", high=RESTORED_MS),
        unit="ms",
        n=turns,
        counted="turns",
    )
    return Finding(
        1 - value,
        (1 - high, min(1.0, 1 - low)),
        n=turns,
        counted="turns",
        parts={"T_res, the longest": restored},
        note="The value is the smallest R² of a line through 0, fitted to the replay times of a "
        f"turn, n ≥ {SMALLEST_N}; if it is negative, a constant fits better. Means over turns: "
        f"{shown}. Loading the (n − |O|) × |O| gain matrix is part of T_res here.",
    )


def _turns(groups: Any) -> tuple[pd.Series, pd.Series]:
    """Means over turns of each group, and the half-widths of their t intervals."""
    scale = groups.count().map(lambda n: stdtrit(n - 1, (1 + CONFIDENCE) / 2) / np.sqrt(n))
    return groups.mean(), groups.std() * scale


def fewer_checkpoints_raise_throughput(
    rates: pd.DataFrame, epsilon: float, delta: float, t_sla: float
) -> Finding:
    """D2-11: the proposed plan's throughput divided by exactly-once's, turn by turn."""
    wide = rates.pivot_table(index="repeat", columns="plan", values="rate")
    names = sorted(map(str, wide.columns))

    def gain(name: str) -> Finding:
        logs = np.log((wide["proposed"] / wide[name]).to_numpy())
        centre, low, high = (float(np.exp(bound)) for bound in t_interval(logs))
        return Finding(centre, (low, high), n=len(logs), counted="pairs of runs")

    first, *others = (name for name in names if name != "proposed")
    shown = "; ".join(
        f"{name}: {rates.loc[rates['plan'] == name, 'checkpoints'].iloc[0]} checkpoints, "
        f"{wide[name].median():.3g} tuples/s"
        for name in names
    )
    return replace(
        gain(first),
        readings={name: gain(name) for name in others},
        note=f"At ε = {epsilon:g}, δ = {delta:g}, T_SLA = {t_sla:g} ms. A run is one window in one "
        f"process, without faults and Spark; it takes {1e3 * rates['seconds'].min():.0f} … "
        f"{1e3 * rates['seconds'].max():.0f} ms. By plan, per window: {shown}. SQLite flushes each "
        "checkpoint to the disk.",
    )


def recovers_in_time(killed: pd.DataFrame) -> Finding:
    """D2-8: T_rec of the new process after a kill is within T_SLA."""
    what = (
        "T_SLA is the recovery time for the smallest entry of `budgets`, in tuples, by a model "
        "fitted to pilot kills. There were at least as many pilot kills as judged kills"
    )
    return _share_in_time(killed, "kills", killed["total_ms"], killed["t_sla_ms"], what)


def _estimating(recovered: pd.DataFrame) -> pd.DataFrame:
    """Recoveries that estimated some sensors, in intervals that end before their window ends."""
    some = recovered["sensors"].between(1, recovered["n"] - 1)
    return recovered[some & (recovered["stop"] % recovered["window"] > 0)]


def _share_in_time(
    recovered: pd.DataFrame, counted: str, took: pd.Series, limit: pd.Series, what: str
) -> Finding:
    """Share of the recoveries with estimates that took at most their limit."""
    rows = _estimating(recovered).index
    if not len(rows):
        return nothing("No recovery estimated sensors in an interval that ends before the window.")
    took, limit = took[rows], limit[rows]
    within = int((took <= limit).sum())
    return Finding(
        within / len(rows),
        share_interval(within, len(rows)),
        n=len(rows),
        counted=counted,
        note=f"{within} of {len(rows)} {counted} met T_SLA. A recovery is counted if it estimates "
        "some sensors (0 < |O| < n) and its interval ends before its window. If "
        f"{DECIDING} of {DECIDING} met T_SLA, the confidence interval would lie above 95 %. "
        f"{what}. The median time is {took.median():.0f} ms, the longest {took.max():.0f} ms; "
        f"T_SLA is {limit.min():.0f} ms or more.",
    )
