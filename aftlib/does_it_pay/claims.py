"""The claims P-1 … P-8, which are the project's own, judged by the recoveries `measured`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aftlib.core.intervals import bootstrap_share, ratio_interval, share_interval
from aftlib.does_it_pay.break_even import COMPARED
from aftlib.does_it_pay.experiments import Measurements, accuracy
from aftlib.does_it_pay.figures import most_sensors
from aftlib.does_it_pay.process_recoveries import ADAPTIVE, EXACT_PROCESS, PROPOSED
from aftlib.does_it_pay.spark_recoveries import EXACT, GUARD, MODEL
from aftlib.workbench.old_claims import UNDECIDED, Claim, Finding, Threshold, nothing

NEAR = 0.02
"""Largest difference between samples read again and planned, as a share of exact recovery's."""
FACTOR = 1.5
"""Largest factor between a measured break-even rate and the predicted one."""
TIME_FACTOR = 1.25
"""Largest factor between a measured recovery time and the predicted one."""
MOST = 0.8
"""Least share of the points that must be within the factor."""
LEAST_RATES = 4
"""Fewest break-even rates that decide the claim."""
HALF = 0.5
LITTLE = 0.05


def planned_reads(measured: Measurements) -> Finding:
    """P-1: samples read again, compared with the planned number."""
    points = measured.points[measured.points["scheme"] != GUARD]
    keys = ["sensors", "window", "rate"]
    exact = {True: EXACT_PROCESS, False: EXACT}
    largest, where = 0.0, ""
    for scheme, rows in points.groupby("scheme", sort=False):
        base = exact[scheme in (EXACT_PROCESS, PROPOSED, ADAPTIVE)]
        other = points[points["scheme"] == base].set_index(keys)["again_planned"]
        rows = rows.set_index(keys)
        off = ((rows["again"] - rows["again_planned"]).abs() / other).max()
        if off >= largest:
            largest, where = float(off), str(scheme)
    return Finding(
        largest,
        conditions=bool((points["kills"] > 0).all()),
        n=int(points["kills"].sum()),
        counted="kills",
        note="The median number of samples read again at each point is compared with the planned "
        "number. The value is the largest difference, as a share of the samples that the exact "
        "scheme is planned to read again"
        + (f": {where}" if largest else "")
        + ". Samples are counted where they are read. D1 by guard has no plan.",
    )


def predicted_times(measured: Measurements) -> Finding:
    """P-2: share of the points whose time is predicted within `TIME_FACTOR`."""
    points = measured.points[np.isfinite(measured.points["rate"])]
    points = points[points["window"] > measured.recoveries["window"].min()]
    if points.empty:
        note = "All windows have the same length and give the constants, so none is predicted."
        return Finding("none", (0.0, 1.0), note=note)
    factor = np.exp(np.abs(np.log(points["predicted_s"] / points["seconds"])))
    within = int((factor <= TIME_FACTOR).sum())
    worst = points.iloc[int(factor.to_numpy().argmax())]
    return Finding(
        within / len(points),
        share_interval(within, len(points)),
        n=len(points),
        counted="points",
        note="Four constants of each scheme predict the points of longer windows at all limited "
        "rates. Three constants come from the shortest windows. The time per sample comes from "
        "unlimited reads in windows of all lengths. The median factor is "
        f"{factor.median():.2f}. The largest is {factor.max():.2f}: {worst['scheme']}, "
        f"{worst['window']:g} steps, {worst['rate']:g} samples/s.",
    )


