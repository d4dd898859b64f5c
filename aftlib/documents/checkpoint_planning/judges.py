"""The judges of D2's claims about plans; `timed_judges` has those about measured times.

Each makes one finding from the variables of notebook 02: `counts` by `cases.checkpoint_counts`,
`success` by `success_rates.sampled_failures`, `adaptive` by `drivers.kill_at_random`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from aftlib.documents.checkpoint_planning.cases import AXES, SPARED, PlanningCase
from aftlib.documents.checkpoint_planning.experiments import NotebookParameters
from aftlib.documents.checkpoint_planning.plan import (
    ADAPTIVE,
    EXACTLY_ONCE,
    NO_RELAXATION,
    PROPOSED,
)
from aftlib.notebook.claims import Finding, not_run
from aftlib.notebook.texts import percent

LARGEST_Z = 4.5
"""A sampled rate further from the exact one refutes the formula; of 105 points, some reach 3."""
LARGEST_ERROR = 5.5
"""An error of more standard deviations refutes the operator's variance; of 10⁵, some reach 4.5."""
NEARLY_EVERYWHERE = 0.9
"""Share of the points at which D2-3 holds."""


def _by_method(counts: pd.DataFrame) -> pd.DataFrame:
    """Checkpoints: one row per point of the grid, one column per method."""
    return counts.pivot_table(index=AXES, columns="method", values="checkpoints")


def _reversed_if_spared(is_reversed: bool, text: str) -> str:
    """Return what happens if exactly-once, which estimates nothing, is spared T_est."""
    return f"{'Reversed' if is_reversed else 'The same'} if exactly-once is spared T_est: {text}."


def follows_from_t_sla(case: PlanningCase, counts: pd.DataFrame) -> Finding:
    """D2-1: the largest difference from ⌈w / l⌉ − 1, l = ⌊(T_SLA − fixed) / (n · per tuple)⌋."""
    exact = counts[counts["method"] == EXACTLY_ONCE]
    steps = exact["t_sla_ms"].map(case.recovery_time.max_tuples) // case.model.size
    by_hand = np.ceil(case.window / steps) - 1
    off = (exact["checkpoints"] - by_hand).abs()
    return Finding(
        int(off.max()),
        n=len(exact),
        counted="combinations of ε, δ and T_SLA, ours",
        text=f"at most {off.max():g} checkpoints off; {(off == 0).sum()} of {len(exact)} counts "
        "follow from T_SLA alone",
    )


def are_ordered(counts: pd.DataFrame) -> Finding:
    """D2-2: points at which the methods are out of order; each must also save somewhere."""
    wide = _by_method(counts)
    proposed = wide[PROPOSED]
    unrelaxed = wide[NO_RELAXATION]
    exact = wide[EXACTLY_ONCE]
    disorder = int(((proposed > unrelaxed) | (unrelaxed > exact)).sum())
    spared = int(((proposed > unrelaxed) | (unrelaxed > wide[SPARED])).sum())
    saves = (unrelaxed < exact).any() and (proposed < unrelaxed).any()
    return Finding(
        disorder,
        n=len(wide),
        counted="combinations of ε, δ and T_SLA, ours",
        text=f"{disorder} of {len(wide)} combinations violate "
        "proposed ≤ no-relaxation ≤ exactly-once",
        fails="" if saves else "One of the methods never saves a checkpoint.",
        sensitivity=_reversed_if_spared(
            (spared > 0) != (disorder > 0), f"{spared} of {len(wide)} violate it"
        ),
    )


def saves_where_estimating_does_not(counts: pd.DataFrame) -> Finding:
    """D2-3: share of the points where no-relaxation saves nothing but proposed does."""
    wide = _by_method(counts)
    useless = wide[(wide[NO_RELAXATION] >= wide[EXACTLY_ONCE]) & (wide[EXACTLY_ONCE] > 0)]
    if useless.empty:
        return not_run("No-relaxation saves checkpoints at every point.")
    saves = useless[PROPOSED] < useless[EXACTLY_ONCE]
    spared = wide[(wide[NO_RELAXATION] >= wide[SPARED]) & (wide[SPARED] > 0)]
    sensitivity = ""
    if len(spared):
        share = (spared[PROPOSED] < spared[SPARED]).mean()
        turns = (share < NEARLY_EVERYWHERE) != (saves.mean() < NEARLY_EVERYWHERE)
        sensitivity = _reversed_if_spared(turns, f"{percent(share)} of {len(spared)} points")
    return Finding(
        saves.mean(),
        n=len(useless),
        counted="points where no-relaxation saves nothing",
        text=f"{saves.sum()} of {len(useless)} points where no-relaxation saves nothing",
        sensitivity=sensitivity,
    )


