"""Throughput against parallelism (D3 figs 5, 6): how skew and growth are judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from aftlib.core.intervals import t_interval
from aftlib.shared_state.paced import DESIGNS, hash_keys
from aftlib.shared_state.tuplelog import UNIFORM, TupleStream
from aftlib.workbench.old_claims import Finding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVED = "servers and tasks"
"""The document's own design, which is compared with Spark's strategies."""
BROKEN = "late global, offsets apart"
"""A store that commits offsets apart from the sums: the broken control of D3-8."""
SKEWED = 1.4
"""Least skew at which D3 sees the throughput of a shuffle stop growing after few tasks."""
GROWTH = (8, 24)
"""Parallelisms between which throughput is compared."""
STILL = 1.2
"""Growth below this factor counts as none where the number of tasks doubles or triples."""
BUSY, BEHIND = 0.5, 0.1
"""Busy share of the cores, and delay, from which this machine is too slow to emulate cores."""
AGREED = 1.25
"""Factor within which the computed growth of a shuffle must agree with the emulated one."""
HASHES = 200
"""Number of hash functions for which the growth of a shuffle is computed."""
SKEWS = (UNIFORM, 1.2, 1.4, 1.6, 1.8, 2.0)
"""The document's skews."""


def over_turns(ratios: pd.Series) -> Finding:
    """Geometric mean of the turns' ratios with its t interval.

    A single turn has no interval. Its `control` is False, so that no verdict from it is "holds".
    """
    if len(ratios) < 2:
        return Finding(ratios.iloc[0], control=False, n=len(ratios), counted="turns")
    value, low, high = np.exp(t_interval(np.log(ratios.to_numpy())))
    return Finding(value, (low, high), n=len(ratios), counted="turns")


def over_hashes(values: Sequence[float] | np.ndarray, **more: Any) -> Finding:
    """Median of computed values with the interval that holds 95 % of the hash functions."""
    low, middle, high = np.quantile(values, [0.025, 0.5, 0.975])
    return Finding(middle, (low, high), n=HASHES, counted="hash functions", **more)


def ends_of(ratio: Finding) -> tuple[float, float]:
    """Ends of a ratio's interval; without an interval, both are the ratio's value."""
    value: Any = ratio.value
    return ratio.interval or (value, value)


def format_ratio(ratio: Finding) -> str:
    """Return a ratio and its interval as a text."""
    ends = " ({:.2f} … {:.2f})".format(*ratio.interval) if ratio.interval else ""
    return f"× {ratio.value:.2f}{ends}"


def format_by_skew(gains: Mapping[float, Finding]) -> str:
    """Return gains by skew as a text."""
    return ", ".join(f"{skew:g}: {format_ratio(gain)}" for skew, gain in gains.items())


def seconds_by_part(measured: pd.DataFrame, tasks: int) -> pd.DataFrame:
    """Median seconds of runs on `tasks` tasks, and of their parts, by skew and strategy.

    Seconds that several tasks spend are added up and divided by the number of tasks. `rest_s` is
    the remaining time: transport, collecting the sums, commit.
    """
    runs = measured[measured["tasks"] == tasks]
    runs = runs.assign(merge_s=runs["merge_s"] - runs["task_merge_s"] * (1 - 1 / tasks))
    middle = runs.groupby(["skew", "strategy"]).median(numeric_only=True)
    middle[["read_s", "parse_s", "sum_s"]] /= tasks
    parts_s = middle[["start_s", "read_s", "parse_s", "sum_s", "merge_s"]].sum(axis=1)
    return middle.assign(rest_s=(middle["seconds"] - parts_s).clip(lower=0))


def largest_share(shares: np.ndarray, hashes: np.ndarray, tasks: int) -> float:
    """Share of tuples that the busiest task gets behind a shuffle: key k goes to hash mod `tasks`.

    >>> largest_share(np.array([0.75, 0.125, 0.125]), hashes=np.array([0, 1, 3]), tasks=2)
    0.75
    """
    return float(np.bincount(hashes % tasks, weights=shares, minlength=tasks).max())