def break_even_is_predicted(measured: Measurements) -> Finding:
    """P-3: share of the break-even rates that are predicted within `FACTOR`.

    Cases that give the constants do not count. If the kills do not distinguish a rate, predicted
    or measured, from "it pays at every rate", this rate counts only if it refutes the
    prediction. The interval of the share begins with the share of rates whose whole interval of
    measured over predicted is within `FACTOR`. It ends with the share of rates for which a part of
    it is.
    """
    even = measured.break_even
    even = even[~even["constants"]].dropna()
    outside = (even["ratio_low"] > FACTOR) | (even["ratio_high"] < 1 / FACTOR)
    finite = np.isfinite(even["predicted_high"]) & np.isfinite(even["measured_high"])
    rates = even[finite | outside]
    left_out = (
        f"{len(even) - len(rates)} of {len(even)} break-even rates are left out, because the "
        "kills do not tell them from “it pays at every read rate”."
    )
    if rates.empty:
        return Finding(f"none of {len(even)}", (0.0, 1.0), note=left_out)
    ratio = rates["measured"] / rates["predicted"]
    inside = ratio.between(1 / FACTOR, FACTOR)
    surely = (rates["ratio_low"] >= 1 / FACTOR) & (rates["ratio_high"] <= FACTOR)
    shown = "; ".join(
        f"{row['scheme']}, {row['sensors']:g} sensors, {row['window']:g} steps: "
        f"{row['predicted']:.3g}, {row['measured']:.3g}, ratio [{row['ratio_low']:.2f}, "
        f"{row['ratio_high']:.2f}]"
        for _, row in rates.iterrows()
    )
    ends = float((surely & inside).mean()), float((inside | ~outside[rates.index]).mean())
    return Finding(
        float(inside.mean()),
        ends if len(rates) >= LEAST_RATES else (0.0, 1.0),
        n=len(rates),
        counted="break-even rates",
        note="The value is the share of rates for which measured over predicted is within the "
        "factor. Each ratio has an interval of its own. The lower end of the value's interval is "
        "the share of rates whose whole interval is within the factor; the upper end is the share "
        "of rates whose interval is within it at least in part. Fewer than "
        f"{LEAST_RATES} rates decide nothing. Samples per second, predicted, then "
        f"measured, then the interval of their ratio: {shown}. Above its rate a scheme does not "
        "pay. " + (left_out if len(rates) < len(even) else ""),
    )


def largest_case(measured: Measurements, scheme: str, rate: float) -> np.ndarray:
    """Times of the recoveries of a scheme in the largest case at a rate."""
    rows = most_sensors(measured.recoveries)
    rows = rows[(rows["window"] == rows["window"].max()) & (rows["scheme"] == scheme)]
    return rows.loc[rows["rate"] == rate, "seconds"].to_numpy()


def ratio(measured: Measurements, over: tuple[str, float], under: tuple[str, float]) -> Finding:
    """Ratio of the mean times of two (scheme, rate) pairs, with its t interval."""
    above, below = (largest_case(measured, *each) for each in (over, under))
    if not (len(above) and len(below)):
        return nothing(f"There are no recoveries of {over[0]} or of {under[0]}.")
    shown = (
        f"{scheme} {'without a limit' if rate == np.inf else f'at {rate:g} samples/s'}: "
        f"{times.mean():.2f} s"
        for (scheme, rate), times in ((over, above), (under, below))
    )
    return Finding(
        *ratio_interval(above, below),
        n=len(above),
        counted="kills of each",
        note=f"Mean times from the kill on, {'; '.join(shown)}.",
    )


def slowest(measured: Measurements) -> float:
    """The slowest read rate."""
    return float(measured.recoveries["rate"].min())


def d1_does_not_wait(measured: Measurements) -> Finding:
    """P-4: time of D1 by model at the slowest rate, divided by its time without a limit."""
    return ratio(measured, (MODEL, slowest(measured)), (MODEL, np.inf))


def d1_halves_the_outage(measured: Measurements) -> Finding:
    """P-5: D1 by model against exact recovery at the slowest rate and the longest window."""
    rate = slowest(measured)
    return ratio(measured, (MODEL, rate), (EXACT, rate))


def d2_halves_the_outage(measured: Measurements) -> Finding:
    """P-6: D2 proposed against an exact process with the same checkpoints, at the same point."""
    rate = slowest(measured)
    return ratio(measured, (PROPOSED, rate), (EXACT_PROCESS, rate))


def costs_little(measured: Measurements) -> Finding:
    """P-7: the largest overhead of an approximate scheme while nothing fails."""
    overheads = dict[str, tuple[float, float, float]]()
    calm = most_sensors(measured.calm)
    calm = calm[calm["window"] == calm["window"].max()]
    seconds = {str(name): group["seconds"] for name, group in calm.groupby("scheme")}
    for scheme, exact in COMPARED.items():
        if scheme in seconds and exact in seconds:
            mine, other = seconds[scheme].to_numpy(), seconds[exact].to_numpy()
            value, (low, high) = ratio_interval(mine, other)
            overheads[scheme] = value - 1, low - 1, high - 1
    if not overheads:
        return nothing("There are no windows in which nothing fails.")
    values, lows, highs = zip(*overheads.values(), strict=True)
    return Finding(
        max(values),
        (max(lows), max(highs)),
        n=min(map(len, seconds.values())),
        counted="windows of each scheme",
        note="; ".join(f"{name}: {value:+.1%}" for name, (value, _, _) in overheads.items()),
    )


