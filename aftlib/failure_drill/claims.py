"""The claims F-1 … F-7, which are the project's own, judged by the results of a drill.

`long` is the result of `long_windows`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from aftlib.checkpoint_planning.recovery_time import DOCUMENT_RECOVERY_TIME
from aftlib.core.intervals import CONFIDENCE, share_interval
from aftlib.failure_drill.experiments import DRIVER, SUPERVISOR, DrillResult
from aftlib.failure_drill.metrics import overhead
from aftlib.failure_drill.schemes_process import D2_WINDOW, METHODS, NO_CHECKPOINTS, SHARED
from aftlib.workbench.old_claims import (
    DEVIATES,
    MEASURED,
    UNDECIDED,
    Claim,
    Finding,
    Threshold,
    nothing,
)

DELIVERY = ["at most once", "at least once"]
EXACT = ["exactly once", SHARED]
BY_D1 = ["D1 by model", "D1 by guard"]
NEAR = 0.02
"""Largest difference between the measured and the planned share of samples read again."""
LITTLE = 0.05
"""Largest overhead that F-6 and F-7 allow."""
MOST_TURNS = 10_000
"""Number of turns up to which `_turns_needed` looks."""


def rows_of(done: DrillResult, names: list[str]) -> pd.DataFrame:
    """Rows of the schemes in `names` that were run."""
    return done.table.loc[[name for name in names if name in done.table.index]]


def without(names: list[str]) -> Finding:
    """Finding without a value, because the results in `names` are missing."""
    return nothing(f"Missing in this run: {', '.join(names)}.")


def delivery(done: DrillResult) -> Finding:
    """F-1: "at most once" only loses windows, "at least once" only doubles them."""
    rows = rows_of(done, DELIVERY)
    if len(rows) < len(DELIVERY):
        return without([name for name in DELIVERY if name not in rows.index])
    most, least = (row for _, row in rows.iterrows())
    good = most["lost"] > 0 == most["doubled"] and least["doubled"] > 0 == least["lost"]
    return Finding(
        f"{most['lost']:g} / {most['doubled']:g}; {least['lost']:g} / {least['doubled']:g}",
        conditions=bool(good),
        n=int(min(most["faults"], least["faults"])),
        counted="faults of each",
        note="The value is windows lost / doubled by “at most once”; then by “at least once”. "
        f"Windows due, over all sensors: {most['due']:g}.",
    )


def exactness(done: DrillResult) -> Finding:
    """F-2: the exact schemes lose nothing and double nothing, and every value is exact."""
    table = done.table
    if missing := [name for name in EXACT if name not in table.index]:
        return without(missing)
    nodes = [n for n in table.index if n.startswith("D4 ") and table.loc[n, "basis"] == MEASURED]
    rows = rows_of(done, [*EXACT, DRIVER, SUPERVISOR, *nodes])
    harms = rows[["lost", "doubled", "wrong", "estimated"]].astype(float)
    faults = rows["faults"].astype(int)
    counts = "; ".join(f"{name}: {count}" for name, count in faults.items())
    unharmed = bool((harms == 0).all(axis=None) and faults.gt(0).all())
    rate = share_interval(0, int(faults.sum()))[1] if unharmed else 1.0
    return Finding(
        int(np.nansum(harms)),
        conditions=unharmed,
        n=int(faults.sum()),
        counted="faults",
        note="The value counts windows lost, doubled, estimated or wrong. Faults by scheme: "
        f"{counts}."
        + f" This many faults exclude only harm at a rate above {rate:.0%} (exact 95 % interval)."
        * unharmed,
    )


def d1_reads_again(done: DrillResult) -> Finding:
    """F-3: D1 reads the planned share of samples again."""
    return reads_again(done, ["D1 by model"])


def d2_reads_again(done: DrillResult) -> Finding:
    """F-4: D2 reads the planned share of samples again."""
    return reads_again(done, [*METHODS])


def reads_again(done: DrillResult, names: list[str]) -> Finding:
    """Compare the share of samples read again with the planned one, and with 1."""
    rows = rows_of(done, names)
    off = (rows["read"] - rows["planned"]).abs().astype(float)
    if not len(rows) or off.isna().any():
        return without(names)
    furthest = rows.iloc[int(off.to_numpy().argmax())]
    shares = "; ".join(
        f"{n}: {row['read']:.3f}, planned {row['planned']:.3f}" for n, row in rows.iterrows()
    )
    planned = float(furthest["planned"])
    return Finding(
        float(furthest["read"]),
        expected=f"{planned:.3f} ± {NEAR}",
        threshold=Threshold(
            f"ours: the planned share ± {NEAR}, where 1 is what an exact recovery reads; the ± is "
            "for faults that hit inside an interval",
            low=planned - NEAR,
            high=planned + NEAR,
        ),
        conditions=bool(rows["read"].max() < 1),
        control=planned > 0,  # a plan that reads nothing again proves nothing
        n=int(rows["faults"].min()),
        counted="faults",
        note="The value is the samples read again, divided by those that an exact recovery reads "
        f"after the same kills. {shares}.",
    )


def guarantee(done: DrillResult) -> Finding:
    """F-5: a share ≥ 1 − δ of the estimates is within ε, and nothing else is lost or wrong."""
    rows, delta = rows_of(done, [*BY_D1, *METHODS]), done.drill.requirement.delta
    schemes = rows[rows["estimated"] > 0].astype({"within": float, "share_low": float})
    if not len(schemes):
        return without(["estimates"])
    bad = int(rows[["lost", "doubled", "wrong"]].sum().sum())
    over = bool((rows["wrong_promises"] > rows["bound"]).any())
    findings = {
        name: Finding(
            row["within"],
            (row["share_low"], row["share_high"]),
            conditions=not (bad or over),
            expected=f"≥ {1 - delta:g}",
            threshold=Threshold(
                "the guarantee (ε, δ); our margin is δ: the interval must lie above 1 − 2δ",
                low=1 - delta,
                margin=delta,
            ),
            n=int(row["estimated_windows"]),
            counted="windows with estimates",
        )
        for name, row in schemes.sort_values("share_low").iterrows()
    }
    (lowest, least), *others = findings.items()
    low, high = least.interval or (0.0, 1.0)
    needed = int(np.ceil((least.n or 0) * ((high - low) / 2 / delta) ** 2))
    return replace(
        least,
        parts={str(name): each for name, each in others},
        note=f"Of {len(findings)} schemes {lowest} has the interval with the lowest lower end. It "
        f"takes some {needed} windows with estimates to distinguish {1 - delta:g} from "
        f"{1 - 2 * delta:g}. Windows lost, doubled, or wrong without being marked as estimated: "
        f"{bad}." + " The guard's wrong guarantees exceed their bound." * over,
    )


def d1_costs_little(done: DrillResult) -> Finding:
    """F-6: overhead of D1 while nothing fails."""
    rows = rows_of(done, BY_D1)[["overhead", "overhead_low", "overhead_high"]].astype(float)
    if not len(rows) or rows.isna().any(axis=None):
        return without([f"the overhead of {', '.join(BY_D1)}"])
    findings = {
        str(name): Finding(
            row["overhead"],
            (row["overhead_low"], row["overhead_high"]),
            control=bool(row["overhead_high"] >= 0),  # no scheme speeds up a micro-batch
            n=done.turns,
            counted="pairs of runs",
        )
        for name, row in rows.sort_values("overhead_high", ascending=False).iterrows()
    }
    (first, most), *others = findings.items()
    return replace(
        most,
        parts=dict(others),
        note=f"The value compares the median time of a micro-batch with {first} and without fault "
        f"tolerance; each of {done.turns} turns runs both.{_turns_needed(most)}",
    )


def d2_costs_little(long: pd.DataFrame) -> Finding:
    """F-7: overhead of D2's checkpoints in a window while nothing fails."""
    wide = long.pivot_table(index="repeat", columns="plan", values="seconds")
    base = wide[NO_CHECKPOINTS].to_numpy()
    proposed, *others = METHODS
    cost = overhead(wide[proposed].to_numpy(), base)
    counts = long.groupby("plan")["checkpoints"].first()
    own = "; ".join(
        f"{name} {overhead(wide[name].to_numpy(), base)['overhead']:+.1%} (checkpoints: "
        f"{counts[name]})"
        for name in others
    )
    added = 1e3 * float((wide[proposed] - base).mean())
    planned = DOCUMENT_RECOVERY_TIME.per_tuple_ms * 100 * D2_WINDOW
    most = Finding(
        cost["overhead"],
        (cost["overhead_low"], cost["overhead_high"]),
        n=len(wide),
        counted="pairs of runs",
    )
    return replace(
        most,
        note=f"The value is the time that {counts[proposed]} checkpoints add to a window, as a "
        f"share of its time without checkpoints, {1e3 * base.mean():.0f} ms. A window is 100 "
        f"sensors × {D2_WINDOW:,} steps in one process. A checkpoint adds "
        f"{added / max(1, counts[proposed]):.2g} ms. By D2's own time per tuple a window takes "
        f"{planned:,.0f} ms to read. The checkpoints would be {added / planned:.1%} of it. Our "
        f"own variant, not judged: {own}.{_turns_needed(most)}",
    )