def shuffled_growth(
    shares: np.ndarray, hashes: np.ndarray, read_s: float, receive_s: float
) -> float:
    """Growth of a pipelined shuffle's throughput between the parallelisms of `GROWTH`.

    A tuple costs its sender `read_s` and its receiver `receive_s`. The senders or the busiest
    receiver limit the throughput, whichever are slower.
    """
    few, most = (
        max(read_s / tasks, receive_s * largest_share(shares, hashes, tasks)) for tasks in GROWTH
    )
    return few / most


def spark_hashes(spark: SparkSession, keys: np.ndarray) -> np.ndarray:
    """Spark's hash of each key, shape (keys,); `repartition(p)` sends a key to task hash mod p."""
    ranked = spark.createDataFrame(pd.DataFrame({"rank": range(len(keys)), "key": keys}))
    table = ranked.selectExpr("rank", "hash(key) AS hash").toPandas().sort_values("rank")
    return table["hash"].to_numpy(np.int64)


def gains_over_uniform(measured: pd.DataFrame, strategy: str) -> dict[float, Finding]:
    """Throughput at each skew divided by that of uniform keys, with the most tasks measured."""
    most = measured[measured["tasks"] == measured["tasks"].max()]
    return _over_uniform(most[most["strategy"] == strategy], "repeat")


def _over_uniform(runs: pd.DataFrame, turn: str) -> dict[float, Finding]:
    wide: Any = runs.pivot_table(index=turn, columns="skew", values="throughput")
    return {skew: over_turns(wide[skew] / wide[UNIFORM]) for skew in wide if skew != UNIFORM}


def _check_cores(paced: pd.DataFrame, design: str) -> tuple[bool, str]:
    """Return whether this machine could emulate a design's cores, and text on how busy it was."""
    middle = paced[paced["design"] == design].groupby("tasks").median(numeric_only=True)
    busy, behind = middle["cpu_share"].max(), middle["behind"].max()
    text = f"Of this machine's cores {busy:.0%} were at work, and tasks at most {behind:.0%} late."
    return bool(busy < BUSY and behind < BEHIND), text


def skew_on_emulated_cores(paced: pd.DataFrame, design: str) -> dict[float, Finding]:
    """Throughput at each skew divided by that of uniform keys, on 24 emulated cores."""
    chosen = paced[(paced["design"] == design) & (paced["tasks"] == GROWTH[1])]
    return _over_uniform(chosen[chosen["keys"] == chosen["keys"].max()], "turn")


def at_every_skew(gains: Mapping[float, Finding], worst: float, on_time: bool = True) -> Finding:
    """The gain at the skew `worst`, with the gains at the other skews as its parts.

    `on_time` is False for emulated cores if this machine was too busy; then no gain can hold.
    """
    findings = {s: replace(each, control=on_time and each.control) for s, each in gains.items()}
    parts = {f"skew {s:g}": each for s, each in findings.items() if s not in (worst, UNIFORM)}
    return replace(findings[worst], parts=parts)


def least_gain_on_emulated_cores(paced: pd.DataFrame) -> dict[str, Finding]:
    """Reading, by name: least gain by skew of late merging, on emulated cores."""
    gains = skew_on_emulated_cores(paced, "late")
    least = min(gains, key=lambda skew: ends_of(gains[skew]))
    name = f"{paced['keys'].max():,} keys on {GROWTH[1]} emulated cores, least at skew {least:g}"
    return {name: at_every_skew(gains, least, _check_cores(paced, "late")[0])}


def _growth_by_keys(paced: pd.DataFrame, few: int, most: int) -> dict[int, Finding]:
    """Growth of late merging at uniform keys between two parallelisms, by number of keys."""
    late = paced[(paced["design"] == "late") & (paced["skew"] == UNIFORM)]
    wide = late.pivot_table(index=["keys", "turn"], columns="tasks", values="throughput")
    ratios = (wide[most] / wide[few]).groupby("keys")
    return {int(str(keys)): over_turns(rows) for keys, rows in ratios}


