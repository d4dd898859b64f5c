"""What the experiments say about D2's claims."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import binomtest, t

from aftlib.checkpoint_planning.experiments.cases import AXES, PlanningCase
from aftlib.checkpoint_planning.experiments.costs import LARGEST_N, SMALLEST_N, fastest
from aftlib.core.intervals import CONFIDENCE
from aftlib.reports.claims import Settled, settle

SPREAD = 1.5
"""95 % intervals that the mean success rate may be off from what the plans expect."""
CONSTANT = 0.3
"""Largest share of a full replay's time that may not depend on what is replayed."""
LEAST_REPLAY = 0.5
"""Share of |O|/n of a full replay's T_rep that replaying O takes at least, if it is read at all."""


def verdicts(
    case: PlanningCase,
    *,
    counts: pd.DataFrame,
    success: pd.DataFrame,
    times: pd.DataFrame,
    killed: pd.DataFrame,
) -> list[Settled]:
    """Settle D2-1 … D2-9.

    `counts` and `success`, both of the case, `times` and `killed` are the results of
    `checkpoint_counts`, `success_rates`, `recovery_times` and `restarts`.
    """
    wide = counts.pivot_table(index=list(AXES), columns="method", values="checkpoints")
    promise = promise_verdict(success, case.replications + 1)
    found = [*count_verdicts(case, wide), *saving_verdicts(wide), promise]
    return [*found, *time_verdicts(times), *restart_verdicts(killed)]


def count_verdicts(case: PlanningCase, wide: pd.DataFrame) -> list[Settled]:
    """D2-1 and D2-2; `wide` has a row for each point of the grid and a column for each method."""
    exact, fixed, proposed = (wide[m] for m in ("exactly-once", "no-relaxation", "proposed"))
    t_sla, cost = exact.index.get_level_values("t_sla_ms"), case.recovery_time
    steps = (t_sla - cost.fixed_ms) / (cost.per_tuple_ms * case.model.size)
    by_hand = np.ceil(case.windows.width / np.floor(steps * (1 + 1e-12))) - 1
    off = int((exact - np.maximum(by_hand, 0)).abs().max())
    independent = settle(
        "D2-1",
        expected=0,
        measured=off,
        holds=off == 0,
        basis="derived",
        note="Largest difference of exactly-once's counts from ⌈w / l⌉ − 1, where l = ⌊(T_SLA − "
        f"fixed) / (n · per tuple)⌋ steps; neither ε nor δ is in it. {len(wide)} combinations of "
        "ε, δ and T_SLA; the planner's exactly-once does not look at ε and δ, so it could differ "
        "by a wrong count only.",
    )

    above = int(((proposed > fixed) | (fixed > exact)).sum())
    relaxed, estimated = float((proposed < fixed).mean()), float((fixed < exact).mean())
    ordered = settle(
        "D2-2",
        expected=0,
        measured=above,
        holds=above == 0 and relaxed > 0 and estimated > 0,
        basis="modelled",
        note=f"Points out of order among {len(wide)} combinations of ε, δ and T_SLA. To hold, each "
        f"must also save somewhere: no-relaxation takes fewer than exactly-once at {estimated:.0%}"
        f" of them, proposed fewer than no-relaxation at {relaxed:.0%}.",
    )
    return [independent, ordered]


