"""D3's claims, and how the frames of its experiments judge them.

The parameters are results of the experiments of the same names: `pipelined` is `modelled` for a
pipelined shuffle, `failures` of `one_task_crashes`, `sharing` of `servers_and_tasks_crash`,
`engines` of `other_engines`; `large`, of `measured` for more tuples, may be empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.claims import MODELLED, UNDECIDED, Claim, Finding, Threshold
from aftlib.core.intervals import t_interval
from aftlib.shared_state.scaling import GROWTH, SERVED, SKEWED, seconds_by_part
from aftlib.shared_state.tuplelog import UNIFORM

IN_SPARK = ("late local", "late global")
LATE = (*IN_SPARK, SERVED)
MOST = 0.5
"""Share of a saving from which one part is most of it."""
STILL = 1.2
"""Growth from 8 to 24 tasks that counts as none: three times the tasks, a fifth more at most."""
ABOUT_24 = (16, 36)
"""Parallelism that is about 24: by half more or less."""
TRUSTED = 2.0
"""Factor within which a model must agree with the measured runs of the same tuples and tasks."""


def over_turns(ratios: pd.Series) -> dict[str, Any]:
    """Geometric mean of the turns' ratios with its t interval, as arguments of a `Finding`.

    A single turn has no interval, so it decides nothing (`control`).
    """
    counts = {"n": len(ratios), "counted": "turns"}
    if len(ratios) < 2:
        return counts | {"value": float(ratios.iloc[0]), "control": False}
    value, low, high = (float(np.exp(each)) for each in t_interval(np.log(ratios.to_numpy())))
    return counts | {"value": value, "interval": (low, high)}


def shown(ratio: Mapping[str, Any]) -> str:
    """Return a ratio of `over_turns` and its interval as a text."""
    low, high = ratio.get("interval", (None, None))
    return f"× {ratio['value']:.2f}" + ("" if low is None else f" ({low:.2f} … {high:.2f})")


def grows(measured: pd.DataFrame, served: pd.DataFrame) -> Finding:
    """D3-1: throughput grows with parallelism."""
    late = pd.concat([measured, served])
    few, most = int(late["tasks"].min()), int(late["tasks"].max())
    uniform = late[(late["skew"] == UNIFORM) & late["strategy"].isin(LATE)]
    wide = uniform.pivot_table(index=["strategy", "repeat"], columns="tasks", values="throughput")
    turns = wide[most] / wide[few]
    grown = {str(s): over_turns(rows) for s, rows in turns.groupby("strategy")}
    others = ", ".join(f"{s} {shown(grown[s])}" for s in IN_SPARK)
    return Finding(
        **grown[SERVED],
        expected=f"> 1 from {few} to {most} tasks",
        conditions=few < most,
        note=f"Throughput of a server and its tasks grows from {few} to {most} tasks, uniform "
        f"keys. No more tasks than these were measured. In Spark's tasks: {others}.",
    )


def growth_ends(modelled: pd.DataFrame, held_out: pd.DataFrame, engines: pd.DataFrame) -> Finding:
    """D3-6: growth ends at about 24 tasks."""
    uniform = modelled[(modelled["skew"] == UNIFORM) & modelled["strategy"].isin(IN_SPARK)]
    wide = uniform.pivot_table(index="tasks", columns="strategy", values="throughput")
    best, grown = wide.idxmax().to_dict(), wide.loc[GROWTH[1]] / wide.loc[GROWTH[0]]
    far = max(best.values(), key=lambda tasks: abs(tasks - 24))
    off = off_stored(modelled, engines)
    ratios = pd.concat([held_out.loc[held_out["strategy"].isin(wide.columns), "ratio"], off])
    inside, accuracy = _trusted(ratios)
    stored = ", ".join(f"{name} × {ratio:.2f}" for name, ratio in off.items())
    curves = "; ".join(f"{s}: most at {best[s]}, 8 to 24 × {grown[s]:.2f}" for s in wide.columns)
    return Finding(
        far,
        control=inside,
        note="The parallelism of the highest throughput is only modelled, and three costs that the "
        f"document does not give decide it. Uniform keys: {curves}. These costs are a tuple's, a "
        "merged sum's, and the number of keys. The model is of Spark's tasks, not of the "
        f"document's design. {accuracy} Model over stored runs of as many tuples: "
        f"{stored or 'none'}.",
    )


def off_stored(modelled: pd.DataFrame, engines: pd.DataFrame) -> pd.Series:
    """Modelled over stored throughput of as many tuples on two tasks, by strategy and skew."""
    stored = engines[engines["engine"].str.startswith("Spark, ")]
    stored = stored.assign(strategy=stored["engine"].str.removeprefix("Spark, "))
    both = modelled[modelled["tasks"] == 2].merge(stored, on=["strategy", "skew", "tuples"])
    both = both[both["strategy"].isin(IN_SPARK)]
    names = [f"{row.strategy} {row.skew:g}" for row in both.itertuples()]
    return pd.Series((both["throughput_x"] / both["throughput_y"]).to_numpy(), names, dtype=float)


def skew_lowers_the_shuffle(
    pipelined: pd.DataFrame, held_out: pd.DataFrame, measured: pd.DataFrame, engines: pd.DataFrame
) -> Finding:
    """D3-2: behind a shuffle, skew lowers throughput."""
    at_24 = _upfront(pipelined).loc[24]
    skewed = (at_24 / at_24[UNIFORM]).drop(UNIFORM).to_numpy()
    inside, accuracy = _trusted(held_out.loc[held_out["strategy"] == "upfront", "ratio"])
    here = _gains(measured, "upfront")
    few = ", ".join(f"{skew:g}: {shown(gain)}" for skew, gain in here.items())
    return Finding(
        skewed.max(),
        control=inside,
        note="Modelled: behind a pipelined shuffle of 24 tasks, every skew is slower than uniform "
        f"keys. On the few tasks of this machine skew is not slower: {few}. {flink(engines)} So "
        f"few receivers are hardly unbalanced, and skewed keys are cheaper to sum. {accuracy}",
    )


def flink(engines: pd.DataFrame) -> str:
    """What skew does to Flink's own keyed aggregation, by the stored runs."""
    keyed = engines[engines["engine"] == "flink keyed"]
    wide = keyed.pivot_table(index="tuples", columns="skew", values="throughput")
    if wide.empty or UNIFORM not in wide:
        return ""
    gains = (wide.drop(columns=UNIFORM).T / wide[UNIFORM]).to_numpy()
    return (
        f"Flink's own keyed job on two tasks, stored, is × {gains.min():.1f} … {gains.max():.1f} "
        "as fast on skewed keys."
    )


