"""D3's claims, and how the frames of its experiments judge them.

The parameters are results of the experiments of the same names: `pipelined` is `modelled` for a
pipelined shuffle, `locality` is of `states_or_locality`, `failures` of `one_task_crashes`,
`sharing` of `servers_and_tasks_crash`; `large`, of `measured` for more tuples, may be empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from aftlib.core.claims import DEVIATES, MODELLED, Claim, Finding, Threshold
from aftlib.shared_state.scaling import GROWTH, SERVED, SKEWED
from aftlib.shared_state.tuplelog import UNIFORM

LATE = ("late local", "late global", SERVED)
LITTLE, MOSTLY = 0.05, 0.8
"""Saving that is none; share of it from which one cause is enough to explain it."""
STILL = 1.2
"""Growth from 8 to 24 tasks that counts as none: three times the tasks, a fifth more at most."""
ABOUT_24 = (16, 36)
"""Parallelism that is about 24: by half more or less."""
TRUSTED = 2.0
"""Factor within which a model must agree with the measured runs of the same tuples and tasks."""
Gain = tuple[float, tuple[float, float]]
"""Throughput against uniform of the same turn: the median, and the least and most."""


def grows(measured: pd.DataFrame, served: pd.DataFrame) -> Finding:
    """D3-1: throughput grows with parallelism."""
    late = pd.concat([measured, served])
    few, most = int(late["tasks"].min()), int(late["tasks"].max())
    uniform = late[(late["skew"] == UNIFORM) & late["strategy"].isin(LATE)]
    wide = uniform.pivot_table(index=["strategy", "repeat"], columns="tasks", values="throughput")
    turns = wide[most] / wide[few]
    grown = {str(s): _spread(rows) for s, rows in turns.groupby("strategy")}
    shown = ", ".join(f"{s} × {gain[0]:.2f}" for s, gain in grown.items() if s != SERVED)
    return Finding(
        *grown[SERVED],
        expected=f"> 1 from {few} to {most} tasks",
        conditions=few < most,
        note=f"Growth of the throughput of a server and its tasks from {few} to {most} tasks, "
        "uniform keys: median over the turns; the interval spans them. No more tasks than these "
        f"were measured. Beside it, in Spark's tasks: {shown}.",
    )


def growth_ends(modelled: pd.DataFrame, held_out: pd.DataFrame) -> Finding:
    """D3-6: growth ends at about 24 tasks."""
    uniform = modelled[(modelled["skew"] == UNIFORM) & modelled["strategy"].isin(LATE)]
    wide = uniform.pivot_table(index="tasks", columns="strategy", values="throughput")
    best, grown = wide.idxmax().to_dict(), wide.loc[GROWTH[1]] / wide.loc[GROWTH[0]]
    far = max(best.values(), key=lambda tasks: abs(tasks - 24))
    inside, accuracy = _trusted(held_out[held_out["strategy"].isin(wide.columns)])
    shown = "; ".join(f"{s}: most at {best[s]}, 8 to 24 × {grown[s]:.2f}" for s in wide.columns)
    return Finding(
        far,
        conditions=inside,
        note=f"Parallelism of the highest throughput at uniform keys. {shown}. The model has tasks "
        "merge one after another, at the cost measured here: a SQLite file that is fsynced, or the "
        "driver, not the document's database. It knows no limit of another machine's cores or "
        f"memory, so it cannot say why the document's growth ends where it does. {accuracy}",
    )


def skew_lowers_the_shuffle(
    pipelined: pd.DataFrame, held_out: pd.DataFrame, measured: pd.DataFrame
) -> Finding:
    """D3-2: behind a shuffle, skew lowers throughput."""
    at_24 = _upfront(pipelined).loc[24]
    skewed = (at_24 / at_24[UNIFORM]).drop(UNIFORM).to_numpy()
    inside, accuracy = _trusted(held_out[held_out["strategy"] == "upfront"])
    here = _gains(measured, "upfront")
    shown = ", ".join(f"{skew:g}: × {gain[0]:.2f}" for skew, gain in here.items())
    return Finding(
        skewed.max(),
        conditions=inside,
        note="Highest throughput against uniform at 24 tasks, pipelined shuffle. Measured on the "
        f"few tasks of this machine: {shown}; so few receivers are hardly unbalanced, and Spark's "
        f"aggregation is faster on skewed keys, too. {accuracy}",
    )


def skew_stops_the_shuffle(pipelined: pd.DataFrame, held_out: pd.DataFrame) -> Finding:
    """D3-7: behind a shuffle, growth stops at 8 tasks from skew 1.4 on, but not before."""
    wide = _upfront(pipelined)
    growth = wide.loc[GROWTH[1]] / wide.loc[GROWTH[0]]
    skewed = growth[growth.index >= SKEWED].to_numpy()
    inside, accuracy = _trusted(held_out[held_out["strategy"] == "upfront"])
    shown = ", ".join(f"{skew:g}: × {value:.2f}" for skew, value in growth.items())
    return Finding(
        skewed.max(),
        conditions=bool(growth[UNIFORM] >= STILL) and inside,
        note=f"Largest growth of throughput from 8 to 24 tasks at skew ≥ {SKEWED}, pipelined "
        f"shuffle, while uniform keys must go on growing; all skews: {shown}. {accuracy}",
    )


def skew_does_not_hurt(
    measured: pd.DataFrame, served: pd.DataFrame, large: pd.DataFrame | None
) -> Finding:
    """D3-3: with shared state, no skew is slower than uniform keys."""
    late = pd.concat([measured, served])
    gains = {(s, skew): gain for s in LATE for skew, gain in _gains(late, s).items()}
    strategy, skew = min(gains, key=lambda at: gains[at])
    return Finding(
        *gains[strategy, skew],
        note=f"Lowest throughput against uniform, {strategy}, skew {skew:g}, with the most tasks "
        "that were measured: median over the turns; the interval spans them." + _beside(large),
    )


def skew_is_faster(
    measured: pd.DataFrame,
    served: pd.DataFrame,
    locality: pd.DataFrame,
    large: pd.DataFrame | None,
) -> Finding:
    """D3-4: with shared state, skewed input is faster, and why."""
    late = pd.concat([measured, served])
    gains = {strategy: _gains(late, strategy) for strategy in LATE}
    most = max(gains[SERVED])
    least = min(by_skew[most] for by_skew in gains.values())
    beside = ", ".join(f"{s} × {by_skew[most][0]:.2f}" for s, by_skew in gains.items())
    keys = int(locality["keys"].max())
    ns = locality[locality["keys"] == keys].set_index("case")["add_ns"]
    shown = "; ".join(f"{case} {value:.0f}" for case, value in ns.items())
    return Finding(
        *least,
        note=f"Skew {most:g} against uniform, the least of: {beside}. Nanoseconds to add a tuple "
        f"to one of {keys:,} keys: {shown}. " + explanation(ns.to_dict()) + _beside(large),
    )


def explanation(ns: Mapping[Any, float]) -> str:
    """Whether it is the cache or the number of sums, from the nanoseconds of each case."""
    saved = ns["uniform"] - ns["skewed"]
    if saved < LITTLE * ns["uniform"]:
        return "Skewed tuples are hardly cheaper to add: there is nothing to explain in a task."
    remaining = min(max((ns["uniform"] - ns["skewed, all sums kept"]) / saved, 0.0), 1.0)
    share = f"Of what skew saves, {remaining:.0%} remains when every key has a sum"
    if remaining >= MOSTLY:
        return f"{share}: in a task it is the cache, not the number of sums."
    if remaining <= 1 - MOSTLY:
        return f"{share}: in a task it is the number of sums, as the document supposes."
    return f"{share}: in a task it is both the cache and the number of sums."


def _beside(large: pd.DataFrame | None) -> str:
    """What larger runs, if there are any with uniform keys beside skewed ones, gave."""
    if large is None or large.empty or UNIFORM not in set(large["skew"]):
        return ""
    gains = [(s, skew, gain) for s in LATE[:2] for skew, gain in _gains(large, s).items()]
    if not gains:
        return ""
    shown = ", ".join(f"{s} {skew:g}: × {gain[0]:.2f}" for s, skew, gain in gains)
    return f" With {int(large['tuples'].max()):,} tuples, one run each: {shown}."


def nobody_is_disturbed(failures: pd.DataFrame, sharing: pd.DataFrame) -> Finding:
    """D3-5: a crash disturbs no healthy task."""
    rows = failures.set_index("strategy").to_dict("index")
    others = sharing[~sharing["crashed"] & (sharing["run"] != "undisturbed")]
    apart = others[(others["joined"] > 1) | (others["read_again"] > 0)]
    disturbed = rows["late global"]["disturbed"] + len(apart)
    seen = rows["upfront, pipelined shuffle"]["disturbed"] > 0
    came_back = bool((sharing.loc[sharing["crashed"], "joined"] > 1).all())
    shown = "; ".join(
        f"{name}: {row['disturbed']} disturbed, {row['again']:,} again"
        for name, row in rows.items()
    )
    return Finding(
        disturbed,
        conditions=seen and came_back,
        note="Healthy tasks that restarted or read again when a process was killed by SIGKILL: a "
        "task of late global merge in Spark; a task, and a server, among two servers of two tasks "
        f"each ({len(others)} healthy tasks watched). A crashed server's own tasks do read again. "
        "The pipelined shuffle shows that a disturbance would be seen, because it has one. In "
        f"Spark, of {rows['late global']['tuples']:,} tuples: {shown}.",
    )


def nothing_is_lost(failures: pd.DataFrame, sharing: pd.DataFrame) -> Finding:
    """D3-8: after a crash nothing is counted twice or lost."""
    error = int(failures.loc[failures["strategy"] == "late global", "error"].max())
    windows = int(sharing["error"].max())
    crashes = sharing.loc[sharing["crashed"], "run"].nunique()
    return Finding(
        error + windows,
        conditions=crashes > 0,
        note="Largest difference of a sum from the undisturbed run's after a SIGKILL of a task of "
        f"late global merge in Spark: {error}; windows that differ after one of a task or of a "
        f"server: {windows}. One crash each; `make crash` kills at every point.",
    )


def _upfront(frame: pd.DataFrame) -> pd.DataFrame:
    """Throughput behind a shuffle by tasks and skew."""
    chosen = frame[frame["strategy"] == "upfront"]
    return chosen.pivot_table(index="tasks", columns="skew", values="throughput")


def _trusted(held_out: pd.DataFrame) -> tuple[bool, str]:
    """Whether a model predicts runs with more tasks from runs with fewer, and how well."""
    if held_out.empty:
        return False, "The model is not validated: measure a second parallelism."
    low, high = held_out["ratio"].min(), held_out["ratio"].max()
    accuracy = (
        f"From fewer tasks the model predicted × {low:.2f} … {high:.2f} of the throughput of more."
    )
    return bool(low > 1 / TRUSTED and high < TRUSTED), accuracy


def _spread(ratios: pd.Series) -> Gain:
    """Median of some turns' ratios, and the least and most."""
    return float(ratios.median()), (float(ratios.min()), float(ratios.max()))