def estimates_are_within(measured: Measurements) -> Finding:
    """P-8: share of each scheme's estimates within ε; intervals over windows."""
    threshold = Threshold(
        "the guarantee (ε, δ); our margin is δ: the interval must lie above 1 − 2δ",
        low=1 - measured.delta,
        margin=measured.delta,
    )
    findings = dict[str, Finding]()
    for scheme, windows in accuracy(measured)["windows"].items():
        group = measured.estimates[measured.estimates["scheme"] == scheme].dropna(subset=["off"])
        good = group.assign(good=group["off"] <= 1)
        shares = good.groupby(["sensors", "window", "batch"])["good"].mean().to_numpy()
        ends = bootstrap_share(shares, np.ones(len(shares)), np.random.default_rng(1))
        if shares.min() == 1:
            ends = share_interval(len(shares), len(shares))
        findings[str(scheme)] = Finding(
            float(shares.mean()),
            ends,
            expected=f"≥ {1 - measured.delta:g}",
            threshold=threshold,
            n=int(windows),
            counted="windows with estimates",
        )
    if not findings:
        return nothing("There are no estimates.")
    lowest = min(findings, key=lambda scheme: (findings[scheme].interval or (0.0, 1.0))[0])
    return replace(
        findings.pop(lowest),
        parts=findings,
        note=f"{lowest} has the lowest end of all intervals. A model fitted to real sensors "
        "guarantees nothing after they change; the guard's guarantee remains.",
    )


WHERE_FIGURE = "Below this read rate it pays"
TIMES_FIGURE = "From the kill until every due window is emitted"
CALM_FIGURE = "Throughput and latency while nothing fails"

CLAIMS = [
    Claim(
        "P-1", "Each scheme that has a plan reads the planned samples again, at every point.",
        planned_reads, expected=f"≤ {NEAR}", unit="of an exact recovery's samples",
        threshold=Threshold("ours: a margin because faults hit inside a block of steps", high=NEAR),
        figure="Samples read again per failure", project=True,
    ),
    Claim(
        "P-2",
        f"Four constants predict the time of a recovery within a factor of {TIME_FACTOR} at "
        f"{MOST:.0%} of the points.",
        predicted_times, expected=f"≥ {MOST}",
        threshold=Threshold("ours: close enough to choose a scheme by", low=MOST),
        unit="of the points", timed=True, figure=TIMES_FIGURE, project=True, recorded=UNDECIDED,
    ),
    Claim(
        "P-3",
        f"The measured break-even rate is within a factor of {FACTOR} of the predicted one at "
        f"{MOST:.0%} of the points.",
        break_even_is_predicted, expected=f"≥ {MOST}",
        threshold=Threshold("ours: close enough to choose a scheme by", low=MOST),
        unit="of the break-even rates", timed=True, figure=WHERE_FIGURE,
        formula=r"R^*=\frac{S_e-S_a}{f_a-f_e}. \tag{2}", project=True, recorded=UNDECIDED,
    ),
    Claim(
        "P-4",
        "D1's recovery does not wait for the input: at the slowest rate it takes about as long as "
        "without a limit.",
        d1_does_not_wait, expected=f"≤ {TIME_FACTOR}",
        threshold=Threshold("ours: a wait that an operator hardly notices", high=TIME_FACTOR),
        unit="times that without a limit", timed=True, figure=TIMES_FIGURE, project=True,
        recorded=UNDECIDED,
    ),
    Claim(
        "P-5", "At the slowest rate and longest window, D1 by model halves the outage.",
        d1_halves_the_outage, expected=f"≤ {HALF}",
        threshold=Threshold("ours: a saving for which an operator accepts estimates", high=HALF),
        unit="of the exact recovery's time", timed=True, figure=WHERE_FIGURE, project=True,
    ),
    Claim(
        "P-6",
        "At the slowest rate and longest window, D2 halves the outage of an exact process with the "
        "same checkpoints.",
        d2_halves_the_outage, expected=f"≤ {HALF}",
        threshold=Threshold("ours: a saving for which an operator accepts estimates", high=HALF),
        unit="of the exact recovery's time", timed=True, figure=WHERE_FIGURE, project=True,
    ),
    Claim(
        "P-7",
        f"While nothing fails, no approximate scheme costs more than {LITTLE:.0%} of the time.",
        costs_little, expected=f"≤ {LITTLE}",
        threshold=Threshold("ours: a cost that an operator hardly notices", high=LITTLE),
        unit="of the time", timed=True, figure=CALM_FIGURE, project=True, recorded=UNDECIDED,
    ),
    Claim(
        "P-8", "A share of 1 − δ of the estimates is within ε, in each scheme.",
        estimates_are_within, expected="≥ 1 − δ", unit="of the estimates", project=True,
        recorded=UNDECIDED,
    ),
]  # fmt: skip
