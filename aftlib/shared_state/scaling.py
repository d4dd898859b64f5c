"""Throughput against parallelism (D3 figs 5, 6), modelled from measured costs and imbalance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.shared_state.tuplelog import TupleStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVED = "servers and tasks"
"""The document's own design, beside Spark's strategies."""
SKEWED = 1.4
"""Skew from which D3 sees no growth of the shuffle's throughput beyond few tasks."""
GROWTH = (8, 24)
"""Parallelisms between which throughput is compared."""


@dataclass(frozen=True)
class ShuffleCosts:
    """What a tuple costs that is shuffled before one aggregation, in seconds."""

    fixed_s: float  # of a run, whatever it holds
    sender_s: float  # of a tuple on its task before the shuffle
    receiver_s: float  # and behind it

    @property
    def receiver_share(self) -> float:
        """Share b of a tuple's cost that its key's one receiver bears."""
        return self.receiver_s / (self.sender_s + self.receiver_s)

    def saturation(self, top_share: float) -> float:
        """Parallelism 1 / (b · top1) from which the most frequent key's receiver sets the pace.

        >>> ShuffleCosts(fixed_s=0, sender_s=3e-7, receiver_s=1e-7).saturation(top_share=0.5)
        8.0
        """
        return 1 / (self.receiver_share * top_share)

    def throughput(self, tuples: int, tasks: int, largest_share: float, pipelined: bool) -> float:
        """Tuples a second, when the busiest receiver has a share (load imbalance / tasks) of them.

        Pipelined, senders and receivers run at the same time, each pair on one core's worth of
        work (the document's systems); else stage after stage (Spark).
        """
        send, receive = self.sender_s / tasks, self.receiver_s * largest_share
        if pipelined:
            even = (self.sender_s + self.receiver_s) / tasks
            return tuples / (self.fixed_s + tuples * max(even, receive))
        return tuples / (self.fixed_s + tuples * (send + receive))


@dataclass(frozen=True)
class MergeCosts:
    """What a tuple costs that its own task sums, and what merging the sums costs, in seconds."""

    fixed_s: float  # of a run, whatever it holds
    tuple_s: float  # of a tuple in its task
    merge_s: float  # of a task's sum; one after another, because the merged state is one

    def throughput(self, tuples: int, tasks: int, states: int) -> float:
        """Tuples a second: N / (fixed + N t / p + p s m), when every task ends with s sums."""
        work = tuples * self.tuple_s / tasks
        return tuples / (self.fixed_s + work + tasks * states * self.merge_s)

    def best_tasks(self, tuples: int, states: int) -> float:
        """Parallelism beyond which merging costs more than another task saves: √(N t / (s m)).

        >>> MergeCosts(fixed_s=0, tuple_s=4e-8, merge_s=1e-6).best_tasks(10**8, states=10_000)
        20.0
        """
        return float(np.sqrt(tuples * self.tuple_s / (states * self.merge_s)))


def seconds_by_part(measured: pd.DataFrame, tasks: int) -> pd.DataFrame:
    """Median seconds of runs on so many tasks by skew and strategy, and where they go.

    The work of all tasks is divided by their number. Tasks merge while others do. `rest_s` is what
    no part has: transport, taking the sums, commit.
    """
    runs = measured[measured["tasks"] == tasks]
    runs = runs.assign(merge_s=runs["merge_s"] - runs["task_merge_s"] * (1 - 1 / tasks))
    middle = runs.groupby(["skew", "strategy"]).median(numeric_only=True)
    middle[["read_s", "parse_s", "sum_s"]] /= tasks
    known = middle[["start_s", "read_s", "parse_s", "sum_s", "merge_s"]].sum(axis=1)
    return middle.assign(rest_s=(middle["seconds"] - known).clip(lower=0))


def load_imbalance(shares: np.ndarray, receivers: np.ndarray, tasks: int) -> float:
    """Largest load of a task over the mean load.

    Of each key its share of the tuples, or their number, and its task, both of shape (keys,).

    >>> load_imbalance(np.array([6, 1, 1]), receivers=np.array([0, 1, 1]), tasks=2)
    1.5
    """
    if len(receivers) and not 0 <= receivers.min() <= receivers.max() < tasks:
        raise ValueError(
            f"receivers must lie in 0 … {tasks - 1}, got {receivers.min()} … {receivers.max()}"
        )
    loads = np.bincount(receivers, weights=shares, minlength=tasks)
    if not loads.sum() > 0:
        raise ValueError("shares must hold something, got none: the log is empty")
    return float(loads.max() / loads.mean())