def saving_verdicts(wide: pd.DataFrame) -> list[Settled]:
    """D2-3 and D2-4, what relaxing the target saves."""
    exact, fixed, proposed = (wide[m] for m in ("exactly-once", "no-relaxation", "proposed"))
    useless = wide[(fixed == exact) & (exact > 0)]
    fewer = (useless["proposed"] < useless["exactly-once"]).mean() if len(useless) else 0.0
    alike = useless[useless["proposed"] == useless["exactly-once"]].reset_index()
    where = "; ".join(
        f"ε = {p.epsilon:g}, δ = {p.delta:g}, T_SLA = {p.t_sla_ms:g}" for p in alike.itertuples()
    )
    tight = settle(
        "D2-3",
        expected="fewer checkpoints where estimation alone saves none",
        measured=float(fewer),
        holds=bool(fewer >= 0.9),
        basis="modelled",
        note=f"Share of the {len(useless)} points where no-relaxation equals exactly-once and "
        f"proposed takes fewer checkpoints; 0.9 is asked. Not fewer at: {where or 'none'}.",
    )

    saved = (exact - proposed).unstack("t_sla_ms")
    most = (saved.iloc[:, 0] >= saved.max(axis=1)) & (saved.iloc[:, 0] > 0)
    mean = saved.mean()
    falls = len(mean) > 1 and mean.iloc[0] > mean.iloc[-1]
    means = ", ".join(f"{value:.1f} at {t_sla:g} ms" for t_sla, value in mean.items())
    greatest = settle(
        "D2-4",
        expected="most checkpoints saved at the shortest T_SLA",
        measured=float(most.mean()),
        holds=bool(most.all() and falls),
        basis="modelled",
        note=f"Share of the {len(saved)} combinations of ε and δ at which the shortest T_SLA saves "
        "some checkpoints against exactly-once, and the most. The mean must be larger there than "
        f"at the longest. Saved on average: {means}.",
    )
    return [tight, greatest]


def promise_verdict(success: pd.DataFrame, parts: int) -> Settled:
    """D2-5, from `success_rates` over that many parts.

    A promise may not be broken; and what is measured must be what the plan expects, or the
    experiment is not one of these plans. Checkpoints share their windows, so the error of their
    mean is taken to be as large as the mean of their errors.
    """
    estimated = success["worst_expected"] < 1
    judged = success[estimated] if estimated.any() else success
    # one interval a checkpoint would exclude 1 − δ somewhere by chance: widen them all
    level = 1 - (1 - CONFIDENCE) / 2 / max(len(judged), 1)
    wider = t.ppf(level, parts - 1) / t.ppf((1 + CONFIDENCE) / 2, parts - 1)
    half = (judged["worst_high"] - judged["worst"]) * wider
    over = judged["worst"] - (1 - judged["delta"])
    least = int((over / (1 - judged["delta"])).to_numpy().argmin())
    at, rate, reach = judged.iloc[least], float(judged["worst"].iloc[least]), half.iloc[least]
    broken, below = int((over + half < 0).sum()), int((over < 0).sum())
    bias = float((judged["worst"] - judged["worst_expected"]).mean())
    bearable = SPREAD * float((judged["worst_high"] - judged["worst"]).mean())
    return settle(
        "D2-5",
        expected="≥ 1 − δ everywhere",
        measured=rate,
        interval=(max(0.0, rate - float(reach)), min(1.0, rate + float(reach))),
        holds=bool(estimated.any()) and broken == 0 and abs(bias) <= bearable,
        note=f"Lowest success against its 1 − δ, over {len(judged)} planned checkpoints in the "
        f"worst case of (12): ε = {at['epsilon']:g}, δ = {at['delta']:g}, T_SLA = "
        f"{at['t_sla_ms']:g} ms, τ = {at['time']:.0f}, where the plan expects "
        f"{at['worst_expected']:.4f}. Intervals over {parts} data sets hold for all checkpoints "
        f"together (Bonferroni): {broken} exclude 1 − δ; {below} rates lie below it by chance, as "
        f"plans spend the tolerance to the last. On average {bias:+.4f} from what the plans expect "
        f"(at most {bearable:.4f} either way is asked).",
    )