def saves_most_at_short_t_sla(counts: pd.DataFrame) -> Finding:
    """D2-4: share of the pairs (ε, δ) at which the shortest T_SLA saves the most checkpoints."""
    wide = _by_method(counts)
    saved = (wide[EXACTLY_ONCE] - wide[PROPOSED]).unstack("t_sla_ms")
    spared = _first_is_largest((wide[SPARED] - wide[PROPOSED]).unstack("t_sla_ms"))
    most = _first_is_largest(saved)
    shares = (saved / wide[EXACTLY_ONCE].unstack("t_sla_ms")).fillna(0)
    as_share = int((shares.iloc[:, 0] >= shares.max(axis=1)).sum())
    means = ", ".join(f"{mean:.0f}" for mean in saved.mean())
    reverses = _reversed_if_spared(
        spared.all() != most.all(), f"{spared.sum()} of {len(saved)} combinations"
    )
    return Finding(
        float(most.mean()),
        n=len(saved),
        counted="combinations of ε and δ, ours",
        text=f"{most.sum()} of {len(saved)} combinations; "
        f"saved on average, by rising T_SLA: {means} checkpoints",
        sensitivity=f"{reverses} As a share of exactly-once's checkpoints the saving is largest "
        f"there at {as_share}.",
    )


def _first_is_largest(saved: pd.DataFrame) -> pd.Series:
    first = saved.iloc[:, 0]
    return (first >= saved.max(axis=1)) & (first > saved.iloc[:, -1]) & (first > 0)


def saves_most_where_loose(counts: pd.DataFrame) -> Finding:
    """D2-13: share of the T_SLA at which no-relaxation saves most at the largest ε and δ."""
    wide = _by_method(counts)
    saved = (wide[EXACTLY_ONCE] - wide[NO_RELAXATION]).unstack("t_sla_ms")
    loosest = saved.iloc[-1]
    most = (loosest >= saved.max()) & (loosest > 0)
    return Finding(
        most.mean(),
        n=len(most),
        counted="values of T_SLA, ours",
        text=f"{most.sum()} of {len(most)} values of T_SLA; other ε and δ may save as many",
    )


def stays_below_delta(success: pd.DataFrame, parameters: NotebookParameters) -> Finding:
    """D2-5: the largest failure rate of a point of fig. 7, divided by its δ, by formula (12)."""
    if success.empty:
        return not_run("No plan estimates anything.")
    largest, hardest = success[["failed", "hardest"]].div(success["delta"], axis=0).max()
    missed, parts = success[["missed", "parts"]].max()
    largest_z = success["z"].abs().max()
    point = [parameters.epsilon, parameters.delta, parameters.t_sla]
    here = success[(success[AXES] == point).all(axis=1)]
    row = (here if len(here) else success.nsmallest(1, "restored")).iloc[0]
    met = row["restored"] >= 1 - row["delta"]
    reverses = "The same" if met else "Reversed"
    return Finding(
        float(largest),
        n=len(success),
        counted=f"points, {success['checkpoints'].sum()} checkpoints",
        text=f"largest failure rate of a plan: {largest:.3f} δ; hardest sensor at one checkpoint: "
        f"{hardest:.5f} δ",
        sensitivity=f"{reverses} if the restored checkpoint is meant: "
        f"{'' if met else 'only '}{percent(row['restored'])} of the estimated sensors "
        f"({percent(row['restored_all'])} of all) are within ε there (ε = {row['epsilon']:g}, τ = "
        f"{row['tau']:,.0f}). By chance, {missed} of {parts} drawn data sets miss 1 − δ "
        "somewhere.",
        control=bool(largest_z <= LARGEST_Z),
    )


def adaptive_keeps_epsilon(
    counts: pd.DataFrame, adaptive: pd.DataFrame, parameters: NotebookParameters
) -> Finding:
    """D2-14: the largest failure probability of a result of adaptive after kills, over δ."""
    wide = _by_method(counts)
    saved = wide[PROPOSED] - wide[ADAPTIVE]
    more = int((saved < 0).sum())
    best = wide.reset_index().iloc[int(saved.to_numpy().argmax())]
    kills = int(adaptive.groupby("stream")["kills"].first().sum())
    largest = float(adaptive["failed"].max()) / parameters.delta
    repeated = int((adaptive["recovered"] > 1).sum())
    return Finding(
        largest,
        n=kills,
        counted=f"kills; {repeated} windows with several failed intervals",
        text=f"failure probability at most {largest:.3f} δ; at best {best[ADAPTIVE]:.0f} "
        f"checkpoints instead of {best[PROPOSED]:.0f} "
        f"(ε = {best['epsilon']:g}, T_SLA = {best['t_sla_ms']:g} ms)",
        fails=f"At {more} combinations it needs more checkpoints than proposed." if more else "",
        sensitivity="The rest of a window must be planned again after each failure, because the "
        "first may spend all of ε.",
        control=bool(adaptive["z"].max() <= LARGEST_ERROR and repeated > 0),
    )
