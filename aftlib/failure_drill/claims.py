"""The claims F-1 … F-7, which are the project's own, judged by what a drill has `done`.

`long` is what `long_windows` measured.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from aftlib.core.claims import DEVIATES, UNDECIDED, Claim, Finding, Threshold, nothing
from aftlib.failure_drill.experiments import DRIVER, SUPERVISOR, DrillResult
from aftlib.failure_drill.metrics import RESAMPLES, WARM
from aftlib.failure_drill.schemes_process import D2_WINDOW, METHODS, SHARED

DELIVERY = ["at most once", "at least once"]
EXACT = ["exactly once", SHARED]
BY_D1 = ["D1 by model", "D1 by guard"]
NEAR = 0.02
"""Largest difference of a share read again from the plan's."""
LITTLE = 0.05
"""Largest overhead of the claims."""


def rows_of(done: DrillResult, names: list[str]) -> pd.DataFrame:
    """The rows of those schemes that were run."""
    return done.table.loc[[name for name in names if name in done.table.index]]


def without(names: list[str]) -> Finding:
    """Nothing to judge."""
    return nothing(f"Without {', '.join(names)}.")


def delivery(done: DrillResult) -> Finding:
    """F-1: at most once loses and never doubles, at least once doubles and never loses."""
    rows = rows_of(done, DELIVERY)
    if len(rows) < len(DELIVERY):
        return without([name for name in DELIVERY if name not in rows.index])
    most, least = (row for _, row in rows.iterrows())
    good = most["lost"] > 0 == most["doubled"] and least["doubled"] > 0 == least["lost"]
    return Finding(
        f"{most['lost']:g} / {most['doubled']:g}; {least['lost']:g} / {least['doubled']:g}",
        conditions=bool(good),
        note=f"Lost / doubled of {most['due']:g} windows of all sensors: at most once; at least "
        f"once. {most['faults']:g} faults each.",
    )


def exactness(done: DrillResult) -> Finding:
    """F-2: the exact schemes lose nothing, double nothing, and every value is the truth."""
    table = done.table
    if missing := [name for name in EXACT if name not in table.index]:
        return without(missing)
    others = [n for n in table.index if n in (DRIVER, SUPERVISOR) or n.startswith("D4 ")]
    rows = rows_of(done, [*EXACT, *others])
    harms = rows[["lost", "doubled", "wrong", "estimated"]].astype(float)
    return Finding(
        int(np.nansum(harms)),
        conditions=bool((harms == 0).all(axis=None) and rows["faults"].gt(0).all()),
        note=f"Windows lost, doubled, estimated or wrong, over {', '.join(rows.index)}; the most "
        f"in one: {harms.sum(axis=1).max():g}.",
    )


def d1_reads_again(done: DrillResult) -> Finding:
    """F-3: D1 reads the planned share again."""
    return reads_again(done, ["D1 by model"])


def d2_reads_again(done: DrillResult) -> Finding:
    """F-4: so does D2."""
    return reads_again(done, [*METHODS])


def reads_again(done: DrillResult, names: list[str]) -> Finding:
    """Whether the share that is read again is the plan's, and less than all."""
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
            "ours: the plan's share, within 2 %, because faults hit inside an interval",
            low=planned - NEAR,
            high=planned + NEAR,
        ),
        conditions=bool(rows["read"].max() < 1),
        control=planned > 0,  # a plan that reads nothing again is kept by doing nothing
        n=int(rows["faults"].min()),
        counted="faults",
        note="A regression test: plan and stream are both this project's. The value is the samples "
        f"read again over those that an exact recovery reads of the same kills. {shares}.",
    )


def guarantee(done: DrillResult) -> Finding:
    """F-5: a share of 1 − δ of the estimates is within ε, and nothing else is lost or wrong."""
    rows, delta = rows_of(done, [*BY_D1, *METHODS]), done.drill.requirement.delta
    judged = rows[rows["estimated"] > 0].astype({"within": float, "share_low": float})
    if not len(judged):
        return without(["estimates"])
    lowest = judged.iloc[int(judged["share_low"].to_numpy().argmin())]
    low, high = lowest["share_low"], float(judged["share_high"].min())
    broken = int((judged["share_high"] < 1 - delta).sum())
    bad = int(rows[["lost", "doubled", "wrong"]].sum().sum())
    over = (rows["wrong_promises"] > rows["bound"]).any()
    windows = int(lowest["estimated_windows"])
    needed = int(np.ceil(windows * ((lowest["share_high"] - low) / 2 / delta) ** 2))
    return Finding(
        float(judged["within"].min()),
        (low, max(low, high)),
        expected=f"≥ {1 - delta:g}",
        threshold=Threshold(
            "the guarantee (ε, δ); margin ours: 1 − δ must be told from 1 − 2δ",
            low=1 - delta,
            margin=delta,
        ),
        conditions=not (broken or bad or over),
        n=windows,
        counted="windows with estimates",
        note=f"Lowest share and interval of {len(judged)} schemes; {lowest.name} has the lowest "
        f"end. Some {needed} windows with estimates would tell {1 - delta:g} from "
        f"{1 - 2 * delta:g}. The upper end is below 1 − δ in {broken} schemes. Windows lost, "
        f"doubled, or wrong without being called estimated: {bad}."
        + " The guard's wrong guarantees exceed their bound."
        * int(over),
    )


