"""The judges of D2's claims about plans; `timed_judges` has those about measured times.

Each makes one finding from the variables of notebook 02: `counts` by `cases.checkpoint_counts`,
`success` by `success_rates.sampled_failures`, `adaptive` by `drivers.kill_at_random`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from aftlib.documents.checkpoint_planning.cases import AXES, UNCHARGED, PlanningCase
from aftlib.documents.checkpoint_planning.experiments import NotebookParameters
from aftlib.documents.checkpoint_planning.plan import (
    ADAPTIVE,
    EXACTLY_ONCE,
    NO_RELAXATION,
    PROPOSED,
)
from aftlib.documents.checkpoint_planning.success_rates import restored_checkpoints
from aftlib.notebook.claims import Finding, not_run
from aftlib.notebook.texts import other_interpretation, percent

LARGEST_Z = 4.5
"""A sampled rate further from the exact one refutes the formula; of 105 points, some reach 3."""
LARGEST_ERROR = 5.5
"""An error of more standard deviations refutes the operator's variance; of 10⁵, some reach 4.5."""
NEARLY_EVERYWHERE = 0.9
"""Share of the points at which D2-3 holds."""


UNCHARGED_READING = "full replays are not charged the time of estimating"
PREPARED_READING = "no recovery is charged that time, because the gain is prepared with the plan"
"""Readings of the document's silence about T_est, other than that all recoveries pay it."""


def _by_method(counts: pd.DataFrame, values: str = "checkpoints") -> pd.DataFrame:
    """Checkpoints: one row per point of the grid, one column per method."""
    return counts.pivot_table(index=AXES, columns="method", values=values)


