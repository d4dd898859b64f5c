"""The claims F-1 … F-7, which are the project's own, judged by what a drill has `done`."""

from __future__ import annotations

import numpy as np
import pandas as pd

from aftlib.core.claims import DEVIATES, Claim, Finding, Limit, nothing
from aftlib.failure_drill.coordinators import COORDINATORS
from aftlib.failure_drill.drivers import METHODS
from aftlib.failure_drill.experiments import Drilled
from aftlib.failure_drill.stages import SHARED

DELIVERY = ("at most once", "at least once")
EXACT = ("exactly once", SHARED)
BY_D1 = ("D1 by model", "D1 by guard")
NEAR = 0.02
"""By so much a share read again may differ from the plan's."""
LITTLE = 0.05
"""The overhead that is claimed at most."""


def delivery(done: Drilled) -> Finding:
    """F-1: at most once loses and never doubles, at least once doubles and never loses."""
    table = done.table
    if missing := [name for name in DELIVERY if name not in table.index]:
        return _without(missing)
    most, least = (table.loc[name] for name in DELIVERY)
    good = most["lost"] > 0 == most["doubled"] and least["doubled"] > 0 == least["lost"]
    return Finding(
        f"{most['lost']} / {most['doubled']}; {least['lost']} / {least['doubled']}",
        conditions=bool(good),
        note=f"Lost / doubled of {most['due']} windows of all sensors: at most once; at least "
        f"once. {most['strikes']} strikes each.",
    )


def exactness(done: Drilled) -> Finding:
    """F-2: what is exact loses nothing, doubles nothing, and every value is the truth."""
    table, asked = done.table, {*EXACT, *COORDINATORS}
    exact = [name for name in table.index if name in asked or name.startswith("D4 ")]
    if missing := [name for name in EXACT if name not in exact]:
        return _without(missing)
    counts = table.loc[exact, ["lost", "doubled", "wrong", "estimated"]]
    bad, worst = counts.to_numpy(float), counts.sum(axis=1)
    return Finding(
        int(np.nansum(bad)),
        conditions=bool((bad == 0).all() and table.loc[exact, "strikes"].gt(0).all()),
        note=f"Windows lost, doubled, estimated or wrong, over {', '.join(exact)}; the most in "
        f"one: {int(worst.max())}.",
    )


def d1_reads_again(done: Drilled) -> Finding:
    """F-3: D1 reads the planned share again."""
    return _reads_again(done.table, ["D1 by model"])


def d2_reads_again(done: Drilled) -> Finding:
    """F-4: so does D2."""
    return _reads_again(done.table, [*METHODS])


def _reads_again(table: pd.DataFrame, names: list[str]) -> Finding:
    """Whether the share that is read again is the plan's, and less than all."""
    asked = table.loc[[name for name in names if name in table.index]]
    off = (asked["read"] - asked["planned"]).abs()
    if not len(asked) or off.isna().any():
        return _without(names)
    furthest = off.argmax()
    read, planned = (float(asked[name].iloc[furthest]) for name in ("read", "planned"))
    said = "; ".join(
        f"{n}: {row['read']:.3f}, planned {row['planned']:.3f}" for n, row in asked.iterrows()
    )
    return Finding(
        read,
        expected=f"{planned:.3f} ± {NEAR}",
        conditions=bool(off.max() <= NEAR and asked["read"].max() < 1),
        note="Samples read again over those that an exact recovery reads of the same kills. "
        f"{said}.",
    )


