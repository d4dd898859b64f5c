"""What the experiments say about D3's claims: one function each, from frames to a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from aftlib.reports.claims import Settled, settle
from aftlib.shared_state.stream.tuples import UNIFORM

LATE = ("late local", "late global")
LITTLE, MOSTLY = 0.05, 0.8
"""Saving that is none; share of it from which one cause is enough to explain it."""
STILL = 1.2
"""Growth from 8 to 24 tasks that counts as none: three times the tasks, a fifth more at most."""


def judge(
    measured: pd.DataFrame,
    modelled: pd.DataFrame,
    pipelined: pd.DataFrame,
    locality: pd.DataFrame,
    failures: pd.DataFrame,
    large: pd.DataFrame | None = None,
) -> list[Settled]:
    """Settle D3-1 … D3-5.

    Parameters
    ----------
    measured, modelled, locality, failures : DataFrame
        Results of `measured`, `modelled`, `states_or_locality` and `one_task_dies`.
    pipelined : DataFrame
        Result of `modelled` for a pipelined shuffle.
    large : DataFrame, optional
        Result of `measured` for more tuples, mentioned beside the others where there is one.
    """
    return [
        grows(modelled, pipelined),
        skew_stops_the_shuffle(pipelined, measured),
        skew_does_not_hurt(measured, large),
        skew_is_faster(measured, locality, large),
        nobody_is_disturbed(failures),
    ]


def grows(modelled: pd.DataFrame, pipelined: pd.DataFrame) -> Settled:
    """D3-1: throughput grows with parallelism."""
    late = modelled[modelled["strategy"].isin(LATE)]
    both = pd.concat([pipelined[pipelined["strategy"] == "upfront"], late])
    uniform = both[both["skew"] == both["skew"].min()]
    wide = uniform.pivot_table(index="tasks", columns="strategy", values="throughput")
    grown, best = (wide.loc[24] / wide.loc[8]).to_dict(), wide.idxmax().to_dict()
    least = min(grown, key=lambda strategy: grown[strategy])
    shown = ", ".join(f"{s} × {grown[s]:.2f}, most at {best[s]} tasks" for s in grown)
    return settle(
        "D3-1",
        expected="> 1 from 8 to 24 tasks",
        measured=grown[least],
        holds=grown[least] > 1,
        basis="modelled",
        note=f"Least growth of throughput from 8 to 24 tasks at uniform keys. {shown}. Tasks merge "
        "one after another, so with every task more sums come in: where a tuple costs little, "
        "growth ends early. The model knows costs measured here, and no limit of another "
        "machine's cores or memory: it cannot say why the document's growth ends at 24.",
    )


def skew_stops_the_shuffle(pipelined: pd.DataFrame, measured: pd.DataFrame) -> Settled:
    """D3-2: behind a shuffle, skew lowers throughput and ends its growth."""
    upfront = pipelined[pipelined["strategy"] == "upfront"]
    wide = upfront.pivot_table(index="tasks", columns="skew", values="throughput")
    at_24 = wide.loc[24].to_dict()
    slower = all(speed < at_24[UNIFORM] for skew, speed in at_24.items() if skew != UNIFORM)
    growth = wide.loc[24] / wide.loc[8]
    skewed = growth[growth.index >= 1.4]
    here = _gains(measured, "upfront")
    most = max(here)
    shown = ", ".join(f"{skew:g}: × {value:.2f}" for skew, value in growth.items())
    return settle(
        "D3-2",
        expected=f"< {STILL} from 1.4 on",
        measured=float(skewed.to_numpy().max()),
        holds=slower and bool((skewed < STILL).all()),
        basis="modelled",
        note="Largest growth of throughput from 8 to 24 tasks at skew ≥ 1.4, pipelined shuffle; "
        f"all skews: {shown}. At 24 tasks every skew is slower than uniform: {slower}. Measured "
        f"on the few tasks of this machine, skew {most:g} against uniform: × "
        f"{here[most].middle:.2f}, for two receivers are hardly unbalanced, and Spark's "
        "aggregation too is faster on skewed keys.",
    )


def skew_does_not_hurt(measured: pd.DataFrame, large: pd.DataFrame | None) -> Settled:
    """D3-3: with shared state, no skew is slower than uniform keys."""
    gains = {(s, skew): gain for s in LATE for skew, gain in _gains(measured, s).items()}
    strategy, skew = min(gains, key=lambda at: gains[at].middle)
    least = gains[strategy, skew]
    return settle(
        "D3-3",
        expected="≥ 1 at every skew",
        measured=least.middle,
        interval=(least.low, least.high),
        holds=least.middle >= 1,
        note=f"Lowest throughput against uniform, {strategy}, skew {skew:g}, with the most tasks "
        "that were measured: median over the turns; the interval spans them." + _beside(large),
    )


def skew_is_faster(
    measured: pd.DataFrame, locality: pd.DataFrame, large: pd.DataFrame | None
) -> Settled:
    """D3-4: with shared state, skewed input is faster, and why."""
    local, shared = (_gains(measured, strategy) for strategy in LATE)
    most = max(local)
    keys = int(locality["keys"].max())
    ns = locality[locality["keys"] == keys].set_index("case")["add_ns"]
    shown = "; ".join(f"{case} {value:.0f}" for case, value in ns.items())
    return settle(
        "D3-4",
        expected="> 1",
        measured=local[most].middle,
        interval=(local[most].low, local[most].high),
        holds=local[most].middle > 1 and shared[most].middle > 1,
        note=f"Late local at skew {most:g} against uniform; late global × "
        f"{shared[most].middle:.2f}. Nanoseconds to add a tuple to one of {keys:,} keys: {shown}. "
        + explanation(ns.to_dict())
        + _beside(large),
    )


def explanation(ns: Mapping[Any, float]) -> str:
    """Whether it is the cache or the number of sums, from the nanoseconds of each case."""
    saved = ns["uniform"] - ns["skewed"]
    if saved < LITTLE * ns["uniform"]:
        return "Skewed tuples are hardly cheaper to add: there is nothing to explain in a task."
    kept = min(max((ns["uniform"] - ns["skewed, all sums kept"]) / saved, 0.0), 1.0)
    found = f"Of what skew saves, {kept:.0%} remains when every key has a sum"
    if kept >= MOSTLY:
        return f"{found}: in a task it is the cache, not the number of sums."
    if kept <= 1 - MOSTLY:
        return f"{found}: in a task it is the number of sums, as the document supposes."
    return f"{found}: in a task it is both the cache and the number of sums."


def _beside(large: pd.DataFrame | None) -> str:
    """What larger runs, if there are any with uniform keys beside skewed ones, gave."""
    if large is None or large.empty or UNIFORM not in set(large["skew"]):
        return ""
    gains = [(s, skew, gain) for s in LATE for skew, gain in _gains(large, s).items()]
    if not gains:
        return ""
    shown = ", ".join(f"{s} {skew:g}: × {gain.middle:.2f}" for s, skew, gain in gains)
    return f" With {int(large['tuples'].max()):,} tuples, one run each: {shown}."


def nobody_is_disturbed(failures: pd.DataFrame) -> Settled:
    """D3-5: a death disturbs no healthy task and no sum."""
    rows = failures.set_index("strategy").to_dict("index")
    late = rows["late global"]
    shown = "; ".join(
        f"{name}: {row['disturbed']} disturbed, {row['again']:,} again"
        for name, row in rows.items()
    )
    return settle(
        "D3-5",
        expected=0,
        measured=late["disturbed"],
        holds=late["disturbed"] == 0 and late["error"] == 0,
        note="Healthy tasks disturbed by a SIGKILL of one task's process under late global merge; "
        f"its sums differ from an undisturbed run's by {late['error']}. Beside it, of "
        f"{late['tuples']:,} tuples: {shown}.",
    )


@dataclass(frozen=True)
class _Gain:
    """Throughput against uniform of the same turn: the median, and the least and most."""

    middle: float
    low: float
    high: float


def _gains(measured: pd.DataFrame, strategy: str) -> dict[float, _Gain]:
    """Gain at each skew, with the most tasks that were measured."""
    most = measured[measured["tasks"] == measured["tasks"].max()]
    chosen = most[most["strategy"] == strategy]
    wide = chosen.pivot_table(index="repeat", columns="skew", values="throughput")
    gains = {skew: wide[skew] / wide[UNIFORM] for skew in wide.columns if skew != UNIFORM}
    return {s: _Gain(float(g.median()), float(g.min()), float(g.max())) for s, g in gains.items()}