def skew_stops_the_shuffle(pipelined: pd.DataFrame, held_out: pd.DataFrame) -> Finding:
    """D3-7: behind a shuffle, growth stops at 8 tasks from skew 1.4 on, but not before."""
    wide = _upfront(pipelined)
    growth = wide.loc[GROWTH[1]] / wide.loc[GROWTH[0]]
    skewed = growth[growth.index >= SKEWED].to_numpy()
    inside, accuracy = _trusted(held_out.loc[held_out["strategy"] == "upfront", "ratio"])
    by_skew = ", ".join(f"{skew:g}: × {value:.2f}" for skew, value in growth.items())
    return Finding(
        skewed.max(),
        conditions=bool(growth[UNIFORM] >= STILL),
        control=inside,
        note=f"Modelled for one hash function: largest growth from 8 to 24 tasks at skew ≥ "
        f"{SKEWED}, pipelined shuffle. Uniform keys must go on growing. All skews: {by_skew}. "
        f"{accuracy}",
    )


def skew_does_not_hurt(
    measured: pd.DataFrame, served: pd.DataFrame, large: pd.DataFrame | None
) -> Finding:
    """D3-3: with shared state, no skew is slower than uniform keys."""
    gains = _gains(served, SERVED)
    least = min(gains, key=lambda skew: gains[skew]["value"])
    return Finding(
        **gains[least],
        note=f"The least gain of a server and its tasks over uniform keys is at skew {least:g}. "
        f"All of it with the most tasks that were measured. {_in_spark(measured)}{_beside(large)}",
    )


