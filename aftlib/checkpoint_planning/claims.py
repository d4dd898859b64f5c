"""D2's claims, and how the frames of its experiments settle them.

The parameters are results of the experiments: `counts` of `checkpoint_counts` and `success` of
`success_rates`, both of the `case`, `times` of `recovery_times`, `killed` of `restarts`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import binomtest, t

from aftlib.checkpoint_planning.experiments.cases import AXES, PlanningCase
from aftlib.checkpoint_planning.experiments.costs import LARGEST_N, SMALLEST_N, fastest
from aftlib.core.claims import DERIVED, DEVIATES, MODELLED, UNDECIDED, Claim, Finding, Threshold
from aftlib.core.intervals import CONFIDENCE

METHODS = ("exactly-once", "no-relaxation", "proposed")
SPREAD = 1.5
"""95 % intervals that the mean success rate may be off from what the plans expect."""
CONSTANT = 0.3
"""Largest share of a full replay's time that may not depend on the replayed sensors."""
LEAST_REPLAY = 0.5
"""Share of |O|/n of a full replay's T_rep that replaying O takes at least, if it is read at all."""


def _by_method(counts: pd.DataFrame) -> pd.DataFrame:
    """Checkpoints at each point of the grid, a column for each method."""
    return counts.pivot_table(index=list(AXES), columns="method", values="checkpoints")


def counts_by_hand(case: PlanningCase, counts: pd.DataFrame) -> Finding:
    """D2-1: exactly-once's counts are those that T_SLA alone gives."""
    exact = _by_method(counts)["exactly-once"]
    t_sla, cost = exact.index.get_level_values("t_sla_ms"), case.recovery_time
    steps = (t_sla - cost.fixed_ms) / (cost.per_tuple_ms * case.model.size)
    by_hand = np.ceil(case.windows.width / np.floor(steps * (1 + 1e-12))) - 1
    off = int((exact - np.maximum(by_hand, 0)).abs().max())
    return Finding(
        off,
        note="Largest difference of exactly-once's counts from ⌈w / l⌉ − 1, where l = ⌊(T_SLA − "
        f"fixed) / (n · per tuple)⌋ steps; neither ε nor δ is in it. {len(exact)} combinations of "
        "ε, δ and T_SLA; the planner's exactly-once does not look at ε and δ, so it could differ "
        "by a wrong count only.",
    )


def ordered_counts(counts: pd.DataFrame) -> Finding:
    """D2-2: proposed ≤ no-relaxation ≤ exactly-once, and each saves somewhere."""
    wide = _by_method(counts)
    exact, fixed, proposed = (wide[m] for m in METHODS)
    above = int(((proposed > fixed) | (fixed > exact)).sum())
    relaxed, estimated = float((proposed < fixed).mean()), float((fixed < exact).mean())
    return Finding(
        above,
        conditions=relaxed > 0 and estimated > 0,
        note=f"Points out of order among {len(wide)} combinations of ε, δ and T_SLA. To hold, each "
        f"must also save somewhere: no-relaxation takes fewer than exactly-once at {estimated:.0%}"
        f" of them, proposed fewer than no-relaxation at {relaxed:.0%}.",
    )


def saves_where_estimation_does_not(counts: pd.DataFrame) -> Finding:
    """D2-3: where no-relaxation equals exactly-once, proposed takes fewer."""
    wide = _by_method(counts)
    exact, fixed = wide["exactly-once"], wide["no-relaxation"]
    useless = wide[(fixed == exact) & (exact > 0)]
    fewer = (useless["proposed"] < useless["exactly-once"]).mean() if len(useless) else 0.0
    alike = useless[useless["proposed"] == useless["exactly-once"]].reset_index()
    where = "; ".join(
        f"ε = {p.epsilon:g}, δ = {p.delta:g}, T_SLA = {p.t_sla_ms:g}" for p in alike.itertuples()
    )
    return Finding(
        fewer,
        note=f"Share of the {len(useless)} points where no-relaxation equals exactly-once and "
        f"proposed takes fewer checkpoints; 0.9 is asked. Not fewer at: {where or 'none'}.",
    )


def saves_most_where_t_sla_is_tight(counts: pd.DataFrame) -> Finding:
    """D2-4: the shortest T_SLA saves the most, everywhere and on average."""
    wide = _by_method(counts)
    saved = (wide["exactly-once"] - wide["proposed"]).unstack("t_sla_ms")
    most = (saved.iloc[:, 0] >= saved.max(axis=1)) & (saved.iloc[:, 0] > 0)
    mean = saved.mean()
    falls = len(mean) > 1 and mean.iloc[0] > mean.iloc[-1]
    means = ", ".join(f"{value:.1f} at {t_sla:g} ms" for t_sla, value in mean.items())
    return Finding(
        most.mean(),
        conditions=bool(falls),
        note=f"Share of the {len(saved)} combinations of ε and δ at which the shortest T_SLA saves "
        "some checkpoints against exactly-once, and the most. The mean must be larger there than "
        f"at the longest. Saved on average: {means}.",
    )