def growths(paced: pd.DataFrame, few: int, most: int) -> str:
    """Text: growth of late merging by number of keys."""
    growths = _growth_by_keys(paced, few, most)
    return ", ".join(f"{keys:,} keys {format_ratio(growth)}" for keys, growth in growths.items())


def growth_ends(paced: pd.DataFrame) -> Finding:
    """D3-6: growth ends at about 24 tasks."""
    few, about = GROWTH
    most = int(paced["tasks"].max())
    before, after = (_growth_by_keys(paced, *pair) for pair in ((few, about), (about, most)))
    on_time, accuracy = _check_cores(paced, "late")
    findings = {}
    for keys, growth in after.items():
        low, high = ends_of(before[keys])
        control = on_time and growth.control and (low >= STILL or high < STILL)
        findings[f"{keys:,} keys"] = replace(growth, control=control, conditions=high >= STILL)
    *others, main = findings
    return replace(
        findings[main],
        readings={name: findings[name] for name in others},
        expected=f"< {STILL} from {about} to {most} tasks",
        note=f"Gap in the document: it does not give the number of keys. Growth from {about} to "
        f"{most} tasks, uniform keys: {growths(paced, about, most)}; from {few} to {about}: "
        f"{growths(paced, few, about)}. Merges run one after another, so more sums end growth "
        "sooner. Limit of our evidence: other costs of a tuple or a sum were not tried. Table 2's "
        f"machine has two sockets of 24 cores; emulated cores have no sockets. {accuracy}",
    )


def skew_lowers_the_shuffle(
    paced: pd.DataFrame, measured: pd.DataFrame, engines: pd.DataFrame
) -> Finding:
    """D3-2: behind a shuffle, skew lowers throughput."""
    gains = skew_on_emulated_cores(paced, "shuffle")
    highest = max(gains, key=lambda skew: ends_of(gains[skew])[1])
    on_time, accuracy = _check_cores(paced, "shuffle")
    shuffled = paced[paced["design"] == "shuffle"]
    read, receive = float(shuffled["read_ns"].median()), float(shuffled["receive_ns"].median())
    keys, share = int(shuffled["keys"].iloc[0]), receive / (read + receive)
    bear = {"our share": share, "half": 0.5, "a tenth": 0.1}
    computed = {
        f"computed at skew {SKEWS[1]}, receivers bear {name} of the cost": _lowered(keys, part)
        for name, part in bear.items()
    }
    few = format_by_skew(gains_over_uniform(measured, "upfront"))
    return replace(
        at_every_skew(gains, highest, on_time),
        readings=computed,
        expected=f"< 1 at {_skews(gains)}",
        note=f"The value is throughput at skew {highest:g} over that of uniform keys, on 24 "
        "emulated cores. This skew has the interval with the highest upper end. By skew: "
        f"{format_by_skew(gains)}. Limit of our evidence: each turn has another hash function, so "
        f"few turns say little. The readings are computed over {HASHES} hash functions; an "
        "interval contains 95 % of them. Gap in the document: it does not give the receivers' "
        f"share of a tuple's cost, which decides the readings. Our receivers bear {share:.0%} of "
        f"it, Spark's here {_spark_share(measured)}. {accuracy} On the few tasks of this "
        f"machine: {few}. {flink(engines)} The loads of so few receivers are nearly equal, and "
        "skewed keys are cheaper to sum.",
    )


def _skews(gains: Iterable[float]) -> str:
    """Text: the skews that were run."""
    return f"skew {', '.join(f'{skew:g}' for skew in gains if skew != UNIFORM)}"


def _lowered(keys: int, receive: float) -> Finding:
    """Computed throughput of 24 tasks behind a shuffle at the least skew, over uniform keys'.

    Receivers bear the share `receive` of a tuple's cost.
    """

    def slowest(skew: float, turn: int) -> float:
        share = largest_share(TupleStream(1, keys, skew).shares, hash_keys(keys, turn), GROWTH[1])
        return max((1 - receive) / GROWTH[1], receive * share)

    return over_hashes([slowest(UNIFORM, turn) / slowest(SKEWS[1], turn) for turn in range(HASHES)])