def d1_costs_little(done: DrillResult) -> Finding:
    """F-6: overhead of D1 while nothing fails."""
    return largest_overhead(done, BY_D1)


def d2_costs_little(done: DrillResult, long: pd.DataFrame) -> Finding:
    """F-7: overhead of D2's checkpoints while nothing fails, at D2's window."""
    rng, found = np.random.default_rng(1), {}
    for name, rows in long.groupby("scheme"):
        times = rows[["checkpoint_s", "work_s"]].to_numpy()
        checkpoints, work = times[rng.integers(0, len(times), (RESAMPLES, len(times)))].sum(1).T
        checkpoint, own = times.sum(0)
        found[name] = checkpoint / own, *np.quantile(checkpoints / work, [0.025, 0.975])
    values, lows, highs = zip(*found.values(), strict=True)
    shown = "; ".join(f"{name}: {value:+.1%}" for name, (value, _, _) in found.items())
    short = rows_of(done, [*METHODS])["overhead"].dropna()
    drilled = "; ".join(f"{name}: {value:+.1%}" for name, value in short.items()) or "not run"
    took = 1e3 * float(long["checkpoint_s"].median())
    return Finding(
        max(values),
        (max(lows), max(highs)),
        n=len(long),
        counted="checkpoints",
        note=f"Time of checkpoints over that of the work, at D2's window of {D2_WINDOW:,} steps: "
        f"{shown}; a checkpoint takes {took:.2g} ms, because SQLite flushes it to the disk. In the "
        f"drill, whose windows have {done.drill.windows.width} steps, it is {drilled}.",
    )


def largest_overhead(done: DrillResult, names: list[str]) -> Finding:
    """The largest overhead of some schemes while nothing fails.

    All are within a limit when each interval is, so the interval has the largest of their ends.
    """
    rows = rows_of(done, names)
    if not len(rows) or rows["overhead"].isna().any():
        return without([f"the overhead of {', '.join(names)}"])
    low, high = (float(rows[f"overhead_{end}"].astype(float).max()) for end in ("low", "high"))
    note = "; ".join(f"{n}: {o:+.1%}" for n, o in rows["overhead"].items())
    calm = done.drill.event_batches[0][0] - WARM
    return Finding(
        float(rows["overhead"].astype(float).max()),
        None if np.isnan(low) else (low, high),
        n=calm,
        counted="micro-batches of each scheme",
        note=f"Micro-batches before the first fault against those without fault tolerance. {note}.",
    )


SHARE_FIGURE = "Samples read again, of what an exact recovery reads"
SCHEMES_FIGURE = "Which scheme, for whom?"

CLAIMS = [
    Claim(
        "F-1",
        "At most once loses windows and doubles none; at least once doubles some, loses none.",
        delivery, expected="some / 0; 0 / some", figure="What came of the windows", project=True,
    ),
    Claim(
        "F-2",
        "Exactly once, shared state and every standby, some simulated, lose and double nothing.",
        exactness, expected=0, threshold=Threshold("exactness: none", high=0), unit="windows",
        figure="What came of the windows", project=True,
    ),
    Claim(
        "F-3",
        "Regression test: D1 reads again the planned share of what exactly once reads again.",
        d1_reads_again, expected=f"the plan's ± {NEAR}", unit="of an exact recovery's",
        figure=SHARE_FIGURE, project=True,
    ),
    Claim(
        "F-4", "Regression test: D2 reads again the planned share of what an exact replay reads.",
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
        "While nothing fails, D2's checkpoints cost at most 5 % of the work's time, at its window "
        "of 10,000 steps.",
        d2_costs_little, expected=f"≤ {LITTLE}",
        threshold=Threshold("ours: a cost that an operator hardly notices", high=LITTLE),
        unit="of the time", timed=True, figure=SCHEMES_FIGURE, recorded=DEVIATES, project=True,
    ),
]  # fmt: skip
