"""D3's claims, each judged by the results of its experiments.

A claim's function has parameters that are results of the experiments of the same names.
Exceptions: `failures` is of `one_task_crashes`, `sharing` of `servers_and_tasks_crash`, `engines`
of `other_engines`, and `large` of `measured` with more tuples. `large` is None or empty if those
did not run.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from aftlib.core.intervals import share_interval
from aftlib.shared_state.scaling import (
    BROKEN,
    GROWTH,
    SERVED,
    SKEWED,
    STILL,
    at_every_skew,
    ends_of,
    format_by_skew,
    format_ratio,
    gains_over_uniform,
    growth_ends,
    growths,
    late_beats_the_shuffle,
    least_gain_on_emulated_cores,
    over_turns,
    seconds_by_part,
    skew_lowers_the_shuffle,
    skew_on_emulated_cores,
    skew_stops_the_shuffle,
)
from aftlib.shared_state.tuplelog import UNIFORM
from aftlib.workbench.old_claims import MODELLED, SIMULATED, UNDECIDED, Claim, Finding, Threshold

IN_SPARK = ("late local", "late global")
LATE = (*IN_SPARK, SERVED)
MOST = 0.5
"""Smallest share of the saved time that the text calls most of it."""


def grows(measured: pd.DataFrame, served: pd.DataFrame, paced: pd.DataFrame) -> Finding:
    """D3-1: throughput grows with parallelism."""
    late = pd.concat([measured, served])
    few, most = int(late["tasks"].min()), int(late["tasks"].max())
    uniform = late[(late["skew"] == UNIFORM) & late["strategy"].isin(LATE)]
    wide = uniform.pivot_table(index=["strategy", "repeat"], columns="tasks", values="throughput")
    turns = wide[most] / wide[few]
    growth = {str(s): over_turns(rows) for s, rows in turns.groupby("strategy")}
    others = ", ".join(f"{s} {format_ratio(growth[s])}" for s in IN_SPARK)
    return replace(
        growth[SERVED],
        expected=f"> 1 from {few} to {most} tasks",
        conditions=few < most,
        note=f"Throughput of a server and its tasks grows from {few} to {most} tasks, uniform "
        f"keys. No more tasks than these were measured. In Spark's tasks: {others}. On emulated "
        f"cores, 8 to 24 tasks: {growths(paced, *GROWTH)}.",
    )


def skew_does_not_hurt(
    measured: pd.DataFrame,
    served: pd.DataFrame,
    paced: pd.DataFrame,
    large: pd.DataFrame | None,
) -> Finding:
    """D3-3: with shared state, no skew is slower than uniform keys."""
    gains = gains_over_uniform(served, SERVED)
    least = min(gains, key=lambda skew: ends_of(gains[skew]))
    return replace(
        at_every_skew(gains, least),
        readings=least_gain_on_emulated_cores(paced),
        expected=f"≥ 1 at skew {', '.join(f'{skew:g}' for skew in gains)}",
        note=f"The value is throughput of servers and tasks at skew {least:g}, divided by that of "
        "uniform keys. At this skew it is least. It is measured with the most tasks. Gap in the "
        "document: it does not give the number of keys. So the runs on emulated cores, with fewer "
        f"keys and more tasks, are judged as another reading. {_beside(measured, paced, large)}",
    )


def skew_is_faster(
    measured: pd.DataFrame,
    served: pd.DataFrame,
    paced: pd.DataFrame,
    large: pd.DataFrame | None,
) -> Finding:
    """D3-4: with shared state, skewed input is faster; the note names the part that is faster."""
    finding = skew_does_not_hurt(measured, served, paced, large)
    return replace(
        finding,
        expected=str(finding.expected).replace("≥", ">"),
        note=f"{explanation(measured)} {finding.note}",
    )


def explanation(measured: pd.DataFrame) -> str:
    """Text: how much time skew saves late global merge, by part of a run, and the likely cause."""
    chosen = measured[measured["strategy"] == "late global"]
    by_skew = seconds_by_part(chosen, int(chosen["tasks"].max())).droplevel("strategy")
    saved = by_skew.loc[UNIFORM] - by_skew.loc[by_skew.index.max()]
    total = saved["seconds"]
    if total <= 0:
        return "In Spark skew saves no time in late global merge, so there is nothing to explain."
    share = saved / total
    kinds = {"merging the sums": "merge_s", "adding tuples up": "sum_s", "transport": "rest_s"}
    text = ", ".join(f"{kind} {share[part]:.0%}" for kind, part in kinds.items())
    others = round(1 - share[[*kinds.values()]].sum(), 4) + 0.0  # no -0
    text += f", starting, reading and parsing {others:.0%}"
    per_sum = share["merge_s"] + share["rest_s"]
    if share["sum_s"] >= MOST:
        cause = "Most of it is saved in adding up: this agrees with a cache effect, not fewer sums."
    elif per_sum >= MOST:
        cause = (
            "Most of it is time that grows with the number of sums, which agrees with the "
            "document's guess: fewer sums."
        )
    else:
        cause = "No part makes up most of it."
    return f"In Spark skew saves {total:.2f} s of late global merge: {text}. {cause}"


def _beside(measured: pd.DataFrame, paced: pd.DataFrame, large: pd.DataFrame | None) -> str:
    """Text: gains of Spark's late strategies, gains on emulated cores, and gains of larger runs."""
    gains = {strategy: gains_over_uniform(measured, strategy) for strategy in IN_SPARK}
    most = max(gains[IN_SPARK[0]])
    texts = ", ".join(f"{s} {format_ratio(by_skew[most])}" for s, by_skew in gains.items())
    many = format_by_skew(skew_on_emulated_cores(paced, "late"))
    beside = f"In Spark at skew {most:g}: {texts}. On 24 emulated cores: {many}."
    if large is None or large.empty or UNIFORM not in set(large["skew"]):
        return beside
    runs = [
        (s, skew, gain) for s in IN_SPARK for skew, gain in gains_over_uniform(large, s).items()
    ]
    texts = ", ".join(f"{s} {skew:g}: {format_ratio(gain)}" for s, skew, gain in runs)
    size = int(large["tuples"].max())
    return beside + (f" With {size:,} tuples, one run each: {texts}." if runs else "")