def _spark_share(measured: pd.DataFrame) -> str:
    """Text: share of a tuple's cost that falls behind Spark's own shuffle, for uniform keys."""
    runs = measured[(measured["strategy"] == "upfront") & (measured["skew"] == UNIFORM)]
    share = (runs["receiver_s"] / (runs["sender_s"] + runs["receiver_s"])).median()
    return f"{share:.0%}"


def flink(engines: pd.DataFrame) -> str:
    """Text: effect of skew on Flink's own keyed aggregation, from the stored runs."""
    keyed = engines[(engines["engine"] == "flink keyed") & (engines["on"] == "two tasks")]
    wide = keyed.pivot_table(index="tuples", columns="skew", values="throughput")
    if wide.empty or UNIFORM not in wide:
        return ""
    gains = (wide.drop(columns=UNIFORM).T / wide[UNIFORM]).to_numpy()
    return (
        f"In stored runs, Flink's own keyed job on two tasks is {gains.min():.1f} … "
        f"{gains.max():.1f} times as fast on skewed keys as on uniform keys."
    )


def skew_stops_the_shuffle(paced: pd.DataFrame) -> Finding:
    """D3-7: behind a shuffle, growth stops at 8 tasks from skew 1.4 on, but not before."""
    shuffled = paced[paced["design"] == "shuffle"]
    keys = int(shuffled["keys"].iloc[0])
    costs = float(shuffled["read_ns"].median()), float(shuffled["receive_ns"].median())
    agreement = over_turns(pd.concat([_agreement(rows) for _, rows in shuffled.groupby("skew")]))
    on_time, accuracy = _check_cores(paced, "shuffle")
    control = on_time and 1 / AGREED < float(agreement.value or 0) < AGREED
    ours, text = _stops(keys, *costs, control)
    receivers, other = _stops(keys, 0.0, 1.0, control)
    return replace(
        ours,
        readings={"receivers alone set the pace": receivers},
        note="Gap in the document: it gives neither the hash function nor the cost of a tuple, and "
        f"both decide. Growth from 8 to 24 tasks over {HASHES:,} hash functions is computed from "
        "the keys' shares. The interval contains 95 % of the hash functions. With our costs "
        f"({costs[0]:.0f} ns before the shuffle, {costs[1]:.0f} behind it): {text}. Where "
        f"receivers alone set the pace: {other}. Emulated growth divided by computed growth: "
        f"{format_ratio(agreement)}. Throughput of uniform keys must go on growing. {accuracy}",
    )


def _stops(keys: int, read: float, receive: float, control: bool) -> tuple[Finding, str]:
    """Return the skew ≥ 1.4 with the most growth at these costs, and text on growth by skew."""
    by_skew = {skew: _growth_by_hash(keys, skew, read, receive) for skew in SKEWS}
    worst = max((s for s in SKEWS if s >= SKEWED), key=lambda s: float(np.median(by_skew[s])))
    texts = ", ".join(f"{skew:g}: × {np.median(each):.2f}" for skew, each in by_skew.items())
    grow = np.mean(by_skew[worst] >= STILL)
    uniform_grows = np.median(by_skew[UNIFORM]) >= STILL
    finding = over_hashes(by_skew[worst], conditions=uniform_grows, control=control)
    more = f"throughput grows by a fifth or more for {grow:.0%} of the hash functions"
    return finding, f"{texts}; at skew {worst:g}, {more}"


def _growth_by_hash(keys: int, skew: float, read: float, receive: float) -> np.ndarray:
    """Computed growth from 8 to 24 tasks, for many hash functions."""
    shares = TupleStream(1, keys, skew).shares
    hashes = (hash_keys(keys, turn) for turn in range(HASHES))
    return np.array([shuffled_growth(shares, each, read, receive) for each in hashes])


