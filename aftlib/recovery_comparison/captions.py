"""Sentences of notebook 07 that depend on its run."""

from __future__ import annotations

import numpy as np

from aftlib.core.recovery_costs import IS_FASTER, KEEPS_T_SLA
from aftlib.notebook.texts import short_percent as percent
from aftlib.notebook.texts import shown
from aftlib.recovery_comparison.experiments import Measurements, NotebookParameters
from aftlib.recovery_comparison.figures import own_costs, summarize_operation
from aftlib.recovery_comparison.normal import checkpoints_name
from aftlib.recovery_comparison.schemes import EXACT, LAST, MODEL, NOTHING, PARTIAL

LARGE = 0.5
"""Share of a recovery without a read limit that D1 must save to be worth its estimates; ours."""


def describe_ratios(measured: Measurements) -> str:
    """Return the caption of the ratios of times: how to read them, and both ends of the axis."""
    ratios = measured.ratios
    rows = ratios[ratios["width"] == ratios["width"].max()].set_index(["scheme", "rate"])["ratio"]
    slowest = ratios["rate"].min()
    return (
        "Marks are ratios of mean times (95 % intervals from five kills on), dotted lines the "
        f"cost model (1); {requirement(measured)}. In the longest windows D1 by model takes "
        f"{shown(rows[MODEL, slowest])} of an exact recovery's time at {slowest:,g} samples/s and "
        f"{shown(rows[MODEL, np.inf])} without a limit; D2 takes {shown(rows[PARTIAL, slowest])} "
        f"and {shown(rows[PARTIAL, np.inf])}."
    )


def requirement(measured: Measurements) -> str:
    """Return ε and δ with their units."""
    case = measured.case
    epsilon = case.requirement.epsilon
    delta = case.requirement.delta
    return f"ε = {epsilon:.3g} µg/m³ in windows of {case.windows.width} hours, δ = {delta:g}"


def describe_times(measured: Measurements) -> str:
    """Return how long recoveries take where nothing limits reading, and whether D1 saves time."""
    rows = measured.recoveries
    rows = rows[np.isinf(rows["rate"]) & (rows["width"] == rows["width"].max())]
    seconds = rows.groupby("scheme")["seconds"].mean().drop(index=NOTHING)
    saved = 1e3 * (seconds[EXACT] - seconds[MODEL])
    saving = f"saves {saved:.0f} ms" if saved > 0.5 else "saves nothing"
    sentence = (
        f"Without a limit every scheme recovers in {seconds.max():.2g} s or less on average, and "
        f"D1 by model {saving}"
    )
    if saved > LARGE * 1e3 * seconds[EXACT]:
        return f"{sentence}."
    return f"{sentence}: **with a local log, exact replay suffices.**"


def describe_outcomes(measured: Measurements) -> str:
    """Count lost and doubled results, and the workers that D1 by model can estimate."""
    outcomes = measured.outcomes.groupby("scheme")[["lost", "doubled", "wrong"]].sum()
    lost = int(outcomes["lost"][NOTHING])
    harmed = int(outcomes.drop(index=NOTHING).to_numpy().sum())
    estimable = measured.case.assignment.estimable
    count = int(estimable.sum())
    all_workers = len(estimable)
    rest = "and the samples of the others are read again, as exact recovery does"
    if count == all_workers:
        rest = "so it reads nothing again"
    elif not count:
        rest = "so it reads all samples again, as exact recovery does"
    return (
        f"The table counts the longest windows; in all windows *{NOTHING}* loses {lost:,} results, "
        f"and the other schemes lose, double or falsify {harmed}. D1 by model can estimate "
        f"{count} of {all_workers} workers ({requirement(measured)}), {rest}."
    )