def _readings(counts: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Checkpoints by method if all recoveries pay T_est, and in the two other readings."""
    charged = _by_method(counts)
    uncharged = charged.assign(**{EXACTLY_ONCE: charged[UNCHARGED]})
    return charged, uncharged, _by_method(counts, "prepared")


def follows_from_t_sla(case: PlanningCase, counts: pd.DataFrame) -> Finding:
    """D2-1: the largest difference from ⌈w / l⌉ − 1, l = ⌊(T_SLA − fixed) / (n · per tuple)⌋."""
    exact = counts[counts["method"] == EXACTLY_ONCE]
    steps = exact["t_sla_ms"].map(case.recovery_time.max_tuples) // case.model.size
    by_hand = np.ceil(case.window / steps) - 1
    off = (exact["checkpoints"] - by_hand).abs()
    uncharged = counts[counts["method"] == UNCHARGED].groupby("t_sla_ms")["checkpoints"]
    paid = exact.groupby("t_sla_ms")["checkpoints"].max()
    word = "Lower" if (uncharged.max() < paid).any() else "The same"
    constant = "but as" if (uncharged.max() == uncharged.min()).all() else "but not"
    each = ", ".join(f"{count:.0f}" for count in uncharged.mean())
    numbers = f"{each} checkpoints by rising T_SLA"
    return Finding(
        int(off.max()),
        n=len(exact),
        counted="combinations of ε, δ and T_SLA, ours",
        text=f"at most {off.max():g} checkpoints off; {(off == 0).sum()} of {len(exact)} counts "
        "follow from T_SLA alone",
        sensitivity=f"{word} if {UNCHARGED_READING} ({numbers}), {constant} independent of ε and "
        "δ.",
    )


def are_ordered(counts: pd.DataFrame) -> Finding:
    """D2-2: points at which the methods are out of order; each must also save somewhere."""
    readings = _readings(counts)
    disorder, uncharged, prepared = map(_points_out_of_order, readings)
    charged = readings[0]
    number = len(charged)
    more = (charged[PROPOSED] > charged[UNCHARGED]).sum()
    estimating = charged[NO_RELAXATION] < charged[EXACTLY_ONCE]
    saves = estimating.any() and (charged[PROPOSED] < charged[NO_RELAXATION]).any()
    about_more = f"proposed needs more at {more} of {number} combinations"
    sentences = [
        other_interpretation((uncharged > 0) != (disorder > 0), UNCHARGED_READING, about_more),
        f"The order is then violated at {uncharged}.",
        other_interpretation(
            (prepared > 0) != (disorder > 0),
            PREPARED_READING,
            f"{prepared} of {number} violate the order",
        ),
    ]
    return Finding(
        disorder,
        n=number,
        counted="combinations of ε, δ and T_SLA, ours",
        text=f"{disorder} of {number} combinations violate proposed ≤ no-relaxation ≤ exactly-once",
        fails="" if saves else "One of the methods never saves a checkpoint.",
        sensitivity=" ".join(sentences),
    )


def _points_out_of_order(wide: pd.DataFrame) -> int:
    """Count the points at which proposed ≤ no-relaxation ≤ exactly-once fails."""
    proposed = wide[PROPOSED] > wide[NO_RELAXATION]
    return int((proposed | (wide[NO_RELAXATION] > wide[EXACTLY_ONCE])).sum())


def saves_where_estimating_does_not(counts: pd.DataFrame) -> Finding:
    """D2-3: share of the points where no-relaxation saves nothing but proposed does."""
    saves, uncharged, prepared = map(_saves_where_useless, _readings(counts))
    if saves.empty:
        return not_run("No-relaxation saves checkpoints at every point.")
    few = saves.mean() < NEARLY_EVERYWHERE
    sentences = [
        other_interpretation((other.mean() < NEARLY_EVERYWHERE) != few, reading, text)
        for reading, other, text in (
            (
                UNCHARGED_READING,
                uncharged,
                f"{percent(uncharged.mean())} of {len(uncharged)} points",
            ),
            (PREPARED_READING, prepared, f"{prepared.sum()} of {len(prepared)} points"),
        )
        if len(other)
    ]
    return Finding(
        saves.mean(),
        n=len(saves),
        counted="points where no-relaxation saves nothing",
        text=f"proposed saves some at {saves.sum()} of the {len(saves)} points where no-relaxation "
        "saves none",
        sensitivity=" ".join(sentences)
        or f"No-relaxation saves checkpoints at every point if {UNCHARGED_READING}.",
    )


def _saves_where_useless(wide: pd.DataFrame) -> pd.Series:
    """Whether proposed saves, at the points where no-relaxation does not."""
    exact = wide[EXACTLY_ONCE]
    useless = wide[(wide[NO_RELAXATION] >= exact) & (exact > 0)]
    return useless[PROPOSED] < useless[EXACTLY_ONCE]


def saves_most_at_short_t_sla(counts: pd.DataFrame) -> Finding:
    """D2-4: share of the pairs (ε, δ) at which the shortest T_SLA saves the most checkpoints."""
    readings = _readings(counts)
    most, uncharged, prepared = map(_shortest_saves_most, readings)
    exact = readings[0][EXACTLY_ONCE].unstack("t_sla_ms")
    saved = exact - readings[0][PROPOSED].unstack("t_sla_ms")
    shares = (saved / exact).fillna(0)
    largest = shares.iloc[:, 0] >= shares.max(axis=1)
    means = ", ".join(f"{mean:.0f}" for mean in saved.mean())
    mean_shares = ", ".join(f"{100 * mean:.0f}" for mean in shares.mean())
    shortest, *_, longest = exact.columns
    taken = exact.mean()
    sentences = [
        other_interpretation(
            largest.all() != most.all(),
            "a share of exactly-once's checkpoints is meant",
            f"largest at the shortest T_SLA at {largest.sum()} of {len(saved)} (means "
            f"{mean_shares} %)",
        ),
        f"Exactly-once itself takes {taken.iloc[0]:.0f} at {shortest:g} ms, "
        f"{taken.iloc[-1]:.0f} at {longest:g} ms.",
        other_interpretation(
            uncharged.all() != most.all(),
            UNCHARGED_READING,
            f"{uncharged.sum()} of {len(saved)} combinations",
        ),
        other_interpretation(
            prepared.all() != most.all(),
            PREPARED_READING,
            f"{prepared.sum()} of {len(saved)} combinations",
        ),
    ]
    return Finding(
        float(most.mean()),
        n=len(saved),
        counted="combinations of ε and δ, ours",
        text=f"{most.sum()} of {len(saved)} combinations; "
        f"saved on average, by rising T_SLA: {means} checkpoints",
        sensitivity=" ".join(sentences),
    )


def _shortest_saves_most(wide: pd.DataFrame) -> pd.Series:
    """Whether proposed saves most at the shortest T_SLA, for each ε and δ."""
    saved = (wide[EXACTLY_ONCE] - wide[PROPOSED]).unstack("t_sla_ms")
    first = saved.iloc[:, 0]
    return (first >= saved.max(axis=1)) & (first > saved.iloc[:, -1]) & (first > 0)


def saves_most_where_loose(counts: pd.DataFrame) -> Finding:
    """D2-13: share of the T_SLA at which no-relaxation saves most at the largest ε and δ."""
    most, uncharged, _ = map(_loosest_saves_most, _readings(counts))
    return Finding(
        most.mean(),
        n=len(most),
        counted="values of T_SLA, ours",
        text=f"{most.sum()} of {len(most)} values of T_SLA; other ε and δ may save as many",
        sensitivity=other_interpretation(
            uncharged.all() != most.all(),
            UNCHARGED_READING,
            f"{uncharged.sum()} of {len(uncharged)} values of T_SLA",
        ),
    )


def _loosest_saves_most(wide: pd.DataFrame) -> pd.Series:
    """Whether no-relaxation saves most at the largest ε and δ, for each T_SLA."""
    saved = (wide[EXACTLY_ONCE] - wide[NO_RELAXATION]).unstack("t_sla_ms")
    loosest = saved.iloc[-1]
    return (loosest >= saved.max()) & (loosest > 0)


def stays_below_delta(
    case: PlanningCase, success: pd.DataFrame, parameters: NotebookParameters
) -> Finding:
    """D2-5: the largest failure rate of a point of fig. 7, divided by its δ, by formula (12)."""
    if success.empty:
        return not_run("No plan estimates anything.")
    largest, hardest = success[["failed", "hardest"]].div(success["delta"], axis=0).max()
    missed, parts = success[["missed", "parts"]].max()
    largest_z = success["z"].abs().max()
    by_chance = f"By chance, {missed} of {parts} drawn data sets miss 1 − δ somewhere."
    return Finding(
        float(largest),
        n=len(success),
        counted=f"points, {success['checkpoints'].sum()} checkpoints",
        text=f"largest failure rate of a plan: {largest:.3f} δ; hardest sensor at one checkpoint: "
        f"{hardest:.5f} δ",
        sensitivity=f"{_if_restored(case, parameters)} {by_chance}".strip(),
        control=bool(largest_z <= LARGEST_Z),
    )


def _if_restored(case: PlanningCase, parameters: NotebookParameters) -> str:
    """Return what happens to D2-5 if the restored checkpoint is meant; empty without estimates."""
    plan = case.query(parameters.epsilon, parameters.delta, parameters.t_sla).first_plan
    rows = restored_checkpoints(plan).nsmallest(1, "restored")
    if rows.empty:
        return ""
    row = rows.iloc[0]
    reverses = bool(row["restored"] < 1 - parameters.delta)
    return other_interpretation(
        reverses,
        "the restored checkpoint is meant",
        f"{'only ' if reverses else ''}{percent(row['restored'])} of the estimated sensors "
        f"({percent(row['restored_all'])} of all) are within ε there "
        f"(ε = {parameters.epsilon:g}, τ = {row['tau']:,.0f})",
    )


def adaptive_keeps_epsilon(
    counts: pd.DataFrame, adaptive: pd.DataFrame, parameters: NotebookParameters
) -> Finding:
    """D2-14: the largest failure probability of a result of adaptive after kills, over δ.

    It fails if adaptive needs more checkpoints than proposed at some point.
    """
    wide = _by_method(counts)
    saved = wide[PROPOSED] - wide[ADAPTIVE]
    more = int((saved < 0).sum())
    after_failure = _by_method(counts, "after_failure")
    failed = int((after_failure[ADAPTIVE] > after_failure[PROPOSED]).sum())
    best = wide.reset_index().iloc[int(saved.to_numpy().argmax())]
    kills = int(adaptive.groupby("stream")["kills"].first().sum())
    largest = float(adaptive["error_probability"].max()) / parameters.delta
    repeated = int((adaptive["recoveries"] > 1).sum())
    return Finding(
        largest,
        n=kills,
        counted=f"kills; {repeated} windows with several failed intervals",
        text=f"failure probability at most {largest:.3f} δ; at best {best[ADAPTIVE]:.0f} "
        f"checkpoints instead of {best[PROPOSED]:.0f} "
        f"(ε = {best['epsilon']:g}, T_SLA = {best['t_sla_ms']:g} ms)",
        fails=f"At {more} combinations it needs more checkpoints than proposed." if more else "",
        sensitivity="After a failure that spends ε, the rest is planned as a nearly full replay: "
        f"then it may need more than proposed ({failed} of {len(wide)} points, first interval "
        "failed).",
        control=bool(adaptive["z"].max() <= LARGEST_ERROR and repeated > 0),
    )