def _agreement(rows: pd.DataFrame) -> pd.Series:
    """Ratio of emulated to computed growth from 8 to 24 tasks, for each turn."""
    keys, skew = int(rows["keys"].iloc[0]), float(rows["skew"].iloc[0])
    shares = TupleStream(1, keys, skew).shares
    wide = rows.pivot_table(index="turn", columns="tasks", values="throughput")
    costs = rows.groupby("turn")[["read_ns", "receive_ns"]].first()
    computed = [
        shuffled_growth(
            shares, hash_keys(keys, int(str(turn))), each["read_ns"], each["receive_ns"]
        )
        for turn, each in costs.iterrows()
    ]
    return wide[GROWTH[1]] / wide[GROWTH[0]] / computed


def late_beats_the_shuffle(
    paced: pd.DataFrame, measured: pd.DataFrame, engines: pd.DataFrame
) -> Finding:
    """D3-9: at the same skew, merging late is faster than a shuffle."""
    many = paced[(paced["tasks"] == GROWTH[1]) & (paced["keys"] == paced["keys"].max())]
    wide = many.pivot_table(index=["skew", "turn"], columns="design", values="throughput")
    ratios = (wide["late"] / wide["shuffle"]).groupby("skew")
    gains = {float(str(skew)): over_turns(rows) for skew, rows in ratios}
    least = min((s for s in gains if s != UNIFORM), key=lambda s: ends_of(gains[s]))
    (late_ok, late_text), (shuffle_ok, text) = (_check_cores(paced, d) for d in ("late", "shuffle"))
    keys = int(many["keys"].iloc[0])
    return replace(
        at_every_skew(gains, least, late_ok and shuffle_ok),
        readings=_gain_with_sparks_keys(paced, measured, least),
        expected=f"> 1 at {_skews(gains)}",
        note="Late merging as a multiple of a shuffle at the same skew, 24 emulated cores, "
        f"{keys:,} keys: {format_by_skew(gains)}. Gap in the document: it does not give the number "
        f"of keys. More keys slow merging down; the reading with more is computed over {HASHES} "
        "hash functions. Both parse and sum by the same compiled code; the shuffle deals tuples "
        f"out to its receivers by NumPy, which is part of its cost. {stored_gain(engines)} Late: "
        f"{late_text} Shuffle: {text}",
    )


def _gain_with_sparks_keys(
    paced: pd.DataFrame, measured: pd.DataFrame, skew: float
) -> dict[str, Finding]:
    """Reading: computed gain of late merging with the number of keys in Spark's runs.

    Sums are merged one after another; each merge takes as long as in Spark's driver.
    """
    late, shuffled = (paced[paced["design"] == design] for design in DESIGNS)
    read, receive = (float(shuffled[cost].median()) for cost in ("read_ns", "receive_ns"))
    spark = measured[(measured["strategy"] == "late local") & (measured["skew"] == UNIFORM)]
    spark = spark[spark["tasks"] == spark["tasks"].max()]
    merge = 1e9 * float((spark["merge_s"] / spark["tasks"] / spark["states"]).median())
    keys, tuples, tasks = int(spark["states"].max()), int(late["tuples"].max()), GROWTH[1]
    shares = TupleStream(1, keys, skew).shares
    sums = tasks * float(-np.expm1(tuples / tasks * np.log1p(-shares)).sum())
    merged = float(late["read_ns"].median()) / tasks + merge * sums / tuples
    busiest = (largest_share(shares, hash_keys(keys, turn), tasks) for turn in range(HASHES))
    gains = [max(read / tasks, receive * share) / merged for share in busiest]
    name = f"computed at skew {skew:g} with {keys:,} keys, {merge:.0f} ns to merge a sum"
    return {name: over_hashes(gains)}


def stored_gain(engines: pd.DataFrame) -> str:
    """Text: stored ratio of late merging's throughput to a shuffle's, by the same compiled code."""
    names = {"Spark, late local": "late", "Spark, upfront, compiled": "shuffle"}
    chosen = engines.assign(design=engines["engine"].map(names)).dropna(subset="design")
    chosen = chosen[chosen["skew"] != UNIFORM]
    if chosen.empty:
        return ""
    at = ["tuples", "skew"]
    wide = chosen.pivot_table(index=at, columns="design", values="throughput")
    gain = wide["late"] / wide["shuffle"]
    return f"Stored runs of both on two tasks of Spark: × {gain.min():.1f} … {gain.max():.1f}."