def describe_accuracy(measured: Measurements) -> str:
    """Compare the shares within ε of a model and of the last value."""
    rows = measured.accuracy.set_index(["scheme", "width"])["within"]
    widths = sorted(measured.accuracy["width"].unique())
    pairs = [
        f"{percent(rows[LAST, width])} and {percent(rows[MODEL, width])} are within ε at {width} "
        "hours"
        for width in widths
        if np.isfinite(rows[MODEL, width])
    ]
    idle = [f"{width} hours" for width in widths if not np.isfinite(rows[MODEL, width])]
    sentences = []
    if pairs:
        sentences.append(
            f"Of the last values and of D1 by model's estimates {', '.join(pairs)}; the difference "
            "is what a model is worth"
        )
    if idle:
        sentences.append(f"at {' and '.join(idle)} D1 by model estimates nothing at this ε")
    text = "; ".join(sentences)
    return (
        f"{text[0].upper()}{text[1:]}; guaranteed are "
        f"{percent(1 - measured.case.requirement.delta)}. Intervals resample blocks of ten days."
    )


def describe_thresholds(measured: Measurements) -> str:
    """Describe the results that a backup threshold of ε bounds, and those that it does not."""
    rows = measured.thresholds
    width = int(rows["width"].max())
    row = rows[(rows["width"] == width) & (rows["threshold"] == 1)]
    largest = float(row["largest"].item())
    backups = float(row["backups"].item())
    outage = float(row["outage"].item())
    model = measured.accuracy.set_index(["scheme", "width"])["within"][MODEL, width]
    beside = ""
    if np.isfinite(model):
        beside = (
            f"; of D1 by model's estimates {percent(model)} are. So the two complement each other: "
            "a backup bounds the past, an estimate covers the outage"
        )
    return (
        f"With Θ = ε a restored result is within ε for any data: in windows of {width} hours it is "
        f"at most {shown(largest)} ε off, for {shown(backups)} backups per sensor "
        "and window. Θ says nothing of a window that is lost in the outage: of these "
        f"{percent(outage)} are within ε{beside}."
    )


def describe_operation(measured: Measurements) -> str:
    """Compare the speeds while nothing fails, here and in the stored runs on Spark."""
    table = summarize_operation(measured)
    most = max(int(count) for count in measured.normal["checkpoints"])
    often = checkpoints_name(most)
    outages = table["outage_s"]
    sentence = (
        f"D1 by model reaches {percent(table['speed'][MODEL])} of the speed without fault "
        f"tolerance, {most} checkpoints per window {percent(table['speed'][often])}; at "
        f"{measured.recoveries['rate'].min():,g} samples/s their longest outages are, by (1), "
        f"{shown(outages[MODEL])} s and {shown(outages[often])} s."
    )
    spark = measured.spark
    if spark is None:
        return sentence
    shares = " and ".join(percent(share) for share in spark.shares)
    return (
        f"{sentence} On Spark, `recoverable` reaches {shares} of Spark's own query, which has its "
        f"checkpoints (stored run of {spark.date})."
    )


def answer_own(measured: Measurements, p: NotebookParameters) -> str:
    """Return whether estimating pays for the user's numbers, by both criteria, by name."""
    operation = p.operation
    live = operation.samples_per_s
    if operation.read_rate < live:
        return (
            f"Your source hands out {operation.read_rate:,g} samples/s, fewer than the {live:,g} "
            "that come live, so no recovery ends."
        )
    costs = own_costs(measured, operation, p.own_t_sla_s)
    outages = costs["outage_minutes"]
    keeps = float(costs["keeps_from"][MODEL])
    faster = float(costs["faster_below"][MODEL])
    misses = operation.read_rate < keeps
    is_faster = operation.read_rate < faster
    where = "at no rate" if faster <= live else f"below {shown(faster)} samples/s"
    verdict = "exact replay suffices"
    if misses and is_faster:
        verdict = "estimating pays"
    elif misses:
        verdict = "neither exact replay nor D1 by model suffices"
    reason = "no rate is enough"
    if np.isfinite(keeps):
        reason = f"keeping it takes {shown(keeps)} samples/s"
    return (
        f"At your {operation.read_rate:,g} samples/s {verdict}. "
        f"*{KEEPS_T_SLA}*: exact replay {'misses' if misses else 'keeps'} "
        f"{p.own_t_sla_s:,g} s, because {reason}. "
        f"*{IS_FASTER}*: D1 by model is {'' if is_faster else 'not '}faster; it is {where}. "
        f"Per month outages last {shown(outages[EXACT])} min with exact replay and "
        f"{shown(outages[MODEL])} min with D1 by model."
    )