def time_verdicts(times: pd.DataFrame) -> list[Settled]:
    """D2-6 and D2-7, from `recovery_times`."""
    least = fastest(times)
    full = least[least["sensors"] == least["n"]].set_index("n")
    part = least[least["sensors"] <= least["n"] / 2].assign(
        ratio=lambda t: t["total_ms"] / t["n"].map(full["total_ms"]),
        read=lambda t: t["rep_ms"] / t["n"].map(full["rep_ms"]) / (t["sensors"] / t["n"]),
    )
    judged = part[(part["sensors"] <= part["n"] / 4) & (part["n"] <= LARGEST_N)]
    halves = part.groupby("n")["ratio"].max().items()
    shown = ", ".join(f"{value:.2f} at n = {n:,}" for n, value in halves)
    beats = settle(
        "D2-6",
        expected="< 1 for n ≤ 1,000",
        measured=float(judged["ratio"].max()),
        holds=bool((judged["ratio"] < 1).all() and (judged["read"] >= LEAST_REPLAY).all()),
        note="Largest T_rec over full replay's among |O| ≤ n/4, in one process (the document's "
        f"plans replay a fifth or less). Up to n/2 it is {shown}. T_rep is at least "
        f"{judged['read'].min():.2f} times |O|/n of full replay's ({LEAST_REPLAY} is asked: less "
        "would mean that O was not read). The document found recovery "
        "slower from n = 10,000 on: it solved for the estimate at recovery, here the gain matrix "
        "is made with the plan and only loaded.",
    )

    ns = sorted(int(n) for n in least["n"].unique() if n >= SMALLEST_N)
    each = [least[least["n"] == n] for n in ns]
    fits = []
    for rows in each:
        x, y = rows["sensors"], rows["rep_ms"]
        slope, start = np.polyfit(x, y, 1)
        unexplained = ((y - slope * x - start) ** 2).sum() / ((y - y.mean()) ** 2).sum()
        fits.append((1 - float(unexplained), float(start / (slope * max(x) + start))))
    partial = [rows[rows["sensors"] < rows["n"]] for rows in each]
    slopes = [np.polyfit(rows["sensors"], rows[["res_ms", "rep_ms"]], 1)[0] for rows in partial]
    growth = max(float(res / rep) for res, rep in slopes)
    shown = "; ".join(
        f"n = {n:,}: R² {r2:.3f}, {start:.0%} of full replay's at |O| = 0, T_res "
        f"{rows['res_ms'].min():.2f} … {rows['res_ms'].max():.2f} ms"
        for n, (r2, start), rows in zip(ns, fits, partial, strict=True)
    )
    least_r2, constant = min(r2 for r2, _ in fits), max(abs(start) for _, start in fits)
    proportional = settle(
        "D2-7",
        expected="T_rep a line through 0 in |O| (R² ≥ 0.9), T_res constant beside it",
        measured=least_r2,
        holds=growth <= 0.1 and least_r2 >= 0.9 and constant <= CONSTANT,
        note=f"Smallest R² of a straight line, n ≥ {SMALLEST_N}; at |O| = 0 it is at most "
        f"{constant:.0%} of full replay's ({CONSTANT:.0%} is allowed). T_res grows with |O| at "
        f"most {max(growth, 0):.1%} as fast as T_rep (10 % is allowed). {shown}. Loading the "
        "(n − |O|) × |O| gain matrix is part of T_res here; the document's is at most 2 ms.",
    )
    return [beats, proportional]


def restart_verdicts(killed: pd.DataFrame) -> list[Settled]:
    """D2-8 and D2-9, from `restarts`: T_SLA holds for the process that a failure leaves behind."""
    found, sla = [], killed["t_sla_ms"]
    told = (
        f"Share of {len(killed)} real SIGKILLs after which the new, cold process kept T_SLA = "
        f"{sla.median():.0f} ms (Clopper and Pearson); all of them are asked."
    )
    for claim, column, what in (
        ("D2-8", "total_ms", "T_rec is restoring, replaying and estimating"),
        ("D2-9", "all_ms", "From its start to its commit: Python and imports are most of it"),
    ):
        took, kept = killed[column], int((killed[column] <= sla).sum())
        interval = binomtest(kept, len(killed)).proportion_ci(CONFIDENCE)
        found.append(
            settle(
                claim,
                expected=1,
                measured=kept / len(killed),
                interval=(float(interval.low), float(interval.high)),
                holds=kept == len(killed),
                note=f"{told} {what}; it took {took.median():.0f} ms (median), at most "
                f"{took.max():.0f} ms. How soon a failure is noticed is in neither.",
            )
        )
    return found