def _gains(measured: pd.DataFrame, strategy: str) -> dict[float, Gain]:
    """Gain at each skew, with the most tasks that were measured."""
    most = measured[measured["tasks"] == measured["tasks"].max()]
    chosen = most[most["strategy"] == strategy]
    wide = chosen.pivot_table(index="repeat", columns="skew", values="throughput")
    return {skew: _spread(wide[skew] / wide[UNIFORM]) for skew in wide.columns if skew != UNIFORM}


BY_SKEW = "Shuffle first: throughput by parallelism and skew (fig. 5)"

CLAIMS = [
    Claim(
        "D3-1", "Throughput grows with parallelism.", grows, source="figs 5, 6",
        expected="> 1 from the fewest to the most tasks",
        threshold=Threshold("figs 5, 6: grows", low=1, strict=True), unit="× the fewest tasks'",
        timed=True, figure="Measured throughput, ",
    ),
    Claim(
        "D3-2", "With a shuffle, skew lowers throughput.", skew_lowers_the_shuffle, source="fig. 5",
        expected="< 1 at every skew", threshold=Threshold("fig. 5: lower", high=1, strict=True),
        unit="× uniform keys'", basis=MODELLED, timed=True, figure=BY_SKEW,
    ),
    Claim(
        "D3-3", "With shared state, skew does not hurt.", skew_does_not_hurt, source="fig. 6",
        expected="≥ 1 at every skew", threshold=Threshold("fig. 6: not lower", low=1),
        unit="× uniform keys'", timed=True, figure="Measured throughput, ",
    ),
    Claim(
        "D3-4", "With shared state, skewed input is faster than uniform input.", skew_is_faster,
        source="fig. 6", expected="> 1", threshold=Threshold("fig. 6: faster", low=1, strict=True),
        unit="× uniform keys'", timed=True, figure="Fewer sums, or sums in the cache?",
    ),
    Claim(
        "D3-5", "A failed task does not disturb the others.", nobody_is_disturbed, source="fig. 1",
        expected=0, threshold=Threshold("fig. 1: none", high=0), unit="tasks disturbed",
        figure="One task crashes (fig. 1)",
    ),
    Claim(
        "D3-6", "Growth with parallelism ends at about 24.", growth_ends, source="fig. 6",
        expected=f"{ABOUT_24[0]} … {ABOUT_24[1]} tasks",
        threshold=Threshold("ours: 24 by half more or less", *ABOUT_24), unit="tasks",
        basis=MODELLED, timed=True,
        figure="Shared state: throughput by parallelism and skew (fig. 6)", recorded=DEVIATES,
    ),
    Claim(
        "D3-7", "With a shuffle, growth stops at 8 tasks from skew 1.4 on.", skew_stops_the_shuffle,
        source="fig. 5", expected=f"< {STILL} from {SKEWED} on",
        threshold=Threshold("ours: three times the tasks, a fifth more", high=STILL, strict=True),
        unit="× that of 8 tasks", basis=MODELLED, timed=True, figure=BY_SKEW,
    ),
    Claim(
        "D3-8", "After a failure nothing is counted twice or lost.", nothing_is_lost,
        source="fig. 1", expected=0, threshold=Threshold("fig. 1: nothing", high=0), unit="wrong",
        figure="One task crashes (fig. 1)",
    ),
]  # fmt: skip