def keeps_promise(case: PlanningCase, success: pd.DataFrame) -> Finding:
    """D2-5: no success rate is below 1 − δ by more than chance.

    The guarantee may not be broken, and the measured rates must be those that the plan expects.
    Checkpoints share their windows, so the error of their mean is taken to be as large as the mean
    of their errors.
    """
    parts, estimated = case.replications + 1, success["worst_expected"] < 1
    counted = success[estimated] if estimated.any() else success
    # one interval a checkpoint would exclude 1 − δ somewhere by chance: widen them all
    level = 1 - (1 - CONFIDENCE) / 2 / max(len(counted), 1)
    wider = t.ppf(level, parts - 1) / t.ppf((1 + CONFIDENCE) / 2, parts - 1)
    half = (counted["worst_high"] - counted["worst"]) * wider
    over = counted["worst"] - (1 - counted["delta"])
    least = int((over / (1 - counted["delta"])).to_numpy().argmin())
    at, rate, reach = counted.iloc[least], float(counted["worst"].iloc[least]), half.iloc[least]
    broken, below = int((over + half < 0).sum()), int((over < 0).sum())
    bias = float((counted["worst"] - counted["worst_expected"]).mean())
    bearable = SPREAD * float((counted["worst_high"] - counted["worst"]).mean())
    return Finding(
        rate,
        (max(0.0, rate - float(reach)), min(1.0, rate + float(reach))),
        threshold=Threshold("fig. 7: at least 1 − δ", low=1 - at["delta"], margin=0.05),
        conditions=bool(estimated.any()) and broken == 0 and abs(bias) <= bearable,
        note=f"Lowest success against its 1 − δ, over {len(counted)} planned checkpoints in the "
        f"worst case of (12): ε = {at['epsilon']:g}, δ = {at['delta']:g}, T_SLA = "
        f"{at['t_sla_ms']:g} ms, τ = {at['time']:.0f}, where the plan expects "
        f"{at['worst_expected']:.4f}. Intervals over {parts} data sets hold for all checkpoints "
        f"together (Bonferroni): {broken} exclude 1 − δ; {below} rates lie below it by chance, as "
        f"plans spend the tolerance to the last. On average {bias:+.4f} from what the plans expect "
        f"(at most {bearable:.4f} either way is asked).",
    )


def beats_full_replay(times: pd.DataFrame) -> Finding:
    """D2-6: recovering takes less time than a full replay."""
    least = fastest(times)
    full = least[least["sensors"] == least["n"]].set_index("n")
    part = least[least["sensors"] <= least["n"] / 2].assign(
        ratio=lambda t: t["total_ms"] / t["n"].map(full["total_ms"]),
        read=lambda t: t["rep_ms"] / t["n"].map(full["rep_ms"]) / (t["sensors"] / t["n"]),
    )
    counted = part[(part["sensors"] <= part["n"] / 4) & (part["n"] <= LARGEST_N)]
    halves = part.groupby("n")["ratio"].max().items()
    shown = ", ".join(f"{value:.2f} at n = {n:,}" for n, value in halves)
    return Finding(
        counted["ratio"].max(),
        conditions=bool((counted["read"] >= LEAST_REPLAY).all()),
        note="Largest T_rec over full replay's among |O| ≤ n/4, in one process (the document's "
        f"plans replay a fifth or less). Up to n/2 it is {shown}. T_rep is at least "
        f"{counted['read'].min():.2f} times |O|/n of full replay's ({LEAST_REPLAY} is asked: less "
        "would mean that O was not read). The document found recovery "
        "slower from n = 10,000 on: it solved for the estimate at recovery, here the gain matrix "
        "is made with the plan and only loaded.",
    )


def replays_in_proportion(times: pd.DataFrame) -> Finding:
    """D2-7: replay time is a line through 0 in |O|, and restore time is constant."""
    least = fastest(times)
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
    return Finding(
        least_r2,
        conditions=growth <= 0.1 and constant <= CONSTANT,
        note=f"Smallest R² of a straight line, n ≥ {SMALLEST_N}; at |O| = 0 it is at most "
        f"{constant:.0%} of full replay's ({CONSTANT:.0%} is allowed). T_res grows with |O| at "
        f"most {max(growth, 0):.1%} as fast as T_rep (10 % is allowed). {shown}. Loading the "
        "(n − |O|) × |O| gain matrix is part of T_res here; the document's is at most 2 ms.",
    )


def recovers_in_time(killed: pd.DataFrame) -> Finding:
    """D2-8: T_rec of the process that a failure leaves behind."""
    return _kept(killed, "total_ms", "T_rec is restoring, replaying and estimating")


def starts_and_recovers_in_time(killed: pd.DataFrame) -> Finding:
    """D2-9: all that it takes from its start to its commit."""
    why = "From its start to its commit: Python and imports are most of it"
    return _kept(killed, "all_ms", why)