def nobody_is_disturbed(failures: pd.DataFrame, sharing: pd.DataFrame) -> Finding:
    """D3-5: a crash disturbs no healthy task."""
    rows = failures.set_index("strategy").drop(BROKEN).to_dict("index")
    others = sharing[~sharing["crashed"] & (sharing["run"] != "undisturbed")]
    apart = others[(others["joined"] > 1) | (others["read_again"] > 0)]
    disturbed = rows["late global"]["disturbed"] + len(apart)
    healthy = len(others) + int(rows["late global"]["tasks"]) - 1
    seen = rows["upfront, pipelined shuffle"]["disturbed"] > 0
    crashes = sharing[sharing["crashed"]]
    came_back = bool(len(crashes) and (crashes["joined"] > 1).all())
    count = crashes["run"].nunique() + 1
    texts = "; ".join(
        f"{name}: {row['disturbed']} disturbed, {row['again']:,} again"
        for name, row in rows.items()
    )
    return Finding(
        disturbed,
        control=seen and came_back,
        n=count,
        counted="crashes",
        note=f"{disturbed} of {healthy} healthy tasks restarted or read again in {count} crashes. "
        f"{_none_of(count, disturbed)} Throughput of the healthy tasks is not judged. SIGKILL "
        "ended a task of late global merge in Spark. In a system of two servers with two tasks "
        "each, it ended a task in one run and a server in another. A crashed server's own tasks do "
        "read again. The pipelined shuffle shows that a disturbance would be seen. In Spark, of "
        f"{rows['late global']['tuples']:,} tuples: {texts}.",
    )


def _none_of(n: int, count: int) -> str:
    """Text: upper bound of the rate of an event that occurred in none of n trials; else empty."""
    if count:
        return ""
    most = share_interval(0, n)[1]
    return f"This many crashes exclude only a rate above {most:.0%} (exact 95 % interval)."


def nothing_is_lost(failures: pd.DataFrame, sharing: pd.DataFrame) -> Finding:
    """D3-8: after a crash nothing is counted twice or lost."""
    errors = failures.set_index("strategy")["error"]
    error, broken = int(errors["late global"]), int(errors[BROKEN])
    windows = int(sharing["error"].max())
    crashes = sharing.loc[sharing["crashed"], "run"].nunique()
    return Finding(
        error + windows,
        control=crashes > 0 and broken > 0,
        n=crashes + 1,
        counted="crashes",
        note=f"After {crashes + 1} crashes, {error + windows} sums or windows differ from the "
        f"undisturbed run's. {_none_of(crashes + 1, error + windows)} SIGKILL ended one process "
        "per run: a task of late global merge in Spark, a task of a server, or a server. The "
        "control is a store that commits offsets apart from the sums, killed in between: a sum of "
        f"it is wrong by {broken:,}. `make crash` kills at every point, and breaks servers' "
        "stores, too.",
    )


