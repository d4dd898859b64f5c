"""D2's claims, and functions that judge them by the results of experiments.

The parameters are these results: `counts` is from `checkpoint_counts` and `success` from
`success_rates`, both of the `case`. `time_judges` lists the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.experiments.cases import AXES, CHARGINGS, PlanningCase
from aftlib.checkpoint_planning.time_judges import (
    beats_full_replay,
    fewer_checkpoints_raise_throughput,
    largest,
    recovers_in_time,
    replays_in_proportion,
)
from aftlib.workbench.old_claims import (
    DERIVED,
    MODELLED,
    SIMULATED,
    UNDECIDED,
    Claim,
    Finding,
    Threshold,
    nothing,
)

METHODS = ("exactly-once", "no-relaxation", "proposed")
MARGIN = 0.05
"""Share of δ by which a failure rate's interval may exceed δ, because the rate may be exactly δ."""


def _by_charging(counts: pd.DataFrame, judge: Callable[[pd.DataFrame], Finding]) -> Finding:
    """Return the finding if every recovery pays T_est; the other chargings are its readings.

    `judge` gets the numbers of checkpoints: one row per point of the grid, one column per method.
    """
    findings = {
        name: judge(rows.pivot_table(index=list(AXES), columns="method", values="checkpoints"))
        for name, rows in counts.groupby("charging")
    }
    readings = {str(name): findings[name] for name in CHARGINGS[1:]}
    return replace(findings[CHARGINGS[0]], readings=readings)


def counts_by_hand(case: PlanningCase, counts: pd.DataFrame) -> Finding:
    """D2-1: exactly-once's counts equal those that follow from T_SLA alone."""
    exact = counts[counts["method"] == "exactly-once"]
    pays = exact["charging"] == CHARGINGS[0]
    fixed = np.where(pays, case.recovery_time.fixed_ms, case.estimate_apart.fixed_ms)
    per_step = case.recovery_time.per_tuple_ms * case.model.size
    steps = (exact["t_sla_ms"] - fixed) / per_step
    by_hand = np.ceil(case.windows.width / np.floor(steps * (1 + 1e-12))) - 1
    off = int((exact["checkpoints"] - np.maximum(by_hand, 0)).abs().max())
    return Finding(
        off,
        n=len(exact.assign(pays=pays)[["t_sla_ms", "pays"]].drop_duplicates()),
        counted="distinct plans",
        note="The value is the largest difference from ⌈w / l⌉ − 1, where l = ⌊(T_SLA − fixed) / "
        "(n · per tuple)⌋ steps. It is the largest over all readings of the question which "
        "recoveries' time includes T_est.",
    )


def ordered_counts(counts: pd.DataFrame) -> Finding:
    """D2-2: proposed ≤ no-relaxation ≤ exactly-once, and each saves checkpoints at some point."""

    def judge(wide: pd.DataFrame) -> Finding:
        exact, fixed, proposed = (wide[m] for m in METHODS)
        above = int(((proposed > fixed) | (fixed > exact)).sum())
        relaxed, estimated = float((proposed < fixed).mean()), float((fixed < exact).mean())
        return Finding(
            above,
            conditions=relaxed > 0 and estimated > 0,
            n=len(wide),
            counted="combinations of ε, δ and T_SLA, ours",
            note="Gap in the document: it does not say which recoveries' time includes T_est, and "
            "the order of the three methods depends on that. The claim holds only if each method "
            "also saves checkpoints at some point. Where every time includes T_est, no-relaxation "
            f"takes fewer than exactly-once at {estimated:.0%} of the points, and proposed fewer "
            f"than no-relaxation at {relaxed:.0%}.",
        )

    return _by_charging(counts, judge)


def saves_where_estimation_does_not(counts: pd.DataFrame) -> Finding:
    """D2-3: proposed saves checkpoints where no-relaxation saves none."""

    def judge(wide: pd.DataFrame) -> Finding:
        exact, fixed = wide["exactly-once"], wide["no-relaxation"]
        useless = wide[(fixed >= exact) & (exact > 0)]
        if useless.empty:
            return nothing("no-relaxation saves checkpoints at every point")
        fewer = (useless["proposed"] < useless["exactly-once"]).mean()
        return Finding(
            fewer,
            n=len(useless),
            counted="points of our grid where no-relaxation saves nothing",
            note="Gap in the document: it says neither which recoveries' time includes T_est nor "
            "at what share of the points the plan saves. Both “nearly everywhere” and “everywhere” "
            "are judged.",
        )

    finding = _by_charging(counts, judge)
    everywhere = {
        f"{name}, at every point": replace(each, threshold=EVERYWHERE, readings={})
        for name, each in {CHARGINGS[0]: finding, **finding.readings}.items()
    }
    return replace(finding, readings={**finding.readings, **everywhere})