def skew_is_faster(
    measured: pd.DataFrame, served: pd.DataFrame, large: pd.DataFrame | None
) -> Finding:
    """D3-4: with shared state, skewed input is faster, and why."""
    gains = _gains(served, SERVED)
    most = max(gains)
    return Finding(
        **gains[most],
        note=f"Skew {most:g} against uniform keys, a server and its tasks. {explanation(measured)} "
        f"{_in_spark(measured)}{_beside(large)}",
    )


def explanation(measured: pd.DataFrame) -> str:
    """What skew saves a run of late global merge, by part, and what follows about its cause."""
    chosen = measured[measured["strategy"] == "late global"]
    by_skew = seconds_by_part(chosen, int(chosen["tasks"].max())).droplevel("strategy")
    saved = by_skew.loc[UNIFORM] - by_skew.loc[by_skew.index.max()]
    total = saved["seconds"]
    if total <= 0:
        return "In Spark skew saves late global merge nothing, so there is nothing to explain."
    share = saved / total
    kinds = {"merging the sums": "merge_s", "adding tuples up": "sum_s", "transport": "rest_s"}
    text = ", ".join(f"{kind} {share[part]:.0%}" for kind, part in kinds.items())
    per_sum = share["merge_s"] + share["rest_s"]
    if share["sum_s"] >= MOST:
        cause = "Most of it is saved where tuples are added up, so the cache decides."
    elif per_sum >= MOST:
        cause = "Most of it is paid per sum, so fewer sums are the cause, as the document supposes."
    else:
        cause = "No part is most of it."
    return f"Of {total:.2f} s that skew saves late global merge in Spark: {text}. {cause}"


def _in_spark(measured: pd.DataFrame) -> str:
    """Gains of Spark's late strategies at the largest skew."""
    gains = {strategy: _gains(measured, strategy) for strategy in IN_SPARK}
    most = max(gains[IN_SPARK[0]])
    texts = ", ".join(f"{s} {shown(by_skew[most])}" for s, by_skew in gains.items())
    return f"In Spark at skew {most:g}: {texts}."


def _beside(large: pd.DataFrame | None) -> str:
    """What larger runs, if there are any with uniform keys beside skewed ones, gave."""
    if large is None or large.empty or UNIFORM not in set(large["skew"]):
        return ""
    gains = [(s, skew, gain) for s in IN_SPARK for skew, gain in _gains(large, s).items()]
    if not gains:
        return ""
    texts = ", ".join(f"{s} {skew:g}: {shown(gain)}" for s, skew, gain in gains)
    return f" With {int(large['tuples'].max()):,} tuples, one run each: {texts}."


def nobody_is_disturbed(failures: pd.DataFrame, sharing: pd.DataFrame) -> Finding:
    """D3-5: a crash disturbs no healthy task."""
    rows = failures.set_index("strategy").to_dict("index")
    others = sharing[~sharing["crashed"] & (sharing["run"] != "undisturbed")]
    apart = others[(others["joined"] > 1) | (others["read_again"] > 0)]
    disturbed = rows["late global"]["disturbed"] + len(apart)
    healthy = len(others) + int(rows["late global"]["tasks"]) - 1
    seen = rows["upfront, pipelined shuffle"]["disturbed"] > 0
    crashes = sharing[sharing["crashed"]]
    came_back = bool(len(crashes) and (crashes["joined"] > 1).all())
    texts = "; ".join(
        f"{name}: {row['disturbed']} disturbed, {row['again']:,} again"
        for name, row in rows.items()
    )
    return Finding(
        disturbed,
        control=seen and came_back,
        n=healthy,
        counted="healthy tasks",
        note=f"{disturbed} of {healthy} healthy tasks restarted or read again after a SIGKILL of "
        f"another process. {_none_of(healthy, disturbed)} Killed were a task of late global merge "
        "in Spark, and a task and a server among two servers of two tasks each. A crashed "
        "server's own tasks do read again. The pipelined shuffle shows that a disturbance would be "
        f"seen. In Spark, of {rows['late global']['tuples']:,} tuples: {texts}.",
    )