def _kept(killed: pd.DataFrame, column: str, what: str) -> Finding:
    """How many of the times in a column are within T_SLA."""
    took, sla = killed[column], killed["t_sla_ms"]
    kept = int((took <= sla).sum())
    interval = binomtest(kept, len(killed)).proportion_ci(CONFIDENCE)
    return Finding(
        kept / len(killed),
        (interval.low, interval.high),
        note=f"Share of {len(killed)} real SIGKILLs after which the new, cold process kept T_SLA = "
        f"{sla.median():.0f} ms (Clopper and Pearson); all of them are asked. {what}; it took "
        f"{took.median():.0f} ms (median), at most {took.max():.0f} ms. How soon a failure is "
        "noticed is in neither.",
    )


RECOVERED = r"T_{rec} = T_{res} + T_{rep} + T_{est} \tag{24}"
WITHIN = r"T_{rec}(|o|) \le T_{SLA} \tag{25}"
CHECKPOINTS = (
    r"\sigma_{Y^{rec}|O} \le \frac{w^2 \sigma^*_Y - (\tau_k - t')^2 \sigma_{c}}"
    r"{(t' + w - \tau_k)^2} \tag{20}"
)
COUNTS_FIGURE = "Checkpoints against ε (fig. 6)"
TIMES_FIGURE = "Recovery time in one process (fig. 5)"
RESTARTS_FIGURE = "From a new process to the recovered interval"

CLAIMS = [
    Claim(
        "D2-1", "Exactly-once's checkpoint count does not depend on ε or δ.", counts_by_hand,
        source="fig. 6", expected=0, threshold=Threshold("equation (25)", high=0),
        unit="checkpoints", basis=DERIVED, figure=COUNTS_FIGURE, formula=WITHIN,
    ),
    Claim(
        "D2-2",
        "Proposed takes at most as many checkpoints as no-relaxation, and that at most as many "
        "as exactly-once, everywhere.",
        ordered_counts, source="fig. 6", expected=0,
        threshold=Threshold("section 6: everywhere", high=0), unit="points out of order",
        basis=MODELLED, figure=COUNTS_FIGURE, formula=CHECKPOINTS,
    ),
    Claim(
        "D2-3", "With a tight ε estimation alone saves no checkpoint, but the proposed plan does.",
        saves_where_estimation_does_not, source="fig. 6",
        expected="fewer checkpoints where estimation alone saves none",
        threshold=Threshold("ours: nearly everywhere", low=0.9), unit="of the points",
        basis=MODELLED, figure=COUNTS_FIGURE, formula=CHECKPOINTS,
    ),
    Claim(
        "D2-4", "The proposed plan gains most where T_SLA is tight.",
        saves_most_where_t_sla_is_tight, source="fig. 6",
        expected="most checkpoints saved at the shortest T_SLA",
        threshold=Threshold("section 6: most where T_SLA is tight", low=1),
        unit="of the combinations", basis=MODELLED, figure="Checkpoints against T_SLA (fig. 6)",
        formula=WITHIN,
    ),
    Claim(
        "D2-5", "The success rate is at least 1 − δ everywhere.", keeps_promise, source="fig. 7",
        expected="≥ 1 − δ everywhere", unit="of the windows", figure="Success against ε (fig. 7)",
        formula=r"R(c^k, O) > 1 - \delta \tag{13}",
    ),
    Claim(
        "D2-6", "Up to n = 1,000 sensors recovery beats replaying all.", beats_full_replay,
        source="fig. 5", expected="< 1 for n ≤ 1,000",
        threshold=Threshold("section 6: faster than replaying all", high=1, strict=True),
        unit="× full replay's time", timed=True, figure=TIMES_FIGURE, formula=RECOVERED,
    ),
    Claim(
        "D2-7", "Replay time is proportional to |O|, restore time constant.", replays_in_proportion,
        source="fig. 5", expected="T_rep a line through 0 in |O| (R² ≥ 0.9), T_res constant",
        threshold=Threshold("ours: nearly a line", low=0.9), unit="R²", timed=True,
        figure=TIMES_FIGURE, formula=RECOVERED,
    ),
    Claim(
        "D2-8", "After a driver is killed, T_rec of the new process is within T_SLA.",
        recovers_in_time, source="equation (25), with real failures", expected=1,
        threshold=Threshold("equation (25): every recovery", low=1), unit="of the kills",
        timed=True, figure=RESTARTS_FIGURE, formula=WITHIN, recorded=UNDECIDED,
    ),
    Claim(
        "D2-9", "It is within T_SLA from the new process's start to its commit.",
        starts_and_recovers_in_time, source="equation (25), with real failures", expected=1,
        threshold=Threshold("equation (25): every recovery", low=1), unit="of the kills",
        timed=True, figure=RESTARTS_FIGURE, formula=WITHIN, recorded=DEVIATES,
    ),
]  # fmt: skip