def _turns_needed(finding: Finding) -> str:
    """Text: the number of turns that would decide an undecided overhead; else empty."""
    low, high = finding.interval or (0.0, 0.0)
    if not low <= LITTLE < high:
        return ""
    away, n = max(abs(LITTLE - float(finding.value or 0)), LITTLE / 10), finding.n or 2
    turns, level = np.arange(n, MOST_TURNS + 1), (1 + CONFIDENCE) / 2
    # an interval of few turns is wide by t's quantile, too
    wider = stdtrit(turns - 1, level) / stdtrit(n - 1, level)
    halves = (high - low) / 2 * np.sqrt(n / turns) * wider
    enough = turns[halves <= away]
    return f" Some {enough[0]:,} turns would decide it." if len(enough) else ""


SHARE_FIGURE = "Samples read again, as a share of an exact recovery's"
SCHEMES_FIGURE = "Which scheme, for whom?"

CLAIMS = [
    Claim(
        "F-1",
        "“At most once” loses windows and doubles none; “at least once” doubles some and loses "
        "none.",
        delivery, figure="Outcome of the windows", project=True,
        expected="lost / doubled: some / 0 by “at most once”, 0 / some by “at least once”",
    ),
    Claim(
        "F-2",
        "“Exactly once”, “shared state” and D4's real nodes lose and double nothing. Neither does "
        "a run whose driver or supervisor is killed and replaced.",
        exactness, expected=0, threshold=Threshold("exactness: none", high=0), unit="windows",
        figure="Outcome of the windows", project=True,
    ),
    Claim(
        "F-3",
        "Regression test: D1 reads the planned share of the samples that “exactly once” recovery "
        "reads again.",
        d1_reads_again, expected=f"the plan's ± {NEAR}", unit="of an exact recovery's",
        figure=SHARE_FIGURE, project=True,
    ),
    Claim(
        "F-4", "Regression test: D2 reads the planned share of the samples of an exact replay.",
        d2_reads_again, expected=f"the plan's ± {NEAR}", unit="of an exact recovery's",
        figure=SHARE_FIGURE, project=True,
    ),
    Claim(
        "F-5", "Every guarantee (ε, δ) of D1 and D2 holds, and nothing else is lost or wrong.",
        guarantee, expected="≥ 1 − δ", unit="of the guarantees", figure=SCHEMES_FIGURE,
        formula=r"\text{satisfied} / \text{guaranteed} \ge 1 - \delta", project=True,
        recorded=UNDECIDED,
    ),
    Claim(
        "F-6", "While nothing fails, D1 costs at most 5 % of a micro-batch's time.",
        d1_costs_little, expected=f"≤ {LITTLE}",
        threshold=Threshold("ours: a cost that an operator hardly notices", high=LITTLE),
        unit="of the time", timed=True, figure=SCHEMES_FIGURE, project=True, recorded=UNDECIDED,
    ),
    Claim(
        "F-7",
        "While nothing fails, D2's checkpoints lengthen a window of 100 sensors × 10,000 steps by "
        "at most 5 %.",
        d2_costs_little, expected=f"≤ {LITTLE}",
        threshold=Threshold("ours: a cost that an operator hardly notices", high=LITTLE),
        unit="of the time", timed=True, recorded=DEVIATES, project=True,
    ),
]  # fmt: skip