def _none_of(n: int, count: int) -> str:
    """The exact upper bound of a rate of which no event was seen."""
    if count:
        return ""
    return f"So few exclude only a rate above {1 - 0.025 ** (1 / n):.0%} (exact 95 % interval)."


def nothing_is_lost(failures: pd.DataFrame, sharing: pd.DataFrame) -> Finding:
    """D3-8: after a crash nothing is counted twice or lost."""
    error = int(failures.loc[failures["strategy"] == "late global", "error"].max())
    windows = int(sharing["error"].max())
    crashes = sharing.loc[sharing["crashed"], "run"].nunique()
    return Finding(
        error + windows,
        control=crashes > 0,
        n=crashes + 1,
        counted="crashes",
        note=f"After {crashes + 1} crashes, {error + windows} sums or windows differ from the "
        f"undisturbed run's. {_none_of(crashes + 1, error + windows)} A task of late global merge "
        "in Spark, a task and a server were killed by SIGKILL, once each. `make crash` kills at "
        "every point.",
    )


def barriers_are_faster(merges: pd.DataFrame) -> Finding:
    """D3-10: it is faster to flush at barriers than at every update."""
    at = ["store", "keys", "turn"]
    wide = merges.pivot_table(index=at, columns="flush", values="with_barriers_per_s")
    ratios = (wide["barrier"] / wide["merge"]).dropna()
    gains = {case: over_turns(rows) for case, rows in ratios.groupby(["store", "keys"])}
    least = min(gains, key=lambda case: gains[case]["value"])
    texts = ", ".join(f"{s} of {keys:,} keys {shown(gain)}" for (s, keys), gain in gains.items())
    store, keys = least
    return Finding(
        **gains[least],
        note=f"The least gain is that of {store} with {keys:,} keys. Rows merged per second, "
        f"barriers included, against a flush at every merge: {texts}. An update is a batch of sums "
        "here; a flush per tuple would be dearer.",
    )


def _upfront(frame: pd.DataFrame) -> pd.DataFrame:
    """Throughput behind a shuffle by tasks and skew."""
    chosen = frame[frame["strategy"] == "upfront"]
    return chosen.pivot_table(index="tasks", columns="skew", values="throughput")


def _trusted(ratios: pd.Series) -> tuple[bool, str]:
    """Whether a model predicts what was measured, and how well: modelled over measured."""
    if ratios.empty:
        return False, "The model is not validated: measure a second parallelism."
    low, high = ratios.min(), ratios.max()
    inside = bool(low > 1 / TRUSTED and high < TRUSTED)
    text = f"The model gives × {low:.2f} … {high:.2f} of the throughput of runs that it never saw"
    return inside, text + (
        "." if inside else f", so it decides nothing (trusted within × {TRUSTED:g})."
    )


def _gains(measured: pd.DataFrame, strategy: str) -> dict[float, dict[str, Any]]:
    """Gain over uniform keys at each skew, with the most tasks that were measured."""
    most = measured[measured["tasks"] == measured["tasks"].max()]
    chosen = most[most["strategy"] == strategy]
    wide = chosen.pivot_table(index="repeat", columns="skew", values="throughput")
    return {skew: over_turns(wide[skew] / wide[UNIFORM]) for skew in wide if skew != UNIFORM}


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
        unit="× uniform keys'", timed=True, figure="Where the time goes",
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
        figure="Shared state: throughput by parallelism and skew (fig. 6)", recorded=UNDECIDED,
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
    Claim(
        "D3-10", "Flushing only at barriers is faster than flushing at every update.",
        barriers_are_faster, source="section 5.1", expected="> 1",
        threshold=Threshold("section 5.1: a flush at every transaction lowers throughput", low=1,
        strict=True),
        unit="× flushing at every merge", timed=True,
    ),
]  # fmt: skip