def barriers_are_faster(merges: pd.DataFrame) -> Finding:
    """D3-10: it is faster to flush at barriers than at every update."""
    at = ["store", "keys", "turn"]
    wide = merges.pivot_table(index=at, columns="flush", values="with_barriers_per_s")
    ratios = (wide["barrier"] / wide["merge"]).dropna()
    gains = {case: over_turns(rows) for case, rows in ratios.groupby(["store", "keys"])}
    least = min(gains, key=lambda case: ends_of(gains[case]))
    store, keys = least
    others = {f"{s} of {n:,} keys": gains[s, n] for s, n in gains if (s, n) != least}
    return replace(
        gains[least],
        parts=others,
        note=f"The least gain is that of {store} with {keys:,} keys. A gain is rows merged "
        "per second, barriers included, over those with a flush at every merge. An update is "
        "a batch of sums here; a flush per tuple would cost more.",
    )


EMULATED = "Emulated cores: throughput by parallelism"

CLAIMS = [
    Claim(
        "D3-1", "Throughput grows with parallelism.", grows, source="fig. 6",
        expected="> 1 from the fewest to the most tasks",
        threshold=Threshold("fig. 6: grows", low=1, strict=True), unit="× the fewest tasks'",
        timed=True, figure="Measured throughput, ",
    ),
    Claim(
        "D3-2", "With a shuffle, skew lowers throughput.", skew_lowers_the_shuffle, source="fig. 5",
        expected="< 1", threshold=Threshold("fig. 5: lower; ours: at each skew", high=1,
                                            strict=True),
        unit="× uniform keys'", basis=SIMULATED, timed=True, figure=EMULATED, recorded=UNDECIDED,
    ),
    Claim(
        "D3-3", "With shared state, skew does not hurt.", skew_does_not_hurt, source="fig. 6",
        expected="≥ 1", threshold=Threshold("fig. 6: not lower; ours: at each skew", low=1),
        unit="× uniform keys'", timed=True, figure="Measured throughput, ", recorded=UNDECIDED,
    ),
    Claim(
        "D3-4", "With shared state, skewed input is faster than uniform input.", skew_is_faster,
        source="fig. 6", expected="> 1",
        threshold=Threshold("fig. 6: faster; ours: at each skew", low=1, strict=True),
        unit="× uniform keys'", timed=True, figure="Where the time goes", recorded=UNDECIDED,
    ),
    Claim(
        "D3-5", "When a task fails, no healthy one restarts or reads again.", nobody_is_disturbed,
        source="section 5.1", expected=0,
        threshold=Threshold("section 5.1: other tasks ignore the failure", high=0),
        unit="tasks disturbed", figure="One task crashes (fig. 1)",
    ),
    Claim(
        "D3-6", "Growth with parallelism ends at about 24 tasks.", growth_ends, source="fig. 6",
        expected=f"< {STILL} beyond 24 tasks",
        threshold=Threshold("ours: less than a fifth more with twice the tasks", high=STILL,
                            strict=True),
        unit="× that of 24 tasks", basis=SIMULATED, timed=True, figure=EMULATED, recorded=UNDECIDED,
    ),
    Claim(
        "D3-7", "With a shuffle, growth stops at 8 tasks from skew 1.4 on.", skew_stops_the_shuffle,
        source="fig. 5", expected=f"< {STILL} at skew {SKEWED} and above",
        threshold=Threshold("ours: less than a fifth more with three times the tasks", high=STILL,
                            strict=True),
        unit="× that of 8 tasks", basis=MODELLED, timed=True, figure=EMULATED, recorded=UNDECIDED,
    ),
    Claim(
        "D3-8", "After a failure nothing is counted twice or lost.", nothing_is_lost,
        source="section 5.1", expected=0,
        threshold=Threshold("section 5.1: offsets are stored with the sums", high=0), unit="wrong",
        figure="One task crashes (fig. 1)",
    ),
    Claim(
        "D3-9", "On skewed input, shared state is faster than a shuffle.", late_beats_the_shuffle,
        source="figs 5, 6", expected="> 1",
        threshold=Threshold("section 6: improves throughput under skew; ours: at each skew", low=1,
                            strict=True),
        unit="× the shuffle's", basis=SIMULATED, timed=True, figure=EMULATED,
        recorded=UNDECIDED,
    ),
    Claim(
        "D3-10", "Flushing only at barriers is faster than flushing at every update.",
        barriers_are_faster, source="section 5.1", expected="> 1",
        threshold=Threshold("section 5.1: a flush at every transaction lowers throughput", low=1,
                            strict=True),
        unit="× flushing at every merge", timed=True,
        figure="Flush at every merge, or at barriers?",
    ),
]  # fmt: skip
