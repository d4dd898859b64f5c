"""What the drill says about the claims F-1 … F-7, which are the project's own."""

from __future__ import annotations

import numpy as np
import pandas as pd

from aftlib.failure_drill.coordinators import COORDINATORS
from aftlib.failure_drill.drivers import METHODS
from aftlib.failure_drill.experiments import Drilled
from aftlib.failure_drill.stages import SHARED
from aftlib.reports.claims import Settled, settle

DELIVERY = ("at most once", "at least once")
EXACT = ("exactly once", SHARED)
BY_D1 = ("D1 by model", "D1 by guard")
NEAR = 0.02
"""By so much a share read again may differ from the plan's."""
LITTLE = 0.05
"""The overhead that is claimed at most."""


def verdicts(drilled: Drilled) -> list[Settled]:
    """Settle F-1 … F-7 from a drill's table; what lacks its schemes is not run."""
    table = drilled.table
    return [
        delivery(table),
        exactness(table),
        read_again(table, "F-3", ["D1 by model"]),
        read_again(table, "F-4", [*METHODS]),
        promise(table, drilled.drill.requirement.delta),
        little_overhead(table, "F-6", [*BY_D1]),
        little_overhead(table, "F-7", [*METHODS]),
    ]


def delivery(table: pd.DataFrame) -> Settled:
    """F-1: at most once loses and never doubles, at least once doubles and never loses."""
    if missing := [name for name in DELIVERY if name not in table.index]:
        return _not_run("F-1", missing)
    most, least = (table.loc[name] for name in DELIVERY)
    good = most["lost"] > 0 == most["doubled"] and least["doubled"] > 0 == least["lost"]
    return settle(
        "F-1",
        expected="some / 0; 0 / some",
        measured=f"{most['lost']} / {most['doubled']}; {least['lost']} / {least['doubled']}",
        holds=bool(good),
        note=f"Lost / doubled of {most['due']} windows of all sensors: at most once; at least "
        f"once. {most['strikes']} strikes each.",
    )


def exactness(table: pd.DataFrame) -> Settled:
    """F-2: what is exact loses nothing, doubles nothing, and every value is the truth."""
    asked = {*EXACT, *COORDINATORS}
    exact = [name for name in table.index if name in asked or name.startswith("D4 ")]
    if missing := [name for name in EXACT if name not in exact]:
        return _not_run("F-2", missing)
    counts = table.loc[exact, ["lost", "doubled", "wrong", "estimated"]]
    bad, worst = counts.to_numpy(float), counts.sum(axis=1)
    return settle(
        "F-2",
        expected=0,
        measured=int(np.nansum(bad)),
        holds=bool((bad == 0).all() and table.loc[exact, "strikes"].gt(0).all()),
        note=f"Windows lost, doubled, estimated or wrong, over {', '.join(exact)}; the most in "
        f"one: {int(worst.max())}.",
    )


def read_again(table: pd.DataFrame, claim: str, names: list[str]) -> Settled:
    """F-3, F-4: the share that is read again is the plan's, and less than all."""
    asked = table.loc[[name for name in names if name in table.index]]
    off = (asked["read"] - asked["planned"]).abs()
    if not len(asked) or off.isna().any():
        return _not_run(claim, names)
    furthest = off.argmax()
    read, planned = (float(asked[name].iloc[furthest]) for name in ("read", "planned"))
    said = "; ".join(
        f"{n}: {row['read']:.3f}, planned {row['planned']:.3f}" for n, row in asked.iterrows()
    )
    return settle(
        claim,
        expected=f"{planned:.3f} ± {NEAR}",
        measured=read,
        holds=bool(off.max() <= NEAR and asked["read"].max() < 1),
        note="Samples read again over those that an exact recovery reads of the same kills. "
        f"{said}.",
    )


def promise(table: pd.DataFrame, delta: float) -> Settled:
    """F-5: of the estimates a share of 1 − δ is within ε, and nothing else is lost or wrong."""
    asked = table.loc[[n for n in (*BY_D1, *METHODS) if n in table.index]]
    judged = asked[asked["estimated"] > 0]
    if not len(judged):
        return _not_run("F-5", ["estimates"])
    row = judged.iloc[int(judged["within"].argmin())]
    broken = judged[judged["share_high"] < 1 - delta]
    bad = int(asked[["lost", "doubled", "wrong"]].sum().sum())
    over = (asked["wrong_promises"] > asked["bound"]).any()
    return settle(
        "F-5",
        expected=f"≥ {1 - delta:g}",
        measured=float(row["within"]),
        interval=(float(row["share_low"]), float(row["share_high"])),
        holds=bool(broken.empty and not bad and not over),
        note=f"Lowest of {len(judged)} schemes, {row.name}; its upper end is below 1 − δ "
        f"in {len(broken)}. Windows lost, doubled, or wrong without being called estimated: {bad}."
        + " The guard's wrong promises are beyond their bound."
        * int(over),
    )


def little_overhead(table: pd.DataFrame, claim: str, names: list[str]) -> Settled:
    """F-6, F-7: while nothing fails, fault tolerance costs at most `LITTLE`."""
    asked = table.loc[[name for name in names if name in table.index]]
    if not len(asked) or asked["overhead"].isna().any():
        return _not_run(claim, [f"the overhead of {', '.join(names)}"])
    row = asked.iloc[int(asked["overhead"].argmax())]
    interval = float(row["overhead_low"]), float(row["overhead_high"])
    said = "; ".join(f"{n}: {o:+.1%}" for n, o in asked["overhead"].items())
    took = float(asked["checkpoint_ms"].median())
    said += f"; a checkpoint takes {took:.2g} ms" if took > 0 else ""
    return settle(
        claim,
        expected=f"≤ {LITTLE}",
        measured=float(row["overhead"]),
        interval=None if np.isnan(interval[0]) else interval,
        holds=bool(row["overhead"] <= LITTLE),
        note=f"{said}. Micro-batches before the first strike against those without fault "
        "tolerance; of D2, its checkpoints against the rest of an interval.",
    )


def _not_run(claim: str, missing: list[str]) -> Settled:
    why = f"Without {', '.join(missing)}."
    return Settled(claim, None, None, None, "not run", "measured", why)