def saves_most_where_t_sla_is_tight(counts: pd.DataFrame) -> Finding:
    """D2-4: proposed saves most at the shortest T_SLA, as checkpoints and as a share."""
    chargings = {name: counts[counts["charging"] == name] for name in CHARGINGS}
    findings = {
        f"{of}, {name}": _saved_by_t_sla(rows, of)
        for of in ("checkpoints", "share")
        for name, rows in chargings.items()
    }
    first, *others = findings
    means = "; ".join(f"{name}: {finding.note}" for name, finding in findings.items())
    note = (
        "Gap in the document: it says neither which recoveries' time includes T_est nor whether "
        f"savings are checkpoints or a share of exactly-once's. Saved on average: {means}."
    )
    return replace(findings[first], note=note, readings={name: findings[name] for name in others})


def _saved_by_t_sla(counts: pd.DataFrame, of: str) -> Finding:
    """Share of the pairs (ε, δ) at which the shortest T_SLA saves most; the note has the means."""
    wide = counts.pivot_table(index=list(AXES), columns="method", values="checkpoints")
    each = wide["exactly-once"] - wide["proposed"]
    if of == "share":
        each = (each / wide["exactly-once"]).fillna(0)
    saved = each.unstack("t_sla_ms")
    most = (saved.iloc[:, 0] >= saved.max(axis=1)) & (saved.iloc[:, 0] > 0)
    mean = saved.mean()
    means = ", ".join(f"{value:.3g} at {t_sla:g} ms" for t_sla, value in mean.items())
    return Finding(
        most.mean(),
        conditions=bool(len(mean) > 1 and mean.iloc[0] > mean.iloc[-1]),
        n=len(saved),
        counted="combinations of ε and δ, ours",
        note=means,
    )


def saves_most_where_demands_are_loose(counts: pd.DataFrame) -> Finding:
    """D2-13: estimating alone saves the most checkpoints at the largest ε and δ."""

    def judge(wide: pd.DataFrame) -> Finding:
        saved = (wide["exactly-once"] - wide["no-relaxation"]).unstack("t_sla_ms")
        loosest = saved.iloc[-1]
        most = (loosest >= saved.max()) & (loosest > 0)
        return Finding(
            most.mean(),
            n=len(most),
            counted="values of T_SLA, ours",
            note="At the largest ε and δ, no-relaxation saves the most checkpoints compared with "
            "exactly-once; other ε and δ may save the same number.",
        )

    return _by_charging(counts, judge)


def keeps_guarantee(case: PlanningCase, success: pd.DataFrame) -> Finding:
    """D2-5: at checkpoints with estimates, at most a share δ of the results is wrong.

    The value is the largest failure rate divided by its δ. Checkpoints of a plan share windows. So
    the interval of their mean rate has the mean width of their intervals.
    """
    estimated = success[success["sensors"] < case.model.size]
    if estimated.empty:
        return nothing("No plan estimates anything.")
    parts, delta = case.replications + 1, estimated["delta"]

    def rates(measure: str) -> pd.DataFrame:
        """Failure rate over δ, and the half-width of its interval, at each checkpoint."""
        failed = (1 - estimated[measure]) / delta
        half = (estimated[f"{measure}_high"] - estimated[measure]) / delta
        return pd.DataFrame({"failed": failed, "half": half})

    worst = rates("worst")
    plans = worst.groupby([estimated[axis] for axis in AXES]).mean()
    at = estimated.iloc[int(worst["failed"].to_numpy().argmax())]
    below = int((estimated["worst"] < 1 - delta).sum())
    short = 1 - delta - estimated["document"]
    needed = int(np.ceil(parts * (worst["half"].max() / MARGIN) ** 2))
    return replace(
        _most_failures(worst, parts),
        readings={
            "fig. 7's points, the mean over a plan's checkpoints": _most_failures(plans, parts),
            "if a failure hits only the interval after the checkpoint": _most_failures(
                rates("single"), parts
            ),
            "over all sensors, not only the least reliable": _most_failures(rates("every"), parts),
            "the running aggregate at the next checkpoint": _most_failures(
                rates("restored"), parts
            ),
        },
        note=f"The value is at ε = {at['epsilon']:g}, δ = {at['delta']:g}, T_SLA = "
        f"{at['t_sla_ms']:g} ms, τ = {at['time']:.0f}: success {at['worst']:.4f}, the plan expects "
        f"{at['worst_expected']:.4f}. It takes some {needed:,} data sets to make every interval as "
        f"narrow as the margin. Of {len(worst)} checkpoints, {below} rates lie below 1 − δ; in one "
        f"data set of the document's size {int((short > 0).sum())} do, by up to {short.max():.3f}. "
        "Nothing is guaranteed for the running aggregate at the next checkpoint.",
    )


def _most_failures(rates: pd.DataFrame, parts: int) -> Finding:
    """Return the finding on the largest rate in `failed`."""
    value, interval = largest(rates["failed"], rates["half"], parts)
    return Finding(value, (max(0.0, interval[0]), interval[1]), n=parts, counted="data sets")