def expected_states(shares: np.ndarray, tuples: int) -> int:
    """Different keys to be expected among that many tuples."""
    return round(float(-np.expm1(tuples * np.log1p(-np.minimum(shares, 1 - 1e-12))).sum()))


Costs = ShuffleCosts | MergeCosts


def fitted(
    measured: pd.DataFrame, imbalance: pd.DataFrame, streams: Sequence[TupleStream]
) -> dict[tuple[str, float, int], Costs]:
    """Costs of each strategy at each skew and parallelism that was measured: medians of the runs.

    A tuple's costs are its service times in the tasks, which share the machine. What merging a sum
    costs is taken where there are most of them, at the least skew. What is left of a run, starting
    its tasks first of all, is fixed. So the model gives the median throughput wherever there is
    one; services that ran at the same time, and so would take longer, are shortened.
    """
    by_skew = {stream.skew: stream for stream in streams}
    loads = imbalance.set_index(["skew", "tasks"])["imbalance"].to_dict()
    each = measured.groupby(["strategy", "tasks", "skew"], as_index=False)
    costs: dict[tuple[str, float, int], Costs] = {}
    merging: dict[tuple[str, int], float] = {}
    for ran in each.median(numeric_only=True).to_dict("records"):
        strategy, skew, tasks = (ran[name] for name in ("strategy", "skew", "tasks"))
        stream, tuples = by_skew[skew], int(ran["tuples"])
        if np.isfinite(ran["sender_s"]):
            sender, receiver = ran["sender_s"] / tuples, ran["receiver_s"] / tuples
            bare: Costs = ShuffleCosts(0.0, sender, receiver)
        else:
            sums = tasks * expected_states(stream.shares, tuples // tasks)
            merge_s = merging.setdefault((strategy, tasks), ran["merge_s"] / sums)
            work = ran["read_s"] + ran["parse_s"] + ran["sum_s"]
            bare = MergeCosts(0.0, work / tuples, merge_s)
        seconds = tuples / ran["throughput"]
        known = tuples / _speed(bare, stream, tuples, tasks, loads[skew, tasks])
        shorter = min(1.0, seconds / known)
        cost = type(bare)(*(float(part * shorter) for part in vars(bare).values()))
        costs[strategy, skew, tasks] = replace(cost, fixed_s=max(0.0, seconds - known))
    return costs


def _speed(
    cost: Costs, stream: TupleStream, tuples: int, tasks: int, load: float, pipelined: bool = False
) -> float:
    """Tuples a second of `tasks` tasks, whose largest has `load` times the mean load."""
    if isinstance(cost, ShuffleCosts):
        return cost.throughput(tuples, tasks, load / tasks, pipelined)
    return cost.throughput(tuples, tasks, expected_states(stream.shares, tuples // tasks))


def imbalances(
    spark: SparkSession, streams: Sequence[TupleStream], tasks: Sequence[int]
) -> pd.DataFrame:
    """Largest task over the mean behind Spark's own shuffle, from each key's exact share.

    Columns skew, tasks, imbalance, and top1: share of the most frequent key.
    """
    rows = []
    for stream in streams:
        hashed = spark_hashes(spark, stream.ids)
        for p in tasks:
            imbalance = load_imbalance(stream.shares, hashed % p, p)
            top1 = float(stream.shares.max())
            rows.append({"skew": stream.skew, "tasks": p, "imbalance": imbalance, "top1": top1})
    return pd.DataFrame(rows)


def spark_hashes(spark: SparkSession, keys: np.ndarray) -> np.ndarray:
    """What Spark's `repartition` goes by, for each key, shape (keys,): its task is that mod p."""
    ranked = spark.createDataFrame(pd.DataFrame({"rank": range(len(keys)), "key": keys}))
    table = ranked.selectExpr("rank", "hash(key) AS hash").toPandas().sort_values("rank")
    return table["hash"].to_numpy(np.int64)


def modelled(
    costs: Mapping[tuple[str, float, int], Costs],
    imbalance: pd.DataFrame,
    streams: Sequence[TupleStream],
    tuples: int,
    pipelined: bool = False,
) -> pd.DataFrame:
    """Throughput of every strategy for `tuples` tuples at each parallelism of `imbalance`.

    The costs are those of the nearest parallelism below that was measured (`fitted`). `pipelined`
    is how a shuffle works: strategies without one are left out then. Columns strategy, skew, tasks,
    tuples, pipelined, throughput.
    """
    by_skew = {stream.skew: stream for stream in streams}
    rows = []
    for strategy, skew in dict.fromkeys((strategy, skew) for strategy, skew, _ in costs):
        fits = {p: cost for (s, at, p), cost in costs.items() if (s, at) == (strategy, skew)}
        loads = imbalance[imbalance["skew"] == skew].set_index("tasks")["imbalance"]
        for tasks, load in zip(loads.index.tolist(), loads.tolist(), strict=True):
            cost = fits[max((p for p in fits if p <= tasks), default=min(fits))]
            if pipelined and isinstance(cost, MergeCosts):
                continue
            speed = _speed(cost, by_skew[skew], tuples, tasks, load, pipelined)
            rows.append((strategy, skew, tasks, tuples, pipelined, speed))
    names = ["strategy", "skew", "tasks", "tuples", "pipelined", "throughput"]
    return pd.DataFrame(rows, columns=names)


def held_out(
    measured: pd.DataFrame,
    costs: Mapping[tuple[str, float, int], Costs],
    imbalance: pd.DataFrame,
    streams: Sequence[TupleStream],
) -> pd.DataFrame:
    """What the model foresees from fewer tasks, beside what was measured with more.

    Each parallelism but the least is modelled from the costs of those below it, as parallelisms
    beyond this machine are: so it is seen how far the model may be trusted. Columns strategy, skew,
    tasks, measured (median) and modelled throughput, and ratio: modelled over measured.
    """
    at = ["strategy", "skew", "tasks"]
    middle = measured.groupby(at, as_index=False)[["tuples", "throughput"]].median()
    found = []
    for tasks in sorted({int(each) for each in middle["tasks"]}):
        runs = middle[middle["tasks"] == tasks]
        below = {key: cost for key, cost in costs.items() if key[2] < tasks}
        if below:
            here = imbalance[imbalance["tasks"] == tasks]
            model = modelled(below, here, streams, int(runs["tuples"].iloc[0]))
            both = runs.merge(model, on=at, how="inner", suffixes=("_measured", "_modelled"))
            both["ratio"] = both["throughput_modelled"] / both["throughput_measured"]
            found.append(both)
    names = {"throughput_measured": "measured", "throughput_modelled": "modelled"}
    columns = [*at, *names.values(), "ratio"]
    if not found:
        return pd.DataFrame(columns=columns)
    return pd.concat(found, ignore_index=True).rename(columns=names)[columns]


def costs_table(
    costs: Mapping[tuple[str, float, int], Costs], streams: Sequence[TupleStream], tuples: int
) -> pd.DataFrame:
    """Measured costs in nanoseconds, b, and where growth ends: strategy, skew, tasks, ….

    `ends_at` is 1 / (b · top1) behind a shuffle (infinite where the senders are the limit), and
    the best parallelism where sums are merged one after another.
    """
    by_skew = {stream.skew: stream for stream in streams}
    rows = []
    for (strategy, skew, tasks), cost in costs.items():
        stream = by_skew[skew]
        row = {"strategy": strategy, "skew": skew, "tasks": tasks, "fixed_s": cost.fixed_s}
        if isinstance(cost, ShuffleCosts):
            row |= {"sender_ns": 1e9 * cost.sender_s, "receiver_ns": 1e9 * cost.receiver_s}
            row |= {"b": cost.receiver_share}
            row |= {"ends_at": cost.saturation(float(stream.shares.max()))}
        else:
            states = expected_states(stream.shares, tuples)
            row |= {"sender_ns": 1e9 * cost.tuple_s, "merge_ns": 1e9 * cost.merge_s}
            row |= {"ends_at": cost.best_tasks(tuples, states)}
        rows.append(row)
    return pd.DataFrame(rows)