def promise(done: Drilled) -> Finding:
    """F-5: of the estimates a share of 1 − δ is within ε, and nothing else is lost or wrong."""
    table, delta = done.table, done.drill.requirement.delta
    asked = table.loc[[n for n in (*BY_D1, *METHODS) if n in table.index]]
    judged = asked[asked["estimated"] > 0]
    if not len(judged):
        return _without(["estimates"])
    row = judged.iloc[int(judged["within"].argmin())]
    broken = judged[judged["share_high"] < 1 - delta]
    bad = int(asked[["lost", "doubled", "wrong"]].sum().sum())
    over = (asked["wrong_promises"] > asked["bound"]).any()
    return Finding(
        row["within"],
        (row["share_low"], row["share_high"]),
        expected=f"≥ {1 - delta:g}",
        limit=Limit(low=1 - delta, by_interval=True),
        conditions=bool(broken.empty and not bad and not over),
        note=f"Lowest of {len(judged)} schemes, {row.name}; its upper end is below 1 − δ "
        f"in {len(broken)}. Windows lost, doubled, or wrong without being called estimated: {bad}."
        + " The guard's wrong promises are beyond their bound."
        * int(over),
    )


def d1_costs_little(done: Drilled) -> Finding:
    """F-6: what D1 costs while nothing fails."""
    return _overhead(done.table, [*BY_D1])


def d2_costs_little(done: Drilled) -> Finding:
    """F-7: what D2's checkpoints cost while nothing fails."""
    return _overhead(done.table, [*METHODS])


def _overhead(table: pd.DataFrame, names: list[str]) -> Finding:
    """The largest overhead of some schemes while nothing fails."""
    asked = table.loc[[name for name in names if name in table.index]]
    if not len(asked) or asked["overhead"].isna().any():
        return _without([f"the overhead of {', '.join(names)}"])
    row = asked.iloc[int(asked["overhead"].argmax())]
    interval = float(row["overhead_low"]), float(row["overhead_high"])
    said = "; ".join(f"{n}: {o:+.1%}" for n, o in asked["overhead"].items())
    took = float(asked["checkpoint_ms"].median())
    said += f"; a checkpoint takes {took:.2g} ms" if took > 0 else ""
    return Finding(
        row["overhead"],
        None if np.isnan(interval[0]) else interval,
        note=f"{said}. Micro-batches before the first strike against those without fault "
        "tolerance; of D2, its checkpoints against the rest of an interval.",
    )


def _without(missing: list[str]) -> Finding:
    return nothing(f"Without {', '.join(missing)}.")


SHARE_FIGURE = "Samples read again, of what an exact recovery reads"
SCHEMES_FIGURE = "Which scheme, for whom?"

CLAIMS = [
    Claim(
        "F-1",
        "At most once loses windows and doubles none; at least once doubles some, loses none.",
        delivery, expected="some / 0; 0 / some", figure="What came of the windows",
    ),
    Claim(
        "F-2", "Exactly once, shared state and every way to stand by lose and double nothing.",
        exactness, expected=0, limit=Limit(high=0), unit="windows",
        figure="What came of the windows",
    ),
    Claim(
        "F-3", "D1 reads again the share that its plan promises of what exactly once reads again.",
        d1_reads_again, expected=f"the plan's ± {NEAR}", unit="of an exact recovery's",
        figure=SHARE_FIGURE,
    ),
    Claim(
        "F-4", "D2 reads again the share that its plan promises of what an exact replay reads.",
        d2_reads_again, expected=f"the plan's ± {NEAR}", unit="of an exact recovery's",
        figure=SHARE_FIGURE,
    ),
    Claim(
        "F-5", "Every promise (ε, δ) of D1 and D2 is kept, and nothing else is lost or wrong.",
        promise, expected="≥ 1 − δ", unit="of the promises", figure=SCHEMES_FIGURE,
        formula=r"\text{kept} / \text{promised} \ge 1 - \delta",
    ),
    Claim(
        "F-6", "While nothing fails, D1 costs at most 5 % of a micro-batch's time.",
        d1_costs_little, expected=f"≤ {LITTLE}", limit=Limit(high=LITTLE), unit="of the time",
        timed=True, figure=SCHEMES_FIGURE,
    ),
    Claim(
        "F-7", "While nothing fails, D2's checkpoints cost at most 5 % of the work's time.",
        d2_costs_little, expected=f"≤ {LITTLE}", limit=Limit(high=LITTLE), unit="of the time",
        timed=True, figure=SCHEMES_FIGURE, recorded=DEVIATES,
    ),
]  # fmt: skip