RECOVERED = r"T_{rec} = T_{res} + T_{rep} + T_{est} \tag{24}"
WITHIN = r"T_{rec}(|o|) \le T_{SLA} \tag{25}"
CHECKPOINTS = (
    r"\sigma_{Y^{rec}|O} \le \frac{w^2 \sigma^*_Y - (\tau_k - t')^2 \sigma_{c}}"
    r"{(t' + w - \tau_k)^2} \tag{20}"
)
COUNTS_FIGURE = "Checkpoints against ε (fig. 6)"
TIMES_FIGURE = "Recovery time in one process (fig. 5)"
RESTARTS_FIGURE = "From a new process to the recovered interval"
EVERYWHERE = Threshold("ours: at every point, because section 6.2 gives no share", low=1)
NEARLY_ALL = Threshold(
    "ours: T_SLA as a 95th percentile, because no number of recoveries shows that all keep it",
    low=0.95,
)

CLAIMS = [
    Claim(
        "D2-1", "Exactly-once's checkpoint count does not depend on ε or δ.", counts_by_hand,
        source="section 6.2, fig. 6", expected=0, threshold=Threshold("equation (25)", high=0),
        unit="checkpoints", basis=DERIVED, figure=COUNTS_FIGURE, formula=WITHIN,
    ),
    Claim(
        "D2-2",
        "Estimating takes no more checkpoints than exactly-once, and the proposed plan no more "
        "than estimating alone.",
        ordered_counts, source="section 6.2, fig. 6", expected=0,
        threshold=Threshold("section 6.2: estimating reduces the number", high=0),
        unit="points out of order", basis=MODELLED, figure=COUNTS_FIGURE, formula=CHECKPOINTS,
        recorded=UNDECIDED,
    ),
    Claim(
        "D2-3",
        "Where (ε, δ) is so tight that estimating alone saves nothing, the proposed plan saves "
        "checkpoints.",
        saves_where_estimation_does_not, source="section 6.2, fig. 6",
        expected="fewer checkpoints where estimating alone saves none",
        threshold=Threshold("ours: nearly everywhere, because section 6.2 gives no share", low=0.9),
        unit="of the points", basis=MODELLED, figure=COUNTS_FIGURE, formula=CHECKPOINTS,
        recorded=UNDECIDED,
    ),
    Claim(
        "D2-4", "The proposed plan saves most checkpoints where T_SLA is tight.",
        saves_most_where_t_sla_is_tight, source="section 6.2, fig. 6",
        expected="most saved at the shortest T_SLA",
        threshold=Threshold("ours: at each combination, because section 6.2 gives no share", low=1),
        unit="of the combinations", basis=MODELLED, figure="Checkpoints against T_SLA (fig. 6)",
        formula=WITHIN, recorded=UNDECIDED,
    ),
    Claim(
        "D2-5", "The success rate is at least 1 − δ everywhere.", keeps_guarantee,
        source="section 6.3, fig. 7", expected="≤ 1 everywhere",
        threshold=Threshold(
            "fig. 7: at least 1 − δ; our margin is δ/20: no number of windows shows that a success "
            "rate of exactly 1 − δ is at least 1 − δ",
            high=1, margin=MARGIN,
        ),
        unit="× δ of the results fail", basis=SIMULATED, figure="Success against ε (fig. 7)",
        formula=r"R(c^k, O) > 1 - \delta \tag{13}", recorded=UNDECIDED,
    ),
    Claim(
        "D2-6", "Up to n = 1,000 sensors, recovery beats replaying all.", beats_full_replay,
        source="section 6.1, fig. 5", expected="< 1 for n ≤ 1,000",
        threshold=Threshold("section 6.1: faster than replaying all", high=1, strict=True),
        unit="× full replay's time", timed=True, figure=TIMES_FIGURE, formula=RECOVERED,
    ),
    Claim(
        "D2-7", "Replay time is proportional to |O|, and restoring takes at most 2 ms.",
        replays_in_proportion, source="section 6.1, fig. 5",
        expected="T_rep a line through 0 in |O| (R² ≥ 0.9), T_res at most 2 ms",
        threshold=Threshold("ours: nearly a line, because section 6.1 has no number", low=0.9),
        unit="R²", timed=True, figure=TIMES_FIGURE, formula=RECOVERED,
    ),
    Claim(
        "D2-8", "After a driver is killed, T_rec of the new process is within T_SLA.",
        recovers_in_time, source="equation (25), with real failures", expected="≥ 0.95",
        threshold=NEARLY_ALL, unit="of the kills", timed=True, figure=RESTARTS_FIGURE,
        formula=WITHIN, recorded=UNDECIDED,
    ),
    Claim(
        "D2-11", "Fewer checkpoints raise throughput above exactly-once's.",
        fewer_checkpoints_raise_throughput, source="abstract, section 1", expected="> 1",
        threshold=Threshold("abstract: higher throughput", low=1, strict=True),
        unit="× exactly-once's tuples/s", timed=True, formula=WITHIN, recorded=UNDECIDED,
    ),
    Claim(
        "D2-13", "Estimating saves most checkpoints where (ε, δ) is loose.",
        saves_most_where_demands_are_loose, source="section 6.2, fig. 6",
        expected="most saved at the largest ε and δ",
        threshold=Threshold("ours: at every T_SLA, because section 6.2 gives no share", low=1),
        unit="of the values of T_SLA", basis=MODELLED, figure=COUNTS_FIGURE, formula=CHECKPOINTS,
    ),
]  # fmt: skip
